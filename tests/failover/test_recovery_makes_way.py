"""A majority of the disks is lost while another change is under way, or a resume has failed: a recovery does not wait for that."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from controlplane.clusters.lifecycle import cluster_resume
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operation_start, step_claim, step_complete
from controlplane.common.errors import Conflict
from controlplane.failover.membership.services import Prefer, QuorumChange, Recover, Replace, Resize, Transfer
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning import probe
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World, make_operation
from tests.failover.electing import all_running, begin, run_all
from tests.failover.replicated import make_replicated
from tests.failover.scripted_quorum import ScriptedQuorum, lose_majority


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.globex, "trio", "dledger", replicas=3)


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedQuorum]:
    with ScriptedQuorum.of(cluster).answering() as group, patch.object(probe, "port_answers", lambda host, port: True):
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield group


def recover(cluster: Cluster, driver: DriverTwin) -> Operation:
    return begin(cluster, driver, Recover(1), confirm="broker-a")


def at(operation: Operation, name: str) -> Operation:
    """The operation, at this step."""
    position = operation.steps.get(name=name).position
    operation.steps.filter(position__lt=position).update(state=StepState.COMPLETED)
    return operation


def ids(cluster: Cluster) -> list[int]:
    return sorted(Replica.objects.filter(group__cluster=cluster).values_list("broker_id", flat=True))


@pytest.mark.parametrize("change", [Replace(2), Resize(5)])
def test_a_change_that_waits_for_new_replicas_makes_way_for_a_recovery(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin, change: QuorumChange
) -> None:
    ended = run_all(begin(cluster, driver, change), driver)
    assert step_of(ended) == "quorum_catch_up"
    lose_majority(group)
    recovery = recover(cluster, driver)
    ended.refresh_from_db()
    assert ended.state == OperationState.FAILED
    assert ended.error == {
        "cause": "Interrupted: broker-a had lost a majority of its disks, and test asked for its recovery.",
        "hint": "Ask for it again once the group has recovered.",
        "step": "quorum_catch_up",
    }
    assert run_all(recovery, driver).state == OperationState.COMPLETED
    assert group.voters == [1]


def step_of(operation: Operation) -> str:
    return operation.steps.exclude(state=StepState.COMPLETED).earliest("position").name


def test_the_new_replica_of_a_replacement_that_was_ended_becomes_a_voter_afterwards(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    run_all(begin(cluster, driver, Replace(2)), driver)
    lose_majority(group)
    run_all(recover(cluster, driver), driver)
    assert ids(cluster) == [1, 3]
    grown = begin(cluster, driver, Resize(3))
    run_all(grown, driver)
    group.catch_up()
    assert run_all(grown, driver).state == OperationState.COMPLETED
    assert group.voters == [1, 3, 4]


def test_the_worker_of_a_change_that_was_ended_completes_nothing(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    ended = at(begin(cluster, driver, Replace(2)), "quorum_catch_up")
    claim = step_claim(ended.steps.get(name="quorum_catch_up").pk)
    assert claim is not None
    lose_majority(group)
    recover(cluster, driver)
    assert step_complete(claim) is False


@pytest.mark.parametrize("change", [Transfer(1), Prefer(1), Replace(2), Resize(5)])
def test_a_change_that_waits_for_its_turn_makes_way_for_a_recovery(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin, change: QuorumChange
) -> None:
    for number in range(3):
        make_operation(world.globex, f"busy-{number}")
    ended = begin(cluster, driver, change)
    assert ended.waits or isinstance(change, Transfer)
    lose_majority(group)
    assert run_all(recover(cluster, driver), driver).state == OperationState.COMPLETED
    assert ids(cluster) == [1], "what had not begun leaves no replicas"


@pytest.mark.parametrize("step", ["quorum_start_added", "quorum_promote_added", "quorum_remove", "quorum_forget"])
def test_a_change_that_is_half_made_is_waited_for(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin, step: str
) -> None:
    replacement = at(begin(cluster, driver, Replace(2)), step)
    lose_majority(group)
    with pytest.raises(Conflict) as refused:
        recover(cluster, driver)
    assert " seconds at most, then the operation fails" in refused.value.hint
    replacement.refresh_from_db()
    assert replacement.state == OperationState.IN_PROGRESS


def test_of_an_operation_that_waits_for_its_turn_no_end_is_promised(
    world: World, cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    for number in range(3):
        make_operation(world.globex, f"busy-{number}")
    operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_RESTART)
    lose_majority(group)
    with pytest.raises(Conflict) as refused:
        recover(cluster, driver)
    assert (
        refused.value.hint == "It begins when others of your operations have ended. Ask again when it has ended, too."
    )


def test_a_cluster_whose_resume_failed_is_recovered_and_resumed_again(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.RESUMING)
    cluster.refresh_from_db()
    lose_majority(group)
    assert run_all(recover(cluster, driver), driver).state == OperationState.COMPLETED
    assert cluster_resume(actor=SYSTEM, cluster=cluster).type == OperationType.CLUSTER_RESUME


def test_while_a_cluster_is_being_resumed_it_is_not_recovered(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.SUSPENDED)
    cluster.refresh_from_db()
    cluster_resume(actor=SYSTEM, cluster=cluster)
    lose_majority(group)
    with pytest.raises(Conflict, match="The cluster is resuming"):
        recover(cluster, driver)


def test_a_cluster_whose_resume_failed_is_changed_by_a_recovery_alone(
    cluster: Cluster, group: ScriptedQuorum, driver: DriverTwin
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.RESUMING)
    cluster.refresh_from_db()
    with pytest.raises(Conflict, match="resuming, not running"):
        begin(cluster, driver, Replace(2))
