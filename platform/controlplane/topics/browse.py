"""Finds the newest messages over a topic's queues, or the first from a place in each on, reading as little as it can: lazy merges.

Each queue is read backwards in chunks, and a queue is read further only while its oldest message read so far may be
followed by one of the newest `limit` of all, so that a busy queue costs more than the quiet ones. What is read is
bounded in bytes and time. Pure but for the `pull` that is passed in.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

# A broker hands out at most 32 messages at once (maxTransferCountOnMessageInMemory).
_CHUNK_MAX = 32


class Placed(Protocol):
    """A message as far as the merge cares."""

    @property
    def store_timestamp_ms(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


M = TypeVar("M", bound=Placed)
Q = TypeVar("Q")
Pull = Callable[[Q, int, int], list[M]]


@dataclass(frozen=True, slots=True)
class Newest(Generic[M]):
    """Newest first. `complete` is False when the bounds cut the reading short: then older ones may be missing."""

    messages: list[M]
    complete: bool


@dataclass(slots=True)
class _Tail(Generic[Q, M]):
    """One queue, read from `low` to its end. `chunk` doubles with each reading."""

    queue: Q
    minimum: int
    low: int
    chunk: int
    messages: list[M] = field(default_factory=list)

    @property
    def oldest_ms(self) -> float:
        return min((message.store_timestamp_ms for message in self.messages), default=float("inf"))


@dataclass(slots=True)
class _Head(Generic[Q, M]):
    """One queue, read from `next` on."""

    queue: Q
    next: int
    end: int
    messages: deque[M] = field(default_factory=deque)

    def read(self, pull: "Pull[Q, M]", count: int) -> int:
        """Read on; returns the bytes. A queue that gives nothing has ended."""
        messages = [message for message in pull(self.queue, self.next, count) if message.queue_offset < self.end]
        self.next = messages[-1].queue_offset + 1 if messages else self.end
        self.messages.extend(messages)
        return sum(message.size_bytes for message in messages)


def newest_messages(
    queues: Iterable[tuple[Q, int, int]],
    pull: "Pull[Q, M]",
    *,
    limit: int,
    budget_bytes: int,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
) -> Newest[M]:
    """Return the newest `limit` messages of queues given as (queue, min offset, max offset).

    `pull(queue, offset, count)` returns messages from `offset` on, at most `count`, fewer when they are large.
    `deadline` is a time of `clock`. Errors of `pull` are not caught.
    """
    filled = [(queue, low, high) for queue, low, high in queues if high > low]
    first_chunk = max(1, min(_CHUNK_MAX, -(-limit // len(filled)))) if filled else 1
    tails = [_Tail[Q, M](queue, low, high, first_chunk) for queue, low, high in filled]
    read_bytes = 0
    while True:
        top = heapq.nlargest(limit, (message for tail in tails for message in tail.messages), key=_age)
        threshold_ms = top[-1].store_timestamp_ms if len(top) == limit else float("-inf")
        further = [tail for tail in tails if tail.low > tail.minimum and tail.oldest_ms >= threshold_ms]
        if not further:
            return Newest(top, complete=True)
        if read_bytes >= budget_bytes or clock() >= deadline:
            return Newest(top, complete=False)
        # What comes next lies in a queue that is unread, else in the one whose reading ended at the newest message.
        read_bytes += _read_back(max(further, key=lambda tail: tail.oldest_ms), pull)


def first_messages(
    queues: Iterable[tuple[Q, int, int]],
    pull: "Pull[Q, M]",
    *,
    limit: int,
    budget_bytes: int,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
) -> Newest[M]:
    """Return the first `limit` messages, oldest first, of queues given as (queue, first offset, max offset); else as
    `newest_messages`. When the bounds cut the reading short, those that are returned are still the first ones.
    """
    filled = [(queue, low, high) for queue, low, high in queues if high > low]
    chunk = max(1, min(_CHUNK_MAX, -(-limit // len(filled)))) if filled else 1
    heads = [_Head[Q, M](queue, low, high) for queue, low, high in filled]
    found: list[M] = []
    read_bytes = 0
    while len(found) < limit:
        for head in heads:
            if not head.messages and head.next < head.end:
                if read_bytes >= budget_bytes or clock() >= deadline:
                    return Newest(found, complete=False)
                read_bytes += head.read(pull, min(chunk, head.end - head.next))
        waiting = [head for head in heads if head.messages]
        if not waiting:
            break
        first = min(waiting, key=lambda head: _age(head.messages[0]))
        found.append(first.messages.popleft())
    return Newest(found, complete=True)


def _read_back(tail: _Tail[Q, M], pull: "Pull[Q, M]") -> int:
    """Read the chunk below what has been read; returns its bytes."""
    end = tail.low
    start = position = max(tail.minimum, end - tail.chunk)
    read_bytes = 0
    while position < end:
        messages = [message for message in pull(tail.queue, position, end - position) if message.queue_offset < end]
        if not messages:
            break
        tail.messages += messages
        read_bytes += sum(message.size_bytes for message in messages)
        position = messages[-1].queue_offset + 1
    tail.low = start
    tail.chunk = min(_CHUNK_MAX, tail.chunk * 2)
    return read_bytes


def _age(message: Placed) -> tuple[int, int]:
    return message.store_timestamp_ms, message.queue_offset
