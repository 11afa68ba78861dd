"""usage_billing and billing_check on the control plane's own tables."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from mqwire.metering import StorageRow
from spark_etl.errors import EtlError
from spark_etl.jobs.counting import scopes_of
from spark_etl.transforms.time import to_ms
from tests.processes import wait_until
from tests.spark_etl.database import PRICE
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import CLUSTER, NOW, OTHER_CLUSTER, delivered, record, sent, utc

RECORDS = [
    record(
        "2026-11-21 13:00",
        1,
        messages_in=[sent(messages=5), sent(messages=2, kind="ordered")],
        messages_out=[delivered(messages=3)],
        storage=[StorageRow(topic="orders", bytes=2**30)],
    ),
    record("2026-11-21 13:01", 2, messages_in=[sent(messages=4), sent("RMQ_SYS_TRACE_TOPIC")]),
    record("2026-11-21 14:00", 3, messages_in=[sent(messages=7, credential="")], start_offset=3000, end_offset=3900),
]
LATE = record("2026-11-21 14:30", 4, messages_in=[sent(messages=6, credential="")], start_offset=3900, end_offset=5000)


def figures(world: JobWorld) -> list[tuple[object, ...]]:
    return [
        (
            f"{row['hour']:%H}",
            row["direction"],
            row["kind"],
            row["messages"],
            row["bytes"],
            row["billed_units"],
            row["amount"],
        )
        for row in world.database.usage(world.cluster_id)
    ]


EXPECTED = [
    ("13", "in", "normal", 9, 900, Decimal("9.0000"), Decimal("0.0000180000")),
    ("13", "in", "ordered", 2, 200, Decimal("3.0000"), Decimal("0.0000060000")),
    ("13", "out", "", 3, 300, Decimal("3.0000"), Decimal("0.0000015000")),
    # a GiB for a minute, as byte-hours
    ("13", "storage", "", 0, 17895697, Decimal("0.0000"), Decimal("0.0000057870")),
    ("14", "in", "normal", 7, 700, Decimal("7.0000"), Decimal("0.0000140000")),
]


@pytest.fixture
def counted(world: JobWorld) -> JobWorld:
    """After one run over RECORDS."""
    world.subscribe()
    world.add_to_lake(*RECORDS, now=NOW)
    result = world.run("usage_billing", now=NOW)
    assert (result.state, result.rows_in, result.rows_out) == ("completed", 3, 5)
    assert (result.range_from, result.range_to) == (utc("2026-11-21 13:00"), utc("2026-11-21 14:01"))
    return world


def test_usage_is_what_the_records_say(counted: JobWorld) -> None:
    assert figures(counted) == EXPECTED
    assert {str(row["tenant_id"]) for row in counted.database.usage(counted.cluster_id)} == {counted.tenant_id}
    assert counted.database.rows("select * from billing_usage_staging") == []


def test_running_it_twice_reads_and_changes_nothing_and_a_late_record_only_its_hour(counted: JobWorld) -> None:
    before = counted.database.usage(counted.cluster_id)
    again = counted.run("usage_billing", now=NOW)
    assert (again.state, again.rows_in, again.rows_out, again.range_to) == ("completed", 0, 0, None)
    with counted.lake() as (lake, _):
        assert again.snapshot_id == str(lake.snapshot())
    assert counted.database.usage(counted.cluster_id) == before
    counted.add_to_lake(LATE, LATE, RECORDS[0], now=NOW)
    counted.run("usage_billing", now=NOW)
    after = counted.database.usage(counted.cluster_id)
    assert after[:4] == before[:4]
    assert (after[4]["messages"], before[4]["messages"]) == (13, 7)
    assert after[4]["updated_at"] > before[4]["updated_at"]


@contextmanager
def invoiced(world: JobWorld) -> Iterator[None]:
    """The tenant's November has an invoice. Other tests' checks would see it, too."""
    world.database.change(
        "insert into billing_invoice (id, created_at, updated_at, tenant_id, number, month, currency, total, rounding,"
        " tenant_name, issued_at, counted_until, snapshot_id, agreed_ends) values"
        " (gen_random_uuid(), now(), now(), %s, 1, '2026-11-01', 'EUR', 0, 'invoice', '', now(), now(), '', '[]')",
        world.tenant_id,
    )
    yield
    world.database.change("delete from billing_invoice where tenant_id = %s", world.tenant_id)


def test_hours_outside_the_window_stay_once_they_are_invoiced_until_a_backfill_asks_for_them(world: JobWorld) -> None:
    world.subscribe()
    week_later = NOW + timedelta(days=7)
    world.add_to_lake(*RECORDS, now=week_later)
    with invoiced(world):
        assert world.run("usage_billing", now=week_later).rows_out == 0
    asked = {"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T14:00:00Z"}
    result = world.run("usage_billing", now=week_later, range=asked)
    assert result.rows_out == 4
    assert figures(world) == EXPECTED[:4]


def test_the_first_run_counts_all_that_is_not_invoiced(world: JobWorld) -> None:
    """Brokers keep records for longer than the late window: the jobs could not run before."""
    world.subscribe()
    world.add_to_lake(*RECORDS, now=NOW)
    world.run("usage_billing", now=NOW + timedelta(days=3))
    assert figures(world) == EXPECTED


def test_what_could_not_be_read_for_days_is_counted_until_its_month_is_invoiced(world: JobWorld) -> None:
    world.subscribe()
    world.add_to_lake(RECORDS[0], now=NOW)
    world.run("usage_billing", now=NOW)
    later = NOW + timedelta(days=3)
    world.add_to_lake(*RECORDS[1:], now=later)
    result = world.run("usage_billing", now=later)
    assert (result.rows_late, figures(world)) == (2, EXPECTED)
    world.add_to_lake(LATE, now=later)
    with invoiced(world):
        result = world.run("usage_billing", now=later)
    assert (result.rows_late, figures(world)) == (1, EXPECTED)


def test_what_was_ingested_while_the_job_stood_still_for_days_is_counted_when_it_runs_again(world: JobWorld) -> None:
    world.subscribe()
    world.add_to_lake(RECORDS[0], now=NOW)
    world.run("usage_billing", now=NOW)
    world.add_to_lake(*RECORDS[1:], now=NOW + timedelta(hours=1))
    with world.lake() as (lake, _):
        # As upkeep does after HIGHWATER_LAKE_SNAPSHOT_HOURS.
        lake.spark.sql(
            f"call lake.system.expire_snapshots(table => '{lake.namespace}.metering',"
            f" older_than => timestamp'{datetime.now(UTC).isoformat()}', retain_last => 1)"
        ).collect()
    world.run("usage_billing", now=NOW + timedelta(days=4))
    assert figures(world) == EXPECTED


DAY: dict[str, Any] = {"range": {"from": "2026-11-21T00:00:00Z", "to": "2026-11-22T00:00:00Z"}}


def test_prices_that_begin_between_two_runs_are_no_finding_and_are_applied_to_the_whole_window_by_the_next(
    world: JobWorld,
) -> None:
    world.add_to_lake(*RECORDS, now=NOW)
    world.run("usage_billing", now=NOW)
    unpriced = world.database.usage(world.cluster_id)
    assert {(row["price_id"], row["amount"]) for row in unpriced} == {(None, 0)}
    assert [row["messages"] for row in unpriced] == [row[3] for row in EXPECTED]
    world.subscribe()
    # The rows are right by the prices of their run.
    checked = world.run("billing_check", now=NOW)
    assert (checked.state, checked.error) == ("completed", "")
    assert world.run("usage_billing", now=NOW).rows_in == 3
    assert figures(world) == EXPECTED


def test_a_price_that_is_given_after_days_is_applied_to_all_that_has_none_of_a_month_that_is_not_invoiced(
    world: JobWorld,
) -> None:
    world.add_to_lake(*RECORDS, now=NOW)
    world.run("usage_billing", now=NOW)
    later = NOW + timedelta(days=5)
    world.subscribe()
    world.run("usage_billing", now=later)
    assert figures(world) == EXPECTED


def test_usage_that_would_fall_is_refused_until_an_operator_says_why(counted: JobWorld) -> None:
    copy = (
        "insert into billing_usage (tenant_id, cluster_id, hour, direction, topic, messages, bytes, units, billed_units,"
        " amount, run_id) select tenant_id, cluster_id, %s, 'in', 'stray', 1, 1, 1, 1, 0, run_id from billing_usage"
        " where cluster_id = %s limit 1"
    )
    for hour in ("2026-11-21 13:00+00", "2026-11-21 15:00+00"):
        counted.database.change(copy, hour, counted.cluster_id)

    def stray() -> list[int]:
        return [row["hour"].hour for row in counted.database.usage(counted.cluster_id) if row["topic"] == "stray"]

    refused = counted.run("usage_billing", now=NOW, **DAY)
    assert (refused.state, refused.rows_refused) == ("failed", 1)
    assert f"cluster {counted.cluster_id}, 2026-11-21 13:00: 14 messages were counted now, 15 before" in refused.error
    assert stray() == [13, 15]
    accept = {"action": "accept", "clusters": [counted.cluster_id], "reason": "a row by hand", "by": "me"}
    assert counted.run("repair", repair=accept).rows_out == 1
    assert counted.run("usage_billing", now=NOW).state == "completed"
    # An hour without any record was not counted.
    assert stray() == [15]


def test_a_file_that_is_gone_is_named_and_others_go_on(counted: JobWorld) -> None:
    """Another cluster's records came in another file."""
    other = JobWorld(counted.spark, counted.database, counted.folder, namespace=counted.namespace)
    (lost,) = (counted.folder / "lake" / "metering" / "data").rglob("*.parquet")
    other.add_to_lake(RECORDS[1], now=NOW)
    lost.unlink()
    clusters = [counted.cluster(), other.cluster()]
    result = counted.run("usage_billing", now=NOW, clusters=clusters)
    assert result.state == "failed"
    assert f"taken out of use, it is missing: file:{lost}" in result.error
    assert "3 records of 2026-11-21 13:00 to 2026-11-21 14:00 are missing" in result.error
    assert counted.cluster_id in result.error
    assert figures(counted) == EXPECTED, "no bill became smaller"
    assert sum(row["messages"] for row in other.database.usage(other.cluster_id)) == 4
    counted.add_to_lake(*RECORDS, now=NOW)
    assert counted.run("usage_billing", now=NOW, clusters=clusters).state == "completed"
    assert figures(counted) == EXPECTED


def test_no_bill_becomes_smaller_for_a_file_that_is_gone_though_the_broker_was_restarted_before(
    counted: JobWorld,
) -> None:
    """A restart begins a new epoch, and loses nothing."""
    (lost,) = counted.data_files()
    six = [sent(messages=6, credential="")]
    counted.add_to_lake(
        record("2026-11-21 14:30", 1, start_offset=3900, end_offset=5000, epoch=2, messages_in=six), now=NOW
    )
    counted.run("usage_billing", now=NOW)
    before = figures(counted)
    lost.unlink()
    counted.add_to_lake(
        record("2026-11-21 14:40", 2, start_offset=5000, end_offset=6000, epoch=2, messages_in=six), now=NOW
    )
    result = counted.run("usage_billing", now=NOW)
    assert (figures(counted), result.rows_refused) == (before, 1)


def test_a_price_change_inside_a_month_is_billed_by_the_hour(world: JobWorld) -> None:
    change = utc("2026-11-21 14:00")
    world.subscribe({**PRICE, "valid_to": change}, {**PRICE, "valid_from": change, "per_million_units": Decimal("4")})
    world.add_to_lake(*RECORDS, now=NOW)
    world.run("usage_billing", now=NOW)
    rows = world.database.usage(world.cluster_id)
    assert [row["amount"] / row["billed_units"] for row in rows if row["direction"] == "in"] == [
        Decimal("0.000002"), Decimal("0.000002"), Decimal("0.000004"),
    ]  # fmt: skip


def test_an_empty_lake_is_no_error(world: JobWorld) -> None:
    result = world.run("usage_billing", now=NOW)
    assert (result.state, result.rows_in, result.rows_out, result.range_from) == ("completed", 0, 0, None)


def test_the_check_agrees_and_then_finds_each_planted_difference(counted: JobWorld) -> None:
    assert counted.run("billing_check", now=NOW).state == "completed"
    cluster = counted.cluster_id
    counted.database.change(
        "update billing_usage set amount = amount + 0.0000000001 where cluster_id = %s and kind = 'ordered'", cluster
    )
    counted.database.change("delete from billing_usage where cluster_id = %s and direction = 'out'", cluster)
    gap = record("2026-11-21 14:40", 6, start_offset=9000, end_offset=9100)
    counted.add_to_lake(gap, now=NOW)
    result = counted.run("billing_check", now=NOW)
    assert (result.state, result.rows_out) == ("failed", 4)
    for finding in (
        "kind ordered: amount is 0.0000060001, counted 0.0000060000",
        "group workers, credential key-2, kind : missing in the database",
        "bytes 3900 to 9000 of the log were not counted (before record 1/6)",
        "2 records are missing before 1/6",
    ):
        assert finding in result.error
    counted.run("usage_billing", now=NOW, **DAY)
    assert counted.run("billing_check", now=NOW).rows_out == 2, (
        "what was changed by hand is counted again; the gap stays"
    )


def ingested(world: JobWorld, until: datetime) -> None:
    """What an ingest that read so far leaves."""
    world.database.change(
        "insert into insight_cluster_progress (cluster_id, ingested_until, updated_at) values (%s, %s, now())"
        " on conflict (cluster_id) do update set ingested_until = excluded.ingested_until",
        *(world.cluster_id, until),
    )


def test_a_finding_does_not_end_by_growing_older_than_the_late_window(counted: JobWorld) -> None:
    counted.add_to_lake(record("2026-11-21 14:40", 6, start_offset=9000, end_offset=9100), now=NOW)
    ingested(counted, NOW)
    assert counted.run("billing_check", now=NOW).rows_out == 2, "a gap, and numbers that are missing"
    later = NOW + timedelta(days=4)
    counted.add_to_lake(record(later - timedelta(minutes=5), 7, start_offset=9100, end_offset=9200), now=later)
    ingested(counted, later)
    counted.run("usage_billing", now=later)
    assert counted.run("billing_check", now=later).rows_out == 2


def progress_of(world: JobWorld) -> dict[str, Any]:
    query = "select checked_until, check_error from insight_cluster_progress where cluster_id = %s"
    (row,) = world.database.rows(query, world.cluster_id)
    return row


def test_a_check_of_a_range_ends_no_finding_outside_of_it(counted: JobWorld) -> None:
    """Else an operator who looks at one day lets the month's invoice go out."""
    counted.add_to_lake(record("2026-11-21 14:40", 6, start_offset=9000, end_offset=9100), now=NOW)
    ingested(counted, NOW)
    assert counted.run("billing_check", now=NOW).state == "failed"
    before = progress_of(counted)
    assert "2 records are missing before 1/6" in before["check_error"]
    asked = {"from": "2026-11-21T13:00:00Z", "to": "2026-11-21T14:00:00Z"}
    assert counted.run("billing_check", now=NOW, range=asked).state == "completed"
    assert progress_of(counted) == before


def test_the_first_check_of_a_cluster_looks_at_all_that_was_counted_of_it(world: JobWorld) -> None:
    """Its brokers keep records for longer than the late window: they could not be read before."""
    world.subscribe()
    gap = record("2026-11-21 14:40", 6, start_offset=9000, end_offset=9100)
    later = NOW + timedelta(days=3)
    newest = record(later - timedelta(minutes=5), 7, start_offset=9100, end_offset=9200)
    world.add_to_lake(*RECORDS, gap, newest, now=later)
    ingested(world, later)
    world.run("usage_billing", now=later)
    assert world.run("billing_check", now=later).rows_out == 2, "a gap, and numbers that are missing"


def test_a_log_whose_begin_was_never_read_is_a_finding(world: JobWorld) -> None:
    """The jobs ran for the first time when the brokers had deleted their first records."""
    world.subscribe()
    begun = utc("2026-11-21 13:00")
    first = [
        record(begun, 40, messages_in=[sent()]),
        record(begun, 1, epoch=2, messages_in=[sent()], start_offset=7000, end_offset=8000, broker="broker-b"),
    ]
    known = record(
        begun, 1, messages_in=[sent()], start_offset=7000, end_offset=8000, deleted_to=7000, broker="broker-c"
    )
    world.add_to_lake(*first, known, now=NOW)
    world.run("usage_billing", now=NOW)
    result = world.run("billing_check", now=NOW)
    assert (result.state, result.rows_out) == ("failed", 3)
    for finding in (
        "broker broker-a: bytes 0 to 40000 of the log were not counted (before record 1/40)",
        "broker broker-a: 39 records are missing before 1/40",
        "broker broker-b: bytes 0 to 7000 of the log were not counted (before record 2/1)",
    ):
        assert finding in result.error


def test_leaderships_noted_by_an_earlier_version_stay_without_a_place(counted: JobWorld) -> None:
    with counted.lake() as (_, state):
        assert state.places() == {(counted.cluster_id, "broker-a", 1): 0}
    counted.database.change("alter table lake.epoch drop column first_queue_offset")
    counted.add_to_lake(LATE, now=NOW)
    with counted.lake() as (_, state):
        assert state.places() == {}
    counted.run("usage_billing", now=NOW)
    assert counted.database.usage(counted.cluster_id)[4]["messages"] == 13


def test_what_a_leader_lost_is_not_billed_though_it_was_counted_before_the_late_window(world: JobWorld) -> None:
    """A master dies, and days later a follower that lacks its last hour is promoted."""
    world.subscribe()
    lost = record("2026-11-21 14:00", 2, messages_in=[sent(messages=9)])
    world.add_to_lake(record("2026-11-21 13:00", 1, messages_in=[sent(messages=2)]), lost, now=NOW)
    world.run("usage_billing", now=NOW)
    assert [row["messages"] for row in world.database.usage(world.cluster_id)] == [2, 9]
    later = NOW + timedelta(days=4)
    promoted = record(later - timedelta(minutes=5), 1, epoch=2, start_offset=2000, end_offset=2100)
    world.add_to_lake(promoted, now=later)
    assert world.run("usage_billing", now=later).state == "completed"
    assert [row["messages"] for row in world.database.usage(world.cluster_id)] == [2]


# -- killed anywhere


def assert_nothing_is_counted_until_the_next_run_counts_all(world: JobWorld) -> None:
    assert world.database.usage(world.cluster_id) == []
    assert world.run("usage_billing", **DAY).rows_out == 5
    assert figures(world) == EXPECTED
    assert world.database.rows("select * from billing_usage_staging") == []


def test_a_job_that_loses_the_database_inside_its_merge_has_changed_nothing_and_the_next_run_completes(
    world: JobWorld,
) -> None:
    world.subscribe()
    world.add_to_lake(*RECORDS, now=NOW)
    with world.database.locked("billing_usage", "exclusive"), ThreadPoolExecutor(1) as thread:
        run = thread.submit(world.run, "usage_billing", **DAY)
        wait_until(
            lambda: world.database.waits_for_lock("billing_usage") or run.done(),
            timeout_s=240,
            what="the job waits for the table",
        )
        world.database.change(
            "select pg_terminate_backend(pid) from pg_locks where not granted and relation = 'billing_usage'::regclass"
        )
        with pytest.raises(psycopg.OperationalError):
            run.result(240)
    assert_nothing_is_counted_until_the_next_run_counts_all(world)


@pytest.mark.long
@pytest.mark.parametrize(
    ("table", "mode"),
    [
        pytest.param("billing_usage_staging", "access exclusive", id="before it stages"),
        pytest.param("billing_usage", "exclusive", id="inside the merge"),
    ],
)
def test_a_job_that_is_killed_has_changed_nothing_and_the_next_run_completes(
    world: JobWorld, table: str, mode: str
) -> None:
    world.subscribe()
    world.add_to_lake(*RECORDS, now=NOW)
    with world.database.locked(table, mode):
        job = world.start("usage_billing", **DAY)
        try:
            wait_until(lambda: world.database.waits_for_lock(table), timeout_s=240, what="the job waits for the table")
        finally:
            job.kill()
    assert_nothing_is_counted_until_the_next_run_counts_all(world)


def test_a_database_that_does_not_answer_is_named(world: JobWorld) -> None:
    nowhere = {**world.database.config, "port": 1}
    with pytest.raises(EtlError, match=r"at 127\.0\.0\.1:1 can't be reached.*Way out"):
        world.run("usage_billing", database=nowhere)


def test_hours_are_joined_to_scopes_without_those_that_were_not_counted() -> None:
    hours = [to_ms(utc(f"2026-11-21 {hour}:00")) for hour in (10, 11, 13)]
    found = scopes_of([(CLUSTER, hours[1]), (CLUSTER, hours[2]), (CLUSTER, hours[0]), (OTHER_CLUSTER, hours[0])])
    assert [(scope.cluster_id[:1], f"{scope.begin:%H}", f"{scope.end:%H}") for scope in found] == [
        ("1", "10", "12"), ("1", "13", "14"), ("2", "10", "11"),
    ]  # fmt: skip
