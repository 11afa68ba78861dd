"""Promotions step by step: repeated, raced, cut off by a killed worker anywhere. The brokers are scripted, the rows real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Operation,
    OperationState,
    OperationStep,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operations_resume, step_claim
from controlplane.clusters.replica_remoting import ProbeAnswer
from controlplane.clusters.services import group_rows_create
from controlplane.common.errors import ApplicationError, Conflict
from controlplane.failover.errors import ConfirmationNeeded, NotPromotable
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.promotion.steps import STEPS
from controlplane.failover.sampling import cluster_sample, fences_release
from controlplane.failover.selectors import group_view
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import StepContext
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.promotions import lose, names, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup, ScriptedReplica

STEP_NAMES = [
    "failover_preflight",
    "failover_fence",
    "failover_promote",
    "failover_verify",
    "failover_topics",
    "failover_rejoin",
]


class Killed(BaseException):
    """The worker is gone: nothing after this line runs."""


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "sync")


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        for replica in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            driver.states[replica_process_name(cluster, replica)] = ProcessState.RUNNING
        cluster_sample(cluster, driver)
        yield group


def cause(operation: Operation) -> str:
    return str((operation.error or {})["cause"])


def test_what_is_confirmed_where_nothing_is_to_be_lost_agrees_to_no_loss(world: World, driver: DriverTwin) -> None:
    """A program may send the group's name each time; what the fence finds then is asked about."""
    pair = make_replicated(world.acme, "pair-2", "async")
    with ScriptedGroup.of(pair).answering() as group:
        for replica in Replica.objects.filter(group__cluster=pair):
            driver.states[replica_process_name(pair, replica)] = ProcessState.RUNNING
        cluster_sample(pair, driver)
        failover = start(pair, driver, confirm="broker-a")
        group[0].end_offset += 500  # its master goes on acknowledging until it is fenced
        assert run(failover, driver, group).state == OperationState.FAILED
        assert group.promotions[-1][1] == 0


def test_a_dead_masters_process_is_stopped_before_anyone_is_promoted(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    operation = run(failover, driver, group)
    assert operation.state == OperationState.COMPLETED, operation.error
    stopped = next(call for call in driver.calls if call.startswith("kill"))
    assert stopped.endswith("broker-a-0")
    assert group.promotions == [(5, 1)]
    assert (failover.lossless, failover.fence, failover.new_epoch) == (True, "stopped", 5)
    wanted = ["detected", "requested", "preflight", "fenced", "promoted", "registered", "first_write"]
    assert names(failover)[:7] == wanted
    assert names(failover)[7:] == ["rejoining", "rejoined"]


def test_no_one_starts_a_fenced_process_and_it_is_let_go_afterwards(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    for name in STEP_NAMES[:2]:
        operation_step_run(operation_of(failover).steps.get(name=name).pk, driver)
    assert Replica.objects.get(group__cluster=cluster, broker_id=0).fenced
    fences_release(cluster)
    assert Replica.objects.get(group__cluster=cluster, broker_id=0).fenced  # not while the failover goes on
    run(failover, driver, group)
    assert not Replica.objects.get(group__cluster=cluster, broker_id=0).fenced


def test_a_promoted_replica_is_noted_as_leading_without_another_look(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    for step in operation_of(failover).steps.filter(
        name__in=["failover_preflight", "failover_fence", "failover_promote"]
    ):
        STEPS[step.name](StepContext.of(step, driver))
    assert GroupLeadership.objects.get(group__cluster=cluster).led_epoch == 5


def test_who_is_to_lead_is_written_down_before_it_is_asked(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    for step in operation_of(failover).steps.filter(name__in=["failover_preflight", "failover_fence"]):
        STEPS[step.name](StepContext.of(step, driver))
    assert group.promotions == []
    view = group_view(BrokerGroup.objects.get(cluster=cluster))
    assert (view.asked_id, view.asked_epoch) == (1, 5)


def test_a_switchover_holds_sends_until_the_candidate_is_level_and_demotes(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    operation = run(failover, driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    assert group.calls == ["freeze 10000", "demote 0", "demote 1", "promote 1", "promoted 1 5"]
    assert (failover.lossless, failover.messages_at_risk, failover.fence) == (True, 0, "demoted")
    assert failover.outage_ms is not None


def test_a_switchover_whose_candidate_stays_behind_changes_nothing(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.failover.promotion.order.DRAIN_S", 0.05)
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    group[0].end_offset += 500
    operation = run(failover, driver)
    assert operation.state == OperationState.FAILED
    assert "500 bytes behind" in cause(operation)
    assert group[0].leads
    assert not group[0].frozen
    assert group.promotions == []


def test_sends_that_slipped_in_after_the_drain_are_not_lost_the_master_leads_again(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    """The worker was away so long that the master thawed by itself."""

    def thawed(call: str) -> None:
        if call == "demote 0":
            group[0].end_offset += 300

    group.before_call = thawed
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    operation = run(failover, driver)
    assert operation.state == OperationState.FAILED
    assert "replica 0 holds more than replica 1 does (to offset 1300" in cause(operation)
    assert group.master is group[0]
    assert "given_back" in names(failover)


def test_a_master_that_claimed_the_next_epoch_when_its_slave_promised_first_is_fenced_above_that(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    """It had heard of the fence from its slave, was agreed to again, and refused the older fence, with its sends held, for ever."""

    def claims(call: str) -> None:
        if call == "demote 0" and group[0].epoch < 5:
            group[0].epoch = group[0].log_epoch = group[1].epoch = group[1].log_epoch = 5

    group.before_call = claims
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    assert run(failover, driver).state == OperationState.IN_PROGRESS
    assert run(failover, driver).state == OperationState.COMPLETED
    assert (group.promotions, group.master) == ([(9, 1)], group[1])


@pytest.mark.parametrize("kind", [FailoverKind.PROMOTE, FailoverKind.SWITCHOVER])
def test_every_step_may_run_twice(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, kind: FailoverKind
) -> None:
    if kind == FailoverKind.PROMOTE:
        lose(group)
    failover = start(cluster, driver, kind)
    for step in operation_of(failover).steps.order_by("position"):
        if step.name == "failover_rejoin":
            group.back(0)
        STEPS[step.name](StepContext.of(step, driver))
        STEPS[step.name](StepContext.of(step, driver))
    assert group.promotions == [(5, 1)]
    assert len(names(failover)) == len(set(names(failover)))


def test_all_steps_may_run_again_after_all_is_done(cluster: Cluster, group: ScriptedGroup, driver: DriverTwin) -> None:
    lose(group)
    failover = start(cluster, driver)
    run(failover, driver, group)
    for step in operation_of(failover).steps.order_by("position"):
        STEPS[step.name](StepContext.of(step, driver))
    assert group.promotions == [(5, 1)]


@pytest.mark.parametrize("call", ["freeze 10000", "demote 0", "demote 1", "promote 1", "promoted 1 5"])
def test_a_worker_killed_at_any_request_is_resumed_and_there_is_one_promotion(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[str] = []

    def kill(now: str) -> None:
        if now == call and not killed:
            killed.append(now)
            raise Killed

    # "promoted" is written after the broker acted: the answer never arrived.
    promote = group._promote

    def promote_and_die(*args: object, **options: object) -> object:
        answer = promote(*args, **options)  # type: ignore[arg-type]  # passed through as they came
        kill("promoted 1 5")
        return answer

    group.before_call = kill
    monkeypatch.setattr(group, "_promote", promote_and_die)
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    with group.answering(), pytest.raises(Killed):
        run(failover, driver)
    held = OperationStep.objects.get(operation=failover.operation, state=StepState.RUNNING)
    assert operation_step_run(held.pk, driver) == Outcome.NOT_CLAIMED  # its lease has not ended
    OperationStep.objects.filter(pk=held.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    operations_resume()
    with group.answering():
        operation = run(failover, driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    assert group.promotions == [(5, 1)]


def test_a_failovers_step_is_taken_over_soon(cluster: Cluster, group: ScriptedGroup, driver: DriverTwin) -> None:
    failover = start(cluster, driver, FailoverKind.SWITCHOVER)
    step = operation_of(failover).steps.order_by("position")[0]
    assert step_claim(step.pk) is not None
    step.refresh_from_db()
    assert step.lease_until is not None
    assert step.lease_until - timezone.now() < timedelta(seconds=9)


def test_a_supervisor_that_is_away_is_waited_for_and_no_one_is_promoted_meanwhile(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    driver.away = True
    operation = run(failover, driver)
    assert (operation.state, group.promotions) == (OperationState.IN_PROGRESS, [])
    driver.away = False
    assert run(failover, driver, group).state == OperationState.COMPLETED
    assert group.promotions == [(5, 1)]


def test_an_unclean_promotion_wants_the_groups_name(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "loose", "async")
    with ScriptedGroup.of(cluster).answering() as group:
        group[0].end_offset += 700
        cluster_sample(cluster, driver)
        lose(group)
        with pytest.raises(ConfirmationNeeded) as caught:
            start(cluster, driver)
        assert caught.value.extra == {"bytes_at_risk": "700", "messages_at_risk": "7"}
        with pytest.raises(ApplicationError, match="Type the group's name"):
            start(cluster, driver, confirm="broker-b")
        failover = start(cluster, driver, confirm="broker-a")
        run(failover, driver, group)
        assert (failover.lossless, failover.bytes_at_risk, failover.messages_at_risk) == (False, 700, 7)
        assert group.promotions == [(5, 1)]


def test_what_turns_out_unclean_only_after_the_fence_is_given_back(world: World, driver: DriverTwin) -> None:
    """Two of three answered at the pre-flight; by the time the master is fenced, only one does."""
    cluster = make_replicated(world.acme, "three", "sync", replicas=3)
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        lose(group, 0)
        failover = start(cluster, driver)
        lose(group, 2)
        operation = run(failover, driver)
        assert operation.state == OperationState.FAILED
        assert "No one has agreed to that" in cause(operation)
        assert group.promotions == []
        assert not Replica.objects.filter(group__cluster=cluster, fenced=True).exists()


def test_a_second_request_is_refused_while_one_is_in_progress(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    start(cluster, driver)
    with pytest.raises(Conflict):
        start(cluster, driver)
    assert Failover.objects.count() == 1


def test_who_leads_already_or_does_not_answer_is_not_promoted(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group, 1)
    with pytest.raises(NotPromotable):
        start(cluster, driver)


def test_the_epoch_is_raised_above_what_anyone_has_seen(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    group[1].epoch = 7
    lose(group)
    failover = start(
        cluster, driver, confirm="broker-a"
    )  # who lost it may have led in epoch 7, and have shown what is lost
    run(failover, driver, group)
    assert (failover.expected_epoch, failover.new_epoch, group.promotions) == (8, 9, [(9, 1)])
    row = GroupLeadership.objects.get(group__cluster=cluster)
    assert (row.epoch, row.foreign_epoch) == (9, 7)


def test_a_promotion_on_the_command_line_meanwhile_wins_and_ours_fails(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    for name in STEP_NAMES[:2]:
        operation_step_run(operation_of(failover).steps.get(name=name).pk, driver)
    group[1].leads, group[1].epoch, group[1].log_epoch = True, 9, 9
    operation = run(failover, driver)
    assert operation.state == OperationState.FAILED
    assert group.promotions == []


def test_the_policy_promotes_by_itself_only_when_nothing_is_lost(world: World, driver: DriverTwin) -> None:
    for mode, wanted in (("sync", True), ("async", False)):
        cluster = make_replicated(world.acme, f"own-{mode}", mode, policy="automatic_when_lossless")
        with ScriptedGroup.of(cluster).answering() as group:
            cluster_sample(cluster, driver)
            lose(group)
            (view,) = cluster_sample(cluster, driver)
            assert automatic_failover(cluster, view, driver) is None  # it may be back in a moment
            long_ago = timezone.now() - timedelta(seconds=8)
            ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
                unreachable_since=long_ago
            )
            (view,) = cluster_sample(cluster, driver)
            failover = automatic_failover(cluster, view, driver)
            assert (failover is not None) is wanted
            if failover is not None:
                assert failover.kind == FailoverKind.AUTOMATIC
                assert run(failover, driver, group).state == OperationState.COMPLETED


def test_the_first_write_is_a_message_that_the_new_master_stored(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    run(failover, driver, group)
    # The slave that synchronous replication wants is away, but a producer's sends are taken again.
    assert "answered SLAVE_NOT_AVAILABLE" in failover.timeline.get(name="first_write").detail


def test_writes_are_not_back_before_a_message_is_stored(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.failover.promotion.steps._VERIFY_S", 0.05)
    lose(group)
    failover = start(cluster, driver)
    with patch.object(replica_remoting, "probe_send", lambda *_: ProbeAnswer("the disk is full")):
        operation = run(failover, driver, group)
    assert operation.state == OperationState.IN_PROGRESS
    assert (failover.writes_back_at, "first_write" in names(failover)) == (None, False)
    assert "the disk is full" in operation.steps.get(name="failover_verify").message
    run(failover, driver, group)
    assert failover.writes_back_at is not None


def test_an_old_master_that_comes_back_late_is_written_into_the_timeline(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    failover = start(cluster, driver)
    run(failover, driver)
    OperationStep.objects.filter(operation=failover.operation, name="failover_rejoin").update(
        started_at=timezone.now() - timedelta(seconds=41)
    )
    assert run(failover, driver).state == OperationState.COMPLETED
    assert "rejoined" not in names(failover)
    group.back(0)
    cluster_sample(cluster, driver)
    assert names(failover)[-1] == "rejoined"


def test_the_old_master_is_not_waited_for_while_another_group_has_no_master(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    """Its promotion begins once this one is over, and the host of both may be gone."""
    other = group_rows_create(cluster, 1, 2)
    for replica in other.replicas.all():
        Replica.objects.filter(pk=replica.pk).update(host="127.0.0.1", port=30 + replica.broker_id)
        group.replicas.append(ScriptedReplica(replica.broker_id, f"127.0.0.1:{30 + replica.broker_id}", answers=False))
    lose(group)
    failover = start(cluster, driver)
    for step in operation_of(failover).steps.order_by("position"):
        assert operation_step_run(step.pk, driver) == Outcome.COMPLETED, step.name
    group.back(0)
    cluster_sample(cluster, driver)
    assert names(failover)[-2:] == ["rejoining", "rejoined"]


@pytest.mark.django_db(transaction=True)
def test_of_workers_that_race_through_all_steps_one_promotes(driver: DriverTwin) -> None:
    from tests.controlplane.world import make_world

    cluster = make_replicated(make_world().acme, "pair", "sync")
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        lose(group)
        failover = start(cluster, driver)
        steps = list(operation_of(failover).steps.order_by("position")[:4])

        def work() -> None:
            for step in steps:
                for _ in range(40):
                    if OperationStep.objects.get(pk=step.pk).state == StepState.COMPLETED:
                        break
                    OperationStep.objects.filter(pk=step.pk).update(not_before=None)
                    operation_step_run(step.pk, driver)

        _in_threads(3, work)
        assert group.promotions == [(5, 1)]
        failover.refresh_from_db()
        assert failover.writes_back_at is not None


@pytest.mark.django_db(transaction=True)
def test_of_two_operators_who_ask_at_once_one_wins(driver: DriverTwin) -> None:
    from tests.controlplane.world import make_world

    cluster = make_replicated(make_world().acme, "pair", "sync")
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        lose(group)
        refused: list[str] = []

        def ask() -> None:
            try:
                start(cluster, driver)
            except Conflict as error:
                refused.append(error.code)

        _in_threads(4, ask)
        assert refused == ["operation_in_progress"] * 3
        assert Failover.objects.filter(cluster=cluster).count() == 1


def _in_threads(count: int, function: Callable[[], None]) -> None:
    barrier = threading.Barrier(count)

    def run_one() -> None:
        barrier.wait()
        try:
            function()
        finally:
            connection.close()

    threads = [threading.Thread(target=run_one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
