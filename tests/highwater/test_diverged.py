"""What a group has of a message that was cut from a replica's log, and the copy that is sent in its stead."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from highwater import Admin, Message, MessageQueue, NoRouteError, QueryResult, ReceivedMessage
from highwater.diverged import DIVERGED_OF, Comparison, Fate, compare, message_again

QUEUE = MessageQueue("orders", "broker-a", 1)


def received(offset: int = 7, body: bytes = b"paid", key: str = "ID1", **changes: Any) -> ReceivedMessage:
    values: dict[str, Any] = {
        "topic": "orders",
        "body": body,
        "tags": "t",
        "keys": ("k",),
        "properties": {"UNIQ_KEY": key, "colour": "red"} if key else {"colour": "red"},
        "message_id": key or "O",
        "offset_message_id": "O",
        "queue": QUEUE,
        "queue_offset": offset,
        "physical_offset": 0,
        "born_timestamp_ms": 1,
        "store_timestamp_ms": 2,
        "born_host": ("10.0.0.1", 1),
        "store_host": ("10.0.0.1", 1),
    }
    return ReceivedMessage(**(values | changes))


@dataclass
class Group:
    """Stands in for an Admin: what one queue holds, and what an index finds."""

    queue: list[ReceivedMessage] = field(default_factory=list)
    indexed: list[ReceivedMessage] = field(default_factory=list)
    has_topic: bool = True

    def pull(self, queue: MessageQueue, offset: int, count: int) -> list[ReceivedMessage]:
        if not self.has_topic:
            raise NoRouteError("no such topic")
        return [one for one in self.queue if one.queue_offset >= offset][:count]

    def query_messages(self, topic: str, key: str, **_: object) -> QueryResult:
        return QueryResult(tuple(one for one in self.indexed if one.message_id == key))


def compared(message: ReceivedMessage, **group: Any) -> Comparison:
    return compare(cast(Admin, Group(**group)), "broker-a", message)


@pytest.mark.parametrize(
    ("group", "fate"),
    [
        ({"queue": [received()]}, Fate.PRESENT),
        ({"indexed": [received(40)]}, Fate.MOVED),
        ({"queue": [received(key="ID2", body=b"other")]}, Fate.REPLACED),
        ({"queue": [received(key="ID2")], "indexed": [received(40)]}, Fate.MOVED),
        ({"queue": [received(6, key="ID2")]}, Fate.MISSING),
        ({"queue": [received(9, key="ID2")]}, Fate.TOO_OLD),
        ({"has_topic": False}, Fate.NO_TOPIC),
        ({"indexed": [received(40, b"other")]}, Fate.MISSING),
    ],
)
def test_what_the_group_has_of_a_message(group: dict[str, Any], fate: Fate) -> None:
    assert compared(received(), **group).fate is fate


def test_a_message_without_an_id_is_known_by_its_birth_keys_and_body() -> None:
    message = received(key="")
    assert compared(message, queue=[message]).fate is Fate.PRESENT
    assert compared(message, queue=[replace(message, born_timestamp_ms=3)]).fate is Fate.REPLACED


@pytest.mark.parametrize(
    "changes",
    [{"queue": replace(QUEUE, topic="RMQ_SYS_METADATA")}, {"sys_flag": 0x4}, {"sys_flag": 0xC}],
)
def test_a_record_that_no_consumer_could_read_is_compared_with_nothing_and_not_sent(changes: dict[str, Any]) -> None:
    assert compared(received(**changes)).fate is Fate.INTERNAL
    assert isinstance(message_again(received(**changes), "x"), str)


def test_a_message_that_is_sent_again_keeps_its_id_and_says_where_it_came_from() -> None:
    again = message_again(received(), "broker-a/0/file/4096", ["orders"])
    assert isinstance(again, Message)
    assert (again.topic, again.body, again.message_id, again.keys) == ("orders", b"paid", "ID1", ("k",))
    assert again.properties == {"colour": "red", DIVERGED_OF: "broker-a/0/file/4096"}


def test_a_delayed_message_goes_to_its_own_topic() -> None:
    waiting = received(
        queue=MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-a", 2),
        properties={"REAL_TOPIC": "orders", "DELAY": "3", "UNIQ_KEY": "ID1"},
    )
    again = message_again(waiting, "x", ["orders"])
    assert isinstance(again, Message)
    assert (again.topic, again.delay_time_level) == ("orders", 0)


def test_a_delivery_that_waited_to_be_retried_goes_to_its_groups_retry_topic() -> None:
    retried = received(
        queue=MessageQueue("%RETRY%billing", "broker-a", 0),
        properties={"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "O1", "UNIQ_KEY": "ID1"},
    )
    again = message_again(retried, "x", ["orders"])
    assert isinstance(again, Message)
    assert (again.topic, again.properties["RETRY_TOPIC"]) == ("%RETRY%billing", "orders")


@pytest.mark.parametrize(("topic", "why"), [("%DLQ%billing", "dead letter"), ("gone", "no topic gone")])
def test_why_a_message_is_not_sent_again(topic: str, why: str) -> None:
    assert why in str(message_again(received(queue=replace(QUEUE, topic=topic)), "x", ["orders"]))
