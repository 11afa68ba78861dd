"""Windows of lag: percentiles, trend, drain, skew, stuck, loss."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from msgspec import structs
from pyspark.sql import Row, SparkSession

from mqwire.metering import LagRow, MeteringRecord
from spark_etl.transforms.lag import LAG_WINDOW, lag_samples, lag_windows
from spark_etl.transforms.time import to_ms
from tests.spark_etl.metering import CLUSTER, behind, lake_frame, record, utc

BEGIN = utc("2026-11-21 13:00")
HOUR_MS = 3_600_000

K = TypeVar("K", bound=Hashable)


def minute(number: int, *lag: LagRow, **given: Any) -> MeteringRecord:
    """The sample that is taken `number` minutes after BEGIN (the window's last is the fifth less a moment)."""
    return record(BEGIN + timedelta(minutes=number - 1), 10 + number, lag=lag, **given)


def windows(spark: SparkSession, records: Sequence[MeteringRecord], retention_hours: float | None = None) -> list[Row]:
    retention_ms = None if retention_hours is None else int(retention_hours * HOUR_MS)
    retention = spark.createDataFrame([(CLUSTER, retention_ms)], "cluster string, retention_ms long")
    frame = lag_windows(lag_samples(lake_frame(spark, records)), retention)
    assert tuple(frame.columns) == LAG_WINDOW
    return sorted(frame.collect(), key=lambda row: (row.window_ms, row.broker, row.queue_id))


def queues(
    spark: SparkSession, lags: Mapping[K, Sequence[LagRow]], retention_hours: float | None = None
) -> dict[K, Row]:
    """The window of each case's one queue, of a sample a minute. Each case is a group of its own."""
    groups = {f"group-{number}": case for number, case in enumerate(lags)}
    records = [
        minute(
            number,
            *(
                structs.replace(lags[case][number], group=group)
                for group, case in groups.items()
                if number < len(lags[case])
            ),
        )
        for number in range(max(map(len, lags.values())))
    ]
    return {groups[row.consumer_group]: row for row in windows(spark, records, retention_hours) if row.queue_id == 0}


def only_queue(spark: SparkSession, lags: Sequence[LagRow]) -> Row:
    """The one queue's window, of a sample a minute."""
    return queues(spark, {"": lags})[""]


def test_percentiles_are_those_of_the_samples(spark: SparkSession) -> None:
    row = only_queue(spark, [behind(lag, lag * 10, offset=lag) for lag in (5, 1, 4, 2, 3)])
    assert (row.window_ms, row.window_seconds, row.samples) == (to_ms(BEGIN), 300, 5)
    assert [row[f"lag_messages_{name}"] for name in ("p50", "p95", "p99", "max", "last")] == [3, 5, 5, 5, 3]
    assert [row[f"lag_ms_{name}"] for name in ("p50", "p95", "p99", "max", "last")] == [30, 50, 50, 50, 30]


def test_an_unknown_age_is_no_age(spark: SparkSession) -> None:
    row = only_queue(spark, [behind(5, -1), behind(5, -1)])
    assert (row.lag_messages_max, row.lag_ms_max, row.lag_ms_last, row.loses_data_ms) == (5, None, None, None)


def test_samples_of_other_windows_are_apart(spark: SparkSession) -> None:
    rows = windows(spark, [minute(4, behind(1)), minute(5, behind(2)), minute(9, behind(3))])
    assert [(row.window_ms - to_ms(BEGIN), row.samples) for row in rows if row.queue_id == 0] == [(0, 1), (300_000, 2)]


def test_the_time_until_drained_follows_the_trend(spark: SparkSession) -> None:
    expected: dict[tuple[int, ...], tuple[str, float | None, float | None]] = {
        (300, 240, 180, 120, 60): ("draining", 60.0, -1.0),
        (60, 120, 180): ("never", None, 1.0),
        (50, 50, 50): ("never", None, 0.0),
        (60, 30, 0): ("drained", 0.0, -0.5),
        (0, 0): ("drained", 0.0, 0.0),
        (7,): ("unknown", None, None),
    }
    rows = queues(spark, {lags: [behind(lag, offset=number) for number, lag in enumerate(lags)] for lags in expected})
    found = {lags: (row.drain_state, row.drain_seconds, row.trend_per_second) for lags, row in rows.items()}
    assert found == {
        lags: (state, seconds and pytest.approx(seconds), trend and pytest.approx(trend))
        for lags, (state, seconds, trend) in expected.items()
    }


def test_a_consumer_that_does_not_move_while_messages_wait_is_stuck(spark: SparkSession) -> None:
    rows = windows(
        spark,
        [
            minute(
                number,
                behind(5, offset=100, group="stands"),
                behind(5, offset=100 + number, group="moves"),
                behind(0, offset=100, group="idle"),
            )
            for number in range(3)
        ],
    )
    assert {row.consumer_group: row.stuck for row in rows if row.queue_id == 0} == {
        "stands": True, "moves": False, "idle": False,
    }  # fmt: skip
    assert {row.consumer_group: row.stuck for row in rows if row.queue_id == -1} == {
        "stands": True, "moves": False, "idle": False,
    }  # fmt: skip


def test_two_samples_do_not_prove_that_a_consumer_is_stuck(spark: SparkSession) -> None:
    assert not only_queue(spark, [behind(5, offset=9), behind(5, offset=9)]).stuck


def test_a_groups_row_adds_its_queues_and_brokers(spark: SparkSession) -> None:
    """The brokers take their samples 20 s apart; each has a queue 0."""
    given = []
    for number in range(3):
        given.append(minute(number, behind(10 + number), behind(2, 700, queue_id=1)))
        at = BEGIN + timedelta(minutes=number - 1, seconds=20)
        given.append(record(at, 50 + number, broker="broker-b", lag=[behind(30, 900)]))
    rows = windows(spark, given)
    assert [(row.broker, row.queue_id, row.lag_messages_last) for row in rows] == [
        ("", -1, 44), ("broker-a", 0, 12), ("broker-a", 1, 2), ("broker-b", 0, 30),
    ]  # fmt: skip
    group = rows[0]
    assert (group.samples, group.lag_messages_p50, group.lag_messages_max, group.lag_ms_last) == (3, 43, 44, 900)
    assert group.skew == pytest.approx(30 / ((12 + 2 + 30) / 3))
    assert [row.skew for row in rows[1:]] == [None] * 3


def test_a_broker_that_was_silent_for_a_moment_does_not_look_like_progress(spark: SparkSession) -> None:
    given = [minute(number, behind(10)) for number in range(4)]
    given += [
        record(BEGIN + timedelta(minutes=number - 1), 50 + number, broker="broker-b", lag=[behind(90)])
        for number in (0, 3)
    ]
    group = windows(spark, given)[0]
    assert (group.samples, group.lag_messages_last, group.lag_messages_p50) == (2, 100, 100)


def test_a_group_without_lag_has_no_skew(spark: SparkSession) -> None:
    group = windows(spark, [minute(0, behind(0), behind(0, queue_id=1))])[0]
    assert (group.queue_id, group.skew, group.drain_state) == (-1, None, "drained")


def ages(
    *lag_ms: int, lags: Sequence[int] = (100, 200, 300, 400, 500), offsets: Sequence[int] = range(5)
) -> list[LagRow]:
    return [behind(lag, age, offset=offset) for lag, age, offset in zip(lags, lag_ms, offsets, strict=False)]


LAST_MS = to_ms(BEGIN) + 4 * 60_000


def test_a_group_that_will_not_catch_up_before_retention_deletes_is_told_when(spark: SparkSession) -> None:
    minute_ms = 60_000
    aging = ages(*(number * minute_ms for number in range(26, 31)), offsets=[7] * 5)
    cases = {
        "stands still, and ages a minute each minute": (aging, 30 * minute_ms),
        "falls behind by half a minute each minute": (
            ages(*(28 * minute_ms + n * 30_000 for n in range(5))),
            60 * minute_ms,
        ),
        "is over it already": (ages(*(number * minute_ms for number in range(58, 63))), 0),
        "gets younger": (ages(*(number * minute_ms for number in range(30, 25, -1))), None),
        "is drained before": (ages(*(n * minute_ms for n in range(26, 31)), lags=[500, 400, 300, 200, 100]), None),
        "has only begun to age": (ages(*(number * minute_ms for number in range(1, 6)), offsets=[7] * 5), None),
        "is drained": (ages(0, 0, 0, 0, 0, lags=[0] * 5), None),
    }
    rows = queues(spark, {name: lags for name, (lags, _) in cases.items()}, retention_hours=1)
    assert {name: row.loses_data_ms for name, row in rows.items()} == {
        name: None if due_ms is None else pytest.approx(LAST_MS + due_ms, abs=1000)
        for name, (_, due_ms) in cases.items()
    }


def test_without_known_retention_nothing_is_foretold(spark: SparkSession) -> None:
    assert only_queue(spark, ages(1, 60_001, 120_001, offsets=[7] * 5)).loses_data_ms is None
