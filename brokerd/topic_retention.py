"""How long topics keep their messages: the attributes `reserve.time` and `reserve.bytes`, and what they have expired so far.

All topics share one CommitLog, whose files go by fileReservedTime. A topic that keeps less has an offset in each queue below
which no message is served any more. The leader decides on these offsets (services/topic_retention.py) and writes them into the
log as metadata records, so that they are the same on every replica, and are there after a restart and a failover.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from brokerd.metadata_record import MetadataRecord, Offsets

RESERVE_TIME: Final = "reserve.time"
RESERVE_BYTES: Final = "reserve.bytes"
AS_THE_BROKER: Final = "-1"  # RocketMQ's word for "no limit of the topic's own"
BYTES_MAX: Final = 2**59
_HOUR_MS: Final = 3_600_000


class Retention(NamedTuple):
    """A topic's own limits; None: it has none."""

    time_ms: int | None
    size_bytes: int | None  # of its messages on this broker


def retention_of(attributes: Mapping[str, str]) -> Retention | None:
    """The limits that a topic's attributes set; None when there are none. What an older version took unread counts for nothing."""
    hours, size_bytes = _number(attributes.get(RESERVE_TIME)), _number(attributes.get(RESERVE_BYTES))
    if hours is None and size_bytes is None:
        return None
    return Retention(None if hours is None else hours * _HOUR_MS, size_bytes)


def invalid_reserve_time(text: str) -> str | None:
    """Why this can't be a topic's `reserve.time`, as a remark; None when it can."""
    if text == AS_THE_BROKER or _number(text) is not None:
        return None
    return f"reserve.time cannot be {text[:80]!a}: give whole hours, 1 or more, or -1 for the broker's fileReservedTime"


def invalid_reserve_bytes(text: str) -> str | None:
    """Why this can't be a topic's `reserve.bytes`, as a remark; None when it can."""
    if text == AS_THE_BROKER or (_number(text) or BYTES_MAX + 1) <= BYTES_MAX:
        return None
    return f"reserve.bytes cannot be {text[:80]!a}: give whole bytes, 1 to {BYTES_MAX}, or -1 for no limit"


def kept_too_long(attributes: Mapping[str, str], file_reserved_hours: int) -> str | None:
    """Why this broker can't keep a topic's messages for so long, as a remark; None when it can.

    A file of the CommitLog holds messages of all topics: kept for one, it would keep all the others', and fill the disk.
    """
    hours = _number(attributes.get(RESERVE_TIME))
    if hours is None or hours <= file_reserved_hours:
        return None
    return (
        f"reserve.time is {hours} hours, but this broker deletes its files after fileReservedTime={file_reserved_hours} hours:"
        f" keep the topic for {file_reserved_hours} hours at most, or raise fileReservedTime"
    )


def _number(text: str | None) -> int | None:
    """A number of 1 or more; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and int(text) > 0 else None


class _Store(Protocol):
    def keep_from(self, topic: str, queue_id: int, offset: int) -> None: ...

    def keep_all(self) -> None: ...


class KeptMessages:
    """From which offset on each queue of a topic with limits of its own keeps its messages, as the log says.

    Readers see a change once it is confirmed, so that no failover takes it back.
    """

    def __init__(self, store: _Store) -> None:
        self._store = store
        self._kept_from: Offsets = {}  # topic -> queue -> offset, up to the log's end
        self.unconfirmed: deque[tuple[int, Offsets]] = deque()  # where a record ends, and what it says

    def base(self) -> Offsets:
        """What a base of the log has to hold."""
        return {topic: dict(queues) for topic, queues in self._kept_from.items()}

    def apply(self, record: MetadataRecord, end_offset: int) -> None:
        """Take over a record of the log that ends at `end_offset`; `confirmed` shows it to readers."""
        self._take(record)
        if record.kept_from:
            self.unconfirmed.append((end_offset, dict(record.kept_from)))

    def confirmed(self, confirm_offset: int) -> None:
        """Everything up to there stays."""
        while self.unconfirmed and self.unconfirmed[0][0] <= confirm_offset:
            self._show(self.unconfirmed.popleft()[1])

    def rebuild(self, records: Iterable[MetadataRecord]) -> None:
        """Be what these records, from a base on, say: after a start, a truncation, or the end of a leadership."""
        self._kept_from = {}
        self.unconfirmed.clear()
        for record in records:
            self._take(record)
        self._store.keep_all()
        self._show(self._kept_from)

    def _take(self, record: MetadataRecord) -> None:
        if record.is_base:
            self._kept_from = {topic: dict(queues) for topic, queues in record.kept_from.items()}
            return
        for topic, queues in record.kept_from.items():
            self._kept_from.setdefault(topic, {}).update(queues)
        for topic in record.deleted_topics:
            self._kept_from.pop(topic, None)
            for _, kept_from in self.unconfirmed:
                kept_from.pop(
                    topic, None
                )  # a later topic of that name may count from 0, once the tombstone is forgotten

    def _show(self, kept_from: Offsets) -> None:
        for topic, queues in kept_from.items():
            for queue_id, offset in queues.items():
                self._store.keep_from(topic, queue_id, offset)


class Slice(NamedTuple):
    """Successive messages of one queue."""

    position: int  # of the first, in the CommitLog
    queue_id: int
    end_offset: int  # the queue offset after the last
    size_bytes: int


def oldest_beyond(excess_bytes: int, queues: Mapping[int, Iterator[Slice]]) -> Iterator[dict[int, int]]:
    """Which messages to drop so that a topic has `excess_bytes` less: the oldest of all its queues. A step for each slice read; the
    last one's value is each queue's new first offset. `queues` are their messages, oldest first.
    """
    kept_from: dict[int, int] = {}
    heads: list[Slice] = []
    if excess_bytes <= 0:
        return
    for messages in queues.values():
        first = next(messages, None)
        if first is not None:
            heapq.heappush(heads, first)
        yield kept_from
    while excess_bytes > 0 and heads:
        oldest = heapq.heappop(heads)
        excess_bytes -= oldest.size_bytes
        kept_from[oldest.queue_id] = oldest.end_offset
        following = next(queues[oldest.queue_id], None)
        if following is not None:
            heapq.heappush(heads, following)
        yield kept_from
