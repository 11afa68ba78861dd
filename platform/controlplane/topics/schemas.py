"""The protobuf schema of a topic, by which its bodies are decoded where messages are shown. Brokers and clients don't know it."""

from collections.abc import Callable
from typing import Any

from django.db import transaction

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.models import Cluster
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require
from controlplane.topics.models import Topic, TopicSchema
from controlplane.topics.protobuf_bodies import NotASchema, Schema, schema_check


def schema_find(topic: Topic) -> TopicSchema | None:
    """Return the topic's schema, None where it has none."""
    return TopicSchema.objects.select_related("topic__cluster__tenant").filter(topic=topic).first()


def schema_exists(cluster: Cluster, topic: str | None = None) -> bool:
    """Whether this topic of the cluster, or any, has a schema."""
    rows = TopicSchema.objects.filter(topic__cluster=cluster)
    return (rows if topic is None else rows.filter(topic__name=topic)).exists()


def schema_get(topic: Topic) -> TopicSchema:
    """Return the topic's schema; raises NotFound."""
    schema = schema_find(topic)
    if schema is None:
        raise NotFound(say("This topic has no schema."))
    return schema


def schema_set(*, actor: Actor, topic: Topic, descriptor_set: bytes, message: str) -> TopicSchema:
    """Give the topic a schema, in the place of the one that it may have. Raises NotAllowed, InvalidInput."""
    actor_require(actor, "topic.update", topic.cluster.tenant)
    try:
        schema_check(Schema(descriptor_set, message))
    except NotASchema as error:
        raise InvalidInput.for_field(error.field, error.sentence, "invalid") from error
    with transaction.atomic():
        if not Topic.objects.select_for_update().filter(pk=topic.pk).exists():
            raise NotFound(say("There is no such topic."))
        replaced = schema_find(topic)
        schema, _ = TopicSchema.objects.update_or_create(
            topic=topic,
            defaults={"descriptor_set": descriptor_set, "message": message, "made_by": actor_label(actor)},
        )
        _record(actor, "topic_schema.set", schema, replaced)
    return schema


def schema_delete(*, actor: Actor, topic: Topic) -> None:
    """Show the topic's bodies as they come again. Raises NotAllowed, NotFound."""
    actor_require(actor, "topic.update", topic.cluster.tenant)
    with transaction.atomic():
        schema = schema_get(topic)
        _record(actor, "topic_schema.delete", schema)
        schema.delete()


def schemas_of(cluster: Cluster) -> Callable[[str], Schema | None]:
    """Return what finds the schema of one of the cluster's topics, by a query for each name."""

    def find(name: str) -> Schema | None:
        rows = TopicSchema.objects.filter(topic__cluster=cluster, topic__name=name)
        found = rows.values_list("descriptor_set", "message").first()
        return None if found is None else Schema(bytes(found[0]), found[1])

    return find


def _record(actor: Actor, action: str, schema: TopicSchema, replaced: TopicSchema | None = None) -> None:
    now = _described(schema)
    changes = {} if replaced is None else {"changes": changes_between(_described(replaced), now)}
    audit_event_record(
        actor=actor,
        action=action,
        resource=schema.path,
        tenant_id=schema.topic.cluster.tenant_id,
        details=now | changes,
    )


def _described(schema: TopicSchema) -> dict[str, Any]:
    return {"message": schema.message, "size_bytes": schema.size_bytes, "sha256": schema.sha256}
