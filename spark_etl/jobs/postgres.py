"""PostgreSQL: one psycopg connection on the driver for control, and JDBC by the executors for rows.

A merge fills a staging table and then changes the target in one transaction: rows of the counted scope that are no
longer counted go, new and changed ones come, equal ones stay untouched. Killed before the commit, it has changed
nothing; after it, everything. A lock that the run's own connection holds keeps a second run of the job out, and goes
with the connection.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mqwire.jobs import JobLock, job_lock_key
from spark_etl.errors import EtlError
from spark_etl.jobs.config import Database

LOCK_WAIT_S: Final = 60.0
LOCK_PAUSE_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 10
WRITERS_MAX: Final = 4
BATCH_ROWS: Final = 5000
DRIVER_CLASS: Final = "org.postgresql.Driver"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run counted: all of a cluster in [begin, end)."""

    cluster_id: str
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Target:
    """A table that is merged into. `time` is the column that a scope bounds; a staging table lies beside it."""

    table: str
    key: tuple[str, ...]
    values: tuple[str, ...]
    time: str
    touched: str | None = None
    """A column that takes the time of a change."""

    @property
    def staging(self) -> str:
        return f"{self.table}_staging"


class Postgres:
    """The job's one connection, on the driver, and reads and writes that the executors do."""

    def __init__(self, spark: SparkSession, database: Database, connection: psycopg.Connection[Any]) -> None:
        self._spark = spark
        self._database = database
        self.connection = connection

    def query(self, query: str) -> DataFrame:
        """The rows of a query, read by the executors. Select uuid and json columns as text."""
        return self._spark.read.format("jdbc").options(**self._options()).option("query", query).load()

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a query, read here."""
        return self.connection.execute(query, parameters).fetchall()

    def change(self, statement: str, *parameters: Any) -> int:
        """Executes a statement; returns how many rows it changed."""
        return self.connection.execute(statement, parameters).rowcount

    def exists(self, table: str) -> bool:
        """Whether there is such a table."""
        return bool(self.rows("select to_regclass(%s) is not null", table)[0][0])

    def stage(self, target: Target, rows: DataFrame) -> str:
        """Writes `rows` (key and values) into the staging table; returns the number of this attempt, by which they
        are distinguished from what the executors of a killed one may still write.
        """
        attempt = str(uuid.uuid4())
        self.change(f"delete from {target.staging}")  # nosec B608  # names are constants
        staged = rows.select(F.lit(attempt).alias("run_id"), *target.key, *target.values)
        writer = staged.coalesce(WRITERS_MAX).write.format("jdbc").options(**self._options())
        writer.option("dbtable", target.staging).option("batchsize", BATCH_ROWS).mode("append").save()
        return attempt

    def merge(self, target: Target, attempt: str, scopes: Sequence[Scope], run_id: str) -> int:
        """Makes the target hold exactly what was staged for the scopes; safe to repeat, and to kill. Returns how many
        rows were staged.

        Call it in a transaction.
        """
        self._delete_uncounted(target, scopes, attempt)
        self._upsert(target, run_id, attempt)
        key = ", ".join(target.key)
        ((staged,),) = self.rows(
            f"select count(*) from (select distinct {key} from {target.staging} where run_id = %s) keys",  # nosec B608  # names are constants
            attempt,
        )
        self.change(f"delete from {target.staging} where run_id = %s", attempt)  # nosec B608  # names are constants
        return int(staged)

    def _delete_uncounted(self, target: Target, scopes: Sequence[Scope], attempt: str) -> None:
        same_key = " and ".join(f"staged.{name} = target.{name}" for name in target.key)
        self.change(
            f"delete from {target.table} target"  # nosec B608  # names are constants
            " using unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) scope (cluster_id, lower_end, upper_end)"
            f" where target.cluster_id = scope.cluster_id"
            f" and target.{target.time} >= scope.lower_end and target.{target.time} < scope.upper_end"
            f" and not exists (select from {target.staging} staged where staged.run_id = %s and {same_key})",
            [scope.cluster_id for scope in scopes],
            [scope.begin for scope in scopes],
            [scope.end for scope in scopes],
            attempt,
        )

    def _upsert(self, target: Target, run_id: str, attempt: str) -> None:
        columns = [*target.key, *target.values]
        names = ", ".join(columns)
        key = ", ".join(target.key)
        assignments = [f"{name} = excluded.{name}" for name in (*target.values, "run_id")]
        if target.touched:
            assignments.append(f"{target.touched} = now()")
        ours = ", ".join(f"target.{name}" for name in target.values)
        theirs = ", ".join(f"excluded.{name}" for name in target.values)
        # distinct: a Spark task that was tried twice may have staged its rows twice.
        self.change(
            f"insert into {target.table} as target ({names}, run_id)"  # nosec B608  # names are constants
            f" select distinct on ({key}) {names}, %s::uuid from {target.staging} where run_id = %s order by {key}"
            f" on conflict ({key}) do update set {', '.join(assignments)}"
            f" where ({ours}) is distinct from ({theirs})",
            run_id,
            attempt,
        )

    def lock(self, job: str) -> None:
        """Takes the job's lock until the connection ends; raises EtlError when another run keeps it."""
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while not self.rows("select pg_try_advisory_lock(%s, %s)", *job_lock_key(JobLock.WORK, job))[0][0]:
            if time.monotonic() > deadline_s:
                raise EtlError(f"Another run of {job} is at work on this database.", "wait until it has ended.")
            time.sleep(LOCK_PAUSE_S)

    def unlock(self, job: str) -> None:
        """Gives a lock back before the connection ends."""
        self.rows("select pg_advisory_unlock(%s, %s)", *job_lock_key(JobLock.WORK, job))

    def _options(self) -> dict[str, str]:
        database = self._database
        return {
            "url": database.url,
            "user": database.user,
            "password": database.password,
            "driver": DRIVER_CLASS,
            "fetchsize": str(BATCH_ROWS),
        }


@contextmanager
def connected(spark: SparkSession, database: Database, job: str) -> Iterator[Postgres]:
    """A connection for one run of a job, with the job's lock, in autocommit. Raises EtlError that says why there is
    none.
    """
    try:
        connection = psycopg.connect(
            host=database.host,
            port=database.port,
            dbname=database.name,
            user=database.user,
            password=database.password,
            application_name=f"highwater {job}",
            connect_timeout=CONNECT_TIMEOUT_S,
            autocommit=True,
        )
    except psycopg.OperationalError as error:
        raise EtlError(
            f"The database {database.name} at {database.host}:{database.port} can't be reached:"
            f" {(str(error).splitlines() or [type(error).__name__])[0].rstrip('.')}.",
            "check the member database of the configuration, and the server.",
        ) from error
    with connection:
        postgres = Postgres(spark, database, connection)
        postgres.lock(job)
        yield postgres
