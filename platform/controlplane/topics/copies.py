"""What of a stored message goes into a new one that is sent in its stead. Pure: no rows, sockets or clock."""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say
from controlplane.topics.gateway import fields_check
from highwater import Message, ReceivedMessage
from mqwire import names

# A message that was sent again says of which one it is a copy: that one's offsetMsgId.
RESEND_OF = "RESEND_OF"
# What belongs to the copy that was read, not to the one that is sent.
NOT_SENT_AGAIN = frozenset(
    {
        names.PROPERTY_KEYS,
        names.PROPERTY_TAGS,
        names.PROPERTY_WAIT_STORE_MSG_OK,
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_SHARDING_KEY,
        names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
        names.PROPERTY_RETRY_TOPIC,
        names.PROPERTY_REAL_TOPIC,
        names.PROPERTY_REAL_QUEUE_ID,
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_TRANSACTION_ID,
        names.PROPERTY_PRODUCER_GROUP,
        names.PROPERTY_MIN_OFFSET,
        names.PROPERTY_MAX_OFFSET,
        names.PROPERTY_ORIGIN_MESSAGE_ID,
        names.PROPERTY_RECONSUME_TIME,
        names.PROPERTY_MAX_RECONSUME_TIMES,
        names.PROPERTY_CONSUME_START_TIMESTAMP,
        names.PROPERTY_CRC32,
        names.PROPERTY_DLQ_ORIGIN_TOPIC,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        names.PROPERTY_POP_CK,
        names.PROPERTY_POP_CK_OFFSET,
        names.PROPERTY_FIRST_POP_TIME,
        names.PROPERTY_CLUSTER,
        names.PROPERTY_MSG_REGION,
        names.PROPERTY_TRACE_SWITCH,
        names.PROPERTY_TIMER_DELAY_SEC,
        names.PROPERTY_TIMER_DELAY_MS,
        names.PROPERTY_TIMER_DELIVER_MS,
        names.PROPERTY_TIMER_DEL_UNIQKEY,
        names.PROPERTY_INNER_MULTI_DISPATCH,
        names.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    }
)


@dataclass(frozen=True, slots=True)
class Edit:
    """What a copy has otherwise than its original; None keeps it. `properties` are all of the program's own."""

    topic: str | None = None
    body: bytes | None = None
    tags: str | None = None
    keys: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None

    def check(self) -> None:
        """Raise InvalidInput for what a broker would refuse, and for properties that are not a program's own."""
        if self.body is not None and not self.body:
            raise InvalidInput.for_field("body", say("A message needs a body."), "required")
        fields_check(self.tags or "", self.keys or (), self.properties or {})
        reserved = sorted((NOT_SENT_AGAIN | {RESEND_OF}).intersection(self.properties or {}))
        if reserved:
            raise InvalidInput.for_field(
                "properties", say("RocketMQ sets %(reserved)s itself.", reserved=reserved[0]), "reserved"
            )
        empty = sorted(name for name, value in (self.properties or {}).items() if not value)
        if empty:
            raise InvalidInput.for_field(
                "properties", say("The property %(empty)s has no value.", empty=empty[0]), "invalid"
            )


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a program gave: without those of delays, retries, transactions and the broker's own."""
    return {name: value for name, value in properties.items() if name not in NOT_SENT_AGAIN and value}


def edited_copy(original: ReceivedMessage, topic: str, edit: Edit) -> Message:
    """Return a new message for `topic`: body, flag and sharding key of the original, and what `edit` does not change."""
    kept = own_properties(original.properties) if edit.properties is None else edit.properties
    return Message(
        topic,
        original.body if edit.body is None else edit.body,
        tags=(original.tags if edit.tags is None else edit.tags) or None,
        keys=original.keys if edit.keys is None else edit.keys,
        properties={**kept, RESEND_OF: original.offset_message_id},
        sharding_key=original.sharding_key,
        flag=original.flag,
    )
