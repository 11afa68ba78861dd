"""What is done for a cluster's last usage before it is stopped: its brokers end their service and record, then ingest reads.

A cluster whose usage can't be read keeps the deletion waiting, visibly; an operator may state its end and agree
(`progress.cluster_end_agree`), and the deletion goes on. A suspension does not wait for long: its data stay, what was not read is
read after a resume, and the operation says so (`UNREAD` in its metadata).
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from controlplane.clusters.models import Cluster, Operation, OperationState, OperationType
from controlplane.clusters.operations import operation_metadata_change
from controlplane.clusters.replica_remoting import metering_close, replica_statuses
from controlplane.common.sentences import say, say_all
from controlplane.insight.availability import jobs_problem
from controlplane.insight.bounds import cluster_loss_bound
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState
from controlplane.insight.progress import cluster_agreed_by_system, cluster_sealed, progress_get
from controlplane.insight.services import DELETION, job_run_queue
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.processes import placed_replicas
from controlplane.provisioning.steps import Step, StepContext, require_in_progress

_LOOK_AGAIN_S = 5.0
_NOBODY_TO_ASK_S = 30.0
# Runs that no one takes are not asked for again and again.
_ASK_AGAIN = timedelta(minutes=10)
# For so long a suspension waits for a master or a broker, and for a run of ingest. An election takes seconds, a run minutes.
_WAITS_FOR_BROKERS = timedelta(minutes=2)
_WAITS_FOR_INGEST = timedelta(minutes=20)
_CLOCKS_DIFFER = timedelta(seconds=5)
# The member of a suspension's metadata: what of the usage is not read, by broker group; "" for the whole cluster.
UNREAD = "usage_unread"
# The member that has when a broker's metering had ended that was stopped before this operation.
_CLOSED_BEFORE = "closed_before"


def close_metering(context: StepContext) -> None:
    """End the service of every broker, and have it record what it counted: followers report to their leaders first."""
    cluster = context.cluster
    if not _has_run(cluster):
        cluster_sealed(cluster, cluster.created_at)
        return
    if settings.HIGHWATER_JOBS == "off":
        cluster_sealed(cluster, context.now)
        cluster_agreed_by_system(cluster, context.now, "Jobs were switched off when the cluster was stopped.")
        return
    if _is_agreed(context):
        cluster_sealed(cluster, progress_get(cluster).agreed_until or context.now)
        return
    replicas = placed_replicas(cluster)
    statuses = replica_statuses(cluster, [replica.address for replica in replicas])
    leading = {replica.group_id: replica for replica in replicas if _leads(statuses[replica.address].status)}
    unread: dict[str, str] = {}
    for replica in replicas:
        if replica.group_id not in leading and replica.group.name not in unread:
            if (closed_at := progress_get(cluster).sealed_at) is not None:
                _note_closed(context, closed_at)
                continue  # it was closed and stopped by an earlier try
            missing = say(
                "%(group)s has no master that answers, so its last usage is not recorded.", group=replica.group.name
            )
            if not _goes_on_without(context, _WAITS_FOR_BROKERS):
                # A suspension's patience ends soon, and it may be over before that.
                is_suspension = context.operation.type == OperationType.CLUSTER_SUSPEND
                end = "" if is_suspension else say("Start its broker again, or an operator agrees on an end.")
                raise StepNotReady(
                    say_all(missing, _bound(cluster), end), delay_s=_LOOK_AGAIN_S if is_suspension else _NOBODY_TO_ASK_S
                )
            unread[replica.group.name] = missing
    followers = [replica for replica in replicas if replica not in leading.values()]
    for replica in [*followers, *leading.values()]:
        if replica.group.name in unread:
            continue  # its followers could not report either; what they handed out is in their journals
        if replica in followers and statuses[replica.address].status is None:
            continue  # what it handed out last and did not report is lost with it
        require_in_progress(context)  # a broker of a cluster that was resumed meanwhile would serve no one
        answer = metering_close(cluster, replica.address)
        if answer.recorded and not answer.error:
            continue
        missing = (
            say("%(replica)s does not close: %(error)s", replica=str(replica), error=answer.error)
            if answer.error
            else say("%(replica)s is recording its last usage.", replica=str(replica))
        )
        if not _goes_on_without(context, _WAITS_FOR_BROKERS):
            raise StepNotReady(missing, delay_s=_LOOK_AGAIN_S if answer.error else 0.5)
        unread[replica.group.name] = missing
    if unread:
        _note_unread(context, unread)
    elif leading:
        operation_metadata_change(context.operation, lambda metadata: metadata.pop(UNREAD, None))
    # Now, not when the step began: a run of ingest since then may lack the last record.
    cluster_sealed(cluster, timezone.now(), again=bool(leading))


def confirm_ingested(context: StepContext) -> None:
    """Wait until a run of ingest that began after the last record has read it."""
    cluster = context.cluster
    if not _has_run(cluster) or _is_agreed(context) or UNREAD in context.operation.metadata:
        return
    progress = progress_get(cluster)
    sealed_at = progress.sealed_at
    if _is_of_a_stopped_cluster(context):
        _require_read(progress)
        return
    if sealed_at is None:
        raise StepNotReady(say("Its metering is not sealed yet."))
    run = _run_since(sealed_at)
    said = run is not None and run.started_at is not None and progress.updated_at >= run.started_at
    read_until = progress.ingested_until
    # A run says nothing of a broker that the name server does not know now, or whose last record is not confirmed yet. Each made
    # its last one after the operation began, and makes one a minute until it is stopped: so clocks that differ only take time.
    closed_after = min(sealed_at, _closing_began_at(context)) - _CLOCKS_DIFFER
    if said and not progress.ingest_error and read_until is not None and read_until >= closed_after:
        # Its last record is where its usage ends.
        ClusterProgress.objects.filter(pk=cluster.pk).update(sealed_at=min(sealed_at, read_until))
        return
    problem = jobs_problem()
    if _goes_on_without(context, _WAITS_FOR_INGEST):
        _note_unread(context, {"": problem or progress.ingest_error})
        return
    if problem:
        raise StepNotReady(
            say_all(
                say("Its last usage is not read yet."),
                problem,
                say("The deletion goes on when it is, or when an operator agrees on an end."),
            ),
            delay_s=_NOBODY_TO_ASK_S,
        )
    if not JobRun.objects.filter(job=Job.INGEST, created_at__gte=max(sealed_at, context.now - _ASK_AGAIN)).exists():
        job_run_queue(actor=DELETION, job=Job.INGEST)
    if progress.ingest_error or said:
        raise StepNotReady(
            say_all(
                say("Its last usage could not be read."),
                _bound(cluster),
                say("It is tried again; an operator may agree on an end."),
            ),
            delay_s=_LOOK_AGAIN_S,
        )
    raise StepNotReady(say("Its last usage is being read."), delay_s=_LOOK_AGAIN_S)


def reopen_metering(context: StepContext) -> None:
    """Forget where the metering ended: it goes on when the brokers do."""
    ClusterProgress.objects.filter(pk=context.cluster.pk).update(sealed_at=None)


STEPS: dict[str, Step] = {step.__name__: step for step in (close_metering, confirm_ingested, reopen_metering)}


def _has_run(cluster: Cluster) -> bool:
    """Whether it was ever open to its tenant: before that there is nothing to meter."""
    return Operation.objects.filter(
        cluster=cluster, type=OperationType.CLUSTER_CREATE, state=OperationState.COMPLETED
    ).exists()


def _is_agreed(context: StepContext) -> bool:
    """Whether an operator agreed on an end since the deletion was asked for."""
    progress = progress_get(context.cluster)
    return progress.agreed_until is not None and progress.agreed_until >= context.operation.started_at


def _goes_on_without(context: StepContext, patience: timedelta) -> bool:
    """Whether what was waited for is left unread: by a suspension, whose brokers come back with all that they recorded."""
    is_suspension = context.operation.type == OperationType.CLUSTER_SUSPEND
    return is_suspension and context.now - context.started_at >= patience


def _note_closed(context: StepContext, at: datetime) -> None:
    """Remember when the metering had ended before, of a broker that is stopped since: a suspension that failed had closed it."""
    operation_metadata_change(context.operation, lambda metadata: metadata.setdefault(_CLOSED_BEFORE, at.isoformat()))


def _closing_began_at(context: StepContext) -> datetime:
    closed_before: str | None = context.operation.metadata.get(_CLOSED_BEFORE)
    began_at = context.operation.started_at
    return began_at if closed_before is None else min(began_at, datetime.fromisoformat(closed_before))


def _note_unread(context: StepContext, causes: dict[str, str]) -> None:
    """Say what is not read, why, and that it is not lost: the invoice waits for it."""
    until = progress_get(context.cluster).ingested_until
    since = (
        say("Nothing of its usage has been read.")
        if until is None
        else say("Its usage after %(until)s UTC is not read.", until=f"{until:%Y-%m-%d %H:%M}")
    )
    kept = say("What its brokers recorded stays on their disks, and is read when the cluster is resumed.")
    sentences = {group: say_all(cause, since, _bound(context.cluster), kept) for group, cause in causes.items()}
    operation_metadata_change(context.operation, lambda metadata: metadata.update({UNREAD: sentences}))


def _is_of_a_stopped_cluster(context: StepContext) -> bool:
    """Whether the cluster was stopped before: no broker is there that could be read."""
    return not context.operation.steps.filter(name=close_metering.__name__).exists()


def _require_read(progress: ClusterProgress) -> None:
    """Raise StepNotReady while usage of a cluster that is stopped was not read, and would go with its data."""
    sealed_at = progress.sealed_at
    ends = [end for end in (progress.ingested_until, progress.agreed_until) if end is not None]
    if sealed_at is None or any(end >= sealed_at for end in ends):
        return
    raise StepNotReady(
        say_all(
            say("Its last usage was not read before it was stopped, and its data hold the only record of it."),
            _bound(progress.cluster),
            say("The deletion goes on when an operator agrees on an end."),
        ),
        delay_s=_NOBODY_TO_ASK_S,
    )


def _leads(status: object) -> bool:
    return getattr(status, "role", "") == "master"


def _run_since(moment: datetime) -> JobRun | None:
    """The last run of ingest that began after the moment and read what it could: one that broke off has read nothing."""
    ended = JobRun.objects.filter(job=Job.INGEST, started_at__gte=moment)
    has_read = Q(state=JobRunState.COMPLETED) | Q(state=JobRunState.FAILED, rows_in__isnull=False)
    return ended.filter(has_read).order_by("-started_at").first()


def _bound(cluster: Cluster) -> str:
    bound = cluster_loss_bound(cluster, progress_get(cluster).ingested_until)
    if bound.size_bytes is None or bound.until is None:
        return say("How much that is at most is not known: no sample of its log was taken.")
    return say(
        "That is at most %(bytes)s bytes of its log, as sampled until %(until)s UTC.",
        bytes=f"{bound.size_bytes:,}",
        until=f"{bound.until:%Y-%m-%d %H:%M}",
    )
