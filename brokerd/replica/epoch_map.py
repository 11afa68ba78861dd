"""The epoch map: which leadership wrote which bytes of the log.

An epoch (Raft's term) is one leadership. Its first record is a message on RMQ_SYS_EPOCH, so the map can be rebuilt from
the log; bytes in front of the first epoch record are epoch 0. Two logs of one group that agree in (epoch, offset) of a
record agree in everything before it (the Raft paper's Log Matching, section 5.3), so comparing maps finds where two
logs diverge without reading them.

    offset  0        4096              9000        12288 (end)
            | epoch 0 | epoch 1         | epoch 4   |
    map     [(1, 4096), (4, 9000)]
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple


class EpochStart(NamedTuple):
    """The first byte that an epoch wrote: its epoch record."""

    epoch: int
    start_offset: int


class Divergence(NamedTuple):
    """What a leader answers to a follower whose log is no prefix of its own.

    `epoch` is the largest of the leader's epochs that is not above the follower's last, `end_offset` where it ends.
    """

    epoch: int
    end_offset: int


class EpochMap:
    """Epochs and their start offsets, both rising.

    Invariant: entries rise strictly in epoch and in start offset. Epoch 0 is implied from the log's first byte.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[EpochStart] = []
        for epoch, start_offset in entries:
            self.begin(epoch, start_offset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochMap) and self._entries == other._entries

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return f"EpochMap({[tuple(entry) for entry in self._entries]})"

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """All epochs, oldest first."""
        return tuple(self._entries)

    @property
    def last_epoch(self) -> int:
        """The epoch of the log's last record."""
        return self._entries[-1].epoch if self._entries else 0

    def begin(self, epoch: int, start_offset: int) -> None:
        """An epoch record is at `start_offset`; raises ValueError when it cannot follow what is there."""
        last = self._entries[-1] if self._entries else EpochStart(0, -1)
        if epoch <= last.epoch or start_offset <= last.start_offset:
            raise ValueError(f"epoch {epoch} at {start_offset} cannot follow epoch {last.epoch} at {last.start_offset}")
        self._entries.append(EpochStart(epoch, start_offset))

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote the byte at `offset`."""
        place = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[place - 1].epoch if place else 0

    def end_of(self, epoch: int, log_end_offset: int) -> int:
        """Where the bytes of all epochs up to `epoch` end."""
        place = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        return self._entries[place].start_offset if place < len(self._entries) else log_end_offset

    def contains(self, epoch: int) -> bool:
        """Whether this log has bytes of `epoch`; epoch 0 counts as contained."""
        if epoch == 0:
            return True
        place = bisect.bisect_left(self._entries, epoch, key=lambda entry: entry.epoch)
        return place < len(self._entries) and self._entries[place].epoch == epoch

    def divergence(self, follower_last_epoch: int, follower_end_offset: int, log_end_offset: int) -> Divergence | None:
        """None when a log that ends at `follower_end_offset` in `follower_last_epoch` is a prefix of this one.

        Otherwise the follower truncates to the smaller of the answer's end offset and its own end of the answer's epoch.
        """
        end_offset = self.end_of(follower_last_epoch, log_end_offset)
        if self.contains(follower_last_epoch) and follower_end_offset <= end_offset:
            return None
        place = bisect.bisect_right(self._entries, follower_last_epoch, key=lambda entry: entry.epoch)
        epoch = self._entries[place - 1].epoch if place else 0
        return Divergence(epoch, end_offset)

    def truncation_offset(self, answer: Divergence, log_end_offset: int) -> int:
        """Where a follower with this map truncates after the leader's `answer`: always where one of its records ends.

        What both have of an epoch is the same from its start on. Without the leader's epoch, the follower drops what is
        above it and asks again: the leader's offset may lie anywhere in its own records.
        """
        own_end_offset = self.end_of(answer.epoch, log_end_offset)
        return min(answer.end_offset, own_end_offset) if self.contains(answer.epoch) else own_end_offset

    def truncate(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`: epochs that began there or later never happened here."""
        place = bisect.bisect_left(self._entries, end_offset, key=lambda entry: entry.start_offset)
        del self._entries[place:]

    def drop_before(self, min_offset: int, *, kept: int = 0) -> None:
        """Retention deleted everything in front of `min_offset`: drop older epochs than that of the byte in front of it, which a
        log that starts over there is told; but keep the last `kept`.
        """
        place = bisect.bisect_left(self._entries, min_offset, key=lambda entry: entry.start_offset) - 1
        del self._entries[: max(0, min(place, len(self._entries) - kept))]
