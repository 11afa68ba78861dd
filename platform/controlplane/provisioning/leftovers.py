"""What runs, lies or is kept on the machine and fits no row, and operations that do not go on: found, and cleared away on request.

Such things should not be. They come of a database that was restored to an earlier moment, of a machine that was away while a
cluster was deleted, of hands. The other way round, a running cluster's row without its process is repaired by the health sampling.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.clusters.models import Cluster, ClusterState, Operation, OperationState, StepState
from controlplane.clusters.stuck_operations import left_behind
from controlplane.clusters.workflows import step_definition, step_title
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import BrokerUnreachable
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.processes import process_names_of

_log = get_logger("controlplane.provisioning")

# So long after its time, or after it could have begun, a step is said not to go on.
_GRACE = timedelta(minutes=2)
_SHOWN_MAX = 100
# None of their daemons should run.
_STOPPED = (ClusterState.SUSPENDED, ClusterState.DELETION_PENDING)
_WITH_DATA = (ClusterState.RUNNING, ClusterState.SUSPENDING, ClusterState.RESUMING, *_STOPPED)


@dataclass(frozen=True, slots=True)
class StuckOperation:
    """An operation in progress whose step takes longer than it may, or which no worker has begun."""

    operation: Operation
    step: str
    since: datetime
    begun: bool

    @property
    def left_behind(self) -> str:
        """What is there when it is ended as failed."""
        return left_behind(self.operation)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What fits no row. `processes` are of no cluster, or of one that is stopped; `folders` are clusters' directories by their ids,
    `ports` leases of clusters that are gone. `lost`: clusters that have run and whose directory is gone, by `tenant/slug`.
    """

    processes: tuple[str, ...]
    folders: tuple[uuid.UUID, ...]
    ports: tuple[str, ...]
    stuck: tuple[StuckOperation, ...]
    lost: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        return self.is_misfit or bool(self.stuck)

    @property
    def is_misfit(self) -> bool:
        """Whether the machine and the rows differ."""
        return bool(self.processes or self.folders or self.ports or self.lost)


def leftovers_find(driver: Driver) -> Leftovers:
    """Compare the machine with the rows. Raises BrokerUnreachable when it does not answer."""
    with _machine_answers():
        inventory = driver.inventory()  # before the rows: what is made meanwhile is in both, or in the rows alone
    clusters = list(Cluster.objects.exclude(state=ClusterState.DELETED).select_related("tenant").order_by("created_at"))
    known = {cluster.pk for cluster in clusters}
    wanted = process_names_of(cluster for cluster in clusters if cluster.state not in _STOPPED)
    leases = PortLease.objects.exclude(cluster_id__in=known).order_by("host", "port")
    return Leftovers(
        processes=tuple(sorted(set(inventory.processes) - wanted)),
        folders=tuple(sorted(set(inventory.clusters) - known)),
        ports=tuple(map(str, leases[:_SHOWN_MAX])),
        stuck=tuple(stuck_operations()),
        lost=tuple(
            str(cluster)
            for cluster in clusters
            if cluster.state in _WITH_DATA and cluster.pk not in set(inventory.clusters)
        ),
    )


def stuck_operations() -> list[StuckOperation]:
    """Return operations that do not go on."""
    return list(_stuck(timezone.now()))


def leftovers_clear(*, actor: Actor, driver: Driver, data: bool = False) -> Leftovers:
    """End the processes and free the ports that fit no row; with `data` also delete clusters' directories that do, for good.

    Returns what was there. Raises NotFound for everyone but operators, BrokerUnreachable when the machine does not answer.
    """
    operator_require(actor)
    found = leftovers_find(driver)
    gone = _gone(found.folders) if data else []
    with _machine_answers():
        for name in found.processes:
            _end(driver, name)
        for cluster_id in gone:
            driver.files_remove(cluster_id)
    with transaction.atomic():
        living = Cluster.objects.exclude(state=ClusterState.DELETED).values("pk")
        PortLease.objects.exclude(cluster_id__in=living).delete()
        audit_event_record(
            actor=actor,
            action="machine.clear",
            resource="/api/v1/operator/leftovers/",
            details={
                "processes": list(found.processes),
                "ports": len(found.ports),
                "folders": [str(cluster_id) for cluster_id in gone],
            },
        )
    _log.warning("leftovers cleared", processes=list(found.processes), folders=[str(one) for one in gone])
    return found


@contextmanager
def _machine_answers() -> Iterator[None]:
    try:
        yield
    except DriverError as error:
        raise BrokerUnreachable(
            say("The machine does not answer: %(error)s", error=str(error)),
            code="machine_away",
            hint=say("Is supervisord running? ./dev status"),
        ) from error


def _end(driver: Driver, name: str) -> None:
    """End a process that should not run: of a stopped cluster in good order, since its data are kept."""
    if name in process_names_of(Cluster.objects.filter(state__in=_STOPPED)):
        driver.process_remove(name)
    else:
        driver.process_kill(name)


def _gone(folders: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    """Return those that no row has now, either: a directory is deleted once it is sure."""
    return [one for one in folders if not Cluster.objects.exclude(state=ClusterState.DELETED).filter(pk=one).exists()]


def _stuck(now: datetime) -> Iterable[StuckOperation]:
    running = Operation.objects.filter(state=OperationState.IN_PROGRESS, waits=False).select_related("cluster__tenant")
    for operation in running.prefetch_related("steps").order_by("created_at"):
        steps = sorted(operation.steps.all(), key=lambda step: step.position)
        present = next((step for step in steps if step.state != StepState.COMPLETED), None)
        if present is None:
            continue
        definition = step_definition(operation.type, present.name)
        if present.started_at is not None:
            since, allowed = present.started_at, timedelta(seconds=definition.timeout_s)
        else:
            ended = [step.finished_at for step in steps if step.finished_at is not None]
            since, allowed = max(ended, default=operation.created_at), timedelta()
        if now - since > allowed + _GRACE:
            yield StuckOperation(operation, step_title(operation, present.name), since, present.started_at is not None)
