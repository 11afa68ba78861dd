"""Promotions by promises, as the steps carry them out: who counts, who gets the role back, and what is decided once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, OperationState, Replica
from controlplane.failover.models import FailoverKind, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.promotion.steps import STEPS
from controlplane.failover.promotion.verdict import GroupView, judge
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.provisioning.steps import StepContext
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.promotions import lose, names, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "sync", replicas=3, policy="automatic_when_lossless")


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        for row in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            driver.states[replica_process_name(cluster, row)] = ProcessState.RUNNING
        cluster_sample(cluster, driver)
        yield group


def dead_for_long(cluster: Cluster, driver: DriverTwin) -> GroupView:
    cluster_sample(cluster, driver)
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
        unreachable_since=timezone.now() - timedelta(seconds=9)
    )
    (view,) = cluster_sample(cluster, driver)
    return view


def test_the_word_of_an_empty_disk_in_the_place_of_one_that_counted_is_no_answer(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    """It held the log to its end a minute ago, as the acknowledged messages wanted; the third never did."""
    group[1].disk, group[1].has_caught_up, group[1].end_offset, group[1].log_epoch = "second", False, 0, 0
    group[2].end_offset = 400
    ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=2).delete()
    lose(group)
    view = dead_for_long(cluster, driver)
    verdict = judge(view, timezone.now())
    assert verdict.cleanness is not None
    assert (verdict.cleanness.clean, "the disk of replica 1 is new" in verdict.cleanness.because) == (False, True)
    assert automatic_failover(cluster, view, driver) is None
    group[1].has_caught_up, group[1].end_offset, group[1].log_epoch = True, 1000, 1
    assert automatic_failover(cluster, dead_for_long(cluster, driver), driver) is None  # it may have caught up long ago
    group[0].answers = group[0].leads = True
    cluster_sample(cluster, driver)  # the master says that it is in sync
    lose(group)
    assert automatic_failover(cluster, dead_for_long(cluster, driver), driver) is not None


def test_everyone_promises_the_fence_before_anyone_is_promoted_from_it(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    seen: list[tuple[int, int]] = []
    group.before_call = lambda call: (
        seen.extend((one.replica_id, one.epoch) for one in group.replicas) if call.startswith("promote") else None
    )
    run(failover, driver, group)
    assert seen == [(0, 1), (1, 4), (2, 4)]  # the dead one is stopped instead
    assert (failover.expected_epoch, failover.decided_id, group.promotions) == (4, 1, [(5, 1)])
    assert "Epoch 4 was promised by 1 and 2." in failover.timeline.get(name="fenced").detail


def test_the_role_goes_back_to_who_led_and_not_to_whoever_was_demoted_last(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)

    def sends_go_on(call: str) -> None:
        if call == "demote 0":
            group[0].end_offset += 300
            group[2].end_offset += 300

    group.before_call = sends_go_on
    operation = run(failover, driver)
    assert operation.state == OperationState.FAILED
    assert group.promotions == [(5, 0)]
    assert "given_back" in names(failover)


def test_a_master_whose_log_is_damaged_is_replaced_where_the_policy_allows_it(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    group[0].damage = "the log is damaged at 400"
    (view,) = cluster_sample(cluster, driver)
    failover = automatic_failover(cluster, view, driver)
    assert failover is not None
    assert run(failover, driver, group).state == OperationState.COMPLETED
    assert (group.promotions, failover.lossless, failover.fence) == ([(5, 1)], True, "demoted")


def test_where_another_than_the_one_that_was_asked_for_is_clean_it_leads_instead_of_no_one(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    assert failover.candidate_id == 1
    group[2].end_offset += 100  # what it had fetched when the master died arrived a moment later than the first look
    assert run(failover, driver, group).state == OperationState.COMPLETED
    assert (failover.candidate_id, group.promotions) == (2, [(5, 2)])
    assert "Replica 1 would not have been clean." in failover.timeline.get(name="fenced").detail


def test_a_candidate_that_promised_something_newer_is_judged_again_before_it_leads(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    """Someone else fenced the group between our decision and our request, and the other slave had taken more until then."""
    group.min_in_sync_replicas = (
        2  # else who is silent may have led for someone else, and have shown what it alone held
    )
    lose(group)
    failover = start(cluster, driver)

    def fenced_by_another(call: str) -> None:
        if call == "promote 1" and group[1].epoch == 4:
            group[1].epoch = group[2].epoch = 7
            group[2].end_offset += 100

    group.before_call = fenced_by_another
    assert run(failover, driver, group).state == OperationState.IN_PROGRESS
    assert group.promotions == []
    assert run(failover, driver, group).state == OperationState.COMPLETED
    assert (failover.expected_epoch, group.promotions) == (8, [(9, 2)])


def test_what_was_decided_is_decided_for_a_worker_that_comes_later(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    fence = operation_of(failover).steps.get(name="failover_fence")
    for step in operation_of(failover).steps.filter(position__lte=fence.position).order_by("position"):
        STEPS[step.name](StepContext.of(step, driver))
    lose(group, 2)  # a second look would not be clean any more; the first one was, and nothing has happened since
    run(failover, driver, group)
    assert group.promotions == [(5, 1)]


def test_a_fence_that_finds_no_one_who_may_lead_starts_what_it_stopped(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    lose(group, 2)
    assert run(failover, driver).state == OperationState.FAILED
    assert any(call.startswith("start") and call.endswith("broker-a-0") for call in driver.calls)
    assert not Replica.objects.filter(group__cluster=cluster, fenced=True).exists()
