"""PostgreSQL by JDBC: reading by query, and writing by a staging table and one merge in one transaction.

A run first deletes whatever lies in the staging table, fills it, and merges: rows of the recounted scope that are no longer counted
go, new and changed ones come, equal ones stay untouched. Killed before the commit, it has changed nothing; after it, everything. A
lock that the run's own connection holds keeps a second run of the job out, and goes with the connection.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.errors import EtlError
from spark_etl.jobs.config import JOBS, Database

# The first of the two keys of our advisory locks; the second is the job's place in JOBS.
LOCK_CLASS: Final = 0x48575354
LOCK_WAIT_S: Final = 60.0
LOCK_PAUSE_S: Final = 0.5
WRITERS_MAX: Final = 4
BATCH_ROWS: Final = 5000
DRIVER_CLASS: Final = "org.postgresql.Driver"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a run counted anew: all of a cluster in [begin, end)."""

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

    def __init__(self, spark: SparkSession, database: Database, connection: Any) -> None:
        self._spark = spark
        self._database = database
        self._connection = connection

    def query(self, sql: str) -> DataFrame:
        """The rows of a query. Select uuid and json columns as text."""
        return self._spark.read.format("jdbc").options(**self._options()).option("query", sql).load()

    def exists(self, table: str) -> bool:
        """Whether there is such a table."""
        return bool(self._value("select to_regclass(?) is not null", table))

    def merge(self, target: Target, rows: DataFrame, scopes: Sequence[Scope], run_id: str) -> None:
        """Makes the target hold exactly `rows` (key and values) for the scopes; safe to repeat, and to kill."""
        # Each attempt has a number of its own: what a killed one's executors may still write is told apart.
        attempt = str(uuid.uuid4())
        self._change(f"delete from {target.staging}")
        staged = rows.select(F.lit(attempt).alias("run_id"), *target.key, *target.values)
        writer = staged.coalesce(WRITERS_MAX).write.format("jdbc").options(**self._options())
        writer.option("dbtable", target.staging).option("batchsize", BATCH_ROWS).mode("append").save()
        self._connection.setAutoCommit(False)
        try:
            self._delete_uncounted(target, scopes, attempt)
            self._upsert(target, run_id, attempt)
            self._change(f"delete from {target.staging} where run_id = ?", attempt)
            self._connection.commit()
        finally:
            self._connection.rollback()  # nothing after a commit; everything after an error
            self._connection.setAutoCommit(True)

    def _delete_uncounted(self, target: Target, scopes: Sequence[Scope], attempt: str) -> None:
        same_key = " and ".join(f"staged.{name} = target.{name}" for name in target.key)
        self._change(
            f"delete from {target.table} target"
            " using unnest(?::uuid[], ?::timestamptz[], ?::timestamptz[]) scope (cluster_id, lower_end, upper_end)"
            f" where target.cluster_id = scope.cluster_id"
            f" and target.{target.time} >= scope.lower_end and target.{target.time} < scope.upper_end"
            f" and not exists (select from {target.staging} staged where staged.run_id = ? and {same_key})",
            _array([scope.cluster_id for scope in scopes]),
            _array([scope.begin.isoformat() for scope in scopes]),
            _array([scope.end.isoformat() for scope in scopes]),
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
        self._change(
            f"insert into {target.table} as target ({names}, run_id)"
            f" select distinct on ({key}) {names}, ?::uuid from {target.staging} where run_id = ? order by {key}"
            f" on conflict ({key}) do update set {', '.join(assignments)}"
            f" where ({ours}) is distinct from ({theirs})",
            run_id,
            attempt,
        )

    def lock(self, job: str) -> None:
        """Takes the job's lock until the connection ends; raises EtlError when another run keeps it."""
        deadline_s = time.monotonic() + LOCK_WAIT_S
        while not self._value("select pg_try_advisory_lock(?::int, ?::int)", str(LOCK_CLASS), str(JOBS.index(job))):
            if time.monotonic() > deadline_s:
                raise EtlError(f"Another run of {job} is at work on this database.", "wait until it has ended.")
            time.sleep(LOCK_PAUSE_S)

    def _value(self, sql: str, *parameters: str) -> Any:
        with self._prepared(sql, parameters) as statement:
            rows = statement.executeQuery()
            rows.next()
            return rows.getObject(1)

    def _change(self, sql: str, *parameters: str) -> int:
        with self._prepared(sql, parameters) as statement:
            return int(statement.executeUpdate())

    @contextmanager
    def _prepared(self, sql: str, parameters: Sequence[str]) -> Iterator[Any]:
        statement = self._connection.prepareStatement(sql)
        try:
            for position, value in enumerate(parameters, start=1):
                statement.setString(position, value)
            yield statement
        finally:
            statement.close()

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
    """A connection for one run of a job, with the job's lock. Raises EtlError that says why there is none."""
    jvm: Any = spark.sparkContext._jvm
    properties = jvm.java.util.Properties()
    properties.setProperty("user", database.user)
    properties.setProperty("password", database.password)
    properties.setProperty("ApplicationName", f"highwater {job}")
    try:
        connection = jvm.org.postgresql.Driver().connect(database.url, properties)
    except Exception as error:  # py4j raises one class for every Java exception
        raise EtlError(
            f"The database {database.name} at {database.host}:{database.port} can't be reached: {_first_line(error)}.",
            "check the member database of the configuration, and the server.",
        ) from error
    try:
        postgres = Postgres(spark, database, connection)
        postgres.lock(job)
        yield postgres
    finally:
        connection.close()


def _array(values: Sequence[str]) -> str:
    """PostgreSQL's text form; uuids and times need no quotes inside."""
    return "{" + ",".join(f'"{value}"' for value in values) + "}"


def _first_line(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
