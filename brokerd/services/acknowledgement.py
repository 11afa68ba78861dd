"""Answers that wait until what they promise is true.

A send is answered when the log is held up to its record's end (architecture.md section 4, step 3): one flush, or later
one replica's report, releases every waiting answer below it by comparing offsets.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqwire.codes import ResponseCode
from mqwire.connection import Connection

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from brokerd.send_latency import SendLatency

_NO_MAJORITY: Final = (
    "no majority of the replicas confirmed it in time: it may be stored, or lost with an election; send it again"
)


@dataclass(slots=True)
class _Waiting:
    end_offset_bytes: int
    deadline_s: float
    peer: Peer
    frames: list[bytes] = field(default_factory=list)
    since_s: float | None = None


class PendingAcknowledgements:
    """Encoded answers in the order of their records; the clock is passed in. `latency` learns how long those of sends took.

    Invariant: end offsets never fall from the left to the right, since records are appended in order.
    """

    __slots__ = ("_latency", "_timeout_s", "_unproven", "_waiting", "waiting_answers")

    def __init__(self, latency: SendLatency, *, timeout_s: float, unproven: int | None = None) -> None:
        self._latency = latency
        self.set_mode(timeout_s=timeout_s, unproven=unproven)
        self._waiting: deque[_Waiting] = deque()
        self.waiting_answers = 0

    def set_mode(self, *, timeout_s: float, unproven: int | None) -> None:
        """`unproven` is the code for all that is appended and not proven; without it RocketMQ's own say what is missing.

        Those are SendStatus values, which many programs take for stored; a quorum-led group uses an error instead.
        """
        self._timeout_s = timeout_s
        self._unproven = unproven

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, peer: Peer, end_offset_bytes: int, frames: list[bytes], now_s: float, since_s: float | None = None
    ) -> None:
        """Keep SUCCESS answers until the log is held up to `end_offset_bytes`. Sends were taken up at `since_s`."""
        self.waiting_answers += len(frames)
        if self._waiting:  # a change of a table was written before the last message
            end_offset_bytes = max(end_offset_bytes, self._waiting[-1].end_offset_bytes)
        self._waiting.append(_Waiting(end_offset_bytes, now_s + self._timeout_s, peer, frames, since_s))

    def release(self, held_offset_bytes: int, now_s: float) -> list[Peer]:
        """Write every answer that is true by now to its peer; returns the peers to flush."""
        waiting = self._waiting
        peers: dict[int, Peer] = {}
        while waiting and waiting[0].end_offset_bytes <= held_offset_bytes:
            answer = waiting.popleft()
            self.waiting_answers -= len(answer.frames)
            if answer.since_s is not None:
                self._latency.observe(now_s - answer.since_s, len(answer.frames))
            peer = answer.peer
            if not peer.closed:
                peer.write(answer.frames[0] if len(answer.frames) == 1 else b"".join(answer.frames))
                peers[peer.id] = peer
        return list(peers.values())

    def expire(self, now_s: float, held_offset_bytes: int) -> list[Peer]:
        """Answer what has waited too long: appended, not proven.

        FLUSH_DISK_TIMEOUT for what is not held here either, FLUSH_SLAVE_TIMEOUT for what only the slaves lack.
        """
        waiting = self._waiting
        here: list[_Waiting] = []
        nowhere: list[_Waiting] = []
        while waiting and waiting[0].deadline_s <= now_s:
            answer = waiting.popleft()
            self.waiting_answers -= len(answer.frames)
            if answer.since_s is not None:
                self._latency.observe(now_s - answer.since_s, len(answer.frames))
            (here if answer.end_offset_bytes <= held_offset_bytes else nowhere).append(answer)
        if self._unproven is not None:
            return _answer_unproven([*here, *nowhere], self._unproven, _NO_MAJORITY)
        return [
            *_answer_unproven(
                here,
                ResponseCode.FLUSH_SLAVE_TIMEOUT,
                "it is stored on the master, but no slave confirmed it in time",
            ),
            *_answer_unproven(
                nowhere,
                ResponseCode.FLUSH_DISK_TIMEOUT,
                "it is appended, but was not flushed to disk in time",
            ),
        ]

    def give_up(self, cause: str, code: int = ResponseCode.FLUSH_DISK_TIMEOUT) -> list[Peer]:
        """Answer all that waits with `code`: nothing more can be proven, and `cause` says why."""
        expired = list(self._waiting)
        self._waiting.clear()
        self.waiting_answers = 0
        code = code if self._unproven is None else self._unproven
        return _answer_unproven(expired, code, f"it is appended, but cannot be proven safe: {cause}")


def _answer_unproven(expired: list[_Waiting], code: int, remark: str) -> list[Peer]:
    peers: dict[int, Peer] = {}
    for answer in expired:
        if not answer.peer.closed:
            answer.peer.write(recoded(answer.frames, code, remark))
            peers[answer.peer.id] = answer.peer
    return list(peers.values())


def recoded(frames: list[bytes], code: int, remark: str) -> bytes:
    """SUCCESS answers, changed to say `code` and why; all their fields stay."""
    data = b"".join(frames)
    # Our own, and of any length: the answer to a batch names each of its messages in its header.
    connection = Connection(max_frame_bytes=len(data), max_header_bytes=len(data))
    connection.receive_data(data)
    replies = connection.commands()
    for reply in replies:
        reply.code = code
        reply.remark = remark
    return b"".join(reply.encode() for reply in replies)
