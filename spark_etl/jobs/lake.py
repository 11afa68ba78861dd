"""The lake: Parquet files of metering records by date, hour and cluster, and of what was refused.

    LAKE/metering/date=2026-11-21/hour=13/cluster=<id>/part-....parquet      LAKE_RECORD
    LAKE/quarantine/date=2026-11-21/cluster=<id>/part-....parquet            QUARANTINE_ROW

Only `ingest` writes, and one ingest at a time (it holds a lock in the database): Spark's writers to one folder would delete
each other's unfinished files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_etl.transforms.late import HourRange
from spark_etl.transforms.metering_schema import (
    LAKE_RECORD,
    PARTITIONS,
    QUARANTINE_IDENTITY,
    QUARANTINE_ROW,
    RECORD_IDENTITY,
)
from spark_etl.transforms.time import from_ms

METERING: Final = "metering"
QUARANTINE: Final = "quarantine"
QUARANTINE_PARTITIONS: Final = ("date", "cluster")


class Lake:
    """A lake at a folder or URL."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url
        self._writing = threading.Lock()

    def records(self, hours: HourRange, clusters: Iterable[str], *, without_end: bool = False) -> DataFrame:
        """LAKE_RECORDs whose interval begins in these hours (`without_end`: or later), as they lie there: duplicates too."""
        start, end = _date_and_hour(hours.from_ms), _date_and_hour(hours.to_ms - 1)
        # By the partitions' own columns, so that only those folders are opened.
        wanted = F.col("cluster").isin(*clusters) & _at_or_after(start)
        if not without_end:
            wanted = wanted & _at_or_before(end)
        return self._read(METERING, LAKE_RECORD).where(wanted)

    def quarantined(self, clusters: Iterable[str]) -> DataFrame:
        """QUARANTINE_ROWs of these clusters."""
        return self._read(QUARANTINE, QUARANTINE_ROW).where(F.col("cluster").isin(*clusters))

    def add_records(self, records: DataFrame, cluster: str) -> int:
        """Adds those of a cluster's records that are not there yet; returns how many."""
        new = records.dropDuplicates(list(RECORD_IDENTITY)).persist()
        try:
            hours = [(row.date, row.hour) for row in new.select("date", "hour").distinct().collect()]
            if not hours:
                return 0
            there = self._read(METERING, LAKE_RECORD).where((F.col("cluster") == cluster) & _is_one_of(hours))
            return self._append(new, there, RECORD_IDENTITY, METERING, PARTITIONS)
        finally:
            new.unpersist()

    def add_quarantined(self, rows: DataFrame, cluster: str) -> int:
        """Adds those refused messages that are not there yet; returns how many."""
        return self._append(
            rows.dropDuplicates(list(QUARANTINE_IDENTITY)),
            self.quarantined([cluster]),
            QUARANTINE_IDENTITY,
            QUARANTINE,
            QUARANTINE_PARTITIONS,
        )

    def _append(
        self, new: DataFrame, there: DataFrame, identity: Sequence[str], table: str, partitions: Sequence[str]
    ) -> int:
        """Writes what of `new` is not `there`. A batch that was killed half-way is so completed by its repetition."""
        missing = new.join(there.select(*identity), on=list(identity), how="left_anti").select(*new.columns).persist()
        try:
            count = missing.count()
            if count:
                with self._writing:
                    writer = missing.repartition(*partitions).write.mode("append").partitionBy(*partitions)
                    writer.parquet(f"{self._url}/{table}")
            return count
        finally:
            missing.unpersist()

    def _read(self, table: str, schema: T.StructType) -> DataFrame:
        path = f"{self._url}/{table}"
        if not self._exists(path):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(path)

    def _exists(self, path: str) -> bool:
        context = self._spark.sparkContext
        hadoop_path = context._jvm.org.apache.hadoop.fs.Path(path)  # type: ignore[union-attr]  # a running session has one
        return bool(hadoop_path.getFileSystem(context._jsc.hadoopConfiguration()).exists(hadoop_path))


def _date_and_hour(epoch_ms: int) -> tuple[str, int]:
    moment = from_ms(epoch_ms)
    return moment.date().isoformat(), moment.hour


def _at_or_after(begin: tuple[str, int]) -> Column:
    date, hour = begin
    return (F.col("date") > date) | ((F.col("date") == date) & (F.col("hour") >= hour))


def _at_or_before(end: tuple[str, int]) -> Column:
    date, hour = end
    return (F.col("date") < date) | ((F.col("date") == date) & (F.col("hour") <= hour))


def _is_one_of(hours: Sequence[tuple[str, int]]) -> Column:
    dates: dict[str, list[int]] = {}
    for date, hour in hours:
        dates.setdefault(date, []).append(hour)
    return reduce(
        lambda one, other: one | other,
        ((F.col("date") == date) & F.col("hour").isin(*of_day) for date, of_day in sorted(dates.items())),
    )
