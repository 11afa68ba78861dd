"""What executors of the jobs need besides Spark and a Python, packed for `spark.archives`:

    python -m spark_etl.jobs.pack packages.tar.gz

    "spark.archives": "packages.tar.gz#packages", "spark.executorEnv.PYTHONPATH": "packages"

So nothing has to be installed where executors run. Packed is what is installed here: pack with the Python version and
the platform of the executors.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from spark_etl.errors import EtlError
from spark_etl.jobs.session import IMPORT_ROOTS

# What the functions that run in Python workers import, and what that needs.
DISTRIBUTIONS: Final = (
    *("msgspec", "pyarrow"),
    *("trio", "attrs", "idna", "outcome", "sniffio", "sortedcontainers"),
    *("anyio", "typing_extensions", "lz4", "zstandard"),
)
# Faster where there is a wheel of it.
OPTIONAL: Final = ("isal",)
OURS: Final = ("spark_etl", "highwater", "mqwire")
_LEFT_OUT: Final = ("__pycache__", "pyarrow/include", "pyarrow/tests")


def files() -> Iterator[tuple[str, Path]]:
    """The name in the archive, and the file; raises EtlError that names a package which isn't installed."""
    for name in (*DISTRIBUTIONS, *OPTIONAL):
        try:
            found = metadata.files(name)
        except metadata.PackageNotFoundError:
            if name in OPTIONAL:
                continue
            raise EtlError(
                f"{name} isn't installed here.", "run this with the Python that the jobs run with."
            ) from None
        for file in found or ():
            # Scripts and manuals lie outside (../../bin).
            if not file.as_posix().startswith("..") and not _is_left_out(file.as_posix()):
                yield file.as_posix(), Path(str(file.locate()))
    for package in OURS:
        folder = next(Path(root) / package for root in IMPORT_ROOTS if (Path(root) / package).is_dir())
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder.parent).as_posix()
            if path.is_file() and not _is_left_out(name):
                yield name, path


def pack(archive: Path) -> int:
    """Writes the archive; returns how many files are in it."""
    count = 0
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name, path in files():
            tar.add(path, name)
            count += 1
    return count


def _is_left_out(name: str) -> bool:
    return any(f"{part}/" in f"{name}/" for part in _LEFT_OUT)


def main() -> int:
    """Pack; print what was written."""
    parser = argparse.ArgumentParser(prog="python -m spark_etl.jobs.pack")
    parser.add_argument("archive", type=Path, help="the file to write: NAME.tar.gz")
    archive: Path = parser.parse_args().archive
    try:
        count = pack(archive)
    except EtlError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{archive}: {count} files, {archive.stat().st_size / 1024**2:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
