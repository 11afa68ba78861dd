"""compaction: the upkeep of the lake's tables.

Small files of a day and bucket become large ones; records, refused messages and versions go when their retention
ends; files that no table knows (what killed runs left) are deleted. Each step is one commit: readers see the table
before it or after it, and a run that is killed anywhere is repeated without harm. Versions that an invoice was made
from are kept by a tag, so that a bill can be made again.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.damage import isolating_damage
from spark_etl.jobs.lake import METERING, QUARANTINE, Lake, opened_lake
from spark_etl.jobs.postgres import Postgres, connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import State

logger = logging.getLogger("spark_etl")

JOB: Final = "compaction"
FILES_MIN: Final = 8
INVOICE_TAG: Final = "invoice-"
BILLING: Final = "usage_billing"


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run. `rows_in` is how many files were rewritten, `rows_out` how many came of them."""
    with (
        connected(spark, config.database, JOB) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        return isolating_damage(lake, state, lambda _: _maintain(lake, postgres, config, now or datetime.now(UTC)))


def _maintain(lake: Lake, postgres: Postgres, config: JobConfig, now: datetime) -> JobResult:
    retention = config.retention
    # The next invoice may be made from the version that was counted last.
    counted = State(postgres, config.namespace).progress(BILLING).snapshot
    _tag_invoices(lake, postgres, now - timedelta(days=retention.lake_days), counted)
    _delete_older(lake, METERING, "start", now - timedelta(days=retention.lake_days))
    _delete_older(lake, QUARANTINE, "ingested_at", now - timedelta(days=retention.quarantine_days))
    rewritten = added = 0
    for name in (METERING, QUARANTINE):
        if lake.snapshot(name) is None:
            continue
        done = _call(
            lake,
            "rewrite_data_files",
            f"table => '{lake.namespace}.{name}', strategy => 'binpack',"
            f" options => map('min-input-files', '{FILES_MIN}', 'partial-progress.enabled', 'false')",
        )
        rewritten, added = rewritten + done.rewritten_data_files_count, added + done.added_data_files_count
        _call(lake, "rewrite_manifests", f"table => '{lake.namespace}.{name}', use_caching => false")
        expire = now - timedelta(hours=retention.snapshot_hours)
        _call(
            lake,
            "expire_snapshots",
            f"table => '{lake.namespace}.{name}', older_than => {_sql(expire)}, retain_last => 1, stream_results => true",
        )
        orphans = now - timedelta(hours=retention.orphan_hours)
        # On S3 the files are listed by what reads them: Spark's own file systems know no s3.
        listing = ", prefix_listing => true" if lake.url.startswith("s3://") else ""
        _call(
            lake, "remove_orphan_files", f"table => '{lake.namespace}.{name}', older_than => {_sql(orphans)}{listing}"
        )
    return JobResult(rows_in=rewritten, rows_out=added, snapshot_id=str(lake.snapshot() or ""))


def _call(lake: Lake, procedure: str, arguments: str) -> Any:
    rows = lake.spark.sql(f"call lake.system.{procedure}({arguments})").collect()
    return rows[0] if rows else None


def _sql(moment: datetime) -> str:
    return f"timestamp'{moment.astimezone(UTC).isoformat()}'"


def _delete_older(lake: Lake, name: str, column: str, before: datetime) -> None:
    """Whole days: their files leave the table without being read."""
    midnight = before.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if lake.snapshot(name) is not None:
        lake.spark.sql(f"delete from {lake.table(name)} where {column} < {_sql(midnight)}")  # noqa: S608  # nosec B608  # made of constants


def _tag_invoices(lake: Lake, postgres: Postgres, oldest: datetime, counted: int | None) -> None:
    """Keeps the versions that invoices were made from, for as long as the records themselves are kept, and `counted`."""
    wanted = set(invoice_snapshots(postgres, oldest))
    table = lake.java_table(METERING)
    if counted is not None and table.snapshot(counted) is not None:
        wanted.add(counted)
    tagged = {str(name) for name in table.refs().keySet() if str(name).startswith(INVOICE_TAG)}
    change = table.manageSnapshots()
    for snapshot in sorted(wanted):
        name = f"{INVOICE_TAG}{snapshot}"
        if name in tagged:
            continue
        if table.snapshot(snapshot) is None:
            logger.warning("version %d of the lake, from which an invoice was made, is no longer kept", snapshot)
            continue
        change = change.createTag(name, snapshot)
    for name in tagged - {f"{INVOICE_TAG}{snapshot}" for snapshot in wanted}:
        change = change.removeTag(name)
    change.commit()


def invoice_snapshots(postgres: Postgres, oldest: datetime) -> list[int]:
    """The versions of the lake that invoices issued since then were made from."""
    has_column = postgres.rows(
        "select 1 from information_schema.columns where table_name = 'billing_invoice' and column_name = 'snapshot_id'"
        " and table_schema = current_schema()"
    )
    if not has_column:
        return []
    found = postgres.rows("select distinct snapshot_id::text from billing_invoice where issued_at >= %s", oldest)
    return [int(text) for (text,) in found if text and text.lstrip("-").isdigit()]


if __name__ == "__main__":
    sys.exit(main(JOB, run))
