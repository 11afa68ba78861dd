"""Which files of the lake count: what a reader must see while `compaction` swaps many small files for a large one.

A run of compaction has a mark, LAKE/compactions/<run>.pending, before its first file `compacted-<run>-….parquet` appears beside
the files that it stands for; renaming the mark to <run>.committed is the swap. The mark names the files that are replaced.

    pending      its compacted files don't count, what they replace does
    committed    the other way round; the replaced files stay until nobody can be reading them any more
    no mark      all files count (the replaced ones are gone)

A reader lists the marks before and after the files, and again when they differ: so it sees the lake before a swap or after it.
Works on any file system that Hadoop knows; where renaming is no atomic step, it is one small file that is renamed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

MARKS: Final = "compactions"
PENDING: Final = "pending"
COMMITTED: Final = "committed"
COMPACTED: Final = "compacted-"
LISTINGS_MAX: Final = 20
# What Hadoop's globs would take for a pattern.
_GLOB: Final = str.maketrans({character: f"\\{character}" for character in "{}[]*?\\"})


@dataclass(frozen=True, slots=True)
class Mark:
    """What one run swaps. Paths are relative to the lake; `at_ms` is when the mark was made."""

    run: str
    at_ms: int
    compacted: tuple[str, ...]
    replaced: tuple[str, ...]

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Mark:
        values = json.loads(text)
        return cls(values["run"], values["at_ms"], tuple(values["compacted"]), tuple(values["replaced"]))


def run_of(path: str) -> str | None:
    """The run that wrote a compacted file; None for a file of ingest."""
    name = path.rsplit("/", 1)[-1]
    return name.removeprefix(COMPACTED).rsplit("-", 1)[0] if name.startswith(COMPACTED) else None


def counting(files: Iterable[str], pending: Collection[str], replaced: Collection[str]) -> list[str]:
    """Those files that count, given the runs that are pending and what committed ones have replaced."""
    return [path for path in files if path not in replaced and run_of(path) not in pending]


class LakeFiles:
    """The lake's folder by Hadoop's file system. All paths are relative to it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        context = spark.sparkContext
        jvm: Any = context._jvm
        self._jvm = jvm
        path = jvm.org.apache.hadoop.fs.Path(url)
        self._fs: Any = path.getFileSystem(context._jsc.hadoopConfiguration())
        self.url = str(self._fs.makeQualified(path).toString()).rstrip("/")

    def visible(self, patterns: Iterable[str]) -> list[str]:
        """The files of these globs that count, at one moment; raises RuntimeError when the marks never stand still."""
        wanted = list(patterns)
        for _ in range(LISTINGS_MAX):
            marks = self.glob(f"{MARKS}/*.*")
            files = [path for pattern in wanted for path in self.glob(pattern)]
            try:
                replaced = {path for mark in marks if mark.endswith(COMMITTED) for path in self._mark(mark).replaced}
            except Exception:  # py4j raises one class for whatever Java does: a mark may just have gone
                if self.glob(f"{MARKS}/*.*") == marks:
                    raise
                continue
            if self.glob(f"{MARKS}/*.*") == marks:
                return counting(files, self._pending(marks), replaced)
        raise RuntimeError("The lake's compaction marks change too fast to be read. Way out: run the job again.")

    def marks(self) -> tuple[list[Mark], list[Mark]]:
        """The marks that are pending, and those that are committed."""
        names = self.glob(f"{MARKS}/*.*")
        pending = self._pending(names)
        return (
            [self._mark(name) for name in names if name.endswith(PENDING) and _run_of_mark(name) in pending],
            [self._mark(name) for name in names if name.endswith(COMMITTED)],
        )

    def glob(self, pattern: str) -> list[str]:
        """The paths that match, in order. Names of the lake's own have no special characters; the folder's may."""
        found = self._fs.globStatus(self._jvm.org.apache.hadoop.fs.Path(f"{self.url.translate(_GLOB)}/{pattern}"))
        if not found:
            return []
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
        # One call for all of them: each costs as much as the listing of a folder.
        text = str(self._jvm.org.apache.commons.lang3.ArrayUtils.toString(paths))[1:-1]
        prefix = f"{self.url}/"
        return sorted(text.removeprefix(prefix).split(f",{prefix}"))

    def write(self, path: str, text: str) -> None:
        """Makes a file, whole or not at all."""
        temporary = self._path(f"{path}.tmp-")
        stream = self._fs.create(temporary, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self._renamed(temporary, self._path(path))

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(bytes(stream.readAllBytes()).decode())
        finally:
            stream.close()

    def rename(self, source: str, target: str) -> None:
        """Raises OSError when there is no such file, or the target is there."""
        self._renamed(self._path(source), self._path(target))

    def delete(self, path: str) -> None:
        """A file, or a folder with all that is in it; what is not there is no error."""
        self._fs.delete(self._path(path), True)

    def _renamed(self, source: Any, target: Any) -> None:
        # HDFS and local folders alike: never over a file that is there.
        if self._fs.exists(target) or not self._fs.rename(source, target):
            raise OSError(f"{source} could not be renamed to {target}")

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.url}/{path}")

    def _mark(self, name: str) -> Mark:
        return Mark.of(self.read(name))

    @staticmethod
    def _pending(names: Iterable[str]) -> set[str]:
        """A run that has both marks, where renaming is copying, is committed."""
        known = list(names)
        committed = {_run_of_mark(name) for name in known if name.endswith(COMMITTED)}
        return {_run_of_mark(name) for name in known if name.endswith(PENDING)} - committed


def mark_path(run: str, state: str) -> str:
    """Where a run's mark lies."""
    return f"{MARKS}/{run}.{state}"


def _run_of_mark(name: str) -> str:
    return name.rsplit("/", 1)[-1].rsplit(".", 1)[0]


def grouped(paths: Iterable[str], key: Callable[[str], str]) -> Mapping[str, list[str]]:
    """The paths by their key, in order."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(key(path), []).append(path)
    return groups
