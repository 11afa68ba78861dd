"""Hours, and what they count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqwire.metering import MeteringRecord, StorageRow
from spark_etl.transforms.late import hours_to_count
from spark_etl.transforms.time import from_ms, hours_of_month, to_ms
from spark_etl.transforms.usage import hourly_usage
from tests.spark_etl.metering import CLUSTER, NOW, delivered, lake_frame, record, sent, utc


def usage(spark: SparkSession, *records: MeteringRecord, now: str = "2026-12-31 00:00") -> list[dict[str, Any]]:
    """Rows of usage, sorted, with the hour as text."""
    rows = [row.asDict() for row in hourly_usage(lake_frame(spark, records, now=utc(now))).collect()]
    for row in rows:
        row["hour"] = f"{from_ms(row.pop('hour_ms')):%Y-%m-%d %H:%M}"
    return sorted(rows, key=str)


def test_rows_of_one_key_and_hour_are_added_and_others_kept_apart(spark: SparkSession) -> None:
    rows = usage(
        spark,
        record("2026-11-21 13:00", 1, messages_in=[sent(messages=2, units=3), sent(kind="ordered")]),
        record("2026-11-21 13:59", 2, messages_in=[sent(messages=5, units=5), sent(credential="other")]),
        record("2026-11-21 14:00", 3, messages_in=[sent()], messages_out=[delivered(messages=4)]),
    )
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
    assert {(row["cluster"], row["topic"]) for row in rows} == {(CLUSTER, "orders")}


def test_an_interval_belongs_whole_to_the_hour_in_which_it_begins(spark: SparkSession) -> None:
    (row,) = usage(spark, record("2026-11-21 13:59", 1, minutes=10, messages_in=[sent(messages=8)]))
    assert (row["hour"], row["messages"]) == ("2026-11-21 13:00", 8)


def test_storage_is_counted_in_byte_hours_rounded_once(spark: SparkSession) -> None:
    # A third of an hour three times, and each third has a third of a byte too much for rounding row by row.
    intervals = [record(f"2026-11-21 13:{minute}", 1 + minute, minutes=20, storage=[StorageRow(topic="orders", bytes=101)])
                 for minute in (10, 30, 50)]  # fmt: skip
    (row,) = usage(spark, *intervals)
    assert (row["direction"], row["bytes"], row["messages"], row["units"]) == ("storage", 101, 0, 0)


def test_large_storage_does_not_overflow(spark: SparkSession) -> None:
    (row,) = usage(spark, record("2026-11-21 13:00", 1, minutes=60, storage=[StorageRow(topic="t", bytes=2**60)]))
    assert row["bytes"] == 2**60


def test_internal_topics_are_nobodys_usage(spark: SparkSession) -> None:
    names = [
        "RMQ_SYS_METERING",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_x",
        "%LMQ%x",
        "%RETRY%g",
        "o",
    ]
    rows = usage(spark, record("2026-11-21 13:00", 1, messages_in=[sent(name) for name in names]))
    assert sorted(row["topic"] for row in rows) == ["%RETRY%g", "o"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata"])
def test_hours_are_utc_hours_whatever_the_sessions_zone(spark: SparkSession, zone: str) -> None:
    """Berlin's clock shows 02:00 to 03:00 twice on 2026-10-25; Kolkata is half an hour off."""
    given = [
        record(utc("2026-10-25 00:30") + timedelta(hours=hour), 1 + hour, messages_in=[sent()]) for hour in range(4)
    ]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = usage(spark, *given)
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


def test_the_last_and_the_first_interval_of_months_are_kept_apart(spark: SparkSession) -> None:
    rows = usage(
        spark,
        record("2026-10-31 23:59", 1, messages_in=[sent()]),
        record("2026-11-01 00:00", 2, messages_in=[sent()]),
    )
    assert [row["hour"] for row in sorted(rows, key=lambda row: row["hour"])] == [
        "2026-10-31 23:00",
        "2026-11-01 00:00",
    ]


# -- which hours are counted


def test_without_a_range_the_late_window_is_counted_in_whole_hours() -> None:
    hours = hours_to_count(utc("2026-11-21 20:17"), timedelta(hours=48))
    assert (hours.begin, hours.end) == (utc("2026-11-19 20:00"), utc("2026-11-21 21:00"))


def test_a_range_is_widened_to_whole_hours() -> None:
    hours = hours_to_count(NOW, timedelta(hours=48), (utc("2026-10-01 00:30"), utc("2026-10-31 12:00")))
    assert (hours.begin, hours.end) == (utc("2026-10-01 00:00"), utc("2026-10-31 12:00"))
