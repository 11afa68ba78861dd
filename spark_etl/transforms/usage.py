"""Hourly usage: what each hour of each cluster counted, by direction, topic, group, credential and kind."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqwire import names
from spark_etl.transforms.time import HOUR_MS, hour_begin_ms

# Topics of RocketMQ and of Highwater themselves: no tenant's usage. Retry and dead-letter topics are the tenant's.
INTERNAL_TOPICS: Final = tuple(
    sorted(
        value
        for name, value in vars(names).items()
        if name.startswith(("RMQ_SYS_", "AUTO_CREATE_")) and isinstance(value, str)
    )
)
INTERNAL_PREFIXES: Final = (names.SYSTEM_TOPIC_PREFIX, names.SYSTEM_TOPIC_PREFIX.upper(), names.LMQ_PREFIX)

USAGE_KEY: Final = ("cluster", "hour_ms", "direction", "topic", "consumer_group", "credential", "kind")
USAGE_COUNTS: Final = ("messages", "bytes", "units")


def hourly_usage(records: DataFrame) -> DataFrame:
    """USAGE_KEY and USAGE_COUNTS, one row per key; `hour_ms` is the hour's begin, `bytes` of storage are byte-hours.

    `records` are the lake's, deduplicated.
    """
    interval_ms = F.col("end_ms") - F.col("start_ms")
    rows = F.concat(
        F.transform("messages_in", lambda row: _row("in", row["topic"], row, credential=row, kind=row["kind"])),
        F.transform("messages_out", lambda row: _row("out", row["topic"], row, group=row["group"], credential=row)),
        F.transform("storage", lambda row: _row("storage", row["topic"], None, byte_ms=_byte_ms(row, interval_ms))),
    )
    return (
        records.select("cluster", hour_begin_ms(F.col("start_ms")).alias("hour_ms"), F.explode(rows).alias("row"))
        .where(~_is_internal(F.col("row.topic")))
        .select("cluster", "hour_ms", "row.*")
        .groupBy(*USAGE_KEY)
        .agg(
            F.sum("messages").alias("messages"),
            (F.sum("bytes") + _byte_hours(F.sum("byte_ms"))).alias("bytes"),
            F.sum("units").alias("units"),
        )
        .select(*USAGE_KEY, *USAGE_COUNTS)
    )


def _row(
    direction: str,
    topic: Column,
    counts: Column | None,
    *,
    group: Column | None = None,
    credential: Column | None = None,
    kind: Column | None = None,
    byte_ms: Column | None = None,
) -> Column:
    """One struct of the same shape for all three directions."""
    nothing, zero = F.lit(""), F.lit(0).cast("long")
    return F.struct(
        F.lit(direction).alias("direction"),
        topic.alias("topic"),
        (nothing if group is None else group).alias("consumer_group"),
        (nothing if credential is None else credential["credential"]).alias("credential"),
        (nothing if kind is None else kind).alias("kind"),
        *((zero if counts is None else counts[name]).alias(name) for name in USAGE_COUNTS),
        (F.lit(0) if byte_ms is None else byte_ms).cast("decimal(28,0)").alias("byte_ms"),
    )


def _byte_ms(row: Column, interval_ms: Column) -> Column:
    return row["bytes"].cast("decimal(19,0)") * interval_ms.cast("decimal(13,0)")


def _byte_hours(byte_ms: Column) -> Column:
    """Rounded half up, exactly."""
    return F.call_function("div", byte_ms + F.lit(HOUR_MS // 2), F.lit(HOUR_MS).cast("decimal(10,0)"))


def _is_internal(topic: Column) -> Column:
    internal = topic.isin(*INTERNAL_TOPICS)
    for prefix in INTERNAL_PREFIXES:
        internal = internal | topic.startswith(prefix)
    return internal
