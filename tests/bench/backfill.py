"""Backfills days of metering of two clusters as the platform's operators do, kills it, repeats it, and compares every row.

    python -m tests.bench.backfill                 30 days
    python -m tests.bench.backfill --days 3        fewer

Two real brokers whose logs hold a record a minute; ingest, killed while it writes and run again; usage_billing of the range, killed
inside its merge and retried; then both once more, which must change nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.insight_end_to_end.metered_days import ROWS_PER_RECORD
from tests.support.servers import PostgresForTests

SPARK = {"spark.driver.memory": "1g"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    days = parser.parse_args().days
    # Django's settings name the database as they load, before it starts.
    server = PostgresForTests()
    os.environ.update(DATABASE_URL=server.url, DJANGO_SETTINGS_MODULE="controlplane.settings.test")
    os.environ.setdefault("REDIS_URL", "redis://127.0.0.1:1/0")
    import django

    django.setup()
    folder = Path(tempfile.mkdtemp(prefix="highwater-bench-backfill-"))
    try:
        with server.running():
            run(folder, days)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, days: int) -> None:
    """All of it; raises AssertionError where something is not what the generator says."""
    from django.core.management import call_command
    from django.db import connections

    from controlplane.billing.models import Usage
    from tests.insight_end_to_end.backfill import backfill, differences

    call_command("migrate", verbosity=0)
    started = time.monotonic()
    with backfill(folder, days, SPARK) as world:
        records = sum(metered.record_count for metered in world.metered.values())
        show(f"{records:,} records of {ROWS_PER_RECORD} rows in the logs of two brokers", time.monotonic() - started)
        killed = world.run_killed("ingest", world.lake_has_files)
        ingested = world.retry(killed)
        show(f"ingest, after one that was killed: {ingested.rows_out:,} records more", world.seconds["ingest again"])
        with world.locked_usage():
            killed = world.run_killed("usage_billing", world.merging(), **world.range)
        assert not Usage.objects.exists(), "a job that was killed in its merge left rows"
        billed = world.retry(killed)
        assert billed.rows_in == records, billed.rows_in
        show(
            f"usage_billing, after one that was killed: {billed.rows_out:,} rows", world.seconds["usage_billing again"]
        )
        for cluster, metered in world.metered.items():
            expected = world.expected(cluster)
            found = differences(world.found(cluster), expected)
            assert not found, found[:5]
            total = sum(figures.amount for figures in expected.values())
            print(f"  {metered.cluster}: {len(expected):,} rows, together {total} EUR, all as generated", flush=True)
        before = world.all_rows()
        assert world.run("ingest").rows_out == 0
        world.run("usage_billing", **world.range)
        assert world.all_rows() == before, "running it twice changed something"
        show("both once more: nothing changed", world.seconds["ingest"] + world.seconds["usage_billing"])
    connections.close_all()


def show(what: str, seconds: float) -> None:
    print(f"  {what}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
