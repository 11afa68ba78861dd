"""Windows of lag: percentiles, trend, drain, skew, stuck, loss."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from mqwire.metering import LagRow, MeteringRecord
from spark_etl.transforms.lag import LAG_WINDOW, lag_samples, lag_windows
from spark_etl.transforms.time import to_ms
from tests.spark_etl.metering import behind, lake_frame_of, record, utc

BEGIN = utc("2026-11-21 13:00")
HOUR_MS = 3_600_000
MINUTE_MS = 60_000

GIVEN: dict[str, tuple[Sequence[MeteringRecord], float | None]] = {}

Windows = dict[str, list[Row]]


def case(records: Sequence[MeteringRecord], retention_hours: float | None = None) -> str:
    """A cluster with these records; `windows` has its rows under the name that is returned."""
    name = f"case-{len(GIVEN)}"
    GIVEN[name] = (records, retention_hours)
    return name


def minute(number: int, *lag: LagRow, **given: Any) -> MeteringRecord:
    """The sample that is taken `number` minutes after BEGIN (the window's last is the fifth less a moment)."""
    return record(BEGIN + timedelta(minutes=number - 1), 10 + number, lag=lag, **given)


def a_minute_each(lags: Sequence[LagRow], retention_hours: float | None = None) -> str:
    """The case of one queue with these samples."""
    return case([minute(number, lag) for number, lag in enumerate(lags)], retention_hours)


@pytest.fixture(scope="module")
def windows(spark: SparkSession) -> Windows:
    """All cases' rows, in one order."""
    brokers = [(name, None, None if hours is None else int(hours * HOUR_MS)) for name, (_, hours) in GIVEN.items()]
    topics = [(SHORT_TOPIC, "orders", HOUR_MS), (SHORT_OTHER, "payments", HOUR_MS)]
    retention = spark.createDataFrame([*brokers, *topics], "cluster string, topic string, retention_ms long")
    frame = lake_frame_of(spark, {name: records for name, (records, _) in GIVEN.items()})
    found = lag_windows(lag_samples(frame), retention)
    assert tuple(found.columns) == LAG_WINDOW
    rows: Windows = {name: [] for name in GIVEN}
    for row in sorted(found.collect(), key=lambda row: (row.window_ms, row.broker, row.queue_id)):
        rows[row.cluster].append(row)
    return rows


def only_queue(windows: Windows, name: str) -> Row:
    (row,) = (row for row in windows[name] if row.queue_id == 0)
    return row


FIVE = a_minute_each([behind(lag, lag * 10, offset=lag) for lag in (5, 1, 4, 2, 3)])


def test_percentiles_are_those_of_the_samples(windows: Windows) -> None:
    row = only_queue(windows, FIVE)
    assert (row.window_ms, row.window_seconds, row.samples) == (to_ms(BEGIN), 300, 5)
    assert [row[f"lag_messages_{name}"] for name in ("p50", "p95", "p99", "max", "last")] == [3, 5, 5, 5, 3]
    assert [row[f"lag_ms_{name}"] for name in ("p50", "p95", "p99", "max", "last")] == [30, 50, 50, 50, 30]


UNKNOWN_AGE = a_minute_each([behind(5, -1), behind(5, -1)])


def test_an_unknown_age_is_no_age(windows: Windows) -> None:
    row = only_queue(windows, UNKNOWN_AGE)
    assert (row.lag_messages_max, row.lag_ms_max, row.lag_ms_last, row.loses_data_ms) == (5, None, None, None)


ONE_AGE_OF_TWO = case([minute(number, behind(5, -1), behind(0, queue_id=1)) for number in range(2)])


def test_the_age_of_a_group_is_not_known_where_that_of_one_queue_is_not(windows: Windows) -> None:
    (group,) = (row for row in windows[ONE_AGE_OF_TWO] if row.queue_id == -1)
    assert (group.lag_messages_last, group.lag_ms_last, group.lag_ms_max) == (5, None, None)


TWO_WINDOWS = case([minute(4, behind(1)), minute(5, behind(2)), minute(9, behind(3))])


def test_samples_of_other_windows_are_apart(windows: Windows) -> None:
    rows = windows[TWO_WINDOWS]
    assert [(row.window_ms - to_ms(BEGIN), row.samples) for row in rows if row.queue_id == 0] == [(0, 1), (300_000, 2)]


TRENDS: dict[tuple[int, ...], tuple[str, float | None, float | None]] = {
    (300, 240, 180, 120, 60): ("draining", 60.0, -1.0),
    (60, 120, 180): ("never", None, 1.0),
    (50, 50, 50): ("never", None, 0.0),
    # As floating point has it, this falls by one message in three billion years.
    (100, 101, 100, 101, 100): ("never", None, 0.0),
    (60, 30, 0): ("drained", 0.0, -0.5),
    (0, 0): ("drained", 0.0, 0.0),
    (7,): ("unknown", None, None),
}
BY_TREND = {lags: a_minute_each([behind(lag, offset=number) for number, lag in enumerate(lags)]) for lags in TRENDS}


@pytest.mark.parametrize("lags", TRENDS, ids=str)
def test_the_time_until_drained_follows_the_trend(windows: Windows, lags: tuple[int, ...]) -> None:
    row = only_queue(windows, BY_TREND[lags])
    state, seconds, trend = TRENDS[lags]
    assert (row.drain_state, row.drain_seconds, row.trend_per_second) == (
        state,
        seconds and pytest.approx(seconds),
        trend and pytest.approx(trend),
    )


STANDS_AND_MOVES = case(
    [
        minute(
            number,
            behind(5, offset=100, group="stands"),
            behind(5, offset=100 + number, group="moves"),
            behind(0, offset=100, group="idle"),
        )
        for number in range(3)
    ]
)


@pytest.mark.parametrize("queue_id", [0, -1], ids=["of a queue", "of a group"])
def test_a_consumer_that_does_not_move_while_messages_wait_is_stuck(windows: Windows, queue_id: int) -> None:
    rows = [row for row in windows[STANDS_AND_MOVES] if row.queue_id == queue_id]
    assert {row.consumer_group: row.stuck for row in rows} == {"stands": True, "moves": False, "idle": False}


TWO_SAMPLES = a_minute_each([behind(5, offset=9), behind(5, offset=9)])


def test_two_samples_do_not_prove_that_a_consumer_is_stuck(windows: Windows) -> None:
    assert not only_queue(windows, TWO_SAMPLES).stuck


def at_second_20(number: int, lag: LagRow) -> MeteringRecord:
    """The other broker's sample, 20 s after the first one's; each has a queue 0."""
    return record(BEGIN + timedelta(minutes=number - 1, seconds=20), 50 + number, broker="broker-b", lag=[lag])


TWO_BROKERS = case(
    [
        one
        for number in range(3)
        for one in (
            minute(number, behind(10 + number), behind(2, 700, queue_id=1)),
            at_second_20(number, behind(30, 900)),
        )
    ]
)


def test_a_groups_row_adds_its_queues_and_brokers(windows: Windows) -> None:
    rows = windows[TWO_BROKERS]
    assert [(row.broker, row.queue_id, row.lag_messages_last) for row in rows] == [
        ("", -1, 44), ("broker-a", 0, 12), ("broker-a", 1, 2), ("broker-b", 0, 30),
    ]  # fmt: skip
    group = rows[0]
    assert (group.samples, group.lag_messages_p50, group.lag_messages_max, group.lag_ms_last) == (3, 43, 44, 900)
    assert group.skew == pytest.approx(30 / ((12 + 2 + 30) / 3))
    assert [row.skew for row in rows[1:]] == [None] * 3


SILENT_BROKER = case(
    [
        *(minute(number, behind(10)) for number in range(4)),
        *(
            record(BEGIN + timedelta(minutes=number - 1), 50 + number, broker="broker-b", lag=[behind(90)])
            for number in (0, 3)
        ),
    ]
)


def test_a_broker_that_was_silent_for_a_moment_does_not_look_like_progress(windows: Windows) -> None:
    group = windows[SILENT_BROKER][0]
    assert (group.samples, group.lag_messages_last, group.lag_messages_p50) == (2, 100, 100)


NO_LAG = case([minute(0, behind(0), behind(0, queue_id=1))])


def test_a_group_without_lag_has_no_skew(windows: Windows) -> None:
    group = windows[NO_LAG][0]
    assert (group.queue_id, group.skew, group.drain_state) == (-1, None, "drained")


def ages(
    *lag_ms: int, lags: Sequence[int] = (100, 200, 300, 400, 500), offsets: Sequence[int] = range(5)
) -> list[LagRow]:
    return [behind(lag, age, offset=offset) for lag, age, offset in zip(lags, lag_ms, offsets, strict=False)]


LAST_MS = to_ms(BEGIN) + 4 * MINUTE_MS
LOSSES: dict[str, tuple[list[LagRow], int | None]] = {
    "stands still, and ages a minute each minute": (
        ages(*(number * MINUTE_MS for number in range(26, 31)), offsets=[7] * 5),
        30 * MINUTE_MS,
    ),
    "falls behind by half a minute each minute": (
        ages(*(28 * MINUTE_MS + number * 30_000 for number in range(5))),
        60 * MINUTE_MS,
    ),
    "is over it already": (ages(*(number * MINUTE_MS for number in range(58, 63))), 0),
    "gets younger": (ages(*(number * MINUTE_MS for number in range(30, 25, -1))), None),
    "is drained before": (
        ages(*(number * MINUTE_MS for number in range(26, 31)), lags=[500, 400, 300, 200, 100]),
        None,
    ),
    "has only begun to age": (ages(*(number * MINUTE_MS for number in range(1, 6)), offsets=[7] * 5), None),
    "is drained": (ages(0, 0, 0, 0, 0, lags=[0] * 5), None),
}
BY_LOSS = {name: a_minute_each(lags, retention_hours=1) for name, (lags, _) in LOSSES.items()}


@pytest.mark.parametrize("name", LOSSES)
def test_a_group_that_will_not_catch_up_before_retention_deletes_is_reported_when(windows: Windows, name: str) -> None:
    _, due_ms = LOSSES[name]
    expected = None if due_ms is None else pytest.approx(LAST_MS + due_ms, abs=1000)
    assert only_queue(windows, BY_LOSS[name]).loses_data_ms == expected


AGES_UNTIL_LOSS = ages(*(number * MINUTE_MS for number in range(26, 31)), offsets=[7] * 5)
SHORT_TOPIC = a_minute_each(AGES_UNTIL_LOSS, retention_hours=72)
SHORT_OTHER = a_minute_each(AGES_UNTIL_LOSS, retention_hours=72)


def test_a_topic_that_keeps_less_than_its_brokers_loses_messages_sooner(windows: Windows) -> None:
    assert only_queue(windows, SHORT_TOPIC).loses_data_ms == pytest.approx(LAST_MS + 30 * MINUTE_MS, abs=1000)
    assert only_queue(windows, SHORT_OTHER).loses_data_ms is None, "72 hours of which half of one has passed"


NO_RETENTION = a_minute_each(ages(1, 60_001, 120_001, offsets=[7] * 5))


def test_without_known_retention_nothing_is_foretold(windows: Windows) -> None:
    assert only_queue(windows, NO_RETENTION).loses_data_ms is None
