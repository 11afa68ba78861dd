"""Shapes of the lag and the job API. 64-bit numbers are strings; unknown is null."""

from rest_framework import serializers

from controlplane.common.strictness import MomentField, Shape
from controlplane.failover.promotion.serializers import Offset
from controlplane.insight.models import DrainState, Job, JobRunState
from controlplane.topics.selectors import LiveState


class ClusterFiguresSerializer(Shape):
    """What flows through a cluster at a moment. Null: not known."""

    sampled_at = serializers.DateTimeField()
    in_per_second = serializers.FloatField(allow_null=True, help_text="messages sent to it, over the last minute")
    out_per_second = serializers.FloatField(allow_null=True, help_text="messages taken from it, over the last minute")
    backlog_messages = Offset(help_text="not consumed yet, over all groups")
    stored_bytes = Offset(help_text="of the leaders' logs")
    disk_used = serializers.FloatField(allow_null=True, help_text="share of the fullest leader's disk, 0 to 1")
    connections = serializers.IntegerField(allow_null=True, help_text="that programs have open at the leaders")
    answer_ms = serializers.FloatField(
        allow_null=True, help_text="what the slowest leader took to answer a small request"
    )
    replica_gap_bytes = Offset(help_text="the most that a replica lacks of its leader's log")
    in_bytes_per_second = serializers.FloatField(
        allow_null=True, help_text="of messages sent to it, over the last minute"
    )
    out_bytes_per_second = serializers.FloatField(
        allow_null=True, help_text="of messages taken from it, over the last minute"
    )
    send_p50_ms = serializers.FloatField(
        allow_null=True,
        help_text="what half of the last minute's sends took at most, in the brokers; null, too, where nothing was sent",
    )
    send_p99_ms = serializers.FloatField(
        allow_null=True, help_text="what 99 of 100 of the last minute's sends took at most, in the brokers"
    )


class FiguresQuerySerializer(Shape):
    """The time that is asked for: the last hour when left out. Samples are kept for a day."""

    since = MomentField(required=False)
    until = MomentField(required=False)


class FiguresSerializer(Shape):
    """The newest figures, null when they are older than a minute, and those of a span of time, oldest first."""

    now = ClusterFiguresSerializer(allow_null=True)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    samples = ClusterFiguresSerializer(many=True)


class LagWarningSerializer(Shape):
    """A warning in words."""

    code = serializers.ChoiceField(choices=["stuck", "loses_data", "never_drains", "skewed"])
    severity = serializers.ChoiceField(choices=["bad", "warn"])
    sentence = serializers.CharField()


class LagWindowSerializer(Shape):
    """The lag in one window of time, as Spark counted it. `queue_id` -1 and an empty broker: over all queues."""

    topic = serializers.CharField()
    broker = serializers.CharField(allow_blank=True)
    queue_id = serializers.IntegerField()
    window_start = serializers.DateTimeField()
    window_seconds = serializers.IntegerField()
    samples = serializers.IntegerField()
    lag_messages_p50 = Offset()
    lag_messages_p95 = Offset()
    lag_messages_p99 = Offset()
    lag_messages_max = Offset()
    lag_messages_last = Offset()
    lag_ms_p50 = Offset()
    lag_ms_p95 = Offset()
    lag_ms_p99 = Offset()
    lag_ms_max = Offset()
    lag_ms_last = Offset()
    trend_per_second = serializers.FloatField(allow_null=True, help_text="messages; above 0 the lag grows")
    drain_state = serializers.ChoiceField(choices=DrainState.choices)
    drain_seconds = serializers.FloatField(allow_null=True)
    skew = serializers.FloatField(allow_null=True, help_text="highest lag over the mean of the queues")
    stuck = serializers.BooleanField()
    loses_data_at = serializers.DateTimeField(allow_null=True)


class TopicOutlookSerializer(LagWindowSerializer):
    """The newest window of a topic, with what to know about it."""

    warnings = LagWarningSerializer(many=True)


class GroupLagSerializer(Shape):
    """A group's lag now, over all its queues, and the newest windows that Spark counted."""

    group = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in LiveState])
    message = serializers.CharField(allow_blank=True, help_text="why the numbers are not known")
    as_of = serializers.DateTimeField()
    topics = serializers.ListField(child=serializers.CharField())
    lag_messages = Offset()
    lag_ms = Offset(help_text="the age of the oldest message that waits")
    skew = serializers.FloatField(allow_null=True)
    consume_tps = serializers.FloatField(allow_null=True)
    outlook = TopicOutlookSerializer(many=True)


class QueueLagSerializer(Shape):
    """One queue now."""

    topic = serializers.CharField()
    broker = serializers.CharField(source="broker_name")
    queue_id = serializers.IntegerField()
    consumer_offset = Offset()
    max_offset = Offset()
    lag_messages = Offset()
    lag_ms = Offset()


class GroupLagDetailSerializer(GroupLagSerializer):
    """The same with each queue; null when they are not known."""

    queues = QueueLagSerializer(many=True, allow_null=True)


class GroupLagPageSerializer(Shape):
    """A page of groups, by name."""

    results = GroupLagSerializer(many=True)
    next = serializers.CharField(allow_null=True)
    previous = serializers.CharField(allow_null=True)


class LagHistoryQuerySerializer(Shape):
    """Which part of the history; by default the last 24 hours."""

    topic = serializers.CharField(max_length=255)
    since = MomentField(required=False)
    until = MomentField(required=False)


class QueueHistorySerializer(Shape):
    """One queue's windows, oldest first."""

    broker = serializers.CharField(allow_blank=True)
    queue_id = serializers.IntegerField()
    windows = LagWindowSerializer(many=True)


class LagHistorySerializer(Shape):
    """A group's windows on one topic, oldest first. Where there is none, nothing is known."""

    group = serializers.CharField()
    topic = serializers.CharField()
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    counted_until = serializers.DateTimeField(allow_null=True)
    windows = LagWindowSerializer(many=True)
    queues = QueueHistorySerializer(many=True)


class JobRunQuerySerializer(Shape):
    """Which runs."""

    job = serializers.ChoiceField(choices=Job.choices, required=False, default="")
    state = serializers.ChoiceField(choices=JobRunState.choices, required=False, default="")


class JobRunSerializer(Shape):
    """A run of a job."""

    id = serializers.UUIDField()
    path = serializers.CharField()
    job = serializers.ChoiceField(choices=Job.choices)
    state = serializers.ChoiceField(choices=JobRunState.choices)
    is_backfill = serializers.BooleanField()
    range_from = serializers.DateTimeField(allow_null=True)
    range_to = serializers.DateTimeField(allow_null=True)
    rows_in = Offset()
    rows_out = Offset()
    rows_quarantined = Offset()
    rows_late = Offset(help_text="counted after their hour's late window had passed")
    rows_refused = Offset(help_text="would have lowered usage that was counted before")
    snapshot_id = serializers.CharField(allow_blank=True, help_text="the lake's snapshot that it read")
    error = serializers.CharField(allow_blank=True)
    notes = serializers.CharField(
        allow_blank=True, help_text="what an operator should know and can't change; no failure"
    )
    attempt = serializers.IntegerField()
    retry_of = serializers.UUIDField(source="retry_of_id", allow_null=True)
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)


class JobRunCreateSerializer(Shape):
    """Which job to run; with a range it is a backfill of [range_from, range_to)."""

    job = serializers.ChoiceField(choices=Job.choices)
    range_from = serializers.DateTimeField(required=False, allow_null=True, default=None)
    range_to = serializers.DateTimeField(required=False, allow_null=True, default=None)


class ProgressSerializer(Shape):
    """How far a cluster's metering was ingested and checked, and the end that an operator agreed on."""

    cluster_id = serializers.UUIDField()
    ingested_until = serializers.DateTimeField(allow_null=True)
    ingest_error = serializers.CharField(allow_blank=True)
    ingest_failed_since = serializers.DateTimeField(allow_null=True)
    checked_until = serializers.DateTimeField(allow_null=True)
    check_error = serializers.CharField(allow_blank=True)
    sealed_at = serializers.DateTimeField(allow_null=True)
    agreed_until = serializers.DateTimeField(allow_null=True)
    agreed_reason = serializers.CharField(allow_blank=True)


class AgreedEndSetSerializer(Shape):
    """Up to when a cluster is billed by the usage that is known, and why; the reason is printed on invoices."""

    until = serializers.DateTimeField()
    reason = serializers.CharField(max_length=500)


class ThresholdsSerializer(Shape):
    """A group whose backlog is smaller, or grows more slowly, is not said to never catch up."""

    lag_messages = serializers.IntegerField(min_value=0, max_value=2**63 - 1)
    growth_per_second = serializers.DecimalField(max_digits=12, decimal_places=3, min_value=0, coerce_to_string=False)
