"""lag_analytics: the lake's lag samples -> insight_lag_window.

A run counts the windows that got samples since the version of the lake that the last run had counted; all of the last
hours when there is no such version; or a range that was asked for.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.damage import isolating_damage
from spark_etl.jobs.lake import Lake, opened_lake
from spark_etl.jobs.postgres import Postgres, Scope, Target, connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import State
from spark_etl.transforms.deduplicate import superseded, without
from spark_etl.transforms.lag import LAG_KEY, LAG_WINDOW, WINDOW_SECONDS, lag_samples, lag_windows
from spark_etl.transforms.late import HourRange, hours_to_count
from spark_etl.transforms.plausible import FUTURE_MS_MAX
from spark_etl.transforms.time import HOUR_MS, from_ms

JOB: Final = "lag_analytics"
# Without a range only the last hours are counted: lag is looked at while it is fresh.
FRESH: Final = timedelta(hours=3)
WINDOW_MS: Final = WINDOW_SECONDS * 1000

LAG: Final = Target(
    table="insight_lag_window",
    key=("cluster_id", "consumer_group", "topic", "broker", "queue_id", "window_start"),
    values=(
        *(name for name in LAG_WINDOW if name not in LAG_KEY and name != "loses_data_ms"),
        "loses_data_at",
    ),
    time="window_start",
)


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run."""
    with (
        connected(spark, config.database, JOB) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        return isolating_damage(
            lake, state, lambda since: _count(lake, state, postgres, config, now or datetime.now(UTC), since)
        )


def _count(lake: Lake, state: State, postgres: Postgres, config: JobConfig, now: datetime, since: bool) -> JobResult:
    snapshot = lake.snapshot()
    done = state.progress(JOB).snapshot
    fresh = min(config.late_window, FRESH)
    # Up to where a broker's clock may be ahead: what it has sampled there comes but once.
    hours = hours_to_count(now, fresh, config.range or (now - fresh, now + timedelta(milliseconds=FUTURE_MS_MAX)))
    if snapshot is None or (config.range is None and snapshot == done):
        return JobResult(rows_in=0, rows_out=0, snapshot_id=str(snapshot or ""))
    clusters = [cluster.cluster_id for cluster in config.clusters]
    window = (F.col("end_ms") - F.pmod(F.col("end_ms"), F.lit(WINDOW_MS))).alias("window_ms")
    scopes = [Scope(cluster, hours.begin, hours.end) for cluster in clusters]
    found = lake.count()
    if since and config.range is None and done is not None and lake.is_known(done):
        touched = (
            lake.added(done, snapshot)
            .where(
                F.col("cluster").isin(clusters) & (F.col("end_ms") >= hours.from_ms) & (F.col("end_ms") < hours.to_ms)
            )
            .groupBy("cluster")
            .agg(F.min(window).alias("first"), F.max(window).alias("last"), F.count(F.lit(1)).alias("records"))
            .collect()
        )
        found = sum(row.records for row in touched)
        scopes = [Scope(row.cluster, from_ms(row["first"]), from_ms(row["last"] + WINDOW_MS)) for row in touched]
    result = JobResult(rows_in=0, rows_out=0, snapshot_id=str(snapshot))
    if scopes:
        lake.expect(found)
        result = _write(lake, postgres, config, scopes, snapshot)
    if config.range is None:
        state.save_progress(JOB, snapshot)
    return result


def _write(lake: Lake, postgres: Postgres, config: JobConfig, scopes: list[Scope], snapshot: int) -> JobResult:
    """Counts the windows of these scopes."""
    begin, end = min(scope.begin for scope in scopes), max(scope.end for scope in scopes)
    reaching = HourRange(_ms(begin) - HOUR_MS, _ms(end))  # an interval may have begun in the hour before
    bounds = lake.spark.createDataFrame(
        [(scope.cluster_id, _ms(scope.begin), _ms(scope.end)) for scope in scopes],
        "cluster string, _from long, _to long",
    )
    records = lake.records(reaching, snapshot=snapshot).select(
        *(
            "cluster",
            "broker",
            "epoch",
            "sequence",
            "start_offset",
            "end_offset",
            "end_ms",
            "recounted",
            "queue_offset",
            "lag",
        )
    )
    losers = superseded(records).collect()
    if losers:
        records = without(records, losers)
    samples = (
        lag_samples(records)
        .join(F.broadcast(bounds), on="cluster", how="inner")
        .where((F.col("at_ms") >= F.col("_from")) & (F.col("at_ms") < F.col("_to")))
        .drop("_from", "_to")
        .persist()
    )
    try:
        ((count, last_ms),) = samples.agg(F.count(F.lit(1)), F.max("at_ms")).collect()
        attempt = postgres.stage(LAG, lag_rows(lag_windows(samples, _retention(lake.spark, config))))
        with postgres.connection.transaction():
            # Where nothing was sampled, what an earlier run wrote stays.
            counted = [row.cluster for row in samples.select("cluster").distinct().collect()]
            rows = postgres.merge(
                LAG, attempt, [scope for scope in scopes if scope.cluster_id in counted], config.run_id
            )
    finally:
        samples.unpersist()
    return JobResult(
        rows_in=count,
        rows_out=rows,
        snapshot_id=str(snapshot),
        range_from=begin if count else None,
        range_to=from_ms(last_ms) if count else None,
    )


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def lag_rows(windows: DataFrame) -> DataFrame:
    """Lag windows in the table's columns."""
    return (
        windows.withColumnRenamed("cluster", "cluster_id")
        .withColumn("window_start", F.timestamp_millis("window_ms"))
        .withColumn("loses_data_at", F.timestamp_millis("loses_data_ms"))
        .select(*LAG.key, *LAG.values)
    )


def _retention(spark: SparkSession, config: JobConfig) -> DataFrame:
    rows: list[tuple[str, str | None, int | None]] = []
    for cluster in config.clusters:
        hours = cluster.retention_hours
        rows.append((cluster.cluster_id, None, None if hours is None else int(hours * HOUR_MS)))
        rows += [
            (cluster.cluster_id, topic, int(of_topic * HOUR_MS))
            for topic, of_topic in cluster.topic_retention_hours.items()
        ]
    return spark.createDataFrame(rows, "cluster string, topic string, retention_ms long")


if __name__ == "__main__":
    sys.exit(main(JOB, run))
