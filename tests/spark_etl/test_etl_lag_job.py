"""lag_analytics on the control plane's own table: which windows a run writes."""

from __future__ import annotations

from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import behind, record, utc


def test_a_window_of_a_clock_that_is_ahead_into_the_next_hour_is_written(world: JobWorld) -> None:
    """No later record would touch it: those that come in the next hour are of later windows."""
    now = utc("2026-11-21 12:57")
    world.add_to_lake(record("2026-11-21 12:53", 1, lag=[behind(3)]), now=now)
    world.run("lag_analytics", now=now)
    world.add_to_lake(record("2026-11-21 13:02", 2, lag=[behind(7)]), now=now)
    world.run("lag_analytics", now=now)
    rows = world.database.rows(
        "select window_start, lag_messages_last from insight_lag_window where cluster_id = %s and queue_id = 0"
        " order by window_start",
        world.cluster_id,
    )
    assert [(f"{row['window_start']:%H:%M}", row["lag_messages_last"]) for row in rows] == [("12:50", 3), ("13:00", 7)]
