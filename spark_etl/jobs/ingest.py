"""ingest: every cluster's metering topic -> the lake, by a stream with a checkpoint per cluster.

At least once from the stream, exactly once in the lake: what is there already is left out, by (cluster, broker, epoch,
sequence). So each batch also reads some messages in front of its checkpoint again: after an unclean promotion other
messages lie there.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from mqwire.names import RMQ_SYS_METERING
from spark_etl.jobs.config import JobConfig, JobResult, MeteredCluster
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.run import main, shortened
from spark_etl.transforms.parse import parse, quarantined, records
from spark_etl.transforms.time import to_ms

logger = logging.getLogger("spark_etl")

CLUSTERS_AT_ONCE: Final = 4
MESSAGES_PER_BATCH: Final = 5000
# A broker has one metering queue: in parts, so that a batch keeps several cores busy.
MESSAGES_PER_PARTITION: Final = 1250
# Two hours of a record a minute: far more than asynchronous replication can be behind.
OVERLAP_MESSAGES: Final = 120
RETRY_TIMEOUT_MS: Final = 30_000
CONTINUOUS_INTERVAL: Final = "10 seconds"
POLL_S: Final = 0.5
LAST_BATCH_S_MAX: Final = 10.0

Now = Callable[[], datetime]


@dataclass
class Tally:
    """What one cluster's stream did."""

    rows_in: int = 0
    rows_out: int = 0
    rows_quarantined: int = 0
    error: str = ""


def run(spark: SparkSession, config: JobConfig, *, now: Now = lambda: datetime.now(UTC)) -> JobResult:
    """One run over all clusters. A cluster that can't be read fails the run, after the others were read."""
    lake = Lake(spark, config.lake)
    with connected(spark, config.database, config.job), _stopping(config) as stopping:
        tallies = _read_all(spark, config, lake, stopping, now)
    failures = [
        f"{cluster.cluster_name} ({cluster.cluster_id}): {tally.error}"
        for cluster, tally in zip(config.clusters, tallies, strict=True)
        if tally.error
    ]
    return JobResult(
        "failed" if failures else "completed",
        rows_in=sum(tally.rows_in for tally in tallies),
        rows_out=sum(tally.rows_out for tally in tallies),
        rows_quarantined=sum(tally.rows_quarantined for tally in tallies),
        error="\n".join(failures),
    )


@contextmanager
def _stopping(config: JobConfig) -> Iterator[threading.Event]:
    """Set by SIGTERM, the usual end of a continuous run; its batches are then completed."""
    stopping = threading.Event()
    if config.continuous_seconds is None or threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGTERM, before)


def _read_all(spark: SparkSession, config: JobConfig, lake: Lake, stopping: threading.Event, now: Now) -> list[Tally]:
    def read(cluster: MeteredCluster) -> Tally:
        return _read_cluster(spark, config, lake, cluster, stopping, now)

    # In continuous mode all streams run beside each other.
    workers = CLUSTERS_AT_ONCE if config.continuous_seconds is None else len(config.clusters)
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(read, config.clusters))


def _read_cluster(
    spark: SparkSession,
    config: JobConfig,
    lake: Lake,
    cluster: MeteredCluster,
    stopping: threading.Event,
    now: Now,
) -> Tally:
    tally = Tally()

    def take(messages: DataFrame, batch_id: int) -> None:
        add_batch(messages, cluster, lake, tally, now_ms=to_ms(now()))

    writer = (
        spark.readStream.format("highwater")
        .options(**source_options(cluster))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", f"{config.checkpoints}/ingest/{cluster.cluster_id}")
    )
    try:
        if config.continuous_seconds is None:
            writer.trigger(availableNow=True).start().awaitTermination()
        else:
            query = writer.trigger(processingTime=CONTINUOUS_INTERVAL).start()
            _run_for(query, config.continuous_seconds, stopping)
    except PySparkException as error:
        logger.exception("cluster %s was not read to its end", cluster.cluster_id)
        tally.error = shortened(error)
    return tally


def _run_for(query: StreamingQuery, seconds: float, stopping: threading.Event) -> None:
    deadline_s = time.monotonic() + seconds
    try:
        while query.isActive and time.monotonic() < deadline_s and not stopping.wait(POLL_S):
            pass
        # A batch that is under way may end; one that can't is done again by the next run.
        deadline_s = time.monotonic() + LAST_BATCH_S_MAX
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        failure = query.exception()
        if failure is not None:
            raise failure
    finally:
        query.stop()


def source_options(cluster: MeteredCluster) -> dict[str, str]:
    """How a cluster's metering topic is read."""
    credentials = {"accessKey": cluster.access_key, "secretKey": cluster.secret_key} if cluster.access_key else {}
    return {
        "namesrv": cluster.namesrv_addr,
        "topic": RMQ_SYS_METERING,
        "maxMessagesPerTrigger": str(MESSAGES_PER_BATCH),
        "maxMessagesPerPartition": str(MESSAGES_PER_PARTITION),
        "overlapMessages": str(OVERLAP_MESSAGES),
        "retryTimeoutMs": str(RETRY_TIMEOUT_MS),
        # What retention took before it was read can't be had by stopping; billing_check names the gap.
        "failOnDataLoss": "false",
        **credentials,
    }


def add_batch(messages: DataFrame, cluster: MeteredCluster, lake: Lake, tally: Tally, *, now_ms: int) -> None:
    """Messages of a metering topic -> the lake and its quarantine; safe to repeat."""
    parsed = parse(messages, cluster_id=cluster.cluster_id, cluster_name=cluster.cluster_name, now_ms=now_ms)
    # Kept once, without the text of what was understood: Spark would parse it anew for each column that is taken of it.
    kept = parsed.withColumn("body", F.when(F.col("reason").isNotNull(), F.col("body"))).drop("properties", "keys")
    kept = kept.persist()
    try:
        counts = kept.agg(F.count(F.lit(1)).alias("rows"), F.count("reason").alias("refused")).collect()[0]
        rows_quarantined = lake.add_quarantined(quarantined(kept), cluster.cluster_id) if counts.refused else 0
        if counts.rows > counts.refused:
            tally.rows_out += lake.add_records(records(kept), cluster.cluster_id)
        tally.rows_in += counts.rows
        tally.rows_quarantined += rows_quarantined
    finally:
        kept.unpersist()


if __name__ == "__main__":
    sys.exit(main("ingest", run))
