"""Rows a second of the Spark jobs, and their memory, over generated metering rows.

    python -m tests.bench.etl                       1 and 10 million rows
    python -m tests.bench.etl --rows 50000000       another number
    python -m tests.bench.etl --skew                ten clusters, one of which has 90 % of the rows
    python -m tests.bench.etl --quick               seconds; shows that it works, measures nothing worth quoting

For each number: `ingest` (messages as the data source gives them -> parsed, deduplicated, in the lake, in micro-batches as
the job's; they are made before the clock runs) and `usage_billing` (the lake -> priced hourly usage in PostgreSQL). Prints rows a
second and processor time (driver, JVM, Python workers) for a million rows, which means something on a busy machine too. The heap is
bounded (--heap-mib, 1024); memory is the highest resident size of the JVM, and of Spark's Python workers. A metering row is one
line of a record: a topic sent to, delivered to a group, or stored; a record here has 200.

Reading from a broker is measured apart: messages a second of the data source over one queue, and the whole job `ingest` over
--broker-rows (1 million) that lie in a broker's log.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from brokerd.store import MessageToStore
from deploy.local.costs import cost_below, memory_bytes
from highwater import Message, MessageQueue, Producer
from mqwire.message import pack_host
from mqwire.names import RMQ_SYS_METERING
from spark_etl.datasource import register
from spark_etl.datasource.schema import MESSAGE
from spark_etl.jobs import ingest, usage_billing
from spark_etl.jobs.arrow_map import map_in_arrow
from spark_etl.jobs.config import JobConfig, MeteredCluster, parse_config
from spark_etl.jobs.ingest import add_read
from spark_etl.jobs.lake import opened_lake
from spark_etl.jobs.metering_reader import READ, Order, columns_of, end_of
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.session import build_session
from spark_etl.jobs.state import INGEST, State
from spark_etl.transforms.time import HOUR_MS, to_ms
from tests.bench.report import Report
from tests.daemons import DaemonCluster
from tests.insight_end_to_end.metered_days import append
from tests.processes import resident_bytes
from tests.remoting import create_topic
from tests.spark_etl.database import PRICE, migrated_database
from tests.support.servers import PostgresForTests

ROWS_PER_RECORD = 200
TOPICS = 80
RECORDS_PER_HOUR = 60
CLUSTER = MeteredCluster(
    cluster_id=str(uuid.uuid4()), tenant_id=str(uuid.uuid4()), cluster_name="bench", namesrv_addr="127.0.0.1:1"
)
# Messages that one commit takes.
MESSAGES_PER_BATCH = 5000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
READ_MESSAGES = 100_000


@dataclass
class Peak:
    """The highest resident sizes of the JVM, and of Spark's Python workers together, while the block runs."""

    jvm: int
    jvm_bytes: int = 0
    python_bytes: int = 0
    processor_s: float = 0.0
    """What it took to look, which is no cost of the jobs."""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        def watch() -> None:
            while not self._stop.wait(0.5):
                self.jvm_bytes = max(self.jvm_bytes, resident_bytes(self.jvm))
                self.python_bytes = max(self.python_bytes, sum(map(memory_bytes, descendants(self.jvm))))
                self.processor_s = time.thread_time()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()


@dataclass
class Meter:
    """Wall-clock and processor time of the blocks that are measured."""

    peak: Peak
    seconds: float = 0.0
    processor_s: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        started, before = time.monotonic(), self._processor_s()
        yield
        self.seconds += time.monotonic() - started
        self.processor_s += self._processor_s() - before

    def _processor_s(self) -> float:
        """Of this process (the driver), and of the JVM with the Python workers below it."""
        below = cost_below(self.peak.jvm)
        assert below is not None
        return time.process_time() - self.peak.processor_s + below.processor_s


def descendants(pid: int) -> list[int]:
    """The Python processes that a process has started, and theirs."""
    parents: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (process / "stat").read_text().rsplit(")", 1)
            parent = int(rest.split()[1])
        except OSError:
            continue  # it has just ended
        # A child of the JVM that is about to become another program still has all of its memory.
        if "(python" in name:
            parents.setdefault(parent, []).append(int(process.name))
    found, waiting = [], [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


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


def config_of(
    folder: Path, database: Any, job: str, clusters: Sequence[MeteredCluster] = (CLUSTER,), **given: Any
) -> JobConfig:
    """A job's configuration over the lake in the folder."""
    values = {
        "run_id": str(uuid.uuid4()),
        "job": job,
        "namespace": "bench",
        "lake": str(folder / "lake"),
        "checkpoints": str(folder / "checkpoints"),
        "database": database.config,
        "clusters": [msgspec.to_builtins(cluster) for cluster in clusters],
        **given,
    }
    return parse_config(values, job)


@dataclass(frozen=True)
class Generated:
    """A message as the reader looks at it."""

    body: bytes
    queue: MessageQueue
    queue_offset: int
    store_timestamp_ms: int = 0


def reading(
    now_ms: int, clusters: Sequence[MeteredCluster]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a worker does with messages that it has pulled. Of several clusters the first has 90 % of them."""
    ids = [cluster.cluster_id for cluster in clusters]

    def cluster_of(row: dict[str, Any]) -> str:
        number = row["queue_offset"]
        return ids[0] if number % 10 < 9 or len(ids) == 1 else ids[1 + number // 10 % (len(ids) - 1)]

    def columns(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        orders = {cluster_id: Order() for cluster_id in ids}
        for batch in batches:
            rows = sorted(batch.to_pylist(), key=cluster_of)
            for cluster_id, found in itertools.groupby(rows, cluster_of):
                messages = [
                    Generated(
                        row["body"], MessageQueue(RMQ_SYS_METERING, "broker-a", row["queue_id"]), row["queue_offset"]
                    )
                    for row in found
                ]
                yield from columns_of(
                    messages,
                    cluster_id=cluster_id,
                    cluster_name=CLUSTER.cluster_name,
                    now_ms=now_ms,
                    order=orders[cluster_id],
                )
        for cluster_id, order in orders.items():
            yield end_of(cluster_id, 0, order)

    return columns


def measure(
    report: Report,
    spark: SparkSession,
    folder: Path,
    database: Any,
    rows: int,
    clusters: Sequence[MeteredCluster] = (CLUSTER,),
) -> None:
    """Both jobs over so many rows."""
    kind = "" if len(clusters) == 1 else ", one cluster of ten has 90 %"
    records = math.ceil(rows / ROWS_PER_RECORD)
    rows = records * ROWS_PER_RECORD
    pid = jvm_of(spark)
    peak = Peak(pid)
    now_ms = to_ms(BEGIN) + records * HOUR_MS
    meter = Meter(peak)
    made = str(folder / "messages")
    config = config_of(folder, database, "ingest", clusters)
    added = 0
    with (
        peak.watched(),
        connected(spark, config.database, INGEST) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        for first in range(0, records, MESSAGES_PER_BATCH):
            batch = generated(spark, first, min(MESSAGES_PER_BATCH, records - first))
            batch.write.mode("overwrite").parquet(made)
            with meter.measured():
                messages = lake.spark.read.parquet(made).select("body", "queue_id", "queue_offset")
                read = map_in_arrow(messages, reading(now_ms, clusters), READ).persist()
                result, _ = add_read(lake, read, {})
                read.unpersist()
                state.catch_up(lake)
            added += result.rows_out or 0
            if (first // MESSAGES_PER_BATCH) % 10 == 9:
                done = min(records, first + MESSAGES_PER_BATCH) * ROWS_PER_RECORD
                print(f"    {done / 1e6:g} million: {done / meter.seconds:,.0f} rows/s, {mib(peak)}", flush=True)
    assert added == records, added
    show(report, f"ingest, {rows / 1e6:g} million rows{kind}", rows, meter, peak)
    end = BEGIN + timedelta(minutes=records) + timedelta(hours=1)
    asked = {"from": BEGIN.isoformat(), "to": end.isoformat()}
    config = config_of(folder, database, "usage_billing", clusters, range=asked)
    peak = Peak(pid)
    meter = Meter(peak)
    with peak.watched(), meter.measured():
        result = usage_billing.run(spark, config)
    assert result.rows_in == records, result
    show(report, f"usage_billing, {rows / 1e6:g} million rows{kind}", rows, meter, peak)
    (total,) = database.rows(
        "select sum(messages)::bigint as messages from billing_usage where direction = 'in'"
        " and cluster_id = any(%s::uuid[])",
        [cluster.cluster_id for cluster in clusters],
    )
    assert total["messages"] == rows // 2 * 7, "what is in the database is not what was generated"


def measure_broker(report: Report, spark: SparkSession, folder: Path, database: Any, rows: int) -> None:
    """The job ingest, from a broker's metering topic to the lake."""
    records = math.ceil(rows / ROWS_PER_RECORD)
    store, host = folder / "store", pack_host("127.0.0.1", 10911)
    bodies = (row.body for row in generated(spark, 0, records).select("body").toLocalIterator())
    append(
        store,
        (MessageToStore(RMQ_SYS_METERING, 0, 0, 0, to_ms(BEGIN), host, 0, 0, bytes(body), b"", 0) for body in bodies),
    )
    with DaemonCluster.start(folder / "broker", store_dir=store) as running:
        cluster = msgspec.structs.replace(CLUSTER, namesrv_addr=running.namesrv)
        peak = Peak(jvm_of(spark))
        meter = Meter(peak)
        config = config_of(folder, database, "ingest", [cluster])
        with peak.watched(), meter.measured():
            result = ingest.run(spark, config, now=lambda: BEGIN + timedelta(hours=records))
    assert (result.rows_out, result.error) == (records, ""), result
    show(report, f"ingest from a broker, {rows / 1e6:g} million rows", rows, meter, peak)


def jvm_of(spark: SparkSession) -> int:
    """The process id of the session's JVM."""
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # a running session has one


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


def mib(peak: Peak) -> str:
    return f"JVM {peak.jvm_bytes / 1024**2:,.0f} MiB, Python {peak.python_bytes / 1024**2:,.0f} MiB"


def show(report: Report, label: str, rows: int, meter: Meter, peak: Peak) -> None:
    report.add("highwater", label, [rows / meter.seconds], unit="rows/s")
    cost = meter.processor_s / rows * 1e6
    report.add("highwater", f"{label}: processor time", [cost], unit="s a million rows", higher_is_better=False)
    for name, size in (("JVM", peak.jvm_bytes), ("Python workers", peak.python_bytes)):
        report.add("highwater", f"{label}: {name}", [size / 1024**2], unit="MiB", higher_is_better=False)
    print(
        f"  {label}: {rows / meter.seconds:,.0f} rows/s in {meter.seconds:.1f} s, {cost:.2f} s of processor time a million"
        f" rows, {mib(peak)}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, action="append", help="metering rows; may be given several times")
    parser.add_argument("--broker-rows", type=int, default=1_000_000, help="rows read from a broker; 0: none")
    parser.add_argument("--heap-mib", type=int, default=1024)
    parser.add_argument("--skew", action="store_true")
    parser.add_argument("--conf", default="{}", help="Spark's settings, as a JSON object")
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
    settings = {"spark.driver.memory": f"{options.heap_mib}m", **json.loads(options.conf)}
    clusters = [CLUSTER]
    if options.skew:
        clusters += [msgspec.structs.replace(CLUSTER, cluster_id=str(uuid.uuid4())) for _ in range(9)]
    try:
        with ExitStack() as running:
            spark = build_session("bench", "local[*]", settings)
            running.callback(spark.stop)
            register(spark)
            url = running.enter_context(server.running())
            if options.broker_rows:
                measure_reading(report, spark, folder / "reading", 2_000 if options.quick else READ_MESSAGES)
            broker_rows = min(options.broker_rows, sizes[0]) if options.quick else options.broker_rows
            if broker_rows:
                with migrated_database(url) as database:
                    measure_broker(report, spark, folder / "from-broker", database, broker_rows)
            for rows in sizes:
                with migrated_database(url) as database:
                    database.subscribe(CLUSTER.tenant_id, [PRICE])
                    measure(report, spark, folder / f"{rows}", database, rows, clusters)
                shutil.rmtree(folder / f"{rows}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n" + report.markdown())
    print(json.dumps({"load_average_at_start": report.load_average_at_start, "heap_mib": options.heap_mib}))


if __name__ == "__main__":
    main()
