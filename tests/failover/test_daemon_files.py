"""Who writes the files of daemons holds the cluster's row: accounts that were read before a key was deleted come too late."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from controlplane.clusters.models import Cluster, Replica
from controlplane.failover.promotion import steps as promotion
from controlplane.provisioning.accounts import accounts_distribute
from controlplane.provisioning.steps import StepContext, render_configuration
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.replicated import make_replicated


def _is_locked(cluster_id: uuid.UUID) -> bool:
    try:
        with transaction.atomic():
            Cluster.objects.select_for_update(no_key=True, nowait=True).get(pk=cluster_id)
    except OperationalError:
        return True
    finally:
        connection.close()
    return False


class WatchingDriver(DriverTwin):
    """Has another worker try to lock the cluster's row at each write of accounts."""

    locked: list[bool]

    def files_write(self, cluster_id: uuid.UUID, files: Mapping[str, str]) -> None:
        super().files_write(cluster_id, files)
        if any("plain_acl" in path for path in files):
            with ThreadPoolExecutor(1) as other:
                self.locked.append(other.submit(_is_locked, cluster_id).result())


def _start_again(context: StepContext) -> None:
    promotion._start_again(context, Replica.objects.filter(group__cluster=context.cluster).earliest("broker_id"))


def _distribute(context: StepContext) -> None:
    accounts_distribute(context.cluster, context.driver)


@pytest.mark.django_db(transaction=True)
def test_accounts_are_written_while_no_other_worker_can(world: World, tmp_path: Path) -> None:
    cluster = make_replicated(world.acme, "pair", "async")
    writers: dict[Callable[[StepContext], None], int] = {render_configuration: 4, _start_again: 1, _distribute: 4}
    for write, daemons in writers.items():
        driver = WatchingDriver(tmp_path)
        driver.locked = []
        now = timezone.now()
        write(StepContext(cluster, driver, now, now, cluster.operations.latest("created_at")))
        assert driver.locked == [True] * daemons, write.__name__
