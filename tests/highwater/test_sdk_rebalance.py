"""Allocation of queues to a group's members."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from highwater import MessageQueue
from highwater._rebalance import allocate_averagely, plan_change


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "broker-a", number) for number in range(count)]


def share(client: str, queue_count: int, clients: list[str]) -> list[int]:
    return [queue.queue_id for queue in allocate_averagely(client, queues(queue_count), clients)]


def test_one_member_gets_every_queue() -> None:
    assert share("a", 4, ["a"]) == [0, 1, 2, 3]


def test_the_first_members_get_one_more_when_it_does_not_divide() -> None:
    # AllocateMessageQueueAveragely with 8 queues and 3 members: 3, 3 and 2.
    assert [share(client, 8, ["a", "b", "c"]) for client in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_members_beyond_the_number_of_queues_get_nothing() -> None:
    assert [share(client, 2, ["a", "b", "c"]) for client in "abc"] == [[0], [1], []]


def test_a_member_that_is_not_listed_gets_nothing() -> None:
    assert share("z", 4, ["a", "b"]) == []


def test_the_order_of_the_lists_does_not_matter() -> None:
    assert allocate_averagely("b", reversed(queues(7)), ["c", "b", "a"]) == allocate_averagely(
        "b", queues(7), ["a", "b", "c"]
    )


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    # As Java's MessageQueue.compareTo: queue 10 after queue 9, not after queue 1.
    many = [MessageQueue("t", "broker-a", 10), MessageQueue("t", "broker-a", 9), MessageQueue("t", "broker-B", 0)]
    assert sorted(many) == [many[2], many[1], many[0]]


@given(st.integers(0, 40), st.lists(st.text("abcdef", min_size=1), min_size=1, unique=True))
def test_every_queue_goes_to_exactly_one_member(queue_count: int, clients: list[str]) -> None:
    shares = [allocate_averagely(client, queues(queue_count), clients) for client in clients]
    assert sorted(queue for one in shares for queue in one) == queues(queue_count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_change_names_what_to_take_and_what_to_give_up() -> None:
    first, second, third = queues(3)
    change = plan_change([first, second], [second, third])
    assert (change.added, change.removed) == ((third,), (first,))
