"""What of a stored message goes into a new one that is sent in its stead. Pure: no rows, sockets or clock."""

from dataclasses import dataclass

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say
from controlplane.topics.gateway import fields_check
from highwater import Message, ReceivedMessage
from highwater.copies import NOT_SENT_AGAIN, own_properties

# A message that was sent again says of which one it is a copy: that one's offsetMsgId.
RESEND_OF = "RESEND_OF"


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
