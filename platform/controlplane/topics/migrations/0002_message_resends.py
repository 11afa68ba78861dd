import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("topics", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="MessageResend",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("broker_name", models.CharField(max_length=127)),
                ("queue_id", models.PositiveIntegerField()),
                ("queue_offset", models.BigIntegerField()),
                ("target_topic", models.CharField(max_length=127)),
                (
                    "outcome",
                    models.CharField(
                        choices=[("sending", "Sending"), ("sent", "Sent"), ("unknown", "Unknown")],
                        default="sending",
                        max_length=16,
                    ),
                ),
                ("message_id", models.CharField(blank=True, max_length=255)),
                ("status", models.CharField(blank=True, help_text="RocketMQ's SendStatus", max_length=32)),
                ("new_broker_name", models.CharField(blank=True, max_length=127)),
                ("new_queue_id", models.PositiveIntegerField(null=True)),
                ("new_queue_offset", models.BigIntegerField(null=True)),
                ("made_by", models.CharField(max_length=254)),
                (
                    "topic",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="resends", to="topics.topic"
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["topic", "broker_name", "queue_id", "queue_offset"], name="resend_place")
                ],
            },
        ),
    ]
