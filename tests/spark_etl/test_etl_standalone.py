"""The same jobs on a Spark standalone cluster: a master and two workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from tests.daemons import DaemonCluster
from tests.processes import ChildProcess, child_environment
from tests.remoting import create_topic
from tests.spark_etl.job_world import SETTINGS, JobWorld
from tests.spark_etl.metered_traffic import send, wait_metered

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture
def master(tmp_path: Path, java_home: Path) -> Iterator[str]:
    """The URL of a cluster of two workers with a core each."""
    environment = child_environment(
        JAVA_HOME=str(java_home), SPARK_HOME=str(SPARK_HOME), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="256m"
    )
    run = str(SPARK_HOME / "bin" / "spark-class")
    page = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        command = [run, "org.apache.spark.deploy.master.Master", *page, "--port", "0"]
        started = running.enter_context(ChildProcess(command, log_path=tmp_path / "master.log", env=environment))
        url = started.wait_for_line(r"Starting Spark master at (spark://\S+)").group(1)
        for name in ("worker-1", "worker-2"):
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name)]
            command = [run, "org.apache.spark.deploy.worker.Worker", *page, *size, url]
            worker = running.enter_context(ChildProcess(command, log_path=tmp_path / f"{name}.log", env=environment))
            worker.wait_for_line("Successfully registered with master")
        yield url


@pytest.mark.long
@pytest.mark.timeout(1200)  # four jobs, each with a driver and two executors of its own
def test_a_standalone_cluster_reads_counts_and_writes_the_same(world: JobWorld, master: str, tmp_path: Path) -> None:
    with DaemonCluster.start(tmp_path / "broker", {"meteringIntervalMs": "1000"}) as cluster:
        world.namesrv, world.cluster_name = cluster.namesrv, "DefaultCluster"
        world.subscribe()
        create_topic(cluster.broker.address, "orders", queues=2, namesrv=cluster.namesrv)
        send(cluster.namesrv, "orders", [10] * 50)
        wait_metered(cluster.namesrv, "orders", sent=50)
        settings = {**SETTINGS, "spark.executor.memory": "512m", "spark.executor.cores": "1"}
        for job in ("ingest", "usage_billing", "lag_analytics", "billing_check"):
            result = world.start(job, master=master, spark=settings).wait()
            assert result["state"] == "completed", result["error"]
    rows = [row for row in world.database.usage(world.cluster_id) if row["direction"] == "in"]
    assert sum(row["messages"] for row in rows) == 50
    executors = {path.parent.parent.name for path in tmp_path.glob("worker-*/app-*/*")}
    assert executors == {"worker-1", "worker-2"}, os.listdir(tmp_path)
