import uuid
from typing import Any

import django.utils.timezone
from django.db import migrations, models

from controlplane.common.audit_chain import FIRST_HASH, chain_of, event_hash

BATCH = 1000


def chain_existing(apps: Any, schema_editor: Any) -> None:
    """Number and chain what is there in the order of its times: from now on a change to it is seen."""
    alias = schema_editor.connection.alias
    events = apps.get_model("common", "AuditEvent").objects.using(alias)
    chain_model = apps.get_model("common", "AuditChain")
    heads: dict[uuid.UUID, tuple[int, str]] = {}
    batch = []
    for event in events.order_by("created_at", "id").iterator(chunk_size=BATCH):
        key = chain_of(event.tenant_id)
        length, previous = heads.get(key, (0, FIRST_HASH))
        event.sequence = length + 1
        event.hash = event_hash(
            previous=previous,
            event_id=event.pk,
            created_at=event.created_at,
            tenant_id=event.tenant_id,
            sequence=event.sequence,
            actor=event.actor,
            action=event.action,
            resource=event.resource,
            details=event.details,
            request_id=event.request_id,
            address=event.address,
        )
        heads[key] = (event.sequence, event.hash)
        batch.append(event)
        if len(batch) == BATCH:
            events.bulk_update(batch, ["sequence", "hash"])
            batch = []
    events.bulk_update(batch, ["sequence", "hash"])
    chain_model.objects.using(alias).bulk_create(
        chain_model(pk=key, length=length, head=head) for key, (length, head) in heads.items()
    )


class Migration(migrations.Migration):
    dependencies = [("common", "0001_initial")]

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
        migrations.AlterField(
            model_name="auditevent",
            name="created_at",
            field=models.DateTimeField(db_index=True, default=django.utils.timezone.now, editable=False),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="sequence",
            field=models.BigIntegerField(default=0, help_text="its number in the chain, from 1"),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="auditevent",
            name="hash",
            field=models.CharField(
                default="", help_text="SHA-256 of the event and of its predecessor's hash", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.RunPython(chain_existing, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(fields=["tenant_id", "sequence"], name="audit_tenant_sequence"),
        ),
    ]
