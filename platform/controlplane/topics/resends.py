"""A stored message, sent again as a new one, with changes or without.

A resend is a row before it is sent, so that the next one finds it, whatever became of its worker. What was surely not
stored leaves no row.
"""

from dataclasses import replace

from django.db import transaction

from controlplane.accounts.actors import Actor
from controlplane.clusters.remarks import error_words
from controlplane.clusters.remoting import cluster_producer
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import BrokerUnreachable, Conflict, InvalidInput, NotAllowed, NotFound
from controlplane.common.sentences import say, say_count
from controlplane.tenants.rules import actor_require
from controlplane.topics.copies import Edit, edited_copy
from controlplane.topics.gateway import SentMessage, masks_of, may_be_stored, message_read, sent_message
from controlplane.topics.masking import MASK, Sight
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.models import MessageResend, ResendOutcome, Topic, TopicState
from controlplane.topics.selectors import topic_get
from highwater import BrokerError, HighwaterError, ReceivedMessage
from mqwire.names import PROPERTY_KEYS, PROPERTY_TAGS

RESENDS_SHOWN = 20
_STATES = {
    TopicState.CREATING: say("creating"),
    TopicState.ACTIVE: say("active"),
    TopicState.DELETING: say("deleting"),
    TopicState.FAILED: say("failed"),
}


def resend_list(topic: Topic, broker_name: str, queue_id: int, queue_offset: int) -> list[MessageResend]:
    """Return how the message at a place was sent again, newest first, at most 20."""
    found = MessageResend.objects.filter(
        topic=topic, broker_name=broker_name, queue_id=queue_id, queue_offset=queue_offset
    )
    return list(found.order_by("-created_at")[:RESENDS_SHOWN])


def message_resend(
    *, actor: Actor, topic: Topic, broker_name: str, queue_id: int, queue_offset: int, edit: Edit, again: bool = False
) -> SentMessage:
    """Send the message at a place again, through the cluster and at most once. Its consumers take it for a new message.

    Raises NotAllowed, InvalidInput, NotFound, Conflict when the cluster isn't running or, without `again`, when the message was
    sent again before; BrokerRefused, BrokerUnreachable (code `resend_unknown`: then it may be stored or not).
    """
    tenant = topic.cluster.tenant
    actor_require(actor, "message.send", tenant)
    edit.check()
    target = topic if edit.topic is None else _target(topic, edit.topic)
    original = message_read(
        actor=actor, topic=topic, broker_name=broker_name, queue_id=queue_id, queue_offset=queue_offset
    )
    message = edited_copy(original, target.name, _unmasked(edit, original, target, sight_of(actor, topic.cluster)))
    # Nothing is tried twice: a send that was not answered may have been stored.
    with cluster_producer(topic.cluster, retries=0) as producer:
        with transaction.atomic():
            # Of two at once the second finds the first.
            if Topic.objects.select_for_update().filter(pk=topic.pk).first() is None:
                raise NotFound(say("There is no such topic."))
            earlier = len(resend_list(topic, broker_name, queue_id, queue_offset))
            if earlier and not again:
                raise Conflict(
                    say_count(
                        "This message was sent again before: once.",
                        "This message was sent again before: %(count)s times.",
                        earlier,
                    ),
                    code="resent_before",
                    hint=say("Look at what became of it. Confirm with `again` to send it once more."),
                )
            resend = MessageResend.objects.create(
                topic=topic,
                broker_name=broker_name,
                queue_id=queue_id,
                queue_offset=queue_offset,
                target_topic=target.name,
                made_by=str(actor)[:254],
            )
        try:
            result = producer.send(message)
        except HighwaterError as error:
            if not may_be_stored(error):
                resend.delete()
                raise
            MessageResend.objects.filter(pk=resend.pk).update(outcome=ResendOutcome.UNKNOWN)
            raise BrokerUnreachable(
                say("The cluster did not say that it is stored: %(error)s", error=error_words(error))
                if isinstance(error, BrokerError)
                else say("The send was not answered: %(error)s", error=error_words(error)),
                code="resend_unknown",
                hint=say("It may be stored or not. Look for the message by its key before you send it once more."),
            ) from error
    sent = sent_message(result)
    with transaction.atomic():
        MessageResend.objects.filter(pk=resend.pk).update(
            outcome=ResendOutcome.SENT,
            message_id=sent.message_id,
            status=sent.status,
            new_broker_name=sent.broker_name,
            new_queue_id=sent.queue_id,
            new_queue_offset=sent.queue_offset,
        )
        audit_event_record(
            actor=actor,
            action="message.resend",
            resource=topic.path,
            tenant_id=tenant.pk,
            details={
                "origin": original.offset_message_id,
                "topic": target.name,
                "message_id": sent.message_id,
                "changed": [name for name in ("body", "tags", "keys", "properties") if getattr(edit, name) is not None],
                "body_size_bytes": len(message.body),
            },
        )
    return sent


def _unmasked(edit: Edit, original: ReceivedMessage, target: Topic, sight: Sight) -> Edit:
    """Return the edit with the original's values where its maker only saw that there is one.

    Raises NotAllowed when the copy would lie where its maker sees more of it.
    """
    masks = masks_of(original, sight)
    if not masks.rules <= sight.masks_for([target.name]).rules:
        raise NotAllowed(
            say("Parts of this message are masked for you. It can be sent again only to topics where they are, too."),
            code="masked_elsewhere",
        )
    keys = None if edit.keys == (MASK,) and masks.hides_property(PROPERTY_KEYS) else edit.keys
    tags = None if edit.tags == MASK and masks.hides_property(PROPERTY_TAGS) else edit.tags
    if edit.properties is None:
        return replace(edit, keys=keys, tags=tags)
    kept = {
        name: original.properties[name]
        for name, value in edit.properties.items()
        if value == MASK and name in original.properties and masks.hides_property(name)
    }
    return replace(edit, keys=keys, tags=tags, properties={**edit.properties, **kept})


def _target(topic: Topic, name: str) -> Topic:
    """Return another topic of the cluster. Its rows have no topics that RocketMQ keeps for itself."""
    try:
        target = topic_get(topic.cluster, name)
    except NotFound:
        raise InvalidInput.for_field(
            "topic", say("The cluster has no topic %(name)s.", name=name), "not_found"
        ) from None
    if target.state in (TopicState.CREATING, TopicState.DELETING):
        raise InvalidInput.for_field(
            "topic",
            say("The topic %(name)s is %(state)s.", name=name, state=_STATES[TopicState(target.state)]),
            "not_active",
        )
    return target
