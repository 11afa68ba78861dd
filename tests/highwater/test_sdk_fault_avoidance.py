"""Latency fault avoidance: which brokers a producer leaves alone, and for how long."""

from __future__ import annotations

import pytest

from highwater import MessageQueue
from highwater._fault import FaultStrategy, not_available_duration_ms

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(2)]


@pytest.mark.parametrize(
    ("latency_ms", "duration_ms"),
    # MQFaultStrategy's two tables.
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10_000),
        (10_000, 10_000),
        (15_000, 30_000),
        (99_999, 30_000),
    ],
)
def test_the_slower_a_broker_was_the_longer_it_is_avoided(latency_ms: int, duration_ms: int) -> None:
    assert not_available_duration_ms(latency_ms) == duration_ms


def test_queues_take_turns() -> None:
    fault = FaultStrategy()
    assert [fault.select("t", QUEUES, 0) for _ in range(5)] == [*QUEUES, QUEUES[0]]


def test_each_topic_has_a_turn_of_its_own() -> None:
    fault = FaultStrategy()
    fault.select("t", QUEUES, 0)
    assert fault.select("u", QUEUES, 0) == QUEUES[0]


def test_a_retry_goes_to_another_broker() -> None:
    fault = FaultStrategy(enabled=False)
    chosen = {fault.select("t", QUEUES, 0, last_broker_name="a").broker_name for _ in range(6)}
    assert chosen == {"b"}


def test_a_slow_broker_is_avoided_until_its_time_is_over() -> None:
    fault = FaultStrategy()
    fault.succeeded("a", 600, now_ms=1000)
    assert {fault.select("t", QUEUES, 2999).broker_name for _ in range(4)} == {"b"}
    assert {fault.select("t", QUEUES, 3000).broker_name for _ in range(4)} == {"a", "b"}


def test_a_quick_answer_does_not_end_an_avoidance_early() -> None:
    fault = FaultStrategy()
    fault.failed("a", 0, reachable=True)
    fault.succeeded("a", 5, 100)
    assert not fault.is_available("a", 9999)
    assert fault.is_available("a", 10_000)


def test_a_broker_that_did_not_answer_comes_after_one_that_is_merely_slow() -> None:
    fault = FaultStrategy()
    fault.failed("a", 0, reachable=False)
    fault.failed("b", 0, reachable=True)
    assert {fault.select("t", QUEUES, 1).broker_name for _ in range(4)} == {"b"}


def test_an_answer_makes_a_broker_reachable_again() -> None:
    fault = FaultStrategy()
    fault.failed("a", 0, reachable=False)
    fault.succeeded("a", 5, 100)
    assert fault.is_reachable("a")


def test_when_nothing_better_is_left_any_queue_is_used() -> None:
    fault = FaultStrategy()
    fault.failed("a", 0, reachable=False)
    assert fault.select("t", QUEUES[:2], 1, last_broker_name="a").broker_name == "a"


def test_switched_off_it_only_avoids_the_broker_of_the_last_try() -> None:
    fault = FaultStrategy(enabled=False)
    fault.failed("a", 0, reachable=False)
    assert {fault.select("t", QUEUES, 1).broker_name for _ in range(4)} == {"a", "b"}


def test_the_first_turn_may_begin_anywhere() -> None:
    fault = FaultStrategy(first_index=4 * 1000 + 3)
    assert fault.select("t", QUEUES, 0) == QUEUES[3]
