"""What the jobs know beside the records, in PostgreSQL's schema `lake`, where the tables' catalog is too.

    position    where reading goes on in each broker's metering queue, and the last record that was read there
    epoch       where each leadership's counting begins and ends in its log
    progress    which version of the records each job has worked through
    refusal     hours whose usage would have fallen, until an operator says why
    damage      files that could not be read, and what may be missing with them

Positions and epochs follow from the records: `catch_up` derives them from what was committed, so a run that is killed
between its commit and theirs costs nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_etl.jobs.lake import DATABASE_SCHEMA, Lake
from spark_etl.jobs.postgres import Postgres

_TABLES: Final = """
create schema if not exists lake;
create table if not exists lake.position (
    namespace text, cluster_id uuid, broker text, queue_id integer, next_offset bigint not null, epoch bigint not
    null, sequence bigint not null, end_offset bigint not null, end_ms bigint not null, from_start boolean not null
    default false, primary key (namespace, cluster_id, broker, queue_id)
);
create table if not exists lake.epoch (
    namespace text, cluster_id uuid, broker text, epoch bigint, first_offset bigint not null, last_offset bigint not
    null, first_queue_offset bigint, primary key (namespace, cluster_id, broker, epoch)
);
alter table lake.epoch add column if not exists first_queue_offset bigint;
create table if not exists lake.progress (
    namespace text, job text, snapshot_id bigint, details jsonb not null default '{}', updated_at timestamptz not null
    default now(), primary key (namespace, job)
);
create table if not exists lake.refusal (
    namespace text, cluster_id uuid, hour timestamptz, stored_messages bigint not null, counted_messages bigint not
    null, found_at timestamptz not null default now(), accepted_at timestamptz, accepted_by text not null default '',
    reason text not null default '', primary key (namespace, cluster_id, hour)
);
create table if not exists lake.damage (
    namespace text, path text, error text not null, records bigint not null, first_hour timestamptz, last_hour
    timestamptz, clusters uuid[] not null, found_at timestamptz not null default now(), repaired_at timestamptz,
    primary key (namespace, path)
);
"""
logger = logging.getLogger("spark_etl")

# Any number that no other part of the platform locks by.
_CREATION_LOCK: Final = 0x4857_4C41
INGEST: Final = "ingest"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading goes on in one queue, and the record before that place."""

    broker: str
    queue_id: int
    next_offset: int
    epoch: int
    sequence: int
    end_offset: int
    end_ms: int
    from_start: bool = False
    """Reading begins at the oldest message instead: an operator asked for it."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that could not be read, and what may be missing with it."""

    path: str
    error: str
    records: int
    first: datetime | None
    last: datetime | None
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has worked through: a version of the records (None: nothing yet), and what it noted with it."""

    snapshot: int | None
    details: Mapping[str, Any]


class State:
    """The tables above, of one namespace."""

    def __init__(self, postgres: Postgres, namespace: str) -> None:
        self._postgres = postgres
        self._namespace = namespace

    def create(self) -> None:
        """Makes the tables, and columns of a later version, where they are missing."""
        newest = self._postgres.rows(
            "select 1 from information_schema.columns where table_schema = %s and table_name = 'epoch'"
            " and column_name = 'first_queue_offset'",
            DATABASE_SCHEMA,
        )
        if newest and self._postgres.exists(f"{DATABASE_SCHEMA}.damage"):
            return
        with self._postgres.connection.transaction():
            # Two jobs may be the first.
            self._postgres.change("select pg_advisory_xact_lock(%s)", _CREATION_LOCK)
            self._postgres.connection.execute(_TABLES)

    # -- progress

    def progress(self, job: str) -> Progress:
        """How far a job has come."""
        found = self._postgres.rows(
            "select snapshot_id, details from lake.progress where namespace = %s and job = %s", self._namespace, job
        )
        return Progress(*found[0]) if found else Progress(None, {})

    def save_progress(self, job: str, snapshot: int | None, details: Mapping[str, Any] | None = None) -> None:
        """Notes how far a job has come."""
        self._postgres.change(
            "insert into lake.progress (namespace, job, snapshot_id, details) values (%s, %s, %s, %s)"
            " on conflict (namespace, job) do update set snapshot_id = excluded.snapshot_id, details = excluded.details,"
            " updated_at = now()",
            *(self._namespace, job, snapshot, json.dumps(details or {})),
        )

    # -- positions and epochs

    def positions(self) -> dict[str, list[Position]]:
        """By cluster."""
        found: dict[str, list[Position]] = {}
        for cluster, *values in self._postgres.rows(
            "select cluster_id::text, broker, queue_id, next_offset, epoch, sequence, end_offset, end_ms, from_start"
            " from lake.position"
            " where namespace = %s order by 1, 2, 3",
            self._namespace,
        ):
            found.setdefault(cluster, []).append(Position(*values))
        return found

    def read_from_start(self, clusters: Sequence[str], *, value: bool = True) -> int:
        """The next run reads these clusters (none: all) from the oldest message that their brokers have; or, as
        before, from the positions.

        Returns how many queues that are.
        """
        return self._postgres.change(
            "update lake.position set from_start = %s where namespace = %s and from_start <> %s"
            " and (%s::uuid[] = '{}' or cluster_id = any(%s::uuid[]))",
            *(value, self._namespace, value, list(clusters), list(clusters)),
        )

    def catch_up(self, lake: Lake) -> None:
        """Brings positions and epochs up to the present version of the records."""
        present = lake.snapshot()
        done = self.progress(INGEST).snapshot
        if present is None or present == done:
            return
        # Where the version before is not kept any more, all of them are derived again.
        if done is not None and lake.is_known(done):
            try:
                self._derive(lake.added(done, present), present)
            except PySparkException as error:
                # A file that was added since may have been taken out of use.
                logger.warning("positions are derived from all records, as those added since can't be read: %s", error)
            else:
                return
        self._derive(lake.records(), present)

    def _derive(self, added: DataFrame, present: int) -> None:
        newest = F.max_by(
            F.struct("queue_offset", "epoch", "sequence", "end_offset", "end_ms"), F.struct("epoch", "sequence")
        )
        found = (
            added.groupBy("cluster", "broker", "queue_id", "epoch")
            .agg(
                newest.alias("last"),
                F.min("start_offset").alias("first_offset"),
                F.max("end_offset").alias("last_offset"),
                F.min("queue_offset").alias("first_queue_offset"),
            )
            .collect()
        )
        with self._postgres.connection.transaction(), self._postgres.connection.cursor() as cursor:
            cursor.executemany(
                "insert into lake.epoch as kept values (%s, %s, %s, %s, %s, %s, %s)"
                " on conflict (namespace, cluster_id, broker, epoch) do update set"
                " first_offset = least(kept.first_offset, excluded.first_offset),"
                " last_offset = greatest(kept.last_offset, excluded.last_offset),"
                # Not known of one that had begun before this was noted.
                " first_queue_offset = case when kept.first_queue_offset is not null"
                " then least(kept.first_queue_offset, excluded.first_queue_offset) end",
                [
                    (
                        *(self._namespace, row.cluster, row.broker, row.epoch),
                        *(row.first_offset, row.last_offset, row.first_queue_offset),
                    )
                    for row in found
                ],
            )
            cursor.executemany(
                "insert into lake.position as kept values (%s, %s, %s, %s, %s, %s, %s, %s, %s, false)"
                " on conflict (namespace, cluster_id, broker, queue_id) do update set next_offset = excluded.next_offset,"
                " epoch = excluded.epoch, sequence = excluded.sequence, end_offset = excluded.end_offset, end_ms = excluded.end_ms"
                " where (kept.epoch, kept.sequence) <= (excluded.epoch, excluded.sequence)",
                [
                    (
                        *(self._namespace, row.cluster, row.broker, row.queue_id, row["last"].queue_offset + 1),
                        *(row["last"].epoch, row["last"].sequence, row["last"].end_offset, row["last"].end_ms),
                    )
                    for row in sorted(found, key=lambda row: row.epoch)
                ],
            )
            self.save_progress(INGEST, present)

    def epochs(self) -> list[tuple[str, str, int, int, int]]:
        """cluster, broker, epoch, first_offset, last_offset of every leadership that was seen."""
        return [
            tuple(row)
            for row in self._postgres.rows(
                "select cluster_id::text, broker, epoch, first_offset, last_offset from lake.epoch where namespace = %s",
                self._namespace,
            )
        ]

    def places(self) -> dict[tuple[str, str, int], int]:
        """(cluster, broker, epoch) -> where in the metering queue the leadership's first record lies, where that is known."""
        return {
            (cluster, broker, epoch): place
            for cluster, broker, epoch, place in self._postgres.rows(
                "select cluster_id::text, broker, epoch, first_queue_offset from lake.epoch"
                " where namespace = %s and first_queue_offset is not null",
                self._namespace,
            )
        }

    # -- refusals

    def refuse(self, refused: Iterable[tuple[str, datetime, int, int]]) -> None:
        """Notes hours (cluster, hour, stored and counted messages) whose usage would have fallen."""
        with self._postgres.connection.cursor() as cursor:
            cursor.executemany(
                "insert into lake.refusal (namespace, cluster_id, hour, stored_messages, counted_messages)"
                " values (%s, %s, %s, %s, %s) on conflict (namespace, cluster_id, hour) do update set"
                " stored_messages = excluded.stored_messages, counted_messages = excluded.counted_messages, found_at = now(),"
                " accepted_at = null, accepted_by = '', reason = ''",
                [(self._namespace, *row) for row in refused],
            )

    def accepted(self) -> list[tuple[str, datetime]]:
        """Hours (cluster, hour) that an operator let fall, and that were not counted since."""
        return [
            tuple(row)
            for row in self._postgres.rows(
                "select cluster_id::text, hour from lake.refusal where namespace = %s and accepted_at is not null",
                self._namespace,
            )
        ]

    def refused(self) -> list[tuple[str, datetime]]:
        """Hours (cluster, hour) whose usage stands still until an operator says why it falls."""
        return [
            tuple(row)
            for row in self._postgres.rows(
                "select cluster_id::text, hour from lake.refusal where namespace = %s", self._namespace
            )
        ]

    def settle(self, hours: Sequence[tuple[str, datetime]]) -> None:
        """Forgets the refusals of hours that were counted."""
        if hours:
            self._postgres.change(
                "delete from lake.refusal where namespace = %s and (cluster_id, hour) in"
                " (select * from unnest(%s::uuid[], %s::timestamptz[]))",
                *(self._namespace, [cluster for cluster, _ in hours], [hour for _, hour in hours]),
            )

    def accept(
        self, clusters: Sequence[str], begin: datetime | None, end: datetime | None, by: str, reason: str
    ) -> int:
        """Lets the refused hours of these clusters (none: all) in [begin, end) fall; returns how many."""
        return self._postgres.change(
            "update lake.refusal set accepted_at = now(), accepted_by = %s, reason = %s where namespace = %s"
            " and (%s::uuid[] = '{}' or cluster_id = any(%s::uuid[]))"
            " and hour >= coalesce(%s::timestamptz, '-infinity') and hour < coalesce(%s::timestamptz, 'infinity')",
            *(by, reason, self._namespace, list(clusters), list(clusters), begin, end),
        )

    # -- damage

    def save_damage(self, found: Iterable[Damage]) -> None:
        """Notes files that were taken out of the table."""
        with self._postgres.connection.cursor() as cursor:
            cursor.executemany(
                "insert into lake.damage (namespace, path, error, records, first_hour, last_hour, clusters)"
                " values (%s, %s, %s, %s, %s, %s, %s::uuid[]) on conflict (namespace, path) do nothing",
                [
                    (
                        *(self._namespace, damage.path, damage.error, damage.records, damage.first, damage.last),
                        list(damage.clusters),
                    )
                    for damage in found
                ],
            )
