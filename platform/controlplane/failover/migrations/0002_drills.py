"""Failover drills; an operation may have two failovers: a drill's, and the one that gives the leadership back."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0002_drills"),
        ("failover", "0001_tables"),
    ]

    operations = [
        migrations.AlterField(
            model_name="failover",
            name="kind",
            field=models.CharField(
                choices=[
                    ("promote", "Promote"),
                    ("switchover", "Switchover"),
                    ("automatic", "Automatic"),
                    ("repeat", "Promotion repeated"),
                    ("drill", "Failover drill"),
                    ("transfer", "Leadership transferred"),
                    ("election", "Election"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="failover",
            name="operation",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="failovers",
                to="clusters.operation",
            ),
        ),
        migrations.CreateModel(
            name="Drill",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("group_name", models.CharField(max_length=64)),
                ("mode", models.CharField(help_text="the cluster's mode at that time", max_length=16)),
                ("fault", models.CharField(choices=[("kill", "Kill")], default="kill", max_length=16)),
                (
                    "gives_back",
                    models.BooleanField(default=False, help_text="the old leader is to lead again afterwards"),
                ),
                ("requested_by", models.CharField(max_length=254)),
                ("leader_id", models.PositiveIntegerField(help_text="replica id: who led, and was stopped")),
                (
                    "prober",
                    models.UUIDField(
                        help_text="whose probes count: a prober that finds another one here ends", null=True
                    ),
                ),
                ("probing_started_at", models.DateTimeField(null=True)),
                ("probed_at", models.DateTimeField(help_text="when the prober last wrote", null=True)),
                ("probing_until", models.DateTimeField(help_text="set to end the probing", null=True)),
                ("probing_ended_at", models.DateTimeField(null=True)),
                ("probes", models.JSONField(default=list)),
                (
                    "first_queue_offset",
                    models.BigIntegerField(help_text="of the first probe that was stored", null=True),
                ),
                ("fault_at", models.DateTimeField(null=True)),
                ("judged_at", models.DateTimeField(null=True)),
                (
                    "verdict",
                    models.CharField(
                        blank=True,
                        choices=[("passed", "Passed"), ("lost", "Lost"), ("not_measured", "Not measured")],
                        max_length=16,
                    ),
                ),
                ("verdict_because", models.CharField(blank=True, max_length=512)),
                (
                    "rto_ms",
                    models.BigIntegerField(
                        help_text="the longest time without an accepted write after the fault", null=True
                    ),
                ),
                ("outage_from_ms", models.BigIntegerField(help_text="since probing_started_at", null=True)),
                ("probes_sent", models.PositiveIntegerField(null=True)),
                ("probes_acknowledged", models.PositiveIntegerField(null=True)),
                (
                    "probes_missing",
                    models.PositiveIntegerField(
                        help_text="acknowledged, and not in the log afterwards; null when that could not be read",
                        null=True,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drills", to="clusters.cluster"
                    ),
                ),
                (
                    "failover",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drill", to="failover.failover"
                    ),
                ),
                (
                    "operation",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drill", to="clusters.operation"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
    ]
