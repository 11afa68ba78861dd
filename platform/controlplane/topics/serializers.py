"""Shapes of the topics API. 64-bit offsets are strings: JavaScript loses digits above 2^53. Unknown is null, never
0.
"""

import base64
import binascii
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.clusters.broker_keys import BROKER_KEYS
from controlplane.clusters.serializers import ErrorSerializer
from controlplane.common.strictness import Shape
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES, BodyForm, Masking
from controlplane.topics.gateway import BROWSE_LIMIT_MAX
from controlplane.topics.masking import PATH_MAX_CHARACTERS
from controlplane.topics.masking_rules import VISIBLE_FROM
from controlplane.topics.models import MaskedPart, MessageType, ResendOutcome, TopicSchema, TopicState
from controlplane.topics.names import NAME_PATTERN
from controlplane.topics.protobuf_bodies import MESSAGE_NAME_MAX_CHARACTERS
from controlplane.topics.search import KEY_MAX_LENGTH, SEARCH_LIMIT_MAX
from controlplane.topics.selectors import LiveState
from controlplane.topics.services import LIMIT_MAX, MESSAGE_TYPES, NO_TRANSACTIONS, QUEUES_MAX
from controlplane.topics.tail import FILTER_MAX_CHARACTERS
from controlplane.topics.tail import LIMIT_MAX as TAIL_LIMIT_MAX
from controlplane.topics.tail_cursor import CURSOR_MAX_CHARACTERS

# Base64 of the largest schema, in lines as `base64` writes them.
_SET_MAX_CHARACTERS = 360_000


@extend_schema_field({"type": "string", "contentEncoding": "base64"})
class Base64Field(serializers.CharField):
    """Bytes in base64."""


class QueueOffsetsSerializer(Shape):
    """One queue."""

    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    min_offset = serializers.CharField()
    max_offset = serializers.CharField()
    message_count = serializers.CharField()
    last_update = serializers.DateTimeField(allow_null=True)


class LimitUseSerializer(Shape):
    """A limit of the topic at one broker, by its attribute or its key in broker.conf; `used` is null where that is not reported."""

    broker_name = serializers.CharField()
    name = serializers.CharField()
    used = serializers.CharField(allow_null=True)
    limit = serializers.CharField()


class TopicLiveSerializer(Shape):
    """What the brokers said at `as_of`."""

    state = serializers.ChoiceField(choices=[state.value for state in LiveState])
    message = serializers.CharField(allow_blank=True)
    as_of = serializers.DateTimeField()
    message_count = serializers.CharField(allow_null=True)
    last_update = serializers.DateTimeField(allow_null=True)
    queues = QueueOffsetsSerializer(many=True, allow_null=True)
    limits = LimitUseSerializer(
        many=True, allow_null=True, help_text="null in a list: one topic alone is asked for them"
    )


class TopicSerializer(Shape):
    """A topic as a row."""

    name = serializers.CharField()
    path = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    read_queue_nums = serializers.IntegerField()
    write_queue_nums = serializers.IntegerField()
    perm = serializers.IntegerField()
    message_type = serializers.ChoiceField(choices=MessageType.choices)
    retention_hours = serializers.IntegerField(allow_null=True)
    retention_bytes = serializers.IntegerField(allow_null=True)
    quota_messages_per_second = serializers.IntegerField(allow_null=True)
    quota_bytes_per_second = serializers.IntegerField(allow_null=True)
    quota_stored_bytes = serializers.IntegerField(allow_null=True)
    quota_held_pulls = serializers.IntegerField(allow_null=True)
    state = serializers.ChoiceField(choices=TopicState.choices)
    error = ErrorSerializer(allow_null=True)
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()


class TopicWithLiveSerializer(TopicSerializer):
    """A topic with its live offsets; `live` is null when they were not asked for."""

    live = TopicLiveSerializer(allow_null=True)


_LIMITS = {
    "retention_bytes": "the oldest messages go when the whole topic has more; null: no limit",
    "quota_messages_per_second": "of sends to the whole topic; more are refused with SYSTEM_BUSY; null: the tenant's limits alone",
    "quota_bytes_per_second": "of sends to the whole topic; more are refused with SYSTEM_BUSY; null: the tenant's limits alone",
    "quota_stored_bytes": "sends are refused with SYSTEM_BUSY when the topic stores so much; null: the tenant's limits alone",
    "quota_held_pulls": "pulls that wait for its messages, of all consumers together; more are refused with SYSTEM_BUSY; each"
    " consumer group has one for each queue; null: the tenant's limits alone",
}


def retention_hours_field(**options: Any) -> serializers.IntegerField:
    """Return the field of a topic's hours."""
    words = "messages expire after so many hours, at most the cluster's fileReservedTime; null: as the brokers keep their files"
    most = BROKER_KEYS["fileReservedTime"].most
    return serializers.IntegerField(min_value=1, max_value=most, allow_null=True, help_text=words, **options)


def limit_field(name: str, **options: Any) -> serializers.IntegerField:
    """Return the field of one of a topic's other limits."""
    return serializers.IntegerField(
        min_value=1, max_value=LIMIT_MAX, allow_null=True, help_text=_LIMITS[name], **options
    )


class TopicOptionsSerializer(Shape):
    """What can be chosen for a topic."""

    read_queue_nums = serializers.IntegerField(min_value=1, max_value=QUEUES_MAX, default=8)
    write_queue_nums = serializers.IntegerField(min_value=1, max_value=QUEUES_MAX, default=8)
    perm = serializers.ChoiceField(choices=[2, 4, 6], default=6)
    message_type = serializers.ChoiceField(
        choices=MESSAGE_TYPES,
        default=MessageType.NORMAL,
        help_text="a word for clients: brokers take messages of every type, but transactional ones, which they don't serve yet",
        error_messages={"invalid_choice": f"Use one of {', '.join(MESSAGE_TYPES)}. {NO_TRANSACTIONS}"},
    )
    description = serializers.CharField(max_length=500, default="", allow_blank=True)
    retention_hours = retention_hours_field(default=None)
    retention_bytes = limit_field("retention_bytes", default=None)
    quota_messages_per_second = limit_field("quota_messages_per_second", default=None)
    quota_bytes_per_second = limit_field("quota_bytes_per_second", default=None)
    quota_stored_bytes = limit_field("quota_stored_bytes", default=None)
    quota_held_pulls = limit_field("quota_held_pulls", default=None)


@extend_schema_field({"type": "string", "pattern": f"^{NAME_PATTERN}$"})
class NewTopicName(serializers.CharField):
    """A topic's name that is about to be given; services check it, and say which rule it breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=127, **options)


class TopicCreateSerializer(TopicOptionsSerializer):
    """What a new topic needs."""

    name = NewTopicName()


class TopicUpdateSerializer(Shape):
    """What to change; what is left out stays."""

    read_queue_nums = serializers.IntegerField(min_value=1, max_value=QUEUES_MAX, required=False)
    write_queue_nums = serializers.IntegerField(min_value=1, max_value=QUEUES_MAX, required=False)
    perm = serializers.ChoiceField(choices=[2, 4, 6], required=False)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    retention_hours = retention_hours_field(required=False)
    retention_bytes = limit_field("retention_bytes", required=False)
    quota_messages_per_second = limit_field("quota_messages_per_second", required=False)
    quota_bytes_per_second = limit_field("quota_bytes_per_second", required=False)
    quota_stored_bytes = limit_field("quota_stored_bytes", required=False)
    quota_held_pulls = limit_field("quota_held_pulls", required=False)


class BrowseQuerySerializer(Shape):
    """How much to browse, and from when on."""

    since = serializers.DateTimeField(
        required=False,
        default=None,
        allow_null=True,
        help_text="the first messages that were stored then or later, oldest first; left out: the newest, newest first",
    )
    limit = serializers.IntegerField(min_value=1, max_value=BROWSE_LIMIT_MAX, default=20)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)
    body_as = serializers.ChoiceField(
        choices=[form.value for form in BodyForm],
        default=BodyForm.AUTO.value,
        help_text="a body that is not of this form is shown as auto does",
    )


class ShownBodySerializer(Shape):
    """A body for the eye, with its encoding and whether it was cut."""

    encoding = serializers.ChoiceField(
        choices=["utf-8", "json", "hex", "base64", "protobuf"],
        help_text="protobuf: as the JSON of what the topic's schema makes of it, without fields at their default",
    )
    text = serializers.CharField(allow_blank=True)
    size_bytes = serializers.IntegerField(help_text="rounded up to whole KiB where values may be hidden from your role")
    shown_bytes = serializers.IntegerField(
        help_text="how far `text` goes; where values are masked, or protobuf is cut, its own size"
    )
    truncated = serializers.BooleanField()
    masking = serializers.ChoiceField(
        choices=[one.value for one in Masking],
        help_text="masked: values that rules hide from your role are [masked]; withheld: nothing of it is shown",
    )
    note = serializers.CharField(
        allow_blank=True, help_text="why it does not fit the topic's schema, or how much the schema does not know"
    )


class MessageSerializer(Shape):
    """A message of the browser."""

    message_id = serializers.CharField()
    offset_message_id = serializers.CharField()
    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    queue_offset = serializers.CharField()
    born_at = serializers.DateTimeField(allow_null=True, help_text="as its sender says; null: that is no time")
    stored_at = serializers.DateTimeField()
    born_host = serializers.CharField()
    tags = serializers.CharField(allow_blank=True)
    keys = serializers.ListField(child=serializers.CharField())
    properties = serializers.DictField(child=serializers.CharField())
    reconsume_times = serializers.IntegerField()
    body = ShownBodySerializer()
    masked = serializers.ListField(
        child=serializers.CharField(), help_text="what is hidden from your role: body, and names of properties"
    )
    clock_note = serializers.CharField(
        allow_blank=True,
        help_text="that its sender's clock and the broker's differ, or may; empty: nothing speaks for it",
    )


class MessageQuerySerializer(Shape):
    """How the body is shown."""

    body_as = serializers.ChoiceField(
        choices=[form.value for form in BodyForm],
        default=BodyForm.AUTO.value,
        help_text=(
            "auto: by the topic's schema where it has one that fits, else text where it is UTF-8 without control characters,"
            " else hex"
        ),
    )


class MessagesSerializer(Shape):
    """The newest messages, newest first; with `since` oldest first.

    `complete` is false when reading stopped at its bounds (5 s, 32 MiB).
    """

    results = MessageSerializer(many=True)
    complete = serializers.BooleanField()


class TailQuerySerializer(Shape):
    """Where to go on, and which messages are wanted."""

    cursor = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=CURSOR_MAX_CHARACTERS,
        help_text="the last answer's; left out: no messages, and a cursor that begins now",
    )
    tag = serializers.CharField(required=False, default="", allow_blank=True, max_length=FILTER_MAX_CHARACTERS)
    key = serializers.CharField(required=False, default="", allow_blank=True, max_length=FILTER_MAX_CHARACTERS)
    text = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=FILTER_MAX_CHARACTERS,
        help_text="in what is shown of the body, whatever its capitals",
    )
    limit = serializers.IntegerField(min_value=1, max_value=TAIL_LIMIT_MAX, default=50)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)


class TailSerializer(Shape):
    """What was stored since the cursor, oldest first, and where the next request goes on."""

    results = MessageSerializer(many=True, source="messages")
    cursor = serializers.CharField()
    skipped = serializers.IntegerField(help_text="more came than one request reads; the newest ones are here")
    unwanted = serializers.IntegerField(help_text="looked at, and left out by the filter")


class SearchQuerySerializer(Shape):
    """What to look for: a key or a message id, whole; and between which times it was stored."""

    key = serializers.CharField(max_length=KEY_MAX_LENGTH)
    since = serializers.DateTimeField(required=False, default=None, allow_null=True)
    until = serializers.DateTimeField(required=False, default=None, allow_null=True)
    limit = serializers.IntegerField(min_value=1, max_value=SEARCH_LIMIT_MAX, default=20)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)


class FoundMessagesSerializer(Shape):
    """What was found, newest first. `reasons` says in sentences why nothing was; it is empty when something was."""

    results = MessageSerializer(many=True)
    reasons = serializers.ListField(child=serializers.CharField())


class TestMessageSerializer(Shape):
    """A test message: `body` as text, or `body_base64` as bytes."""

    __test__ = False

    body = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    body_base64 = Base64Field(required=False, allow_blank=True)
    tags = serializers.CharField(max_length=255, default="", allow_blank=True)
    keys = serializers.ListField(child=serializers.CharField(max_length=255), default=list, max_length=50)
    properties = serializers.DictField(
        child=serializers.CharField(max_length=4096, allow_blank=True, trim_whitespace=False), default=dict
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Put the bytes of either form into `bytes`."""
        if ("body" in attrs) == ("body_base64" in attrs):
            raise serializers.ValidationError("Give either body or body_base64.")
        return {**attrs, "bytes": _bytes_of(attrs)}


def _bytes_of(attrs: dict[str, Any]) -> bytes:
    """Return the body that is given as text or as base64. Raises ValidationError."""
    if "body" in attrs:
        try:
            return str(attrs["body"]).encode("utf-8")
        except UnicodeEncodeError:
            raise serializers.ValidationError({"body": "Half of a surrogate pair is not text."}) from None
    try:
        return base64.b64decode(attrs["body_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise serializers.ValidationError({"body_base64": "This is not base64."}) from None


class SentMessageSerializer(Shape):
    """Where a test message went."""

    status = serializers.CharField()
    message_id = serializers.CharField()
    offset_message_id = serializers.CharField()
    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    queue_offset = serializers.CharField()


class MessageResendSerializer(Shape):
    """A new message that a stored one was sent again as. `sending`: its worker died, so it may be stored or not, as `unknown`."""

    created_at = serializers.DateTimeField()
    made_by = serializers.CharField()
    outcome = serializers.ChoiceField(choices=ResendOutcome.choices)
    status = serializers.CharField(allow_blank=True, help_text="RocketMQ's SendStatus")
    message_id = serializers.CharField(allow_blank=True)
    topic = serializers.CharField(source="target_topic")
    broker_name = serializers.CharField(source="new_broker_name", allow_blank=True)
    queue_id = serializers.IntegerField(source="new_queue_id", allow_null=True)
    queue_offset = serializers.CharField(source="new_queue_offset", allow_null=True)


class StoredMessageSerializer(MessageSerializer):
    """A message of the browser, and how it was sent again, newest first, at most 20 times."""

    resends = MessageResendSerializer(many=True)


class ResendSerializer(Shape):
    """What the new message has otherwise; what is left out stays. `properties` replace all of the program's own."""

    topic = serializers.CharField(max_length=127, required=False)
    body = serializers.CharField(required=False, trim_whitespace=False)
    body_base64 = Base64Field(required=False)
    tags = serializers.CharField(max_length=255, required=False, allow_blank=True)
    keys = serializers.ListField(child=serializers.CharField(max_length=255), required=False, max_length=50)
    properties = serializers.DictField(
        child=serializers.CharField(max_length=4096, trim_whitespace=False), required=False
    )
    again = serializers.BooleanField(
        required=False, default=False, help_text="Send it though it was sent again before, which is refused otherwise."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Put the bytes of either form of the body, if there is one, into `bytes`."""
        if "body" in attrs and "body_base64" in attrs:
            raise serializers.ValidationError("Give body or body_base64, not both.")
        return {**attrs, "bytes": _bytes_of(attrs) if "body" in attrs or "body_base64" in attrs else None}


class TopicSchemaSerializer(Shape):
    """By which protobuf message the topic's bodies are decoded where messages are shown."""

    message = serializers.CharField()
    descriptor_set = serializers.SerializerMethodField(help_text="base64 of the FileDescriptorSet")
    size_bytes = serializers.IntegerField()
    sha256 = serializers.CharField()
    made_by = serializers.CharField()
    updated_at = serializers.DateTimeField()

    def get_descriptor_set(self, schema: TopicSchema) -> str:
        """Return it in base64."""
        return base64.b64encode(schema.descriptor_set).decode("ascii")


class TopicSchemaSetSerializer(Shape):
    """A topic's schema, compiled."""

    message = serializers.CharField(
        max_length=MESSAGE_NAME_MAX_CHARACTERS, help_text="the full name of the bodies' message, such as shop.Order"
    )
    descriptor_set = Base64Field(
        max_length=_SET_MAX_CHARACTERS,
        help_text="base64 of what `protoc --include_imports --descriptor_set_out=FILE` wrote, at most 256 KiB",
    )

    def validate_descriptor_set(self, text: str) -> bytes:
        """Return its bytes. Raises ValidationError."""
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise serializers.ValidationError("This is not base64.") from None


class MaskingRuleSerializer(Shape):
    """What of messages is hidden from whom."""

    id = serializers.UUIDField()
    topic = serializers.CharField()
    part = serializers.ChoiceField(choices=MaskedPart.choices)
    pattern = serializers.CharField()
    withholds = serializers.BooleanField()
    visible_from = serializers.ChoiceField(choices=[one.value for one in VISIBLE_FROM])
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()


class MaskingRuleCreateSerializer(Shape):
    """What a new rule hides."""

    topic = serializers.CharField(
        max_length=127, default="*", help_text="a topic's name in any cluster of the tenant; * and ? may be in it"
    )
    part = serializers.ChoiceField(choices=MaskedPart.choices, default=MaskedPart.BODY)
    pattern = serializers.CharField(
        max_length=PATH_MAX_CHARACTERS,
        help_text=(
            "of a body: a path in JSON such as $.card.number, *.email for a member at any depth, or $ for all of it;"
            " of a property: its name, KEYS and TAGS for keys and tags; * and ? may be in it, capitals don't matter"
        ),
    )
    withholds = serializers.BooleanField(
        default=True, help_text="a body that is no JSON object or array is not shown, as no path can be found in it"
    )
    visible_from = serializers.ChoiceField(
        choices=[one.value for one in VISIBLE_FROM], default="admin", help_text="the least role that sees it"
    )
