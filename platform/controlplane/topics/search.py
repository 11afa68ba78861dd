"""Looking a topic's messages up by key or message id, for the API and the console."""

from dataclasses import dataclass
from datetime import UTC, datetime

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say, say_as
from controlplane.tenants.rules import actor_require
from controlplane.topics.gateway import BrowsedMessage, browsed_message, is_findable
from controlplane.topics.looks import look_require
from controlplane.topics.masking_rules import sight_of
from controlplane.topics.models import Topic
from highwater import Admin, BrokerError, NotFoundError, QueryResult, ReceivedMessage, TopicStats
from mqwire.codes import ResponseCode
from mqwire.errors import RemoteProtocolError
from mqwire.message import parse_offset_message_id
from mqwire.names import PROPERTY_KEYS

SEARCH_LIMIT_MAX = 64  # a broker answers with no more (maxMsgsNumBatch)
KEY_MAX_LENGTH = 255
_END_OF_TIME_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sought:
    """What is looked for: a key, the client's id (UNIQ_KEY) or the broker's (offsetMsgId), and when it was stored."""

    key: str
    since: datetime | None = None
    until: datetime | None = None

    def check(self) -> None:
        """Raise InvalidInput for what no message can have."""
        if not self.key:
            raise InvalidInput.for_field("key", say("Give a key or a message id."), "required")
        if len(self.key) > KEY_MAX_LENGTH:
            raise InvalidInput.for_field("key", say("At most %(most)s characters.", most=KEY_MAX_LENGTH), "too_long")
        if any(character.isspace() for character in self.key):
            raise InvalidInput.for_field("key", say("A key holds no blanks: look for one at a time."), "invalid")
        if not self.key.isprintable():
            raise InvalidInput.for_field("key", say("A key holds no control characters."), "invalid")
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InvalidInput.for_field("until", say("This is before the beginning."), "invalid")


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Newest first. `reasons` says in sentences why nothing was found; it is empty when something was."""

    messages: list[BrowsedMessage]
    reasons: list[str]


def messages_search(
    *, actor: Actor, topic: Topic, sought: Sought, limit: int = 20, body_limit_bytes: int = 4096
) -> FoundMessages:
    """Return the newest messages with this key or id, at most `limit` (<= 64). Reading moves no consumer's offset.

    Raises NotAllowed, InvalidInput, TooOften, Conflict, BrokerRefused, BrokerUnreachable.
    """
    actor_require(actor, "message.browse", topic.cluster.tenant)
    sought.check()
    look_require(actor, topic.cluster.tenant)
    begin_ms = 0 if sought.since is None else int(sought.since.timestamp() * 1000)
    end_ms = _END_OF_TIME_MS if sought.until is None else int(sought.until.timestamp() * 1000)
    limit = max(1, min(limit, SEARCH_LIMIT_MAX))
    sight = sight_of(actor, topic.cluster)
    with cluster_admin(topic.cluster) as admin:
        result = admin.query_messages(topic.name, sought.key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
        found = list(result.messages)
        if not found:
            found = [
                message
                for message in _by_offset_id(admin, topic.name, sought.key)
                if begin_ms <= message.store_timestamp_ms <= end_ms
            ]
        keys_are_hidden = sight.masks_for([topic.name]).hides_property(PROPERTY_KEYS)
        found = [message for message in found if is_findable(message, sought.key, sight)]
        reasons = [] if found else why_nothing(sought, result, admin.topic_stats(topic.name))
        if reasons and keys_are_hidden:
            reasons.insert(0, say("Keys of this topic’s messages are masked for you: look for a message id."))
    return FoundMessages([browsed_message(message, sight, body_limit_bytes) for message in found], reasons)


def _by_offset_id(admin: Admin, topic: str, text: str) -> list[ReceivedMessage]:
    """The message that an offsetMsgId names. It holds an address: only one of this topic's own brokers is asked."""
    try:
        (host, port), _ = parse_offset_message_id(text)
    except RemoteProtocolError:
        return []
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if all(address not in replicas.values() for replicas in admin.topic_route(topic).brokers.values()):
        return []
    try:
        message = admin.message_by_id(text, topic)
    except NotFoundError:
        return []
    except BrokerError as error:
        if error.response_code == ResponseCode.SYSTEM_ERROR:  # what a broker says of an offset where nothing begins
            return []
        raise
    return [message] if message.topic == topic else []


def why_nothing(sought: Sought, result: QueryResult, stats: TopicStats) -> list[str]:
    """Return what may explain it, most likely first."""
    reasons: list[str] = []
    if result.unindexed:
        reasons.append(say("A broker of this cluster indexes no messages (messageIndexEnable=false)."))
    if result.index_lag_bytes:
        reasons.append(say("The index has yet to read the newest messages: try again in a moment."))
    if stats.message_count == 0:
        reasons.append(say("The topic holds no messages."))
    deleted = sum(queue.min_offset for queue in stats.queues)
    if deleted:
        reasons.append(
            say(
                "%(count)s older messages of this topic have been deleted, as messages are after a time.", count=deleted
            )
        )
    if sought.since is not None or sought.until is not None:
        since = say_as("time", "the beginning") if sought.since is None else _shown(sought.since)
        until = say("now") if sought.until is None else _shown(sought.until)
        reasons.append(
            say("Only messages stored between %(since)s and %(until)s were looked at.", since=since, until=until)
        )
    reasons.append(say("Keys and ids are compared whole, with their capitals; a part of one finds nothing."))
    return reasons


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
