"""Pulls that found nothing and wait for a message (RocketMQ's PullRequestHoldService), without a task per pull."""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.acl_file import Account
    from brokerd.client_channel import Peer
    from mqwire.command import RemotingCommand
    from mqwire.headers_pull import PullMessageRequestHeader

# Beyond this many, pulls are answered at once: a bound on memory, far above what clients of one broker hold.
MAX_HELD_PULLS: Final = 100_000
# Nor do they keep more than this of what their clients wrote into them.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024
# So many are answered in one turn, about two milliseconds; the others of those that are woken or due wait for the next.
ANSWERED_AT_ONCE: Final = 64
# So many deadlines of pulls that were answered since are left where they are, beside as many as there are held pulls.
_OLD_DEADLINES: Final = 100


@dataclass(slots=True)
class HeldPull:
    """A pull that waits. `accept` is its tag filter, None for all messages; `offset` where it looks next; `account` whose it
    was when it was last checked, None without access control.
    """

    peer: Peer
    request: RemotingCommand
    header: PullMessageRequestHeader
    accept: Callable[[int], bool] | None
    offset: int
    deadline_s: float
    credential: str = ""
    size_bytes: int = 0
    account: Account | None = None


class PullRequestHoldService:
    """Held pulls by queue, and by deadline. Pure: the clock is passed in, answering is the caller's.

    What a closed connection waited for is dropped when its queue or its time comes up.
    """

    __slots__ = (
        "_by_deadline",
        "_by_queue",
        "_held",
        "_next_number",
        "_size_bytes",
        "_woken",
        "by_credential",
        "by_topic",
    )

    def __init__(self) -> None:
        self._next_number = 0
        self._held: dict[int, HeldPull] = {}
        self._by_queue: dict[tuple[str, int], list[int]] = {}
        # A heap of (deadline, number), also of pulls that are held no longer: of those it keeps no more than that.
        self._by_deadline: list[tuple[float, int]] = []
        self._size_bytes = 0
        # Queues that got messages, whose pulls with lower numbers than this are to be answered.
        self._woken: dict[tuple[str, int], int] = {}
        # How many pulls each has here.
        self.by_credential: dict[str, int] = {}
        self.by_topic: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        return len(self._held) >= MAX_HELD_PULLS or self._size_bytes >= MAX_HELD_BYTES

    def queues(self) -> list[tuple[str, int]]:
        """The queues that clients wait for."""
        return list(self._by_queue)

    def hold(self, pull: HeldPull) -> None:
        """Keep `pull` until its queue gets a message or its deadline passes."""
        number = self._next_number
        self._next_number += 1
        self._held[number] = pull
        self._by_queue.setdefault(_queue_of(pull), []).append(number)
        if len(self._by_deadline) > 2 * len(self._held) + _OLD_DEADLINES:
            self._by_deadline = [(held.deadline_s, known) for known, held in self._held.items()]
            heapq.heapify(self._by_deadline)
        else:
            heapq.heappush(self._by_deadline, (pull.deadline_s, number))
        self._size_bytes += pull.size_bytes
        self.by_credential[pull.credential] = self.by_credential.get(pull.credential, 0) + 1
        topic = pull.header.topic
        self.by_topic[topic] = self.by_topic.get(topic, 0) + 1

    def hold_on(self, pull: HeldPull) -> None:
        """Keep a pull that was taken for another reason than a message: where its queue was woken, it still is."""
        self.hold(pull)
        queue = _queue_of(pull)
        if queue in self._woken:
            self._woken[queue] = self._next_number

    def take(self, queues: Iterable[tuple[str, int]]) -> list[HeldPull]:
        """The pulls that wait for one of `queues`; they are held no longer."""
        if not self._by_queue:
            return []
        taken: list[HeldPull] = []
        for queue in queues:
            for number in self._by_queue.pop(queue, ()):
                pull = self._let_go(number)
                if not pull.peer.closed:
                    taken.append(pull)
        return taken

    def wake(self, queues: Iterable[tuple[str, int]]) -> None:
        """These queues got messages: `take_woken` gives the pulls that wait for them now."""
        for queue in queues:
            if queue in self._by_queue:
                self._woken[queue] = self._next_number

    @property
    def has_woken(self) -> bool:
        """Whether `take_woken` may give any."""
        return bool(self._woken)

    def take_woken(self, at_most: int) -> list[HeldPull]:
        """Some of the pulls that were woken; they are held no longer. One that is held again meanwhile is not woken by that."""
        taken: list[HeldPull] = []
        while self._woken and len(taken) < at_most:
            queue, before = next(iter(self._woken.items()))
            del self._woken[queue]
            numbers = self._by_queue.get(queue, [])  # in their order, as they were held
            woken = bisect_left(numbers, before)
            now = numbers[: at_most - len(taken)][:woken]
            if len(now) < woken:  # after the other queues: it may be woken for ever, faster than all are answered
                self._woken[queue] = before
            del numbers[: len(now)]
            if not numbers:
                self._by_queue.pop(queue, None)
            taken += map(self._let_go, now)
        return [pull for pull in taken if not pull.peer.closed]

    def is_any_due(self, now_s: float) -> bool:
        """Whether `expired` may give any."""
        return bool(self._by_deadline) and self._by_deadline[0][0] <= now_s

    def expired(self, now_s: float, at_most: int = sys.maxsize) -> list[HeldPull]:
        """The pulls whose time is over, as many as that; they are held no longer."""
        due: list[HeldPull] = []
        heap = self._by_deadline
        while len(due) < at_most and heap and (heap[0][1] not in self._held or heap[0][0] <= now_s):
            number = heapq.heappop(heap)[1]
            if number not in self._held:
                continue
            pull = self._remove(number)
            if not pull.peer.closed:
                due.append(pull)
        return due

    def of_peers(self, peers: Container[Peer]) -> list[HeldPull]:
        """The pulls that came over one of these connections; they are held no longer."""
        return self.take_where(lambda pull: pull.peer in peers)

    def take_where(self, wanted: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """The pulls that are wanted; they are held no longer. One look at each, however many of them are of one queue."""
        taken = [self._let_go(number) for number, pull in list(self._held.items()) if wanted(pull)]
        for queue in set(map(_queue_of, taken)):
            left = [number for number in self._by_queue[queue] if number in self._held]
            if left:
                self._by_queue[queue] = left
            else:
                del self._by_queue[queue]
        return taken

    def _remove(self, number: int) -> HeldPull:
        pull = self._let_go(number)
        queue = _queue_of(pull)
        numbers = self._by_queue[queue]
        numbers.remove(number)
        if not numbers:
            del self._by_queue[queue]
        return pull

    def _let_go(self, number: int) -> HeldPull:
        pull = self._held.pop(number)
        self._size_bytes -= pull.size_bytes
        for counts, name in ((self.by_credential, pull.credential), (self.by_topic, pull.header.topic)):
            left = counts[name] - 1
            if left:
                counts[name] = left
            else:
                del counts[name]
        return pull


def _queue_of(pull: HeldPull) -> tuple[str, int]:
    return pull.header.topic, pull.header.queue_id
