"""The lake: Iceberg tables of metering records and of what was refused, with their catalog in the platform's
PostgreSQL.

    lake.<namespace>.metering      LAKE_RECORD, by days(start) and bucket(cluster)
    lake.<namespace>.quarantine    QUARANTINE_ROW, by days(ingested_at)

Only `ingest` and `repair` add records (they share a lock); `compaction` rewrites and expires. Every change is one
commit in the catalog: readers see the table before it or after it. A snapshot is one version of a table, by its
number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_etl.jobs.config import JobConfig
from spark_etl.jobs.postgres import CONNECT_TIMEOUT_S, Postgres
from spark_etl.transforms.late import HourRange
from spark_etl.transforms.metering_schema import (
    LAKE_RECORD,
    QUARANTINE_IDENTITY,
    QUARANTINE_ROW,
    RECORD_IDENTITY,
)

CATALOG: Final = "lake"
# Of the catalog's own tables and of ours beside them, in the platform's database.
DATABASE_SCHEMA: Final = "lake"
METERING: Final = "metering"
QUARANTINE: Final = "quarantine"
BUCKETS: Final = 8
RECORDS_COMPILED_MIN: Final = 2000

_PARTITIONS: Final = {METERING: f"days(start), bucket({BUCKETS}, cluster)", QUARANTINE: "days(ingested_at)"}
_SCHEMAS: Final = {METERING: LAKE_RECORD, QUARANTINE: QUARANTINE_ROW}
_PROPERTIES: Final = {
    "format-version": "2",
    # These say what a query of some hours or clusters need not open.
    "write.metadata.metrics.column.cluster": "full",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.retry.num-retries": "10",
}


class Lake:
    """The tables of one namespace. Its frames belong to `spark`, a session of this run's own."""

    def __init__(self, spark: SparkSession, url: str, namespace: str) -> None:
        self.spark = spark
        self.url = url
        self.namespace = namespace

    def expect(self, records: int) -> None:
        """What follows is about so many records: few are interpreted, as compiling their queries costs more than it saves."""
        few = records < RECORDS_COMPILED_MIN
        self.spark.conf.set("spark.sql.codegen.wholeStage", str(not few).lower())
        self.spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if few else "FALLBACK")

    def table(self, name: str) -> str:
        """The table's full name in SQL."""
        return f"{CATALOG}.{self.namespace}.{name}"

    def create(self) -> None:
        """Makes the tables where they are missing, and columns that they do not have yet."""
        # A statement of the session's costs more than to ask whether there is anything to do.
        for name, schema in _SCHEMAS.items():
            if not self.spark.catalog.tableExists(self.table(name)):
                self._create_table(name, schema)
            elif self.java_table(name).schema().columns().size() < len(schema):
                self._add_columns(name, schema)

    def _create_table(self, name: str, schema: StructType) -> None:
        self.spark.sql(f"create namespace if not exists {CATALOG}.{self.namespace}")
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        self.spark.sql(
            f"create table if not exists {self.table(name)} ({_columns(schema)}) using iceberg"
            f" partitioned by ({_PARTITIONS[name]}) location '{self.url}/{name}' tblproperties ({properties})"
        )

    def _add_columns(self, name: str, schema: StructType) -> None:
        """Of a later version of this program; null in the rows that are there."""
        there = set(self.spark.table(self.table(name)).columns)
        missing = StructType([field for field in schema if field.name not in there])
        self.spark.sql(f"alter table {self.table(name)} add columns ({_columns(missing)})")

    def snapshot(self, name: str = METERING) -> int | None:
        """The table's version now; None while it is empty."""
        current = self.java_table(name).currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def is_known(self, snapshot: int) -> bool:
        """Whether it is a version of the records from which the present one came, and is still kept."""
        table = self.java_table(METERING)
        current = table.currentSnapshot()
        if current is None or table.snapshot(snapshot) is None:
            return False
        util = self.spark.sparkContext._jvm.org.apache.iceberg.util.SnapshotUtil  # type: ignore[union-attr]  # a running session has one
        return bool(util.isAncestorOf(table, current.snapshotId(), snapshot))

    def java_table(self, name: str) -> Any:
        """Iceberg's own object of a table, fresh."""
        return self._java_catalog().loadTable(self._identifier(name))

    def count(self, name: str = METERING) -> int:
        """How many rows the table has, as its present version says."""
        current = self.java_table(name).currentSnapshot()
        return 0 if current is None else int(current.summary().get("total-records") or 0)

    def read_file(self, path: str) -> None:
        """Reads a data file of the records, on S3 its footer; raises what that raises."""
        if path.startswith("s3"):
            jvm: Any = self.spark.sparkContext._jvm
            file = self.java_table(METERING).io().newInputFile(path)
            jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(
                file, jvm.org.apache.iceberg.MetricsConfig.getDefault()
            )
            return
        self.spark.read.parquet(path).write.format("noop").mode("overwrite").save()

    def records(
        self, hours: HourRange | None = None, *, snapshot: int | None = None, clusters: Sequence[str] | None = None
    ) -> DataFrame:
        """LAKE_RECORDs whose interval begins in these hours, of the given version or the present one."""
        reader = self.spark.read.format("iceberg")
        if snapshot is not None:
            reader = reader.option("versionAsOf", snapshot)
        found = reader.load(self.table(METERING))
        if hours is not None:
            found = found.where(_between("start", hours.begin, hours.end))
        return found

    def added(self, after: int, until: int) -> DataFrame:
        """LAKE_RECORDs that were added after one version, up to another."""
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", after).option("end-snapshot-id", until)
        return reader.load(self.table(METERING))

    def quarantined(self) -> DataFrame:
        """All QUARANTINE_ROWs."""
        return self.spark.read.format("iceberg").load(self.table(QUARANTINE))

    def add_records(self, records: DataFrame, hours: HourRange, *, distinct: bool = False) -> None:
        """Adds those records that are not there yet, in one commit. All begin in `hours`: no older or newer file is
        opened. `distinct` says that no two of them are one record.
        """
        kept = self.records(hours)
        self._append(METERING, records, kept, RECORD_IDENTITY, distinct=distinct)

    def add_quarantined(self, rows: DataFrame) -> None:
        """The same for refused messages."""
        self._append(QUARANTINE, rows, self.quarantined(), QUARANTINE_IDENTITY, distinct=False)

    def _append(self, name: str, rows: DataFrame, kept: DataFrame, identity: Sequence[str], *, distinct: bool) -> None:
        # Only what distinguishes rows is compared: whole ones are moved by the write alone.
        new = rows.join(kept.select(*identity), on=list(identity), how="left_anti").select(*_SCHEMAS[name].names)
        (new if distinct else new.dropDuplicates(list(identity))).writeTo(self.table(name)).append()

    def _identifier(self, name: str) -> Any:
        jvm: Any = self.spark.sparkContext._jvm
        return jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{self.namespace}.{name}")

    def _java_catalog(self) -> Any:
        session: Any = self.spark._jsparkSession
        return session.sessionState().catalogManager().catalog(CATALOG).icebergCatalog()

    def close(self) -> None:
        """Ends the catalog's connections to PostgreSQL."""
        self._java_catalog().close()


@contextmanager
def opened_lake(spark: SparkSession, config: JobConfig, postgres: Postgres) -> Iterator[Lake]:
    """The configuration's lake, in a session of its own; its tables are there."""
    session = spark.newSession()
    database = config.database
    address = f"{database.host}:{database.port}/{database.name}"
    # The schema, so that what the platform's own migrations make and what the catalog makes stay apart.
    parameters = f"currentSchema={DATABASE_SCHEMA}&connectTimeout={CONNECT_TIMEOUT_S}&ApplicationName=highwater%20lake"
    catalog = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:postgresql://{address}?{parameters}",
        ".jdbc.user": database.user,
        ".jdbc.password": database.password,
        ".jdbc.schema-version": "V1",
        ".warehouse": config.lake,
        # Another process may have committed since this one last looked.
        ".cache-enabled": "false",
    }
    if config.lake.startswith("s3://"):
        catalog[".io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    for name, value in catalog.items():
        session.conf.set(f"spark.sql.catalog.{CATALOG}{name}", value)
    postgres.change(f"create schema if not exists {DATABASE_SCHEMA}")
    lake = Lake(session, config.lake, config.namespace)
    # Until a job knows better.
    lake.expect(0)
    try:
        lake.create()
        yield lake
    finally:
        lake.close()


def _columns(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema)


def _between(column: str, begin: datetime, end: datetime) -> Any:
    return (F.col(column) >= F.lit(begin)) & (F.col(column) < F.lit(end))


def hours_around(first_ms: int, last_ms: int) -> HourRange:
    """The range in which records that begin at these moments lie, ends included."""
    return HourRange(first_ms, last_ms + 1)
