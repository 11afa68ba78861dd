import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [
        ("insight", "0001_initial"),
        ("insight", "0003_compaction"),
        ("insight", "0004_cluster_progress"),
        ("insight", "0005_sealed"),
        ("insight", "0006_log_samples"),
        ("insight", "0007_lag_thresholds"),
        ("insight", "0008_cluster_figures"),
        ("insight", "0009_job_notes"),
    ]

    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClusterProgress",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="progress",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("ingested_until", models.DateTimeField(help_text="all metering up to here is in the lake", null=True)),
                ("ingest_error", models.TextField(blank=True, db_default="", default="")),
                (
                    "ingest_failed_since",
                    models.DateTimeField(help_text="the first of the failures since the last success", null=True),
                ),
                (
                    "checked_until",
                    models.DateTimeField(help_text="compared with the brokers up to here, and found equal", null=True),
                ),
                (
                    "check_error",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="what the last check found wrong"
                    ),
                ),
                ("sealed_at", models.DateTimeField(help_text="metering was sealed here: no record follows", null=True)),
                (
                    "agreed_until",
                    models.DateTimeField(help_text="an operator agreed to bill what is known up to here", null=True),
                ),
                ("agreed_reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), default=django.utils.timezone.now
                    ),
                ),
            ],
            options={
                "db_table": "insight_cluster_progress",
            },
        ),
        migrations.CreateModel(
            name="ClusterFigures",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("sampled_at", models.DateTimeField(db_index=True)),
                ("in_per_second", models.FloatField(help_text="messages, over the last minute", null=True)),
                ("out_per_second", models.FloatField(help_text="messages, over the last minute", null=True)),
                ("backlog_messages", models.BigIntegerField(help_text="not consumed yet, over all groups", null=True)),
                ("stored_bytes", models.BigIntegerField(help_text="of the leaders' CommitLogs", null=True)),
                ("disk_used", models.FloatField(help_text="share of the fullest disk, 0 to 1", null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="figures", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "db_table": "insight_cluster_figures",
                "indexes": [models.Index(fields=["cluster", "sampled_at"], name="cluster_figures_latest")],
            },
        ),
        migrations.CreateModel(
            name="JobRun",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "job",
                    models.TextField(
                        choices=[
                            ("ingest", "Ingest"),
                            ("usage_billing", "Usage Billing"),
                            ("lag_analytics", "Lag Analytics"),
                            ("billing_check", "Billing Check"),
                            ("compaction", "Compaction"),
                        ]
                    ),
                ),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                        ],
                        default="queued",
                    ),
                ),
                ("range_from", models.DateTimeField(null=True)),
                ("range_to", models.DateTimeField(null=True)),
                ("rows_in", models.BigIntegerField(null=True)),
                ("rows_out", models.BigIntegerField(null=True)),
                ("rows_quarantined", models.BigIntegerField(null=True)),
                (
                    "rows_late",
                    models.BigIntegerField(help_text="counted after their hour's late window had passed", null=True),
                ),
                (
                    "rows_refused",
                    models.BigIntegerField(help_text="would have lowered usage that was counted before", null=True),
                ),
                (
                    "snapshot_id",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="the lake's snapshot that it read"
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True, default="")),
                (
                    "notes",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="what an operator should know and can't change; no failure",
                    ),
                ),
                ("attempt", models.IntegerField(default=1)),
                ("requested_by", models.TextField()),
                ("is_backfill", models.BooleanField(default=False, help_text="the range was asked for")),
                ("alerted_at", models.DateTimeField(help_text="operators were mailed that it failed", null=True)),
                ("acknowledged_at", models.DateTimeField(help_text="an operator has seen the failure", null=True)),
                (
                    "retry_of",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="retries",
                        to="insight.jobrun",
                    ),
                ),
            ],
            options={
                "db_table": "insight_job_run",
                "ordering": ["-created_at"],
                "indexes": [models.Index(fields=["job", "state", "-finished_at"], name="job_run_latest")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")), fields=("job",), name="job_run_one_at_a_time"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("range_from", None),
                            ("range_to", None),
                            ("range_to__gte", models.F("range_from")),
                            _connector="OR",
                        ),
                        name="job_run_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LagThreshold",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("consumer_group", models.CharField(max_length=255)),
                ("lag_messages", models.PositiveBigIntegerField(help_text="a smaller backlog is no warning")),
                (
                    "growth_per_second",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="messages a second; a backlog that grows more slowly is no warning",
                        max_digits=12,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lag_thresholds",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "db_table": "insight_lag_threshold",
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "consumer_group"), name="lag_threshold_once"),
                    models.CheckConstraint(
                        condition=models.Q(("growth_per_second__gte", 0)), name="lag_threshold_growth"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LagWindow",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("consumer_group", models.TextField()),
                ("topic", models.TextField()),
                (
                    "broker",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="brokerName; empty: the whole group"
                    ),
                ),
                ("queue_id", models.IntegerField(help_text="-1: the whole group")),
                ("window_start", models.DateTimeField()),
                ("window_seconds", models.IntegerField()),
                ("samples", models.IntegerField()),
                ("lag_messages_p50", models.BigIntegerField()),
                ("lag_messages_p95", models.BigIntegerField()),
                ("lag_messages_p99", models.BigIntegerField()),
                ("lag_messages_max", models.BigIntegerField()),
                ("lag_messages_last", models.BigIntegerField()),
                ("lag_ms_p50", models.BigIntegerField(null=True)),
                ("lag_ms_p95", models.BigIntegerField(null=True)),
                ("lag_ms_p99", models.BigIntegerField(null=True)),
                ("lag_ms_max", models.BigIntegerField(null=True)),
                ("lag_ms_last", models.BigIntegerField(null=True)),
                (
                    "trend_per_second",
                    models.FloatField(help_text="messages a second, above 0 the lag grows", null=True),
                ),
                ("drain_seconds", models.FloatField(null=True)),
                (
                    "drain_state",
                    models.TextField(
                        choices=[
                            ("drained", "Drained"),
                            ("draining", "Draining"),
                            ("never", "Never"),
                            ("unknown", "Unknown"),
                        ]
                    ),
                ),
                (
                    "skew",
                    models.FloatField(
                        help_text="highest lag over the mean of the queues; of group rows only", null=True
                    ),
                ),
                ("stuck", models.BooleanField()),
                (
                    "loses_data_at",
                    models.DateTimeField(help_text="when retention reaches what was not consumed", null=True),
                ),
                ("run_id", models.UUIDField(help_text="insight_job_run that wrote it")),
                (
                    "cluster",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lag_windows",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "db_table": "insight_lag_window",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("cluster", "consumer_group", "topic", "broker", "queue_id", "window_start"),
                        name="lag_window_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LogSample",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("broker", models.TextField(help_text="brokerName")),
                ("hour", models.DateTimeField()),
                ("first_at", models.DateTimeField()),
                ("first_offset", models.BigIntegerField(help_text="bytes of the CommitLog")),
                ("last_at", models.DateTimeField()),
                ("last_offset", models.BigIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="log_samples", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "db_table": "insight_log_sample",
                "constraints": [models.UniqueConstraint(fields=("cluster", "broker", "hour"), name="log_sample_once")],
            },
        ),
    ]
