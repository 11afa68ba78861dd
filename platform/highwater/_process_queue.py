"""ProcessQueue: the messages of one queue that have been pulled and not yet finished. Pure, one task at a time.

Invariant: every offset below `commit_offset` is finished; the offset at it, if pulled, is not. Handlers finish in any
order, so the commit offset waits for the slowest one; a crash repeats what was finished after it, and loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from highwater._models import MessageQueue, ReceivedMessage


class ProcessQueue:
    """The window of one queue.

    `dropped`: nothing more is pulled or handed out. `detached`, some time later: what still finishes no longer counts,
    since the queue may have another owner or another offset by then.
    """

    __slots__ = (
        "_order",
        "_pending",
        "_pulled_end",
        "detached",
        "dropped",
        "last_consume_ms",
        "last_pull_ms",
        "locked_until",
        "queue",
        "size_bytes",
    )

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.dropped = False
        self.detached = False
        self.size_bytes = 0
        self.locked_until = 0.0  # of the monotonic clock: the broker's lock for orderly consumers
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._pending: dict[int, ReceivedMessage] = {}
        self._order: deque[int] = deque()  # offsets as pulled, which is ascending; the finished ones leave lazily
        self._pulled_end: int | None = None

    def put(self, messages: Iterable[ReceivedMessage], next_begin_offset: int) -> list[ReceivedMessage]:
        """Take what a pull brought; returns what is new. Everything below `next_begin_offset` counts as pulled."""
        new: list[ReceivedMessage] = []
        for message in messages:
            offset = message.queue_offset
            if self._pulled_end is not None and offset < self._pulled_end:
                continue  # a broker may start a little early, at a batch's first message
            self._pending[offset] = message
            self._order.append(offset)
            self.size_bytes += len(message.body)
            new.append(message)
            self._pulled_end = offset + 1
        if self._pulled_end is None or next_begin_offset > self._pulled_end:
            self._pulled_end = next_begin_offset
        return new

    def finish(self, message: ReceivedMessage) -> int | None:
        """The message is done with; returns the offset that may be committed now, None if the message isn't here."""
        found = self._pending.pop(message.queue_offset, None)
        if found is None:
            return None
        self.size_bytes -= len(found.body)
        return self.commit_offset

    def replace(self, message: ReceivedMessage) -> None:
        """Keep this state of a message that is here (how often it was tried)."""
        if message.queue_offset in self._pending:
            self._pending[message.queue_offset] = message

    @property
    def commit_offset(self) -> int | None:
        """The first offset that is not finished; None before the first pull."""
        order, pending = self._order, self._pending
        while order and order[0] not in pending:
            order.popleft()
        return order[0] if order else self._pulled_end

    @property
    def count(self) -> int:
        """How many messages are not finished."""
        return len(self._pending)

    @property
    def span(self) -> int:
        """The distance between the first and the last offset that are not finished."""
        first = self.commit_offset
        return 0 if not self._pending or first is None else self._order[-1] - first

    def contains(self, message: ReceivedMessage) -> bool:
        """Whether the message is still to be finished here."""
        return message.queue_offset in self._pending

    def first(self) -> ReceivedMessage | None:
        """The oldest message that is not finished, for consumers that keep the order."""
        offset = self.commit_offset
        return None if offset is None else self._pending.get(offset)
