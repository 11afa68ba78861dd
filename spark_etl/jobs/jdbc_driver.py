"""PostgreSQL's JDBC driver: a jar of yours, or fetched once by the Ivy that comes with PySpark, and checked."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from spark_etl.errors import EtlError

DRIVER_CLASS: Final = "org.postgresql.Driver"
VERSION: Final = "42.7.8"
SHA256: Final = "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
# A jar that is on the machine already; nothing is fetched then.
VARIABLE: Final = "HIGHWATER_JDBC_JAR"
FETCH_S_MAX: Final = 300


def driver_jar(environ: Mapping[str, str] | None = None) -> Path:
    """The jar's path; raises EtlError that tells how to give one by hand."""
    given = (os.environ if environ is None else environ).get(VARIABLE)
    if given:
        if not Path(given).is_file():
            raise EtlError(f"{VARIABLE}={given} is no file.", "correct the variable or unset it.")
        return Path(given)
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"postgresql-{VERSION}.jar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two jobs may start for the first time at once
        if not jar.exists():
            _fetch(jar)
    return jar


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "highwater" / "jars"


def java() -> str:
    """The java to run, as Spark itself finds it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _fetch(jar: Path) -> None:
    """By Ivy and its usual repository, which is not named here."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
        command = [
            java(),
            "-jar",
            str(ivy),
            "-cache",
            f"{folder}/cache",
            *("-dependency", "org.postgresql", "postgresql", VERSION),
            *("-confs", "default", "-types", "jar"),
            *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
            said = (done.stdout + done.stderr)[-1000:]
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
        fetched = Path(folder) / jar.name
        if not fetched.exists():
            raise EtlError(
                f"PostgreSQL's JDBC driver {VERSION} could not be fetched: {said}",
                f"check the network, or set {VARIABLE} to a postgresql-{VERSION}.jar of yours.",
            )
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != SHA256:
            raise EtlError(
                f"The JDBC driver that was fetched is not the one that was tried (sha256 {digest}).",
                f"set {VARIABLE} to a postgresql-{VERSION}.jar of yours.",
            )
        os.replace(fetched, jar)
