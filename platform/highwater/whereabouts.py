"""Where is my message? What an id says, where a message stands for each consumer group, and why one was not found.

Pure: no sockets, rows or clock. `highwater.message_trace` asks the brokers; the control plane adds which replicas hold it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from highwater._models import ReceivedMessage
from highwater.sentences import say, say_count
from mqwire.errors import RemoteProtocolError
from mqwire.message import parse_offset_message_id
from mqwire.names import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    RETRY_GROUP_TOPIC_PREFIX,
)
from mqwire.unique_key import key_time_ms, parse_client

_HEX = re.compile(r"[0-9a-fA-F]+")
_ID_DIGITS = (32, 56)
# Keys are seldom hexadecimal and this long; an id that lost or gained a few digits in copying is.
_NEARLY_AN_ID = (24, 64)
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class IdReading:
    """What a text can be read as besides a key. Each reading is None where the text is not of that kind.

    `broker` and `physical_offset` are of an offsetMsgId; `client` and `made_at_ms` of a UNIQ_KEY, whose time is right if it is
    less than a month old. One text can be both. `malformed` says why something that looks like an id is none.
    """

    broker: str | None = None
    physical_offset: int | None = None
    client: str | None = None
    made_at_ms: int | None = None
    malformed: str = ""


def read_id(text: str, now_ms: int) -> IdReading:
    """Read a text as an offsetMsgId, as a UNIQ_KEY, or as neither."""
    if not _HEX.fullmatch(text):
        return IdReading()
    if len(text) not in _ID_DIGITS:
        if _NEARLY_AN_ID[0] <= len(text) <= _NEARLY_AN_ID[1]:
            return IdReading(
                malformed=say(
                    "It has %(count)s hexadecimal digits; message ids have 32, or 56 with IPv6.", count=len(text)
                )
            )
        return IdReading()
    broker = physical_offset = None
    try:
        (host, port), offset = parse_offset_message_id(text)
    except RemoteProtocolError:
        pass
    else:
        if 0 < port < 65536 and offset >= 0:
            broker, physical_offset = f"[{host}]:{port}" if ":" in host else f"{host}:{port}", offset
    return IdReading(broker, physical_offset, parse_client(text), key_time_ms(text, now_ms))


class Standing(StrEnum):
    """Where a message stands for one consumer group."""

    CONSUMED = "consumed"
    WAITING = "waiting"
    RETRYING = "retrying"
    DEAD_LETTER = "dead_letter"
    FILTERED = "filtered"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the brokers report of a group and one message. What is unknown is None.

    `offset` is the group's in the message's queue, `retry_offset` in the queue of `retry`. `scheduled`, `retry` and `dead` are
    the newest copies of the message that wait for their delay, that lie in the retry topic, and among the dead letters;
    `due_ms` is when `scheduled` is delivered. `subscription` is the expression of members that are connected.
    """

    group: str
    offset: int | None = None
    subscription: str | None = None
    is_broadcast: bool = False
    scheduled: ReceivedMessage | None = None
    due_ms: int | None = None
    retry: ReceivedMessage | None = None
    retry_offset: int | None = None
    dead: ReceivedMessage | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """The answer for one group, with its sentence.

    `before` counts the messages that the group gets first, None where that makes no sense. `tries` counts deliveries that failed,
    None when unknown. `next_ms` is when it is delivered again.
    """

    group: str
    standing: Standing
    sentence: str
    offset: int | None = None
    before: int | None = None
    tries: int | None = None
    next_ms: int | None = None


def group_standing(
    message: ReceivedMessage, facts: GroupFacts, now_ms: int, *, tag_is_hidden: bool = False
) -> GroupStanding:
    """Decide where the message stands for the group. The newest copy of it wins over the offset, which only passes on.

    With `tag_is_hidden` the answer for a group that subscribes to some tags does not depend on the message's.
    """
    group, offset = facts.group, facts.offset
    copies = [copy for copy in (facts.scheduled, facts.retry, facts.dead) if copy is not None]
    newest = max(copies, key=lambda copy: (copy.reconsume_times, copy.store_timestamp_ms), default=None)
    if newest is not None and newest is facts.dead:
        tries = facts.dead.reconsume_times
        sentence = say(
            "A dead letter since its delivery failed %(tries)s. The group gets it again only if it is replayed.",
            tries=_times(tries),
        )
        return GroupStanding(group, Standing.DEAD_LETTER, sentence, offset, tries=tries)
    if newest is not None and newest is facts.scheduled and (facts.due_ms is None or facts.due_ms > now_ms):
        tries = newest.reconsume_times
        sentence = say("Its delivery failed %(tries)s. It is delivered again after its delay.", tries=_times(tries))
        return GroupStanding(group, Standing.RETRYING, sentence, offset, tries=tries, next_ms=facts.due_ms)
    if newest is not None:
        tries = newest.reconsume_times
        retry = facts.retry
        if retry is None or retry.reconsume_times < tries:
            sentence = say(
                "Its delivery failed %(tries)s. It is due and on its way to the group's retry topic.",
                tries=_times(tries),
            )
            return GroupStanding(group, Standing.RETRYING, sentence, offset, tries=tries)
        if facts.retry_offset is None:
            sentence = say(
                "Its delivery failed %(tries)s. It lies in the retry topic; how far the group is there is not known.",
                tries=_times(tries),
            )
            return GroupStanding(group, Standing.RETRYING, sentence, offset, tries=tries)
        if retry.queue_offset >= facts.retry_offset:
            before = retry.queue_offset - facts.retry_offset
            sentence = say(
                "Its delivery failed %(tries)s. It waits in the retry topic, %(before)s.",
                tries=_times(tries),
                before=_before(before),
            )
            return GroupStanding(group, Standing.RETRYING, sentence, offset, before=before, tries=tries)
        sentence = say(
            "Consumed when it was delivered again, after its delivery had failed %(tries)s.", tries=_times(tries)
        )
        return GroupStanding(group, Standing.CONSUMED, sentence, offset, tries=tries)
    if facts.problem:
        return GroupStanding(group, Standing.UNKNOWN, facts.problem, offset)
    if facts.is_broadcast:
        sentence = say("The group broadcasts: each member keeps its own offset, which the brokers don't know.")
        return GroupStanding(group, Standing.UNKNOWN, sentence)
    if offset is None:
        sentence = (
            say("The group has no offset in this topic, and no one who is connected subscribes to it.")
            if facts.subscription is None
            else say("It subscribes, but has no offset in this topic yet.")
        )
        return GroupStanding(group, Standing.NOT_STARTED, sentence)
    subscription = facts.subscription or ""
    by_hidden_tag = tag_is_hidden and not takes_all_tags(subscription)
    misses = not by_hidden_tag and not tag_matches(subscription, message.tags)
    if offset > message.queue_offset:
        if by_hidden_tag:
            sentence = say(
                "The group's offset is past it. Whether it was consumed or passed over depends on its tag, which is masked for "
                "you: the group subscribes to “%(subscription)s”.",
                subscription=subscription,
            )
            return GroupStanding(group, Standing.UNKNOWN, sentence, offset)
        if misses:
            sentence = say(
                "Passed over: the group subscribes to “%(subscription)s”, and the tag is %(tag)s.",
                subscription=subscription,
                tag=_tag(message.tags),
            )
            return GroupStanding(group, Standing.FILTERED, sentence, offset)
        sentence = say("Consumed: the group's offset is past it, and no retry or dead letter of it is known.")
        return GroupStanding(group, Standing.CONSUMED, sentence, offset)
    before = message.queue_offset - offset
    sentence = say("Not consumed yet: it waits, %(before)s.", before=_before(before))
    if by_hidden_tag:
        sentence = say(
            "%(waits)s Whether the group will pass it over depends on its tag, which is masked for you: it subscribes to "
            "“%(subscription)s”.",
            waits=sentence,
            subscription=subscription,
        )
    elif misses:
        sentence = say(
            "%(waits)s The group will pass it over: it subscribes to “%(subscription)s”, and the tag is %(tag)s.",
            waits=sentence,
            subscription=subscription,
            tag=_tag(message.tags),
        )
    return GroupStanding(group, Standing.WAITING, sentence, offset, before=before)


def tag_matches(expression: str, tag: str | None) -> bool:
    """Whether a tag expression (`*`, or tags joined by `||`) takes a message of this tag."""
    return takes_all_tags(expression) or tag in {one.strip() for one in expression.split("||")}


def takes_all_tags(expression: str) -> bool:
    """Whether a tag expression takes every message."""
    return expression.strip() in ("", "*")


def is_copy_for(message: ReceivedMessage, group: str) -> bool:
    """Whether a message of the schedule topic waits to go to this group's retry topic."""
    return message.properties.get(PROPERTY_REAL_TOPIC) == RETRY_GROUP_TOPIC_PREFIX + group


def unique_key(message: ReceivedMessage) -> str | None:
    """The client's id; None for a message whose client gave it none."""
    return message.properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)


class Cause(StrEnum):
    """Why a message was not found."""

    MALFORMED_ID = "malformed_id"
    UNKNOWN_TOPIC = "unknown_topic"
    OTHER_CLUSTER = "other_cluster"
    BROKER_SILENT = "broker_silent"
    EXPIRED = "expired"
    NO_SUCH_OFFSET = "no_such_offset"
    NOT_INDEXED = "not_indexed"
    INDEX_BEHIND = "index_behind"
    TOPIC_EMPTY = "topic_empty"
    TOPICS_LEFT_OUT = "topics_left_out"
    NO_SUCH_KEY = "no_such_key"
    KEYS_MASKED = "keys_masked"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason, most likely first, and what to try."""

    cause: Cause
    sentence: str
    attempt: str


@dataclass(frozen=True, slots=True)
class SearchFacts:
    """What a search that found nothing has learnt. `oldest_ms`: the oldest message that is kept in the topics looked at; None
    when unknown or when they are empty. `log_begin` and `log_end`: of the broker that an offsetMsgId names.
    """

    reading: IdReading
    topic: str | None = None
    topics: Sequence[str] = ()
    brokers: Sequence[str] = ()
    names_this_cluster: bool = False
    log_begin: int | None = None
    log_end: int | None = None
    oldest_ms: int | None = None
    message_count: int | None = None
    unindexed: Sequence[str] = ()
    index_lag_bytes: int = 0
    silent: Mapping[str, str] = field(default_factory=dict)
    topics_left_out: int = 0


def why_not_found(facts: SearchFacts, now_ms: int) -> list[Reason]:
    """Return what explains it, most certain first; never empty."""
    found: list[Reason] = []
    reading = facts.reading

    def add(cause: Cause, sentence: str, attempt: str) -> None:
        found.append(Reason(cause, sentence, attempt))

    if facts.topic is not None and facts.topic not in facts.topics:
        near = difflib.get_close_matches(facts.topic, facts.topics, n=3)
        attempt = (
            say("Did you mean %(names)s?", names=" or ".join(near))
            if near
            else say("Leave the topic empty to look in all of them.")
        )
        add(Cause.UNKNOWN_TOPIC, say("This cluster has no topic %(topic)s.", topic=facts.topic), attempt)
    if reading.malformed:
        add(Cause.MALFORMED_ID, reading.malformed, say("Copy the whole id again. It was looked for as a key, too."))
    for name, error in facts.silent.items():
        add(
            Cause.BROKER_SILENT,
            say("%(name)s could not be asked, so the message may be there: %(error)s", name=name, error=error),
            say("Look at the cluster's health, and try again."),
        )
    if reading.broker is not None and facts.names_this_cluster:
        found += _why_not_at_offset(facts)
    expired = (
        reading.made_at_ms is not None
        and facts.oldest_ms is not None
        and not facts.names_this_cluster
        and now_ms - 27 * _DAY_MS < reading.made_at_ms < facts.oldest_ms - 60_000
    )
    if expired:
        add(
            Cause.EXPIRED,
            say(
                "As a client's id (UNIQ_KEY) it was made before the oldest message that is still stored: retention has deleted it."
            ),
            say("Keep messages longer (fileReservedTime), or look in the program's own log."),
        )
    if facts.message_count == 0:
        add(Cause.TOPIC_EMPTY, say("The topics that were looked at hold no messages."), say("Check the topic's name."))
    if facts.unindexed:
        add(
            Cause.NOT_INDEXED,
            say(
                "%(brokers)s indexes no messages (messageIndexEnable=false), so keys and client ids are not known there.",
                brokers=_list(facts.unindexed),
            ),
            say("Look by the broker's id (offsetMsgId), or turn the index on: it covers what comes from then on."),
        )
    if facts.index_lag_bytes:
        add(
            Cause.INDEX_BEHIND,
            say(
                "The index has yet to read the newest %(bytes)s bytes of messages.",
                bytes=facts.index_lag_bytes,
            ),
            say("Try again in a moment."),
        )
    if facts.topics_left_out:
        add(
            Cause.TOPICS_LEFT_OUT,
            say(
                "%(count)s topics were not looked at: there are too many for one search.",
                count=facts.topics_left_out,
            ),
            say("Name the topic."),
        )
    if reading.broker is not None and not facts.names_this_cluster:
        sentence = (
            say(
                "As a broker's id (offsetMsgId) it names %(broker)s, which is no broker of this cluster.",
                broker=reading.broker,
            )
            if reading.client is None
            else say(
                "As a broker's id (offsetMsgId) it names %(broker)s, which is no broker of this cluster; "
                "as a client's id (UNIQ_KEY) it comes from %(client)s.",
                broker=reading.broker,
                client=reading.client,
            )
        )
        add(
            Cause.OTHER_CLUSTER,
            sentence,
            say(
                "Look in the cluster that it was sent to. This one's brokers: %(brokers)s.",
                brokers=_list(facts.brokers) or say("none is known"),
            ),
        )
    if not facts.names_this_cluster:
        add(
            Cause.NO_SUCH_KEY,
            say("No message that was looked at has this key or id. Keys are compared whole, with their capitals."),
            say("Check it for missing characters, and whether the producer's send was answered with SEND_OK."),
        )
    return found


def _why_not_at_offset(facts: SearchFacts) -> list[Reason]:
    offset, begin, end = facts.reading.physical_offset, facts.log_begin, facts.log_end
    name = facts.reading.broker or ""
    assert offset is not None, "it goes with the broker"
    if begin is not None and offset < begin:
        sentence = say(
            "It was stored at offset %(offset)s of %(name)s, whose oldest kept message is at %(begin)s: retention has deleted it.",
            offset=offset,
            name=name,
            begin=begin,
        )
        return [Reason(Cause.EXPIRED, sentence, say("Keep messages longer (fileReservedTime)."))]
    if end is not None and offset >= end:
        sentence = say(
            "It names offset %(offset)s of %(name)s, whose log ends at %(end)s. A failover that lost unreplicated messages "
            "truncates the log; or the id belongs to another cluster that had this address.",
            offset=offset,
            name=name,
            end=end,
        )
        return [
            Reason(Cause.NO_SUCH_OFFSET, sentence, say("Look at the cluster's failovers, and for diverged messages."))
        ]
    sentence = say(
        "No message begins at offset %(offset)s of %(name)s: it was deleted, or a digit of the id is wrong.",
        offset=offset,
        name=name,
    )
    return [Reason(Cause.NO_SUCH_OFFSET, sentence, say("Copy the id again, or look by key."))]


def _times(count: int) -> str:
    return say_count("once", "%(count)s times", count)


def _before(count: int) -> str:
    if count == 0:
        return say("next in its queue")
    return say_count("%(count)s message before it", "%(count)s messages before it", count)


def _tag(tag: str | None) -> str:
    return say("empty") if tag is None else say("“%(tag)s”", tag=tag)


def _list(names: Sequence[str]) -> str:
    first = ", ".join(names[:5])
    return say("%(names)s and %(count)s more", names=first, count=len(names) - 5) if len(names) > 5 else first
