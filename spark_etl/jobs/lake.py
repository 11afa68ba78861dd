"""The lake: Parquet files of metering records by date, hour and cluster, and of what was refused.

    LAKE/metering/date=2026-11-21/hour=13/cluster=<id>/part-....parquet      LAKE_RECORD
    LAKE/quarantine/date=2026-11-21/cluster=<id>/part-....parquet            QUARANTINE_ROW

Only `ingest` writes there, and one ingest at a time (it holds a lock in the database): Spark's writers to one folder would delete
each other's unfinished files. `compaction` swaps many files of an hour for one; which of them count, lake_files.py tells.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_etl.jobs.lake_files import LakeFiles
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
_PLACE: Final = "_place"
_NAMED_MAX: Final = 50


class Lake:
    """A lake at a folder or URL."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._spark = spark
        self._url = url
        self.lake_files = LakeFiles(spark, url)
        self._writing = threading.Lock()

    def records(self, hours: HourRange, clusters: Iterable[str], *, without_end: bool = False) -> DataFrame:
        """LAKE_RECORDs whose interval begins in these hours (`without_end`: or later), as they lie there: duplicates too."""
        files = self.files(hours, clusters, without_end=without_end)
        return self._read(METERING, LAKE_RECORD, files)

    def files(self, hours: HourRange, clusters: Iterable[str], *, without_end: bool = False) -> list[str]:
        """The files of these hours and clusters that count, relative to the lake. Other folders are not opened."""
        begin, end = _date_and_hour(hours.from_ms), _date_and_hour(hours.to_ms - 1)
        wanted = set(clusters)
        dates = [path.rsplit("=", 1)[1] for path in self.lake_files.glob(f"{METERING}/date=*")]
        near = [date for date in dates if begin[0] <= date and (without_end or date <= end[0])]
        patterns = [f"{METERING}/date={date}/hour=*/cluster={_names(wanted)}/*.parquet" for date in near]
        return [
            path
            for path in self.lake_files.visible(patterns)
            if begin <= (place := _place(path))[:2] and (without_end or place[:2] <= end) and place[2] in wanted
        ]

    def quarantined(self, clusters: Iterable[str]) -> DataFrame:
        """QUARANTINE_ROWs of these clusters."""
        return self._read(
            QUARANTINE,
            QUARANTINE_ROW,
            self.lake_files.glob(f"{QUARANTINE}/date=*/cluster={_names(set(clusters))}/*.parquet"),
        )

    def read(self, files: Sequence[str], *, table: str = METERING) -> DataFrame:
        """LAKE_RECORDs of these files, which lie below `table`."""
        return self._read(table, LAKE_RECORD, files)

    def add_records(self, records: DataFrame, cluster: str) -> int:
        """Adds those of a cluster's records that are not there yet; returns how many.

        `records` must give the same rows in the same order whenever it is asked (persisted, say): only the keys are compared,
        and the rows then taken by their place.
        """
        placed = records.withColumn(_PLACE, F.monotonically_increasing_id())
        # The first of those that are one record.
        keys = placed.groupBy(*RECORD_IDENTITY).agg(
            F.min_by(F.struct("date", "hour"), _PLACE).alias("_hour"),
            F.min(_PLACE).alias(_PLACE),
            F.count(F.lit(1)).alias("_copies"),
        )
        keys = keys.persist()
        try:
            found = keys.groupBy("_hour").agg(F.sum("_copies").alias("copies")).collect()
            if not found:
                return 0
            hours = [(row["_hour"].date, row["_hour"].hour) for row in found]
            there = self._read(METERING, LAKE_RECORD, self.lake_files.visible(_patterns(hours, cluster)))
            missing = keys.join(there.select(*RECORD_IDENTITY), on=list(RECORD_IDENTITY), how="left_anti").persist()
            try:
                count = missing.count()
                if count == sum(row.copies for row in found):
                    self._write(records, METERING, PARTITIONS)
                elif count:
                    chosen = placed.join(F.broadcast(missing.select(_PLACE)), on=_PLACE, how="left_semi")
                    self._write(chosen.select(*records.columns), METERING, PARTITIONS)
                return count
            finally:
                missing.unpersist()
        finally:
            keys.unpersist()

    def add_quarantined(self, rows: DataFrame, cluster: str) -> int:
        """Adds those refused messages that are not there yet; returns how many."""
        new = rows.dropDuplicates(list(QUARANTINE_IDENTITY))
        there = self.quarantined([cluster]).select(*QUARANTINE_IDENTITY)
        missing = new.join(there, on=list(QUARANTINE_IDENTITY), how="left_anti").select(*rows.columns).persist()
        try:
            count = missing.count()
            if count:
                self._write(missing, QUARANTINE, QUARANTINE_PARTITIONS)
            return count
        finally:
            missing.unpersist()

    def _write(self, rows: DataFrame, table: str, partitions: Sequence[str]) -> None:
        """A batch that was killed half-way is completed by its repetition."""
        with self._writing:
            writer = rows.repartition(*partitions).write.mode("append").partitionBy(*partitions)
            writer.parquet(f"{self._url}/{table}")

    def _read(self, table: str, schema: T.StructType, files: Sequence[str]) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], schema)
        url = self.lake_files.url
        reader = self._spark.read.schema(schema).option("basePath", f"{url}/{table}")
        return reader.parquet(*(f"{url}/{path}" for path in files))


def _place(path: str) -> tuple[str, int, str]:
    """Date, hour and cluster of a file."""
    date, hour, cluster = (part.split("=", 1)[1] for part in path.split("/")[-4:-1])
    return date, int(hour), cluster


def _patterns(hours: Iterable[tuple[str, int]], cluster: str) -> list[str]:
    dates: dict[str, list[str]] = {}
    for date, hour in sorted(hours):
        dates.setdefault(date, []).append(str(hour))
    return [
        f"{METERING}/date={date}/hour={{{','.join(of_day)}}}/cluster={cluster}/*.parquet"
        for date, of_day in dates.items()
    ]


def _names(clusters: Collection[str]) -> str:
    """A glob for these clusters, or for more of them when they are too many to be named."""
    return f"{{{','.join(sorted(clusters))}}}" if 0 < len(clusters) <= _NAMED_MAX else "*"


def _date_and_hour(epoch_ms: int) -> tuple[str, int]:
    moment = from_ms(epoch_ms)
    return moment.date().isoformat(), moment.hour
