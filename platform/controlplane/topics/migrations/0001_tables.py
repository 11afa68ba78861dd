import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [("topics", "0001_initial")]

    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Topic",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("name", models.CharField(max_length=127)),
                ("description", models.CharField(blank=True, max_length=500)),
                ("read_queue_nums", models.PositiveIntegerField(default=8)),
                ("write_queue_nums", models.PositiveIntegerField(default=8)),
                ("perm", models.PositiveSmallIntegerField(default=6)),
                (
                    "message_type",
                    models.CharField(
                        choices=[
                            ("NORMAL", "Normal"),
                            ("FIFO", "Fifo"),
                            ("DELAY", "Delay"),
                            ("TRANSACTION", "Transaction"),
                        ],
                        default="NORMAL",
                        max_length=16,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("creating", "Creating"),
                            ("active", "Active"),
                            ("deleting", "Deleting"),
                            ("failed", "Failed"),
                        ],
                        default="creating",
                        max_length=16,
                    ),
                ),
                ("error", models.JSONField(help_text="{cause, hint} of the last failure", null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="topics", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [models.UniqueConstraint(fields=("cluster", "name"), name="topic_cluster_name")],
            },
        ),
    ]
