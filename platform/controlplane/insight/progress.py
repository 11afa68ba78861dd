"""How far each cluster's metering got: what runs of the jobs say of it, and the ends that operators state.

A job that knows more than its run's result upserts the rows itself; `progress_note` leaves those alone.
"""

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.insight.models import ClusterProgress, Job, JobRun
from controlplane.insight.process import JobResult
from controlplane.tenants.models import Tenant

REASON_CHARACTERS_MAX = 500
# They were never open to their tenant, or are read to their end.
_WITHOUT_METERING = (ClusterState.REQUESTED, ClusterState.PROVISIONING, ClusterState.FAILED, ClusterState.DELETED)


def progress_get(cluster: Cluster) -> ClusterProgress:
    """Return the cluster's row; one that is not stored, of unknown values, when there is none."""
    return ClusterProgress.objects.filter(pk=cluster.pk).first() or ClusterProgress(cluster=cluster)


def cluster_by_id(cluster_id: uuid.UUID) -> Cluster:
    """Return any tenant's cluster, a deleted one too; raises NotFound. For operators only."""
    cluster = Cluster.objects.select_related("tenant").filter(pk=cluster_id).first()
    if cluster is None:
        raise NotFound(say("There is no such cluster."))
    return cluster


def progress_note(run: JobRun, result: JobResult, now: datetime, asked: Collection[str] = ()) -> None:
    """Write down what the end of a run says of each cluster, where the job has not said so itself.

    `asked` are the ids of those that the run's configuration had the address of: of others ingest read nothing.
    """
    if run.is_backfill or run.started_at is None:
        return
    if run.job == Job.INGEST:
        _note_ingest(run.started_at, result, now, asked)
    elif run.job == Job.BILLING_CHECK:
        _note_check(run.started_at, result, now)


def _note_ingest(started_at: datetime, result: JobResult, now: datetime, asked: Collection[str]) -> None:
    errors = result.cluster_errors
    if not result.completed and not errors:
        return  # it broke off: which clusters it had read is not known
    for cluster in Cluster.objects.filter(pk__in=asked):
        row, _ = ClusterProgress.objects.get_or_create(cluster=cluster, defaults={"updated_at": started_at})
        if row.updated_at > started_at:
            continue
        if cluster.pk in errors:
            row.ingest_error = errors[cluster.pk]
            row.ingest_failed_since = row.ingest_failed_since or now
        else:
            row.ingest_error, row.ingest_failed_since = "", None
            row.ingested_until = max(started_at, row.ingested_until or started_at)
        row.updated_at = now
        row.save(update_fields=["ingest_error", "ingest_failed_since", "ingested_until", "updated_at"])


def _note_check(started_at: datetime, result: JobResult, now: datetime) -> None:
    errors = result.cluster_errors
    if not result.completed and not errors:
        return
    for row in ClusterProgress.objects.filter(updated_at__lte=started_at).exclude(ingested_until=None):
        if row.pk in errors:
            row.check_error = errors[row.pk]
        elif row.ingested_until is not None:
            row.check_error = ""
            row.checked_until = min(row.ingested_until, result.range_to or row.ingested_until)
        row.updated_at = now
        row.save(update_fields=["check_error", "checked_until", "updated_at"])


def cluster_end_agree(*, actor: Actor, cluster: Cluster, until: datetime, reason: str) -> ClusterProgress:
    """State that the cluster's usage up to `until` is billed by what is known, and why. An agreed end only moves forward.

    Raises InvalidInput for an end in the future or before the one that was agreed, and without a reason.
    """
    operator_require(actor)
    reason = reason.strip()
    if not reason:
        raise InvalidInput.for_field("reason", say("Say why: it is printed on the invoice."), "required")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput.for_field(
            "reason", say("Use at most %(most)s characters.", most=REASON_CHARACTERS_MAX), "too_long"
        )
    if until > timezone.now():
        raise InvalidInput.for_field("until", say("The end lies in the past."), "in_future")
    with transaction.atomic():
        ClusterProgress.objects.get_or_create(cluster=cluster)
        row = ClusterProgress.objects.select_for_update().get(pk=cluster.pk)
        if row.agreed_until is not None and until < row.agreed_until:
            raise InvalidInput.for_field(
                "until",
                say(
                    "The end that was agreed is %(agreed_until)s UTC; a later one can follow.",
                    agreed_until=f"{row.agreed_until:%Y-%m-%d %H:%M}",
                ),
                "before",
            )
        row.agreed_until, row.agreed_reason = until, reason
        row.save(update_fields=["agreed_until", "agreed_reason"])
        audit_event_record(
            actor=actor,
            action="cluster.agree_end",
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={
                "until": until.isoformat(),
                "reason": reason,
                "ingested_until": None if row.ingested_until is None else row.ingested_until.isoformat(),
            },
        )
    return row


def cluster_sealed(cluster: Cluster, at: datetime, *, again: bool = False) -> None:
    """Note that the cluster's metering ends here. The first time counts, unless its brokers have served again: `again`."""
    ClusterProgress.objects.get_or_create(cluster=cluster)
    rows = ClusterProgress.objects.filter(pk=cluster.pk)
    (rows if again else rows.filter(sealed_at=None)).update(sealed_at=at)


def cluster_agreed_by_system(cluster: Cluster, until: datetime, reason: str) -> None:
    """Note an end that follows from how the platform is set up, not from anyone's judgement."""
    ClusterProgress.objects.get_or_create(cluster=cluster)
    earlier = ClusterProgress.objects.filter(Q(agreed_until=None) | Q(agreed_until__lt=until), pk=cluster.pk)
    earlier.update(agreed_until=until, agreed_reason=reason)
    audit_event_record(
        actor="system",
        action="cluster.agree_end",
        resource=cluster.path,
        tenant_id=cluster.tenant_id,
        details={"until": until.isoformat(), "reason": reason},
    )


def ingested_until() -> datetime | None:
    """Return how far the metering of every running cluster was read; None when of one nothing was, or none runs."""
    known = dict(ClusterProgress.objects.values_list("cluster_id", "ingested_until"))
    moments = [known.get(pk) for pk in Cluster.objects.filter(state=ClusterState.RUNNING).values_list("pk", flat=True)]
    read = [moment for moment in moments if moment is not None]
    return min(read) if read and len(read) == len(moments) else None


def tenant_read_until(tenant: Tenant) -> datetime | None:
    """Return until when the metering of each of the tenant's clusters was read, or agreed on; None where nothing is open.

    One of which nothing was read yet counts from its begin; one that was stopped, until its end was read.
    """
    ends = []
    clusters = Cluster.objects.filter(tenant=tenant).exclude(state__in=_WITHOUT_METERING).select_related("progress")
    for cluster in clusters:
        row = getattr(cluster, "progress", None)
        if row is None:
            ends.append(cluster.created_at)
            continue
        end = max(
            (one for one in (row.ingested_until, row.agreed_until) if one is not None), default=cluster.created_at
        )
        if row.sealed_at is None or end < row.sealed_at:
            ends.append(end)
    return min(ends, default=None)
