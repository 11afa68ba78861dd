"""The message gateway of the API and the console: send one test message, browse the newest. Bounded in number, size
and time.

It signs with the cluster's control credential, so that a tenant's own credentials need no more rights than the
programs that use them.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin, cluster_producer
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require
from controlplane.topics.bodies import (
    BODY_SHOWN_MAX_BYTES,
    BodyForm,
    Masking,
    NotOfThisForm,
    ShownBody,
    body_shown,
    body_withheld,
)
from controlplane.topics.browse import first_messages, newest_messages
from controlplane.topics.clocks import clock_note
from controlplane.topics.looks import look_require
from controlplane.topics.masking import MASK, Masks, Sight
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.models import Topic
from controlplane.topics.names import topic_name_is_system
from highwater import (
    BrokerError,
    ConnectError,
    HighwaterError,
    Message,
    MessageIllegalError,
    MessageQueue,
    NoRouteError,
    ReceivedMessage,
    SendResult,
    TimeSpentError,
)
from highwater.message_trace import home_topic
from mqwire.codes import ResponseCode
from mqwire.names import PROPERTY_KEYS, PROPERTY_TAGS

BROWSE_LIMIT_MAX = 100
TEST_BODY_MAX_BYTES = 256 * 1024
_PROPERTIES_MAX = 50
_BROWSE_SECONDS_MAX = 5.0
_BROWSE_BYTES_MAX = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TestMessage:
    """What a user may put into a test message. `body` is at most 256 KiB."""

    __test__: ClassVar[bool] = False  # not a test, whatever pytest makes of the name

    body: bytes
    tags: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidInput for what a broker would refuse or what would break the property format."""
        if len(self.body) > TEST_BODY_MAX_BYTES:
            raise InvalidInput.for_field("body", say("At most %(most)s bytes.", most=TEST_BODY_MAX_BYTES), "too_long")
        fields_check(self.tags, self.keys, self.properties)


def fields_check(tags: str, keys: tuple[str, ...], properties: dict[str, str]) -> None:
    """Raise InvalidInput for keys and properties that would break the property format, or are too many."""
    if any(character.isspace() for key in keys for character in key):
        raise InvalidInput.for_field("keys", say("A key holds no blanks."), "invalid")
    if len(properties) > _PROPERTIES_MAX:
        raise InvalidInput.for_field(
            "properties", say("At most %(most)s properties.", most=_PROPERTIES_MAX), "too_many"
        )
    texts = (tags, *keys, *properties, *properties.values())
    if any(separator in text for text in texts for separator in "\x01\x02"):
        raise InvalidInput.for_field(
            "properties", say("The characters U+0001 and U+0002 separate properties."), "invalid"
        )
    if "" in properties or "" in keys:
        raise InvalidInput.for_field("properties", say("Names and keys can't be empty."), "invalid")


@dataclass(frozen=True, slots=True)
class SentMessage:
    """Where a test message went. `status` is RocketMQ's SendStatus."""

    status: str
    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class BrowsedMessage:
    """A message of the browser. `message_id` is the client's (UNIQ_KEY), `offset_message_id` the broker's.

    `masked` names what is hidden from the reader: `body` and properties, with KEYS and TAGS for keys and tags. `clock_note` says
    that its sender's clock is wrong, if it seems so.
    """

    message_id: str
    offset_message_id: str
    broker_name: str
    queue_id: int
    queue_offset: int
    born_at: datetime | None  # None: the program wrote a time that no calendar has
    stored_at: datetime
    born_host: str
    tags: str
    keys: tuple[str, ...]
    properties: dict[str, str]
    reconsume_times: int
    body: ShownBody
    masked: tuple[str, ...] = ()
    clock_note: str = ""


def message_send(*, actor: Actor, topic: Topic, message: TestMessage) -> SentMessage:
    """Send one test message.

    Raises NotAllowed, InvalidInput, Conflict when the cluster isn't running, BrokerRefused, BrokerUnreachable (then
    it may be stored or not).
    """
    actor_require(actor, "message.send", topic.cluster.tenant)
    message.check()
    with cluster_producer(topic.cluster) as producer:
        result = producer.send(
            Message(
                topic.name,
                message.body,
                tags=message.tags or None,
                keys=message.keys,
                properties=message.properties,
            )
        )
    audit_event_record(
        actor=actor,
        action="message.send",
        resource=topic.path,
        tenant_id=topic.cluster.tenant_id,
        details={"message_id": result.message_id, "body_size_bytes": len(message.body)},
    )
    return sent_message(result)


def may_be_stored(error: HighwaterError) -> bool:
    """Whether a message may be stored though its only send ended with `error`.

    A broker answers SYSTEM_ERROR also for what it appended: in a group that elects, for what too few replicas confirmed, and
    when it failed on the way. Its other refusals, and what never left, are surely not stored.
    """
    if isinstance(error, BrokerError):
        return error.response_code == ResponseCode.SYSTEM_ERROR
    return not isinstance(error, MessageIllegalError | NoRouteError | ConnectError | TimeSpentError)


def sent_message(result: SendResult) -> SentMessage:
    """Return where a broker put a message."""
    return SentMessage(
        status=result.status.value,
        message_id=result.message_id,
        offset_message_id=result.offset_message_id,
        broker_name=result.queue.broker_name,
        queue_id=result.queue.queue_id,
        queue_offset=result.queue_offset,
    )


@dataclass(frozen=True, slots=True)
class BrowsedPage:
    """Newest first, or oldest first from a moment on. `complete` is False when reading stopped at its bounds: more may then be
    missing.
    """

    messages: list[BrowsedMessage]
    complete: bool


def messages_browse(
    *,
    actor: Actor,
    topic: Topic,
    limit: int = 20,
    body_limit_bytes: int = 4096,
    since: datetime | None = None,
    body_as: BodyForm = BodyForm.AUTO,
) -> BrowsedPage:
    """Return the newest messages of all queues, or the first that were stored at `since` or later; at most `limit` (<= 100).

    A body that is not of the wanted form is shown as AUTO shows it.

    Reading moves no consumer's offset, takes at most 5 s and 32 MiB. Raises NotAllowed, TooOften, Conflict, BrokerRefused,
    BrokerUnreachable.
    """
    actor_require(actor, "message.browse", topic.cluster.tenant)
    look_require(actor, topic.cluster.tenant)
    sight = sight_of(actor, topic.cluster)
    with cluster_admin(topic.cluster) as admin:
        deadline = time.monotonic() + _BROWSE_SECONDS_MAX

        def pull(queue: MessageQueue, offset: int, count: int) -> list[ReadMessage]:
            # Kept as they are shown: a body may have 4 MiB, of which a few KiB are looked at.
            found = admin.pull(queue, offset, count)
            return [ReadMessage.of(message, sight, body_limit_bytes, body_as) for message in found]

        queues = [(queue.queue, queue.min_offset, queue.max_offset) for queue in admin.topic_stats(topic.name).queues]
        merge = newest_messages
        if since is not None:
            merge = first_messages
            since_ms = max(0, int(since.timestamp() * 1000))
            queues = [
                (queue, max(low, admin.search_offset(queue, since_ms)), high)
                for queue, low, high in queues
                if high > low
            ]
        newest = merge(
            queues,
            pull,
            limit=max(1, min(limit, BROWSE_LIMIT_MAX)),
            budget_bytes=_BROWSE_BYTES_MAX,
            deadline=deadline,
        )
    return BrowsedPage([read.shown for read in newest.messages], newest.complete)


def message_get(
    *,
    actor: Actor,
    topic: Topic,
    broker_name: str,
    queue_id: int,
    queue_offset: int,
    body_limit_bytes: int = BODY_SHOWN_MAX_BYTES,
    body_as: BodyForm = BodyForm.AUTO,
) -> BrowsedMessage:
    """Return the message at one place of one queue, its body as `body_as` says. Reading moves no consumer's offset.

    The place, not an offsetMsgId: that holds an address, which a user could make up, and we would connect to it.
    Raises NotFound when nothing is there (yet, or any more), InvalidInput for a body that is not JSON where that is wanted, or
    that has no schema, and as `messages_browse`.
    """
    message = message_read(
        actor=actor, topic=topic, broker_name=broker_name, queue_id=queue_id, queue_offset=queue_offset
    )
    try:
        return browsed_message(message, sight_of(actor, topic.cluster), body_limit_bytes, body_as)
    except NotOfThisForm as error:
        raise InvalidInput.for_field("body_as", error.sentence, "not_of_this_form") from error


def message_read(*, actor: Actor, topic: Topic, broker_name: str, queue_id: int, queue_offset: int) -> ReceivedMessage:
    """Return the message at one place of one queue, whole and not masked, for what is not shown; raises as `message_get`."""
    actor_require(actor, "message.browse", topic.cluster.tenant)
    nothing = NotFound(say("There is no message at this place."))
    if (
        queue_id >= topic.read_queue_nums
        or queue_offset >= 2**63
        or not topic.cluster.broker_groups.filter(name=broker_name).exists()
    ):
        raise nothing
    with cluster_admin(topic.cluster) as admin:
        # The SDK looks for the nearest message when there is none at this offset.
        messages = admin.pull(MessageQueue(topic.name, broker_name, queue_id), queue_offset, 1)
    if not messages or messages[0].queue_offset != queue_offset:
        raise nothing
    return messages[0]


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message that was read, with what the merge needs to order and to count it."""

    store_timestamp_ms: int
    queue_offset: int
    size_bytes: int
    shown: BrowsedMessage

    @classmethod
    def of(
        cls, message: ReceivedMessage, sight: Sight, body_limit_bytes: int, body_as: BodyForm = BodyForm.AUTO
    ) -> "ReadMessage":
        shown = browsed_where_it_fits(message, sight, body_limit_bytes, body_as)
        return cls(message.store_timestamp_ms, message.queue_offset, len(message.body), shown)


def calendar_moment(timestamp_ms: int) -> datetime | None:
    """Return the moment that a tenant's program wrote, which may be any number; None for what no calendar has.

    Years at the calendar's ends have no time in every zone.
    """
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment if 1 < moment.year < 9999 else None


def masks_of(message: ReceivedMessage, sight: Sight) -> Masks:
    """Return what is hidden of a message: by the topic that it lies in, and the one that it was sent to.

    Of a copy in a topic of RocketMQ's own that doesn't tell where it was sent to, all is hidden that is hidden anywhere.
    """
    return sight.masks_for(_topics_of(message))


def _topics_of(message: ReceivedMessage) -> list[str]:
    lies_in, sent_to = message.queue.topic, home_topic(message)
    return [one for one in (lies_in, sent_to) if one and not topic_name_is_system(one)]


def browsed_message(
    message: ReceivedMessage, sight: Sight, body_limit_bytes: int, body_as: BodyForm = BodyForm.AUTO
) -> BrowsedMessage:
    """Return the message as a reader may see it, its body cut after `body_limit_bytes`; raises NotOfThisForm.

    The only way from a stored message to an answer or a page: what is hidden from the reader is replaced here.
    """
    masks = masks_of(message, sight)
    hidden = {name for name in message.properties if masks.hides_property(name)}
    if masks.hide_bodies and not sight.may_look_into(len(message.body)):
        body = body_withheld(message.body)
    else:
        decode = sight.decoder.for_topics(_topics_of(message))
        body = body_shown(message.body, body_limit_bytes, body_as, masks, decode)
    return BrowsedMessage(
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        broker_name=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        born_at=calendar_moment(message.born_timestamp_ms),
        stored_at=datetime.fromtimestamp(message.store_timestamp_ms / 1000, UTC),
        born_host=message.born_host[0],
        tags=MASK if message.tags and masks.hides_property(PROPERTY_TAGS) else message.tags or "",
        keys=(MASK,) if message.keys and masks.hides_property(PROPERTY_KEYS) else message.keys,
        properties={name: MASK if name in hidden else value for name, value in message.properties.items()},
        reconsume_times=message.reconsume_times,
        body=body,
        masked=(*(["body"] if body.masking is not Masking.NONE else []), *sorted(hidden)),
        clock_note=clock_note(message),
    )


def browsed_where_it_fits(
    message: ReceivedMessage, sight: Sight, body_limit_bytes: int, body_as: BodyForm
) -> BrowsedMessage:
    """Return the message as `browsed_message` does, its body as AUTO shows it where it is not of the form."""
    try:
        return browsed_message(message, sight, body_limit_bytes, body_as)
    except NotOfThisForm:
        return browsed_message(message, sight, body_limit_bytes)


def is_findable(message: ReceivedMessage, text: str, sight: Sight) -> bool:
    """Whether a reader may learn that the message has this key or id: not by a key that is hidden from them."""
    by_id = text in (message.message_id, message.offset_message_id)
    return by_id or not masks_of(message, sight).hides_property(PROPERTY_KEYS)
