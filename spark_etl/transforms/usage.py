"""Hourly usage: what each hour of each cluster counted, by direction, topic, group, credential and kind."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqwire.metering import INTERNAL_PREFIX, INTERNAL_TOPICS
from spark_etl.transforms.time import HOUR_MS, hour_begin_ms

USAGE_KEY: Final = ("cluster", "hour_ms", "direction", "topic", "consumer_group", "credential", "kind")
USAGE_COUNTS: Final = ("messages", "bytes", "units")
# The lists of a record, and the direction in which their lines count.
_LISTS: Final = {"messages_in": "in", "messages_out": "out", "storage": "storage"}


def hourly_usage(records: DataFrame) -> DataFrame:
    """USAGE_KEY and USAGE_COUNTS, one row per key; `hour_ms` is the hour's begin, `bytes` of storage are byte-hours.

    `records` are the lake's, deduplicated.
    """
    return (
        _lines(records)
        .where(~_is_internal(F.col("topic")))
        .groupBy(*USAGE_KEY)
        .agg(
            F.sum("messages").alias("messages"),
            (F.sum("bytes") + F.coalesce(_byte_hours(F.sum("byte_ms")), F.lit(0))).alias("bytes"),
            F.sum("units").alias("units"),
        )
        .select(*USAGE_KEY, *USAGE_COUNTS)
    )


def _lines(records: DataFrame) -> DataFrame:
    """What the three lists of each record count: USAGE_KEY, USAGE_COUNTS and `byte_ms`, one row per line.

    A record becomes three rows that have one list each, whose lines become rows. That is compiled; to make the lines
    equal in shape within one list takes three times the processor time, since functions of lists are interpreted.
    """
    rows = records.select(
        "cluster",
        hour_begin_ms(F.col("start_ms")).alias("hour_ms"),
        (F.col("end_ms") - F.col("start_ms")).alias("interval_ms"),
        F.stack(F.lit(len(_LISTS)), *_one_list_each(records)).alias("direction", *_LISTS),
    )
    for name in _LISTS:
        others = [column for column in rows.columns if column != name]
        rows = rows.select(*others, F.explode_outer(name).alias(name))
    sent, delivered, stored = (F.col(name) for name in _LISTS)
    nothing, zero = F.lit(""), F.lit(0).cast("long")
    return rows.select(
        *("cluster", "hour_ms", "direction"),
        F.coalesce(sent["topic"], delivered["topic"], stored["topic"]).alias("topic"),
        F.coalesce(delivered["group"], nothing).alias("consumer_group"),
        F.coalesce(sent["credential"], delivered["credential"], nothing).alias("credential"),
        F.coalesce(sent["kind"], nothing).alias("kind"),
        *(F.coalesce(sent[name], delivered[name], zero).alias(name) for name in USAGE_COUNTS),
        # Null where nothing was stored: a sum passes it over, and adding decimals takes time.
        _byte_ms(stored, F.col("interval_ms")).cast("decimal(28,0)").alias("byte_ms"),
        # Of an empty list there is one row without a topic.
    ).where(F.col("topic").isNotNull())


def _one_list_each(records: DataFrame) -> list[Column]:
    """The rows of `stack`: a direction, and the lists, of which the others are null."""
    return [
        column
        for own, direction in _LISTS.items()
        for column in (
            F.lit(direction),
            *(F.col(name) if name == own else F.lit(None).cast(records.schema[name].dataType) for name in _LISTS),
        )
    ]


def _byte_ms(row: Column, interval_ms: Column) -> Column:
    return row["bytes"].cast("decimal(19,0)") * interval_ms.cast("decimal(13,0)")


def _byte_hours(byte_ms: Column) -> Column:
    """Rounded half up, exactly."""
    return F.call_function("div", byte_ms + F.lit(HOUR_MS // 2), F.lit(HOUR_MS).cast("decimal(10,0)"))


def _is_internal(topic: Column) -> Column:
    return topic.isin(*INTERNAL_TOPICS) | topic.startswith(INTERNAL_PREFIX)
