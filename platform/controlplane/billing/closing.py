"""When a month can be invoiced: every cluster of the tenant is ingested past its end, and the check found nothing wrong.

A cluster's end is the month's, or earlier where its metering was sealed because it was deleted. An end that an operator stated and
agreed stands for what can't be ingested any more. The decision is pure: facts come in, what is waited for comes out.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.db.models import Q

from controlplane.billing.models import Usage
from controlplane.billing.periods import Month
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.common.sentences import say
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState
from controlplane.insight.selectors import counted
from controlplane.tenants.models import Tenant

# They were never open to their tenant: there is nothing to meter.
_NEVER_RAN = (ClusterState.REQUESTED, ClusterState.PROVISIONING, ClusterState.FAILED)


class WaitFor(StrEnum):
    """What an invoice waits for, in the order in which it comes."""

    LATE_WINDOW = "late_window"
    INGEST = "ingest"
    USAGE = "usage"
    CHECK = "check"
    FINDINGS = "findings"


@dataclass(frozen=True, slots=True)
class Metered:
    """How far one cluster's metering got: the facts of its ClusterProgress."""

    cluster_id: uuid.UUID
    name: str
    ingested_until: datetime | None = None
    ingest_error: str = ""
    ingest_failed_since: datetime | None = None
    checked_until: datetime | None = None
    check_error: str = ""
    sealed_at: datetime | None = None
    agreed_until: datetime | None = None
    agreed_reason: str = ""
    created_at: datetime | None = None

    @property
    def never_ran(self) -> bool:
        """Whether its metering was sealed when it was made: it was deleted without ever having been open to its tenant."""
        return self.sealed_at is not None and self.created_at is not None and self.sealed_at <= self.created_at

    def end_of(self, month: Month) -> datetime:
        """Return when its usage of the month ends."""
        return month.end if self.sealed_at is None else min(self.sealed_at, month.end)

    def is_agreed(self, month: Month) -> bool:
        """Whether an operator agreed to bill the month by what is known."""
        return self.agreed_until is not None and self.agreed_until >= self.end_of(month)


@dataclass(frozen=True, slots=True)
class UsageRuns:
    """What the scheduled runs of usage_billing did: when the last one that completed began, and how far it counted."""

    began_at: datetime | None
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that an invoice waits for. `sentence` is for the tenant; `cause` is for operators, and may be empty."""

    what: WaitFor
    sentence: str
    cause: str = ""
    cluster_id: uuid.UUID | None = None
    cluster_name: str = ""


def issue_time(month: Month) -> datetime:
    """Return when the month can no longer change: late records are taken for HIGHWATER_LATE_WINDOW_HOURS."""
    return month.end + timedelta(hours=settings.HIGHWATER_LATE_WINDOW_HOURS)


def waits_of(month: Month, clusters: Iterable[Metered], runs: UsageRuns, now: datetime) -> list[Wait]:
    """Return what the month's invoice waits for; empty when it can be issued."""
    due = issue_time(month)
    if now < due:
        return [
            Wait(
                WaitFor.LATE_WINDOW,
                say("It is issued after %(due)s, when late usage is no longer taken.", due=_time(due)),
            )
        ]
    open_ones = [one for one in clusters if not one.is_agreed(month)]
    waits = [wait for one in open_ones if (wait := _wait_of(month, one)) is not None]
    # Where every cluster ended before the month did, nothing may ever be counted past its end.
    reaches_its_end = any(one.end_of(month) == month.end for one in open_ones)
    is_counted = not reaches_its_end or (runs.until is not None and runs.until >= month.end)
    if runs.began_at is None or runs.began_at < due or not is_counted:
        waits.append(
            Wait(
                WaitFor.USAGE,
                say("It waits until usage has been counted once more after %(due)s.", due=_time(due)),
                _counted(runs),
            )
        )
    order = list(WaitFor)
    return sorted(waits, key=lambda wait: (order.index(wait.what), wait.cluster_name))


def _wait_of(month: Month, one: Metered) -> Wait | None:
    end = one.end_of(month)
    if end <= month.start or one.never_ran:
        return None  # it was gone before, or never there
    if one.ingested_until is None or one.ingested_until < end:
        known = (
            say("none of its metering has been read")
            if one.ingested_until is None
            else say("its metering is read until %(until)s", until=_time(one.ingested_until))
        )
        if one.ingest_failed_since is not None:
            known = say(
                "%(known)s, and reading it has failed since %(since)s",
                known=known,
                since=_time(one.ingest_failed_since),
            )
        return Wait(
            WaitFor.INGEST,
            say("It waits for cluster %(name)s: %(known)s.", name=one.name, known=known),
            one.ingest_error,
            one.cluster_id,
            one.name,
        )
    if one.check_error:
        sentence = say(
            "It waits for cluster %(name)s: the check of its usage found a difference, which an operator looks into.",
            name=one.name,
        )
        return Wait(WaitFor.FINDINGS, sentence, one.check_error, one.cluster_id, one.name)
    if one.checked_until is None or one.checked_until < end:
        sentence = (
            say("It waits for cluster %(name)s: its usage has not been checked yet.", name=one.name)
            if one.checked_until is None
            else say(
                "It waits for cluster %(name)s: its usage has been checked until %(until)s.",
                name=one.name,
                until=_time(one.checked_until),
            )
        )
        return Wait(WaitFor.CHECK, sentence, "", one.cluster_id, one.name)
    return None


def _counted(runs: UsageRuns) -> str:
    if runs.until is None or runs.began_at is None:
        return say("No scheduled run of usage_billing has completed yet.")
    return say(
        "The last run of usage_billing that completed began at %(began_at)s and counted until %(until)s.",
        began_at=_time(runs.began_at),
        until=_time(runs.until),
    )


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def month_waits(tenant: Tenant, month: Month, now: datetime) -> list[Wait]:
    """Return what the tenant's invoice of the month waits for; empty when it can be issued."""
    return waits_of(month, metered_clusters(tenant, month), usage_runs(), now)


def usage_runs() -> UsageRuns:
    """Return how far the scheduled runs of usage_billing got."""
    runs = JobRun.objects.filter(job=Job.USAGE_BILLING, state=JobRunState.COMPLETED, is_backfill=False)
    began_at = runs.order_by("-started_at").values_list("started_at", flat=True).first()
    return UsageRuns(began_at, counted(Job.USAGE_BILLING).until)


def metered_clusters(tenant: Tenant, month: Month) -> list[Metered]:
    """Return the tenant's clusters that may have usage in the month, by name."""
    used = Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end).values("cluster_id")
    lived = (
        Q(created_at__lt=month.end) & ~Q(state__in=_NEVER_RAN) & (Q(deleted_at=None) | Q(deleted_at__gt=month.start))
    )
    clusters = list(Cluster.objects.filter(tenant=tenant).filter(lived | Q(pk__in=used)).order_by("name", "pk"))
    progress = ClusterProgress.objects.in_bulk([cluster.pk for cluster in clusters])
    return [metered(cluster, progress.get(cluster.pk)) for cluster in clusters]


def metered(cluster: Cluster, progress: ClusterProgress | None) -> Metered:
    """Return the facts of a cluster; without progress nothing is known."""
    if progress is None:
        return Metered(cluster.pk, cluster.name, created_at=cluster.created_at)
    return Metered(
        cluster.pk,
        cluster.name,
        ingested_until=progress.ingested_until,
        ingest_error=progress.ingest_error,
        ingest_failed_since=progress.ingest_failed_since,
        checked_until=progress.checked_until,
        check_error=progress.check_error,
        sealed_at=progress.sealed_at,
        agreed_until=progress.agreed_until,
        agreed_reason=progress.agreed_reason,
        created_at=cluster.created_at,
    )
