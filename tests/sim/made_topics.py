"""The topics that an administrator makes, deletes with messages in them, and makes again; and what must be left of each life."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mqwire.message import StoredMessage, decode_records
from tests.sim.history import Attempt, Copy, History, MadeTopic, Violation

if TYPE_CHECKING:
    from tests.sim.verdict import Content

PREFIX = "topic"
_LOOKED_AT_S = 1.5  # cleanResourceInterval, by a clock that is somewhat slow


def is_made(topic: str) -> bool:
    """Whether it is one of these, and not one that senders and consumers use."""
    return topic.startswith(PREFIX)


def judge_made_topics(history: History, content: Content, now_s: float) -> None:
    """`content` is one replica's: all hold the same. Raises Violation."""
    found: dict[bytes, list[tuple[tuple[str, int, int], StoredMessage]]] = defaultdict(list)
    for where, message in content.items():
        if is_made(where[0]):
            found[message.body].append((where, message))
    known = {attempt.body for attempt in history.attempts if attempt.topic}
    unknown = [body for body in found if body not in known]
    if unknown:
        raise Violation(f"{len(unknown)} messages in topics that were made, and no one sent them there")
    acknowledged: dict[tuple[str, int, int], tuple[Attempt, Copy]] = {}
    for attempt in history.attempts:
        if not attempt.topic:
            continue
        places = [(*where, message.physical_offset) for where, message in found.get(attempt.body, [])]
        if len(places) > attempt.asks:
            raise Violation(f"message {attempt.number} ({attempt.code}) is there {len(places)} times: {places}")
        if places and attempt.code == "SERVICE_NOT_AVAILABLE":
            raise Violation(f"message {attempt.number} was refused, and is there at {places}")
        if attempt.code == "SEND_OK":
            _judge_life(history, attempt, places)
            _judge_number(history, attempt, acknowledged)
    _judge_limits(history, content, now_s)


def _judge_life(history: History, attempt: Attempt, places: list[tuple[str, int, int, int]]) -> None:
    """An acknowledged message is there while its topic lives, and never again after that, unless the deletion may be lost."""
    topic = history.made_topics[attempt.topic]
    copy = attempt.promised
    deletions = [deletion for life, deletion in topic.deletions.items() if life >= attempt.life]
    if deletions and not all(map(history.may_be_lost, deletions)):
        history.counts["messages of deleted topics"] += 1
        if places:
            raise Violation(
                f"message {attempt.number} of life {attempt.life} of {attempt.topic}, which was deleted, is back at {places}"
            )
    elif not deletions and topic.exists:
        history.counts["messages of topics made again"] += topic.lives > 1
        is_there = (attempt.topic, attempt.queue, copy.queue_offset, copy.physical_offset) in places
        if not is_there and not history.may_be_gone(copy) and not _may_have_expired(history, attempt):
            raise Violation(
                f"message {attempt.number} of {attempt.topic} is lost: acknowledged at {copy}, and is at {places}"
            )


def _may_have_expired(history: History, attempt: Attempt) -> bool:
    """By the limit of its topic's life, or of an older one that may be back."""
    topic = history.made_topics[attempt.topic]
    lives = range(_oldest_life(history, topic, attempt.life), attempt.life + 1)
    limits = [topic.limits.get(life, (None, None)) for life in lives]
    return any(_expires_by(history, attempt, kept_bytes, kept_hours) for kept_bytes, kept_hours in limits)


def _oldest_life(history: History, topic: MadeTopic, life: int) -> int:
    """Which life the topic may be in instead. It is back where what ended it is lost; to make it then changes nothing."""
    while life > 1:
        changes = topic.made.get(life), topic.deletions.get(life - 1)
        if not any(change is not None and history.may_be_lost(change) for change in changes):
            break
        life -= 1
    return life


def _expires_by(history: History, attempt: Attempt, kept_bytes: int | None, kept_hours: int | None) -> bool:
    """Whether its topic holds more bytes from there on, or some machine's clock has been as late."""
    copy = attempt.promised
    if kept_bytes is not None:
        copies = [each for one in history.attempts if one.topic == attempt.topic for each in one.copies]
        since = {
            (each.epoch, each.physical_offset): each.end_offset - each.physical_offset
            for each in copies
            if each.physical_offset >= copy.physical_offset
        }
        return sum(since.values()) > kept_bytes
    if kept_hours is not None:
        (stored,) = decode_records(history.contents[copy.epoch, copy.physical_offset])
        return stored.store_timestamp_ms + kept_hours * 3_600_000 <= history.latest_ms
    return False


def bytes_to_keep(history: History, name: str) -> int | None:
    """The limit of a topic that is there; None too where an older life may be back."""
    topic = history.made_topics[name]
    kept_bytes, _ = topic.limits.get(topic.lives, (None, None))
    is_sure = topic.exists and not history.may_be_lost(topic.made[topic.lives])
    return kept_bytes if is_sure and _oldest_life(history, topic, topic.lives) == topic.lives else None


def _judge_limits(history: History, content: Content, now_s: float) -> None:
    """At rest a topic holds what it is to keep, at most; its last message may have come when the clients had been stopped."""
    for name, topic in history.made_topics.items():
        kept_bytes = bytes_to_keep(history, name)
        if kept_bytes is None or now_s - topic.grew_at_s < _LOOKED_AT_S:
            continue
        sizes = [message.size_bytes for where, message in content.items() if where[0] == name]
        history.counts["topics with a limit of bytes"] += 1
        if sum(sizes) > kept_bytes:
            raise Violation(
                f"topic {name} is to keep {kept_bytes} bytes, and holds {len(sizes)} messages of {sum(sizes)} bytes"
            )


def _judge_number(
    history: History, attempt: Attempt, acknowledged: dict[tuple[str, int, int], tuple[Attempt, Copy]]
) -> None:
    """A topic that is made again goes on counting, as long as the log has what the numbers were given to."""
    copy = attempt.promised
    key = (attempt.topic, attempt.queue, copy.queue_offset)
    other = acknowledged.setdefault(key, (attempt, copy))
    if other[0] is not attempt and not (history.may_be_gone(other[1]) or history.may_be_gone(copy)):
        raise Violation(f"messages {other[0].number} and {attempt.number} were both acknowledged at {key}")
