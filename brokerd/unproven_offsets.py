"""How far a group can be in a queue in which it has committed nothing, in a log that may lack what consumers have read.

Where a leader's log may lack messages that were shown, the next messages get their numbers again. Groups that have committed are
sent back to that (ConsumerOffsetManager.send_back). Of a group without an offset nothing is known: it may begin just now, or have
read what is lost. Surely true are offsets up to where the queue ended then, and those that this leader has answered since: with
messages, or to a client that asked where to begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.store import MessageStore

Key = TypeVar("Key")

# Groups in queues that have read and committed nothing yet; one that is forgotten reads some messages again.
_TOLD_MAX: Final = 100_000


class UnprovenOffsets:
    """One broker's, while it leads. Offsets count messages of one queue."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetManager) -> None:
        self._store = store
        self._offsets = offsets
        self._told: dict[tuple[str, str, int], int] = {}
        self._beginnings: dict[tuple[int, str, int], int] = {}  # (connection, topic, queue) -> the offset last answered

    def begin_leadership(self) -> None:
        """What an earlier leadership answered may have been truncated since."""
        self._told.clear()
        self._beginnings.clear()

    def told_beginning(self, connection: int, topic: str, queue_id: int, offset: int) -> None:
        """A client asked where the queue ends, or where it was at a time: a new group begins there."""
        if self._offsets.losses:
            _put_bounded(self._beginnings, (connection, topic, queue_id), offset)

    def proven(self, topic: str, group: str, queue_id: int, offset: int) -> int:
        """Return `offset`, or how far the group surely is where it may have read what is lost to get there."""
        if not self._concerns(topic, group, queue_id):
            return offset
        lost_from = self._store.queue_offset_at(topic, queue_id, self._offsets.losses[0])
        known = max(lost_from, self._told.get((topic, group, queue_id), 0))
        return offset if offset <= known else lost_from

    def told(self, connection: int, topic: str, group: str, queue_id: int, asked: int, next_offset: int) -> None:
        """The group is sent the messages from the offset that it asked for to the next one."""
        if not self._concerns(topic, group, queue_id):
            return
        begins = self._beginnings.get((connection, topic, queue_id)) == asked
        if begins or self.proven(topic, group, queue_id, asked) == asked:
            key = (topic, group, queue_id)
            _put_bounded(self._told, key, max(next_offset, self._told.get(key, 0)))

    def _concerns(self, topic: str, group: str, queue_id: int) -> bool:
        return bool(self._offsets.losses) and self._offsets.query(topic, group, queue_id) < 0


def _put_bounded(known: dict[Key, int], key: Key, offset: int) -> None:
    if key not in known and len(known) >= _TOLD_MAX:
        del known[next(iter(known))]
    known[key] = offset
