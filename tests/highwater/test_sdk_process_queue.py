"""The window of pulled and unfinished messages of one queue."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from highwater._process_queue import ProcessQueue
from tests.highwater.received import QUEUE, message


def filled(*offsets: int, end: int) -> ProcessQueue:
    window = ProcessQueue(QUEUE)
    window.put([message(offset) for offset in offsets], end)
    return window


def test_nothing_is_to_be_committed_before_the_first_pull() -> None:
    assert ProcessQueue(QUEUE).commit_offset is None


def test_the_commit_offset_waits_for_the_oldest_message() -> None:
    window = filled(0, 1, 2, end=3)
    assert window.finish(message(2)) == 0
    assert window.finish(message(0)) == 1
    assert window.finish(message(1)) == 3


def test_what_a_filter_passed_over_is_committed_with_the_rest() -> None:
    window = filled(0, 5, end=10)
    assert window.finish(message(0)) == 5
    assert window.finish(message(5)) == 10


def test_a_message_is_finished_only_once() -> None:
    window = filled(0, end=1)
    window.finish(message(0))
    assert window.finish(message(0)) is None


def test_a_message_that_was_pulled_before_is_not_new() -> None:
    window = filled(0, 1, end=2)
    new = window.put([message(1), message(2)], 3)
    assert [one.queue_offset for one in new] == [2]
    assert window.count == 3


def test_count_size_and_span_follow_what_is_open() -> None:
    window = ProcessQueue(QUEUE)
    window.put([message(offset, bytes(10)) for offset in (3, 4, 9)], 10)
    assert (window.count, window.size_bytes, window.span) == (3, 30, 6)
    window.finish(message(3))
    assert (window.count, window.size_bytes, window.span) == (2, 20, 5)


def test_the_first_message_is_the_oldest_that_is_open() -> None:
    window = filled(0, 1, end=2)
    window.finish(message(0))
    first = window.first()
    assert first is not None
    assert first.queue_offset == 1
    window.finish(message(1))
    assert window.first() is None


@given(st.lists(st.integers(0, 60), min_size=1, unique=True), st.randoms(use_true_random=False))
def test_everything_below_the_commit_offset_is_finished(offsets: list[int], chance: random.Random) -> None:
    window = filled(*sorted(offsets), end=max(offsets) + 1)
    still_open = set(offsets)
    for offset in chance.sample(offsets, len(offsets)):
        commit = window.finish(message(offset))
        still_open.discard(offset)
        assert commit == (min(still_open) if still_open else max(offsets) + 1)
