"""What a group's offset may be after commits and resets, as the observer judges it."""

from __future__ import annotations

import pytest

from tests.sim.group_offsets import GroupOffsets, OffsetChange
from tests.sim.history import Copy

KEPT = Copy("r0", 1, 0, 10, -1)
LOST = Copy("r0", 1, 10, 20, -1)
QUEUE = 3


@pytest.fixture
def offsets() -> GroupOffsets:
    return GroupOffsets(lambda copy: copy is LOST)


def committed(offsets: GroupOffsets, offset: int, copy: Copy = KEPT) -> OffsetChange:
    change = offsets.commit_asked(QUEUE, offset)
    offsets.done(change, copy)
    return change


def reset(offsets: GroupOffsets, offset: int, copy: Copy = KEPT) -> OffsetChange:
    change = offsets.reset_asked(QUEUE, offset)
    offsets.done(change, copy)
    return change


def bounds(offsets: GroupOffsets) -> tuple[int | None, float]:
    return offsets.least(QUEUE), offsets.most(QUEUE)


def test_an_answered_commit_is_the_least(offsets: GroupOffsets) -> None:
    committed(offsets, 7)
    committed(offsets, 5)
    offsets.commit_asked(QUEUE, 9)
    assert bounds(offsets) == (7, 9)


def test_an_answered_reset_is_what_the_offset_is(offsets: GroupOffsets) -> None:
    committed(offsets, 7)
    reset(offsets, 4)
    assert bounds(offsets) == (4, 4)


def test_a_commit_after_a_reset_raises_the_offset_again(offsets: GroupOffsets) -> None:
    reset(offsets, 4)
    committed(offsets, 6)
    offsets.commit_asked(QUEUE, 8)
    assert bounds(offsets) == (6, 8)


def test_a_commit_that_was_asked_for_before_a_reset_and_is_not_over_may_count_after_it(offsets: GroupOffsets) -> None:
    commit = offsets.commit_asked(QUEUE, 7)
    reset(offsets, 4)
    assert bounds(offsets) == (4, 7)
    offsets.done(commit, KEPT)
    assert bounds(offsets) == (4, 7)


def test_a_commit_that_was_refused_before_a_reset_does_not_count_after_it(offsets: GroupOffsets) -> None:
    offsets.over(offsets.commit_asked(QUEUE, 7))
    reset(offsets, 4)
    assert bounds(offsets) == (4, 4)


def test_a_commit_that_is_asked_for_twice_may_count_after_a_reset(offsets: GroupOffsets) -> None:
    committed(offsets, 7).doubled = True
    reset(offsets, 4)
    assert bounds(offsets) == (4, 7)


def test_a_reset_without_an_answer_may_be_done_at_any_time(offsets: GroupOffsets) -> None:
    committed(offsets, 7)
    unanswered = offsets.reset_asked(QUEUE, 4)
    committed(offsets, 9)
    assert bounds(offsets) == (4, 9)
    offsets.over(unanswered)
    assert bounds(offsets) == (9, 9)


def test_a_reset_that_may_be_lost_is_one_without_an_answer(offsets: GroupOffsets) -> None:
    committed(offsets, 7)
    reset(offsets, 4, LOST)
    assert bounds(offsets) == (4, 7)


def test_the_later_of_two_resets_counts(offsets: GroupOffsets) -> None:
    reset(offsets, 8)
    reset(offsets, 4)
    assert bounds(offsets) == (4, 4)


def test_of_two_resets_at_the_same_time_either_may_count(offsets: GroupOffsets) -> None:
    earlier, later = offsets.reset_asked(QUEUE, 8), offsets.reset_asked(QUEUE, 4)
    offsets.done(later, KEPT)
    offsets.done(earlier, KEPT)
    assert bounds(offsets) == (4, 8)


def test_who_asks_before_a_reset_is_answered_may_be_told_the_offset_of_before(offsets: GroupOffsets) -> None:
    committed(offsets, 3)
    asked_at = offsets.moment
    reset(offsets, 5)
    assert (offsets.least(QUEUE, asked_at), offsets.most(QUEUE, asked_at)) == (3, 5)
    assert bounds(offsets) == (5, 5)


def test_who_asks_before_a_commit_is_answered_may_not_be_told_less_than_the_one_before(offsets: GroupOffsets) -> None:
    committed(offsets, 3)
    asked_at = offsets.moment
    committed(offsets, 5)
    assert (offsets.least(QUEUE, asked_at), offsets.most(QUEUE, asked_at)) == (3, 5)


def test_a_reset_passes_over_what_was_not_committed(offsets: GroupOffsets) -> None:
    committed(offsets, 3)
    change = offsets.reset_asked(QUEUE, 5)
    assert [offset for offset in range(7) if offsets.may_be_skipped(QUEUE, offset)] == [3, 4]
    assert offsets.was_reset_to(QUEUE, 5)
    offsets.over(change)
    assert not any(offsets.may_be_skipped(QUEUE, offset) for offset in range(7))
    assert not offsets.was_reset_to(QUEUE, 5)
