"""Drills that are ordered for a window."""

import uuid

import django.db.models.deletion
from django.db import migrations, models

import controlplane.common.sentences


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0003_sentences"),
        ("failover", "0006_diverged_messages"),
    ]

    operations = [
        migrations.CreateModel(
            name="DrillWindow",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("group_name", models.CharField(max_length=64)),
                (
                    "fault",
                    models.CharField(
                        choices=[("kill", "Killed"), ("hang", "Hangs"), ("cut", "Cut off")],
                        default="kill",
                        max_length=16,
                    ),
                ),
                (
                    "gives_back",
                    models.BooleanField(default=False, help_text="the old leader is to lead again afterwards"),
                ),
                ("opens_at", models.DateTimeField()),
                (
                    "closes_at",
                    models.DateTimeField(help_text="it begins before this, or not at all; it may end later"),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("started", "Begun"),
                            ("skipped", "Skipped"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                (
                    "because",
                    controlplane.common.sentences.SentenceField(
                        blank=True, help_text="why it did not begin at the last look, or was skipped"
                    ),
                ),
                ("requested_by", models.CharField(max_length=254)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="drill_windows", to="clusters.cluster"
                    ),
                ),
                (
                    "drill",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="window",
                        to="failover.drill",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["opens_at"], name="drill_window_waiting"
                    )
                ],
            },
        ),
    ]
