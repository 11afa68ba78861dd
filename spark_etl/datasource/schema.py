"""The columns of a message, and messages as Arrow batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from highwater import ReceivedMessage

MESSAGE: Final = T.StructType(
    [
        T.StructField("topic", T.StringType(), nullable=False),
        T.StructField("broker_name", T.StringType(), nullable=False),
        T.StructField("queue_id", T.IntegerType(), nullable=False),
        T.StructField("queue_offset", T.LongType(), nullable=False),
        T.StructField("store_timestamp", T.TimestampType(), nullable=False),
        T.StructField("born_timestamp", T.TimestampType(), nullable=False),
        T.StructField("keys", T.ArrayType(T.StringType(), containsNull=False), nullable=False),
        T.StructField("tags", T.StringType()),
        T.StructField("properties", T.MapType(T.StringType(), T.StringType(), valueContainsNull=False), nullable=False),
        T.StructField("body", T.BinaryType(), nullable=False),
    ]
)

# What one Arrow batch holds at most: a worker's memory does not grow with what it reads, nor with the size of messages.
BATCH_ROWS: Final = 2000
BATCH_BODY_BYTES: Final = 4 * 1024 * 1024


def batches_of(messages: Iterable[ReceivedMessage]) -> Iterator[pa.RecordBatch]:
    """Messages as rows of MESSAGE, in Arrow batches: one conversion for a column, where rows cost one for each of their cells.

    The body is decompressed; times are to the millisecond.
    """
    schema = to_arrow_schema(MESSAGE)
    waiting: list[ReceivedMessage] = []
    body_bytes = 0
    for message in messages:
        waiting.append(message)
        body_bytes += len(message.body)
        if len(waiting) >= BATCH_ROWS or body_bytes >= BATCH_BODY_BYTES:
            yield _batch(waiting, schema)
            waiting, body_bytes = [], 0
    if waiting:
        yield _batch(waiting, schema)


def _batch(messages: Sequence[ReceivedMessage], schema: pa.Schema) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [message.topic for message in messages],
        [message.queue.broker_name for message in messages],
        [message.queue.queue_id for message in messages],
        [message.queue_offset for message in messages],
        [message.store_timestamp_ms * 1000 for message in messages],
        [message.born_timestamp_ms * 1000 for message in messages],
        [message.keys for message in messages],
        [message.tags for message in messages],
        [list(message.properties.items()) for message in messages],
        [message.body for message in messages],
    ]
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
