"""Pulls that found nothing and wait for a message (RocketMQ's PullRequestHoldService), without a task per pull."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from mqwire.command import RemotingCommand
    from mqwire.headers_pull import PullMessageRequestHeader

# Beyond this many, pulls are answered at once: a bound on memory, far above what clients of one broker hold.
MAX_HELD_PULLS: Final = 100_000
# Nor do they keep more than this of what their clients wrote into them.
MAX_HELD_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class HeldPull:
    """A pull that waits. `accept` is its tag filter, None for all messages; `offset` where it looks next."""

    peer: Peer
    request: RemotingCommand
    header: PullMessageRequestHeader
    accept: Callable[[int], bool] | None
    offset: int
    deadline_s: float
    answered: bool = False
    credential: str = ""
    size_bytes: int = 0


class PullRequestHoldService:
    """Held pulls by queue, and by deadline. Pure: the clock is passed in, answering is the caller's.

    What a closed connection waited for is dropped when its queue or its time comes up.
    """

    __slots__ = ("_by_deadline", "_by_queue", "_count", "_order", "_size_bytes", "by_credential", "by_topic")

    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, int], list[HeldPull]] = {}
        self._by_deadline: list[tuple[float, int, HeldPull]] = []
        self._order = itertools.count()
        self._count = 0
        self._size_bytes = 0
        # How many pulls each has here.
        self.by_credential: dict[str, int] = {}
        self.by_topic: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        return self._count >= MAX_HELD_PULLS or self._size_bytes >= MAX_HELD_BYTES

    def queues(self) -> list[tuple[str, int]]:
        """The queues that clients wait for."""
        return list(self._by_queue)

    def hold(self, pull: HeldPull) -> None:
        """Keep `pull` until its queue gets a message or its deadline passes."""
        self._by_queue.setdefault((pull.header.topic, pull.header.queue_id), []).append(pull)
        heapq.heappush(self._by_deadline, (pull.deadline_s, next(self._order), pull))
        self._count += 1
        self._size_bytes += pull.size_bytes
        self.by_credential[pull.credential] = self.by_credential.get(pull.credential, 0) + 1
        topic = pull.header.topic
        self.by_topic[topic] = self.by_topic.get(topic, 0) + 1

    def take(self, queues: Iterable[tuple[str, int]]) -> list[HeldPull]:
        """The pulls that wait for one of `queues`; they are held no longer."""
        if not self._by_queue:
            return []
        taken: list[HeldPull] = []
        for queue in queues:
            held = self._by_queue.pop(queue, None)
            if held:
                for pull in held:
                    self._uncount(pull)
                    if not pull.answered and not pull.peer.closed:
                        taken.append(pull)
                    pull.answered = True
        return taken

    def expired(self, now_s: float) -> list[HeldPull]:
        """The pulls whose time is over; they are held no longer."""
        due: list[HeldPull] = []
        heap = self._by_deadline
        while heap and (heap[0][2].answered or heap[0][0] <= now_s):
            pull = heapq.heappop(heap)[2]
            if pull.answered:
                continue
            pull.answered = True
            self._forget(pull)
            if not pull.peer.closed:
                due.append(pull)
        return due

    def of_peers(self, peers: Container[Peer]) -> list[HeldPull]:
        """The pulls that came over one of these connections; they are held no longer."""
        found = [pull for _, _, pull in self._by_deadline if not pull.answered and pull.peer in peers]
        for pull in found:
            pull.answered = True
            self._forget(pull)
        return found

    def _forget(self, pull: HeldPull) -> None:
        queue = (pull.header.topic, pull.header.queue_id)
        held = self._by_queue.get(queue)
        if held is not None and pull in held:
            held.remove(pull)
            self._uncount(pull)
            if not held:
                del self._by_queue[queue]

    def _uncount(self, pull: HeldPull) -> None:
        self._count -= 1
        self._size_bytes -= pull.size_bytes
        for counts, name in ((self.by_credential, pull.credential), (self.by_topic, pull.header.topic)):
            left = counts[name] - 1
            if left:
                counts[name] = left
            else:
                del counts[name]
