"""What a replay of dead letters sends, and when it stops. Pure: no rows, sockets or clock."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controlplane.common.sentences import say
from controlplane.consumers.models import ReplayTarget
from controlplane.topics.names import topic_name_is_system
from highwater import Message, ReceivedMessage
from highwater.copies import own_properties
from mqwire import names

# A replayed message says which dead letter it was, so that both can be distinguished later.
REPLAY_OF = "REPLAY_OF"


@dataclass(frozen=True, slots=True)
class Place:
    """A message of a dead-letter topic."""

    broker_name: str
    queue_id: int
    offset: int


def ranges_of(places: Iterable[Place]) -> list[dict[str, object]]:
    """Return the places as ranges, each once, in the order of the queues."""
    ranges: list[dict[str, object]] = []
    for place in sorted(set(places), key=lambda one: (one.broker_name, one.queue_id, one.offset)):
        last = ranges[-1] if ranges else None
        if (
            last is not None
            and (last["broker_name"], last["queue_id"], last["end"]) == (place.broker_name, place.queue_id, place.offset)
        ):  # fmt: skip
            last["end"] = place.offset + 1
        else:
            ranges.append(
                {
                    "broker_name": place.broker_name,
                    "queue_id": place.queue_id,
                    "next": place.offset,
                    "end": place.offset + 1,
                }
            )
    return ranges


def original_topic(message: ReceivedMessage) -> str:
    """The topic that a dead letter was first sent to; empty when it doesn't say."""
    properties = message.properties
    return properties.get(names.PROPERTY_DLQ_ORIGIN_TOPIC) or properties.get(names.PROPERTY_RETRY_TOPIC) or ""


def message_again(message: ReceivedMessage, target: ReplayTarget, group: str, topics: Collection[str]) -> Message | str:
    """Return the message to send for a dead letter, or why it can't be sent. `topics` are those of the cluster's own rows.

    What names its topic is a property, which any program may write; it is sent with a credential that may send anywhere.

    Body, tag, keys, sharding key and the program's own properties stay; it gets a new UNIQ_KEY, and all its tries again.
    """
    topic = original_topic(message)
    if not topic:
        return say("It doesn't say which topic it was sent to.")
    if topic_name_is_system(topic):
        return say("%(topic)s is a name that RocketMQ keeps for itself: nothing is sent there.", topic=topic)
    if target == ReplayTarget.ORIGINAL_TOPIC and topic not in topics:
        return say("The cluster has no topic %(topic)s.", topic=topic)
    properties = own_properties(message.properties)
    properties[REPLAY_OF] = message.offset_message_id
    if target == ReplayTarget.RETRY_TOPIC:
        # Consumers see a retry under the topic that this names.
        properties[names.PROPERTY_RETRY_TOPIC] = topic
        origin = message.properties.get(names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)
        if origin:
            properties[names.PROPERTY_ORIGIN_MESSAGE_ID] = origin
    return Message(
        names.RETRY_GROUP_TOPIC_PREFIX + group if target == ReplayTarget.RETRY_TOPIC else topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=properties,
        sharding_key=message.sharding_key,
        flag=message.flag,
    )


def stop_reason(
    *, failures: int, stop_after_failures: int, new_dead: int | None, stop_after_new_dead: int
) -> str | None:
    """Return why a replay must stop, None while it may go on. 0 as a limit: never. `new_dead` is None when unknown."""
    if stop_after_failures and failures >= stop_after_failures:
        return say(
            "%(failures)s messages failed, or have an unknown outcome: the rule is to stop after %(stop_after_failures)s.",
            failures=failures,
            stop_after_failures=stop_after_failures,
        )
    if stop_after_new_dead and new_dead is not None and new_dead >= stop_after_new_dead:
        return say(
            "%(new_dead)s new dead letters came since it began: the rule is to stop after %(stop_after_new_dead)s.",
            new_dead=new_dead,
            stop_after_new_dead=stop_after_new_dead,
        )
    return None
