"""Thresholds of a group below which it is not said to never catch up."""

import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_mode_changes"),
        ("insight", "0006_log_samples"),
    ]

    operations = [
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
    ]
