"""What the observer knows of a group's offsets: commits and resets, as they were asked for and answered.

A commit raises an offset, a reset sets it to any. In which order two of them were done is known only where one was asked for
after the other was answered: where it is not, either order counts as the one that was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.history import Copy


@dataclass(slots=True, eq=False)
class OffsetChange:
    """A commit or a reset; the moments are numbers in the order of all that happened."""

    offset: int
    asked_at: int
    doubled: bool = False  # asked for twice: the second time it may be done after the first one was answered
    copy: Copy | None = None  # what it survives with, once a broker has answered that it is done
    answered_at: int | None = None  # as done
    over_at: float = inf  # from then on it is not done any more

    def is_over_before(self, moment: int) -> bool:
        return not self.doubled and self.over_at < moment


class GroupOffsets:
    """Of all queues, by their numbers (wire.py)."""

    def __init__(self, may_be_lost: Callable[[Copy], bool]) -> None:
        self._may_be_lost = may_be_lost
        self._moment = 0
        self._commits: dict[int, list[OffsetChange]] = {}
        self._resets: dict[int, list[OffsetChange]] = {}

    # --- what happens

    @property
    def moment(self) -> int:
        """Now."""
        return self._moment

    def _next(self) -> int:
        self._moment += 1
        return self._moment

    def commit_asked(self, queue: int, offset: int) -> OffsetChange:
        change = OffsetChange(offset, self._next())
        self._commits.setdefault(queue, []).append(change)
        return change

    def reset_asked(self, queue: int, offset: int) -> OffsetChange:
        change = OffsetChange(offset, self._next())
        self._resets.setdefault(queue, []).append(change)
        return change

    def done(self, change: OffsetChange, copy: Copy) -> None:
        """A broker answers so."""
        if change.answered_at is None:
            change.copy, change.answered_at = copy, self._next()
            change.over_at = change.answered_at

    def over(self, change: OffsetChange) -> None:
        """A broker answers that it did not do it."""
        change.over_at = min(change.over_at, self._next())

    # --- what must be so

    def least(self, queue: int, asked_at: float = inf) -> int | None:
        """The group resumes there, or at a higher offset; None where nothing that was answered is sure.

        For someone who asked for it at that moment: the broker may have looked before what was answered since was done.
        """
        last, unsure = self._last_reset(queue, asked_at)
        answered = [
            change.offset
            for change in self._commits.get(queue, ())
            if self._is_sure(change, asked_at) and (last is None or change.asked_at > (last.answered_at or 0))
        ]
        if last is not None:
            answered.append(last.offset)
        return min([max(answered), *unsure]) if answered else None

    def most(self, queue: int, asked_at: float = inf) -> float:
        """The group resumes at most where it committed, or was reset to; what was committed before a reset does not count after
        it. `asked_at` as above.
        """
        last, unsure = self._last_reset(queue, asked_at)
        if last is None:
            return max([0, *(change.offset for change in self._commits.get(queue, ())), *unsure])
        later = [change.offset for change in self._commits.get(queue, ()) if not change.is_over_before(last.asked_at)]
        return max([last.offset, *later, *unsure])

    def may_be_skipped(self, queue: int, offset: int) -> bool:
        """Whether a reset passed over that message."""
        return any(
            self._committed_before(queue, reset) <= offset < reset.offset for reset in self._standing_resets(queue)
        )

    def _committed_before(self, queue: int, reset: OffsetChange) -> int:
        """What lies below was consumed, and is what lies there now: of a commit that may be lost other messages may have taken
        the numbers.
        """
        before = (change for change in self._commits.get(queue, ()) if change.asked_at < reset.asked_at)
        return max((change.offset for change in before if self._is_sure(change, inf)), default=0)

    def highest(self, queue: int) -> int:
        """All below it was consumed, or passed over by a reset."""
        return max((change.offset for change in self._commits.get(queue, ())), default=0)

    def was_reset_to(self, queue: int, offset: int) -> bool:
        return any(reset.offset == offset for reset in self._standing_resets(queue))

    def answered(self) -> list[OffsetChange]:
        """All that brokers answered as done."""
        every = [*self._commits.values(), *self._resets.values()]
        return [change for changes in every for change in changes if change.copy is not None]

    def queues(self) -> list[int]:
        return sorted(self._commits.keys() | self._resets.keys())

    def _is_sure(self, change: OffsetChange, asked_at: float) -> bool:
        if change.copy is None or change.answered_at is None or change.answered_at > asked_at:
            return False
        return not self._may_be_lost(change.copy)

    def _standing_resets(self, queue: int) -> list[OffsetChange]:
        """Those that no broker refused."""
        return [reset for reset in self._resets.get(queue, ()) if reset.copy is not None or reset.over_at == inf]

    def _last_reset(self, queue: int, asked_at: float) -> tuple[OffsetChange | None, list[int]]:
        """The last one that is done for sure, and where others go that may be done after it, or be done at all."""
        resets = self._standing_resets(queue)
        sure = [reset for reset in resets if self._is_sure(reset, asked_at)]
        last = max(sure, key=lambda reset: reset.answered_at or 0, default=None)
        unsure = [
            reset.offset
            for reset in resets
            if reset is not last and (reset not in sure or last is None or (reset.answered_at or 0) > last.asked_at)
        ]
        return last, unsure
