"""Operations are fair between tenants: who orders many waits for the own ones, in their order, and sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest.mock import patch

import pytest
from celery import current_app
from django.db import connection, transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from controlplane.clusters.lifecycle import cluster_resume, cluster_suspend
from controlplane.clusters.models import Operation, OperationState, OperationStep, OperationType, StepState
from controlplane.clusters.operations import (
    operation_cancel,
    operation_retry,
    operation_start,
    operation_yields,
    operations_resume,
    step_claim,
    step_complete,
    step_fail,
)
from controlplane.clusters.selectors import operation_view
from controlplane.clusters.stuck_operations import operation_requeue
from controlplane.common.errors import Conflict
from controlplane.tenants.models import Tenant
from tests.controlplane.world import SYSTEM, Json, World, make_cluster, make_operation, make_world


def ordered(tenant: Tenant, count: int) -> list[Operation]:
    return [make_operation(tenant, f"{tenant.slug}-{number}") for number in range(count)]


def first_step(operation: Operation) -> OperationStep:
    return operation.steps.earliest("position")


def fail(operation: Operation) -> None:
    claim = step_claim(first_step(operation).pk)
    assert claim is not None
    assert step_fail(claim, cause="There is no free port.")


def test_of_a_tenant_three_operations_go_on_and_the_others_wait(world: World) -> None:
    found = ordered(world.acme, 5)
    assert [operation.waits for operation in found] == [False, False, False, True, True]
    assert step_claim(first_step(found[3]).pk) is None


def test_who_has_many_operations_delays_no_one_else(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with patch.object(current_app, "send_task") as sent, django_capture_on_commit_callbacks(execute=True):
        ordered(world.acme, 9)
        others = make_operation(world.globex, "other")
    assert len(sent.call_args_list) == 3 + 1, "what waits is in no queue"
    assert sent.call_args.kwargs["args"] == [str(first_step(others).pk)]


def test_when_one_ends_the_oldest_that_waits_begins(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    found = ordered(world.acme, 5)
    with patch.object(current_app, "send_task") as sent, django_capture_on_commit_callbacks(execute=True):
        fail(found[1])
    assert [call.kwargs["args"] for call in sent.call_args_list] == [[str(first_step(found[3]).pk)]]
    assert list(Operation.objects.filter(waits=True)) == [found[4]]


def test_an_operation_that_completes_makes_room_too(world: World) -> None:
    found = ordered(world.acme, 4)
    found[0].steps.exclude(pk=found[0].steps.latest("position").pk).update(state=StepState.COMPLETED)
    claim = step_claim(found[0].steps.latest("position").pk)
    assert claim is not None
    assert step_complete(claim)
    found[3].refresh_from_db()
    assert not found[3].waits


def test_the_tenant_reads_what_it_waits_for(world: World, api: Callable[..., Json]) -> None:
    last = ordered(world.acme, 6)[-1]
    said = "Waits: 3 of your operations go on. 2 more come before this one."
    assert operation_view(last).steps[0].message == said
    assert api(world.alice).call("GET", last.path).json()["steps"][0]["message"] == said


def test_changes_of_who_leads_do_not_wait(world: World) -> None:
    ordered(world.acme, 3)
    promotion = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.GROUP_PROMOTE)
    assert not promotion.waits


def test_a_suspension_and_a_resume_begin_at_once(world: World) -> None:
    ordered(world.acme, 3)
    assert not cluster_suspend(actor=world.alice, cluster=world.cluster).waits
    assert not cluster_resume(actor=world.alice, cluster=world.cluster).waits


def test_a_suspension_takes_no_other_operations_turn(world: World) -> None:
    cluster_suspend(actor=world.alice, cluster=world.cluster)
    assert [operation.waits for operation in ordered(world.acme, 4)] == [False, False, False, True]


@pytest.mark.parametrize("kind", [OperationType.CLUSTER_SUSPEND, OperationType.CLUSTER_RESUME])
def test_the_steps_of_suspensions_take_turns_with_others_of_their_tenant(world: World, kind: OperationType) -> None:
    (busy,) = ordered(world.acme, 1)
    operation = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=kind)
    assert step_claim(first_step(busy).pk) is not None
    assert step_claim(first_step(operation).pk) is None


def test_a_promotion_may_end_what_has_not_begun(world: World) -> None:
    ordered(world.acme, 3)
    restart = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.CLUSTER_RESTART)
    assert restart.waits
    assert operation_yields(restart)


def test_a_restart_that_waits_is_cancelled_at_once(world: World) -> None:
    ordered(world.acme, 3)
    restart = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.CLUSTER_RESTART)
    operation_cancel(actor=world.alice, operation=restart)
    assert restart.state == OperationState.CANCELLED


def test_a_retry_waits_like_a_new_order(world: World) -> None:
    found = ordered(world.acme, 4)
    fail(found[0])
    operation_retry(actor=SYSTEM, operation=found[0])
    assert found[0].waits


def test_a_higher_limit_lets_more_begin_by_itself(world: World) -> None:
    found = ordered(world.acme, 5)
    Tenant.objects.filter(pk=world.acme.pk).update(limits={"operations_at_once": 4})
    operations_resume()
    assert list(Operation.objects.filter(waits=True)) == [found[4]]


def test_an_operator_is_told_that_an_operation_waits(world: World) -> None:
    last = ordered(world.acme, 4)[-1]
    world.charlie.is_staff = True
    with pytest.raises(Conflict, match="Waits: 3 of your operations"):
        operation_requeue(actor=world.charlie, operation=last)


def test_of_a_tenants_operations_one_step_is_worked_on_at_a_time(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    first, second = ordered(world.acme, 2)
    others = make_operation(world.globex, "other")
    claim = step_claim(first_step(first).pk)
    assert claim is not None
    with patch.object(current_app, "send_task") as sent, django_capture_on_commit_callbacks(execute=True):
        assert step_claim(first_step(second).pk) is None
        assert step_claim(first_step(second).pk) is None, "it is sent again once"
    assert [call.kwargs["args"] for call in sent.call_args_list] == [[str(first_step(second).pk)]]
    assert step_claim(first_step(others).pk) is not None
    step_complete(claim)
    second.steps.update(not_before=None)
    assert step_claim(first_step(second).pk) is not None


def test_promotions_begin_beside_other_work_of_their_tenant_until_three_steps_run(world: World) -> None:
    (busy,) = ordered(world.acme, 1)
    assert step_claim(first_step(busy).pk) is not None
    begun = []
    for number in range(3):
        cluster = make_cluster(world.acme, f"pair-{number}")
        promotion = operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.GROUP_PROMOTE)
        begun.append(step_claim(first_step(promotion).pk) is not None)
    assert begun == [True, True, False]


@pytest.mark.django_db(transaction=True)
def test_operations_ordered_at_the_same_moment_are_counted_one_after_the_other() -> None:
    acme = make_world().acme
    clusters = [make_cluster(acme, f"at-once-{number}") for number in range(6)]
    waiting = threading.Barrier(len(clusters))

    def order(number: int) -> None:
        waiting.wait()
        with transaction.atomic():
            operation_start(actor=SYSTEM, cluster=clusters[number], operation_type=OperationType.CLUSTER_RESTART)
        connection.close()

    threads = [threading.Thread(target=order, args=(number,)) for number in range(len(clusters))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert Operation.objects.filter(waits=False).count() == 3
    assert Operation.objects.filter(waits=True).count() == 3
