"""A tenant's cluster as the jobs see it, and the jobs, in this process or as processes of their own."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from mqwire.metering import MeteringRecord
from spark_etl.jobs import billing_check, compaction, ingest, invoice, lag_analytics, repair, usage_billing
from spark_etl.jobs.config import JobResult, parse_config
from spark_etl.jobs.lake import Lake, hours_around, opened_lake
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.state import INGEST, State
from tests.daemons import REPOSITORY, daemon_environment
from tests.processes import ChildProcess
from tests.spark_etl.database import ALIAS, PRICE, Database
from tests.spark_etl.metering import CLUSTER, NAME, lake_frame

JOBS: dict[str, ModuleType] = {
    "ingest": ingest,
    "usage_billing": usage_billing,
    "lag_analytics": lag_analytics,
    "billing_check": billing_check,
    "compaction": compaction,
    "repair": repair,
    "invoice": invoice,
}


# Small frames on two busy cores: compiling costs more than it saves.
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass
class JobWorld:
    """One tenant with one cluster, its lake and its database."""

    spark: SparkSession
    database: Database
    folder: Path
    namesrv: str = "127.0.0.1:1"
    cluster_name: str = NAME
    cluster_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    tenant_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    namespace: str = field(default_factory=lambda: f"world_{uuid.uuid4().hex[:12]}")
    """Of the lake's tables: the catalog, in the database, is shared."""
    tls_ca: str = ""

    def subscribe(self, *prices: dict[str, Any]) -> None:
        self.database.subscribe(self.tenant_id, prices or [PRICE])

    def add_cluster_row(self) -> None:
        """The cluster as the control plane knows it; invoices refer to it."""
        from controlplane.clusters.models import Cluster

        Cluster.objects.using(ALIAS).create(
            id=uuid.UUID(self.cluster_id), tenant_id=uuid.UUID(self.tenant_id), slug="orders", name="orders"
        )

    def config(self, job: str, **given: Any) -> dict[str, Any]:
        """A job's configuration file."""
        return {
            "run_id": str(uuid.uuid4()),
            "job": job,
            "master": "local[2]",
            "lake": str(self.folder / "lake"),
            "namespace": self.namespace,
            "checkpoints": str(self.folder / "checkpoints"),
            "database": self.database.config,
            "range": None,
            "late_window_hours": 48,
            "spark": SETTINGS,
            "clusters": [self.cluster()],
            **given,
        }

    def cluster(self, **given: Any) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "tenant_id": self.tenant_id,
            "cluster_name": self.cluster_name,
            "namesrv_addr": self.namesrv,
            "access_key": "",
            "secret_key": "",
            "tls_ca": self.tls_ca,
            "retention_hours": 72,
            **given,
        }

    def run(self, job: str, *, now: datetime | None = None, **given: Any) -> JobResult:
        """The job in this process, in the tests' session."""
        config = parse_config(self.config(job, **given), job)
        options: dict[str, Any] = {} if now is None else {"now": now}
        result: JobResult = JOBS[job].run(self.spark, config, **options)
        return result

    def start(self, job: str, **given: Any) -> JobProcess:
        """The job as the control plane starts it."""
        folder = self.folder / f"{job}-{uuid.uuid4().hex[:8]}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config(job, **given)))
        files = ["--config", str(folder / "config.json"), "--result", str(folder / "result.json")]
        process = ChildProcess(
            [sys.executable, "-m", f"spark_etl.jobs.{job}", *files],
            log_path=folder / "log",
            env={**daemon_environment(), "JAVA_HOME": os.environ["JAVA_HOME"]},
            cwd=REPOSITORY,
        )
        return JobProcess(process, folder / "result.json")

    @contextmanager
    def lake(self) -> Iterator[tuple[Lake, State]]:
        """The lake and what the jobs know beside it, while no ingest runs."""
        config = parse_config(self.config("ingest"), "ingest")
        with (
            connected(self.spark, config.database, INGEST) as postgres,
            opened_lake(self.spark, config, postgres) as lake,
        ):
            state = State(postgres, config.namespace)
            state.create()
            yield lake, state

    def data_files(self) -> set[Path]:
        """The files that records are in."""
        return set((self.folder / "lake" / "metering" / "data").rglob("*.parquet"))

    def add_to_lake(self, *records: MeteringRecord, now: datetime, cluster_id: str | None = None) -> None:
        """Records as an ingest at `now` would have left them."""
        cluster = cluster_id or self.cluster_id
        with self.lake() as (lake, state):
            frame = lake_frame(lake.spark, records, now=now).replace(CLUSTER, cluster, subset=["cluster"])
            starts = [record.start_ms for record in records]
            lake.add_records(frame, hours_around(min(starts), max(starts)))
            state.catch_up(lake)


@dataclass(frozen=True)
class JobProcess:
    """A job that runs, or ran."""

    process: ChildProcess
    result_file: Path

    def kill(self) -> None:
        """As a power cut would: Python and its JVM at once."""
        os.killpg(self.process.pid, 9)
        self.process.kill()
        assert not self.result_file.exists()

    def wait(self, timeout_s: float = 240) -> dict[str, Any]:
        """The result, once it has ended; its exit status must agree."""
        status = self.process.popen.wait(timeout_s)
        assert self.result_file.exists(), self.process.log_tail()
        result: dict[str, Any] = json.loads(self.result_file.read_text())
        assert status == (0 if result["state"] == "completed" else 1), self.process.log_tail()
        return result
