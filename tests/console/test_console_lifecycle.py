"""A cluster that is suspended, or deleted and still to be restored, and operations that do not go on, in the console. No daemon is
involved.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationType,
    StepState,
)
from controlplane.clusters.operations import operation_start
from controlplane.console.views import operator_machine
from tests.console.browser import LogIn, look_at
from tests.console.world import World
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM


def stopped(world: World, state: ClusterState, **values: Any) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(
        state=state, stopped_at=timezone.now(), stopped_by=world.alice.email, **values
    )


def deleted(world: World) -> None:
    stopped(world, ClusterState.DELETION_PENDING, delete_at=timezone.now() + timedelta(hours=24))


def test_suspending_goes_on_to_its_progress(world: World) -> None:
    client = world.client(world.alice)
    response = client.post(world.cluster_path("settings/suspend/"), {"reason": "the weekend"})
    operation = Operation.objects.get(cluster=world.cluster, type="cluster.suspend")
    assert response.headers["Location"] == f"/t/acme/operations/{operation.pk}/"
    page = client.get(world.cluster_path("")).content.decode()
    assert "This cluster is being suspended." in page
    assert "The reason given: the weekend" in page
    assert "clients may still use it, and that is counted and billed" in page
    assert "nothing is counted or billed" not in page
    assert "Resume cluster" not in page, "refused until the brokers are stopped"


@pytest.mark.parametrize("rest", ["", "topics/", "lag/", "connect/", "credentials/", "alerts/", "settings/"])
def test_every_page_of_a_suspended_cluster_says_who_stopped_it(world: World, rest: str) -> None:
    stopped(world, ClusterState.SUSPENDED)
    page = world.client(world.alice).get(world.cluster_path(rest)).content.decode()
    assert f"{world.alice.email} suspended this cluster on" in page
    assert "Resume cluster" in page


def test_no_daemon_of_it_is_called_healthy(world: World) -> None:
    stopped(world, ClusterState.SUSPENDED)
    page = world.client(world.alice).get(world.cluster_path("")).content.decode()
    assert page.count('data-state="stopped"') == 2
    assert "Up since" not in page
    assert 'data-state="healthy"' not in page


def test_who_may_not_resume_it_is_not_offered_to(world: World) -> None:
    stopped(world, ClusterState.SUSPENDED)
    assert "Resume cluster" not in world.client(world.victor).get(world.cluster_path("")).content.decode()


def test_resuming_goes_on_to_its_progress(world: World) -> None:
    stopped(world, ClusterState.SUSPENDED)
    response = world.client(world.alice).post(world.cluster_path("resume/"))
    operation = Operation.objects.get(cluster=world.cluster, type="cluster.resume")
    assert response.headers["Location"] == f"/t/acme/operations/{operation.pk}/"


def test_a_resume_that_failed_is_offered_again_after_another_operation(world: World) -> None:
    """A recovery of a group that kept the cluster from resuming comes in between, say."""
    stopped(world, ClusterState.RESUMING, error={"cause": "No leader.", "hint": "", "step": "verify"})
    client = world.client(world.alice)
    page = client.get(world.cluster_path("")).content.decode()
    assert "Starting this cluster again failed: No leader." in page
    assert "Resume cluster" in page
    client.post(world.cluster_path("resume/"))
    assert Operation.objects.get(cluster=world.cluster, type="cluster.resume").state == "in_progress"


def test_a_refused_resume_says_why(world: World) -> None:
    page = world.client(world.alice).post(world.cluster_path("resume/"), follow=True).content.decode()
    assert "The cluster is running, not suspended." in page


def test_a_deleted_cluster_says_until_when_it_can_be_restored_and_is_restored(world: World) -> None:
    deleted(world)
    client = world.client(world.alice)
    page = client.get(world.cluster_path("")).content.decode()
    assert "until then it can be restored" in page
    assert "Will be deleted" in client.get(world.path("")).content.decode()
    client.post(world.cluster_path("restore/"))
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.RESUMING


def test_it_is_deleted_for_good_after_its_name_was_typed(world: World) -> None:
    deleted(world)
    client = world.client(world.alice)
    wrong = client.post(world.cluster_path("settings/purge/"), {"typed": "order"})
    assert (wrong.status_code, "Nothing was deleted" in wrong.content.decode()) == (422, True)
    right = client.post(world.cluster_path("settings/purge/"), {"typed": "orders"})
    assert right.status_code == 302
    world.cluster.refresh_from_db()
    assert world.cluster.state == ClusterState.DELETING


def test_the_progress_of_a_deletion_ends_with_a_cluster_that_can_still_be_opened(world: World, settings: Any) -> None:
    settings.HIGHWATER_DELETE_UNDO_HOURS = 24.0
    client = world.client(world.alice)
    progress = client.post(world.cluster_path("settings/"), {"typed": "orders"}).headers["Location"]
    operation = Operation.objects.get(cluster=world.cluster, type="cluster.delete")
    Cluster.objects.update(state=ClusterState.DELETION_PENDING)  # the operation's last step is about to end
    stopping = client.get(world.cluster_path("")).content.decode()
    assert "until then it can be restored" in stopping
    assert "Restore cluster" not in stopping, "refused until the brokers are stopped"
    assert "This cluster is being deleted." in stopping
    operation.steps.update(state=StepState.COMPLETED)
    Operation.objects.update(state=OperationState.COMPLETED, finished_at=timezone.now())
    page = client.get(progress).content.decode()
    assert "The cluster is stopped, and can still be restored" in page
    assert "Open cluster" in page


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_stopped_cluster_look_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, settings: Any
) -> None:
    settings.HIGHWATER_DELETE_UNDO_HOURS = 24.0
    log_in(world.alice)
    address = f"{live_server.url}{world.cluster_path('')}"
    page.goto(f"{address}settings/")
    look_at(page, "lifecycle settings")
    stopped(world, ClusterState.SUSPENDED, stopped_because="Load tests are over until Monday")
    page.goto(address)
    expect(page.get_by_role("button", name="Resume cluster")).to_be_visible()
    look_at(page, "lifecycle suspended")
    deleted(world)
    page.goto(address)
    look_at(page, "lifecycle deleted")
    page.goto(f"{address}settings/")
    look_at(page, "lifecycle deleted settings")
    page.goto(f"{live_server.url}{world.path('')}")
    look_at(page, "lifecycle list")


@pytest.mark.django_db(transaction=True)
def test_the_page_with_a_stuck_operation_looks_right(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn, tmp_path: Path
) -> None:
    operation = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.CLUSTER_GROW)
    Operation.objects.filter(pk=operation.pk).update(created_at=timezone.now() - timedelta(minutes=5))
    world.alice.is_staff = True
    world.alice.save()
    log_in(world.alice)
    with patch.object(operator_machine, "get_driver", return_value=DriverTwin(tmp_path)):
        page.goto(f"{live_server.url}/operator/machine/")
        look_at(page, "machine with a stuck operation")
