import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [("consumers", "0001_offset_resets"), ("consumers", "0002_dead_letter_replays")]

    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="DeadLetterReplay",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("consumer_group", models.CharField(max_length=255)),
                (
                    "target",
                    models.CharField(
                        choices=[("retry_topic", "Retry Topic"), ("original_topic", "Original Topic")], max_length=16
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("stopped", "Stopped"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("rate_per_second", models.PositiveIntegerField()),
                ("stop_after_failures", models.PositiveIntegerField()),
                ("stop_after_new_dead", models.PositiveIntegerField()),
                (
                    "dead_at_start",
                    models.BigIntegerField(help_text="the sum of the dead-letter queues' ends when it began"),
                ),
                ("ranges", models.JSONField()),
                ("in_flight", models.JSONField(null=True)),
                ("total", models.BigIntegerField()),
                ("sent", models.BigIntegerField(default=0)),
                ("skipped", models.BigIntegerField(default=0)),
                ("failed", models.BigIntegerField(default=0)),
                ("unknown", models.BigIntegerField(default=0)),
                (
                    "failures_before",
                    models.BigIntegerField(default=0, help_text="failed and unknown before it was last continued"),
                ),
                ("gone", models.BigIntegerField(default=0, help_text="deleted by retention before their turn")),
                ("outcomes", models.JSONField(default=list)),
                (
                    "message",
                    models.CharField(blank=True, help_text="what it waits for, or how it ended", max_length=1024),
                ),
                ("made_by", models.CharField(max_length=254)),
                ("claim", models.UUIDField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="dead_letter_replays",
                        to="clusters.cluster",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")),
                        fields=("cluster", "consumer_group"),
                        name="dead_letter_replay_one_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="OffsetReset",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("consumer_group", models.CharField(max_length=255)),
                ("topic", models.CharField(max_length=255)),
                (
                    "target",
                    models.CharField(
                        choices=[
                            ("earliest", "Earliest"),
                            ("latest", "Latest"),
                            ("time", "Time"),
                            ("shift", "Shift"),
                            ("group", "Group"),
                            ("undo", "Undo"),
                        ],
                        max_length=16,
                    ),
                ),
                ("details", models.JSONField(default=dict, help_text="timestamp, shift or source_group, as asked")),
                ("queues", models.JSONField(default=list)),
                ("made_by", models.CharField(max_length=254)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="offset_resets", to="clusters.cluster"
                    ),
                ),
                (
                    "undoes",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="undone_by",
                        to="consumers.offsetreset",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(fields=["cluster", "consumer_group", "-created_at"], name="offset_reset_of_group")
                ],
            },
        ),
    ]
