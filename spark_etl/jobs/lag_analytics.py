"""lag_analytics: the lake's lag samples -> insight_lag_window."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.postgres import Scope, Target, connected
from spark_etl.jobs.run import main
from spark_etl.transforms.deduplicate import deduplicate
from spark_etl.transforms.lag import LAG_KEY, LAG_WINDOW, lag_samples, lag_windows
from spark_etl.transforms.late import HourRange, hours_to_count
from spark_etl.transforms.time import HOUR_MS, from_ms

# Without a range only the last hours are counted anew: lag is looked at while it is fresh.
FRESH: Final = timedelta(hours=3)

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
    hours = hours_to_count(now or datetime.now(UTC), min(config.late_window, FRESH), config.range)
    # An interval that began in the hour before may have ended, and been sampled, in these.
    reaching = HourRange(hours.from_ms - HOUR_MS, hours.to_ms)
    clusters = [cluster.cluster_id for cluster in config.clusters]
    records = deduplicate(Lake(spark, config.lake).records(reaching, clusters))
    in_hours = (F.col("at_ms") >= hours.from_ms) & (F.col("at_ms") < hours.to_ms)
    samples = lag_samples(records).where(in_hours).persist()
    try:
        with connected(spark, config.database, config.job) as postgres:
            seen = samples.groupBy("cluster").agg(F.count(F.lit(1)).alias("samples"), F.max("at_ms").alias("at_ms"))
            found = seen.collect()
            rows = lag_rows(lag_windows(samples, _retention(spark, config))).persist()
            row_count = rows.count()
            scopes = [Scope(row.cluster, hours.begin, hours.end) for row in found]
            postgres.merge(LAG, rows, scopes, config.run_id)
            rows.unpersist()
    finally:
        samples.unpersist()
    return JobResult(
        rows_in=sum(row.samples for row in found),
        rows_out=row_count,
        range_from=hours.begin if found else None,
        range_to=from_ms(max(row.at_ms for row in found)) if found else None,
    )


def lag_rows(windows: DataFrame) -> DataFrame:
    """Lag windows in the table's columns."""
    return (
        windows.withColumnRenamed("cluster", "cluster_id")
        .withColumn("window_start", F.timestamp_millis("window_ms"))
        .withColumn("loses_data_at", F.timestamp_millis("loses_data_ms"))
        .select(*LAG.key, *LAG.values)
    )


def _retention(spark: SparkSession, config: JobConfig) -> DataFrame:
    rows = [
        (cluster.cluster_id, None if cluster.retention_hours is None else int(cluster.retention_hours * HOUR_MS))
        for cluster in config.clusters
    ]
    return spark.createDataFrame(rows, "cluster string, retention_ms long")


if __name__ == "__main__":
    sys.exit(main("lag_analytics", run))
