"""`spark.read.format("highwater")` against a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_etl.datasource.schema import MESSAGE
from tests.daemons import DaemonCluster
from tests.processes import wait_until
from tests.spark_etl.topics import Topic, numbers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonCluster]:
    with DaemonCluster.start(tmp_path_factory.mktemp("etl-batch")) as running:
        yield running


@pytest.fixture
def topic(spark: SparkSession, cluster: DaemonCluster) -> Topic:
    return Topic.make(spark, cluster.namesrv, cluster.broker.address)


def test_every_message_is_read_once_in_one_partition_per_queue(topic: Topic) -> None:
    sent = topic.send(numbers(0, 100))
    frame = topic.frame()
    assert frame.rdd.getNumPartitions() == 4
    assert topic.bodies() == sent


def test_a_row_shows_all_about_its_message(topic: Topic) -> None:
    topic.send(["héllo"], tags="paid", keys=["k1", "k2"], properties={"colour": "blau"})
    frame = topic.frame()
    assert frame.schema == MESSAGE
    row = frame.collect()[0]
    assert (row.topic, row.broker_name, row.queue_offset) == (topic.name, "broker-a", 0)
    assert (row.tags, row["keys"], row.properties["colour"]) == ("paid", ["k1", "k2"], "blau")
    assert bytes(row.body) == "héllo".encode()
    assert row.born_timestamp <= row.store_timestamp


def test_ranges_are_split_by_a_number_of_messages(topic: Topic) -> None:
    sent = topic.send(numbers(0, 40))
    assert topic.frame(maxMessagesPerPartition=5).rdd.getNumPartitions() == 8
    assert topic.bodies(maxMessagesPerPartition=5) == sent


def test_an_empty_topic_has_no_rows(topic: Topic) -> None:
    assert topic.bodies() == []


def test_offsets_bound_what_is_read(spark: SparkSession, cluster: DaemonCluster) -> None:
    topic = Topic.make(spark, cluster.namesrv, cluster.broker.address, queues=1)
    sent = topic.send(numbers(0, 50))
    assert topic.bodies(startingOffsets='{"broker-a:0": 10}', endingOffsets='{"broker-a:0": 30}') == sent[10:30]
    assert topic.bodies(startingOffsets="latest") == []


def test_times_bound_what_is_read(spark: SparkSession, cluster: DaemonCluster) -> None:
    topic = Topic.make(spark, cluster.namesrv, cluster.broker.address, queues=2)
    before = topic.send(numbers(0, 10))
    stored_ms = max(row.ms for row in topic.frame().selectExpr("unix_millis(store_timestamp) as ms").collect())
    between_ms = stored_ms + 1
    wait_until(lambda: datetime.now(UTC).timestamp() * 1000 > between_ms + 1, timeout_s=60, what="the clock moved on")
    after = topic.send(numbers(10, 20))
    assert topic.bodies(startingTimestamp=between_ms) == after
    assert topic.bodies(endingTimestamp=between_ms) == before


def test_a_queue_that_the_topic_does_not_have_is_refused_by_name(topic: Topic) -> None:
    with pytest.raises(PySparkException, match=r"(?s)has no queue broker-b:9.*its queues are broker-a:0"):
        topic.bodies(startingOffsets='{"broker-b:9": 0}')


def test_an_unknown_option_is_refused_with_a_guess(topic: Topic) -> None:
    with pytest.raises(PySparkException, match="did you mean startingTimestamp"):
        topic.bodies(startingTimestamps=5)


def test_a_topic_that_no_one_knows_is_refused_with_the_way_out(topic: Topic) -> None:
    with pytest.raises(PySparkException, match=r"(?s)nowhere.*check the options namesrv and topic"):
        Topic(topic.spark, topic.namesrv, "nowhere").bodies(retryTimeoutMs=0)


def test_several_name_servers_may_be_given_of_which_one_is_down(topic: Topic) -> None:
    sent = topic.send(numbers(0, 3))
    assert Topic(topic.spark, f"127.0.0.1:1;{topic.namesrv}", topic.name).bodies() == sent


def test_reading_waits_for_a_broker_that_restarts(spark: SparkSession, cluster: DaemonCluster) -> None:
    topic = Topic.make(spark, cluster.namesrv, cluster.broker.address, queues=1)
    sent = topic.send(numbers(0, 20))
    frame = topic.frame().selectExpr("cast(body as string) as text")
    cluster.broker.stop()
    try:
        # The name server forgets the broker, and hears of it again.
        with pytest.raises(PySparkException, match="can't be read"):
            topic.bodies(retryTimeoutMs=0)
    finally:
        cluster.broker.start()
    assert sorted(row.text for row in frame.collect()) == sent
