"""The metering record in Spark's types: as JSON (see mqwire.metering) and as it lies in the lake."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as T


def _long(name: str) -> T.StructField:
    return T.StructField(name, T.LongType())


def _text(name: str) -> T.StructField:
    return T.StructField(name, T.StringType())


IN_ROW: Final = T.StructType(
    [_text("topic"), _text("credential"), _text("kind"), _long("messages"), _long("bytes"), _long("units")]
)
OUT_ROW: Final = T.StructType(
    [_text("topic"), _text("group"), _text("credential"), _long("messages"), _long("bytes"), _long("units")]
)
LAG_ROW: Final = T.StructType(
    [
        _text("topic"),
        _text("group"),
        T.StructField("queue_id", T.IntegerType()),
        _long("consumer_offset"),
        _long("max_offset"),
        _long("lag_messages"),
        _long("lag_ms"),
    ]
)
STORAGE_ROW: Final = T.StructType([_text("topic"), _long("bytes")])
CONNECTIONS: Final = T.StructType([_long("producers"), _long("consumers")])

# What mqwire.metering writes, as Arrow's JSON reader takes it; checked before by mqwire.metering alone.
JSON_RECORD: Final = T.StructType(
    [
        _text("broker"),
        _long("epoch"),
        _long("sequence"),
        _long("start_ms"),
        _long("end_ms"),
        _long("start_offset"),
        _long("end_offset"),
        T.StructField("recounted", T.BooleanType()),
        T.StructField("in", T.ArrayType(IN_ROW)),
        T.StructField("out", T.ArrayType(OUT_ROW)),
        T.StructField("lag", T.ArrayType(LAG_ROW)),
        T.StructField("storage", T.ArrayType(STORAGE_ROW)),
        T.StructField("connections", CONNECTIONS),
        _long("deleted_to"),
    ]
)

# A record as it is read: without its cluster. `start` is start_ms as a timestamp.
READ_RECORD: Final = T.StructType(
    [
        _text("broker"),
        _long("epoch"),
        _long("sequence"),
        _long("start_ms"),
        _long("end_ms"),
        _long("start_offset"),
        _long("end_offset"),
        T.StructField("recounted", T.BooleanType()),
        T.StructField("messages_in", T.ArrayType(IN_ROW)),
        T.StructField("messages_out", T.ArrayType(OUT_ROW)),
        T.StructField("lag", T.ArrayType(LAG_ROW)),
        T.StructField("storage", T.ArrayType(STORAGE_ROW)),
        T.StructField("connections", CONNECTIONS),
        _long("deleted_to"),
        T.StructField("queue_id", T.IntegerType()),
        _long("queue_offset"),
        _long("ingested_ms"),
        T.StructField("start", T.TimestampType()),
        # Null in records that were read before these were.
        _long("clock_step_ms"),
        _long("pulls_lost_ms"),
    ]
)
# One row per record. `cluster` is the control plane's cluster id. A record belongs to the hour in which its interval begins, whole.
LAKE_RECORD: Final = T.StructType([_text("cluster"), *READ_RECORD.fields])

REFUSED_MESSAGE: Final = T.StructType(
    [
        _text("reason"),
        T.StructField("body", T.BinaryType()),
        _text("broker_name"),
        T.StructField("queue_id", T.IntegerType()),
        _long("queue_offset"),
        T.StructField("store_timestamp", T.TimestampType()),
        T.StructField("ingested_at", T.TimestampType()),
    ]
)
QUARANTINE_ROW: Final = T.StructType([_text("cluster"), *REFUSED_MESSAGE.fields])

# Two records with this key are one record, read twice.
RECORD_KEY: Final = ("cluster", "broker", "epoch", "sequence")
# What a record of a key that was used again (after a power cut that lost the first) differs in.
RECORD_IDENTITY: Final = (*RECORD_KEY, "start_offset", "end_offset", "end_ms", "recounted")
QUARANTINE_IDENTITY: Final = ("cluster", "broker_name", "queue_id", "queue_offset", "store_timestamp")
