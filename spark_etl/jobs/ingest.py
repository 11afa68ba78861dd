"""ingest: every cluster's metering topic -> the lake, all clusters in one read.

Positions follow from what was committed (state.catch_up), and what is there already is left out by (cluster, broker,
epoch, sequence): so a run that is killed anywhere is repeated without harm, and each record is in the lake exactly
once.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.arrow_map import map_in_arrow
from spark_etl.jobs.config import JobConfig, JobResult, MeteredCluster
from spark_etl.jobs.damage import isolating_damage
from spark_etl.jobs.lake import METERING, QUARANTINE, Lake, hours_around, opened_lake
from spark_etl.jobs.metering_reader import READ, TASK, Place, Task, read_tasks, tasks_frame
from spark_etl.jobs.postgres import Postgres, connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import INGEST, Position, State
from spark_etl.transforms.time import from_ms, to_ms

logger = logging.getLogger("spark_etl")

# So many clusters are worth a Python worker of their own.
CLUSTERS_PER_PARTITION: Final = 64
ERRORS_LISTED: Final = 50

Now = Callable[[], datetime]


def run(spark: SparkSession, config: JobConfig, *, now: Now = lambda: datetime.now(UTC)) -> JobResult:
    """One run over all clusters. A cluster that can't be read fails the run, after the others were read."""
    with (
        connected(spark, config.database, INGEST) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        # What a killed run had committed.
        state.catch_up(lake)
        moment = now()
        tasks = _tasks(config.clusters, state.positions(), to_ms(moment))
        errors: dict[str, str] = {}

        def work(_: bool) -> JobResult:
            result, found = _ingest(lake, tasks)
            errors.update(found)
            return result

        # What is there already is looked up in the table's files.
        result = isolating_damage(lake, state, work)
        state.catch_up(lake)
        state.read_from_start([task.cluster_id for task in tasks if task.cluster_id not in errors], value=False)
        save_cluster_progress(postgres, config.clusters, state.positions(), errors)
    return result


def _tasks(clusters: Sequence[MeteredCluster], positions: Mapping[str, Sequence[Position]], now_ms: int) -> list[Task]:
    return [
        Task(
            cluster_id=cluster.cluster_id,
            cluster_name=cluster.cluster_name,
            namesrv_addr=cluster.namesrv_addr,
            access_key=cluster.access_key,
            secret_key=cluster.secret_key,
            use_tls=cluster.use_tls,
            tls_ca=cluster.tls_ca,
            now_ms=now_ms,
            places=tuple(
                Place(
                    *(place.broker, place.queue_id, place.next_offset, place.epoch, place.sequence),
                    *(place.end_offset, place.end_ms, place.from_start),
                )
                for place in positions.get(cluster.cluster_id, ())
            ),
        )
        for cluster in clusters
        # The control plane has no address for a cluster that can't be asked.
        if cluster.namesrv_addr
    ]


def _ingest(lake: Lake, tasks: Sequence[Task]) -> tuple[JobResult, dict[str, str]]:
    """Reads the tasks and commits; returns the result, and the errors by cluster."""
    if not tasks:
        return JobResult(rows_in=0, rows_out=0, rows_quarantined=0, snapshot_id=str(lake.snapshot() or "")), {}
    spark = lake.spark
    partitions = min(-(-len(tasks) // CLUSTERS_PER_PARTITION), 4 * spark.sparkContext.defaultParallelism)
    given = spark.createDataFrame(tasks_frame(tasks), TASK).repartition(partitions)
    read = map_in_arrow(given, read_tasks, READ).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return add_read(lake, read, {task.cluster_id: task.cluster_name for task in tasks})
    finally:
        read.unpersist()


def add_read(lake: Lake, read: DataFrame, names: Mapping[str, str]) -> tuple[JobResult, dict[str, str]]:
    """Commits rows of READ; returns the result, and the errors by cluster."""
    start_ms = F.col("record.start_ms")
    ((records, refused, first_ms, last_ms, messages, out_of_order, ends),) = read.agg(
        *(F.count("record"), F.count("refused"), F.min(start_ms), F.max(start_ms)),
        *(F.sum("messages"), F.sum("out_of_order")),
        F.collect_list(F.when(F.col("error") != "", F.struct("cluster", "error"))),
    ).collect()
    lake.expect(records)
    before = (lake.count(METERING), lake.count(QUARANTINE))
    if records:
        found = read.where("record is not null").select("cluster", "record.*")
        # Not known (null) of what is read from the quarantine.
        lake.add_records(found, hours_around(first_ms, last_ms), distinct=out_of_order == 0)
    if refused:
        lake.add_quarantined(read.where("refused is not null").select("cluster", "refused.*"))
    errors = {end.cluster: end.error for end in ends}
    listed = [f"{names.get(cluster, '')} ({cluster}): {error}" for cluster, error in sorted(errors.items())]
    if len(listed) > ERRORS_LISTED:
        listed = [*listed[:ERRORS_LISTED], f"and {len(listed) - ERRORS_LISTED} more clusters"]
    return (
        JobResult(
            state="failed" if errors else "completed",
            rows_in=int(messages or 0),
            rows_out=lake.count(METERING) - before[0],
            rows_quarantined=lake.count(QUARANTINE) - before[1],
            snapshot_id=str(lake.snapshot() or ""),
            error="\n".join(listed),
            cluster_errors=errors,
        ),
        errors,
    )


def ingested_until(cluster: MeteredCluster, positions: Sequence[Position]) -> datetime | None:
    """The end of the last interval up to which every broker of the cluster was read; None when one has never been
    read.
    """
    ends: dict[str, int] = {}
    for place in positions:
        ends[place.broker] = max(ends.get(place.broker, 0), place.end_ms)
    if cluster.brokers is not None:
        ends = {broker: ends.get(broker, 0) for broker in cluster.brokers}
    first = min(ends.values(), default=0)
    return from_ms(first) if first else None


def save_cluster_progress(
    postgres: Postgres,
    clusters: Sequence[MeteredCluster],
    positions: Mapping[str, Sequence[Position]],
    errors: Mapping[str, str],
) -> None:
    """How far each cluster was ingested, for the control plane: the table is the control plane's own."""
    if not postgres.exists("insight_cluster_progress"):
        return
    with postgres.connection.transaction(), postgres.connection.cursor() as cursor:
        cursor.executemany(
            "insert into insight_cluster_progress as kept"
            " (cluster_id, ingested_until, ingest_error, ingest_failed_since, updated_at)"
            " values (%(cluster)s, %(until)s, %(error)s, case when %(error)s <> '' then now() end, now())"
            " on conflict (cluster_id) do update set"
            " ingested_until = greatest(kept.ingested_until, excluded.ingested_until), ingest_error = excluded.ingest_error,"
            " ingest_failed_since = case when excluded.ingest_error <> '' then coalesce(kept.ingest_failed_since, now()) end,"
            " updated_at = now()",
            [
                {
                    "cluster": cluster.cluster_id,
                    "until": ingested_until(cluster, positions.get(cluster.cluster_id, ())),
                    "error": errors.get(cluster.cluster_id, ""),
                }
                for cluster in clusters
                if cluster.namesrv_addr
            ],
        )


if __name__ == "__main__":
    sys.exit(main("ingest", run))
