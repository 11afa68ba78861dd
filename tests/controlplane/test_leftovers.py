"""What fits no row on the machine: found, listed, and cleared on request; data never without being asked for by name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState, OperationStep
from controlplane.common.errors import BrokerUnreachable, NotFound
from controlplane.common.models import AuditEvent
from controlplane.provisioning import apis
from controlplane.provisioning.drivers.base import DaemonProcess
from controlplane.provisioning.leftovers import leftovers_clear, leftovers_find
from controlplane.provisioning.management.commands import leftovers as command
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.processes import cluster_process_names
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, Json, World, make_operation

GONE = uuid.UUID("6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11")


@pytest.fixture
def machine(world: World, driver: DriverTwin) -> Iterator[DriverTwin]:
    """The cluster's own daemons run, and what a cluster that is gone has left."""
    for name in cluster_process_names(world.cluster):
        driver.process_start(DaemonProcess(name, world.cluster.pk, [], ""))
    driver.files_write(world.cluster.pk, {"broker-a-0/broker.conf": ""})
    driver.process_start(DaemonProcess("hw-6f0a2a536d0c-broker-a-0", GONE, [], ""))
    driver.files_write(GONE, {"broker-a-0/broker.conf": ""})
    for cluster_id, port in ((world.cluster.pk, 20000), (GONE, 20001)):
        PortLease.objects.create(
            host="127.0.0.1", port=port, cluster_id=cluster_id, holder=uuid.uuid4(), purpose="listenPort"
        )
    with (
        patch.object(apis, "get_driver", return_value=driver),
        patch.object(command, "get_driver", return_value=driver),
    ):
        yield driver


def test_a_machine_that_fits_the_rows_has_nothing_left_over(world: World, driver: DriverTwin) -> None:
    for name in cluster_process_names(world.cluster):
        driver.process_start(DaemonProcess(name, world.cluster.pk, [], ""))
    driver.files_write(world.cluster.pk, {"broker-a-0/broker.conf": ""})
    assert not leftovers_find(driver).anything


def test_a_cluster_whose_directory_is_gone_is_said_so(world: World, driver: DriverTwin) -> None:
    assert leftovers_find(driver).lost == ("acme/orders",)


def test_what_runs_of_a_suspended_cluster_is_found_and_stopped_in_good_order(world: World, machine: DriverTwin) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.SUSPENDED)
    own = set(cluster_process_names(world.cluster))
    assert own < set(leftovers_find(machine).processes)
    leftovers_clear(actor=SYSTEM, driver=machine, data=True)
    assert {call.partition(" ")[2] for call in machine.calls if call.startswith("remove ")} == own
    assert {path.split("/")[0] for path in machine.files} == {str(world.cluster.pk)}


def test_processes_directories_and_ports_of_no_cluster_are_found(machine: DriverTwin) -> None:
    found = leftovers_find(machine)
    assert found.processes == ("hw-6f0a2a536d0c-broker-a-0",)
    assert (found.folders, found.ports) == ((GONE,), ("127.0.0.1:20001",))


def test_a_deleted_clusters_row_keeps_nothing(world: World, machine: DriverTwin) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(state=ClusterState.DELETED)
    assert set(leftovers_find(machine).folders) == {GONE, world.cluster.pk}


def test_clearing_ends_processes_and_frees_ports_and_keeps_data(world: World, machine: DriverTwin) -> None:
    leftovers_clear(actor=SYSTEM, driver=machine)
    after = leftovers_find(machine)
    assert (after.processes, after.ports, after.folders) == ((), (), (GONE,))
    assert set(machine.processes) == set(cluster_process_names(world.cluster))
    assert PortLease.objects.filter(cluster_id=world.cluster.pk).exists()
    assert AuditEvent.objects.get(action="machine.clear").details["processes"] == ["hw-6f0a2a536d0c-broker-a-0"]


def test_data_is_deleted_when_it_is_asked_for_and_only_that_of_no_cluster(world: World, machine: DriverTwin) -> None:
    leftovers_clear(actor=SYSTEM, driver=machine, data=True)
    assert {path.split("/")[0] for path in machine.files} == {str(world.cluster.pk)}


def test_only_operators_clear(world: World, machine: DriverTwin) -> None:
    with pytest.raises(NotFound):
        leftovers_clear(actor=world.alice, driver=machine)


def test_a_machine_that_does_not_answer_is_said_to(driver: DriverTwin, db: None) -> None:
    driver.away = True
    with pytest.raises(BrokerUnreachable, match="The machine does not answer"):
        leftovers_find(driver)


def test_an_operation_that_no_worker_begins_is_stuck_after_two_minutes(world: World, driver: DriverTwin) -> None:
    operation = make_operation(world.acme, "fresh")
    assert not leftovers_find(driver).stuck
    type(operation).objects.filter(pk=operation.pk).update(created_at=timezone.now() - timedelta(minutes=3))
    (stuck,) = leftovers_find(driver).stuck
    assert (stuck.operation.pk, stuck.step, stuck.begun) == (operation.pk, "Reserve ports", False)


def test_an_operation_whose_step_takes_longer_than_it_may_is_stuck(world: World, driver: DriverTwin) -> None:
    operation = make_operation(world.acme, "fresh")
    steps = OperationStep.objects.filter(operation=operation, position=0)
    steps.update(started_at=timezone.now() - timedelta(minutes=2, seconds=30))  # it may take one, and two more
    assert not leftovers_find(driver).stuck
    steps.update(started_at=timezone.now() - timedelta(minutes=4))
    assert [one.begun for one in leftovers_find(driver).stuck] == [True]


def test_the_api_lists_and_clears(world: World, machine: DriverTwin, api: Callable[..., Json]) -> None:
    world.alice.is_staff = True
    world.alice.save()
    client = api(world.alice)
    reported = client.call("GET", "/api/v1/operator/leftovers/").json()
    assert (reported["processes"], reported["folders"]) == (["hw-6f0a2a536d0c-broker-a-0"], [str(GONE)])
    assert client.call("POST", "/api/v1/operator/leftovers/", {}).json() == reported
    assert client.call("GET", "/api/v1/operator/leftovers/").json()["processes"] == []


def test_the_command_fails_while_there_is_something_and_says_what(world: World, machine: DriverTwin) -> None:
    out = StringIO()
    with pytest.raises(CommandError, match="--clear"):
        call_command("leftovers", stdout=out)
    assert "process    hw-6f0a2a536d0c-broker-a-0" in out.getvalue()
    call_command("leftovers", "--clear", "--data", stdout=StringIO())
    call_command("leftovers", stdout=StringIO())


def test_the_command_deletes_no_data_without_clearing(machine: DriverTwin) -> None:
    with pytest.raises(CommandError, match="goes with --clear"):
        call_command("leftovers", "--data")
