"""Rows a second of the Spark jobs, and their memory, over generated metering rows.

    python -m tests.bench.etl                       1 and 10 million rows
    python -m tests.bench.etl --rows 50000000       another number
    python -m tests.bench.etl --quick               seconds; shows that it works, measures nothing worth quoting

For each number: `ingest` (messages as the data source gives them -> parsed, deduplicated, in the lake, in micro-batches as
the job's) and `usage_billing` (the lake -> priced hourly usage in PostgreSQL). The heap is bounded (--heap-mib, 1024);
memory is the JVM's highest resident size. A metering row is one line of a record: a topic sent to, delivered to a group, or
stored. Reading from a broker is measured apart: messages a second of the data source over one queue.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from highwater import Message, Producer
from spark_etl.datasource import register
from spark_etl.datasource.schema import MESSAGE
from spark_etl.jobs import usage_billing
from spark_etl.jobs.config import MeteredCluster, parse_config
from spark_etl.jobs.ingest import MESSAGES_PER_BATCH, Tally, add_batch
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.session import build_session
from spark_etl.transforms.time import HOUR_MS, to_ms
from tests.bench.report import Report
from tests.daemons import DaemonCluster
from tests.processes import resident_bytes
from tests.remoting import create_topic
from tests.spark_etl.database import PRICE, migrated_database
from tests.support.servers import PostgresForTests

ROWS_PER_RECORD = 200
TOPICS = 80
RECORDS_PER_HOUR = 60
CLUSTER = MeteredCluster(str(uuid.uuid4()), str(uuid.uuid4()), "bench", "127.0.0.1:1", "", "")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
READ_MESSAGES = 100_000


@dataclass
class Peak:
    """The highest resident size of a process while the block runs."""

    pid: int
    bytes: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        def watch() -> None:
            while not self._stop.wait(0.2):
                self.bytes = max(self.bytes, resident_bytes(self.pid))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


def generated(spark: SparkSession, first: int, records: int) -> DataFrame:
    """Messages of so many records of ROWS_PER_RECORD rows, made by Spark itself: a record a minute from BEGIN on."""
    part = ROWS_PER_RECORD // 4
    number = F.col("id")
    start_ms = F.lit(to_ms(BEGIN)) + number * F.lit(HOUR_MS // RECORDS_PER_HOUR)
    counts = [F.lit(7).alias("messages"), F.lit(7000).alias("bytes"), F.lit(14).alias("units")]
    key = F.lit("key-1").alias("credential")

    def of(begin: int, *columns: Any) -> Any:
        return F.transform(
            F.expr(f"sequence({begin}, {begin + part - 1})"),
            lambda row: F.struct(
                F.concat(F.lit("topic-"), F.pmod(row, F.lit(TOPICS)).cast("string")).alias("topic"), *columns
            ),
        )

    record = F.struct(
        F.lit(1).alias("version"),
        F.lit(CLUSTER.cluster_name).alias("cluster"),
        F.lit("broker-a").alias("broker"),
        F.lit(1).alias("epoch"),
        (number + 1).alias("sequence"),
        start_ms.alias("start_ms"),
        (start_ms + HOUR_MS // RECORDS_PER_HOUR).alias("end_ms"),
        (number * 1000).alias("start_offset"),
        (number * 1000 + 1000).alias("end_offset"),
        F.lit(False).alias("recounted"),
        F.concat(
            of(0, key, F.lit("normal").alias("kind"), *counts), of(part, key, F.lit("delayed").alias("kind"), *counts)
        ).alias("in"),
        of(0, F.lit("group").alias("group"), key, *counts).alias("out"),
        F.array().cast("array<struct<topic:string>>").alias("lag"),
        of(0, F.lit(1_000_000_000).alias("bytes")).alias("storage"),
        F.struct(F.lit(1).alias("producers"), F.lit(1).alias("consumers")).alias("connections"),
    )
    now = F.lit(BEGIN)
    return (
        spark.range(first, first + records, numPartitions=2)
        .select(
            F.lit("RMQ_SYS_METERING").alias("topic"),
            F.lit("broker-a").alias("broker_name"),
            F.lit(0).alias("queue_id"),
            number.alias("queue_offset"),
            now.alias("store_timestamp"),
            now.alias("born_timestamp"),
            F.array().cast("array<string>").alias("keys"),
            F.lit(None).cast("string").alias("tags"),
            F.create_map().cast("map<string,string>").alias("properties"),
            F.to_json(record).cast("binary").alias("body"),
        )
        .select(*MESSAGE.names)
    )


def measure(report: Report, spark: SparkSession, folder: Path, database: Any, rows: int) -> None:
    """Both jobs over so many rows."""
    records = math.ceil(rows / ROWS_PER_RECORD)
    rows = records * ROWS_PER_RECORD
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # a running session has one
    url = str(folder / f"lake-{rows}")
    lake, tally, peak = Lake(spark, url), Tally(), Peak(pid)
    now_ms = to_ms(BEGIN) + records * HOUR_MS
    started = time.monotonic()
    with peak.watched():
        for first in range(0, records, MESSAGES_PER_BATCH):
            batch = generated(spark, first, min(MESSAGES_PER_BATCH, records - first))
            add_batch(batch, CLUSTER, lake, tally, now_ms=now_ms)
    seconds = time.monotonic() - started
    assert (tally.rows_out, tally.rows_quarantined) == (records, 0), tally
    tell(report, f"ingest, {rows / 1e6:g} million rows", rows, seconds, peak)
    config = parse_config(
        {
            "run_id": str(uuid.uuid4()),
            "job": "usage_billing",
            "lake": url,
            "checkpoints": str(folder),
            "database": database.config,
            "range": {
                "from": BEGIN.isoformat(),
                "to": (BEGIN + timedelta(minutes=records) + timedelta(hours=1)).isoformat(),
            },
            "clusters": [
                {
                    "cluster_id": CLUSTER.cluster_id,
                    "tenant_id": CLUSTER.tenant_id,
                    "cluster_name": CLUSTER.cluster_name,
                    "namesrv_addr": CLUSTER.namesrv_addr,
                }
            ],
        },
        "usage_billing",
    )
    peak = Peak(pid)
    started = time.monotonic()
    with peak.watched():
        result = usage_billing.run(spark, config)
    seconds = time.monotonic() - started
    assert result.rows_in == records, result
    tell(report, f"usage_billing, {rows / 1e6:g} million rows", rows, seconds, peak)
    (total,) = database.rows("select sum(messages)::bigint as messages from billing_usage where direction = 'in'")
    assert total["messages"] == rows // 2 * 7, "what is in the database is not what was generated"


def measure_reading(report: Report, spark: SparkSession, folder: Path, messages: int) -> None:
    """The data source over one queue of our broker: messages of 1 KiB, one partition."""
    with DaemonCluster.start(folder / "broker") as cluster:
        create_topic(cluster.broker.address, "bench", queues=1, namesrv=cluster.namesrv)
        with Producer(cluster.namesrv) as producer:
            for _ in range(messages // 100):
                producer.send_batch([Message("bench", b"x" * 1024)] * 100)
        frame = spark.read.format("highwater").options(namesrv=cluster.namesrv, topic="bench").load()
        started = time.monotonic()
        count = frame.selectExpr("sum(length(body)) / 1024 as messages").collect()[0].messages
        seconds = time.monotonic() - started
        assert count == messages, count
    report.add("highwater", "data source, one queue, 1 KiB", [messages / seconds], unit="messages/s")


def tell(report: Report, label: str, rows: int, seconds: float, peak: Peak) -> None:
    report.add("highwater", label, [rows / seconds], unit="rows/s")
    report.add("highwater", f"{label}: memory", [peak.bytes / 1024**2], unit="MiB", higher_is_better=False)
    print(f"  {label}: {rows / seconds:,.0f} rows/s in {seconds:.1f} s, {peak.bytes / 1024**2:,.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="metering rows; may be given several times")
    parser.add_argument("--heap-mib", type=int, default=1024)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes = [20_000] if options.quick else options.rows or [1_000_000, 10_000_000]
    # Django's settings name the database as they load, before it starts.
    server = PostgresForTests()
    os.environ.update(DATABASE_URL=server.url, DJANGO_SETTINGS_MODULE="controlplane.settings.test")
    os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
    import django

    django.setup()
    report = Report()
    folder = Path(tempfile.mkdtemp(prefix="highwater-bench-etl-"))
    settings = {"spark.driver.memory": f"{options.heap_mib}m"}
    try:
        with ExitStack() as running:
            spark = build_session("bench", "local[*]", settings)
            running.callback(spark.stop)
            register(spark)
            url = running.enter_context(server.running())
            measure_reading(report, spark, folder, 2_000 if options.quick else READ_MESSAGES)
            for rows in sizes:
                with migrated_database(url) as database:
                    database.subscribe(CLUSTER.tenant_id, [PRICE])
                    measure(report, spark, folder, database, rows)
                shutil.rmtree(
                    folder / f"lake-{math.ceil(rows / ROWS_PER_RECORD) * ROWS_PER_RECORD}", ignore_errors=True
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n" + report.markdown())
    print(json.dumps({"load_average_at_start": report.load_average_at_start, "heap_mib": options.heap_mib}))


if __name__ == "__main__":
    main()
