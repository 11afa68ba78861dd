"""Intervals of metering when the wall clock steps: a record each interval, none longer than it took."""

from __future__ import annotations

import itertools

import pytest

from brokerd.metering.clock import STEP_LASTS_S, SteadyTime
from tests.brokerd.broker_under_test import BrokerUnderTest, ManualClock
from tests.brokerd.metered_broker import assert_tiled, next_interval, records, send, sums

DAY_MS = 24 * 3600 * 1000
START_MS = 1_800_000_000_000


def test_it_is_the_wall_clock_while_that_runs_evenly() -> None:
    time = SteadyTime(START_MS, 5.0)
    assert [time.now_ms(START_MS + s * 1000, 5.0 + s) for s in range(3)] == [START_MS + s * 1000 for s in range(3)]


def test_a_clock_that_is_slewed_is_followed() -> None:
    time = SteadyTime(START_MS, 0)
    for minute in range(1, 100):  # half a second a minute too fast
        assert time.now_ms(START_MS + minute * 60_500, minute * 60.0) == START_MS + minute * 60_500
    assert time.step_ms == 0


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS, 1500, -1500])
def test_a_step_is_logged_and_moves_nothing(step_ms: int) -> None:
    time = SteadyTime(START_MS, 0)
    assert time.now_ms(START_MS + 1000 + step_ms, 1.0) == START_MS + 1000
    assert (time.step_ms, time.step_lasts(1.0)) == (step_ms, False)


def test_a_step_back_is_as_if_nothing_had_been() -> None:
    time = SteadyTime(START_MS, 0)
    time.now_ms(START_MS + DAY_MS, 1.0)
    later_ms = START_MS + round(STEP_LASTS_S * 1000)
    assert time.now_ms(later_ms, STEP_LASTS_S) == later_ms
    assert (time.step_ms, time.step_lasts(2 * STEP_LASTS_S)) == (0, False)


def test_a_step_that_lasts_is_taken_over_when_asked() -> None:
    time = SteadyTime(START_MS, 0)
    for second in (1, STEP_LASTS_S, STEP_LASTS_S + 1):
        time.now_ms(round(START_MS + second * 1000) + DAY_MS, second)
    assert time.step_lasts(STEP_LASTS_S + 1)
    assert time.adopt() == DAY_MS
    assert time.now_ms(START_MS + DAY_MS, 0.0) == START_MS + DAY_MS


def test_a_second_step_begins_to_last_again() -> None:
    time = SteadyTime(START_MS, 0)
    time.now_ms(START_MS + DAY_MS, 0.0)
    time.now_ms(START_MS + 599_000 + 2 * DAY_MS, 599.0)
    assert not time.step_lasts(STEP_LASTS_S)


def test_a_day_ahead_and_back_leaves_a_record_for_each_minute(broker: BrokerUnderTest, clock: ManualClock) -> None:
    clock.advance(60 - clock.wall_ms % 60_000 / 1000)  # a full minute
    next_interval(broker)
    begin_ms = clock.wall_ms
    for minute in range(12):
        if minute == 1:
            clock.wall_ms += DAY_MS
        if minute == 6:
            clock.wall_ms -= DAY_MS
        send(broker)
        next_interval(broker)
    found = records(broker)[1:]
    assert [record.end_ms - record.start_ms for record in found] == [60_000] * 12
    assert found[-1].end_ms == begin_ms + 12 * 60_000
    assert [record.clock_step_ms for record in found] == [0] + [DAY_MS] * 5 + [0] * 6
    assert sums(found) == {("orders", "normal"): (12, 48, 12)}
    assert_tiled(found)


@pytest.mark.parametrize("step_ms", [DAY_MS, -DAY_MS])
def test_a_new_time_that_lasts_is_taken_over_between_two_records(
    broker: BrokerUnderTest, clock: ManualClock, step_ms: int
) -> None:
    next_interval(broker)
    clock.wall_ms += step_ms
    for _ in range(15):
        send(broker)
        next_interval(broker)
    found = records(broker)
    assert all(0 <= record.end_ms - record.start_ms <= 60_000 for record in found)
    assert found[-1].end_ms == clock.wall_ms - clock.wall_ms % 60_000 or found[-1].end_ms == clock.wall_ms
    jumps = [after.start_ms - before.end_ms for before, after in itertools.pairwise(found)]
    assert [jump for jump in jumps if jump] == [step_ms]
    assert sums(found) == {("orders", "normal"): (15, 60, 15)}
