"""Messages that a failover cut from a replica's log: what the group has of each now, and how to send one again.

`compare` asks the brokers; the rest is pure: no sockets, rows or clock.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from highwater._models import Message, MessageQueue, ReceivedMessage
from highwater._sync_admin import Admin
from highwater.copies import own_properties
from highwater.errors import NoRouteError
from highwater.sentences import Sentence, say
from highwater.whereabouts import unique_key
from mqwire import names

# A message that was sent again says of which cut message it takes the place: group/replica/file/position.
DIVERGED_OF = "DIVERGED_OF"
_INTERNAL = frozenset(
    {
        names.RMQ_SYS_EPOCH,
        names.RMQ_SYS_METERING,
        names.RMQ_SYS_METADATA,
        names.RMQ_SYS_PROBE,
        names.RMQ_SYS_TRANS_HALF_TOPIC,
        names.RMQ_SYS_TRANS_OP_HALF_TOPIC,
    }
)
# TRANSACTION_PREPARED_TYPE and TRANSACTION_ROLLBACK_TYPE have this bit of sysFlag, and no other type has.
_NOT_CONSUMABLE = 0x4
_SAME_ID_MAX = 16


class Fate(StrEnum):
    """What a group has of a message that was cut from a replica's log."""

    PRESENT = "present"  # the same message, at the same place
    MOVED = "moved"  # the same message, at another place
    REPLACED = "replaced"  # another message is at its place, and its id is not found
    MISSING = "missing"  # nothing is at its place, and its id is not found
    TOO_OLD = "too_old"  # retention has deleted the place meanwhile, and its id is not found
    NO_TOPIC = "no_topic"
    INTERNAL = "internal"  # a record of the broker's own, or what a transaction never committed


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of a message; `found` is where the group has it now: None where it has not."""

    fate: Fate
    found: ReceivedMessage | None = None


def compare(admin: Admin, group: str, message: ReceivedMessage) -> Comparison:
    """Look for a cut message at its place in the group, and for its id in its topic; raises HighwaterError when no one answers.

    A message that was stored a moment ago may not be found by its id yet.
    """
    if is_internal(message):
        return Comparison(Fate.INTERNAL)
    lies_in = message.queue.topic
    try:
        near = admin.pull(MessageQueue(lies_in, group, message.queue.queue_id), message.queue_offset, 1)
        there = next((one for one in near if one.queue_offset == message.queue_offset), None)
        if there is not None and is_same(message, there):
            return Comparison(Fate.PRESENT, there)
        key, home = unique_key(message), topic_of(message)
        if key is not None:
            for found in admin.query_messages(home, key, unique=True, limit=_SAME_ID_MAX).messages:
                if is_same(message, found):
                    return Comparison(Fate.MOVED, found)
    except NoRouteError:
        return Comparison(Fate.NO_TOPIC)
    if there is not None:
        return Comparison(Fate.REPLACED)
    return Comparison(Fate.TOO_OLD if near and near[0].queue_offset > message.queue_offset else Fate.MISSING)


def is_internal(message: ReceivedMessage) -> bool:
    """Whether no consumer could ever have read it: a broker's own record, or part of a transaction that was not committed."""
    return message.queue.topic in _INTERNAL or bool(message.sys_flag & _NOT_CONSUMABLE)


def is_same(one: ReceivedMessage, other: ReceivedMessage) -> bool:
    """Whether both are one message of a program: the same id and body; without an id the same time of birth, keys and body."""
    key, other_key = unique_key(one), unique_key(other)
    if key is not None or other_key is not None:
        return key == other_key and one.body == other.body
    return (one.born_timestamp_ms, one.keys, one.body) == (other.born_timestamp_ms, other.keys, other.body)


def topic_of(message: ReceivedMessage) -> str:
    """The topic that it is for: of a message that waits for its delay, the one that it goes to then."""
    lies_in = message.queue.topic
    if lies_in == names.RMQ_SYS_SCHEDULE_TOPIC:
        return message.properties.get(names.PROPERTY_REAL_TOPIC) or lies_in
    return lies_in


def message_again(message: ReceivedMessage, origin: str, topics: Collection[str] | None = None) -> Message | Sentence:
    """Return the message to send for a cut one, or why there is none. `topics`: those that may be sent to, None for any.

    It keeps its id (UNIQ_KEY), body, tag, keys, sharding key and the program's own properties. A delay is over. What waited for
    a retry goes to its group's retry topic, with all its tries again.
    """
    if is_internal(message):
        return say("It is a record of the broker's own, or part of a transaction that was not committed.")
    topic = topic_of(message)
    properties = own_properties(message.properties) | {DIVERGED_OF: origin}
    if topic.startswith(names.RETRY_GROUP_TOPIC_PREFIX):
        for name in (names.PROPERTY_RETRY_TOPIC, names.PROPERTY_ORIGIN_MESSAGE_ID):
            if value := message.properties.get(name):
                properties[name] = value
    elif topic.startswith(names.DLQ_GROUP_TOPIC_PREFIX):
        return say("It is a dead letter: no consumer reads it where it was.")
    elif topics is not None and topic not in topics:
        return say("The cluster has no topic %(topic)s.", topic=topic)
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties=properties,
        sharding_key=message.sharding_key,
        flag=message.flag,
        message_id=unique_key(message),
    )
