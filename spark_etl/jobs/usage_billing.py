"""usage_billing: the lake's records -> hourly usage with prices in billing_usage.

A run counts whole hours anew, all that lie in the late window (or in the range that was asked for), and merges. So running it twice
changes nothing, and a late record corrects its hour with the next run.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.counting import count_usage
from spark_etl.jobs.postgres import Target, connected
from spark_etl.jobs.run import main
from spark_etl.transforms.late import closed_hours_with_late_records

logger = logging.getLogger("spark_etl")

USAGE: Final = Target(
    table="billing_usage",
    key=("cluster_id", "hour", "direction", "topic", "consumer_group", "credential", "kind"),
    values=("tenant_id", "messages", "bytes", "units", "billed_units", "price_id", "amount"),
    time="hour",
    touched="updated_at",
)


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run."""
    with connected(spark, config.database, config.job) as postgres:
        counted = count_usage(spark, config, postgres, now or datetime.now(UTC))
        rows = usage_rows(counted.usage).persist()
        try:
            row_count = rows.count()
            postgres.merge(USAGE, rows, counted.scopes, config.run_id)
        finally:
            rows.unpersist()
        _tell_late(counted.records, config)
    return JobResult(
        rows_in=counted.record_count, rows_out=row_count, range_from=counted.range_from, range_to=counted.range_to
    )


def usage_rows(usage: DataFrame) -> DataFrame:
    """Priced usage in the table's columns."""
    return usage.select(
        F.col("cluster").alias("cluster_id"),
        F.timestamp_millis("hour_ms").alias("hour"),
        *("direction", "topic", "consumer_group", "credential", "kind"),
        *USAGE.values,
    )


def _tell_late(records: DataFrame, config: JobConfig) -> None:
    """Records that came after their hour's window: only a backfill brings them to the database."""
    for row in closed_hours_with_late_records(records, config.late_window).limit(20).collect():
        logger.warning("cluster %s got %d records after the window of hour %d", row.cluster, row.records, row.hour_ms)


if __name__ == "__main__":
    sys.exit(main("usage_billing", run))
