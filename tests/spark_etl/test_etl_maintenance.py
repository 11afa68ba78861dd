"""compaction, the upkeep of the tables: small files joined, what retention ends deleted, invoices' versions kept."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from mqwire.metering import MeteringRecord
from spark_etl.jobs.lake import METERING, Lake
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import lake_frame, record, sent

HOUR_S = 3600
RETENTION = {"lake_days": 30, "snapshot_hours": 0, "orphan_hours": 72}


def records() -> list[MeteringRecord]:
    """One from before what is kept, and nine of one moment of today: versions are expired by the real clock."""
    now = datetime.now(UTC)
    today = [record(now - timedelta(minutes=2), number, messages_in=[sent()]) for number in range(1, 10)]
    return [record(now - timedelta(days=40), 100, messages_in=[sent()]), *today]


def versions(lake: Lake) -> set[int]:
    """The versions of the records that are kept."""
    rows = lake.spark.sql(f"select snapshot_id from {lake.table(METERING)}.snapshots").collect()
    return {row.snapshot_id for row in rows}


def add_invoice(world: JobWorld, snapshot: int) -> None:
    """Issued now, and made from this version."""
    world.database.change(
        "insert into billing_invoice (id, created_at, updated_at, tenant_id, number, month, currency, total, rounding,"
        " snapshot_id, agreed_ends, tenant_name, issued_at, counted_until) values (gen_random_uuid(), now(), now(), %s,"
        " (select coalesce(max(number), 0) + 1 from billing_invoice), '2026-11-01', 'EUR', 0, 'invoice', %s, '[]', 'x', now(),"
        " now())",
        world.tenant_id,
        str(snapshot),
    )


@pytest.mark.long
def test_upkeep_joins_files_and_deletes_what_retention_ends_but_no_version_of_an_invoice(world: JobWorld) -> None:
    made = []
    with world.lake() as (lake, _):
        for given in records():
            lake_frame(lake.spark, [given], now=datetime.now(UTC)).writeTo(lake.table(METERING)).append()
            made.append(lake.snapshot() or 0)
    invoiced, expired = made[4], made[5]
    world.subscribe()
    add_invoice(world, invoiced)
    data = world.folder / "lake" / METERING / "data"
    left_over, in_progress = data / "left-over.parquet", data / "in-progress.parquet"
    for file, age_hours in ((left_over, 80), (in_progress, 60)):
        file.write_bytes(b"of a run that was killed")
        os.utime(file, (time.time() - age_hours * HOUR_S,) * 2)
    try:
        result = world.run("compaction", retention=RETENTION)
        assert (result.state, result.rows_in, result.rows_out) == ("completed", 9, 1), result.error
        with world.lake() as (lake, _):
            assert lake.count() == 9, "what was older than 30 days is gone"
            kept = versions(lake)
            assert invoiced in kept
            assert expired not in kept
            then = lake.records(snapshot=invoiced).select("sequence").collect()
            assert sorted(row.sequence for row in then) == [1, 2, 3, 4, 100], "the bill can be made again"
        assert not left_over.exists()
        assert in_progress.exists(), "a run may still write it"
        # Once the records of its time may go, the invoice keeps nothing any more.
        world.run("compaction", retention={**RETENTION, "lake_days": 0})
        with world.lake() as (lake, _):
            assert invoiced not in versions(lake)
    finally:
        world.database.change("delete from billing_invoice where tenant_id = %s", world.tenant_id)
