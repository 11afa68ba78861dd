"""Operations that do not go on: put back into the queue, or ended as failed, by the platform's operators."""

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.clusters.fair_operations import waiting_words
from controlplane.clusters.given_up import recovery_was_asked
from controlplane.clusters.models import Operation, OperationState, OperationStep, OperationType, StepState
from controlplane.clusters.operations import operation_end_failed, step_enqueue
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.common.words import name_check

REASON_CHARACTERS_MAX = 200

_ROLLED = say(
    "The cluster runs on. A daemon may be stopped, and is started again within a minute; a group may be without a master: look"
    " at it, and promote a replica. A retry goes on with the daemons that are left."
)
# What is there after an operation of each kind was ended half-way, and what comes next.
_LEFT: dict[str, str] = {
    OperationType.CLUSTER_CREATE: say(
        "The cluster counts as failed: daemons that were started run on until it is retried or deleted."
    ),
    OperationType.CLUSTER_DELETE: say(
        "The cluster stays “being deleted”: clients may be refused already, and part of its data may be gone. A retry goes on."
    ),
    OperationType.CLUSTER_SUSPEND: say(
        "Brokers may refuse clients, or be stopped already; nothing stored is lost. Retry it, or resume the cluster."
    ),
    OperationType.CLUSTER_RESUME: say(
        "Some daemons may run already, but the cluster does not count as running. Retry it, or delete the cluster."
    ),
    OperationType.CLUSTER_GROW: say(
        "The cluster runs on. New brokers may run and take messages, without their share of every topic. A retry goes on."
    ),
    OperationType.CLUSTER_MODE: say(
        "The cluster runs on. Groups may differ in mode and replicas. Retry it, or ask for the present mode again."
    ),
    OperationType.CLUSTER_RESTART: _ROLLED,
    OperationType.CLUSTER_UPGRADE: _ROLLED,
    OperationType.CLUSTER_CA: say(
        "The cluster runs on. Some daemons may show a certificate of another CA than the others; clients that have the latest"
        " ca.pem trust both. A retry goes on."
    ),
    OperationType.GROUP_PROMOTE: say(
        "The group may be without a master: the old one may be fenced, the candidate not promoted yet. Promote again."
    ),
    OperationType.GROUP_SWITCHOVER: say(
        "Sends may be held for up to ten seconds more, and the group may be without a master: look at it, and promote again."
    ),
    OperationType.GROUP_DRILL: say(
        "Its report says failed; the leader that it stopped is started again within seconds. A drill is not retried."
    ),
    OperationType.GROUP_TRANSFER: say("The group has a leader, the old one or the new one."),
    OperationType.GROUP_PREFER: say("The preferred leader may be written into the log already. A retry is harmless."),
    OperationType.GROUP_REPLACE: say(
        "The new replica may be an observer or a voter beside the old one. A retry goes on."
    ),
    OperationType.GROUP_GROW: say("New replicas may be observers, or voters already. A retry goes on."),
    OperationType.GROUP_SHRINK: say("Replicas may have lost their vote and still run. A retry goes on."),
}
# The lost replicas would be the majority that they were.
_RECOVERING = say(
    "Lost replicas stay stopped, and the chosen one may lead already. Do not start the lost ones: retry it, or replace them."
)
_NOT_RECOVERED = say(
    "Nothing was changed: no replica was asked to lead, and the lost ones are started again within seconds."
)


def left_behind(operation: Operation) -> str:
    """Return what is there when the operation is ended now, in a sentence or two."""
    if operation.type == OperationType.GROUP_RECOVER:
        return _RECOVERING if recovery_was_asked(operation) else _NOT_RECOVERED
    return _LEFT.get(operation.type, say("What its completed steps did stands. A retry goes on."))


def operation_requeue(*, actor: Actor, operation: Operation) -> Operation:
    """Send the present step to the workers again, now. Harmless: only a claim starts a step, and one that a worker holds is left
    to it.

    Raises NotFound for everyone but operators, Conflict when the operation has ended, waits for others of its tenant, or a worker
    is at its step.
    """
    operator_require(actor)
    with transaction.atomic():
        running, step = _present(operation)
        now = timezone.now()
        if running.waits:
            raise Conflict(
                waiting_words(running),
                code="operation_waits",
                hint=say("Give the tenant a higher limit `operations_at_once`, or end one of those that go on."),
            )
        if step.state == StepState.RUNNING and step.lease_until is not None and step.lease_until >= now:
            raise Conflict(
                say("A worker is at this step, and shows that it lives."),
                code="step_claimed",
                hint=say("Wait, or end the operation as failed."),
            )
        OperationStep.objects.filter(pk=step.pk).update(
            state=StepState.PENDING, claim=None, lease_until=None, not_before=None, updated_at=now
        )
        step_enqueue(step.pk)
        _record(actor, running, "operation.requeue", {"step": step.name})
    operation.refresh_from_db()
    return operation


def operation_fail(*, actor: Actor, operation: Operation, reason: str) -> Operation:
    """End the operation as failed; who has its step finds the claim gone, and what that one does meanwhile stays done. It can be
    retried like any other that failed.

    Raises NotFound for everyone but operators, Conflict when the operation has ended, InvalidInput without a reason.
    """
    operator_require(actor)
    reason = name_check("reason", reason)
    if not reason:
        raise InvalidInput.for_field("reason", say("Say why: the tenant reads it."), "required")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput.for_field(
            "reason", say("Use at most %(most)s characters.", most=REASON_CHARACTERS_MAX), "too_long"
        )
    with transaction.atomic():
        running, step = _present(operation)
        cause = say("The platform’s operators ended it: %(reason)s", reason=reason)
        operation_end_failed(running, step, cause, left_behind(running))
        _record(actor, running, "operation.fail", {"step": step.name, "reason": reason})
    operation.refresh_from_db()
    return operation


def _present(operation: Operation) -> tuple[Operation, OperationStep]:
    running = Operation.objects.select_for_update().filter(pk=operation.pk, state=OperationState.IN_PROGRESS).first()
    step = None
    if running is not None:
        step = running.steps.select_for_update().exclude(state=StepState.COMPLETED).order_by("position").first()
    if running is None or step is None:
        raise Conflict(say("The operation has ended."), code="operation_ended")
    return running, step


def _record(actor: Actor, operation: Operation, action: str, details: dict[str, str]) -> None:
    audit_event_record(
        actor=actor, action=action, resource=operation.path, tenant_id=operation.tenant_id, details=details
    )
