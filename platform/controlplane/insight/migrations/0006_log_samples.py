"""How far brokers' logs reached, by hour: what a dead cluster may have taken is bounded by it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0004_mode_changes"),
        ("insight", "0005_sealed"),
    ]

    operations = [
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
