"""Runs of the Spark jobs, and lag windows. The control plane alone writes runs; Spark's `lag_analytics` writes windows,
through the staging table of migration 0002.
"""

from datetime import timedelta
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from mqwire.jobs import JobName

FAILURE_CHARACTERS_MAX = 200


class Job(models.TextChoices):
    """The jobs that are scheduled, and that operators start."""

    INGEST = JobName.INGEST.value, _("Ingest")
    USAGE_BILLING = JobName.USAGE_BILLING.value, _("Usage Billing")
    LAG_ANALYTICS = JobName.LAG_ANALYTICS.value, _("Lag Analytics")
    BILLING_CHECK = JobName.BILLING_CHECK.value, _("Billing Check")
    COMPACTION = JobName.COMPACTION.value, _("Compaction")


class JobRunState(models.TextChoices):
    """queued -> running -> completed or failed. A retry is a new row."""

    QUEUED = "queued", _("Queued")
    RUNNING = "running", _("Running")
    COMPLETED = "completed", _("Completed")
    FAILED = "failed", _("Failed")


class JobRun(BaseModel):
    """One run of a job. QUEUED -> RUNNING is a compare-and-set by a worker that holds the job's advisory lock: so a
    running row whose lock is free has lost its worker.

    `range_from`, `range_to`: what was asked for (a backfill), and after the run what it covered.
    """

    job = models.TextField(choices=Job.choices)
    state = models.TextField(choices=JobRunState.choices, default=JobRunState.QUEUED)
    range_from = models.DateTimeField(null=True)
    range_to = models.DateTimeField(null=True)
    rows_in = models.BigIntegerField(null=True)
    rows_out = models.BigIntegerField(null=True)
    rows_quarantined = models.BigIntegerField(null=True)
    rows_late = models.BigIntegerField(null=True, help_text="counted after their hour's late window had passed")
    rows_refused = models.BigIntegerField(null=True, help_text="would have lowered usage that was counted before")
    snapshot_id = models.TextField(default="", db_default="", blank=True, help_text="the lake's snapshot that it read")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error = models.TextField(default="", blank=True)
    notes = models.TextField(
        default="", db_default="", blank=True, help_text="what an operator should know and can't change; no failure"
    )
    attempt = models.IntegerField(default=1)
    requested_by = models.TextField()
    is_backfill = models.BooleanField(default=False, help_text="the range was asked for")
    retry_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="retries")
    alerted_at = models.DateTimeField(null=True, help_text="operators were mailed that it failed")
    acknowledged_at = models.DateTimeField(null=True, help_text="an operator has seen the failure")

    class Meta:
        db_table = "insight_job_run"
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job"], condition=Q(state="running"), name="job_run_one_at_a_time"),
            models.CheckConstraint(
                condition=Q(range_from=None) | Q(range_to=None) | Q(range_to__gte=models.F("range_from")),
                name="job_run_range",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["job", "state", "-finished_at"], name="job_run_latest")]

    def __str__(self) -> str:
        return f"{self.job} {self.state}"

    @property
    def took(self) -> timedelta | None:
        """How long it ran; None before its end."""
        return None if self.started_at is None or self.finished_at is None else self.finished_at - self.started_at

    @property
    def failure(self) -> str:
        """Why it failed, in a sentence: the first line of its error. Empty for a run that did not."""
        lines = [line.strip() for line in self.error.splitlines()]
        first = next((line for line in lines if line and not line.startswith("Traceback")), "")
        return first if len(first) <= FAILURE_CHARACTERS_MAX else f"{first[:FAILURE_CHARACTERS_MAX]}…"

    @property
    def failure_details(self) -> str:
        """What its error says beyond that sentence."""
        return self.error.removeprefix(self.failure).strip()

    @property
    def can_replay(self) -> bool:
        """Whether its range can be counted again: ingest has none, it goes on where it stopped."""
        return self.job != Job.INGEST and self.range_from is not None and self.range_to is not None

    @property
    def path(self) -> str:
        """The run's API path."""
        return f"/api/v1/operator/job-runs/{self.pk}/"


class ClusterProgress(models.Model):
    """How far one cluster's metering was ingested and checked, and the end that an operator agreed on, if any.

    Spark's `ingest` and `billing_check` upsert their columns by SQL: so every column has a default in the database. Only the
    control plane writes `sealed_at` and the `agreed_` columns.
    """

    cluster = models.OneToOneField(
        Cluster, on_delete=models.CASCADE, primary_key=True, related_name="progress", db_constraint=False
    )
    ingested_until = models.DateTimeField(null=True, help_text="all metering up to here is in the lake")
    ingest_error = models.TextField(default="", db_default="", blank=True)
    ingest_failed_since = models.DateTimeField(null=True, help_text="the first of the failures since the last success")
    checked_until = models.DateTimeField(null=True, help_text="compared with the brokers up to here, and found equal")
    check_error = models.TextField(default="", db_default="", blank=True, help_text="what the last check found wrong")
    sealed_at = models.DateTimeField(null=True, help_text="metering was sealed here: no record follows")
    agreed_until = models.DateTimeField(null=True, help_text="an operator agreed to bill what is known up to here")
    agreed_reason = models.TextField(default="", db_default="", blank=True)
    updated_at = models.DateTimeField(default=timezone.now, db_default=Now())

    class Meta:
        db_table = "insight_cluster_progress"

    def __str__(self) -> str:
        return f"{self.cluster_id} until {self.ingested_until}"


class LogSample(models.Model):
    """How far a broker group's log reached in one hour, as its leader reported: what was written since a moment is at most the
    difference. It bounds what a dead cluster took and no one can read any more.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="log_samples")
    broker = models.TextField(help_text="brokerName")
    hour = models.DateTimeField()
    first_at = models.DateTimeField()
    first_offset = models.BigIntegerField(help_text="bytes of the CommitLog")
    last_at = models.DateTimeField()
    last_offset = models.BigIntegerField()

    class Meta:
        db_table = "insight_log_sample"
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "broker", "hour"], name="log_sample_once")]

    def __str__(self) -> str:
        return f"{self.broker} at {self.hour:%Y-%m-%d %H:00}"


class ClusterFigures(models.Model):
    """What flowed through a cluster at one moment, as its leaders reported it: null where one of them did not."""

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="figures")
    sampled_at = models.DateTimeField(db_index=True)
    in_per_second = models.FloatField(null=True, help_text="messages, over the last minute")
    out_per_second = models.FloatField(null=True, help_text="messages, over the last minute")
    backlog_messages = models.BigIntegerField(null=True, help_text="not consumed yet, over all groups")
    stored_bytes = models.BigIntegerField(null=True, help_text="of the leaders' CommitLogs")
    disk_used = models.FloatField(null=True, help_text="share of the fullest disk, 0 to 1")
    connections = models.PositiveIntegerField(
        null=True, help_text="that producers and consumers have open at the leaders"
    )
    answer_ms = models.FloatField(null=True, help_text="what the slowest leader took to answer a small request")
    replica_gap_bytes = models.BigIntegerField(null=True, help_text="the most that a replica lacks of its leader's log")
    in_bytes_per_second = models.FloatField(null=True, help_text="of messages sent, over the last minute")
    out_bytes_per_second = models.FloatField(null=True, help_text="of messages taken, over the last minute")
    send_p50_ms = models.FloatField(null=True, help_text="what half of the last minute's sends took at most")
    send_p99_ms = models.FloatField(null=True, help_text="what 99 of 100 of the last minute's sends took at most")
    dead_letters = models.BigIntegerField(null=True, help_text="ever written, over all groups")
    quota_used = models.FloatField(null=True, help_text="share of the quota that is used most and is no rate, 0 to 1")
    groups_away = models.JSONField(null=True, help_text="groups with a backlog and no member that is connected")
    groups_away_known_to = models.CharField(
        max_length=255, null=True, help_text="of names past this one not all are known; null: all are"
    )
    groups_away_count = models.PositiveIntegerField(null=True, help_text="the most that one leader counts")

    class Meta:
        db_table = "insight_cluster_figures"
        indexes: ClassVar = [models.Index(fields=["cluster", "sampled_at"], name="cluster_figures_latest")]

    def __str__(self) -> str:
        return f"{self.cluster_id} at {self.sampled_at:%Y-%m-%d %H:%M:%S}"


class ClusterGroups(models.Model):
    """What groups and topics a cluster's brokers knew at one moment. Of clusters of whose groups nothing is said, it is old."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, primary_key=True, related_name="group_names")
    names = models.JSONField()
    topics = models.JSONField(null=True, help_text="null: not known, a leader was away")
    sampled_at = models.DateTimeField()

    class Meta:
        db_table = "insight_cluster_groups"

    def __str__(self) -> str:
        return f"{self.cluster_id}: {len(self.names)} groups"


class DrainState(models.TextChoices):
    """DRAINED: nothing is behind. NEVER: the lag does not shrink at the present rate."""

    DRAINED = "drained"
    DRAINING = "draining"
    NEVER = "never"
    UNKNOWN = "unknown"


class LagThreshold(BaseModel):
    """From which size and slope on a group's owners are warned that it never catches up; without a row, the defaults."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="lag_thresholds")
    consumer_group = models.CharField(max_length=255)
    lag_messages = models.PositiveBigIntegerField(help_text="a smaller backlog is no warning")
    growth_per_second = models.DecimalField(
        max_digits=12, decimal_places=3, help_text="messages a second; a backlog that grows more slowly is no warning"
    )

    class Meta:
        db_table = "insight_lag_threshold"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "consumer_group"], name="lag_threshold_once"),
            models.CheckConstraint(condition=Q(growth_per_second__gte=0), name="lag_threshold_growth"),
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} from {self.lag_messages}"


# A group that may be worth an alert: by the least lag that a tenant may set.
LAG_NEWS_MS = 10_000
LAG_IS_NEWS = Q(queue_id=-1) & (Q(stuck=True) | Q(lag_ms_last__gte=LAG_NEWS_MS) | Q(loses_data_at__isnull=False))


class LagWindow(models.Model):
    """The lag of a group on one queue of a topic (`queue_id` -1: on all of them) in one window of time.

    Lag in messages, and in milliseconds: the age of the oldest message that was not consumed; null when not known.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="lag_windows", db_constraint=False)
    consumer_group = models.TextField()
    topic = models.TextField()
    broker = models.TextField(default="", db_default="", blank=True, help_text="brokerName; empty: the whole group")
    queue_id = models.IntegerField(help_text="-1: the whole group")
    window_start = models.DateTimeField()
    window_seconds = models.IntegerField()
    samples = models.IntegerField()
    lag_messages_p50 = models.BigIntegerField()
    lag_messages_p95 = models.BigIntegerField()
    lag_messages_p99 = models.BigIntegerField()
    lag_messages_max = models.BigIntegerField()
    lag_messages_last = models.BigIntegerField()
    lag_ms_p50 = models.BigIntegerField(null=True)
    lag_ms_p95 = models.BigIntegerField(null=True)
    lag_ms_p99 = models.BigIntegerField(null=True)
    lag_ms_max = models.BigIntegerField(null=True)
    lag_ms_last = models.BigIntegerField(null=True)
    trend_per_second = models.FloatField(null=True, help_text="messages a second, above 0 the lag grows")
    drain_seconds = models.FloatField(null=True)
    drain_state = models.TextField(choices=DrainState.choices)
    skew = models.FloatField(null=True, help_text="highest lag over the mean of the queues; of group rows only")
    stuck = models.BooleanField()
    loses_data_at = models.DateTimeField(null=True, help_text="when retention reaches what was not consumed")
    run_id = models.UUIDField(help_text="insight_job_run that wrote it")

    class Meta:
        db_table = "insight_lag_window"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "consumer_group", "topic", "broker", "queue_id", "window_start"],
                name="lag_window_once",
            )
        ]
        indexes: ClassVar = [
            # The few windows that alerts look at, every 15 s, among all of all clusters.
            models.Index(fields=["window_start"], condition=LAG_IS_NEWS, name="lag_window_news")
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} of {self.topic} at {self.window_start:%Y-%m-%d %H:%M}"
