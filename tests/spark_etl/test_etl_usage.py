"""Hours, and what they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqwire.metering import OTHERS, MeteringRecord, OutRow, StorageRow, others_of
from spark_etl.transforms.late import hours_to_count
from spark_etl.transforms.time import from_ms, hours_of_month, to_ms
from spark_etl.transforms.usage import hourly_usage
from tests.spark_etl.metering import CLUSTER, NOW, delivered, lake_frame_of, record, sent, utc

GIVEN: dict[str, Sequence[MeteringRecord]] = {}

Usage = dict[str, list[dict[str, Any]]]


def case(*records: MeteringRecord) -> str:
    """A cluster with these records; `usage` has its rows under the name that is returned."""
    name = f"case-{len(GIVEN)}"
    GIVEN[name] = records
    return name


def counted(spark: SparkSession, given: Mapping[str, Sequence[MeteringRecord]]) -> Usage:
    """Rows of usage by cluster, sorted, with the hour as text."""
    found: Usage = {name: [] for name in given}
    rows = hourly_usage(lake_frame_of(spark, given, now=utc("2026-12-31 00:00"))).collect()
    for row in sorted((row.asDict() for row in rows), key=str):
        found[row["cluster"]].append({**row, "hour": f"{from_ms(row['hour_ms']):%Y-%m-%d %H:%M}"})
    return found


@pytest.fixture(scope="module")
def usage(spark: SparkSession) -> Usage:
    """All cases' rows."""
    return counted(spark, GIVEN)


ADDED = case(
    record("2026-11-21 13:00", 1, messages_in=[sent(messages=2, units=3), sent(kind="ordered")]),
    record("2026-11-21 13:59", 2, messages_in=[sent(messages=5, units=5), sent(credential="other")]),
    record("2026-11-21 14:00", 3, messages_in=[sent()], messages_out=[delivered(messages=4)]),
)


def test_rows_of_one_key_and_hour_are_added_and_others_kept_apart(usage: Usage) -> None:
    rows = usage[ADDED]
    assert [
        (
            row["hour"][-5:],
            row["direction"],
            row["credential"],
            row["kind"],
            row["messages"],
            row["bytes"],
            row["units"],
        )
        for row in sorted(rows, key=lambda row: (row["hour"], row["direction"], row["credential"], row["kind"]))
    ] == [
        ("13:00", "in", "key-1", "normal", 7, 700, 8),
        ("13:00", "in", "key-1", "ordered", 1, 100, 1),
        ("13:00", "in", "other", "normal", 1, 100, 1),
        ("14:00", "in", "key-1", "normal", 1, 100, 1),
        ("14:00", "out", "key-2", "", 4, 400, 4),
    ]
    assert {row["topic"] for row in rows} == {"orders"}


OVER_THE_HOUR = case(record("2026-11-21 13:59", 1, minutes=10, messages_in=[sent(messages=8)]))


def test_an_interval_belongs_whole_to_the_hour_in_which_it_begins(usage: Usage) -> None:
    (row,) = usage[OVER_THE_HOUR]
    assert (row["hour"], row["messages"]) == ("2026-11-21 13:00", 8)


# A third of an hour three times, and each third has a third of a byte too much for rounding row by row.
THIRDS = case(
    *(
        record(f"2026-11-21 13:{minute}", 1 + minute, minutes=20, storage=[StorageRow(topic="orders", bytes=101)])
        for minute in (10, 30, 50)
    )
)


def test_storage_is_counted_in_byte_hours_rounded_once(usage: Usage) -> None:
    (row,) = usage[THIRDS]
    assert (row["direction"], row["bytes"], row["messages"], row["units"]) == ("storage", 101, 0, 0)


LARGE = case(record("2026-11-21 13:00", 1, minutes=60, storage=[StorageRow(topic="t", bytes=2**60)]))


def test_large_storage_does_not_overflow(usage: Usage) -> None:
    (row,) = usage[LARGE]
    assert row["bytes"] == 2**60


INTERNAL_TOPICS = case(
    record(
        "2026-11-21 13:00",
        1,
        messages_in=[
            sent(name)
            for name in (
                "RMQ_SYS_METERING",
                "SCHEDULE_TOPIC_XXXX",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "rmq_sys_x",
                "RMQ_SYS_TRACE_TOPIC",
                "%RETRY%g",
                "o",
            )
        ],
    )
)


def test_internal_topics_are_no_ones_usage(usage: Usage) -> None:
    assert sorted(row["topic"] for row in usage[INTERNAL_TOPICS]) == ["%RETRY%g", "o"]


OTHER_TOPICS = [
    others_of(topic) for topic in ("orders", "%RETRY%g", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x")
]
MANY_TOPICS = case(
    record(
        "2026-11-21 13:00",
        1,
        messages_out=[
            OutRow(topic=topic, group=OTHERS, credential="AK", messages=1, bytes=4, units=1) for topic in OTHER_TOPICS
        ],
    )
)


def test_a_row_of_many_groups_counts_what_is_usage(usage: Usage) -> None:
    assert [(row["topic"], row["consumer_group"], row["messages"]) for row in usage[MANY_TOPICS]] == [
        (OTHERS, OTHERS, 3)
    ]


OPEN = ("BenchmarkTest", "TBW102", "%LMQ%x", "RMQ_SYS_orders")
OPEN_TOPICS = case(record("2026-11-21 13:00", 1, messages_in=[sent(name) for name in OPEN]))


def test_topics_that_every_client_may_use_are_usage_whatever_rocketmq_keeps_their_names_for(usage: Usage) -> None:
    assert sorted(row["topic"] for row in usage[OPEN_TOPICS]) == sorted(OPEN)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata"])
def test_hours_are_utc_hours_whatever_the_sessions_zone(spark: SparkSession, zone: str) -> None:
    """Berlin's clock shows 02:00 to 03:00 twice on 2026-10-25; Kolkata is half an hour off."""
    given = [
        record(utc("2026-10-25 00:30") + timedelta(hours=hour), 1 + hour, messages_in=[sent()]) for hour in range(4)
    ]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        (rows,) = counted(spark, {CLUSTER: given}).values()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sorted(row["hour"] for row in rows) == [f"2026-10-25 0{hour}:00" for hour in range(4)]


def test_a_day_of_a_clock_change_has_24_hours(spark: SparkSession) -> None:
    for day in ("2026-03-29", "2026-10-25"):
        hours = hours_to_count(NOW, timedelta(hours=48), (utc(day), utc(day) + timedelta(days=1)))
        assert hours.to_ms - hours.from_ms == 24 * 3_600_000


def test_the_hours_of_months(spark: SparkSession) -> None:
    days = {"2026-02-10": 672, "2028-02-29": 696, "2026-04-30": 720, "2026-10-31": 744, "2026-12-31": 744}
    frame = spark.createDataFrame([(to_ms(utc(day)) + 86_399_999,) for day in days], "ms long")
    assert [row[0] for row in frame.select(hours_of_month(frame.ms)).collect()] == list(days.values())


MONTHS = case(
    record("2026-10-31 23:59", 1, messages_in=[sent()]),
    record("2026-11-01 00:00", 2, messages_in=[sent()]),
)


def test_the_last_and_the_first_interval_of_months_are_kept_apart(usage: Usage) -> None:
    assert sorted(row["hour"] for row in usage[MONTHS]) == ["2026-10-31 23:00", "2026-11-01 00:00"]


# -- which hours are counted


def test_without_a_range_the_late_window_is_counted_in_whole_hours() -> None:
    hours = hours_to_count(utc("2026-11-21 20:17"), timedelta(hours=48))
    assert (hours.begin, hours.end) == (utc("2026-11-19 20:00"), utc("2026-11-21 21:00"))


def test_a_range_is_widened_to_whole_hours() -> None:
    hours = hours_to_count(NOW, timedelta(hours=48), (utc("2026-10-01 00:30"), utc("2026-10-31 12:00")))
    assert (hours.begin, hours.end) == (utc("2026-10-01 00:00"), utc("2026-10-31 12:00"))
