import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("alerts", "0001_tables"),
        ("tenants", "0002_roles"),
    ]

    operations = [
        migrations.AddField(
            model_name="alert",
            name="notified_at",
            field=models.DateTimeField(help_text="when it was first put into a delivery", null=True),
        ),
        migrations.CreateModel(
            name="AlertChannel",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("name", models.CharField(max_length=100)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("email", "E-mail"),
                            ("webhook", "Webhook"),
                            ("slack", "Slack"),
                            ("dingtalk", "DingTalk"),
                            ("feishu", "Feishu"),
                            ("wecom", "WeCom"),
                        ],
                        max_length=16,
                    ),
                ),
                ("address_encrypted", models.BinaryField(default=bytes, help_text="an https URL; empty: e-mail")),
                (
                    "secret_encrypted",
                    models.BinaryField(default=bytes, help_text="what a message is signed with; empty: unsigned"),
                ),
                ("is_on", models.BooleanField(default=True)),
                ("critical_only", models.BooleanField(default=False)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alert_channels", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "ordering": ["created_at", "id"],
            },
        ),
        migrations.CreateModel(
            name="AlertDelivery",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("payload", models.JSONField(help_text="what a webhook gets; other kinds get the same as text")),
                (
                    "state",
                    models.CharField(
                        choices=[("queued", "Queued"), ("delivered", "Delivered"), ("failed", "Failed")],
                        default="queued",
                        max_length=16,
                    ),
                ),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("not_before", models.DateTimeField(help_text="of the next try")),
                (
                    "http_status",
                    models.PositiveSmallIntegerField(help_text="of the last try, where there was an answer", null=True),
                ),
                ("error", models.CharField(blank=True, max_length=500)),
                ("delivered_at", models.DateTimeField(null=True)),
                (
                    "channel",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="deliveries", to="alerts.alertchannel"
                    ),
                ),
                (
                    "is_again_of",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="repetitions",
                        to="alerts.alertdelivery",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.AddConstraint(
            model_name="alertchannel",
            constraint=models.UniqueConstraint(fields=("tenant", "name"), name="alert_channel_name"),
        ),
        migrations.AddConstraint(
            model_name="alertchannel",
            constraint=models.UniqueConstraint(
                condition=models.Q(("kind", "email")), fields=("tenant",), name="alert_channel_one_email"
            ),
        ),
        migrations.AddIndex(
            model_name="alertdelivery",
            index=models.Index(fields=["state", "not_before"], name="alert_delivery_due"),
        ),
    ]
