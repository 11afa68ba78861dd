"""The SDK against real clusters, Apache RocketMQ's and ours: what is sent is what is consumed."""

from __future__ import annotations

import subprocess
import sys
import time

import anyio
import anyio.lowlevel
import pytest

from highwater import (
    Admin,
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RetryLater,
    SendStatus,
)
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until


def test_a_message_arrives_as_it_was_sent(cluster: Cluster, producer: Producer, topic: str) -> None:
    sent = Message(
        topic,
        "grüße 😀".encode(),
        tags="paid",
        keys=["o-1", "o-2"],
        properties={"größe": "ü😀", "plain": "x"},
        flag=7,
    )
    result = producer.send(sent)
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic):
        (message,) = collector.wait(1)
    assert result.status is SendStatus.SEND_OK
    assert (message.topic, message.body, message.tags, message.keys) == (topic, sent.body, "paid", ("o-1", "o-2"))
    assert (message.properties["größe"], message.properties["plain"]) == ("ü😀", "x")
    assert (message.message_id, message.offset_message_id) == (result.message_id, result.offset_message_id)
    assert (message.queue, message.queue_offset) == (result.queue, result.queue_offset)
    assert (message.flag, message.reconsume_times) == (7, 0)


@pytest.mark.parametrize("kind", ["ROCKETMQ", "JSON"])
@pytest.mark.parametrize("compression", ["ZLIB", "LZ4", "ZSTD"])
def test_a_large_body_arrives_whole(cluster: Cluster, topic: str, kind: str, compression: str) -> None:
    body = bytes(range(256)) * 1024
    with cluster.producer(compress_type=compression, serialize_type=kind) as producer:
        producer.send(Message(topic, body))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic, serialize_type=kind):
        (message,) = collector.wait(1)
    assert message.body == body


def test_a_batch_arrives_message_by_message(cluster: Cluster, producer: Producer, topic: str) -> None:
    result = producer.send_batch([Message(topic, b"m%d" % number, tags=f"tag{number}") for number in range(10)])
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic):
        messages = sorted(collector.wait(10), key=lambda message: message.queue_offset)
    assert [message.body for message in messages] == [b"m%d" % number for number in range(10)]
    assert [message.tags for message in messages] == [f"tag{number}" for number in range(10)]
    assert tuple(message.message_id for message in messages) == result.message_ids
    assert {message.queue for message in messages} == {result.queue}


def test_one_way_messages_arrive(cluster: Cluster, producer: Producer, topic: str) -> None:
    for number in range(20):
        producer.send_oneway(Message(topic, b"m%d" % number))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic):
        collector.wait_for_bodies({b"m%d" % number for number in range(20)})


def test_only_messages_whose_tag_is_wanted_arrive(cluster: Cluster, producer: Producer, topic: str) -> None:
    for tag in ("paid", "open", None, "lost"):
        for number in range(5):
            producer.send(Message(topic, f"{tag}{number}".encode(), tags=tag))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic, "paid || lost"):
        collector.wait_for_bodies({f"{tag}{number}".encode() for tag in ("paid", "lost") for number in range(5)})
    assert {message.tags for message in collector.messages} == {"paid", "lost"}


def test_tags_with_the_same_hash_are_distinguished(cluster: Cluster, producer: Producer, topic: str) -> None:
    # "Aa".hashCode() == "BB".hashCode(): the broker lets both through.
    for tag in ("BB", "Aa", "BB"):
        producer.send(Message(topic, tag.encode(), tags=tag))
    producer.send(Message(topic, b"end", tags="end"))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic, "Aa || end"):
        collector.wait_for_bodies({b"Aa", b"end"})
    assert sorted(collector.bodies) == [b"Aa", b"end"]


def test_messages_of_a_sharding_key_arrive_in_order(cluster: Cluster, producer: Producer, topic: str) -> None:
    keys = [f"order-{number}" for number in range(8)]
    for step in range(20):
        for key in keys:
            producer.send_ordered(Message(topic, b"%d" % step), key)
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic, orderly=True):
        messages = collector.wait(160)
    for key in keys:
        steps = [int(message.body) for message in messages if message.sharding_key == key]
        assert steps == list(range(20)), key


def test_an_orderly_consumer_tries_a_failing_message_again_before_the_next(
    cluster: Cluster, producer: Producer, topic: str
) -> None:
    for step in range(3):
        producer.send_ordered(Message(topic, b"%d" % step), "key")

    def fail_twice(message: ReceivedMessage) -> None:
        if message.body == b"1" and message.reconsume_times < 2:
            raise RuntimeError("not yet")

    collector = Collector(fail_twice)
    with cluster.consumer(f"g-{topic}", collector, topic, orderly=True, suspend_current_queue_time_ms=50):
        collector.wait(5)
    assert collector.bodies == [b"0", b"1", b"1", b"1", b"2"]


def test_a_message_whose_handler_raises_comes_again_until_it_is_taken(
    cluster: Cluster, producer: Producer, topic: str
) -> None:
    producer.send(Message(topic, b"again", tags="t", keys=["k"]))

    def fail_twice(message: ReceivedMessage) -> None:
        if message.reconsume_times < 2:
            raise RuntimeError("not yet")

    collector = Collector(fail_twice)
    with cluster.consumer(f"g-{topic}", collector, topic, "t"):
        messages = collector.wait(3)
    assert [message.reconsume_times for message in messages] == [0, 1, 2]
    assert {(message.topic, message.body, message.keys) for message in messages} == {(topic, b"again", ("k",))}
    assert len({message.message_id for message in messages}) == 1


def test_a_message_that_is_never_taken_ends_in_the_dead_letter_topic(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str
) -> None:
    sent = producer.send(Message(topic, b"poison", keys=["k"]))
    group = f"g-{topic}"

    def refuse(message: ReceivedMessage) -> None:
        raise RuntimeError("never")

    collector = Collector(refuse)
    with cluster.consumer(group, collector, topic, max_reconsume_times=1):
        collector.wait(2)
        wait_until(lambda: f"%DLQ%{group}" in admin.topic_list(), "the dead-letter topic is there")
        wait_until(lambda: bool(admin.newest_messages(f"%DLQ%{group}")), "the dead letter is there")
    (dead,) = admin.newest_messages(f"%DLQ%{group}")
    assert (dead.body, dead.message_id) == (b"poison", sent.message_id)
    assert len(collector.messages) == 2


def test_a_handler_may_give_a_message_up_at_once(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str
) -> None:
    producer.send(Message(topic, b"poison"))
    group = f"g-{topic}"

    def give_up(message: ReceivedMessage) -> None:
        raise RetryLater("never", delay_time_level=-1)

    collector = Collector(give_up)
    with cluster.consumer(group, collector, topic):
        wait_until(lambda: f"%DLQ%{group}" in admin.topic_list(), "the dead-letter topic is there")
        wait_until(lambda: bool(admin.newest_messages(f"%DLQ%{group}")), "the dead letter is there")
    assert len(collector.messages) == 1


def test_an_orderly_consumer_gives_a_message_up_after_its_last_try(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str
) -> None:
    for body in (b"poison", b"good"):
        producer.send_ordered(Message(topic, body), "key")
    group = f"g-{topic}"

    def refuse(message: ReceivedMessage) -> None:
        if message.body == b"poison":
            raise RuntimeError("never")

    collector = Collector(refuse)
    with cluster.consumer(
        group, collector, topic, orderly=True, max_reconsume_times=1, suspend_current_queue_time_ms=50
    ):
        collector.wait(3)
        wait_until(lambda: f"%DLQ%{group}" in admin.topic_list(), "the dead-letter topic is there")
        wait_until(lambda: bool(admin.newest_messages(f"%DLQ%{group}")), "the dead letter is there")
    assert collector.bodies == [b"poison", b"poison", b"good"]


def test_two_members_share_the_queues_and_the_one_that_stays_takes_all(
    cluster: Cluster, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    first_got, second_got = Collector(), Collector()
    with cluster.consumer(group, first_got, topic) as first:
        wait_until(lambda: len(queues_of(first, topic)) == 4, "the only member has every queue")
        with cluster.consumer(group, second_got, topic) as second:
            wait_until(
                lambda: len(queues_of(first, topic)) == len(queues_of(second, topic)) == 2, "each has two queues"
            )
            assert not set(queues_of(first, topic)) & set(queues_of(second, topic))
            sent = {b"m%d" % number for number in range(40)}
            for body in sorted(sent):
                producer.send(Message(topic, body))
            wait_until(lambda: sent == {*first_got.bodies, *second_got.bodies}, "every message came")
            assert len(first_got.messages) == len(second_got.messages) == 20
        wait_until(lambda: len(queues_of(first, topic)) == 4, "the member that stays has every queue")
        producer.send(Message(topic, b"last"))
        first_got.wait_for_bodies({b"last"})


def test_orderly_members_hand_a_queue_over_without_overlap(cluster: Cluster, producer: Producer, topic: str) -> None:
    group = f"g-{topic}"
    order: list[bytes] = []

    def slow(message: ReceivedMessage) -> None:
        time.sleep(0.02)
        order.append(message.body)

    for step in range(60):
        producer.send_ordered(Message(topic, b"%03d" % step), "key")
    first_got, second_got = Collector(slow), Collector(slow)
    with cluster.consumer(group, first_got, topic, orderly=True):
        first_got.wait(10)
        with cluster.consumer(group, second_got, topic, orderly=True):
            wait_until(lambda: len(set(order)) == 60, "every message came")
    # Nothing twice, too: the message that was being handled counts before the queue changes hands.
    assert order == [b"%03d" % step for step in range(60)]


def test_a_group_goes_on_where_it_left_off(cluster: Cluster, producer: Producer, topic: str) -> None:
    group = f"g-{topic}"
    for number in range(20):
        producer.send(Message(topic, b"before%d" % number))
    before = Collector()
    with cluster.consumer(group, before, topic):
        before.wait(20)
    for number in range(20):
        producer.send(Message(topic, b"after%d" % number))
    after = Collector()
    with cluster.consumer(group, after, topic):
        after.wait_for_bodies({b"after%d" % number for number in range(20)})
    # A send that is answered late is sent again, so a body may come twice; none of those before may.
    assert set(after.bodies) == {b"after%d" % number for number in range(20)}


def test_stopping_awaits_the_handlers_that_run(cluster: Cluster, producer: Producer, admin: Admin, topic: str) -> None:
    done: list[bytes] = []

    def slow(message: ReceivedMessage) -> None:
        time.sleep(0.3)
        done.append(message.body)

    producer.send(Message(topic, b"slow"))
    collector = Collector(slow)
    with cluster.consumer(f"g-{topic}", collector, topic):
        collector.wait(1)
    assert done == [b"slow"]
    # A commit at the end has no answer, and Apache's broker may still have it in hand.
    wait_until(lambda: admin.consumer_progress(f"g-{topic}", topic=topic).lag == 0, "its progress is stored")


def test_a_program_that_forgets_to_stop_ends_and_its_progress_is_stored(
    cluster: Cluster, producer: Producer, admin: Admin, topic: str
) -> None:
    producer.send(Message(topic, b"x"))
    credentials = cluster.credentials
    signed = (
        ""
        if credentials is None
        else f"Credentials({credentials.access_key!r}, {credentials.secret_key!r},"
        f" signature_version={credentials.signature_version})"
    )
    program = f"""
import threading
from highwater import ConsumeFrom, Credentials, PushConsumer
got = threading.Event()
consumer = PushConsumer(
    {cluster.namesrv!r}, "g-{topic}", credentials={signed or None}, consume_from=ConsumeFrom.FIRST_OFFSET
)
consumer.subscribe({topic!r}, handler=lambda message: got.set())
consumer.start()
assert got.wait(30)
"""
    done = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, timeout=60)
    assert done.returncode == 0
    # A commit at the end has no answer, and Apache's broker may still have it in hand.
    wait_until(lambda: admin.consumer_progress(f"g-{topic}", topic=topic).lag == 0, "its progress is stored")


def test_a_handler_that_asks_the_program_to_exit_only_fails(cluster: Cluster, producer: Producer, topic: str) -> None:
    producer.send(Message(topic, b"x"))

    def exit_once(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            sys.exit("no")

    collector = Collector(exit_once)
    with cluster.consumer(f"g-{topic}", collector, topic):
        assert [message.reconsume_times for message in collector.wait(2)] == [0, 1]


def test_a_new_group_may_begin_at_a_time(cluster: Cluster, producer: Producer, topic: str) -> None:
    # All in one queue that has lost nothing: brokers start a young queue from its beginning, so the time must be real.
    queue = producer.publish_queues(topic)[0]
    producer.send(Message(topic, b"early"), queue=queue)
    time.sleep(0.05)
    now_ms = int(time.time() * 1000)
    time.sleep(0.05)
    producer.send(Message(topic, b"late"), queue=queue)
    with cluster.admin() as admin:
        assert admin.search_offset(queue, now_ms) == 1


def test_a_topic_that_is_made_later_is_consumed_when_it_is_there(
    cluster: Cluster, producer: Producer, topic: str, unique: str
) -> None:
    later = f"{unique}-later"
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, later):
        time.sleep(0.5)
        cluster.create_topic(later)
        producer.send(Message(later, b"at last"))
        collector.wait_for_bodies({b"at last"})


def test_a_consumer_may_subscribe_to_more_while_it_runs(
    cluster: Cluster, producer: Producer, topic: str, unique: str
) -> None:
    more = f"{unique}-more"
    cluster.create_topic(more)
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic) as running:
        producer.send(Message(topic, b"one"))
        collector.wait(1)

        @running.on(more, tags="*")
        def take(message: ReceivedMessage) -> None:
            collector(message)

        producer.send(Message(more, b"two"))
        collector.wait_for_bodies({b"two"})
        running.unsubscribe(more)
        wait_until(lambda: not queues_of(running, more), "its queues were given back")


def test_a_delayed_message_comes_after_its_delay(cluster: Cluster, producer: Producer, topic: str) -> None:
    sent_ms = time.time() * 1000
    producer.send(Message(topic, b"later", delay_time_level=2))
    collector = Collector()
    with cluster.consumer(f"g-{topic}", collector, topic):
        (message,) = collector.wait(1)
    # Level 2 of these clusters is three seconds; levels are exact to a tenth of a second.
    assert message.store_timestamp_ms - sent_ms >= 2800


@pytest.mark.anyio
async def test_the_asynchronous_twins_do_the_same(cluster: Cluster, topic: str) -> None:
    got: list[bytes] = []
    everything = anyio.Event()
    consumer = AsyncPushConsumer(
        cluster.namesrv, f"g-{topic}", credentials=cluster.credentials, consume_from=ConsumeFrom.FIRST_OFFSET
    )

    @consumer.on(topic, tags="a || b")
    async def take(message: ReceivedMessage) -> None:
        await anyio.lowlevel.checkpoint()
        got.append(message.body)
        if len(got) == 60:
            everything.set()

    async with AsyncProducer(cluster.namesrv, credentials=cluster.credentials) as producer, consumer:

        async def send(number: int) -> None:
            await producer.send(Message(topic, b"%d" % number, tags="abc"[number % 3]))

        async with anyio.create_task_group() as tasks:
            for number in range(90):
                tasks.start_soon(send, number)
        with anyio.fail_after(40):
            await everything.wait()
    assert sorted(map(int, got)) == [number for number in range(90) if number % 3 != 2]


def queues_of(member: PushConsumer, topic: str) -> list[int]:
    return [queue.queue_id for queue in member.assigned_queues() if queue.topic == topic]
