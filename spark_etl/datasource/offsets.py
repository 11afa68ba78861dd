"""Offsets of a topic's queues as Spark checkpoints them, and the ranges that a batch reads. Pure.

`Offsets` maps "broker:queue" to the offset of the next message to read. It is always sorted: Spark compares offsets as texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from highwater import MessageQueue

Offsets: TypeAlias = dict[str, int]


def key_of(queue: MessageQueue) -> str:
    """The queue's name in offsets."""
    return f"{queue.broker_name}:{queue.queue_id}"


def queue_of(topic: str, key: str) -> MessageQueue:
    """The queue of a name in offsets."""
    broker_name, _, queue_id = key.rpartition(":")
    return MessageQueue(topic, broker_name, int(queue_id))


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """Messages [begin, end) of one queue: one Spark partition. Below `expected_from` nothing is missed."""

    queue: MessageQueue
    begin: int
    end: int
    expected_from: int


def ordered(offsets: Mapping[str, int]) -> Offsets:
    """The same offsets in the one order."""
    return dict(sorted(offsets.items()))


def limited(start: Mapping[str, int], latest: Mapping[str, int], max_messages: int | None) -> Offsets:
    """How far a micro-batch goes: to the latest offsets, or its fair share of them.

    Each queue gets its part of what waits, so that none starves; a queue that went back (after an unclean promotion) goes back
    whole. Progress is made whenever something waits.
    """
    waiting = {key: end - start.get(key, 0) for key, end in latest.items() if end > start.get(key, 0)}
    total = sum(waiting.values())
    if max_messages is None or total <= max_messages:
        return ordered(latest)
    ends = dict(latest)
    left = max_messages
    # The fullest last: what the others don't use is theirs.
    for count, key in enumerate(sorted(waiting, key=lambda key: (waiting[key], key))):
        share = min(waiting[key], -(-left // (len(waiting) - count)))
        ends[key] = start.get(key, 0) + share
        left -= share
    return ordered(ends)


def ranges(
    topic: str,
    start: Mapping[str, int],
    end: Mapping[str, int],
    *,
    overlap_messages: int = 0,
    max_messages: int | None = None,
) -> list[QueueRange]:
    """What a batch from `start` to `end` reads; a queue that `start` does not know begins at its first message.

    `overlap_messages` are read again in front of each range that is not empty; when the queue went back, from its new end.
    """
    found = []
    for key, last in sorted(end.items()):
        first = start.get(key, 0)
        if first == last:
            continue
        begin = max(0, min(first, last) - overlap_messages)
        found += split(QueueRange(queue_of(topic, key), begin, last, min(first, last)), max_messages)
    return found


def split(whole: QueueRange, max_messages: int | None) -> list[QueueRange]:
    """The range in pieces of at most `max_messages`."""
    if max_messages is None or whole.end - whole.begin <= max_messages:
        return [whole] if whole.begin < whole.end else []
    return [
        QueueRange(whole.queue, begin, min(begin + max_messages, whole.end), max(whole.expected_from, begin))
        for begin in range(whole.begin, whole.end, max_messages)
    ]
