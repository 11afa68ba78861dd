"""The check finds what differs, and what was never counted."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession

from spark_etl.jobs.billing_check import notes_of
from spark_etl.transforms.check import limits_of_counting, log_gaps, missing_sequences, usage_differences
from tests.spark_etl.metering import BROKER, CLUSTER, lake_frame, record

SCHEMA = (
    "cluster string, hour_ms long, direction string, topic string, consumer_group string, credential string, kind string,"
    " messages long, bytes long, units long, billed_units decimal(20,4), amount decimal(28,10)"
)
HOUR = "2026-11-21 13:00"


def row(topic: str, **given: Any) -> tuple[Any, ...]:
    values = {"messages": 2, "bytes": 200, "units": 2, "billed_units": "2.0000", "amount": "0.0000040000", **given}
    counts = (values["messages"], values["bytes"], values["units"])
    return (
        CLUSTER,
        0,
        "in",
        topic,
        "",
        "key",
        "normal",
        *counts,
        Decimal(values["billed_units"]),
        Decimal(values["amount"]),
    )


def test_rows_that_differ_and_rows_of_one_side_are_named(spark: SparkSession) -> None:
    expected = spark.createDataFrame([row("same"), row("changed"), row("cheaper"), row("gone")], SCHEMA)
    actual = spark.createDataFrame(
        [row("same"), row("changed", messages=3), row("cheaper", amount="0.0000039999"), row("invented")], SCHEMA
    )
    found = {one.topic: one.difference for one in usage_differences(expected, actual).collect()}
    assert found == {
        "changed": "messages is 3, counted 2",
        "cheaper": "amount is 0.0000039999, counted 0.0000040000",
        "gone": "missing in the database",
        "invented": "in the database without a metering record",
    }


def test_a_stretch_of_the_log_that_no_record_counted_is_found_across_epochs(spark: SparkSession) -> None:
    records = lake_frame(
        spark,
        [
            record(HOUR, 1, start_offset=0, end_offset=100),
            record(HOUR, 2, start_offset=100, end_offset=100),
            record(HOUR, 3, start_offset=100, end_offset=250),
            record(HOUR, 1, epoch=2, start_offset=300, end_offset=400),
            record(HOUR, 2, epoch=2, start_offset=400, end_offset=400),
            record(HOUR, 1, broker="broker-b", start_offset=7, end_offset=9),
        ],
    )
    assert [(gap.epoch, gap.sequence, gap.from_offset, gap.to_offset) for gap in log_gaps(records).collect()] == [
        (2, 1, 250, 300)
    ]


def test_what_retention_deleted_before_it_was_counted_is_no_gap(spark: SparkSession) -> None:
    first = record(HOUR, 1, start_offset=0, end_offset=100)
    assert (
        log_gaps(lake_frame(spark, [first, record(HOUR, 2, start_offset=500, end_offset=600, deleted_to=500)])).count()
        == 0
    )


def test_what_a_killed_broker_handed_out_uncounted_is_bounded_and_a_clock_that_steps_is_reported(
    spark: SparkSession,
) -> None:
    records = lake_frame(
        spark,
        [
            record(HOUR, 1, pulls_lost_ms=1000),
            record(HOUR, 2),
            record(HOUR, 1, epoch=2, pulls_lost_ms=60_000),
            record(HOUR, 1, broker="broker-b", clock_step_ms=500),
            record(HOUR, 2, broker="broker-b", clock_step_ms=-86_400_000),
            record(HOUR, 1, broker="broker-c"),
        ],
    )
    assert notes_of(limits_of_counting(records).orderBy("broker").collect()) == [
        (
            f"Cluster {CLUSTER}, broker broker-a: it was killed 2 times; what it handed out in 61 s in all may not be counted."
            " Sends are."
        ),
        (
            f"Cluster {CLUSTER}, broker broker-b: its clock was up to -86400 s from steady time, which intervals follow."
            " Way out: let NTP keep the clock."
        ),
    ]


def test_numbers_that_were_left_out_are_found(spark: SparkSession) -> None:
    records = lake_frame(spark, [record(HOUR, 1), record(HOUR, 2), record(HOUR, 6), record(HOUR, 1, epoch=2)])
    found = missing_sequences(records, [(CLUSTER, BROKER, 1, 0, 7000), (CLUSTER, BROKER, 2, 0, 2000)]).collect()
    assert [(one.sequence, one.missing) for one in found] == [(6, 3)]


def test_the_first_numbers_of_a_leadership_that_were_left_out_are_found(spark: SparkSession) -> None:
    """Of a leadership whose first record is older than what is looked at nothing is known."""
    records = lake_frame(spark, [record(HOUR, 40), record(HOUR, 3, epoch=2), record(HOUR, 4, epoch=2)])
    epochs = [(CLUSTER, BROKER, 1, 0, 41_000), (CLUSTER, BROKER, 2, 3000, 5000)]
    found = missing_sequences(records, epochs).collect()
    assert [(one.epoch, one.sequence, one.missing) for one in found] == [(2, 3, 2)]
