"""Finds a message by any id or key, and where it stands for each consumer group: asks brokers, decides by `whereabouts`."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from highwater._admin_models import ConsumerConnections, QueryResult
from highwater._models import MessageQueue, ReceivedMessage
from highwater._sync_admin import Admin
from highwater.errors import BrokerError, HighwaterError, NoRouteError, NotFoundError
from highwater.whereabouts import (
    GroupFacts,
    GroupStanding,
    IdReading,
    Reason,
    SearchFacts,
    group_standing,
    is_copy_for,
    read_id,
    unique_key,
    why_not_found,
)
from mqwire.codes import ResponseCode
from mqwire.message import offset_message_id, pack_host
from mqwire.names import (
    DLQ_GROUP_TOPIC_PREFIX,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    is_system_group,
)

MATCHES_MAX = 20
TOPICS_MAX = 500
GROUPS_MAX = 200
_SECONDS_MAX = 6.0
# An index follows the log by moments; the one of a broker that is always busy is never quite there.
_PAUSES_MAX = 10
_PAUSE_SECONDS = 0.05
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BROADCASTING = "BROADCASTING"


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """What is known of a message, or why nothing is.

    `matches` are all that have the key, newest first, at most 20; `message` is the one that the rest is about, None when none
    was found. `original_is_gone`: only a copy of it is left, in a retry topic or among dead letters. `delayed_until_ms`: it
    waits for its delay, and is in no consumer's queue yet; `is_half`: a transaction that was neither committed nor rolled back.
    """

    text: str
    reading: IdReading
    matches: tuple[ReceivedMessage, ...] = ()
    message: ReceivedMessage | None = None
    original_is_gone: bool = False
    delayed_until_ms: int | None = None
    is_half: bool = False
    groups: tuple[GroupStanding, ...] = ()
    groups_left_out: int = 0
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class _Copies:
    """The newest copies of a message that a group gave back: `scheduled` waits for its delay, `retry` lies in the group's retry
    topic, `dead` among its dead letters. `index_is_whole`: there was no newer one that the index had yet to read.
    """

    scheduled: ReceivedMessage | None = None
    retry: ReceivedMessage | None = None
    dead: ReceivedMessage | None = None
    index_is_whole: bool = True


@dataclass(slots=True)
class _Look:
    """What one search learns on its way."""

    admin: Admin
    deadline: float
    brokers: Mapping[str, str]  # address -> broker name
    masters: Mapping[str, str]  # broker name -> address
    may_match: Callable[[ReceivedMessage], bool]
    hides_tag: Callable[[ReceivedMessage], bool]
    silent: dict[str, str] = field(default_factory=dict)
    unindexed: set[str] = field(default_factory=set)
    index_lag_bytes: int = 0
    left_out: int = 0
    pauses_left: int = _PAUSES_MAX

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def query(self, topic: str, key: str, *, unique: bool = False, limit: int = MATCHES_MAX) -> list[ReceivedMessage]:
        """Messages of a topic by key or client id; a topic without a route has none, a broker that is silent is noted."""
        try:
            result: QueryResult = self.admin.query_messages(topic, key, limit=limit, unique=unique)
        except NoRouteError:
            return []
        except HighwaterError as error:
            self.silent[f"Topic {topic}"] = str(error)
            return []
        self.unindexed.update(result.unindexed)
        self.index_lag_bytes = max(self.index_lag_bytes, result.index_lag_bytes)
        return list(result.messages)

    def matches(self, topic: str, text: str) -> list[ReceivedMessage]:
        """Messages of a topic with what is looked for, but those that may not be found by it."""
        return [message for message in self.query(topic, text) if self.may_match(message)]

    def copies(self, key: str, group: str) -> _Copies:
        """Those of the message with this client id, as they are now."""
        lag_bytes, self.index_lag_bytes = self.index_lag_bytes, 0
        scheduled = self.query(RMQ_SYS_SCHEDULE_TOPIC, key, unique=True, limit=64)
        found = _Copies(
            _newest([one for one in scheduled if is_copy_for(one, group)]),
            _newest(self.query(RETRY_GROUP_TOPIC_PREFIX + group, key, unique=True)),
            _newest(self.query(DLQ_GROUP_TOPIC_PREFIX + group, key, unique=True)),
            index_is_whole=not self.index_lag_bytes,
        )
        self.index_lag_bytes = max(lag_bytes, self.index_lag_bytes)
        return found

    def groups(self) -> list[str]:
        """The consumer groups that the masters know, without RocketMQ's own."""
        try:
            return [name for name in self.admin.group_list() if not is_system_group(name)]
        except HighwaterError as error:
            self.silent["The list of groups"] = str(error)
            return []

    def at_offset(self, reading: IdReading) -> ReceivedMessage | None:
        """The message that an offsetMsgId names: of this cluster's brokers only, at whichever replica leads its group now."""
        if reading.broker is None or reading.physical_offset is None or reading.broker not in self.brokers:
            return None
        name = self.brokers[reading.broker]
        address = self.masters.get(name, reading.broker)
        host, _, port = address.rpartition(":")
        message_id = offset_message_id(pack_host(host.strip("[]"), int(port)), reading.physical_offset)
        try:
            message = self.admin.message_by_id(message_id)
        except NotFoundError:
            return None
        except BrokerError as error:
            if error.response_code == ResponseCode.SYSTEM_ERROR:  # what a broker says of an offset where nothing begins
                return None
            self.silent[name] = str(error)
            return None
        except HighwaterError as error:
            self.silent[name] = str(error)
            return None
        return replace(message, queue=replace(message.queue, broker_name=name))


def trace_message(
    admin: Admin,
    text: str,
    *,
    topic: str | None = None,
    topics: Sequence[str],
    addresses: Mapping[str, str] | None = None,
    log_span: Mapping[str, tuple[int, int]] | None = None,
    may_match: Callable[[ReceivedMessage], bool] = lambda _: True,
    hides_tag: Callable[[ReceivedMessage], bool] = lambda _: False,
) -> MessageTrace:
    """Look for a key, a client's id (UNIQ_KEY) or a broker's id (offsetMsgId) in one topic or in all of `topics`.

    `addresses` maps more addresses of brokers to their names than the name servers know, as of replicas that are down; `log_span`
    maps broker names to where their logs begin and end. Messages that
    have the key or client's id, but that `may_match` refuses, are as if they were not there. Where `hides_tag` says so, no group's
    standing tells a message's tag.

    Takes some seconds at most. Raises HighwaterError when no name server answers; a broker that doesn't is among the reasons.
    """
    now_ms = time.time_ns() // 1_000_000
    brokers = dict(addresses or {})
    masters: dict[str, str] = {}
    for name, data in admin.cluster_info().broker_addr_table.items():
        brokers |= dict.fromkeys(data.broker_addrs.values(), name)
        if data.master_address is not None:
            masters[name] = data.master_address
    look = _Look(admin, time.monotonic() + _SECONDS_MAX, brokers, masters, may_match, hides_tag)
    reading = read_id(text, now_ms)
    searched: list[str] = []
    at_offset = look.at_offset(reading)
    # A broker shows its own records, too, such as what it meters: only messages of these topics are anyone's to see.
    matches = []
    if at_offset is not None and (home := home_topic(at_offset)) in topics and topic in (None, home):
        matches = [at_offset]
    if not matches:
        wanted = list(topics)[:TOPICS_MAX] if topic is None else [topic] if topic in topics else []
        look.left_out = max(0, len(topics) - len(wanted)) if topic is None else 0
        for position, name in enumerate(wanted):
            if look.is_over:
                look.left_out += len(wanted) - position
                break
            searched.append(name)
            matches += look.matches(name, text)
        if not matches:
            # What names their topic is a property, which any program may write: a system topic is no one's to see.
            allowed = set(topics) if topic is None else {topic}.intersection(topics)
            matches = _not_delivered(look, text, allowed) or _copies(look, text, allowed)
    if not matches:
        return MessageTrace(
            text, reading, reasons=tuple(_reasons(look, reading, topic, topics, searched, log_span or {}, now_ms))
        )
    matches.sort(key=lambda message: (message.store_timestamp_ms, message.offset_message_id), reverse=True)
    return _traced(look, text, reading, tuple(matches[:MATCHES_MAX]), now_ms)


def _not_delivered(look: _Look, text: str, allowed: Collection[str]) -> list[ReceivedMessage]:
    """Messages that are in no queue of their topic yet: delayed ones, and halves of transactions."""
    found = []
    for system in (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC):
        for message in look.matches(system, text):
            if message.properties.get(PROPERTY_REAL_TOPIC) in allowed:
                found.append(message)
    return found


def _copies(look: _Look, text: str, allowed: Collection[str]) -> list[ReceivedMessage]:
    """Copies in retry topics and among dead letters, which may outlive the message itself."""
    found: list[ReceivedMessage] = []
    for group in look.groups()[:GROUPS_MAX]:
        for prefix in (DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX):
            if look.is_over:
                return found
            for message in look.matches(prefix + group, text):
                if home_topic(message) in allowed:
                    found.append(message)
    return found


def home_topic(message: ReceivedMessage) -> str:
    """The topic that a message was sent to, be this a copy in a retry topic, among dead letters, or delayed."""
    if is_copy(message):
        for name in (PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_REAL_TOPIC):
            if name in message.properties:
                return message.properties[name]
    return message.topic


def is_copy(message: ReceivedMessage) -> bool:
    """Whether a broker put this message where it lies. Elsewhere a program may have set the same properties."""
    lies_in = message.queue.topic
    return lies_in in (RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC) or lies_in.startswith(
        (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
    )


def _traced(
    look: _Look, text: str, reading: IdReading, matches: tuple[ReceivedMessage, ...], now_ms: int
) -> MessageTrace:
    message = matches[0]
    origin = message.properties.get(PROPERTY_ORIGIN_MESSAGE_ID) if is_copy(message) else None
    is_gone = False
    if origin is not None:  # in a retry topic or among dead letters
        original = look.at_offset(read_id(origin, now_ms))
        if original is not None and original.queue.topic != home_topic(message):
            original = None
        is_gone = original is None
        message = original or message
    trace = MessageTrace(text, reading, matches, message, original_is_gone=is_gone)
    lies_in = message.queue.topic
    if lies_in == RMQ_SYS_TRANS_HALF_TOPIC:
        return replace(trace, is_half=True)
    if lies_in == RMQ_SYS_SCHEDULE_TOPIC and not is_gone:
        delivered = _delivered(look, message)
        if delivered is None:
            return replace(trace, delayed_until_ms=_due_ms(look, message))
        message, trace = delivered, replace(trace, message=delivered)
    groups, left_out = _groups(look, message, now_ms, queue_is_known=not is_gone)
    return replace(trace, groups=tuple(groups), groups_left_out=left_out)


def _delivered(look: _Look, message: ReceivedMessage) -> ReceivedMessage | None:
    """What a delayed message has become in its own topic."""
    key, real = unique_key(message), message.properties.get(PROPERTY_REAL_TOPIC)
    if key is None or real is None:
        return None
    return next(iter(look.query(real, key, unique=True, limit=1)), None)


def _groups(
    look: _Look, message: ReceivedMessage, now_ms: int, *, queue_is_known: bool
) -> tuple[list[GroupStanding], int]:
    admin, topic = look.admin, home_topic(message)
    try:
        with_offsets = set(admin.topic_groups(topic))
    except HighwaterError as error:
        look.silent[f"Topic {topic}"] = str(error)
        with_offsets = set()
    names = sorted({*look.groups(), *(name for name in with_offsets if not is_system_group(name))})
    names.sort(key=lambda name: name not in with_offsets)  # those that have consumed it first
    found: list[GroupStanding] = []
    for position, group in enumerate(names):
        if look.is_over or position >= GROUPS_MAX:
            return found, len(names) - position
        queue = replace(message.queue, topic=topic) if queue_is_known else None
        facts = _group_facts(look, message, queue, group, group in with_offsets)
        if facts is not None:
            found.append(group_standing(message, facts, now_ms, tag_is_hidden=look.hides_tag(message)))
    return found, 0


def _group_facts(
    look: _Look,
    message: ReceivedMessage,
    queue: MessageQueue | None,
    group: str,
    has_offsets: bool,
) -> GroupFacts | None:
    """What is known of a group that has to do with the message's topic; None for one that has not.

    A consumer gives a message back first and commits its offset then. So each offset is read before the copies are looked for:
    the other way round, one that is given back in between would look consumed.
    """
    admin, topic, key = look.admin, home_topic(message), unique_key(message)
    problem = (
        "" if queue is not None else "The message itself has been deleted, so whether the group got it is not known."
    )
    try:
        members: ConsumerConnections = admin.consumer_connections(group)
    except HighwaterError as error:
        members, problem = ConsumerConnections(group), f"Its members are not known: {error}"
    subscription = members.subscriptions.get(topic)
    if not has_offsets and subscription is None:
        return None
    offset = None
    if has_offsets and queue is not None:
        try:
            offset = admin.consumer_offset(group, queue)
        except HighwaterError as error:
            problem = f"Its offset is not known: {error}"
    copies, retry_offset = _Copies(), None
    if key is not None:
        copies, retry_offset = _copies_and_offset(look, key, group)
    return GroupFacts(
        group=group,
        offset=offset,
        subscription=subscription,
        is_broadcast=members.message_model == _BROADCASTING,
        scheduled=copies.scheduled,
        due_ms=None if copies.scheduled is None else _due_ms(look, copies.scheduled),
        retry=copies.retry,
        retry_offset=retry_offset,
        dead=copies.dead,
        problem=problem,
    )


def _copies_and_offset(look: _Look, key: str, group: str) -> tuple[_Copies, int | None]:
    """The newest copies of a message, and how far the group was in the queue of the retry before they were looked for."""
    retry: ReceivedMessage | None = None
    retry_offset: int | None = None
    while True:
        copies = look.copies(key, group)
        if not copies.index_is_whole and look.pauses_left and not look.is_over:
            look.pauses_left -= 1
            time.sleep(_PAUSE_SECONDS)
        elif copies.retry == retry or look.is_over:
            return copies, retry_offset
        else:
            retry = copies.retry
            retry_offset = None if retry is None else _offset_or_none(look.admin, group, retry.queue)


def _newest(copies: Sequence[ReceivedMessage]) -> ReceivedMessage | None:
    return max(copies, key=lambda copy: (copy.reconsume_times, copy.store_timestamp_ms), default=None)


def _offset_or_none(admin: Admin, group: str, queue: MessageQueue) -> int | None:
    try:
        return admin.consumer_offset(group, queue)
    except HighwaterError:  # only this number is missing: unknown
        return None


def _due_ms(look: _Look, message: ReceivedMessage) -> int | None:
    """When a message of the schedule topic is delivered, by its broker's own delay levels; None when they are not known."""
    address = look.masters.get(message.queue.broker_name)
    level = message.properties.get(PROPERTY_DELAY_TIME_LEVEL, str(message.queue.queue_id + 1))
    if address is None or not level.isdigit():
        return None
    try:
        steps = look.admin.broker_config(address).get("messageDelayLevel", "").split()
        step = steps[min(int(level), len(steps)) - 1]
        return message.store_timestamp_ms + int(step[:-1]) * _UNIT_MS[step[-1]]
    except (HighwaterError, LookupError, ValueError):  # unknown, and shown as that
        return None


def _reasons(
    look: _Look,
    reading: IdReading,
    topic: str | None,
    topics: Sequence[str],
    searched: Sequence[str],
    log_span: Mapping[str, tuple[int, int]],
    now_ms: int,
) -> list[Reason]:
    oldest: list[int] = []
    count: int | None = 0
    for name in searched:
        if look.is_over:
            count = None
            break
        try:
            stats = look.admin.topic_stats(name)
            for queue in stats.queues:
                if queue.message_count and (first := look.admin.earliest_store_time_ms(queue.queue)) is not None:
                    oldest.append(first)
        except NoRouteError:
            continue
        except HighwaterError as error:
            look.silent[f"Topic {name}"] = str(error)
            count = None
            continue
        count = None if count is None else count + stats.message_count
    name_of_id = look.brokers.get(reading.broker or "")
    begin, end = log_span.get(name_of_id or "", (None, None))
    facts = SearchFacts(
        reading=reading,
        topic=topic,
        topics=topics,
        brokers=sorted(look.brokers),
        names_this_cluster=name_of_id is not None,
        log_begin=begin,
        log_end=end,
        oldest_ms=min(oldest, default=None),
        message_count=count if searched else None,
        unindexed=sorted(look.unindexed),
        index_lag_bytes=look.index_lag_bytes,
        silent=look.silent,
        topics_left_out=look.left_out,
    )
    return why_not_found(facts, now_ms)
