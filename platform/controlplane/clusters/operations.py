"""Operations and their steps as a machine of compare-and-sets. It knows neither daemons nor Celery's workers.

    step      PENDING -> RUNNING (claim) -> COMPLETED | FAILED, or back to PENDING (it waits, or its worker died)
    operation IN_PROGRESS -> COMPLETED | FAILED | CANCELLED, and FAILED -> IN_PROGRESS (retry)

Each arrow is one `UPDATE ... WHERE state = OLD`, on the row's own columns only: with a join in the WHERE,
PostgreSQL would not look again at the row after waiting for another worker's lock, and both would win.
"""

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.fair_operations import (
    operation_waits,
    operations_let_begin,
    step_has_place,
    tenants_that_wait,
    waiting_words,
)
from controlplane.clusters.models import (
    LEADERSHIP,
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    StepState,
)
from controlplane.clusters.workflows import operation_title, step_definition, step_names, step_title
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict
from controlplane.common.logging import get_logger
from controlplane.common.sentences import bounded, say

_log = get_logger("controlplane.operations")

STEP_TASK = "provisioning.operation_step_run"
# Steps during which a group may lose its master, and a promotion should not wait for their end.
_YIELDING: dict[str, tuple[str, ...]] = {
    OperationType.CLUSTER_GROW: ("wait_for_registration", "wait_for_replication", "verify", "spread_topics"),
    OperationType.CLUSTER_MODE: ("mode_catch_up", "mode_update_masters", "mode_pass", "mode_change"),
    OperationType.CLUSTER_RESTART: ("roll_name_servers", "roll_followers", "roll_verify"),
    OperationType.CLUSTER_UPGRADE: ("roll_name_servers", "roll_followers", "roll_verify"),
    OperationType.CLUSTER_CA: ("ca_refresh", "ca_look", "ca_write", "ca_verify"),
}
# Steps of changes of an elected group during which it may lose a majority of its disks, and a recovery should not wait for their
# end: without a leader they wait, some for hours.
_YIELDING_TO_RECOVERY: dict[str, tuple[str, ...]] = {
    OperationType.GROUP_TRANSFER: ("quorum_look", "quorum_verify"),
    OperationType.GROUP_PREFER: ("quorum_look", "quorum_prefer"),
    OperationType.GROUP_REPLACE: ("quorum_look", "quorum_observe", "quorum_catch_up"),
    OperationType.GROUP_GROW: ("quorum_look", "quorum_observe", "quorum_catch_up"),
    OperationType.GROUP_SHRINK: ("quorum_look",),
}
_RECOVERIES = (OperationType.GROUP_RECOVER,)
# They change which groups and replicas there are, and of which mode.
_SHAPES = (
    OperationType.CLUSTER_GROW,
    OperationType.CLUSTER_MODE,
    OperationType.GROUP_PREFER,
    OperationType.GROUP_REPLACE,
    OperationType.GROUP_GROW,
    OperationType.GROUP_SHRINK,
    *_RECOVERIES,
)
# They change nothing of that; the first begins by itself.
_KEEP_SHAPE = (
    OperationType.CLUSTER_CA,
    OperationType.CLUSTER_RESTART,
    OperationType.CLUSTER_UPGRADE,
    OperationType.CLUSTER_SUSPEND,
    OperationType.CLUSTER_RESUME,
)
_STOPS_AND_STARTS = (ClusterState.SUSPENDING, ClusterState.RESUMING)
# They are made of parts that stand alone, and can end between two of them.
CANCELLABLE = (OperationType.CLUSTER_RESTART, OperationType.CLUSTER_UPGRADE)
# The member of an operation's metadata that has who cancelled it.
CANCELLED_BY = "cancelled_by"
# The member that says that it was retried: what someone had agreed to before was of another moment.
_RETRIED = "retried"
# The failure of an operation stands beside these; a running cluster goes on whatever fails.
_SHOWING_ERRORS = (ClusterState.FAILED, ClusterState.DELETING, ClusterState.SUSPENDING, ClusterState.RESUMING)
# A pending step that no one took for this long lost its message (Redis was down or emptied).
_LOST_AFTER = timedelta(seconds=10)
# A step whose tenant has all its places looks again so soon.
_PLACE_AFTER_S = 0.5


@dataclass(frozen=True, slots=True)
class StepClaim:
    """The right to run one step, until its lease ends. The worker renews it (`claim_renew`); a worker that was killed
    doesn't, and one that merely was slow finds out at the end: the step ran twice, which is harmless.
    """

    step_id: uuid.UUID
    claim: uuid.UUID


def operation_start(
    *,
    actor: Actor,
    cluster: Cluster,
    operation_type: OperationType,
    resource: str = "",
    metadata: dict[str, Any] | None = None,
    steps: Collection[str] | None = None,
) -> Operation:
    """Write the operation with its steps and enqueue the first, unless it waits for others of its tenant. Call it inside the
    transaction of the state change.

    `resource` is the API path of what is being changed, the cluster's when not given. `steps` names those of the workflow
    that this one has, all of them when not given.

    Raises Conflict while another operation on the cluster is in progress.
    """
    try:
        with transaction.atomic():
            operation = Operation.objects.create(
                tenant=cluster.tenant,
                cluster=cluster,
                type=operation_type,
                resource=resource or cluster.path,
                metadata=metadata or {},
                requested_by=actor_label(actor),
                waits=operation_waits(cluster.tenant, operation_type),
            )
    except IntegrityError:
        raise _in_progress(cluster) from None
    OperationStep.objects.bulk_create(
        OperationStep(operation=operation, position=position, name=name)
        for position, name in enumerate(step_names(operation_type, steps))
    )
    _enqueue_next(operation)
    return operation


def operation_retry(*, actor: Actor, operation: Operation) -> Operation:
    """Run a failed operation again from its first step; every step is harmless when its work is done already.

    Raises Conflict when it hasn't failed, when the cluster has moved on since, or when it was a drill.
    """
    if operation.type == OperationType.GROUP_DRILL:
        raise Conflict(
            say("A failover drill is not retried: what it measured ended with it."),
            code="operation_outdated",
            hint=say("Start another drill once the group is healthy."),
        )
    expected = {
        OperationType.CLUSTER_CREATE: (ClusterState.FAILED, ClusterState.PROVISIONING),
        OperationType.CLUSTER_DELETE: (ClusterState.DELETING, ClusterState.DELETING),
        OperationType.CLUSTER_SUSPEND: (ClusterState.SUSPENDING, ClusterState.SUSPENDING),
        OperationType.CLUSTER_RESUME: (ClusterState.RESUMING, ClusterState.RESUMING),
    }.get(OperationType(operation.type), (ClusterState.RUNNING, ClusterState.RUNNING))
    # A recovery begins wherever a group lacks its leader: also where it kept the cluster from being stopped or started.
    begins_in = (*_STOPS_AND_STARTS, ClusterState.RUNNING) if operation.type in _RECOVERIES else (expected[0],)
    moved_on = Conflict(say("The cluster has moved on since this operation."), code="operation_outdated")
    try:
        with transaction.atomic():
            won = Operation.objects.filter(pk=operation.pk, state=OperationState.FAILED).update(
                state=OperationState.IN_PROGRESS,
                waits=operation_waits(operation.tenant, OperationType(operation.type)),
                error=None,
                finished_at=None,
                updated_at=timezone.now(),
            )
            if won != 1:
                raise Conflict(say("Only a failed operation can be retried."), code="operation_not_failed")
            operation_metadata_change(operation, _note_retry)
            later = Operation.objects.filter(cluster=operation.cluster_id, created_at__gt=operation.created_at)
            if operation.type not in LEADERSHIP:  # who leads by now changes nothing of what is to be done
                later = later.exclude(type__in=LEADERSHIP)
            if operation.type in _SHAPES:
                later = later.exclude(type__in=_KEEP_SHAPE)
            if operation.type in (OperationType.CLUSTER_SUSPEND, OperationType.CLUSTER_RESUME):
                later = later.exclude(type__in=_RECOVERIES)  # what it failed for may be put right by that
            if later.exists():
                raise moved_on
            state = F("state") if operation.type in _RECOVERIES else expected[1]
            moved = Cluster.objects.filter(pk=operation.cluster_id, state__in=begins_in).update(
                state=state, error=None, updated_at=timezone.now()
            )
            if moved != 1:
                raise moved_on
            OperationStep.objects.filter(operation=operation).update(
                state=StepState.PENDING,
                claim=None,
                lease_until=None,
                not_before=None,
                started_at=None,
                finished_at=None,
                message="",
                updated_at=timezone.now(),
            )
            audit_event_record(
                actor=actor, action="operation.retry", resource=operation.path, tenant_id=operation.tenant_id
            )
            operation.refresh_from_db()
            _enqueue_next(operation)
    except IntegrityError:
        raise _in_progress(operation.cluster) from None
    return operation


def _note_retry(metadata: dict[str, Any]) -> None:
    metadata.pop(CANCELLED_BY, None)
    metadata[_RETRIED] = True


def operation_was_retried(operation: Operation) -> bool:
    """Whether it runs again after a failure."""
    return bool(operation.metadata.get(_RETRIED))


def operation_cancel(*, actor: Actor, operation: Operation) -> Operation:
    """Have a rolling restart or upgrade end once the daemon that is under way is back; the others are left as they are. One that
    waits for others of its tenant ends now.

    Asked again, it changes nothing. Raises Conflict for an operation of another kind, and for one that has ended.
    """
    if operation.type not in CANCELLABLE:
        raise Conflict(
            say("Only a rolling restart or upgrade can be cancelled."),
            code="operation_not_cancellable",
            hint=say("Wait until it has ended; a step that takes too long fails."),
        )
    with transaction.atomic():
        running = Operation.objects.select_for_update().get(pk=operation.pk)
        if running.state != OperationState.IN_PROGRESS:
            raise Conflict(say("The operation has ended."), code="operation_ended")
        if CANCELLED_BY not in running.metadata:
            metadata = {**running.metadata, CANCELLED_BY: actor_label(actor)}
            Operation.objects.filter(pk=running.pk).update(metadata=metadata, updated_at=timezone.now())
            audit_event_record(
                actor=actor, action="operation.cancel", resource=operation.path, tenant_id=operation.tenant_id
            )
            if running.waits:
                Operation.objects.filter(pk=running.pk).update(
                    state=OperationState.CANCELLED, finished_at=timezone.now()
                )
            else:
                _wake(running)
    operation.refresh_from_db()
    return operation


def operation_is_cancelled(operation: Operation) -> bool:
    """Whether it is to end at the next place where it can."""
    return Operation.objects.filter(pk=operation.pk, metadata__has_key=CANCELLED_BY).exists()


def operation_metadata_change(operation: Operation, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the operation's metadata under its row's lock, so that no one's change is lost."""
    with transaction.atomic():
        row = Operation.objects.select_for_update().get(pk=operation.pk)
        change(row.metadata)
        Operation.objects.filter(pk=row.pk).update(metadata=row.metadata, updated_at=timezone.now())
    operation.metadata = row.metadata


def operation_yields(operation: Operation) -> bool:
    """Whether a promotion may end this operation: what it has begun stands, and it only waits, or asks what a retry asks again."""
    return _yields(operation, _present_step(operation), _YIELDING)


def operation_interrupt(cluster: Cluster, cause: str) -> Operation | None:
    """End the operation in progress if it yields: it has failed then, and can be retried. Returns it, None when nothing was
    ended. Call it inside the transaction of what comes instead.
    """
    return _interrupt(cluster, _YIELDING, cause, say("Retry it when every group has a master again."))


def operation_interrupt_for_recovery(cluster: Cluster, cause: str) -> Operation | None:
    """The same for a recovery from lost disks: what it ends is not retried, since other voters count afterwards."""
    return _interrupt(cluster, _YIELDING_TO_RECOVERY, cause, say("Ask for it again once the group has recovered."))


def _present_step(operation: Operation) -> OperationStep | None:
    return operation.steps.exclude(state=StepState.COMPLETED).order_by("position").first()


def _yields(operation: Operation, step: OperationStep | None, yielding: Mapping[str, Collection[str]]) -> bool:
    if operation.waits:
        return operation.type in yielding
    return step is not None and step.name in yielding.get(operation.type, ())


def _interrupt(cluster: Cluster, yielding: Mapping[str, Collection[str]], cause: str, hint: str) -> Operation | None:
    running = Operation.objects.select_for_update().filter(cluster=cluster, state=OperationState.IN_PROGRESS).first()
    while running is not None and (step := _present_step(running)) is not None and _yields(running, step, yielding):
        # Its worker may end it in this moment, and the next one may not yield.
        if not _step_taken(step):
            continue
        # The worker that has it finds its claim gone.
        _end_as_failed(running, step, cause, hint)
        _log.warning("operation interrupted", operation=str(running.pk), step=step.name, cause=cause)
        return running
    return None


def _step_taken(step: OperationStep) -> bool:
    """Take the step from whichever worker has it, for its failure; False where it has changed since it was read."""
    unchanged = OperationStep.objects.filter(pk=step.pk, state=step.state, claim=step.claim)
    return unchanged.update(state=StepState.FAILED, claim=None) == 1


def operation_withdraw(cluster: Cluster, operation_type: OperationType, *, cause: str) -> None:
    """End the cluster's operation of this type where it only waits, so that the opposite can begin; nothing is to be ended where
    none is in progress. Call it inside the transaction of what comes instead.

    Raises Conflict while a worker is at one of its steps: that one would go on beside what comes.
    """
    running = (
        Operation.objects.select_for_update()
        .filter(cluster=cluster, type=operation_type, state=OperationState.IN_PROGRESS)
        .first()
    )
    if running is None:
        return
    step = running.steps.select_for_update().exclude(state=StepState.COMPLETED).order_by("position").first()
    if step is None or step.state != StepState.PENDING:
        raise _in_progress(cluster)
    _end_as_failed(running, step, cause, "")
    _log.info("operation withdrawn", operation=str(running.pk), step=step.name)


def operation_end_failed(operation: Operation, step: OperationStep, cause: str, hint: str) -> None:
    """Fail an operation in progress, at its present step, from outside. Call it in the transaction that locked both rows."""
    error = _end_as_failed(operation, step, cause, hint)
    _note_failure(operation, error, timezone.now())
    _log.warning("operation ended", operation=str(operation.pk), step=step.name, cause=cause)


def _note_failure(operation: Operation, error: dict[str, str], now: datetime) -> None:
    cluster = Cluster.objects.filter(pk=operation.cluster_id)
    cluster.filter(state__in=[ClusterState.REQUESTED, ClusterState.PROVISIONING]).update(
        state=ClusterState.FAILED, updated_at=now
    )
    cluster.filter(state__in=_SHOWING_ERRORS).update(error=error, updated_at=now)


def _end_as_failed(operation: Operation, step: OperationStep, cause: str, hint: str) -> dict[str, str]:
    now = timezone.now()
    OperationStep.objects.filter(pk=step.pk).update(
        state=StepState.FAILED,
        claim=None,
        lease_until=None,
        finished_at=now,
        message=bounded(cause, 1024),
        updated_at=now,
    )
    error = {"cause": cause, "hint": hint, "step": step.name}
    Operation.objects.filter(pk=operation.pk).update(
        state=OperationState.FAILED, error=error, finished_at=now, updated_at=now
    )
    _let_others_begin(operation)
    return error


def _in_progress(cluster: Cluster) -> Conflict:
    """What is in progress, how far it is, how long that may take, and what to do."""
    running = Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).first()
    if running is None:
        return Conflict(
            say("Another operation on this cluster is in progress."),
            code="operation_in_progress",
            hint=say("Wait until it has ended, and ask again."),
        )
    step = running.steps.exclude(state=StepState.COMPLETED).order_by("position").first()
    named = {"type": operation_title(running), "by": running.requested_by}
    if step is None:
        message = say("Another operation on this cluster is in progress: “%(type)s”, which %(by)s asked for.", **named)
        hint = say("Wait until it has ended, and ask again.")
    else:
        definition = step_definition(running.type, step.name)
        going_on = waiting_words(running) if running.waits else step.message
        if going_on:
            message = say(
                "Another operation on this cluster is in progress: “%(type)s”, which %(by)s asked for, is at “%(title)s”"
                " (%(message)s).",
                title=step_title(running, step.name),
                message=going_on,
                **named,
            )
        else:
            message = say(
                "Another operation on this cluster is in progress: “%(type)s”, which %(by)s asked for, is at “%(title)s”.",
                title=step_title(running, step.name),
                **named,
            )
        if running.waits:
            hint = say("It begins when others of your operations have ended. Ask again when it has ended, too.")
        else:
            hint = say(
                "That step takes %(time)s at most, then the operation fails, and can be retried. Ask again when it has ended.",
                time=_duration(definition.timeout_s),
            )
    return Conflict(message, code="operation_in_progress", hint=hint, extra={"operation": running.path})


def _duration(seconds: int) -> str:
    if seconds <= 120:
        return say("%(count)s seconds", count=seconds)
    if seconds <= 7200:
        return say("%(count)s minutes", count=seconds // 60)
    return say("%(count)s hours", count=seconds // 3600)


def step_claim(step_id: uuid.UUID) -> StepClaim | None:
    """Take a step to run it, or None: it isn't its turn, it waits, it's done, another worker has it, or its tenant has all its
    places: then it is sent again.
    """
    now = timezone.now()
    step = OperationStep.objects.select_related("operation").filter(pk=step_id).first()
    if step is None or step.operation.state != OperationState.IN_PROGRESS or step.operation.waits:
        return None
    if step.not_before is not None and step.not_before > now:
        return None
    earlier = OperationStep.objects.filter(operation=step.operation_id, position__lt=step.position)
    if earlier.exclude(state=StepState.COMPLETED).exists():
        return None
    claim = uuid.uuid4()
    with transaction.atomic():
        if not step_has_place(step, now):
            later = now + timedelta(seconds=_PLACE_AFTER_S)
            pending = OperationStep.objects.filter(pk=step_id, state=StepState.PENDING)
            if pending.update(not_before=later, updated_at=now) == 1:
                step_enqueue(step_id, delay_s=_PLACE_AFTER_S)
            return None
        won = OperationStep.objects.filter(pk=step_id, state=StepState.PENDING).update(
            state=StepState.RUNNING,
            claim=claim,
            lease_until=_lease_end(now),
            not_before=None,
            attempts=F("attempts") + 1,
            started_at=Coalesce("started_at", now),
            updated_at=now,
        )
    return StepClaim(step_id, claim) if won == 1 else None


def claim_renew(claim: StepClaim) -> bool:
    """Put off the end of the lease: the step is still worked on. False: the claim was lost."""
    won = OperationStep.objects.filter(pk=claim.step_id, state=StepState.RUNNING, claim=claim.claim).update(
        lease_until=_lease_end(timezone.now())
    )
    return won == 1


def step_at_once(step_id: uuid.UUID) -> uuid.UUID | None:
    """Return the step after this one if the same worker should go on with it: while a group has no master, no step
    waits in the queue after other work.
    """
    step = OperationStep.objects.select_related("operation").filter(pk=step_id).first()
    if step is None or step.operation.type not in LEADERSHIP:
        return None
    following = OperationStep.objects.filter(operation=step.operation_id, position=step.position + 1).first()
    return None if following is None else following.pk


def step_complete(claim: StepClaim) -> bool:
    """Finish a step and enqueue the next, or finish the operation. False: the claim was lost, nothing is changed."""
    with transaction.atomic():
        if not _leave_running(claim, StepState.COMPLETED, message=""):
            return False
        operation = Operation.objects.get(steps=claim.step_id)
        if not _enqueue_next(operation):
            Operation.objects.filter(pk=operation.pk, state=OperationState.IN_PROGRESS).update(
                state=OperationState.COMPLETED, finished_at=timezone.now(), updated_at=timezone.now()
            )
            _let_others_begin(operation)
    return True


def step_wait(claim: StepClaim, *, delay_s: float, message: str) -> bool:
    """Put a step back, to be looked at again after `delay_s`. False: the claim was lost.

    A step that waited longer than its definition allows fails with `message` as the cause: see `step_is_overdue`.
    """
    now = timezone.now()
    with transaction.atomic():
        won = OperationStep.objects.filter(pk=claim.step_id, state=StepState.RUNNING, claim=claim.claim).update(
            state=StepState.PENDING,
            claim=None,
            lease_until=None,
            not_before=now + timedelta(seconds=delay_s),
            message=bounded(message, 1024),
            updated_at=now,
        )
        if won == 1:
            step_enqueue(claim.step_id, delay_s=delay_s)
    return won == 1


def step_is_overdue(step: OperationStep, now: datetime) -> bool:
    """Return whether a waiting step has used up its time."""
    timeout_s = step_definition(step.operation.type, step.name).timeout_s
    return step.started_at is not None and now - step.started_at > timedelta(seconds=timeout_s)


def step_fail(claim: StepClaim, *, cause: str, hint: str = "") -> bool:
    """Fail a step, its operation and its cluster, with the cause that people will read. False: the claim was lost."""
    now = timezone.now()
    with transaction.atomic():
        if not _leave_running(claim, StepState.FAILED, message=cause):
            return False
        step = OperationStep.objects.select_related("operation").get(pk=claim.step_id)
        error = {"cause": cause, "hint": hint, "step": step.name}
        Operation.objects.filter(pk=step.operation_id, state=OperationState.IN_PROGRESS).update(
            state=OperationState.FAILED, error=error, finished_at=now, updated_at=now
        )
        _note_failure(step.operation, error, now)
        _let_others_begin(step.operation)
    _log.warning("step failed", step=step.name, operation=str(step.operation_id), cause=cause)
    return True


def step_cancel(claim: StepClaim) -> bool:
    """End a cancelled operation at this step, which so is not done. False: the claim was lost."""
    with transaction.atomic():
        if not _leave_running(claim, StepState.PENDING, message=""):
            return False
        now = timezone.now()
        Operation.objects.filter(steps=claim.step_id, state=OperationState.IN_PROGRESS).update(
            state=OperationState.CANCELLED, finished_at=now, updated_at=now
        )
        _let_others_begin(OperationStep.objects.select_related("operation").get(pk=claim.step_id).operation)
    return True


def operations_resume() -> int:
    """Put back steps whose worker died, enqueue again what no one took, and let begin what waits though there is room. Returns how
    many were enqueued.

    Harmless at any time and from any number of workers: only a claim starts a step.
    """
    now = timezone.now()
    resumed = 0
    expired = OperationStep.objects.filter(state=StepState.RUNNING, lease_until__lt=now)
    for step_id, claim in expired.values_list("pk", "claim"):
        with transaction.atomic():
            won = OperationStep.objects.filter(pk=step_id, state=StepState.RUNNING, claim=claim).update(
                state=StepState.PENDING, claim=None, lease_until=None, message=say("its worker ended"), updated_at=now
            )
            if won == 1:
                step_enqueue(step_id)
                resumed += 1
    for tenant_id in tenants_that_wait():
        with transaction.atomic():
            resumed += sum(_enqueue_next(operation) for operation in operations_let_begin(tenant_id))
    for operation in Operation.objects.filter(state=OperationState.IN_PROGRESS, waits=False):
        step = operation.steps.exclude(state=StepState.COMPLETED).order_by("position").first()
        if step is None or step.state != StepState.PENDING:
            continue
        due = max(step.updated_at, step.not_before or step.updated_at)
        if due >= now - _LOST_AFTER:
            continue
        # Marked, so that a step that waits after much other work is not sent again at each look.
        unchanged = OperationStep.objects.filter(pk=step.pk, state=StepState.PENDING, updated_at=step.updated_at)
        if unchanged.update(updated_at=now) == 1:
            step_enqueue(step.pk)
            resumed += 1
    return resumed


def step_enqueue(step_id: uuid.UUID, *, delay_s: float = 0) -> None:
    """Send the step to the workers once the present transaction has committed.

    A broken queue is logged, not raised: the rows are the truth, and `operations_resume` sends again.
    """

    found = OperationStep.objects.filter(pk=step_id).values_list("operation__type", "operation__metadata").first()
    # A rolling restart notes when a change of a leader is under way: sends fail or wait then, as during a failover.
    urgent = found is not None and (found[0] in LEADERSHIP or found[1].get("sends_wait") is True)
    queue = settings.FAILOVER_QUEUE if urgent else None

    def send() -> None:
        current_app.send_task(STEP_TASK, args=[str(step_id)], countdown=delay_s or None, queue=queue)

    transaction.on_commit(send, robust=True)


def _lease_end(now: datetime) -> datetime:
    return now + timedelta(seconds=settings.HIGHWATER_STEP_LEASE_S)


def _let_others_begin(ended: Operation) -> None:
    for operation in operations_let_begin(ended.tenant_id):
        _enqueue_next(operation)


def _enqueue_next(operation: Operation) -> bool:
    """Enqueue the first step that isn't completed, unless all wait; False when there is none."""
    if operation.waits:
        return True
    step = operation.steps.exclude(state=StepState.COMPLETED).order_by("position").first()
    if step is None:
        return False
    step_enqueue(step.pk)
    return True


def _wake(operation: Operation) -> None:
    """Have the present step looked at now, where it waits."""
    step = operation.steps.exclude(state=StepState.COMPLETED).order_by("position").first()
    if step is not None and OperationStep.objects.filter(pk=step.pk, state=StepState.PENDING).update(not_before=None):
        step_enqueue(step.pk)


def _leave_running(claim: StepClaim, state: StepState, *, message: str) -> bool:
    now = timezone.now()
    won = OperationStep.objects.filter(pk=claim.step_id, state=StepState.RUNNING, claim=claim.claim).update(
        state=state, claim=None, lease_until=None, finished_at=now, message=bounded(message, 1024), updated_at=now
    )
    return won == 1
