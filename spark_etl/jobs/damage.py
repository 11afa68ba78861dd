"""Files of the lake that can't be read: found, taken out of the table, and named, so that everything else goes on.

What was in them is missing from then on: usage_billing refuses to lower usage by that, and `repair` brings the
records back from the brokers, which keep them for 72 hours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobResult
from spark_etl.jobs.lake import METERING, Lake
from spark_etl.jobs.state import Damage, State

logger = logging.getLogger("spark_etl")
LISTED: Final = 10


def isolating_damage(lake: Lake, state: State, work: Callable[[bool], JobResult]) -> JobResult:
    """The work's result; where it fails as files of the lake can't be read, those are taken out and it is done again.

    `work` gets whether it may read what was added since a version: after a file was taken out it may not, as those
    versions still name it. The result is then a failure that names the files, with all else that the second attempt says.
    """
    try:
        return work(True)
    except Exception as error:  # py4j and Spark raise many classes; what is no damage goes on
        if not isinstance(error, PySparkException) and "py4j" not in type(error).__module__:
            raise
        damaged = isolate(lake, state)
        if not damaged:
            raise
    result = work(False)
    lines = [_sentence(one) for one in damaged[:LISTED]]
    result.state = "failed"
    result.error = "\n".join([*lines, result.error]).strip()
    return result


def isolate(lake: Lake, state: State) -> list[Damage]:
    """Takes every file out of the records' table that is missing or unreadable; returns them, with what may be
    missing.
    """
    clusters = sorted(state.positions())
    found = [damage for file in _files(lake) if (damage := _damage(lake, file, clusters)) is not None]
    if not found:
        return []
    table = lake.java_table(METERING)
    change: Any = table.newDelete()
    paths = {damage.path for damage in found}
    with closing(table.newScan().planFiles()) as tasks:
        files = tasks.iterator()
        while files.hasNext():
            file = files.next().file()
            if str(file.location()) in paths:
                change.deleteFile(file)
    change.commit()
    for damage in found:
        logger.error("%s", _sentence(damage))
    state.save_damage(found)
    return found


def _files(lake: Lake) -> list[Any]:
    """The data files of the records' table."""
    columns = ("file_path", "file_size_in_bytes", "record_count", "readable_metrics")
    files = lake.spark.read.format("iceberg").load(f"{lake.table(METERING)}.files")
    return files.select(
        *columns[:3],
        F.col("readable_metrics.start.lower_bound").alias("first"),
        F.col("readable_metrics.start.upper_bound").alias("last"),
        F.col("readable_metrics.cluster.lower_bound").alias("first_cluster"),
        F.col("readable_metrics.cluster.upper_bound").alias("last_cluster"),
    ).collect()


def _damage(lake: Lake, file: Any, clusters: Sequence[str]) -> Damage | None:
    """What is wrong with a file; None when nothing is."""
    error = ""
    try:
        length = int(lake.java_table(METERING).io().newInputFile(file.file_path).getLength())
        if length != file.file_size_in_bytes:
            error = f"it has {length} bytes, not {file.file_size_in_bytes}"
    except Exception:  # py4j raises one class for whatever Java does
        error = "it is missing"
    if not error:
        try:
            lake.read_file(file.file_path)
        except Exception as problem:
            error = f"it can't be read: {_first_line(problem)}"
    if not error:
        return None
    return Damage(
        path=file.file_path,
        error=error,
        records=file.record_count,
        first=file["first"],
        last=file["last"],
        clusters=tuple(
            cluster
            for cluster in clusters
            if (file.first_cluster or "") <= cluster and (file.last_cluster is None or cluster <= file.last_cluster)
        ),
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Caused by" in line]
    return (causes[-1] if causes else lines[0] if lines else type(error).__name__)[:300]


def _sentence(damage: Damage) -> str:
    hours = (
        f"{damage.first:%Y-%m-%d %H:%M} to {damage.last:%Y-%m-%d %H:%M}"
        if damage.first and damage.last
        else "unknown hours"
    )
    clusters = ", ".join(damage.clusters[:LISTED]) + (" and more" if len(damage.clusters) > LISTED else "")
    return (
        f"A file of the lake was taken out of use, {damage.error}: {damage.path}. {damage.records} records of {hours} are missing,"
        f" of clusters among {clusters}. Way out: read them again (lake reread)."
    )
