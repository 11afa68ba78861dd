"""repair: what an operator asks for when records of the lake are missing, or usage falls.

reread     the next ingest reads these clusters from the oldest record that their brokers have (72 hours); what is there is left out
requeue    refused messages that are records for this version of the program leave the quarantine for the lake
accept     usage of the refused hours in `range` may fall, for a reason that is kept
migrate    the Parquet files of a lake of before (its folder as `source`) are added to the tables
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_etl.errors import ConfigError
from spark_etl.jobs.arrow_map import map_in_arrow
from spark_etl.jobs.config import JobConfig, JobResult, Repair
from spark_etl.jobs.ingest import add_read
from spark_etl.jobs.lake import QUARANTINE, Lake, hours_around, opened_lake
from spark_etl.jobs.metering_reader import READ, reread_refused
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import INGEST, State
from spark_etl.transforms.metering_schema import LAKE_RECORD


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run. `rows_out` is how many queues will be read again, records were added, or hours were accepted."""
    wanted = config.repair
    if wanted is None:
        raise ConfigError(
            "The configuration says nothing to repair.", "give the member repair, see spark_etl/README.md."
        )
    # What it adds must not meet what an ingest adds.
    with (
        connected(spark, config.database, INGEST) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        if wanted.action == "reread":
            return JobResult(rows_out=state.read_from_start(wanted.clusters))
        if wanted.action == "accept":
            if not wanted.reason:
                raise ConfigError("No reason was given why usage may fall.", "say it in repair.reason.")
            begin, end = config.range or (None, None)
            return JobResult(rows_out=state.accept(wanted.clusters, begin, end, wanted.by, wanted.reason))
        moment = now or datetime.now(UTC)
        result = _migrate(lake, wanted) if wanted.action == "migrate" else _requeue(lake, config, wanted, moment)
        state.catch_up(lake)
        return result


def _requeue(lake: Lake, config: JobConfig, wanted: Repair, now: datetime) -> JobResult:
    """Refused messages, read again. Those that are records now leave the quarantine after they are in the lake."""
    names = {
        cluster.cluster_id: cluster.cluster_name
        for cluster in config.clusters
        if not wanted.clusters or cluster.cluster_id in wanted.clusters
    }
    refused = lake.quarantined().where(F.col("cluster").isin(list(names)))
    read = map_in_arrow(refused, reread_refused(names, int(now.timestamp() * 1000)), READ).persist()
    try:
        result, _ = add_read(lake, read, names)
        good = read.where("record is not null").select(
            "cluster", F.col("record.broker").alias("broker_name"), "record.queue_id", "record.queue_offset"
        )
        # By way of the driver: Spark 4.1 can't plan a merge whose source is a view of the table itself, and Iceberg's delete
        # takes no subquery over several columns.
        keys = good.distinct().collect()
        lake.spark.createDataFrame(keys, good.schema).createOrReplaceTempView("good")
        lake.spark.sql(
            f"merge into {lake.table(QUARANTINE)} kept using good on kept.cluster = good.cluster"
            " and kept.broker_name = good.broker_name and kept.queue_id = good.queue_id"
            " and kept.queue_offset = good.queue_offset when matched then delete"
        )
    finally:
        read.unpersist()
    result.rows_quarantined = 0
    return result


def _migrate(lake: Lake, wanted: Repair) -> JobResult:
    """SOURCE/metering/date=…/hour=…/cluster=…/*.parquet, as ingest wrote them before there were tables."""
    if not wanted.source:
        raise ConfigError("No lake was named to migrate.", "give its folder as repair.source.")
    old = (
        lake.spark.read.option("basePath", f"{wanted.source}/metering")
        .parquet(f"{wanted.source}/metering")
        .withColumn("start", F.timestamp_millis("start_ms"))
        .withColumn("cluster", F.col("cluster").cast("string"))
    )
    if "queue_id" not in old.columns:
        old = old.withColumn("queue_id", F.lit(0))  # there was one metering queue
    for field in LAKE_RECORD:
        if field.name not in old.columns:
            old = old.withColumn(field.name, F.lit(None).cast(field.dataType))
    old = old.select(*LAKE_RECORD.names)
    ((rows, first_ms, last_ms),) = old.agg(F.count(F.lit(1)), F.min("start_ms"), F.max("start_ms")).collect()
    before = lake.count()
    if rows:
        lake.add_records(old, hours_around(first_ms, last_ms))
    return JobResult(rows_in=rows, rows_out=lake.count() - before, snapshot_id=str(lake.snapshot() or ""))


if __name__ == "__main__":
    sys.exit(main("repair", run))
