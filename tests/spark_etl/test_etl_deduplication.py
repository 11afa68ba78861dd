"""Each record counts once, and what an unclean promotion lost counts not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from mqwire.metering import MeteringRecord, record_origin
from spark_etl.jobs.counting import counted_records
from spark_etl.transforms.deduplicate import lost_tail_limits, lost_tails, superseded, without, without_lost_tails
from tests.spark_etl.metering import BROKER, delivered, lake_frame_of, record, sent

HOUR = "2026-11-21 13:00"
GIVEN: dict[str, Sequence[MeteringRecord]] = {}

Counted = dict[str, list[Row]]


def case(*records: MeteringRecord) -> str:
    """A cluster in whose lake each of these records lies once; `counted` has what counts under the name that is returned."""
    name = f"case-{len(GIVEN)}"
    GIVEN[name] = records
    return name


@pytest.fixture(scope="module")
def counted(spark: SparkSession) -> Counted:
    """All cases' records that count."""
    frame = lake_frame_of(spark, GIVEN).persist()
    by_epoch = frame.groupBy("cluster", "broker", "epoch")
    epochs = [tuple(row) for row in by_epoch.agg(F.min("start_offset"), F.max("end_offset")).collect()]
    left = without_lost_tails(without(frame, superseded(frame).collect()), lost_tail_limits(epochs))
    rows: Counted = {name: [] for name in GIVEN}
    for row in left.collect():
        rows[row.cluster].append(row)
    frame.unpersist()
    return rows


def messages_in(rows: Sequence[Row]) -> dict[tuple[int, int], int]:
    """By epoch and sequence."""
    return {(row.epoch, row.sequence): sum(one.messages for one in row.messages_in) for row in rows}


OTHERS = case(record(HOUR, 1), record(HOUR, 1, broker="broker-b"), record(HOUR, 1, epoch=2))


def test_equal_numbers_of_other_brokers_and_epochs_are_other_records(counted: Counted) -> None:
    assert len(counted[OTHERS]) == 3


LOST = record(HOUR, 5, messages_in=[sent(messages=3)], start_offset=100, end_offset=200)
AGAIN = record(HOUR, 5, messages_in=[sent(messages=4)], start_offset=100, end_offset=300, recounted=True)
USED_AGAIN = {"the lost one first": case(LOST, AGAIN), "the lost one last": case(AGAIN, LOST)}


@pytest.mark.parametrize("order", USED_AGAIN)
def test_of_a_key_that_was_used_again_after_a_power_cut_the_recounted_record_is_taken(
    counted: Counted, order: str
) -> None:
    assert messages_in(counted[USED_AGAIN[order]]) == {(1, 5): 4}


TWICE = case(LOST, LOST)
BOTH_TWICE = case(LOST, AGAIN, AGAIN, LOST)


def test_a_record_that_was_added_twice_counts_once(counted: Counted) -> None:
    assert [row.messages_in[0].messages for row in counted[TWICE]] == [3]
    assert [row.messages_in[0].messages for row in counted[BOTH_TWICE]] == [4]


CLEAN = case(
    record(HOUR, 1, messages_in=[sent(messages=2)], start_offset=0, end_offset=100),
    record(HOUR, 1, epoch=2, messages_in=[sent(messages=3)], start_offset=100, end_offset=200),
)


def test_a_clean_promotion_loses_nothing(counted: Counted) -> None:
    assert messages_in(counted[CLEAN]) == {(1, 1): 2, (2, 1): 3}


UNCLEAN = case(
    record(HOUR, 1, messages_in=[sent(messages=2)], start_offset=0, end_offset=100),
    # lost
    record(HOUR, 2, messages_in=[sent(messages=9)], start_offset=100, end_offset=200),
    record(HOUR, 3, messages_in=[sent(messages=4)], start_offset=200, end_offset=200),
    # what survived of it, counted again
    record(HOUR, 1, epoch=2, messages_in=[sent(messages=7)], start_offset=100, end_offset=150),
)


def test_what_an_unclean_promotion_counts_again_is_not_counted_twice(counted: Counted) -> None:
    assert messages_in(counted[UNCLEAN]) == {(1, 1): 2, (1, 2): 0, (1, 3): 0, (2, 1): 7}


def test_only_a_leadership_that_begins_in_front_of_what_was_counted_loses_a_tail() -> None:
    restarted = [("c", "b", 1, 0, 100), ("c", "b", 2, 100, 200), ("c", "b", 3, 200, 300)]
    assert lost_tails(restarted) == set()
    assert lost_tails([*restarted, ("c", "b", 4, 250, 400)]) == {("c", "b", 250)}


# A crash or a promotion between the records of one interval: of three parts two are in the log that the next leader has, and it
# counts what they don't say. Or none is, and it counts all.
PARTS = [record(HOUR, number, messages_in=[sent(messages=3)], start_offset=100, end_offset=100) for number in (2, 3)]
TORN = case(
    record(HOUR, 1, messages_in=[sent(messages=2)], start_offset=0, end_offset=100),
    *PARTS,
    record(HOUR, 1, epoch=2, messages_in=[sent(messages=4)], start_offset=100, end_offset=200),
)


@pytest.mark.parametrize(("place", "counted_of_parts"), [(3, 3), (1, 0), (None, 0)])
def test_parts_of_a_record_that_the_next_leader_has_count(
    spark: SparkSession, place: int | None, counted_of_parts: int
) -> None:
    """`place` is where in the queue the next leader's first record lies."""
    frame = lake_frame_of(spark, {TORN: GIVEN[TORN]})
    epochs = [(TORN, BROKER, 1, 0, 100), (TORN, BROKER, 2, 100, 200)]
    places = {} if place is None else {(TORN, BROKER, 2): place}
    left = counted_records(frame, epochs, places).collect()
    assert messages_in(left) == {(1, 1): 2, (1, 2): counted_of_parts, (1, 3): counted_of_parts, (2, 1): 4}


DELIVERED_AGAIN = case(
    record(HOUR, 1, messages_out=[delivered(messages=2)], start_offset=0, end_offset=100),
    record(HOUR, 2, messages_out=[delivered(messages=6)], start_offset=100, end_offset=200),
    record(
        HOUR,
        1,
        epoch=2,
        messages_out=[delivered(messages=6, origin=record_origin(1, 2))],
        start_offset=100,
        end_offset=150,
    ),
)


def test_what_the_lost_leader_delivered_counts_once_for_it_reports_that_again(counted: Counted) -> None:
    messages_out = {
        (row.epoch, row.sequence): sum(one.messages for one in row.messages_out) for row in counted[DELIVERED_AGAIN]
    }
    assert messages_out == {(1, 1): 2, (1, 2): 0, (2, 1): 6}
