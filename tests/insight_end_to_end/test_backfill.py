"""Three days of two clusters, backfilled by the platform's own operation. `python -m tests.bench.backfill` does thirty."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_etl.job_world import SETTINGS

if TYPE_CHECKING:
    from tests.insight_end_to_end.backfill import Backfill

DAYS = 3
EVERY = timedelta(minutes=15)
RECORDS = 2 * DAYS * 24 * 4


def assert_billed_as_generated(days: Backfill) -> None:
    from tests.insight_end_to_end.backfill import differences

    for cluster in days.metered:
        assert differences(days.found(cluster), days.expected(cluster)) == []


def assert_bills_can_be_made_again(days: Backfill) -> None:
    """By the command, from the snapshot in the lake."""
    from django.core.management import call_command

    from controlplane.billing.closing import issue_time
    from controlplane.billing.invoices import invoices_issue
    from controlplane.billing.periods import Month
    from tests.controlplane.billing_world import make_run

    due = issue_time(Month.of(days.end))
    make_run(until=due)
    invoice = invoices_issue(due)[0]
    assert invoice.snapshot_id
    assert "equal to what was issued" in str(call_command("reproduce_invoice", invoice.number_text))


@pytest.mark.timeout(900)
@pytest.mark.django_db(transaction=True)
def test_a_backfill_bills_what_the_brokers_logs_say(tmp_path: Path, java_home: Path) -> None:
    from tests.insight_end_to_end.backfill import backfill

    with backfill(tmp_path, DAYS, SETTINGS, EVERY) as days:
        ingested = days.run("ingest")
        assert (ingested.rows_out, ingested.rows_quarantined) == (RECORDS, 0)
        billed = days.run("usage_billing", **days.range)
        assert (billed.rows_in, billed.is_backfill) == (RECORDS, True)
        assert_billed_as_generated(days)
        assert_bills_can_be_made_again(days)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.django_db(transaction=True)
def test_a_backfill_that_is_killed_and_retried_and_repeated_bills_the_same(tmp_path: Path, java_home: Path) -> None:
    from tests.insight_end_to_end.backfill import backfill

    with backfill(tmp_path, DAYS, SETTINGS, EVERY) as days:
        days.retry(days.run_killed("ingest", days.lake_has_files))
        with days.locked_usage():
            killed = days.run_killed("usage_billing", days.merging(), **days.range)
        assert days.all_rows() == []
        assert days.retry(killed).rows_in == RECORDS
        assert_billed_as_generated(days)
        before = days.all_rows()
        days.run("usage_billing", **days.range)
        assert days.all_rows() == before
