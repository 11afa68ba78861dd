"""What Spark's jobs cost a quiet local platform: processor time of a round of jobs, and memory between them.

    python -m tests.bench.quiet                    20 rounds
    python -m tests.bench.quiet --rounds 40        more, the session warmer

A broker whose metering has about ten new records each round, and the platform's own resident session, which runs ingest,
usage_billing and lag_analytics in turn as a worker lets it, every --interval-s (300) on a real platform. It prints
the processor time of the first round (Spark's start with it), of the next ones, and of those after the tenth, as a share
of a core; and memory (Pss) of the session with its JVM and its Python workers: the highest while jobs run, and between them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.costs import Cost, cost_below
from tests.support.servers import PostgresForTests

JOBS = ("ingest", "usage_billing", "lag_analytics")
METERED = {"meteringIntervalMs": "1000"}
PAUSE_S = 8.0
SAMPLE_S = 0.3
MIB = 1024**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--interval-s", type=float, default=300)
    parser.add_argument("--conf", default="", help="Spark's settings instead of the local platform's, as a JSON object")
    options = parser.parse_args()
    # Django's settings name the database as they load, before it starts.
    server = PostgresForTests()
    os.environ.update(DATABASE_URL=server.url, DJANGO_SETTINGS_MODULE="controlplane.settings.test")
    os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
    import django

    django.setup()
    folder = Path(tempfile.mkdtemp(prefix="highwater-bench-quiet-"))
    try:
        with server.running(), platform(folder, options.conf):
            run(options.rounds, options.interval_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def platform(folder: Path, conf: str) -> Iterator[None]:
    """A cluster with a broker that meters itself, and settings as the local platform's."""
    from django.conf import settings
    from django.core.management import call_command

    from controlplane.clusters.models import NameServer
    from controlplane.insight.resident import resident_end
    from controlplane.tenants.models import Tenant
    from tests.controlplane.world import make_cluster
    from tests.daemons import DaemonCluster
    from tests.remoting import create_topic
    from tests.spark_etl.metered_traffic import send

    call_command("migrate", verbosity=0)
    given: dict[str, Any] = {
        "HIGHWATER_STATE_DIR": folder / "state",
        "HIGHWATER_LAKE": str(folder / "lake"),
        "HIGHWATER_CHECKPOINTS": str(folder / "checkpoints"),
        **local_settings(),
        **({"HIGHWATER_SPARK_CONF": json.loads(conf)} if conf else {}),
        "HIGHWATER_JOB_RESIDENT_IDLE_S": 1800.0,
    }
    for name, value in given.items():
        setattr(settings, name, value)
    with DaemonCluster.start(folder / "broker", {"brokerClusterName": "quiet", **METERED}) as broker:
        create_topic(broker.broker.address, "orders", queues=4, namesrv=broker.namesrv)
        send(broker.namesrv, "orders", [100] * 50)
        host, port = broker.namesrv.rsplit(":", 1)
        cluster = make_cluster(Tenant.objects.create(slug="quiet", name="Quiet"), "quiet")
        NameServer.objects.filter(cluster=cluster).update(host=host, port=int(port))
        try:
            yield
        finally:
            resident_end()


def local_settings() -> dict[str, Any]:
    """Spark's settings on a local platform."""
    names = ("HIGHWATER_SPARK_CONF", "HIGHWATER_SPARK_MASTER")
    code = (
        f"from controlplane.settings import local; import json; print(json.dumps([getattr(local, n) for n in {names}]))"
    )
    environment = {**os.environ, "SECRET_KEY": "of no platform"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return dict(zip(names, json.loads(done.stdout.splitlines()[-1]), strict=True))


def run(rounds: int, interval_s: float) -> None:
    costs, peaks = [0.0], []
    seconds = []
    for number in range(rounds):
        with highest_memory() as peak:
            taken = [run_job(job) for job in JOBS]
        cost = session_cost()
        peaks.append(peak[0])
        costs.append(cost.processor_s)
        seconds.append(sum(taken))
        print(
            f"  round {number + 1}: {costs[-1] - costs[-2]:.2f} s of processor time"
            f" ({', '.join(f'{job} {took:.1f} s' for job, took in zip(JOBS, taken, strict=True))}),"
            f" {cost.memory_bytes / MIB:,.0f} MiB, at most {peak[0] / MIB:,.0f}",
            flush=True,
        )
        time.sleep(PAUSE_S)
    # Spark ends Python workers that had nothing to do for a minute.
    time.sleep(75)
    before = session_cost()
    time.sleep(30)
    idle = (session_cost().processor_s - before.processor_s) / 30
    each = [after - before for before, after in itertools.pairwise(costs)]
    for label, values in (("round 1", each[:1]), ("rounds 2 to 10", each[1:10]), ("rounds from 11 on", each[10:])):
        if values:
            share = 100 * (statistics.mean(values) / interval_s + idle)
            print(f"{label}: {statistics.mean(values):.2f} s of processor time each, {share:.1f} % of a core")
    print(f"between rounds: {100 * idle:.2f} % of a core; {before.memory_bytes / MIB:,.0f} MiB")
    print(f"while jobs run: at most {max(peaks) / MIB:,.0f} MiB")
    print(json.dumps({"load_average": os.getloadavg(), "median_wall_s": statistics.median(seconds)}))


def run_job(job: str) -> float:
    """A run as the schedule asks for it and a worker does it; returns its seconds."""
    from controlplane.insight.models import JobRun
    from controlplane.insight.services import job_run_execute

    queued = JobRun.objects.create(job=job, requested_by="bench")
    started = time.monotonic()
    job_run_execute(queued.pk)
    queued.refresh_from_db()
    assert queued.state == "completed", queued.error
    return time.monotonic() - started


@contextmanager
def highest_memory() -> Iterator[list[int]]:
    """The most memory that the session takes meanwhile, as the list's only item, when it is over."""
    highest, over = [0], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            running = resident._running
            cost = None if running is None else cost_below(running.pid)
            highest[0] = max(highest[0], 0 if cost is None else cost.memory_bytes)

    from controlplane.insight import resident

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield highest
    finally:
        over.set()
        thread.join()


def session_cost() -> Cost:
    from controlplane.insight import resident

    assert resident._running is not None
    cost = cost_below(resident._running.pid)
    assert cost is not None
    return cost


if __name__ == "__main__":
    main()
