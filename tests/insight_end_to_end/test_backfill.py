"""Three days of two clusters, backfilled by the platform's own operation. `python -m tests.bench.backfill` does thirty."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_etl.job_world import SETTINGS

DAYS = 3


@pytest.mark.timeout(900)
@pytest.mark.django_db(transaction=True)
def test_a_backfill_that_is_killed_and_retried_bills_what_the_brokers_logs_say(tmp_path: Path, java_home: Path) -> None:
    from tests.insight_end_to_end.backfill import backfill, differences

    with backfill(tmp_path, DAYS, SETTINGS) as days:
        ingested = days.run("ingest")
        assert (ingested.rows_out, ingested.rows_quarantined) == (2 * DAYS * 1440, 0)
        with days.locked_usage():
            killed = days.run_killed("usage_billing", days.merging(), **days.range)
        assert days.all_rows() == []
        billed = days.retry(killed)
        assert (billed.rows_in, billed.attempt, billed.is_backfill) == (2 * DAYS * 1440, 2, True)
        for cluster in days.metered:
            assert differences(days.found(cluster), days.expected(cluster)) == []
