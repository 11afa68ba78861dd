"""`spark.readStream.format("highwater")`: checkpoints, limits, failover."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_etl.datasource.options import parse_options
from spark_etl.datasource.source import TopicStreamReader
from spark_etl.errors import LostMessagesError
from tests.daemons import DaemonCluster, ReplicaGroup
from tests.processes import wait_until
from tests.replication.replicas import demote, promote, wait_level
from tests.spark_etl.topics import Topic, numbers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonCluster]:
    with DaemonCluster.start(tmp_path_factory.mktemp("etl-stream")) as running:
        yield running


@pytest.fixture
def topic(spark: SparkSession, cluster: DaemonCluster) -> Topic:
    return Topic.make(spark, cluster.namesrv, cluster.broker.address, queues=2)


class Stream:
    """A query that remembers its batches. `drain` reads what is there, and goes on from its checkpoint the next time."""

    def __init__(self, topic: Topic, checkpoint: Path, **options: Any) -> None:
        self.topic = topic
        self.batches: list[list[str]] = []
        self._checkpoint = checkpoint
        self._options = topic.options(**options)

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted(row.text for row in batch.selectExpr("cast(body as string) as text").collect()))

    @property
    def bodies(self) -> list[str]:
        return sorted(body for batch in self.batches for body in batch)

    def writer(self) -> Any:
        frame = self.topic.spark.readStream.format("highwater").options(**self._options).load()
        return frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))

    def run(self) -> list[str]:
        """As a running query, which limits divide into micro-batches, until it has read what is there."""
        self.batches = []
        query = self.writer().trigger(processingTime="100 milliseconds").start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return self.bodies

    def drain(self) -> list[str]:
        self.batches = []
        self.writer().trigger(availableNow=True).start().awaitTermination()
        return self.bodies


def test_a_stream_goes_on_where_its_checkpoint_stands(topic: Topic, tmp_path: Path) -> None:
    first = topic.send(numbers(0, 30))
    assert Stream(topic, tmp_path / "checkpoint").drain() == first
    second = topic.send(numbers(30, 45))
    again = Stream(topic, tmp_path / "checkpoint")
    assert again.drain() == second
    assert again.drain() == []


def test_a_limit_divides_what_waits_into_batches_also_after_a_restart(topic: Topic, tmp_path: Path) -> None:
    sent = topic.send(numbers(0, 25))
    stream = Stream(topic, tmp_path / "checkpoint", maxMessagesPerTrigger=10)
    assert stream.run() == sent
    assert [len(batch) for batch in stream.batches] == [10, 10, 5]
    later = topic.send(numbers(25, 40))
    again = Stream(topic, tmp_path / "checkpoint", maxMessagesPerTrigger=10)
    assert again.run() == later
    assert [len(batch) for batch in again.batches] == [10, 5]


def test_a_stream_may_begin_at_the_end(topic: Topic, tmp_path: Path) -> None:
    topic.send(numbers(0, 10))
    stream = Stream(topic, tmp_path / "checkpoint", startingOffsets="latest")
    assert stream.drain() == []
    assert Stream(topic, tmp_path / "checkpoint", startingOffsets="latest").drain() == []
    later = topic.send(numbers(10, 14))
    assert stream.drain() == later


def test_a_running_stream_takes_what_comes_and_survives_a_broker_restart(
    topic: Topic, cluster: DaemonCluster, tmp_path: Path
) -> None:
    stream = Stream(topic, tmp_path / "checkpoint")
    query = stream.writer().trigger(processingTime="100 milliseconds").start()
    try:
        first = topic.send(numbers(0, 5))
        wait_until(lambda: stream.bodies == first, timeout_s=60, what="the first messages came")
        cluster.broker.stop()
        cluster.broker.start()
        second = topic.send(numbers(5, 9))
        wait_until(lambda: stream.bodies == first + second, timeout_s=60, what="those after the restart came")
        assert query.exception() is None
    finally:
        query.stop()


def stream_reader(topic: Topic, **options: Any) -> TopicStreamReader:
    return TopicStreamReader(parse_options(topic.options(**options), streaming=True))


def end_after(reader: TopicStreamReader, start: dict[str, int]) -> dict[str, int]:
    """Where the next micro-batch ends, asked as Spark does after a restart."""
    assert reader.partitions(start, start) == []
    return reader.latestOffset()


def test_an_overlap_reads_what_lies_before_the_checkpoint_again_once_something_came(topic: Topic) -> None:
    topic.send(numbers(0, 24))
    reader = stream_reader(topic, overlapMessages=3)
    try:
        start = {"broker-a:0": 10, "broker-a:1": 12}
        end = end_after(reader, start)
        assert end == {"broker-a:0": 12, "broker-a:1": 12}
        ranges = reader.partitions(start, end)
        assert [(one.queue.queue_id, one.begin, one.end) for one in ranges] == [(0, 7, 12)]  # type: ignore[attr-defined]  # QueueRange
    finally:
        reader.stop()


def test_a_queue_that_ends_before_the_checkpoint_is_an_error_with_the_way_out(topic: Topic) -> None:
    topic.send(numbers(0, 4))
    reader = stream_reader(topic)
    try:
        start = {"broker-a:0": 900, "broker-a:1": 0}
        with pytest.raises(LostMessagesError, match=r"before the checkpoint, 900.*failOnDataLoss=false"):
            end_after(reader, start)
    finally:
        reader.stop()


def test_a_reader_that_accepts_loss_goes_back_to_the_new_end(topic: Topic) -> None:
    topic.send(numbers(0, 4))
    reader = stream_reader(topic, failOnDataLoss="false", overlapMessages=1)
    try:
        start = {"broker-a:0": 900, "broker-a:1": 2}
        end = end_after(reader, start)
        assert end == {"broker-a:0": 2, "broker-a:1": 2}
        ranges = reader.partitions(start, end)
        assert [(one.queue.queue_id, one.begin, one.end) for one in ranges] == [(0, 1, 2)]  # type: ignore[attr-defined]  # QueueRange
    finally:
        reader.stop()


def test_messages_that_are_not_there_are_an_error_with_their_offsets(topic: Topic) -> None:
    topic.send(numbers(0, 4))
    past = Topic(topic.spark, topic.namesrv, topic.name)
    with pytest.raises(PySparkException, match=r"(?s)Messages 2 to 4 of .* are gone.*failOnDataLoss=false"):
        past.bodies(endingOffsets='{"broker-a:0": 5}', retryTimeoutMs=0)
    assert len(past.bodies(endingOffsets='{"broker-a:0": 5}', retryTimeoutMs=0, failOnDataLoss="false")) == 2


def test_a_stream_follows_a_broker_that_was_promoted(spark: SparkSession, tmp_path: Path) -> None:
    """Two synchronous replicas; the master is fenced and the slave promoted between two runs, and then killed."""
    with ReplicaGroup.start(tmp_path / "group", synchronous=True) as group:
        wait_level(group)
        topic = Topic.make(spark, group.namesrv, group[0].address, queues=2)
        stream = Stream(topic, tmp_path / "checkpoint")
        sent = topic.send(numbers(0, 20))
        assert stream.drain() == sent
        sent_before = topic.send(numbers(20, 30))
        wait_level(group)
        demote(group, 0)
        promote(group, 1)
        group[0].kill()
        sent_after = topic.send(numbers(30, 40))
        assert stream.drain() == sorted(sent_before + sent_after)
        assert topic.bodies() == sorted(sent + sent_before + sent_after)
