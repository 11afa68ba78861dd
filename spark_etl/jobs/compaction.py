"""compaction: the many small files of an hour of a cluster become one, while ingest writes and other jobs read.

Each swap writes the new files apart, checks that they hold as many records, and then makes them count in the place of the old
ones, by one renaming (lake_files.py). Killed anywhere, it has changed nothing or everything. Old files are deleted by a later run,
when nobody can be reading them any more. A range asks for other hours than those of the last week.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from spark_etl.errors import EtlError
from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.lake import METERING, Lake
from spark_etl.jobs.lake_files import COMMITTED, COMPACTED, MARKS, PENDING, LakeFiles, Mark, grouped, mark_path
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.run import main
from spark_etl.transforms.late import HourRange, hours_to_count
from spark_etl.transforms.metering_schema import PARTITIONS
from spark_etl.transforms.time import HOUR_MS, to_ms

# An hour with fewer files is left as it is.
FILES_MIN: Final = 4
# Hours that ended so long ago have got nearly all of their records; late ones may make another swap worth it.
SETTLED: Final = timedelta(hours=2)
LOOK_BACK: Final = timedelta(days=7)
# No job works so long on a list of files.
GRACE: Final = timedelta(hours=6)
# What one swap rewrites; its mark names that many folders' files.
FOLDERS_PER_SWAP: Final = 200


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run. Rows are records that were rewritten."""
    moment = now or datetime.now(UTC)
    lake = Lake(spark, config.lake)
    with connected(spark, config.database, config.job):
        undo_interrupted(lake.lake_files, before_ms=to_ms(moment - GRACE))
        delete_replaced(lake.lake_files, before_ms=to_ms(moment - GRACE))
        hours = _hours(config, moment)
        files = lake.files(hours, [cluster.cluster_id for cluster in config.clusters])
        folders = {folder: own for folder, own in grouped(files, _folder).items() if len(own) >= FILES_MIN}
        rows = 0
        many = sorted(folders)
        for first in range(0, len(many), FOLDERS_PER_SWAP):
            part = many[first : first + FOLDERS_PER_SWAP]
            rows += compact(lake, [path for folder in part for path in folders[folder]], now_ms=to_ms(moment))
    begin, end = (hours.begin, hours.end) if folders else (None, None)
    return JobResult(rows_in=rows, rows_out=rows, range_from=begin, range_to=end)


def _hours(config: JobConfig, now: datetime) -> HourRange:
    wanted = hours_to_count(now, LOOK_BACK, config.range)
    settled_ms = to_ms(now - SETTLED) // HOUR_MS * HOUR_MS
    return HourRange(wanted.from_ms, max(wanted.from_ms + HOUR_MS, min(wanted.to_ms, settled_ms)))


def compact(lake: Lake, replaced: Sequence[str], *, now_ms: int) -> int:
    """Swaps these files for one in each of their folders; returns how many records they hold."""
    run_id = str(uuid.uuid4())
    staging = f"{MARKS}/{run_id}"
    before = lake.read(replaced)
    rows = before.count()
    in_order = before.repartition(*PARTITIONS).sortWithinPartitions(*PARTITIONS, "broker", "epoch", "sequence")
    in_order.write.partitionBy(*PARTITIONS).parquet(f"{lake.lake_files.url}/{staging}")
    staged = lake.lake_files.glob(f"{staging}/date=*/hour=*/cluster=*/*.parquet")
    written = lake.read(staged, table=staging).count()
    if written != rows:
        raise EtlError(
            f"{len(replaced)} files of the lake hold {rows} records, and what was made of them {written}.",
            "look for a reader that deletes files, or a full disk; nothing was changed.",
        )
    swap(lake.lake_files, run_id, staged, replaced, now_ms=now_ms)
    return rows


def swap(files: LakeFiles, run_id: str, staged: Sequence[str], replaced: Sequence[str], *, now_ms: int) -> None:
    """Makes the staged files count in the place of the others: at once, or not at all."""
    targets = [
        f"{METERING}/{_folder(path).split('/', 2)[2]}/{COMPACTED}{run_id}-{number}.parquet"
        for number, path in enumerate(staged)
    ]
    mark = Mark(run_id, now_ms, tuple(targets), tuple(replaced))
    files.write(mark_path(run_id, PENDING), mark.text())
    for path, target in zip(staged, targets, strict=True):
        files.rename(path, target)
    files.rename(mark_path(run_id, PENDING), mark_path(run_id, COMMITTED))
    files.delete(f"{MARKS}/{run_id}")


def undo_interrupted(files: LakeFiles, *, before_ms: int) -> None:
    """Removes what a killed swap left. Only one run may be at work."""
    pending, _ = files.marks()
    for mark in pending:
        for path in mark.compacted:
            files.delete(path)
        # Till then a reader may have seen the files and not yet the mark.
        if mark.at_ms < before_ms:
            files.delete(mark_path(mark.run, PENDING))
    # Staged files, and marks that were not written to their end.
    for path in files.glob(f"{MARKS}/*"):
        if not path.endswith((f".{PENDING}", f".{COMMITTED}")):
            files.delete(path)


def delete_replaced(files: LakeFiles, *, before_ms: int) -> None:
    """Deletes what was replaced by swaps that began before that, and their marks, which nobody needs then."""
    _, committed = files.marks()
    for mark in committed:
        if mark.at_ms < before_ms:
            for path in mark.replaced:
                files.delete(path)
            files.delete(mark_path(mark.run, COMMITTED))


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]


if __name__ == "__main__":
    sys.exit(main("compaction", run))
