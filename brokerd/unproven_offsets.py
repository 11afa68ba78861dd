"""How far a group can be in a queue of a log that may lack what consumers have read.

Where a leader's log may lack messages that were shown, the next messages get their numbers again. Groups that have committed are
sent back to that (ConsumerOffsetManager.send_back). Of a group without an offset nothing is known: it may begin just now, or have
read what is lost. Surely true are offsets up to where the queue ended then, and those that this leader has answered since: with
messages, or to a client that asked where to begin.

For a while after a group went back its commits are judged by that, too, also where this replica has led again in between: one that
was sent before may come late, by a connection that its client gave up. Meanwhile no member is told to read from a slave, for how
far it gets there the leader does not see. Where the one that was sent back reads on, as who keeps its offsets itself does, both
last until a member has gone back.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from brokerd.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.store import MessageStore

Key = TypeVar("Key")
Value = TypeVar("Value")
Queue = tuple[str, str, int]  # topic, group, queue id

# Of each table. What is forgotten costs a group that has committed nothing some messages that it reads again.
_ENTRIES_MAX: Final = 10_000
# As long as a connection lasts on which nothing comes (serverChannelMaxIdleTimeSeconds).
_LATE_COMMITS_S: Final = 120.0
_NOT_YET: Final = inf


class UnprovenOffsets:
    """One broker's, while it leads. Offsets count messages of one queue."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsetManager, monotonic_s: Callable[[], float]) -> None:
        self._store = store
        self._offsets = offsets
        self._monotonic_s = monotonic_s
        self._told: dict[Queue, int] = {}
        self._went_back_s: dict[Queue, float] = {}  # or began; _NOT_YET where it is still to go back
        self._was_truncated = False  # the log, since this replica led
        self._beginnings: dict[tuple[int, str, int], int] = {}  # (connection, topic, queue) -> the offset last answered
        self._refused: dict[Queue, int] = {}  # commits, since the group was last sent back
        self._commits: dict[Queue, int] = {}  # of those, however long their first message takes
        self._lost_from: dict[
            tuple[str, int, int], int
        ] = {}  # (topic, queue, loss) -> the queue's first offset after it

    def log_was_truncated(self) -> None:
        """What was told may be gone."""
        self._was_truncated = True

    def begin_leadership(self, *, after_loss: bool) -> None:
        """What an earlier leadership told is remembered: a commit of before it may still come late. But up to what the group has
        committed only where its messages may be gone since, or, `after_loss`, not be those that were read elsewhere.
        """
        for table in (self._beginnings, self._refused, self._commits, self._lost_from):
            table.clear()
        forgets, self._was_truncated = self._was_truncated or after_loss, False
        for queue, told in list(self._told.items()):
            topic, group, queue_id = queue
            committed = self._offsets.query_all(topic, group).get(queue_id)  # without hints: these are to be judged yet
            if forgets if committed is None else not self._may_come_late(queue):
                del self._told[queue]
                self._went_back_s.pop(queue, None)
            elif committed is not None:
                self._told[queue] = committed if forgets else max(told, committed)

    def went_back(self, topic: str, group: str, queue_id: int, offset: int, *, follows: bool) -> None:
        """A reset to there is over: a member `follows` it, or has pulled elsewhere for long, and keeps its offsets itself. Should
        that one commit all the same, it has yet to go back: no commit counts until it has, however long that takes.
        """
        if self._offsets.losses:
            queue = (topic, group, queue_id)
            self._went_back_s.pop(queue, None)
            if not follows:
                _put_bounded(self._went_back_s, queue, _NOT_YET)
            self._tell(queue, offset)

    def told_beginning(self, connection: int, topic: str, queue_id: int, offset: int) -> None:
        """A client asked where the queue ends, or where it was at a time: a new group begins there."""
        if self._offsets.losses and self._store.queue_end_offset(topic, queue_id) is not None:
            _put_bounded(self._beginnings, (connection, topic, queue_id), offset)

    def goes_back_to(
        self, connection: int, topic: str, group: str, queue_id: int, asked: int, *, commits: bool
    ) -> int | None:
        """Where a pull of this offset is to be sent instead; None where it may be answered. Only of who `commits`, or has had a
        commit refused: others keep their offsets themselves, and may have been anywhere. Raises StoreError.
        """
        queue = (topic, group, queue_id)
        if not self._concerns(queue):
            return None
        if self._beginnings.get((connection, topic, queue_id)) == asked:
            self._tell(queue, max(asked, self._told.get(queue, 0)))
            return None
        if not commits and queue not in self._refused:
            return None
        lost_from = self._first_after_loss(topic, queue_id)
        if asked <= max(lost_from, self._told.get(queue, 0)):
            return None
        if self._offsets.has_offset(*queue):  # another member has gone back: this one was away, or has had no turn
            self._refused.pop(queue, None)  # sent once for each: another member may keep its offsets itself
            return max(self._offsets.query(*queue), self._store.min_offset(topic, queue_id))
        self._refused.pop(queue, None)
        self._went_back_s.pop(queue, None)
        self._tell(queue, max(lost_from, self._told.get(queue, 0)))
        return lost_from

    def is_proven(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Whether the group is surely as far; False where the disk can't be read."""
        queue = (topic, group, queue_id)
        if not self._concerns(queue):
            return True
        try:
            return offset <= max(self._first_after_loss(topic, queue_id), self._told.get(queue, 0))
        except StoreError:
            return False

    def refused(self, topic: str, group: str, queue_id: int) -> None:
        """A commit of the group was: its next pull from elsewhere is sent back, whether it says that it commits or not."""
        _put_bounded(self._refused, (topic, group, queue_id), 1)
        _put_bounded(self._commits, (topic, group, queue_id), 1)

    def told(self, topic: str, group: str, queue_id: int, asked: int, next_offset: int) -> None:
        """The group is sent what there is from the offset that it asked for to the next one."""
        queue = (topic, group, queue_id)
        if self._concerns(queue) and self.is_proven(topic, group, queue_id, asked):
            if self._went_back_s.get(queue) == _NOT_YET:
                del self._went_back_s[queue]  # now it has
            self._tell(queue, max(next_offset, self._told.get(queue, 0)))

    def must_see(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether the group must read from this leader, which judges its commits by what it was told."""
        queue = (topic, group, queue_id)
        if not self._offsets.losses:
            return False
        return self._may_come_late(queue) or (queue in self._commits and not self._offsets.has_offset(*queue))

    def _concerns(self, queue: Queue) -> bool:
        return bool(self._offsets.losses) and (not self._offsets.has_offset(*queue) or self._may_come_late(queue))

    def _may_come_late(self, queue: Queue) -> bool:
        """Whether the group went back so lately that what it sent before may still come."""
        return queue in self._told and self._monotonic_s() - self._went_back_s.get(queue, -inf) < _LATE_COMMITS_S

    def _tell(self, queue: Queue, offset: int) -> None:
        _put_bounded(self._told, queue, offset)
        if queue not in self._went_back_s:
            _put_bounded(self._went_back_s, queue, self._monotonic_s())

    def _first_after_loss(self, topic: str, queue_id: int) -> int:
        loss = self._offsets.losses[0]
        known = self._lost_from.get((topic, queue_id, loss))
        if known is not None:
            return max(known, self._store.min_offset(topic, queue_id))  # what has expired is in front of no one
        found = self._store.queue_offset_at(topic, queue_id, loss)
        if found < (
            self._store.queue_end_offset(topic, queue_id) or 0
        ):  # else what comes may have any number from there on
            _put_bounded(self._lost_from, (topic, queue_id, loss), found)
        return found


def _put_bounded(known: dict[Key, Value], key: Key, value: Value) -> None:
    if key not in known and len(known) >= _ENTRIES_MAX:
        del known[next(iter(known))]
    known[key] = value
