"""Messages of RMQ_SYS_METERING -> metering records, and a quarantine for what is none, with the reason.

What is refused here is what `mqwire.metering.decode_metering_record` refuses, and also what can't be true: a record of another
cluster, or of a time that has not come.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_etl.transforms.metering_schema import (
    CORRUPT,
    JSON_RECORD,
    KINDS,
    LAKE_RECORD,
    METERING_VERSION,
    QUARANTINE_ROW,
)
from spark_etl.transforms.time import date_of, hour_of_day

# Clocks of brokers and of Spark's driver may differ by this much.
FUTURE_MS_MAX: Final = 15 * 60 * 1000
NAME_LENGTH_MAX: Final = 255


def parse(messages: DataFrame, *, cluster_id: str, cluster_name: str, now_ms: int) -> DataFrame:
    """Adds `record` (JSON_RECORD) and `reason`, which is null for a good record.

    `messages` has the columns of the data source; `cluster_name` is what the records of this cluster say of themselves.
    """
    text = F.col("body").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return (
        messages.withColumn("record", F.from_json(text, JSON_RECORD, options))
        .withColumn("reason", _reason(cluster_name, now_ms))
        .withColumn("cluster", F.lit(cluster_id))
        .withColumn("ingested_ms", F.lit(now_ms).cast("long"))
    )


def records(parsed: DataFrame) -> DataFrame:
    """The good ones, as LAKE_RECORD."""
    record = F.col("record")
    start_ms = record["start_ms"]
    return (
        parsed.where(F.col("reason").isNull())
        .select(
            *(
                record[name].alias(name)
                for name in (
                    "broker",
                    "epoch",
                    "sequence",
                    "start_ms",
                    "end_ms",
                    "start_offset",
                    "end_offset",
                    "recounted",
                )
            ),
            record["in"].alias("messages_in"),
            record["out"].alias("messages_out"),
            record["lag"].alias("lag"),
            record["storage"].alias("storage"),
            record["connections"].alias("connections"),
            record["deleted_to"].alias("deleted_to"),
            "queue_offset",
            "ingested_ms",
            date_of(start_ms).alias("date"),
            hour_of_day(start_ms).alias("hour"),
            "cluster",
        )
        .select(*LAKE_RECORD.names)
    )


def quarantined(parsed: DataFrame) -> DataFrame:
    """The others, as QUARANTINE_ROW, by the day on which they were read."""
    return (
        parsed.where(F.col("reason").isNotNull())
        .withColumn("date", date_of(F.col("ingested_ms")))
        .select(*QUARANTINE_ROW.names)
    )


def _reason(cluster_name: str, now_ms: int) -> Column:
    """The first thing that is wrong, in words; null when nothing is."""
    record = F.col("record")
    checks: list[tuple[Column, Column]] = [
        (~F.is_valid_utf8(F.col("body").cast("string")), F.lit("not UTF-8")),
        (record.isNull() | (record["version"].isNull() & _all_null(record)), F.lit("not a JSON object")),
        (
            record["version"].isNotNull() & (record["version"] != METERING_VERSION),
            F.concat(
                F.lit("unknown version "),
                record["version"].cast("string"),
                F.lit(f": this program reads {METERING_VERSION}; update it and read the record again"),
            ),
        ),
        (record[CORRUPT].isNotNull(), F.lit("not JSON, or a member has the wrong type")),
    ]
    checks += [
        (record[name].isNull(), F.lit(f"member {name} is missing"))
        for name in JSON_RECORD.names
        if name not in (CORRUPT, "deleted_to")
    ]
    checks += [
        (_out_of_range(record[name], minimum), F.lit(f"{name} is below {minimum}"))
        for name, minimum in (
            ("epoch", 0),
            ("sequence", 1),
            ("start_ms", 0),
            ("end_ms", 0),
            ("start_offset", 0),
            ("deleted_to", 0),
        )
    ]
    checks += [
        (~_is_name(record["cluster"]) | ~_is_name(record["broker"]), F.lit("a name is empty or too long")),
        (record["end_offset"] < record["start_offset"], F.lit("end_offset is below start_offset")),
        (record["end_ms"] < record["start_ms"], F.lit("end_ms is before start_ms")),
        *((_any_bad(record[name], name), F.lit(f"a row of {name} is incomplete or out of range")) for name in _ROWS),
        (_bad_connections(record["connections"]), F.lit("connections are incomplete or below 0")),
        (
            record["cluster"] != cluster_name,
            F.concat(F.lit("a record of cluster "), record["cluster"], F.lit(f" in the log of {cluster_name}")),
        ),
        (
            record["end_ms"] > now_ms + FUTURE_MS_MAX,
            F.concat(
                F.lit("future-dated by "),
                F.expr(f"(record.end_ms - {now_ms}L) div 1000").cast("string"),
                F.lit(" s: correct the broker's clock"),
            ),
        ),
    ]
    return F.coalesce(*(F.when(wrong, words) for wrong, words in checks))


_ROWS: Final = ("in", "out", "lag", "storage")


def _all_null(record: Column) -> Column:
    names = [name for name in JSON_RECORD.names if name != CORRUPT]
    return F.coalesce(*(record[name].cast("string") for name in names if name not in (*_ROWS, "connections"))).isNull()


def _out_of_range(value: Column, minimum: int) -> Column:
    return F.coalesce(value < minimum, F.lit(False))


def _is_name(value: Column) -> Column:
    length = F.length(value)
    return (length >= 1) & (length <= NAME_LENGTH_MAX)


def _any_bad(rows: Column, name: str) -> Column:
    """Whether an element lacks a member or has one out of range."""
    good = {"in": _good_in, "out": _good_out, "lag": _good_lag, "storage": _good_storage}[name]
    return F.exists(rows, lambda row: ~F.coalesce(good(row), F.lit(False)))


def _good_in(row: Column) -> Column:
    return _is_name(row["topic"]) & _is_credential(row) & row["kind"].isin(*KINDS) & _counts(row)


def _good_out(row: Column) -> Column:
    return _is_name(row["topic"]) & _is_name(row["group"]) & _is_credential(row) & _counts(row)


def _good_lag(row: Column) -> Column:
    return (
        _is_name(row["topic"])
        & _is_name(row["group"])
        & (row["queue_id"] >= 0)
        & (row["consumer_offset"] >= 0)
        & (row["max_offset"] >= 0)
        & (row["lag_messages"] >= 0)
        & (row["lag_ms"] >= -1)
    )


def _good_storage(row: Column) -> Column:
    return _is_name(row["topic"]) & (row["bytes"] >= 0)


def _is_credential(row: Column) -> Column:
    return F.length(row["credential"]) <= NAME_LENGTH_MAX


def _counts(row: Column) -> Column:
    return (row["messages"] >= 0) & (row["bytes"] >= 0) & (row["units"] >= 0)


def _bad_connections(connections: Column) -> Column:
    return ~F.coalesce((connections["producers"] >= 0) & (connections["consumers"] >= 0), F.lit(False))
