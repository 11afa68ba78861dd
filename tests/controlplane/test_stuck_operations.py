"""Operations that do not go on: put back into the queue, or ended as failed with what is left behind."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters import stuck_operations
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    StepState,
)
from controlplane.clusters.operations import operation_retry, operation_start, step_claim, step_complete
from controlplane.clusters.stuck_operations import left_behind, operation_fail, operation_requeue
from controlplane.common.errors import Conflict, InvalidInput, NotFound
from controlplane.common.models import AuditEvent
from tests.controlplane.world import SYSTEM, Json, World, make_operation


@pytest.fixture
def operation(world: World) -> Operation:
    return make_operation(world.acme, "fresh")


def test_only_operators_do_it(world: World, operation: Operation) -> None:
    with pytest.raises(NotFound):
        operation_requeue(actor=world.alice, operation=operation)
    with pytest.raises(NotFound):
        operation_fail(actor=world.alice, operation=operation, reason="stuck")


def test_a_step_that_nobody_has_is_sent_to_the_workers_again(operation: Operation) -> None:
    with patch.object(stuck_operations, "step_enqueue") as enqueue:
        operation_requeue(actor=SYSTEM, operation=operation)
    enqueue.assert_called_once_with(operation.steps.order_by("position")[0].pk)


def test_a_step_whose_worker_died_is_put_back(operation: Operation) -> None:
    step = operation.steps.order_by("position")[0]
    assert step_claim(step.pk) is not None
    OperationStep.objects.filter(pk=step.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    operation_requeue(actor=SYSTEM, operation=operation)
    step.refresh_from_db()
    assert (step.state, step.claim) == (StepState.PENDING, None)


def test_a_step_that_a_worker_holds_is_left_to_it(operation: Operation) -> None:
    assert step_claim(operation.steps.order_by("position")[0].pk) is not None
    with pytest.raises(Conflict, match="A worker is at this step"):
        operation_requeue(actor=SYSTEM, operation=operation)


def test_one_that_is_given_up_has_failed_with_the_reason_and_what_is_left(operation: Operation) -> None:
    operation_fail(actor=SYSTEM, operation=operation, reason="the disk is replaced tonight")
    error = operation.error or {}
    assert operation.state == OperationState.FAILED
    assert error["cause"] == "The platform’s operators ended it: the disk is replaced tonight"
    assert error["hint"] == left_behind(operation)
    operation.cluster.refresh_from_db()
    assert (operation.cluster.state, operation.cluster.error) == (ClusterState.FAILED, operation.error)


def test_a_worker_that_has_its_step_finds_the_claim_gone(operation: Operation) -> None:
    claim = step_claim(operation.steps.order_by("position")[0].pk)
    assert claim is not None
    operation_fail(actor=SYSTEM, operation=operation, reason="it hangs")
    assert not step_complete(claim)


def test_it_is_retried_like_any_other_that_failed(world: World, operation: Operation) -> None:
    operation_fail(actor=SYSTEM, operation=operation, reason="it hangs")
    assert operation_retry(actor=world.alice, operation=operation).state == OperationState.IN_PROGRESS


def test_a_running_cluster_goes_on(world: World) -> None:
    operation = operation_start(actor=SYSTEM, cluster=world.cluster, operation_type=OperationType.GROUP_TRANSFER)
    operation_fail(actor=SYSTEM, operation=operation, reason="it hangs")
    world.cluster.refresh_from_db()
    assert (world.cluster.state, world.cluster.error) == (ClusterState.RUNNING, None)


def test_one_that_has_ended_is_not_ended_again(operation: Operation) -> None:
    operation_fail(actor=SYSTEM, operation=operation, reason="it hangs")
    with pytest.raises(Conflict, match="has ended"):
        operation_fail(actor=SYSTEM, operation=operation, reason="it hangs")


def test_a_reason_is_needed(operation: Operation) -> None:
    with pytest.raises(InvalidInput):
        operation_fail(actor=SYSTEM, operation=operation, reason=" ")


@pytest.mark.parametrize("kind", OperationType)
def test_of_each_kind_it_is_said_what_is_left(kind: OperationType) -> None:
    assert left_behind(Operation(type=kind))


@pytest.mark.parametrize("kind", [OperationType.CLUSTER_RESTART, OperationType.CLUSTER_UPGRADE])
def test_of_a_rolling_restart_it_is_said_that_a_group_may_have_no_master(kind: OperationType) -> None:
    assert "a group may be without a master" in left_behind(Operation(type=kind))


def test_both_acts_are_routes_and_in_the_audit_trail(
    world: World, operation: Operation, api: Callable[..., Json]
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    client, path = api(world.alice), f"/api/v1/operator/operations/{operation.pk}/"
    assert client.call("POST", f"{path}requeue/").status_code == 202
    assert client.call("POST", f"{path}fail/", {"reason": "it hangs"}).json()["state"] == "failed"
    written = AuditEvent.objects.filter(resource=operation.path).values_list("action", flat=True)
    assert set(written) == {"operation.requeue", "operation.fail"}
    assert Cluster.objects.get(pk=operation.cluster_id).state == ClusterState.FAILED
