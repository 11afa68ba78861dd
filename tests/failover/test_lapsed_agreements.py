"""A loss that someone agreed to is the one that was shown then: an operation that runs later, or again, may lose nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState, Operation, OperationState, OperationStep, OperationType
from controlplane.clusters.operations import operation_retry, operation_start
from controlplane.failover.membership.services import Recover
from controlplane.failover.models import Failover
from controlplane.failover.sampling import cluster_sample
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World
from tests.failover.electing import all_running, begin, run_all, run_step
from tests.failover.promotions import lose, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup
from tests.failover.scripted_quorum import ScriptedQuorum, lose_majority

NO_ONE_AGREED = "No one has agreed to that"


@pytest.fixture
def pair(world: World, driver: DriverTwin) -> Iterator[tuple[Cluster, ScriptedGroup]]:
    """Its slave lacks 100 bytes, and its master does not answer."""
    cluster = make_replicated(world.acme, "pair", "async")
    with ScriptedGroup.of(cluster).answering() as group:
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        group[0].end_offset = 1_100
        cluster_sample(cluster, driver)
        lose(group)
        yield cluster, group


def master_takes_sends_again(group: ScriptedGroup) -> None:
    group[0].answers = True
    group[0].end_offset = 9_000_000
    group[0].epoch = group[0].log_epoch = 2
    group[0].led_in.append(2)


def failed_first(failover: Failover, group: ScriptedGroup, driver: DriverTwin) -> Operation:
    """The candidate answers no more, for so long that the promotion ends."""
    group[1].answers = False
    operation = operation_of(failover)
    step = operation.steps.get(name="failover_preflight")
    OperationStep.objects.filter(pk=step.pk).update(started_at=timezone.now() - timedelta(seconds=40))
    assert run_step(operation, driver, "failover_preflight") == "failed"
    group[1].answers = True
    return operation


def test_a_promotion_that_was_agreed_to_loses_what_was_shown(
    pair: tuple[Cluster, ScriptedGroup], driver: DriverTwin
) -> None:
    cluster, group = pair
    assert run(start(cluster, driver, confirm="broker-a"), driver, group).state == OperationState.COMPLETED
    assert [replica_id for _, replica_id in group.promotions] == [1]


def test_a_promotion_that_is_retried_gives_the_role_back_where_something_would_be_lost(
    pair: tuple[Cluster, ScriptedGroup], driver: DriverTwin
) -> None:
    cluster, group = pair
    failover = start(cluster, driver, confirm="broker-a")
    operation = failed_first(failover, group, driver)
    master_takes_sends_again(group)
    operation_retry(actor=SYSTEM, operation=operation)
    retried = run(failover, driver, group)
    assert retried.state == OperationState.FAILED
    assert retried.error is not None
    assert NO_ONE_AGREED in retried.error["cause"]
    assert {replica_id for _, replica_id in group.promotions} == {0}


def test_a_promotion_that_its_workers_begin_late_asks_again(
    pair: tuple[Cluster, ScriptedGroup], driver: DriverTwin
) -> None:
    cluster, group = pair
    failover = start(cluster, driver, confirm="broker-a")
    Failover.objects.filter(pk=failover.pk).update(created_at=timezone.now() - timedelta(minutes=6))
    master_takes_sends_again(group)
    late = run(failover, driver, group)
    assert late.error is not None
    assert NO_ONE_AGREED in late.error["cause"]
    assert {replica_id for _, replica_id in group.promotions} == {0}


@pytest.fixture
def trio(world: World, driver: DriverTwin) -> Iterator[tuple[Cluster, ScriptedQuorum]]:
    """A group that elects; whose process is removed answers no more, as in life."""
    cluster = make_replicated(world.acme, "trio", "dledger", replicas=3)
    group = ScriptedQuorum.of(cluster)
    removed = driver.process_remove

    def process_remove(name: str) -> None:
        removed(name)
        stopped = group[int(name.rpartition("-")[2])]
        stopped.answers = False
        group.leader = None if group.leader == stopped.replica_id else group.leader

    with group.answering(), patch.object(driver, "process_remove", process_remove):
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield cluster, group


def test_a_recovery_that_is_retried_does_not_stop_a_majority_that_is_back(
    trio: tuple[Cluster, ScriptedQuorum], driver: DriverTwin
) -> None:
    cluster, group = trio
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    run_step(operation, driver, "quorum_stop_lost")
    group[1].answers = False
    assert run_step(operation, driver, "quorum_recover") == "failed"
    for replica_id in (0, 1, 2):
        group[replica_id].answers = True
    group.elect(0)
    driver.calls.clear()
    operation_retry(actor=SYSTEM, operation=operation)
    ended = run_all(operation, driver)
    assert ended.error is not None
    assert ended.error["cause"] == "Nothing was changed. Given up, but answering again: replicas 0 and 2."
    assert [call for call in driver.calls if call.startswith(("remove", "folder"))] == []
    assert (group.leader, group.voters) == (0, [0, 1, 2])


def test_replicas_that_are_back_with_empty_disks_are_as_lost_as_before(
    trio: tuple[Cluster, ScriptedQuorum], driver: DriverTwin
) -> None:
    cluster, group = trio
    lose_majority(group)
    for replica_id in (0, 2):
        group[replica_id].answers = True
        group[replica_id].incarnation, group[replica_id].end_offset = "an empty disk", 0
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    assert run_step(operation, driver, "quorum_stop_lost") == "completed"
    assert [call for call in driver.calls if call.startswith("remove ")] != []


@pytest.mark.parametrize("state", [ClusterState.RUNNING, ClusterState.SUSPENDING, ClusterState.RESUMING])
def test_a_recovery_is_retried_in_whichever_state_its_cluster_is(
    trio: tuple[Cluster, ScriptedQuorum], driver: DriverTwin, state: ClusterState
) -> None:
    cluster, group = trio
    lose_majority(group)
    operation = begin(cluster, driver, Recover(1), confirm="broker-a")
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    Cluster.objects.filter(pk=cluster.pk).update(state=state)
    assert operation_retry(actor=SYSTEM, operation=operation).state == OperationState.IN_PROGRESS
    cluster.refresh_from_db()
    assert cluster.state == state


def test_a_resume_is_retried_after_a_recovery(trio: tuple[Cluster, ScriptedQuorum], driver: DriverTwin) -> None:
    cluster, group = trio
    resume = operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_RESUME)
    Operation.objects.filter(pk=resume.pk).update(state=OperationState.FAILED)
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.RESUMING)
    cluster.refresh_from_db()
    lose_majority(group)
    recovery = begin(cluster, driver, Recover(1), confirm="broker-a")
    Operation.objects.filter(pk=recovery.pk).update(state=OperationState.COMPLETED)
    assert operation_retry(actor=SYSTEM, operation=resume).state == OperationState.IN_PROGRESS
