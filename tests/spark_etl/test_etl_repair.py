"""`manage.py lake ...` on damaged, refused and old records, with the job it starts run in the tests' own session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pyspark.sql import functions as F

from mqwire.metering import MeteringRecord, encode_metering_record
from spark_etl.errors import EtlError
from spark_etl.jobs import metering_reader, repair
from spark_etl.jobs.arrow_map import map_in_arrow
from spark_etl.jobs.config import JobResult, parse_config
from spark_etl.jobs.ingest import add_read
from spark_etl.jobs.metering_reader import READ
from spark_etl.transforms.metering_schema import RECORD_KEY
from spark_etl.transforms.time import to_ms
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import NAME, NOW, lake_frame, message, record, sent

RECORDS = [record("2026-11-21 13:00", number, messages_in=[sent(messages=number)]) for number in (1, 2, 3)]

LakeCommand = Callable[..., str]


@pytest.fixture
def lake_command(world: JobWorld, monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[LakeCommand]:
    """`manage.py lake ACTION ...` for the world; returns what it says. Its job is not started as a process."""
    from django.db import connections

    def run_here(job: str, config: dict[str, Any], _: object, *, in_session: bool) -> _Ran:
        # What the command found out, but for where the world's lake and database are.
        given = world.config(job, repair=config["repair"], range=config["range"], retention=config["retention"])
        # As the job's process does, whose result the worker reads from a file.
        try:
            return _Ran(repair.run(world.spark, parse_config(given, job), now=NOW))
        except EtlError as error:
            return _Ran(JobResult(state="failed", error=str(error)))

    monkeypatch.setattr("controlplane.insight.management.commands.lake.run_job", run_here)

    def call(*arguments: str) -> str:
        return str(call_command("lake", *arguments))

    default = connections["default"]
    default.close()
    # The command's own connection, and the one that holds the job's lock, are to the world's database.
    monkeypatch.setitem(default.settings_dict, "NAME", world.database.config["name"])
    with django_db_blocker.unblock():
        yield call
        default.close()


class _Ran:
    """A result as the platform's worker gives it."""

    def __init__(self, result: JobResult) -> None:
        self.completed = result.state == "completed"
        self.error = result.error
        self.rows_out = result.rows_out


def keys(world: JobWorld) -> list[tuple[Any, ...]]:
    """The records in the lake."""
    with world.lake() as (lake, _):
        return sorted(tuple(row) for row in lake.records().select(*RECORD_KEY).collect())


def quarantined(world: JobWorld) -> list[tuple[int, str]]:
    with world.lake() as (lake, _):
        rows = lake.quarantined().select("queue_offset", "reason").orderBy("queue_offset").collect()
        return [(row.queue_offset, row.reason) for row in rows]


def refuse(world: JobWorld, bodies: list[bytes], now: datetime) -> None:
    """These bodies as an ingest at `now` reads them."""
    cluster_id = world.cluster_id

    def columns(batches: Any) -> Any:
        for batch in batches:
            messages = [message(body, offset) for body, offset in zip(*batch.to_pydict().values(), strict=True)]
            yield from metering_reader.columns_of(messages, cluster_id=cluster_id, cluster_name=NAME, now_ms=to_ms(now))

    with world.lake() as (lake, _):
        given = lake.spark.createDataFrame(
            list(zip(bodies, range(len(bodies)), strict=True)), "body binary, offset long"
        )
        add_read(lake, map_in_arrow(given, columns, READ).persist(), {})


@pytest.mark.long
def test_what_was_refused_is_taken_back_when_it_is_a_record_by_now(world: JobWorld, lake_command: LakeCommand) -> None:
    """The broker's clock was an hour ahead, or ours behind."""
    early = NOW - timedelta(days=1000)
    refuse(world, [encode_metering_record(RECORDS[0]), b"no record"], early)
    before = quarantined(world)
    assert [offset for offset, _ in before] == [0, 1]
    assert before[0][1].startswith("future-dated by")
    assert (
        lake_command("requeue", "--cluster", world.cluster_id) == "1 refused messages are records now, and in the lake."
    )
    assert keys(world) == [(world.cluster_id, "broker-a", 1, 1)]
    assert quarantined(world) == before[1:]
    assert lake_command("requeue").startswith("0 refused messages")


def old_lake(world: JobWorld, records: list[MeteringRecord], folder: Path) -> None:
    """As ingest wrote before there were tables: folders of hours and clusters, fewer columns."""
    frame = lake_frame(world.spark, records).drop("queue_id", "start", "clock_step_ms", "pulls_lost_ms")
    start = F.timestamp_millis("start_ms")
    frame.withColumns(
        {
            "cluster": F.lit(world.cluster_id),
            "date": F.date_format(start, "yyyy-MM-dd"),
            "hour": F.date_format(start, "HH"),
        }
    ).write.partitionBy("date", "hour", "cluster").parquet(str(folder / "metering"))


@pytest.mark.long
def test_a_lake_of_before_the_tables_is_taken_over_once(
    world: JobWorld, lake_command: LakeCommand, tmp_path: Path
) -> None:
    old_lake(world, RECORDS, tmp_path / "before")
    world.add_to_lake(RECORDS[2], now=NOW)
    source = ("--source", str(tmp_path / "before"))
    assert lake_command("migrate", *source) == "2 records were added."
    assert [key[3] for key in keys(world)] == [1, 2, 3]
    assert lake_command("migrate", *source) == "0 records were added."
    world.subscribe()
    assert world.run("usage_billing", now=NOW).rows_in == 3
    with pytest.raises(CommandError, match="No lake was named to migrate"):
        lake_command("migrate")


@pytest.mark.long
def test_hours_may_fall_once_an_operator_has_said_why(world: JobWorld, lake_command: LakeCommand) -> None:
    """A file with the second record is lost, and older than what brokers keep."""
    world.subscribe()
    world.add_to_lake(*RECORDS[:1], now=NOW)
    (kept,) = world.data_files()
    world.add_to_lake(*RECORDS[1:], now=NOW)
    world.run("usage_billing", now=NOW)
    for lost in world.data_files() - {kept}:
        lost.unlink()
    asked = {"from": "2026-11-21T00:00:00Z", "to": "2026-11-22T00:00:00Z"}
    refused = world.run("usage_billing", now=NOW, range=asked)
    assert (refused.state, refused.rows_refused) == ("failed", 1)
    assert [row["messages"] for row in world.database.usage(world.cluster_id)] == [6]
    hours = ("--from", "2026-11-21T13:00+00:00", "--to", "2026-11-21T14:00+00:00")
    with pytest.raises(CommandError, match="No reason was given"):
        lake_command("accept", "--cluster", world.cluster_id, *hours)
    said = lake_command("accept", "--cluster", world.cluster_id, *hours, "--reason", "the disk broke")
    assert said == "1 hours may fall. The next usage_billing counts them again."
    assert world.run("usage_billing", now=NOW).state == "completed"
    assert [row["messages"] for row in world.database.usage(world.cluster_id)] == [1]


def test_columns_of_a_later_version_are_added_to_tables_that_are_there(world: JobWorld) -> None:
    world.add_to_lake(RECORDS[0], now=NOW)
    with world.lake() as (lake, _):
        lake.spark.sql(f"alter table {lake.table('metering')} drop columns (clock_step_ms, pulls_lost_ms)")
    world.add_to_lake(record("2026-11-21 13:01", 2, pulls_lost_ms=700), now=NOW)
    with world.lake() as (lake, _):
        rows = lake.records().orderBy("sequence").select("pulls_lost_ms").collect()
    assert [row.pulls_lost_ms for row in rows] == [None, 700]
