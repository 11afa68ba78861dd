"""Do the usage rows say what the metering records say?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_etl.transforms.usage import USAGE_COUNTS, USAGE_KEY

COMPARED: Final = (*USAGE_COUNTS, "billed_units", "amount")


def usage_differences(expected: DataFrame, actual: DataFrame) -> DataFrame:
    """Keys whose rows differ, or that only one side has: USAGE_KEY, `difference` in words.

    `expected` is counted from the lake, `actual` read from the database; both have USAGE_KEY and COMPARED.
    """
    theirs = [F.col(name).alias(f"actual_{name}") for name in COMPARED]
    joined = expected.select(*USAGE_KEY, *COMPARED).join(
        actual.select(*USAGE_KEY, *theirs), on=list(USAGE_KEY), how="full_outer"
    )
    only_expected = F.col("actual_messages").isNull()
    only_actual = F.col("messages").isNull()
    words = F.concat_ws(", ", *(_difference(name) for name in COMPARED))
    return (
        joined.withColumn(
            "difference",
            F.when(only_expected, F.lit("missing in the database"))
            .when(only_actual, F.lit("in the database without a metering record"))
            .otherwise(words),
        )
        .where(F.col("difference") != "")
        .select(*USAGE_KEY, "difference")
    )


def _difference(name: str) -> Column:
    ours, theirs = F.col(name), F.col(f"actual_{name}")
    return F.when(
        ours != theirs,
        F.concat(F.lit(f"{name} is "), theirs.cast("string"), F.lit(", counted "), ours.cast("string")),
    )


def log_gaps(records: DataFrame) -> DataFrame:
    """Stretches of the brokers' logs that no record counted: cluster, broker, epoch, sequence, from_offset, to_offset.

    Each record starts where the one before ended, across restarts and epochs; `epoch` and `sequence` are those of the record
    after the gap. Where it says that retention had deleted the stretch, that is no gap.
    """
    in_order = Window.partitionBy("cluster", "broker").orderBy("epoch", "sequence")
    previous_end = F.lag("end_offset").over(in_order)
    deleted = F.coalesce(F.col("deleted_to") >= F.col("start_offset"), F.lit(False))
    return (
        records.withColumn("from_offset", previous_end)
        .where((F.col("start_offset") > F.col("from_offset")) & ~deleted)
        .select("cluster", "broker", "epoch", "sequence", "from_offset", F.col("start_offset").alias("to_offset"))
    )


def unread_begins(records: DataFrame, epochs: Iterable[tuple[str, str, int, int, int]]) -> DataFrame | None:
    """Where the begin of a broker's log was never counted, as in log_gaps(): its first record that was ever read does not
    begin at 0. None where there is no such broker.

    `epochs` are cluster, broker, epoch, first_offset, last_offset of every leadership.
    """
    begins: dict[tuple[str, str], int] = {}
    for cluster, broker, _, first, _ in epochs:
        begins[cluster, broker] = min(first, begins.get((cluster, broker), first))
    late = [(*key, begin) for key, begin in begins.items() if begin > 0]
    if not late:
        return None
    frame = records.sparkSession.createDataFrame(late, "cluster string, broker string, to_offset long")
    deleted = F.coalesce(F.col("deleted_to") >= F.col("start_offset"), F.lit(False))
    return (
        records.join(F.broadcast(frame), on=["cluster", "broker"], how="inner")
        .where((F.col("start_offset") == F.col("to_offset")) & ~deleted)
        .groupBy("cluster", "broker", "to_offset")
        .agg(F.min(F.struct("epoch", "sequence")).alias("first"))
        .select("cluster", "broker", "first.epoch", "first.sequence", F.lit(0).alias("from_offset"), "to_offset")
    )


def limits_of_counting(records: DataFrame) -> DataFrame:
    """What no one can count any more, bounded, and clocks that went their own way: cluster, broker, kills,
    pulls_lost_ms (in all), clock_step_ms (the largest, with its sign). Brokers of which there is nothing to say are
    left out.
    """
    lost, step = F.coalesce("pulls_lost_ms", F.lit(0)), F.coalesce("clock_step_ms", F.lit(0))
    return (
        records.where((lost > 0) | (step != 0))
        .groupBy("cluster", "broker")
        .agg(
            F.count_if(lost > 0).alias("kills"),
            F.sum(lost).alias("pulls_lost_ms"),
            F.max_by(step, F.abs(step)).alias("clock_step_ms"),
        )
    )


def missing_sequences(records: DataFrame, epochs: Iterable[tuple[str, str, int, int, int]]) -> DataFrame:
    """Numbers left out within an epoch: cluster, broker, epoch, sequence (of the next record), missing (how many). An epoch's
    first number is 1; its first record is known by where it begins, for older ones may not be among `records`.

    `epochs` are cluster, broker, epoch, first_offset, last_offset of every leadership.
    """
    firsts = [(cluster, broker, epoch, first) for cluster, broker, epoch, first, _ in epochs]
    frame = records.sparkSession.createDataFrame(firsts, "cluster string, broker string, epoch long, _first long")
    known = records.select("cluster", "broker", "epoch", "sequence", "start_offset").join(
        F.broadcast(frame), on=["cluster", "broker", "epoch"], how="left"
    )
    in_order = Window.partitionBy("cluster", "broker", "epoch").orderBy("sequence")
    before_first = F.when(F.col("start_offset") == F.col("_first"), F.lit(0))
    missing = F.col("sequence") - F.coalesce(F.lag("sequence").over(in_order), before_first) - 1
    return (
        known.withColumn("missing", missing)
        .where(F.col("missing") > 0)
        .select("cluster", "broker", "epoch", "sequence", "missing")
    )
