"""The newest messages over all queues: the right ones, with little reading, within bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.topics.browse import first_messages, newest_messages


@dataclass(frozen=True)
class Stored:
    store_timestamp_ms: int
    queue_offset: int
    queue: int
    size_bytes: int = 100


@dataclass
class Topic:
    """Queues of messages in a list each; counts what is read. A pull hands out at most `at_once`."""

    queues: list[list[Stored]]
    minimum: int = 0
    at_once: int = 32
    read: int = 0
    ticks: list[float] = field(default_factory=lambda: [0.0])

    def pull(self, queue: int, offset: int, count: int) -> list[Stored]:
        found = [stored for stored in self.queues[queue] if stored.queue_offset >= offset][: min(count, self.at_once)]
        self.read += len(found)
        return found

    def newest(self, limit: int, budget_bytes: int = 10**9, deadline: float = 10**9) -> tuple[list[Stored], bool]:
        ends = [
            (number, messages[0].queue_offset if messages else 0, messages[-1].queue_offset + 1 if messages else 0)
            for number, messages in enumerate(self.queues)
        ]
        found = newest_messages(
            ends,
            self.pull,
            limit=limit,
            budget_bytes=budget_bytes,
            deadline=deadline,
            clock=lambda: self.ticks.pop(0) if len(self.ticks) > 1 else self.ticks[0],
        )
        return found.messages, found.complete


def topic_of(times: list[list[int]], at_once: int = 32) -> Topic:
    return Topic(
        [
            [Stored(time, offset, queue) for offset, time in enumerate(sorted(queue_times))]
            for queue, queue_times in enumerate(times)
        ],
        at_once=at_once,
    )


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=80), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(1, 32),
)
def test_the_newest_are_found_wherever_they_lie(times: list[list[int]], limit: int, at_once: int) -> None:
    topic = topic_of(times, at_once)
    found, complete = topic.newest(limit)
    wanted = sorted((time for queue in times for time in queue), reverse=True)[:limit]
    assert [message.store_timestamp_ms for message in found] == wanted
    assert len({(message.queue, message.queue_offset) for message in found}) == len(found)
    assert complete


def test_quiet_queues_cost_little() -> None:
    generator = random.Random(1)
    quiet = [[generator.randrange(1000) for _ in range(500)] for _ in range(15)]
    topic = topic_of([*quiet, list(range(1_000_000, 1_000_500))])
    found, _ = topic.newest(64)
    assert {message.queue for message in found} == {15}
    assert topic.read < 64 + 15 * 8 + 32


def test_an_empty_topic_has_none() -> None:
    assert topic_of([[], []]).newest(10) == ([], True)


def test_reading_stops_at_its_bytes_and_says_so() -> None:
    topic = topic_of([list(range(1000))])
    found, complete = topic.newest(100, budget_bytes=3200)
    assert not complete
    assert found[0].store_timestamp_ms == 999
    assert topic.read <= 64


def test_reading_stops_at_its_time_and_says_so() -> None:
    topic = topic_of([list(range(1000)), list(range(1000))])
    topic.ticks = [0.0, 0.0, 9.0]
    assert topic.newest(100, deadline=5.0)[1] is False


def test_messages_that_were_deleted_meanwhile_are_passed_over() -> None:
    topic = topic_of([list(range(100))])
    topic.queues[0] = topic.queues[0][:1] + topic.queues[0][90:]
    found, complete = topic.newest(50)
    assert [message.queue_offset for message in found][:10] == list(range(99, 89, -1))
    assert complete


def test_errors_of_the_broker_come_through() -> None:
    def broken(queue: int, offset: int, count: int) -> list[Stored]:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        newest_messages([(0, 0, 1)], broken, limit=1, budget_bytes=1, deadline=10**12)


# --- from a place on ---


def first(
    topic: Topic, starts: list[int], limit: int, budget_bytes: int = 10**9, deadline: float = 10**9
) -> tuple[list[Stored], bool]:
    queues = [(number, starts[number], len(messages)) for number, messages in enumerate(topic.queues)]
    found = first_messages(
        queues,
        topic.pull,
        limit=limit,
        budget_bytes=budget_bytes,
        deadline=deadline,
        clock=lambda: topic.ticks.pop(0) if len(topic.ticks) > 1 else topic.ticks[0],
    )
    return found.messages, found.complete


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=80), min_size=1, max_size=6),
    st.integers(0, 55),
    st.integers(1, 40),
    st.integers(1, 32),
)
def test_the_first_from_a_time_on_are_found_wherever_they_lie(
    times: list[list[int]], since: int, limit: int, at_once: int
) -> None:
    topic = topic_of(times, at_once)
    starts = [sum(time < since for time in queue) for queue in times]
    found, complete = first(topic, starts, limit)
    wanted = sorted(time for queue in times for time in queue if time >= since)[:limit]
    assert [message.store_timestamp_ms for message in found] == wanted
    assert len({(message.queue, message.queue_offset) for message in found}) == len(found)
    assert complete


def test_what_is_read_before_the_bounds_are_reached_are_the_first_ones() -> None:
    topic = topic_of([list(range(0, 1000, 2)), list(range(1, 1000, 2))])
    found, complete = first(topic, [0, 0], 100, budget_bytes=64 * 100)
    assert not complete
    assert [message.store_timestamp_ms for message in found] == list(range(len(found)))
    assert found


def test_what_was_deleted_meanwhile_ends_a_queue() -> None:
    topic = topic_of([[1, 2, 3]])
    topic.queues[0].clear()
    found = first_messages([(0, 0, 3)], topic.pull, limit=5, budget_bytes=10**9, deadline=10**9)
    assert (found.messages, found.complete) == ([], True)
