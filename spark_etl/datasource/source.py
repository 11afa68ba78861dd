"""The data source: Spark's half. What is read, and how far, is in offsets.py and topic_reader.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from spark_etl.datasource.offsets import Offsets, QueueRange, limited, ordered, ranges
from spark_etl.datasource.options import Options, parse_options
from spark_etl.datasource.schema import MESSAGE, batches_of
from spark_etl.datasource.topic_reader import TopicReader
from spark_etl.errors import LostMessagesError

FORMAT: Final = "highwater"


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("highwater")` and `spark.readStream.format("highwater")` work in this session."""
    spark.dataSource.register(HighwaterDataSource)


class HighwaterDataSource(DataSource):
    """A topic of a Highwater or RocketMQ cluster. Options: see options.py."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return MESSAGE

    def reader(self, schema: StructType) -> DataSourceReader:
        return TopicBatchReader(parse_options(self._given, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TopicStreamReader(parse_options(self._given, streaming=True))


class TopicBatchReader(DataSourceReader):
    """`spark.read`: from one position to another, both settled when the query begins."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with TopicReader(options) as reader:
            start = reader.offsets_at(options.starting)
            end = reader.offsets_at(options.ending)
        end = {key: max(offset, start[key]) for key, offset in end.items() if key in start}
        return ranges(options.topic, start, end, max_messages=options.max_messages_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._options, partition)


class TopicStreamReader(DataSourceStreamReader):
    """`spark.readStream`: Spark keeps the offsets in its checkpoint."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # Where the next micro-batch begins. Spark 4.1 does not pass it with the question where that batch ends, but it calls
        # partitions() for each batch, and after a restart with the checkpoint as an empty range.
        self._position: Offsets | None = None
        self._open: TopicReader | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Executors need the options only; a connection can't travel.
        return {"_options": self._options, "_position": None, "_open": None}

    def initialOffset(self) -> Offsets:
        self._position = self._reader().offsets_at(self._options.starting)
        return self._position

    def latestOffset(self) -> Offsets:
        start = self._position or {}
        latest = self._reader().next_offsets()
        # A queue that is not in the route for a moment (its broker restarts) keeps its place.
        latest = {**{key: offset for key, offset in start.items() if key not in latest}, **latest}
        went_back = sorted(key for key, offset in latest.items() if offset < start.get(key, 0))
        if went_back and self._options.fail_on_data_loss:
            key = went_back[0]
            raise LostMessagesError(
                f"Queue {key} of {self._options.topic} ends at {latest[key]}, before the checkpoint, {start[key]}:"
                " messages were lost by an unclean promotion, or the topic was deleted and created again.",
                "go on with failOnDataLoss=false (and overlapMessages, for a reader that deduplicates), or take a new checkpoint.",
            )
        return limited(start, latest, self._options.max_messages_per_trigger)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._position = ordered(end)
        return ranges(
            self._options.topic,
            start,
            end,
            overlap_messages=self._options.overlap_messages,
            max_messages=self._options.max_messages_per_partition,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _batches(self._options, partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the checkpoint is Spark's, and no consumer group's progress is touched."""

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _reader(self) -> TopicReader:
        if self._open is None:
            self._open = TopicReader(self._options).__enter__()
        return self._open


def _batches(options: Options, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, QueueRange):
        return  # an empty topic: Spark asks once, for nothing
    with TopicReader(options) as reader:
        yield from batches_of(reader.read(partition))
