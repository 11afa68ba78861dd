"""A backfill as an operator asks for it by REST and a worker runs it: brokers' logs -> ingest -> usage_billing of a range.

Two clusters of two tenants, each a real broker whose log holds days of metering. What the database then holds is compared row by
row with what the generator itself works out.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.db import connection

from controlplane.accounts.models import User
from controlplane.billing.models import Plan, Price, Subscription, Usage
from controlplane.clusters.models import Cluster, NameServer
from controlplane.insight.models import JobRun
from controlplane.insight.services import job_run_execute
from controlplane.tenants.models import Tenant
from tests.controlplane.world import Json, make_cluster
from tests.daemons import DaemonCluster
from tests.insight_end_to_end.metered_days import MINUTE, MULTIPLIERS, Figures, Key, MeteredDays, Rates, last_days
from tests.processes import wait_until

RUNS = "/api/v1/operator/job-runs/"
NAMES = ("north", "south")
RATES = Rates(Decimal("2"), Decimal("0.5"), Decimal("0.25"))
JOB_S_MAX = 1800.0
COLUMNS = [*Key._fields, *Figures._fields]


@dataclass
class Backfill:
    """The two clusters, their brokers running, and an operator."""

    folder: Path
    days: int
    begin: datetime
    end: datetime
    operator: User
    metered: dict[uuid.UUID, MeteredDays]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def range(self) -> dict[str, str]:
        return {"range_from": self.begin.isoformat(), "range_to": self.end.isoformat()}

    def expected(self, cluster: uuid.UUID) -> dict[Key, Figures]:
        return self.metered[cluster].usage(RATES)

    def found(self, cluster: uuid.UUID) -> dict[Key, Figures]:
        """What billing_usage holds of a cluster."""
        rows = Usage.objects.filter(cluster_id=cluster).values_list(*COLUMNS)
        width = len(Key._fields)
        return {Key(*row[:width]): Figures(*row[width:]) for row in rows.iterator()}

    def all_rows(self) -> list[Any]:
        """The whole table, with when each row was last changed."""
        return list(Usage.objects.order_by("pk").values_list())

    def run(self, job: str, **asked: str) -> JobRun:
        """Queue it as an operator does, and run it as a worker does."""
        return self._execute(job, self._queued({"job": job, **asked}))

    def run_killed(self, job: str, until: Callable[[], object], **asked: str) -> JobRun:
        """The same, but its process is killed as soon as `until` holds; returns the failed run."""
        path = self._queued({"job": job, **asked})
        run_id = path.rstrip("/").rsplit("/", 1)[1]
        failures: list[BaseException] = []

        def execute() -> None:
            try:
                job_run_execute(uuid.UUID(run_id))
            except BaseException as error:
                failures.append(error)
            finally:
                connection.close()

        worker = threading.Thread(target=execute)
        worker.start()
        try:
            wait_until(lambda: bool(until()) or not worker.is_alive(), timeout_s=JOB_S_MAX, what=f"{job} at work")
            os.kill(job_process(run_id), signal.SIGKILL)
        finally:
            worker.join(JOB_S_MAX)
        assert not failures, failures
        run = JobRun.objects.get(pk=run_id)
        assert (run.state, "ended with status" in run.error) == ("failed", True), run.error
        return run

    def retry(self, run: JobRun) -> JobRun:
        """Run what failed again, as an operator asks for it."""
        answer = Json(self.operator).call("POST", f"{RUNS}{run.pk}/retry/")
        assert answer.status_code == 202, answer.content
        return self._execute(f"{run.job} again", answer.headers["Location"])

    def merging(self) -> Callable[[], bool]:
        """Holds while usage_billing waits in its merge; use it below `locked_usage`."""

        def waits() -> bool:
            query = "select count(*) from pg_locks where not granted and relation = 'billing_usage'::regclass"
            with connection.cursor() as cursor:
                cursor.execute(query)
                row = cursor.fetchone()
            return bool(row and row[0])

        return waits

    @contextmanager
    def locked_usage(self) -> Iterator[None]:
        """Whoever writes usage waits."""
        database = connection.settings_dict
        with psycopg.connect(
            host=database["HOST"],
            port=database["PORT"],
            dbname=database["NAME"],
            user=database["USER"],
            password=database["PASSWORD"],
        ) as other:
            other.execute("lock table billing_usage in exclusive mode")
            yield
            other.rollback()

    def lake_has_files(self) -> bool:
        return any(Path(settings.HIGHWATER_LAKE).glob("metering/data/**/*.parquet"))

    def _queued(self, body: dict[str, str]) -> str:
        answer = Json(self.operator).call("POST", RUNS, body)
        assert answer.status_code == 202, answer.content
        return str(answer.headers["Location"])

    def _execute(self, label: str, path: str) -> JobRun:
        run_id = path.rstrip("/").rsplit("/", 1)[1]
        started = time.monotonic()
        job_run_execute(uuid.UUID(run_id))
        self.seconds[label] = time.monotonic() - started
        run = JobRun.objects.get(pk=run_id)
        assert (run.state, run.error) == ("completed", ""), run.error
        return run


@contextmanager
def backfill(folder: Path, days: int, spark: dict[str, str], every: timedelta = MINUTE) -> Iterator[Backfill]:
    """Two clusters whose logs hold the last `days` days, a record `every` so often.

    Django's database must be there, empty and committed to.
    """
    begin, end = last_days(days)
    given = {
        "HIGHWATER_STATE_DIR": folder / "state",
        "HIGHWATER_LAKE": str(folder / "lake"),
        "HIGHWATER_LAKE_NAMESPACE": f"backfill_{uuid.uuid4().hex[:12]}",
        "HIGHWATER_CHECKPOINTS": str(folder / "checkpoints"),
        "HIGHWATER_SPARK_MASTER": "local[2]",
        "HIGHWATER_SPARK_CONF": spark,
    }
    with ExitStack() as running:
        for name, value in given.items():
            running.callback(setattr, settings, name, getattr(settings, name))
            setattr(settings, name, value)
        metered = {}
        for seed, slug in enumerate(NAMES):
            days_of = MeteredDays(slug, seed, begin, end, every)
            days_of.append_to(folder / slug / "store")
            broker = DaemonCluster.start(folder / slug, {"brokerClusterName": slug}, store_dir=folder / slug / "store")
            running.enter_context(broker)
            host, port = broker.namesrv.rsplit(":", 1)
            cluster = _cluster(slug, host, int(port))
            metered[cluster.pk] = days_of
        operator = User.objects.create_user("operator@example.com", is_staff=True)
        yield Backfill(folder, days, begin, end, operator, metered)


def _cluster(slug: str, host: str, port: int) -> Cluster:
    """A cluster's rows, its tenant subscribed to a plan of its own since long ago."""
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    tenant = Tenant.objects.create(slug=slug, name=slug.capitalize())
    cluster = make_cluster(tenant, slug)
    NameServer.objects.filter(cluster=cluster).update(host=host, port=port)
    plan = Plan.objects.create(slug=slug, name=slug, currency="EUR")
    Price.objects.create(
        plan=plan,
        valid_from=long_ago,
        currency="EUR",
        per_million_units=RATES.sent,
        per_million_units_out=RATES.delivered,
        per_gib_month_stored=RATES.stored,
        multipliers=MULTIPLIERS,
    )
    Subscription.objects.create(tenant=tenant, plan=plan, valid_from=long_ago)
    return cluster


def job_process(run_id: str) -> int:
    """The Python process of a job, which names its run's configuration, below its leash."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(run_id.encode() in word for word in words) and b"-m" in words and b"-I" not in words:
            return int(process.name)
    raise AssertionError(f"run {run_id} has no process")


def differences(found: dict[Key, Figures], expected: dict[Key, Figures]) -> Sequence[tuple[Key, Any, Any]]:
    """The rows that differ, or that only one side has."""
    return [
        (key, found.get(key), expected.get(key))
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]
