"""How far groups are behind, in windows of time: percentiles, trend, time until drained, skew, stuck, expected loss.

A sample is one lag row of one metering record, taken at the record's `end_ms`. Queues are distinguished by broker: each
broker group has a queue 0. A group's own row (`queue_id` -1) adds the queues of one moment; moments are slots of a fifth
of the window, as brokers don't take their samples at the same time.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

WINDOW_SECONDS: Final = 300
SLOTS_PER_WINDOW: Final = 5
# Fewer samples without a step are no proof that a consumer stands still.
STUCK_SAMPLES_MIN: Final = 3
# A loss further away than this is no forecast.
LOSS_HORIZON_MS: Final = 30 * 24 * 3_600_000
# Nor is one of a backlog that is young beside the retention. One that grows at one rate has taken age / rate to become as old
# as it is, and has (retention - age) / rate left: so no forecast looks further ahead than nine times what has happened already.
LOSS_AGE_SHARE_MIN: Final = 0.1
WHOLE_GROUP: Final = -1
# A slope that is nearer to 0 is one of rounding.
SLOPE_MIN: Final = 1e-9
PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Exact below this many samples.
PERCENTILE_ACCURACY: Final = 10_000

LAG_KEY: Final = ("cluster", "consumer_group", "topic", "broker", "queue_id", "window_ms")
MEASURES: Final = tuple(
    f"{lag}_{figure}" for lag in ("lag_messages", "lag_ms") for figure in (*PERCENTILES, "max", "last")
)
LAG_WINDOW: Final = (
    *LAG_KEY,
    "window_seconds",
    "samples",
    *MEASURES,
    "trend_per_second",
    "drain_seconds",
    "drain_state",
    "skew",
    "stuck",
    "loses_data_ms",
)


def lag_samples(records: DataFrame, window_seconds: int = WINDOW_SECONDS) -> DataFrame:
    """One row per lag row: LAG_KEY, at_ms, consumer_offset, lag_messages, lag_ms (null: not known)."""
    window_ms = window_seconds * 1000
    return records.select("cluster", "broker", "end_ms", F.explode("lag").alias("row")).select(
        "cluster",
        F.col("row.group").alias("consumer_group"),
        F.col("row.topic").alias("topic"),
        F.col("broker").alias("broker"),
        F.col("row.queue_id").alias("queue_id"),
        (F.col("end_ms") - F.pmod(F.col("end_ms"), F.lit(window_ms))).alias("window_ms"),
        F.col("end_ms").alias("at_ms"),
        F.col("row.consumer_offset").alias("consumer_offset"),
        F.col("row.lag_messages").alias("lag_messages"),
        F.when(F.col("row.lag_ms") >= 0, F.col("row.lag_ms")).alias("lag_ms"),
    )


def lag_windows(samples: DataFrame, retention: DataFrame, window_seconds: int = WINDOW_SECONDS) -> DataFrame:
    """LAG_WINDOW for each queue and for each whole group.

    `retention` has cluster, retention_ms (null: none is known) and topic: null for what the brokers keep, else for a topic that
    keeps less.
    """
    queues = _queue_windows(samples, retention)
    groups = _group_windows(samples, queues, window_seconds)
    return (
        queues.select(*_COMMON)
        .unionByName(groups.select(*_COMMON))
        .withColumn("window_seconds", F.lit(window_seconds))
        .select(*LAG_WINDOW)
    )


_COMMON: Final = [name for name in LAG_WINDOW if name != "window_seconds"]


def _queue_windows(samples: DataFrame, retention: DataFrame) -> DataFrame:
    at_ms = F.col("at_ms")
    own = (
        samples.groupBy(*LAG_KEY)
        .agg(
            *_figures(at_ms),
            F.max("at_ms").alias("_last_at_ms"),
            _slope("lag_ms", at_ms, per_ms=1).alias("_age_slope"),
            (F.max_by("consumer_offset", at_ms) == F.min_by("consumer_offset", at_ms)).alias("_stands"),
            F.min("lag_messages").alias("_least_lag"),
        )
        .withColumn("stuck", F.col("_stands") & (F.col("_least_lag") > 0) & (F.col("samples") >= STUCK_SAMPLES_MIN))
        .withColumn("skew", F.lit(None).cast("double"))
    )
    brokers = retention.where(F.col("topic").isNull()).select("cluster", "retention_ms")
    topics = retention.where(F.col("topic").isNotNull()).withColumnRenamed("retention_ms", "_of_topic")
    return (
        _with_drain(own)
        .join(F.broadcast(brokers), on="cluster", how="left")
        .join(F.broadcast(topics), on=["cluster", "topic"], how="left")
        .withColumn("retention_ms", F.least("retention_ms", "_of_topic"))
        .withColumn("loses_data_ms", _loses_data_ms())
    )


def _group_windows(samples: DataFrame, queues: DataFrame, window_seconds: int) -> DataFrame:
    group = ["cluster", "consumer_group", "topic", "window_ms"]
    slot_ms = window_seconds * 1000 // SLOTS_PER_WINDOW
    slot = F.floor((F.col("at_ms") - F.col("window_ms")) / slot_ms)
    # Of each queue its last sample in the slot, then the queues together.
    in_slots = (
        samples.withColumn("slot", slot)
        .groupBy(*group, "slot", "broker", "queue_id")
        .agg(
            F.max_by("lag_messages", "at_ms").alias("lag_messages"),
            F.max_by("lag_ms", "at_ms").alias("lag_ms"),
            F.max("at_ms").alias("at_ms"),
        )
        .groupBy(*group, "slot")
        .agg(
            F.sum("lag_messages").alias("lag_messages"),
            # The oldest message may be in the queue whose age is not known.
            F.when(F.count("lag_ms") == F.count(F.lit(1)), F.max("lag_ms")).alias("lag_ms"),
            F.max("at_ms").alias("at_ms"),
            F.count(F.lit(1)).alias("queues"),
        )
    )
    # A slot in which a broker was silent would look like a group that has caught up.
    complete = in_slots.withColumn("most", F.max("queues").over(Window.partitionBy(*group))).where(
        F.col("queues") == F.col("most")
    )
    figures = complete.groupBy(*group).agg(*_figures(F.col("at_ms")))
    over_queues = queues.groupBy(*group).agg(
        (F.max("lag_messages_last") / F.nullif(F.avg("lag_messages_last"), F.lit(0.0))).alias("skew"),
        F.bool_or("stuck").alias("stuck"),
        F.min("loses_data_ms").alias("loses_data_ms"),
    )
    return (
        _with_drain(figures)
        .join(over_queues, on=group, how="inner")
        .withColumn("broker", F.lit(""))
        .withColumn("queue_id", F.lit(WHOLE_GROUP))
    )


def _figures(at_ms: Column) -> list[Column]:
    figures = [F.count(F.lit(1)).cast("int").alias("samples")]
    for lag in ("lag_messages", "lag_ms"):
        figures += [
            F.percentile_approx(lag, share, PERCENTILE_ACCURACY).alias(f"{lag}_{name}")
            for name, share in PERCENTILES.items()
        ]
        figures += [F.max(lag).alias(f"{lag}_max"), F.max_by(lag, at_ms).alias(f"{lag}_last")]
    return [*figures, _slope("lag_messages", at_ms, per_ms=1000).alias("trend_per_second")]


def _slope(name: str, at_ms: Column, *, per_ms: int) -> Column:
    """The least-squares slope per `per_ms` milliseconds; null for fewer than two moments."""
    slope = F.regr_slope(F.col(name).cast("double"), (at_ms - F.col("window_ms")).cast("double") / per_ms)
    # What goes up and down by turns has a slope of what floating point loses: it would be drained in ages.
    return F.when(F.abs(slope) < SLOPE_MIN, F.lit(0.0)).otherwise(slope)


def _with_drain(windows: DataFrame) -> DataFrame:
    last, trend = F.col("lag_messages_last"), F.col("trend_per_second")
    state = (
        F.when(last == 0, F.lit("drained"))
        .when(trend.isNull(), F.lit("unknown"))
        .when(trend < 0, F.lit("draining"))
        .when(trend >= 0, F.lit("never"))
    )
    seconds = F.when(last == 0, F.lit(0.0)).when(trend < 0, last / -trend)
    return windows.withColumn("drain_state", state).withColumn("drain_seconds", seconds)


def _loses_data_ms() -> Column:
    """When the oldest message not consumed reaches the age at which retention deletes it, if nothing changes."""
    remaining = F.col("retention_ms") - F.col("lag_ms_last")
    # A consumer that stands still lets its oldest message age as time goes.
    slope = F.when(F.col("stuck"), F.lit(1.0)).otherwise(F.col("_age_slope"))
    eta_ms = remaining / slope
    is_drained_before = (F.col("drain_state") == "draining") & (F.col("drain_seconds") * 1000 <= eta_ms)
    return (
        F.when((F.col("lag_messages_last") == 0) | remaining.isNull(), F.lit(None))
        .when(remaining <= 0, F.col("_last_at_ms"))
        .when(slope.isNull() | (slope <= 0), F.lit(None))
        .when(F.col("lag_ms_last") < F.col("retention_ms") * LOSS_AGE_SHARE_MIN, F.lit(None))
        .when(is_drained_before | (eta_ms > LOSS_HORIZON_MS), F.lit(None))
        .otherwise(F.col("_last_at_ms") + eta_ms.cast("long"))
        .cast("long")
    )
