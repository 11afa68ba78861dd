"""Our producers and consumers write trace records when they are asked to, and their work doesn't depend on it."""

from __future__ import annotations

import pytest

from highwater import Admin, ConfigurationError, Message, MessageIllegalError, Producer, ReceivedMessage
from highwater.trace_story import TraceStory
from mqwire.names import RMQ_SYS_TRACE_TOPIC
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until


@pytest.fixture
def traces(admin: Admin, unique: str) -> str:
    """A topic for trace records."""
    name = f"{unique}-traces"
    admin.create_topic(name, cluster="DefaultCluster", read_queue_nums=2, write_queue_nums=2)
    return name


def reported(admin: Admin, message_id: str, traces: str, sends: int, deliveries: int) -> TraceStory:
    found = [TraceStory()]

    def is_whole() -> bool:
        found[0] = admin.message_traces(message_id, trace_topic=traces)
        ended = [one for one in found[0].deliveries if one.result]
        return (len(found[0].sends), len(ended)) == (sends, deliveries)

    wait_until(is_whole, f"{sends} sends and {deliveries} deliveries are recorded")
    return found[0]


def test_a_send_and_its_deliveries_are_reported(cluster: Cluster, admin: Admin, topic: str, traces: str) -> None:
    def fail_at_first(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise ValueError("out of stock")

    collector = Collector(fail_at_first)
    consumer = cluster.consumer(f"g-{topic}", collector, topic, enable_msg_trace=True, trace_topic=traces)
    producer = cluster.producer(enable_msg_trace=True, trace_topic=traces)
    with consumer, producer:
        sent = producer.send(Message(topic, b"two apples", keys=["o-1"]))
        collector.wait(2)
        story = reported(admin, sent.message_id, traces, sends=1, deliveries=2)
    (send,) = story.sends
    assert (send.topic, send.group, send.body_size_bytes, send.is_success) == (topic, "producers", 10, True)
    assert send.store_host == cluster.broker_address
    assert [(one.result, one.retried) for one in story.deliveries] == [("exception", 0), ("success", 1)]
    assert {one.group for one in story.deliveries} == {f"g-{topic}"}


def test_each_message_of_a_batch_is_reported(cluster: Cluster, admin: Admin, topic: str, traces: str) -> None:
    with cluster.producer(enable_msg_trace=True, trace_topic=traces) as producer:
        sent = producer.send_batch([Message(topic, b"a"), Message(topic, b"bb")])
    sizes = [reported(admin, one, traces, sends=1, deliveries=0).sends[0].body_size_bytes for one in sent.message_ids]
    assert sizes == [1, 2]


def test_records_are_found_by_the_messages_keys(cluster: Cluster, admin: Admin, topic: str, traces: str) -> None:
    with cluster.producer(enable_msg_trace=True, trace_topic=traces) as producer:
        producer.send(Message(topic, b"a", keys=["o-17"]))
    wait_until(lambda: bool(admin.query_messages(traces, "o-17").messages), "the index has the key")


def test_without_a_trace_topic_sends_go_on(
    cluster: Cluster, topic: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.producer(enable_msg_trace=True, trace_topic=f"{unique}-missing") as producer:
        assert producer.send(Message(topic, b"a")).message_id
    assert "1 trace records could not be sent: is traceTopicEnable on?" in caplog.text


def test_a_refused_message_is_an_error_as_without_tracing(cluster: Cluster, topic: str, traces: str) -> None:
    with cluster.producer(enable_msg_trace=True, trace_topic=traces) as producer:
        with pytest.raises(MessageIllegalError):
            producer.send(Message(topic, b""))


def test_a_trace_topic_has_a_topics_name() -> None:
    with pytest.raises((ConfigurationError, MessageIllegalError)):
        Producer("127.0.0.1:1", enable_msg_trace=True, trace_topic="no topic")
    assert Producer("127.0.0.1:1", enable_msg_trace=True, trace_topic=RMQ_SYS_TRACE_TOPIC)
