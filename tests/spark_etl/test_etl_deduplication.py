"""Each record counts once, and what an unclean promotion lost counts not at all."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mqwire.metering import MeteringRecord, record_origin
from spark_etl.transforms.deduplicate import lost_tail_limits, superseded, without, without_lost_tails
from tests.spark_etl.metering import delivered, lake_frame, record, sent

HOUR = "2026-11-21 13:00"


def counted(frame: DataFrame) -> DataFrame:
    """What counts of the records in a lake, in which each lies once."""
    epochs = [
        tuple(row)
        for row in frame.groupBy("cluster", "broker", "epoch").agg(F.min("start_offset"), F.max("end_offset")).collect()
    ]
    return without_lost_tails(without(frame, superseded(frame).collect()), lost_tail_limits(epochs))


def surviving(spark: SparkSession, *records: MeteringRecord) -> dict[tuple[int, int], int]:
    """(epoch, sequence) -> messages in, of what counts."""
    rows = counted(lake_frame(spark, records)).collect()
    return {(row.epoch, row.sequence): sum(one.messages for one in row.messages_in) for row in rows}


def test_equal_numbers_of_other_brokers_and_epochs_are_other_records(spark: SparkSession) -> None:
    frame = lake_frame(spark, [record(HOUR, 1), record(HOUR, 1, broker="broker-b"), record(HOUR, 1, epoch=2)])
    assert counted(frame).count() == 3


def test_of_a_key_that_was_used_again_after_a_power_cut_the_recounted_record_is_taken(spark: SparkSession) -> None:
    lost = record(HOUR, 5, messages_in=[sent(messages=3)], start_offset=100, end_offset=200)
    again = record(HOUR, 5, messages_in=[sent(messages=4)], start_offset=100, end_offset=300, recounted=True)
    assert surviving(spark, lost, again) == {(1, 5): 4}
    assert surviving(spark, again, lost) == {(1, 5): 4}


def test_a_clean_promotion_loses_nothing(spark: SparkSession) -> None:
    before = record(HOUR, 1, messages_in=[sent(messages=2)], start_offset=0, end_offset=100)
    after = record(HOUR, 1, epoch=2, messages_in=[sent(messages=3)], start_offset=100, end_offset=200)
    assert surviving(spark, before, after) == {(1, 1): 2, (2, 1): 3}


def test_what_an_unclean_promotion_counts_again_is_not_counted_twice(spark: SparkSession) -> None:
    kept = record(HOUR, 1, messages_in=[sent(messages=2)], start_offset=0, end_offset=100)
    lost = record(HOUR, 2, messages_in=[sent(messages=9)], start_offset=100, end_offset=200)
    split = record(HOUR, 3, messages_in=[sent(messages=4)], start_offset=200, end_offset=200)
    recounted = record(HOUR, 1, epoch=2, messages_in=[sent(messages=7)], start_offset=100, end_offset=150)
    assert surviving(spark, kept, lost, split, recounted) == {(1, 1): 2, (1, 2): 0, (1, 3): 0, (2, 1): 7}


def test_what_the_lost_leader_delivered_counts_once_for_it_tells_that_again(spark: SparkSession) -> None:
    kept = record(HOUR, 1, messages_out=[delivered(messages=2)], start_offset=0, end_offset=100)
    lost = record(HOUR, 2, messages_out=[delivered(messages=6)], start_offset=100, end_offset=200)
    again = delivered(messages=6, origin=record_origin(1, 2))
    recounted = record(HOUR, 1, epoch=2, messages_out=[again], start_offset=100, end_offset=150)
    rows = counted(lake_frame(spark, [kept, lost, recounted])).collect()
    assert {(row.epoch, row.sequence): sum(one.messages for one in row.messages_out) for row in rows} == {
        (1, 1): 2,
        (1, 2): 0,
        (2, 1): 6,
    }
