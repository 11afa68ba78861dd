"""What a run of each job costs for many clusters that have few new records, and what it costs to read 72 hours again.

    python -m tests.bench.fleet                         1,000 clusters, 15 new records each, in three rounds
    python -m tests.bench.fleet --clusters 100          fewer
    python -m tests.bench.fleet --replay 10             then 10 clusters read their last 72 hours (a record a minute) again

Each cluster is a name server's address, a name and an id of its own; one broker's log answers for all of them, so what it
costs to answer is not in the figures. It prints the processor time of the driver, the JVM and its Python workers.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from mqwire.message import pack_host
from mqwire.metering import MeteringRecord
from spark_etl.datasource import register
from spark_etl.jobs import billing_check, ingest, lag_analytics, repair, usage_billing
from spark_etl.jobs.config import JobConfig, MeteredCluster
from spark_etl.jobs.session import build_session
from tests.bench.etl import Meter, Peak, config_of, jvm_of
from tests.daemons import DaemonCluster
from tests.insight_end_to_end.metered_days import ROWS_PER_RECORD, MeteredDays, append
from tests.spark_etl.database import PRICE, migrated_database
from tests.support.servers import PostgresForTests

NAME = "fleet"
JOBS = {
    "ingest": ingest,
    "usage_billing": usage_billing,
    "lag_analytics": lag_analytics,
    "billing_check": billing_check,
}
MINUTE = timedelta(minutes=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--records", type=int, default=15, help="new records of each cluster, each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replay", type=int, default=0, metavar="CLUSTERS", help="how many read 72 hours again")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--conf", default="{}", help="Spark's settings, as a JSON object")
    options = parser.parse_args()
    # Django's settings name the database as they load, before it starts.
    server = PostgresForTests()
    os.environ.update(DATABASE_URL=server.url, DJANGO_SETTINGS_MODULE="controlplane.settings.test")
    os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
    import django

    django.setup()
    folder = Path(tempfile.mkdtemp(prefix="highwater-bench-fleet-"))
    try:
        with ExitStack() as running:
            spark = build_session("bench", options.master, json.loads(options.conf))
            running.callback(spark.stop)
            register(spark)
            url = running.enter_context(server.running())
            database = running.enter_context(migrated_database(url))
            fleet = Fleet(spark, folder, database)
            fleet.measure_rounds(options.clusters, options.records, options.rounds)
            if options.replay:
                fleet.measure_replay(options.replay)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"load_average": os.getloadavg()}))


class Fleet:
    """Many clusters of one tenant, and the jobs over them."""

    def __init__(self, spark: Any, folder: Path, database: Any) -> None:
        self._spark = spark
        self._folder = folder
        self._database = database
        self._tenant = str(uuid.uuid4())
        database.subscribe(self._tenant, [PRICE])

    def measure_rounds(self, count: int, records: int, rounds: int) -> None:
        """Every job, each time after every cluster got so many records."""
        # The last interval of the last round ends now.
        end = datetime.now(UTC).replace(second=0, microsecond=0)
        days = MeteredDays(NAME, 1, end - rounds * records * MINUTE, end)
        found = list(days.records())
        clusters = self._clusters(count)
        for number in range(rounds):
            new = found[number * records : (number + 1) * records]
            self._append(new)
            print(f"round {number + 1}: {count:,} clusters with {len(new)} new records each", flush=True)
            with self._broker() as broker:
                at = [msgspec.structs.replace(cluster, namesrv_addr=broker.namesrv) for cluster in clusters]
                self._run("ingest", at, count * len(new))
            for job in ("usage_billing", "lag_analytics", "billing_check"):
                self._run(job, clusters, count * len(new))

    def measure_replay(self, count: int) -> None:
        """Records of 72 hours, read; then read again, which adds nothing."""
        end = datetime.now(UTC).replace(second=0, microsecond=0)
        shutil.rmtree(self._folder / "store")
        records = list(MeteredDays(NAME, 2, end - timedelta(hours=72), end).records())
        self._append(records)
        clusters = self._clusters(count)
        rows = count * len(records)
        print(f"replay: {count} clusters with 72 hours of records, a minute each", flush=True)
        with self._broker() as broker:
            at = [msgspec.structs.replace(cluster, namesrv_addr=broker.namesrv) for cluster in clusters]
            self._run("ingest", at, rows)
            asked = config_of(self._folder, self._database, "repair", at, repair={"action": "reread"})
            assert repair.run(self._spark, asked).rows_out
            self._run("ingest", at, rows, added=0)
            self._run("usage_billing", at, rows)

    def _clusters(self, count: int) -> list[MeteredCluster]:
        return [
            MeteredCluster(
                cluster_id=str(uuid.uuid4()), tenant_id=self._tenant, cluster_name=NAME, namesrv_addr="127.0.0.1:1"
            )
            for _ in range(count)
        ]

    def _append(self, records: list[MeteringRecord]) -> None:
        from brokerd.metering.records import message_of

        host = pack_host("127.0.0.1", 10911)
        append(self._folder / "store", (message_of(record, host) for record in records))

    @contextmanager
    def _broker(self) -> Iterator[DaemonCluster]:
        """It adds nothing to its log: its own first record would come much later, and the one at its end does not come."""
        settings = {"brokerClusterName": NAME, "meteringIntervalMs": str(3600_000)}
        folder = self._folder / f"broker-{uuid.uuid4().hex[:8]}"
        with DaemonCluster.start(folder, settings, store_dir=self._folder / "store") as running:
            yield running
            running.broker.kill()

    def _run(self, job: str, clusters: list[MeteredCluster], records: int, *, added: int | None = None) -> None:
        config: JobConfig = config_of(self._folder, self._database, job, clusters)
        meter = Meter(Peak(jvm_of(self._spark)))
        with meter.measured():
            result = JOBS[job].run(self._spark, config)
        assert result.state == "completed", result.error
        if job == "ingest":
            assert result.rows_out == (records if added is None else added), result
        million = meter.processor_s / (records * ROWS_PER_RECORD) * 1e6
        print(
            f"  {job}: {meter.processor_s:.1f} s of processor time in {meter.seconds:.1f} s, {million:.1f} s a million rows"
            f" ({records:,} records of {ROWS_PER_RECORD} rows); in {result.rows_in:,}, out {result.rows_out:,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
