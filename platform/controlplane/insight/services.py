"""Writes: runs of the jobs. A run is a row; workers take it from there.

`jobs_dispatch` (beat) is what keeps them going: it marks runs that lost their worker, adds those that are due, and enqueues what
waits. A lost message costs time only.
"""

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext

from controlplane.accounts.actors import Actor, SystemActor, actor_label
from controlplane.accounts.operators import operator_addresses, operator_require
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.mails import mail_each
from controlplane.common.sentences import say
from controlplane.insight.availability import jobs_problem
from controlplane.insight.job_config import config_of, spark_conf_problem
from controlplane.insight.locks import job_lock
from controlplane.insight.models import Job, JobRun, JobRunState, LagWindow
from controlplane.insight.process import JobResult, run_job
from controlplane.insight.progress import progress_note
from controlplane.insight.selectors import open_failures, runs_relied_on

_log = get_logger("controlplane.insight")

SCHEDULE = SystemActor("schedule")
DELETION = SystemActor("cluster deletion")
RUN_TASK = "insight.job_run"
ALERT_TASK = "insight.job_run_alert"
# A task that no one took in this time is sent again; taking it twice is harmless.
RUN_TASK_EXPIRES_S = 30
BACKFILL_DAYS_MAX = 400
# Until a job has written something it runs more often, for its first few runs: who has just started a platform waits for that.
FIRST_INTERVAL = timedelta(seconds=60)
FIRST_RUNS_MAX = 5
# A busy machine, not the job, is what failed: Spark gives its Python processes ten seconds to start, which can't be set.
BUSY_MACHINE = ("Python worker failed to connect back", "Timed out while waiting for the Python worker")
ATTEMPTS_MAX = 3
# So many runs are deleted at once, and so often in a row: the rest an hour later.
EXPIRE_BATCH = 500
EXPIRE_BATCHES_MAX = 20
_STATES = {
    JobRunState.QUEUED: say("queued"),
    JobRunState.RUNNING: say("running"),
    JobRunState.COMPLETED: say("completed"),
    JobRunState.FAILED: say("failed"),
}


def job_run_queue(
    *, actor: Actor, job: str, range_from: datetime | None = None, range_to: datetime | None = None
) -> JobRun:
    """Queue a run; with a range it is a backfill of [range_from, range_to).

    Raises InvalidInput for an unknown job or a bad range.
    """
    operator_require(actor)
    if job not in Job.values:
        raise InvalidInput.for_field("job", say("Use one of %(names)s.", names=", ".join(Job.values)), "invalid_choice")
    _range_check(job, range_from, range_to)
    return _queue(actor, job, range_from, range_to)


def job_run_retry(*, actor: Actor, run: JobRun) -> JobRun:
    """Queue the same again. Raises Conflict unless the run has failed."""
    operator_require(actor)
    if run.state != JobRunState.FAILED:
        raise Conflict(
            say("The run is %(state)s; only one that failed is retried.", state=_STATES[JobRunState(run.state)]),
            code="not_failed",
        )
    with transaction.atomic():
        JobRun.objects.filter(pk=run.pk, acknowledged_at=None).update(acknowledged_at=timezone.now())
        asked = (run.range_from, run.range_to) if run.is_backfill else (None, None)
        return _queue(actor, run.job, *asked, attempt=run.attempt + 1, retry_of=run)


def job_run_replay(*, actor: Actor, run: JobRun) -> JobRun:
    """Queue a backfill of what the run covered. Raises Conflict for a run without a range, or one that has not ended."""
    operator_require(actor)
    if not run.can_replay or run.range_from is None or run.range_to is None or run.range_from >= run.range_to:
        raise Conflict(
            say("This run has no range to count again."),
            code="no_range",
            hint=say("Queue a backfill with a range, or a run of ingest, which goes on where it stopped."),
        )
    if run.state not in (JobRunState.COMPLETED, JobRunState.FAILED):
        raise Conflict(
            say("The run is %(state)s; it can be replayed when it has ended.", state=_STATES[JobRunState(run.state)]),
            code="not_ended",
        )
    return job_run_queue(actor=actor, job=run.job, range_from=run.range_from, range_to=run.range_to)


def job_run_acknowledge(*, actor: Actor, run: JobRun) -> JobRun:
    """Take a failure out of the operators' banner. Twice is harmless; raises Conflict unless the run has failed."""
    operator_require(actor)
    if run.state != JobRunState.FAILED:
        raise Conflict(
            say("The run is %(state)s; there is nothing to acknowledge.", state=_STATES[JobRunState(run.state)]),
            code="not_failed",
        )
    with transaction.atomic():
        if JobRun.objects.filter(pk=run.pk, acknowledged_at=None).update(acknowledged_at=timezone.now()) == 1:
            audit_event_record(actor=actor, action="job_run.acknowledge", resource=run.path)
    run.refresh_from_db()
    return run


def job_run_execute(run_id: uuid.UUID) -> str:
    """Run it if it is this worker's to run; returns how that ended, for the worker's log."""
    run = JobRun.objects.filter(pk=run_id, state=JobRunState.QUEUED).first()
    if run is None:
        return "not queued"
    with job_lock(run.job) as lock:
        if lock is None:
            return "busy"
        job_runs_mark_lost(run.job)
        now = timezone.now()
        taken = JobRun.objects.filter(pk=run.pk, state=JobRunState.QUEUED).update(
            state=JobRunState.RUNNING, started_at=now, updated_at=now
        )
        if taken != 1:
            return "taken"
        try:
            problem = spark_conf_problem()
            config = {} if problem else config_of(run)
            result = JobResult(False, problem) if problem else run_job(run.job, config, lock)
        except BaseException as error:  # whatever it was, the row must not stay running; the error goes on
            _finish(run, JobResult(False, f"The worker could not run it: {type(error).__name__}: {error}"))
            raise
        _finish(run, result, [one["cluster_id"] for one in config.get("clusters", ()) if one["namesrv_addr"]])
    if not result.completed and run.attempt < ATTEMPTS_MAX and any(sign in result.error for sign in BUSY_MACHINE):
        job_run_retry(actor=SCHEDULE, run=JobRun.objects.get(pk=run.pk))
        return "failed, and queued again"
    return "completed" if result.completed else "failed"


def job_runs_mark_lost(job: str) -> int:
    """Mark as failed what claims to run. Call it while holding the job's lock: the worker that ran it has lost it."""
    lost = JobRun.objects.filter(job=job, state=JobRunState.RUNNING)
    for run in lost:
        _finish(run, JobResult(False, "Its worker was lost while it ran. What it had written counts once: retry it."))
    return len(lost)


def jobs_dispatch() -> int:
    """Mark lost runs, add due ones, enqueue what waits; returns how many were enqueued."""
    for job in JobRun.objects.filter(state=JobRunState.RUNNING).values_list("job", flat=True).distinct():
        with job_lock(job) as lock:
            if lock is not None:
                job_runs_mark_lost(job)
    if not jobs_problem():
        for job, seconds in settings.HIGHWATER_JOB_INTERVALS_S.items():
            interval = timedelta(seconds=seconds)
            _queue_if_due(job, min(interval, FIRST_INTERVAL) if _is_awaited(job) else interval)
    waiting = JobRun.objects.filter(state=JobRunState.QUEUED).order_by("created_at")
    enqueued = set()
    for run in waiting:
        if run.job not in enqueued:
            enqueued.add(run.job)
            current_app.send_task(RUN_TASK, args=(str(run.pk),), expires=RUN_TASK_EXPIRES_S)
    for run in JobRun.objects.filter(state=JobRunState.FAILED, alerted_at=None):
        current_app.send_task(ALERT_TASK, args=(str(run.pk),), expires=RUN_TASK_EXPIRES_S)
    return len(enqueued)


def job_run_alert(run_id: uuid.UUID) -> bool:
    """Mail the operators that a run failed, once; returns whether this call did."""
    now = timezone.now()
    if JobRun.objects.filter(pk=run_id, state=JobRunState.FAILED, alerted_at=None).update(alerted_at=now) != 1:
        return False
    run = JobRun.objects.get(pk=run_id)
    addresses = operator_addresses()
    if not addresses:
        _log.warning("a job failed, and there is no operator to notify", job=run.job, error=run.error[:200])
        return False
    url = f"{settings.HIGHWATER_PUBLIC_URL}/operator/jobs/{run.pk}/"

    def words() -> tuple[str, str]:
        title = gettext("The job %(job)s failed") % {"job": run.job}
        failed = gettext("The job %(job)s failed (attempt %(attempt)s).") % {"job": run.job, "attempt": run.attempt}
        advice = gettext("Look at it, and retry it: %(url)s") % {"url": url}
        return f"[Highwater] {title}", f"{failed}\n\n{run.error}\n\n{advice}\n"

    try:
        mail_each(f"job {run.pk}", addresses, words)
    except OSError:  # no mail server now: the next dispatch tries again
        JobRun.objects.filter(pk=run_id).update(alerted_at=None)
        raise
    return True


def lag_windows_expire() -> int:
    """Delete lag windows that are older than HIGHWATER_LAG_HISTORY_DAYS; returns how many."""
    oldest = timezone.now() - timedelta(days=settings.HIGHWATER_LAG_HISTORY_DAYS)
    return LagWindow.objects.filter(window_start__lt=oldest).delete()[0]


def job_runs_expire() -> int:
    """Delete runs that ended more than HIGHWATER_JOB_RUN_HISTORY_DAYS ago; returns how many.

    What others rely on stays: failures that no one looked at, and of each job the completed runs that say how far was
    counted, and when it last completed.
    """
    oldest = timezone.now() - timedelta(days=settings.HIGHWATER_JOB_RUN_HISTORY_DAYS)
    old = JobRun.objects.filter(state__in=(JobRunState.COMPLETED, JobRunState.FAILED), finished_at__lt=oldest)
    old = old.exclude(pk__in=open_failures().values("pk")).exclude(pk__in=runs_relied_on())
    deleted = 0
    for _ in range(EXPIRE_BATCHES_MAX):
        batch = list(old.order_by("finished_at").values_list("pk", flat=True)[:EXPIRE_BATCH])
        # With what refers to them: a retry's `retry_of` becomes empty.
        JobRun.objects.filter(pk__in=batch).delete()
        deleted += len(batch)
        if len(batch) < EXPIRE_BATCH:
            break
    return deleted


def _queue(
    actor: Actor,
    job: str,
    range_from: datetime | None,
    range_to: datetime | None,
    *,
    attempt: int = 1,
    retry_of: JobRun | None = None,
) -> JobRun:
    with transaction.atomic():
        run = JobRun.objects.create(
            job=job,
            range_from=range_from,
            range_to=range_to,
            is_backfill=range_from is not None,
            requested_by=actor_label(actor),
            attempt=attempt,
            retry_of=retry_of,
        )
        if actor not in (SCHEDULE, DELETION):
            audit_event_record(actor=actor, action="job_run.queue", resource=run.path, details={"job": job})
        transaction.on_commit(
            lambda: current_app.send_task(RUN_TASK, args=(str(run.pk),), expires=RUN_TASK_EXPIRES_S), robust=True
        )
    return run


def _is_awaited(job: str) -> bool:
    """Whether the job has written nothing yet, and has not run often either."""
    if job not in (Job.INGEST, Job.USAGE_BILLING, Job.LAG_ANALYTICS):
        return False
    runs = JobRun.objects.filter(job=job)
    return not runs.filter(rows_out__gt=0).exists() and runs.count() < FIRST_RUNS_MAX


def _queue_if_due(job: str, interval: timedelta) -> None:
    """Queue a scheduled run unless one waits or runs, or the last began less than the interval ago."""
    runs = JobRun.objects.filter(job=job)
    if runs.filter(state__in=(JobRunState.QUEUED, JobRunState.RUNNING), is_backfill=False).exists():
        return
    if runs.filter(is_backfill=False, created_at__gt=timezone.now() - interval).exists():
        return
    _queue(SCHEDULE, job, None, None)


def _finish(run: JobRun, result: JobResult, asked: Collection[str] = ()) -> None:
    now = timezone.now()
    values = {
        "state": JobRunState.COMPLETED if result.completed else JobRunState.FAILED,
        "finished_at": now,
        "updated_at": now,
        "error": result.error.replace("\x00", ""),
        "notes": result.notes.replace("\x00", ""),
        "rows_in": result.rows_in,
        "rows_out": result.rows_out,
        "rows_quarantined": result.rows_quarantined,
        "rows_late": result.rows_late,
        "rows_refused": result.rows_refused,
        "snapshot_id": result.snapshot_id,
    }
    if result.range_from is not None and result.range_to is not None and result.range_from <= result.range_to:
        values |= {"range_from": result.range_from, "range_to": result.range_to}
    if JobRun.objects.filter(pk=run.pk, state=JobRunState.RUNNING).update(**values) != 1:
        return
    run.refresh_from_db()
    progress_note(run, result, now, asked)
    if not result.completed:
        _log.warning("a job failed", job=run.job, run=str(run.pk), error=result.error[:200])
        transaction.on_commit(
            lambda: current_app.send_task(ALERT_TASK, args=(str(run.pk),), expires=RUN_TASK_EXPIRES_S), robust=True
        )


def _range_check(job: str, range_from: datetime | None, range_to: datetime | None) -> None:
    if (range_from is None) != (range_to is None):
        missing = "range_from" if range_from is None else "range_to"
        raise InvalidInput.for_field(missing, say("A backfill needs both ends of its range."), "required")
    if range_from is None or range_to is None:
        return
    if job == Job.INGEST:
        raise InvalidInput.for_field(
            "range_from",
            say("Ingest has no range: it goes on where it stopped, and reads each record once."),
            "no_range",
        )
    if range_to <= range_from:
        raise InvalidInput.for_field("range_to", say("The range ends after it begins."), "invalid_range")
    if range_from > timezone.now():
        raise InvalidInput.for_field("range_from", say("The range begins in the past."), "invalid_range")
    if range_to - range_from > timedelta(days=BACKFILL_DAYS_MAX):
        raise InvalidInput.for_field(
            "range_to", say("At most %(most)s days at once.", most=BACKFILL_DAYS_MAX), "too_long"
        )
