import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
        ("tenants", "0002_roles"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("kind", models.CharField(max_length=32)),
                (
                    "subject",
                    models.CharField(help_text="what in the cluster it is about; empty: the cluster", max_length=600),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("firing", "Firing"), ("resolved", "Resolved")],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("value", models.FloatField(help_text="when it was last wrong, in the kind's unit")),
                ("threshold", models.FloatField()),
                ("detail", models.CharField(blank=True, max_length=1024)),
                ("since", models.DateTimeField(help_text="when it was first seen to be wrong")),
                ("known_at", models.DateTimeField(help_text="when it was last known to be wrong")),
                (
                    "clear_since",
                    models.DateTimeField(help_text="it is right again since; it ends when that lasts", null=True),
                ),
                ("fired_at", models.DateTimeField(null=True)),
                ("resolved_at", models.DateTimeField(null=True)),
                ("resolved_because", models.CharField(blank=True, max_length=256)),
                ("acknowledged_at", models.DateTimeField(null=True)),
                ("acknowledged_by", models.CharField(blank=True, max_length=254)),
                ("note", models.CharField(blank=True, help_text="of who acknowledged it", max_length=500)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alerts", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [models.Index(fields=["cluster", "state", "-created_at"], name="alert_of_cluster")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "resolved"), _negated=True),
                        fields=("cluster", "kind", "subject"),
                        name="alert_one_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("kind", models.CharField(max_length=32)),
                ("is_on", models.BooleanField(default=True)),
                ("threshold", models.FloatField()),
                ("duration_s", models.PositiveIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alert_rules", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("cluster", "kind"), name="alert_rule_once")],
            },
        ),
        migrations.CreateModel(
            name="AlertSilence",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("kind", models.CharField(blank=True, max_length=32)),
                ("subject", models.CharField(blank=True, max_length=600)),
                ("until", models.DateTimeField()),
                ("reason", models.CharField(max_length=500)),
                ("created_by", models.CharField(max_length=254)),
                (
                    "cluster",
                    models.ForeignKey(
                        help_text="null: every cluster",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alert_silences",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alert_silences", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["tenant", "until"], name="alert_silence_of_tenant")],
            },
        ),
    ]
