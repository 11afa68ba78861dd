"""Writes: a cluster is stopped on purpose and started again, or deleted, which can be taken back for a while.

A stopped cluster keeps its name, its ports, its keys and its disk, and counts against the tenant's limits. None of its daemons
runs, so nothing is counted or billed, stored bytes included.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor, actor_label
from controlplane.clusters.models import Cluster, ClusterState, Operation, OperationType
from controlplane.clusters.operations import operation_start, operation_withdraw
from controlplane.clusters.remoting import require_running
from controlplane.clusters.states import state_word
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require

_log = get_logger("controlplane.clusters")

REASON_CHARACTERS_MAX = 200

# Steps of a deletion. Data stay until `delete_at`, and are removed by an operation of its own.
_STOP = ("close_metering", "confirm_ingested", "settle_replicas", "stop_processes", "mark_deletion_pending")
_STOP_STOPPED = ("stop_processes", "mark_deletion_pending")
_REMOVE = ("confirm_ingested", "stop_processes", "remove_data", "release")
_STOP_AND_REMOVE = ("close_metering", *_REMOVE)

# A cluster in one of these has data, or may have.
_HAS_RUN = (ClusterState.RUNNING, ClusterState.SUSPENDING, ClusterState.SUSPENDED, ClusterState.RESUMING)
# RESUMING: of a resume that failed; it can be retried, too, unless something else was done to the cluster since.
_RESUMABLE = (ClusterState.SUSPENDED, ClusterState.SUSPENDING, ClusterState.RESUMING)
_DELETABLE = (*_HAS_RUN, ClusterState.REQUESTED, ClusterState.FAILED)
_CLEANUP = SystemActor("end of the undo window")


def cluster_suspend(*, actor: Actor, cluster: Cluster, reason: str = "") -> Operation:
    """Start the operation that stops the cluster's daemons and keeps everything else. `reason` is shown to who looks.

    Raises Conflict when the cluster isn't running or has another operation in progress.
    """
    actor_require(actor, "cluster.suspend", cluster.tenant)
    reason = _reason_check(reason)
    with transaction.atomic():
        locked = _locked(cluster)
        require_running(locked)
        operation = operation_start(actor=actor, cluster=locked, operation_type=OperationType.CLUSTER_SUSPEND)
        _stopping(locked, ClusterState.SUSPENDING, actor, reason)
        audit_event_record(
            actor=actor,
            action="cluster.suspend",
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={"reason": reason},
        )
    cluster.refresh_from_db()
    return operation


def cluster_resume(*, actor: Actor, cluster: Cluster) -> Operation:
    """Start the operation that starts a suspended cluster again, with its data, at its addresses.

    A suspension that only waits, or has failed, is given up for it; after a resume that has failed it begins from scratch. Raises
    Conflict for a cluster in any other state, while it is being resumed, and while a worker is at a step of the suspension.
    """
    actor_require(actor, "cluster.resume", cluster.tenant)
    with transaction.atomic():
        locked = _locked(cluster)
        if locked.state not in _RESUMABLE:
            hint = say("Take the deletion back: POST …/restore/.") if locked.delete_at is not None else ""
            raise Conflict(
                say("The cluster is %(state)s, not suspended.", state=state_word(locked.state)),
                code="cluster_not_suspended",
                hint=hint,
            )
        operation_withdraw(
            locked, OperationType.CLUSTER_SUSPEND, cause=say("The cluster was resumed before it was suspended.")
        )
        operation = _started_again(actor, locked, "cluster.resume")
    cluster.refresh_from_db()
    return operation


def cluster_delete(*, actor: Actor, cluster: Cluster) -> Operation:
    """Start the operation that stops the daemons. Until `delete_at`, HIGHWATER_DELETE_UNDO_HOURS later, `cluster_restore` takes
    the deletion back; then all that the cluster has is removed. One that never ran is removed at once.

    Raises Conflict while the cluster is being provisioned or deleted, or has another operation in progress.
    """
    actor_require(actor, "cluster.delete", cluster.tenant)
    factor_require(actor, "cluster.delete", cluster.tenant)
    with transaction.atomic():
        locked = _locked(cluster)
        if locked.state not in _DELETABLE:
            raise _not_deletable(locked)
        window = timedelta(hours=settings.HIGHWATER_DELETE_UNDO_HOURS) if has_run(locked) else timedelta()
        delete_at = timezone.now() + window if window else None
        operation = operation_start(
            actor=actor,
            cluster=locked,
            operation_type=OperationType.CLUSTER_DELETE,
            steps=_deletion_steps(is_final=delete_at is None, is_stopped=locked.state == ClusterState.SUSPENDED),
        )
        _stopping(locked, ClusterState.DELETING, actor, "", delete_at)
        audit_event_record(
            actor=actor,
            action="cluster.delete",
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={"delete_at": None if delete_at is None else delete_at.isoformat()},
        )
    cluster.refresh_from_db()
    return operation


def cluster_restore(*, actor: Actor, cluster: Cluster) -> Operation:
    """Take a deletion back: start the operation that starts the cluster again, with its data, at its addresses.

    Raises Conflict when the cluster is not being deleted, when its data are being removed already, and while a worker is at a
    step of stopping it.
    """
    actor_require(actor, "cluster.resume", cluster.tenant)
    with transaction.atomic():
        locked = _locked(cluster)
        if locked.delete_at is None:
            raise Conflict(
                say("There is no deletion of this cluster that can be taken back."), code="cluster_not_restorable"
            )
        operation_withdraw(locked, OperationType.CLUSTER_DELETE, cause=say("The deletion was taken back."))
        operation = _started_again(actor, locked, "cluster.restore")
    cluster.refresh_from_db()
    return operation


def cluster_purge(*, actor: Actor, cluster: Cluster, confirm: str) -> Operation:
    """Start the operation that removes a cluster whose deletion could still be taken back. `confirm` is its slug.

    Raises Conflict for a cluster that does not wait for its deletion, InvalidInput for another `confirm`.
    """
    actor_require(actor, "cluster.delete", cluster.tenant)
    if confirm != cluster.slug:
        raise InvalidInput.for_field(
            "confirm", say("Type the cluster’s slug, %(slug)s.", slug=cluster.slug), "mismatch"
        )
    factor_require(actor, "cluster.delete", cluster.tenant)
    with transaction.atomic():
        locked = _locked(cluster)
        if locked.state != ClusterState.DELETION_PENDING:
            raise Conflict(
                say("The cluster is %(state)s; it does not wait for its deletion.", state=state_word(locked.state)),
                code="cluster_not_deleted",
                hint=say("Delete it first."),
            )
        operation = _purged(actor, locked)
    cluster.refresh_from_db()
    return operation


def clusters_purge(now: datetime | None = None) -> int:
    """Begin to remove each cluster whose deletion can't be taken back any more; returns how many."""
    at = now or timezone.now()
    due = Cluster.objects.filter(state=ClusterState.DELETION_PENDING, delete_at__lte=at).select_related("tenant")
    begun = 0
    for cluster in due:
        try:
            begun += _purged_if_due(cluster, at)
        except Conflict as error:  # another operation of it goes on: its turn comes again, and the others' now
            _log.warning("a deletion waits", cluster=str(cluster.pk), cause=error.message)
    return begun


def _purged_if_due(cluster: Cluster, at: datetime) -> bool:
    with transaction.atomic():
        locked = _locked(cluster)
        # Restored meanwhile, or another worker was first.
        if locked.state != ClusterState.DELETION_PENDING or locked.delete_at is None or locked.delete_at > at:
            return False
        _purged(_CLEANUP, locked)
    return True


def has_run(cluster: Cluster) -> bool:
    """Whether the cluster may have data, so that its deletion can be taken back for a while."""
    return cluster.state in _HAS_RUN


def _locked(cluster: Cluster) -> Cluster:
    return Cluster.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=cluster.pk)


def _deletion_steps(*, is_final: bool, is_stopped: bool) -> tuple[str, ...]:
    if is_final:
        return _REMOVE if is_stopped else _STOP_AND_REMOVE
    return _STOP_STOPPED if is_stopped else _STOP


def _reason_check(reason: str) -> str:
    reason = name_check("reason", reason)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput.for_field(
            "reason", say("Use at most %(most)s characters.", most=REASON_CHARACTERS_MAX), "too_long"
        )
    return reason


def _stopping(
    cluster: Cluster, state: ClusterState, actor: Actor, reason: str, delete_at: datetime | None = None
) -> None:
    now = timezone.now()
    Cluster.objects.filter(pk=cluster.pk).update(
        state=state,
        error=None,
        stopped_at=now,
        stopped_by=actor_label(actor),
        stopped_because=reason,
        delete_at=delete_at,
        updated_at=now,
    )


def _started_again(actor: Actor, cluster: Cluster, action: str) -> Operation:
    operation = operation_start(actor=actor, cluster=cluster, operation_type=OperationType.CLUSTER_RESUME)
    Cluster.objects.filter(pk=cluster.pk).update(
        state=ClusterState.RESUMING, error=None, delete_at=None, updated_at=timezone.now()
    )
    audit_event_record(actor=actor, action=action, resource=cluster.path, tenant_id=cluster.tenant_id)
    return operation


def _purged(actor: Actor, cluster: Cluster) -> Operation:
    operation = operation_start(
        actor=actor, cluster=cluster, operation_type=OperationType.CLUSTER_DELETE, steps=_REMOVE
    )
    Cluster.objects.filter(pk=cluster.pk).update(
        state=ClusterState.DELETING, delete_at=None, error=None, updated_at=timezone.now()
    )
    audit_event_record(actor=actor, action="cluster.purge", resource=cluster.path, tenant_id=cluster.tenant_id)
    return operation


def _not_deletable(cluster: Cluster) -> Conflict:
    if cluster.state == ClusterState.DELETION_PENDING:
        return Conflict(
            say("The cluster is deleted already; its data are kept until the deletion is final."),
            code="cluster_deleted",
            hint=say("Take the deletion back with POST …/restore/, or make it final with POST …/purge/."),
        )
    return Conflict(
        say("The cluster is being provisioned or deleted."),
        code="operation_in_progress",
        hint=say("Wait until the operation has finished or failed, and ask again."),
    )
