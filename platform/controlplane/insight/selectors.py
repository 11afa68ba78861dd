"""Reads: runs of the jobs, how far they counted, and the history of lag."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from django.conf import settings
from django.db.models import Max, Min, Q, QuerySet
from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.common.errors import InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.insight.models import Job, JobRun, JobRunState, LagWindow

HISTORY_DAYS_MAX = 30
# A chart has no more points than pixels; a longer history than this is asked for in parts. A week has so many windows.
HISTORY_WINDOWS_MAX = 7 * 24 * 12
# A backfill that found no record keeps the range that it was asked for, which may reach into the future: it counted none of it.
_WITHOUT_RECORDS = Q(is_backfill=True, rows_in=0)
# A banner names no more.
FAILURES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Counted:
    """How far a job has counted: [since, until); None when it never completed. `finished_at` is its last completion, `next_at`
    when it is due next; None when it is not scheduled.
    """

    since: datetime | None = None
    until: datetime | None = None
    finished_at: datetime | None = None
    next_at: datetime | None = None


def counted(job: Job) -> Counted:
    """Return what the job's completed runs cover."""
    covers = ~_WITHOUT_RECORDS
    found = JobRun.objects.filter(job=job, state=JobRunState.COMPLETED).aggregate(
        since=Min("range_from", filter=covers), until=Max("range_to", filter=covers), finished_at=Max("finished_at")
    )
    return Counted(**found, next_at=next_run_at(job))


def next_run_at(job: Job, now: datetime | None = None) -> datetime | None:
    """Return when the job is due next, now at the earliest; None when it is not scheduled here, or has never run."""
    interval_s = settings.HIGHWATER_JOB_INTERVALS_S.get(job)
    if interval_s is None or settings.HIGHWATER_JOBS == "off":
        return None
    last = JobRun.objects.filter(job=job, is_backfill=False).aggregate(last=Max("created_at"))["last"]
    return None if last is None else max(now or timezone.now(), last + timedelta(seconds=interval_s))


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a record waited at most until a run of ingest, which ended at `at`, had read it."""

    at: datetime
    length: timedelta


def ingest_delays(limit: int = 200) -> list[Delay]:
    """Return the delay of each completed run of ingest, oldest first: since the begin of the completed one before."""
    runs = JobRun.objects.filter(job=Job.INGEST, state=JobRunState.COMPLETED, started_at__isnull=False)
    ends = list(runs.order_by("-started_at").values_list("started_at", "finished_at")[: limit + 1])[::-1]
    return [
        Delay(finished, finished - started_before)
        for (started_before, _), (_, finished) in pairwise(ends)
        if started_before is not None and finished is not None
    ]


def job_run_list(job: str = "", state: str = "") -> QuerySet[JobRun]:
    """Return the runs, of one job or in one state where that is given. For operators only: ask `operator_require` first."""
    wanted = {name: value for name, value in (("job", job), ("state", state)) if value}
    return JobRun.objects.filter(**wanted)


def job_run_get(run_id: uuid.UUID) -> JobRun:
    """Return one run; raises NotFound."""
    run = JobRun.objects.filter(pk=run_id).select_related("retry_of").first()
    if run is None:
        raise NotFound(say("There is no such run."))
    return run


def failures_open() -> list[JobRun]:
    """Return the failed runs that an operator has to look at: not acknowledged, and no later run of the job completed."""
    return list(open_failures().order_by("-created_at")[:FAILURES_SHOWN])


def open_failures() -> QuerySet[JobRun]:
    """Return the same as a query, all of them, in no order."""
    latest = (
        JobRun.objects.filter(state=JobRunState.COMPLETED, is_backfill=False)
        .values_list("job")
        .annotate(latest=Max("created_at"))
    )
    settled = Q()
    for job, completed_at in latest.order_by():
        settled |= Q(job=job, created_at__lte=completed_at)
    failed = JobRun.objects.filter(state=JobRunState.FAILED, acknowledged_at=None)
    return failed.exclude(Q(is_backfill=False) & settled) if settled else failed


def runs_relied_on() -> set[uuid.UUID]:
    """Return the completed runs that `counted` and the issue of invoices rely on: of each job the first begin, the last end
    and the last completion, and the last scheduled start.
    """
    relied_on = set()
    for job in Job:
        completed = JobRun.objects.filter(job=job, state=JobRunState.COMPLETED)
        for runs in (
            completed.exclude(_WITHOUT_RECORDS).exclude(range_from=None).order_by("range_from"),
            completed.exclude(_WITHOUT_RECORDS).exclude(range_to=None).order_by("-range_to"),
            completed.order_by("-finished_at"),
            completed.filter(is_backfill=False).order_by("-started_at"),
            completed.filter(is_backfill=False).order_by("-created_at"),
        ):
            relied_on |= set(runs.values_list("pk", flat=True)[:1])
    return relied_on


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """A group's lag on one topic, oldest first: `whole` over all queues, `queues` by (broker, queue id)."""

    whole: list[LagWindow]
    queues: dict[tuple[str, int], list[LagWindow]]


def lag_latest(
    cluster: Cluster, within: timedelta = timedelta(hours=1), *, groups: Collection[str] | None = None
) -> dict[tuple[str, str], LagWindow]:
    """Return the newest window of each (group, topic) over all queues, no older than `within`; of these `groups` only, if given.

    One that has just begun, with a single sample, knows no trend yet: the one before it stands.
    """
    windows = (
        LagWindow.objects.filter(cluster=cluster, queue_id=-1, window_start__gte=timezone.now() - within)
        .alias(has_trend=Q(samples__gt=1))
        .order_by("consumer_group", "topic", "-has_trend", "-window_start")
    )
    if groups is not None:
        windows = windows.filter(consumer_group__in=groups)
    return {(window.consumer_group, window.topic): window for window in windows.distinct("consumer_group", "topic")}


def lag_latest_of_all(
    clusters: Collection[Cluster], within: timedelta = timedelta(hours=1)
) -> dict[uuid.UUID, dict[tuple[str, str], LagWindow]]:
    """Return what `lag_latest` says of each of these clusters, by the cluster's id, in one question."""
    windows = (
        LagWindow.objects.filter(cluster__in=clusters, queue_id=-1, window_start__gte=timezone.now() - within)
        .alias(has_trend=Q(samples__gt=1))
        .order_by("cluster_id", "consumer_group", "topic", "-has_trend", "-window_start")
        .distinct("cluster_id", "consumer_group", "topic")
        .only(
            *("cluster_id", "consumer_group", "topic", "window_start", "window_seconds"),
            *("lag_messages_last", "lag_ms_last", "stuck"),
        )
    )
    found: dict[uuid.UUID, dict[tuple[str, str], LagWindow]] = {}
    for window in windows:
        found.setdefault(window.cluster_id, {})[window.consumer_group, window.topic] = window
    return found


@dataclass(frozen=True, slots=True)
class TopicLag:
    """The group that is furthest from a topic's end, in messages, as of the window that says so."""

    group: str
    lag_messages: int
    as_of: datetime


def lag_of_topics(
    cluster: Cluster, topics: Collection[str], within: timedelta = timedelta(minutes=20)
) -> dict[str, TopicLag]:
    """Return the largest backlog of any group by topic, of each group's newest window; what no window tells of is not there."""
    windows = LagWindow.objects.filter(
        cluster=cluster, queue_id=-1, topic__in=topics, window_start__gte=timezone.now() - within
    ).order_by("window_start")
    newest: dict[tuple[str, str], TopicLag] = {}
    for topic, group, lag, start, seconds in windows.values_list(
        "topic", "consumer_group", "lag_messages_last", "window_start", "window_seconds"
    ):
        newest[topic, group] = TopicLag(group, lag, start + timedelta(seconds=seconds))
    found: dict[str, TopicLag] = {}
    for (topic, _), one in newest.items():
        if topic not in found or one.lag_messages > found[topic].lag_messages:
            found[topic] = one
    return found


def lag_before(cluster: Cluster, windows: list[LagWindow], length: timedelta) -> dict[tuple[str, str], list[LagWindow]]:
    """Return what lies before these windows over all queues, oldest first, by (group, topic), as far back as `length`."""
    found: dict[tuple[str, str], list[LagWindow]] = {(one.consumer_group, one.topic): [] for one in windows}
    if not windows:
        return found
    ends = {(one.consumer_group, one.topic): one.window_start for one in windows}
    before = LagWindow.objects.filter(
        cluster=cluster,
        consumer_group__in={one.consumer_group for one in windows},
        queue_id=-1,
        window_start__gte=min(ends.values()) - length,
    )
    for one in before.order_by("window_start"):
        key = (one.consumer_group, one.topic)
        if key in ends and ends[key] - length <= one.window_start < ends[key]:
            found[key].append(one)
    return found


def lag_topics(cluster: Cluster, group: str) -> list[str]:
    """Return the topics of which the group has a history, sorted."""
    windows = LagWindow.objects.filter(cluster=cluster, consumer_group=group)
    return sorted(windows.values_list("topic", flat=True).distinct())


def lag_history(cluster: Cluster, group: str, topic: str, since: datetime, until: datetime) -> GroupHistory:
    """Return the windows that begin in [since, until), which is at most 30 days.

    Raises InvalidInput for a bad range, or one that has more than a week's windows for each queue.
    """
    if until <= since:
        raise InvalidInput.for_field("until", say("The range ends after it begins."), "invalid_range")
    if until - since > timedelta(days=HISTORY_DAYS_MAX):
        raise InvalidInput.for_field("since", say("At most %(most)s days at once.", most=HISTORY_DAYS_MAX), "too_long")
    windows = LagWindow.objects.filter(
        cluster=cluster, consumer_group=group, topic=topic, window_start__gte=since, window_start__lt=until
    )
    whole = list(windows.filter(queue_id=-1).order_by("window_start")[: HISTORY_WINDOWS_MAX + 1])
    if len(whole) > HISTORY_WINDOWS_MAX:
        raise InvalidInput.for_field(
            "since", say("The range holds too many windows: ask for a part of it."), "too_long"
        )
    queues: dict[tuple[str, int], list[LagWindow]] = {}
    for window in windows.exclude(queue_id=-1).order_by("broker", "queue_id", "window_start"):
        queues.setdefault((window.broker, window.queue_id), []).append(window)
    return GroupHistory(whole, queues)
