"""Where is my message? Decisions on small inputs, and one story at real brokers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from highwater import Admin, Message, MessageQueue, Producer, QueryResult, ReceivedMessage, RetryLater
from highwater.message_trace import MessageTrace, trace_message
from highwater.whereabouts import (
    Cause,
    GroupFacts,
    IdReading,
    SearchFacts,
    Standing,
    group_standing,
    read_id,
    tag_matches,
    why_not_found,
)
from mqwire.message import offset_message_id, pack_host
from mqwire.unique_key import UniqueKeyGenerator
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until

NOW_MS = 1_790_000_000_000
MESSAGE = ReceivedMessage(
    topic="orders",
    body=b"",
    tags="paid",
    keys=("o-1",),
    properties={},
    message_id="",
    offset_message_id="",
    queue=MessageQueue("orders", "broker-a", 0),
    queue_offset=10,
    physical_offset=1000,
    born_timestamp_ms=NOW_MS - 5000,
    store_timestamp_ms=NOW_MS - 5000,
    born_host=("10.0.0.1", 1),
    store_host=("10.0.0.2", 10911),
)


def copy(times: int, *, queue_offset: int = 0) -> ReceivedMessage:
    return replace(MESSAGE, reconsume_times=times, queue_offset=queue_offset, store_timestamp_ms=NOW_MS - 5000 + times)


def test_an_id_is_read_as_the_brokers_and_as_the_clients() -> None:
    broker = read_id(offset_message_id(pack_host("10.0.0.2", 10911), 4096), NOW_MS)
    assert (broker.broker, broker.physical_offset) == ("10.0.0.2:10911", 4096)
    client = read_id(UniqueKeyGenerator("10.1.2.3").next_key(NOW_MS - 60_000), NOW_MS)
    assert (client.client, client.made_at_ms) == ("10.1.2.3", NOW_MS - 60_000)


@pytest.mark.parametrize("text", ["order-1", "42", "f" * 24 + "g"])
def test_an_ordinary_key_is_read_as_no_id(text: str) -> None:
    assert read_id(text, NOW_MS) == IdReading()


def test_an_id_that_lacks_a_digit_is_reported_as_such() -> None:
    assert "31 hexadecimal digits" in read_id("A" * 31, NOW_MS).malformed


@pytest.mark.parametrize(
    ("facts", "standing", "before", "tries"),
    [
        (GroupFacts("g", offset=11), Standing.CONSUMED, None, None),
        (GroupFacts("g", offset=10), Standing.WAITING, 0, None),
        (GroupFacts("g", offset=4), Standing.WAITING, 6, None),
        (GroupFacts("g", offset=11, subscription="new || sent"), Standing.FILTERED, None, None),
        (GroupFacts("g", offset=11, subscription="new || paid"), Standing.CONSUMED, None, None),
        (GroupFacts("g"), Standing.NOT_STARTED, None, None),
        (GroupFacts("g", offset=11, is_broadcast=True), Standing.UNKNOWN, None, None),
        (GroupFacts("g", problem="no answer"), Standing.UNKNOWN, None, None),
        (GroupFacts("g", offset=11, scheduled=copy(2), due_ms=NOW_MS + 1), Standing.RETRYING, None, 2),
        (GroupFacts("g", offset=11, scheduled=copy(2), due_ms=NOW_MS - 1), Standing.RETRYING, None, 2),
        (GroupFacts("g", 11, retry=copy(2, queue_offset=7), retry_offset=4), Standing.RETRYING, 3, 2),
        (GroupFacts("g", 11, retry=copy(2, queue_offset=7), retry_offset=8), Standing.CONSUMED, None, 2),
        (GroupFacts("g", 11, retry=copy(2, queue_offset=7)), Standing.RETRYING, None, 2),
        (GroupFacts("g", 11, scheduled=copy(2), due_ms=1, retry=copy(2), retry_offset=8), Standing.CONSUMED, None, 2),
        (GroupFacts("g", 11, retry=copy(2), retry_offset=8, dead=copy(3)), Standing.DEAD_LETTER, None, 3),
        # Sent back to the retry topic after it had been dead: the newest copy counts.
        (GroupFacts("g", 11, retry=copy(4), retry_offset=0, dead=copy(3)), Standing.RETRYING, 0, 4),
    ],
)
def test_where_a_message_stands_for_a_group(
    facts: GroupFacts, standing: Standing, before: int | None, tries: int | None
) -> None:
    found = group_standing(MESSAGE, facts, NOW_MS)
    assert (found.standing, found.before, found.tries) == (standing, before, tries)
    assert found.sentence


@pytest.mark.parametrize("offset", [4, 11])
@pytest.mark.parametrize("subscription", ["new", "new || sent"])
def test_a_standing_does_not_tell_a_hidden_tag(offset: int, subscription: str) -> None:
    facts = GroupFacts("g", offset=offset, subscription=subscription)
    tagged = [replace(MESSAGE, tags=tag) for tag in ("new", "secret", None)]
    found = {group_standing(one, facts, NOW_MS, tag_is_hidden=True) for one in tagged}
    assert len(found) == 1
    assert "secret" not in found.pop().sentence


def test_a_group_that_takes_all_tags_has_consumed_a_message_whose_tag_is_hidden() -> None:
    facts = GroupFacts("g", offset=11, subscription="*")
    assert group_standing(MESSAGE, facts, NOW_MS, tag_is_hidden=True).standing is Standing.CONSUMED


def test_tag_expressions_are_matched_as_brokers_do() -> None:
    assert [tag_matches(words, "a") for words in ("*", "", "a", "b || a", "b")] == [True, True, True, True, False]
    assert not tag_matches("a", None)


OURS = IdReading("10.0.0.2:10911", 4096)


@pytest.mark.parametrize(
    ("facts", "causes"),
    [
        (SearchFacts(IdReading(), "ordres", ["orders"]), [Cause.UNKNOWN_TOPIC, Cause.NO_SUCH_KEY]),
        (SearchFacts(IdReading(malformed="31 digits")), [Cause.MALFORMED_ID, Cause.NO_SUCH_KEY]),
        (SearchFacts(IdReading(), silent={"Topic a": "timeout"}), [Cause.BROKER_SILENT, Cause.NO_SUCH_KEY]),
        (SearchFacts(OURS, names_this_cluster=True, log_begin=8192, log_end=9000), [Cause.EXPIRED]),
        (SearchFacts(OURS, names_this_cluster=True, log_begin=0, log_end=4096), [Cause.NO_SUCH_OFFSET]),
        (SearchFacts(OURS, names_this_cluster=True), [Cause.NO_SUCH_OFFSET]),
        (SearchFacts(OURS), [Cause.OTHER_CLUSTER, Cause.NO_SUCH_KEY]),
        (
            SearchFacts(IdReading(made_at_ms=NOW_MS - 9_000_000), oldest_ms=NOW_MS - 1_000_000),
            [Cause.EXPIRED, Cause.NO_SUCH_KEY],
        ),
        (SearchFacts(IdReading(made_at_ms=NOW_MS - 9_000), oldest_ms=NOW_MS - 1_000_000), [Cause.NO_SUCH_KEY]),
        (
            SearchFacts(IdReading(), unindexed=["broker-a"], index_lag_bytes=7),
            [Cause.NOT_INDEXED, Cause.INDEX_BEHIND, Cause.NO_SUCH_KEY],
        ),
        (SearchFacts(IdReading(), message_count=0), [Cause.TOPIC_EMPTY, Cause.NO_SUCH_KEY]),
        (SearchFacts(IdReading(), topics_left_out=3), [Cause.TOPICS_LEFT_OUT, Cause.NO_SUCH_KEY]),
    ],
)
def test_why_a_message_was_not_found(facts: SearchFacts, causes: list[Cause]) -> None:
    found = why_not_found(facts, NOW_MS)
    assert [one.cause for one in found] == causes
    assert all(one.sentence and one.attempt for one in found)


def test_a_misspelled_topic_gets_the_nearest_name() -> None:
    assert "orders?" in why_not_found(SearchFacts(IdReading(), "ordres", ["orders"]), NOW_MS)[0].attempt


@pytest.mark.parametrize("cluster", ["highwater"], indirect=True)
def test_each_message_is_found_where_its_group_left_it(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str
) -> None:
    group = f"g-{topic}"

    def handle(message: ReceivedMessage) -> None:
        if message.body == b"poison":
            raise RetryLater("never", delay_time_level=-1)
        if message.body == b"slow":
            raise RetryLater("later")

    def trace(text: str) -> MessageTrace:
        return trace_message(admin, text, topics=[topic])

    def stands(text: str) -> Standing | None:
        groups = trace(text).groups
        return groups[0].standing if groups else None

    queue = producer.publish_queues(topic)[0]
    sent = {
        body: producer.send(Message(topic, body, keys=[f"{body.decode()}-{topic}"]), queue=queue)
        for body in (b"poison", b"slow", b"fine")
    }
    with cluster.consumer(group, Collector(handle), topic):
        wait_until(lambda: stands(sent[b"fine"].offset_message_id) == Standing.CONSUMED, "the third is consumed")
        wait_until(lambda: stands(f"poison-{topic}") == Standing.DEAD_LETTER, "the first is a dead letter")
        wait_until(lambda: stands(sent[b"slow"].message_id) == Standing.RETRYING, "the second waits for its retry")
    slow = trace(sent[b"slow"].message_id)
    assert slow.message is not None
    assert slow.message.body == b"slow"
    assert (slow.groups[0].standing, slow.original_is_gone) == (Standing.RETRYING, False)
    assert (slow.groups[0].tries or 0) >= 1
    late = producer.send(Message(topic, b"late"), queue=queue)
    found = trace(late.offset_message_id)
    assert [(one.group, one.standing, one.before) for one in found.groups] == [(group, Standing.WAITING, 0)]
    assert (found.message and found.message.queue.broker_name) == queue.broker_name
    nothing = trace("nowhere")
    assert (nothing.message, nothing.reasons[-1].cause) == (None, Cause.NO_SUCH_KEY)
    # A program may write any copy into a retry topic; what it names there is shown to no one.
    retry, key = f"%RETRY%{group}", f"forged-{topic}"
    producer.send(Message(retry, b"forged", keys=[key], properties={"RETRY_TOPIC": "RMQ_SYS_METERING"}))
    wait_until(lambda: bool(admin.query_messages(retry, key).messages), "the forged copy is indexed")
    assert trace_message(admin, key, topic="RMQ_SYS_METERING", topics=[topic]).message is None


@pytest.mark.parametrize("cluster", ["highwater"], indirect=True)
def test_a_message_that_is_given_back_while_it_is_looked_for_is_not_called_consumed(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, may_end = f"g-{topic}", threading.Event()

    def handle(message: ReceivedMessage) -> None:
        assert may_end.wait(30)
        raise RetryLater("later")

    sent = producer.send(Message(topic, b"slow"))
    query = admin.query_messages

    def query_and_let_it_be_given_back(*args: Any, **options: Any) -> QueryResult:
        found = query(*args, **options)
        if not may_end.is_set():
            may_end.set()
            wait_until(lambda: (admin.consumer_offset(group, sent.queue) or 0) > sent.queue_offset, "it is passed")
        return found

    with cluster.consumer(group, Collector(handle), topic):
        wait_until(lambda: group in admin.topic_groups(topic), "the group is known")
        monkeypatch.setattr(admin, "query_messages", query_and_let_it_be_given_back)
        found = trace_message(admin, sent.offset_message_id, topics=[topic])
    assert [one.standing in (Standing.WAITING, Standing.RETRYING) for one in found.groups] == [True]
