"""What flows through clusters, for a day."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0006_tls"),
        ("insight", "0007_lag_thresholds"),
    ]

    operations = [
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
    ]
