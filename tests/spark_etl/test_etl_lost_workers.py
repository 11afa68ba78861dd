"""The same jobs on a standalone cluster whose machines have Spark and a Python alone, on S3, while workers are lost.

A master and two workers of PySpark's own, moto's S3 server, a broker; the Python packages come as `spark.archives`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import psutil  # type: ignore[import-untyped]  # it comes without types
import psycopg
import pyspark
import pytest
from pyspark.sql import SparkSession

from deploy.local.ports import free_port
from spark_etl.jobs.pack import pack
from tests.daemons import DaemonCluster
from tests.processes import ChildProcess, child_environment, wait_until
from tests.remoting import create_topic
from tests.spark_etl.database import Database
from tests.spark_etl.job_world import SETTINGS, JobWorld
from tests.spark_etl.metered_traffic import send, wait_metered

SPARK_HOME = Path(pyspark.__file__).parent
BUCKET = "highwater"
WAIT_S = 400.0
HOLD = 7_261


@dataclass
class StandaloneCluster:
    """A master, and workers with a core each, in process groups of their own with their executors."""

    folder: Path
    environment: dict[str, str]
    running: ExitStack
    url: str = ""
    workers: dict[str, ChildProcess] = field(default_factory=dict)

    def start_master(self) -> None:
        started = self._start("master", "org.apache.spark.deploy.master.Master", "--port", "0")
        self.url = started.wait_for_line(r"Starting Spark master at (spark://\S+)", timeout_s=WAIT_S).group(1)

    def add_workers(self, *names: str) -> None:
        for name in names:
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name)]
            self.workers[name] = self._start(name, "org.apache.spark.deploy.worker.Worker", *size, self.url)
        for name in names:
            self.workers[name].wait_for_line("Successfully registered with master", timeout_s=WAIT_S)

    def lose(self, name: str) -> None:
        """As a machine is lost: the worker, its executors and their Python at once."""
        worker = psutil.Process(self.workers.pop(name).pid)
        for process in (worker, *worker.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def with_connection(self, condition: Callable[[Any], bool]) -> str:
        """The name of a worker below which a process has such a TCP connection; empty when there is none."""
        for name, worker in self.workers.items():
            for process in psutil.Process(worker.pid).children(recursive=True):
                # It may have just ended.
                with suppress(psutil.Error):
                    if any(map(condition, process.net_connections("tcp"))):
                        return name
        return ""

    def _start(self, name: str, program: str, *arguments: str) -> ChildProcess:
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            program,
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            *arguments,
        ]
        log = self.folder / f"{name}.log"
        return self.running.enter_context(ChildProcess(command, log_path=log, env=self.environment))


@pytest.fixture
def cluster(tmp_path: Path, java_home: Path) -> Iterator[StandaloneCluster]:
    environment = child_environment(
        JAVA_HOME=str(java_home), SPARK_HOME=str(SPARK_HOME), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m"
    )
    with ExitStack() as running:
        cluster = StandaloneCluster(tmp_path, environment, running)
        cluster.start_master()
        cluster.add_workers("worker-1", "worker-2")
        yield cluster


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[str]:
    """The URL of an S3 server with an empty bucket."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with ChildProcess(command, log_path=tmp_path / "s3.log") as server:
        server.wait_for_line("Running on")
        assert httpx.put(f"{url}/{BUCKET}", trust_env=False).status_code == 200
        yield url


@pytest.fixture
def world(database: Database, tmp_path: Path, java_home: Path) -> JobWorld:
    """Whose jobs are processes of their own: it has no session."""
    os.environ["JAVA_HOME"] = str(java_home)
    return JobWorld(cast("SparkSession", None), database, tmp_path)


def settings(s3: str, archive: Path) -> dict[str, str]:
    """Of a cluster that has no package of ours, and of a warehouse on S3."""
    catalog = "spark.sql.catalog.lake"
    return {
        **SETTINGS,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.archives": f"{archive}#packages",
        "spark.executorEnv.PYTHONPATH": "packages",
        # A Python that has no package at all; the driver keeps its own.
        "spark.pyspark.python": os.path.realpath(sys.executable),
        "spark.pyspark.driver.python": sys.executable,
        f"{catalog}.s3.endpoint": s3,
        f"{catalog}.s3.path-style-access": "true",
        f"{catalog}.s3.access-key-id": "key",
        f"{catalog}.s3.secret-access-key": "secret",
        f"{catalog}.client.region": "us-east-1",
    }


@contextmanager
def staging_held(world: JobWorld) -> Iterator[Callable[[], int]]:
    """Executors that write usage wait in the middle of it; yields a function that returns the port of one of them, or 0."""
    world.database.change(
        "create function hold_staging() returns trigger language plpgsql as"
        f" $$ begin perform pg_advisory_xact_lock({HOLD}); return null; end $$;"
        " create trigger hold before insert on billing_usage_staging for each statement execute function hold_staging()"
    )
    waiting = (
        "select client_port from pg_stat_activity where wait_event = 'advisory'"
        " and query ilike 'insert into billing_usage_staging%%'"
    )

    def port() -> int:
        rows = world.database.rows(waiting)
        return int(rows[0]["client_port"]) if rows else 0

    try:
        with psycopg.connect(world.database.url) as holder:
            holder.execute("select pg_advisory_xact_lock(%s)", (HOLD,))
            yield port
            holder.rollback()
    finally:
        world.database.change("drop function hold_staging cascade")


def keys_in(s3: str) -> str:
    """The listing of the bucket."""
    return httpx.get(f"{s3}/{BUCKET}?list-type=2", trust_env=False).text


@pytest.mark.long
@pytest.mark.timeout(1800)  # five jobs, each with a driver and two executors of its own
def test_workers_that_are_lost_in_the_middle_change_no_figure(
    world: JobWorld, cluster: StandaloneCluster, s3: str, tmp_path: Path
) -> None:
    archive = tmp_path / "packages.tar.gz"
    pack(archive)
    given: dict[str, Any] = {
        "master": cluster.url,
        "lake": f"s3://{BUCKET}/warehouse",
        "spark": settings(s3, archive),
    }
    # The name server does not forget the broker, which stands still until Spark has started.
    patient = {"brokerChannelExpiredTimeout": "3600000", "serverChannelMaxIdleTimeSeconds": "3600"}
    with DaemonCluster.start(tmp_path / "broker", {"meteringIntervalMs": "1000"}, namesrv_conf=patient) as broker:
        world.namesrv, world.cluster_name = broker.namesrv, "DefaultCluster"
        world.subscribe()
        create_topic(broker.broker.address, "orders", queues=2, namesrv=broker.namesrv)
        send(broker.namesrv, "orders", [10] * 50)
        wait_metered(broker.namesrv, "orders", sent=50)
        assert broker.broker.process is not None
        port = int(broker.broker.address.rpartition(":")[2])

        def reader() -> str:
            return cluster.with_connection(lambda connection: bool(connection.raddr) and connection.raddr.port == port)

        # The reading waits for the broker, so it is lost in its middle.
        os.kill(broker.broker.process.pid, signal.SIGSTOP)
        try:
            ingest = world.start("ingest", **given)
            wait_until(lambda: bool(reader()) or not ingest.process.running, timeout_s=WAIT_S, what="a worker reads")
            assert ingest.process.running, ingest.process.log_tail()
            cluster.lose(reader())
        finally:
            os.kill(broker.broker.process.pid, signal.SIGCONT)
        result = ingest.wait()
        assert (result["state"], result["rows_quarantined"]) == ("completed", 0), result["error"]
    cluster.add_workers("worker-3")
    with staging_held(world) as waiting_port:
        billing = world.start("usage_billing", **given)
        wait_until(lambda: waiting_port() > 0, timeout_s=WAIT_S, what="a worker writes")
        port = waiting_port()
        cluster.lose(cluster.with_connection(lambda connection: connection.laddr.port == port))
    result = billing.wait()
    assert result["state"] == "completed", result["error"]
    rows = [
        row for row in world.database.usage(world.cluster_id) if row["direction"] == "in" and row["topic"] == "orders"
    ]
    assert sum(row["messages"] for row in rows) == 50
    for job in ("lag_analytics", "billing_check", "compaction"):
        result = world.start(job, **given).wait()
        assert result["state"] == "completed", result["error"]
    assert "<Key>warehouse/metering/data/" in keys_in(s3)
    assert not (tmp_path / "lake").exists()
    executors = {path.parent.parent.name for path in tmp_path.glob("worker-*/app-*/*")}
    assert executors == {"worker-1", "worker-2", "worker-3"}
