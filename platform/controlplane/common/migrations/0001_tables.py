import uuid

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [("common", "0001_initial"), ("common", "0002_audit_chain")]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AuditChain",
            fields=[
                (
                    "tenant_id",
                    models.UUIDField(
                        help_text="all zeros: of events that belong to no tenant", primary_key=True, serialize=False
                    ),
                ),
                ("length", models.BigIntegerField(default=0)),
                ("head", models.CharField(max_length=64)),
            ],
        ),
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now, editable=False)),
                ("tenant_id", models.UUIDField(db_index=True, null=True)),
                ("actor", models.CharField(help_text="e-mail, token name, or `system`", max_length=254)),
                ("action", models.CharField(help_text="noun.verb, e.g. cluster.create", max_length=64)),
                ("resource", models.CharField(help_text="the resource's API path, or its name", max_length=512)),
                ("details", models.JSONField(default=dict)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("address", models.GenericIPAddressField(null=True)),
                ("sequence", models.BigIntegerField(help_text="its number in the chain, from 1")),
                (
                    "hash",
                    models.CharField(help_text="SHA-256 of the event and of its predecessor's hash", max_length=64),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["tenant_id", "-created_at"], name="audit_tenant_time"),
                    models.Index(fields=["tenant_id", "sequence"], name="audit_tenant_sequence"),
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyRecord",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("principal", models.CharField(max_length=64)),
                ("key_hash", models.CharField(max_length=64)),
                ("fingerprint", models.CharField(help_text="SHA-256 of method, path and body", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("in_flight", "In Flight"), ("answered", "Answered")],
                        default="in_flight",
                        max_length=16,
                    ),
                ),
                ("status", models.PositiveSmallIntegerField(null=True)),
                ("answer", models.BinaryField(default=bytes)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("principal", "key_hash"), name="idempotency_principal_key")
                ],
            },
        ),
    ]
