"""The columns of a message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import types as T

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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def row_of(message: ReceivedMessage) -> tuple[Any, ...]:
    """A message as a row of MESSAGE. The body is decompressed; times are to the millisecond."""
    queue = message.queue
    return (
        message.topic,
        queue.broker_name,
        queue.queue_id,
        message.queue_offset,
        _EPOCH + timedelta(milliseconds=message.store_timestamp_ms),
        _EPOCH + timedelta(milliseconds=message.born_timestamp_ms),
        list(message.keys),
        message.tags,
        dict(message.properties),
        message.body,
    )
