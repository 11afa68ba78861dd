"""The machine of compare-and-sets: claims, takeovers, waits, failures and retries. No daemon is involved."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from controlplane.clusters.models import (
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    StepState,
)
from controlplane.clusters.operations import (
    _YIELDING,
    _YIELDING_TO_RECOVERY,
    claim_renew,
    operation_retry,
    operation_start,
    operations_resume,
    step_claim,
    step_complete,
    step_fail,
    step_wait,
)
from controlplane.clusters.selectors import operation_view
from controlplane.clusters.workflows import WORKFLOWS, step_definition
from controlplane.common.errors import Conflict
from controlplane.provisioning.steps import STEPS
from tests.controlplane.world import SYSTEM, World, make_operation


@pytest.fixture
def operation(world: World) -> Operation:
    return make_operation(world.acme, "fresh")


def steps_of(operation: Operation) -> list[OperationStep]:
    return list(operation.steps.order_by("position"))


def test_every_step_of_every_workflow_is_written(operation: Operation) -> None:
    wanted = [definition.name for definition in WORKFLOWS[OperationType.CLUSTER_CREATE]]
    assert [step.name for step in steps_of(operation)] == wanted


def test_what_the_steps_do_is_known_for_each_and_for_no_other() -> None:
    assert {definition.name for steps in WORKFLOWS.values() for definition in steps} == set(STEPS)


@pytest.mark.parametrize(
    ("fault", "title"),
    [
        ("kill", "Kill the leader's process"),
        ("hang", "Make the leader's process hang"),
        ("cut", "Cut the leader off the network"),
    ],
)
def test_the_step_of_a_drill_says_what_is_done_to_the_leader(world: World, fault: str, title: str) -> None:
    operation = make_operation(world.acme, "fresh")
    Operation.objects.filter(pk=operation.pk).update(type=OperationType.GROUP_DRILL, metadata={"fault": fault})
    operation.steps.all().delete()
    operation.refresh_from_db()
    OperationStep.objects.create(operation=operation, position=0, name="drill_fault")
    assert [step.title for step in operation_view(operation).steps] == [title]


_BEGINNING = "it begins: rows and files are half made, within seconds"
_MOVES_ROLES = "it changes who leads or who counts: a promotion beside it would decide on what no longer holds"
_ENDS = "it ends within seconds"
# Steps at which a promotion waits for the operation.
NOT_YIELDING = {
    (OperationType.CLUSTER_GROW, "allocate_ports"): _BEGINNING,
    (OperationType.CLUSTER_GROW, "render_configuration"): _BEGINNING,
    (OperationType.CLUSTER_GROW, "start_brokers"): _BEGINNING,
    (OperationType.CLUSTER_MODE, "mode_look"): _BEGINNING,
    (OperationType.CLUSTER_MODE, "allocate_ports"): _BEGINNING,
    (OperationType.CLUSTER_MODE, "render_configuration"): _BEGINNING,
    (OperationType.CLUSTER_MODE, "mode_start_added"): _BEGINNING,
    (
        OperationType.CLUSTER_MODE,
        "mode_remove",
    ): "rows and disks go: a promotion could choose a replica that is half gone",
    (
        OperationType.CLUSTER_MODE,
        "mode_remove_last",
    ): "rows and disks go: a promotion could choose a replica that is half gone",
    (OperationType.CLUSTER_MODE, "mode_note"): _ENDS,
    (OperationType.CLUSTER_MODE, "render_configuration_again"): _ENDS,
    **{(OperationType.CLUSTER_CA, step): _ENDS for step in ("ca_make", "ca_sign", "ca_drop")},
    **{
        (kind, step): reason
        for kind in (OperationType.CLUSTER_RESTART, OperationType.CLUSTER_UPGRADE)
        for step, reason in (
            ("roll_look", _BEGINNING),
            ("render_configuration", _BEGINNING),
            ("roll_leaders", _MOVES_ROLES),
        )
    },
}


@pytest.mark.parametrize("kind", sorted(_YIELDING))
def test_of_every_step_it_is_said_whether_a_promotion_may_end_it(kind: str) -> None:
    each_is_named(kind, _YIELDING[kind], NOT_YIELDING)


def each_is_named(kind: str, yielding: Collection[str], excused: Mapping[tuple[OperationType, str], str]) -> None:
    steps = {definition.name for definition in WORKFLOWS[OperationType(kind)]}
    reasoned = {step for excused_kind, step in excused if excused_kind == kind}
    assert set(yielding) | reasoned == steps, "name each among those that yield, or here with a reason"
    assert set(yielding) & reasoned == set()


_CHANGES_VOTES = (
    "it changes who leads or who counts, within two minutes: a recovery beside it would decide on what no longer holds"
)
_ROWS_GO = "rows and disks go, within a minute: a recovery could choose a replica that is half gone"
# Steps at which a recovery from lost disks waits for the operation.
NOT_YIELDING_TO_RECOVERY = {
    (OperationType.GROUP_TRANSFER, "quorum_transfer"): _CHANGES_VOTES,
    (OperationType.GROUP_PREFER, "render_configuration"): _ENDS,
    **{
        (kind, step): reason
        for kind in (OperationType.GROUP_REPLACE, OperationType.GROUP_GROW)
        for step, reason in (
            ("allocate_ports", _BEGINNING),
            ("render_configuration", _BEGINNING),
            ("quorum_start_added", _BEGINNING),
            ("quorum_promote_added", _CHANGES_VOTES),
        )
    },
    (OperationType.GROUP_REPLACE, "quorum_remove"): _CHANGES_VOTES,
    (OperationType.GROUP_REPLACE, "quorum_forget"): _ROWS_GO,
    (OperationType.GROUP_REPLACE, "render_configuration_again"): _ENDS,
    (OperationType.GROUP_SHRINK, "quorum_step_aside"): _CHANGES_VOTES,
    (OperationType.GROUP_SHRINK, "quorum_remove"): _CHANGES_VOTES,
    (OperationType.GROUP_SHRINK, "quorum_forget"): _ROWS_GO,
    (OperationType.GROUP_SHRINK, "render_configuration"): _ENDS,
}


@pytest.mark.parametrize("kind", sorted(_YIELDING_TO_RECOVERY))
def test_of_every_step_it_is_said_whether_a_recovery_may_end_it(kind: str) -> None:
    each_is_named(kind, _YIELDING_TO_RECOVERY[kind], NOT_YIELDING_TO_RECOVERY)


def test_a_step_that_does_not_yield_to_a_recovery_holds_it_for_two_minutes_at_most() -> None:
    timeouts = {step_definition(kind, step).timeout_s for kind, step in NOT_YIELDING_TO_RECOVERY}
    assert max(timeouts) <= 120


def test_a_claimed_step_cannot_be_claimed_again(operation: Operation) -> None:
    first = steps_of(operation)[0]
    assert step_claim(first.pk) is not None
    assert step_claim(first.pk) is None


def test_a_step_is_not_claimed_before_its_turn(operation: Operation) -> None:
    assert step_claim(steps_of(operation)[1].pk) is None


def test_a_step_that_does_not_exist_is_not_claimed(db: None) -> None:
    assert step_claim(uuid.uuid4()) is None


def test_completing_a_step_enqueues_the_next(
    operation: Operation, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    first, second = steps_of(operation)[:2]
    claim = step_claim(first.pk)
    assert claim is not None
    with (
        patch("controlplane.clusters.operations.current_app.send_task") as send,
        django_capture_on_commit_callbacks(execute=True),
    ):
        assert step_complete(claim)
    assert [call.kwargs["args"] for call in send.call_args_list] == [[str(second.pk)]]


def test_completing_the_last_step_completes_the_operation(operation: Operation) -> None:
    for step in steps_of(operation):
        claim = step_claim(step.pk)
        assert claim is not None
        assert step_complete(claim)
    operation.refresh_from_db()
    assert operation.state == OperationState.COMPLETED
    assert operation.finished_at is not None


def test_a_worker_that_lost_its_claim_changes_nothing(operation: Operation) -> None:
    step = steps_of(operation)[0]
    lost = step_claim(step.pk)
    assert lost is not None
    _expire(step)
    operations_resume()
    assert step_claim(step.pk) is not None
    assert not step_complete(lost)
    assert not step_wait(lost, delay_s=1, message="late")
    assert not step_fail(lost, cause="late")
    step.refresh_from_db()
    assert step.state == StepState.RUNNING


def test_a_step_of_a_dead_worker_is_put_back(operation: Operation) -> None:
    step = steps_of(operation)[0]
    step_claim(step.pk)
    _expire(step)
    assert operations_resume() == 1
    step.refresh_from_db()
    assert (step.state, step.claim) == (StepState.PENDING, None)


def test_a_step_that_is_being_worked_on_is_left_alone(operation: Operation) -> None:
    step_claim(steps_of(operation)[0].pk)
    assert operations_resume() == 0


def test_a_worker_that_renews_its_claim_is_left_alone(operation: Operation) -> None:
    step = steps_of(operation)[0]
    claim = step_claim(step.pk)
    assert claim is not None
    _expire(step)
    assert claim_renew(claim)
    assert operations_resume() == 0


def test_a_claim_that_was_taken_over_is_not_renewed(operation: Operation) -> None:
    step = steps_of(operation)[0]
    lost = step_claim(step.pk)
    assert lost is not None
    _expire(step)
    operations_resume()
    assert step_claim(step.pk) is not None
    assert not claim_renew(lost)


def test_a_killed_workers_step_is_taken_over_within_twenty_seconds(operation: Operation) -> None:
    step = steps_of(operation)[0]
    step_claim(step.pk)
    step.refresh_from_db()
    assert step.lease_until is not None
    lease = step.lease_until - timezone.now()
    looked_for_each = timedelta(seconds=settings.CELERY_BEAT_SCHEDULE["operations-resume"]["schedule"])
    assert lease + looked_for_each < timedelta(seconds=15)


def test_a_step_whose_message_was_lost_is_enqueued_again(operation: Operation) -> None:
    OperationStep.objects.update(updated_at=timezone.now() - timedelta(minutes=1))
    assert operations_resume() == 1
    assert operations_resume() == 0  # not at each look while it waits behind other work


def test_a_waiting_step_is_not_claimed_before_its_time(operation: Operation) -> None:
    step = steps_of(operation)[0]
    claim = step_claim(step.pk)
    assert claim is not None
    assert step_wait(claim, delay_s=60, message="the port is not open yet")
    assert step_claim(step.pk) is None
    OperationStep.objects.filter(pk=step.pk).update(not_before=timezone.now())
    assert step_claim(step.pk) is not None
    step.refresh_from_db()
    assert step.attempts == 2


def test_a_failed_step_fails_operation_and_cluster_with_its_cause(operation: Operation) -> None:
    operation.cluster.state = ClusterState.PROVISIONING
    operation.cluster.save()
    claim = step_claim(steps_of(operation)[0].pk)
    assert claim is not None
    step_fail(claim, cause="There is no free port.", hint="Delete something.")
    operation.refresh_from_db()
    operation.cluster.refresh_from_db()
    wanted = {"cause": "There is no free port.", "hint": "Delete something.", "step": "allocate_ports"}
    assert (operation.state, operation.error) == (OperationState.FAILED, wanted)
    assert (operation.cluster.state, operation.cluster.error) == (ClusterState.FAILED, wanted)


def test_a_failed_operation_runs_again_from_its_first_step(operation: Operation) -> None:
    _fail(operation)
    operation_retry(actor=SYSTEM, operation=operation)
    operation.refresh_from_db()
    operation.cluster.refresh_from_db()
    assert (operation.state, operation.error) == (OperationState.IN_PROGRESS, None)
    assert (operation.cluster.state, operation.cluster.error) == (ClusterState.PROVISIONING, None)
    assert {step.state for step in steps_of(operation)} == {StepState.PENDING}


def test_an_operation_that_has_not_failed_is_not_retried(operation: Operation) -> None:
    with pytest.raises(Conflict):
        operation_retry(actor=SYSTEM, operation=operation)


def test_an_outdated_operation_is_not_retried(operation: Operation) -> None:
    _fail(operation)
    operation.cluster.state = ClusterState.DELETING
    operation.cluster.save()
    operation_start(actor=SYSTEM, cluster=operation.cluster, operation_type=OperationType.CLUSTER_DELETE)
    with pytest.raises(Conflict):
        operation_retry(actor=SYSTEM, operation=operation)
    operation.refresh_from_db()
    assert operation.state == OperationState.FAILED


def test_a_cluster_has_one_operation_at_a_time(operation: Operation) -> None:
    with pytest.raises(Conflict):
        operation_start(actor=SYSTEM, cluster=operation.cluster, operation_type=OperationType.CLUSTER_DELETE)


def test_a_broken_queue_does_not_break_the_request(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with (
        patch("controlplane.clusters.operations.current_app.send_task", side_effect=OSError("Redis is away")),
        django_capture_on_commit_callbacks(execute=True),
    ):
        make_operation(world.acme, "fresh")
    assert Operation.objects.filter(state=OperationState.IN_PROGRESS).count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_many_workers_that_race_for_a_step_one_wins() -> None:
    from tests.controlplane.world import make_world

    step = steps_of(make_operation(make_world().acme, "fresh"))[0]
    claims = _in_threads(8, lambda: step_claim(step.pk))
    assert len([claim for claim in claims if claim is not None]) == 1


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_waited_for_anothers_lock_does_not_win_as_well() -> None:
    """The second UPDATE blocks on the row until the first commits, and must then look at the row again."""
    from tests.controlplane.world import make_world

    step = steps_of(make_operation(make_world().acme, "fresh"))[0]
    claims: list[object] = []
    with transaction.atomic():
        claims.append(step_claim(step.pk))
        second = threading.Thread(target=lambda: claims.append(_and_close(lambda: step_claim(step.pk))))
        second.start()
        _until_somebody_waits_for_a_lock()
    second.join()
    assert [claim is not None for claim in claims] == [True, False]


def _until_somebody_waits_for_a_lock() -> None:
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            row = cursor.fetchone()
        if row is not None and row[0]:
            return


def _in_threads(count: int, function: Callable[[], object]) -> list[object]:
    """Call the function from several threads at once, each with its own connection to the database."""
    barrier = threading.Barrier(count)
    results: list[object] = []

    def run() -> None:
        barrier.wait()
        results.append(_and_close(function))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _and_close(function: Callable[[], object]) -> object:
    try:
        return function()
    finally:
        connection.close()


def _fail(operation: Operation) -> None:
    operation.cluster.state = ClusterState.PROVISIONING
    operation.cluster.save()
    claim = step_claim(steps_of(operation)[0].pk)
    assert claim is not None
    step_fail(claim, cause="it broke")
    operation.refresh_from_db()


def _expire(step: OperationStep) -> None:
    OperationStep.objects.filter(pk=step.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
