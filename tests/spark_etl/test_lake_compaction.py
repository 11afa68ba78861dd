"""Small files of the lake become one: readers see each record once, before, while and after, and wherever it is killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_etl.jobs.compaction import GRACE, delete_replaced, swap, undo_interrupted
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.lake_files import COMPACTED, LakeFiles, counting, run_of
from spark_etl.transforms.late import HourRange
from spark_etl.transforms.time import to_ms
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import NOW, record, sent

ALL = HourRange(0, to_ms(NOW) * 2)
PLACE = "metering/date=2026-11-21/hour=13/cluster=c"
PATTERN = "metering/date=*/hour=*/cluster=*/*.parquet"
OLD = [f"{PLACE}/part-{number}.parquet" for number in range(4)]


class Killed(BaseException):
    """Nothing of ours catches it."""


class DyingFiles(LakeFiles):
    """Stops before its n-th change to the disk, as a killed process does."""

    def __init__(self, spark: SparkSession, url: str, changes: int) -> None:
        super().__init__(spark, url)
        self.left = changes

    def _step(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def delete(self, path: str) -> None:
        self._step()
        super().delete(path)

    def _renamed(self, source: Any, target: Any) -> None:
        self._step()
        super()._renamed(source, target)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake with four files of one hour; a file is a name here, what is in it does not matter. Its path needs quoting."""
    return small_files(tmp_path / "a lake, [of] {files}")


def small_files(lake: Path) -> Path:
    for path in OLD:
        put(lake / path)
    return lake


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("rows")


def staged(folder: Path, run: str) -> list[str]:
    path = f"compactions/{run}/date=2026-11-21/hour=13/cluster=c/part-9.parquet"
    put(folder / path)
    return [path]


def is_before_or_after(files: list[str]) -> bool:
    """All of the old files, or one compacted file instead."""
    return files == OLD or (len(files) == 1 and run_of(files[0]) is not None)


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / PLACE).glob("*.parquet"))


def test_a_swap_counts_at_once_and_what_it_replaced_goes_when_nobody_reads_it(
    spark: SparkSession, folder: Path
) -> None:
    files = LakeFiles(spark, str(folder))
    assert files.visible([PATTERN]) == OLD
    swap(files, "r1", staged(folder, "r1"), OLD, now_ms=1000)
    new = [f"{PLACE}/{COMPACTED}r1-0.parquet"]
    assert files.visible([PATTERN]) == new
    delete_replaced(files, before_ms=1000)
    assert len(on_disk(folder)) == 5
    delete_replaced(files, before_ms=1001)
    assert (files.visible([PATTERN]), on_disk(folder)) == (new, [f"{COMPACTED}r1-0.parquet"])
    assert files.glob("compactions/*") == []


def test_what_comes_while_files_are_swapped_counts_too(spark: SparkSession, folder: Path) -> None:
    files = LakeFiles(spark, str(folder))
    new = staged(folder, "r1")
    put(folder / PLACE / "part-late.parquet")
    swap(files, "r1", new, OLD, now_ms=1000)
    assert files.visible([PATTERN]) == [f"{PLACE}/{COMPACTED}r1-0.parquet", f"{PLACE}/part-late.parquet"]


def run_once(files: LakeFiles, folder: Path, run: str, *, now_ms: int) -> None:
    """What the job does to the files, without Spark."""
    undo_interrupted(files, before_ms=now_ms - 1000)
    delete_replaced(files, before_ms=now_ms - 1000)
    small = files.visible([PATTERN])
    if len(small) > 1:
        swap(files, run, staged(folder, run), small, now_ms=now_ms)


def test_killed_before_any_change_it_has_changed_nothing_or_everything(spark: SparkSession, tmp_path: Path) -> None:
    for changes in range(40):
        folder = small_files(tmp_path / f"lake-{changes}")
        files, dying = LakeFiles(spark, str(folder)), DyingFiles(spark, str(folder), changes)
        try:
            # A swap, and a later run that deletes what it replaced.
            run_once(dying, folder, "r1", now_ms=1000)
            run_once(dying, folder, "r2", now_ms=5000)
        except Killed:
            assert is_before_or_after(files.visible([PATTERN])), changes
        else:
            break
        for number in range(3):
            run_once(files, folder, f"again-{number}", now_ms=10_000 * (number + 1))
            assert is_before_or_after(files.visible([PATTERN])), changes
        assert len(on_disk(folder)) == 1
        assert files.glob("compactions/*") == [], "marks and staged files are gone in the end"
    assert changes == len(OLD) + 5, "it was killed in every place"


def test_readers_at_work_see_the_files_before_or_after_each_swap(spark: SparkSession, folder: Path) -> None:
    files, seen, stop = LakeFiles(spark, str(folder)), set[tuple[str, ...]](), threading.Event()

    def read() -> None:
        reader = LakeFiles(spark, str(folder))
        while not stop.is_set():
            seen.add(tuple(reader.visible([PATTERN])))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        before = OLD
        for number in range(12):
            swap(files, f"r{number}", staged(folder, f"r{number}"), before, now_ms=number)
            before = [f"{PLACE}/{COMPACTED}r{number}-0.parquet"]
            delete_replaced(files, before_ms=number)
    finally:
        stop.set()
        for reader in readers:
            reader.join(60)
    assert seen
    assert all(is_before_or_after(list(found)) for found in seen)


def test_a_run_that_left_both_marks_is_committed(spark: SparkSession, folder: Path) -> None:
    """Where renaming is copying and deleting."""
    files = LakeFiles(spark, str(folder))
    swap(files, "r1", staged(folder, "r1"), OLD, now_ms=1000)
    files.write("compactions/r1.pending", files.read("compactions/r1.committed"))
    assert files.visible([PATTERN]) == [f"{PLACE}/{COMPACTED}r1-0.parquet"]
    undo_interrupted(files, before_ms=5000)
    assert files.visible([PATTERN]) == [f"{PLACE}/{COMPACTED}r1-0.parquet"]


@pytest.mark.parametrize(
    ("pending", "replaced", "expected"),
    [
        (set(), set(), ["a/part-0", "a/compacted-r-1-0"]),
        ({"r-1"}, set(), ["a/part-0"]),
        (set(), {"a/part-0"}, ["a/compacted-r-1-0"]),
    ],
)
def test_which_files_count_depends_on_the_marks(pending: set[str], replaced: set[str], expected: list[str]) -> None:
    assert counting(["a/part-0", "a/compacted-r-1-0"], pending, replaced) == expected


# -- the job, over records


@pytest.fixture
def many_files(world: JobWorld) -> tuple[JobWorld, Callable[[], list[Any]]]:
    """Five files of an hour, two of the next; and what a reader sees."""
    for sequence in range(1, 6):
        world.add_to_lake(record("2026-11-21 13:00", sequence, messages_in=[sent(messages=sequence)]), now=NOW)
    for sequence in (6, 7):
        world.add_to_lake(record("2026-11-21 14:00", sequence), now=NOW)
    lake = Lake(world.spark, str(world.folder / "lake"))

    def seen() -> list[Any]:
        return sorted(lake.records(ALL, [world.cluster_id]).drop("connections").collect(), key=lambda row: row.sequence)

    return world, seen


def test_the_job_compacts_hours_of_many_files_and_changes_no_record(
    many_files: tuple[JobWorld, Callable[[], list[Any]]],
) -> None:
    world, seen = many_files
    before = seen()
    result = world.run("compaction", now=NOW)
    assert (result.state, result.rows_in, result.rows_out) == ("completed", 5, 5)
    lake = Lake(world.spark, str(world.folder / "lake"))
    assert len(lake.files(ALL, [world.cluster_id])) == 3
    assert seen() == before
    again = world.run("compaction", now=NOW + GRACE + timedelta(hours=1))
    assert again.rows_in == 0
    assert len(list((world.folder / "lake").glob("metering/*/*/*/*.parquet"))) == 3
    assert seen() == before
    # Ingest knows what lies in the new file.
    world.add_to_lake(record("2026-11-21 13:00", 1, messages_in=[sent(messages=1)]), now=NOW)
    assert seen() == before


def test_hours_that_still_fill_up_are_left_alone(many_files: tuple[JobWorld, Callable[[], list[Any]]]) -> None:
    world, _ = many_files
    assert world.run("compaction", now=NOW - timedelta(hours=5)).rows_in == 0
