"""The jars that the jobs need besides Spark's own: fetched once by the Ivy that comes with PySpark, and checked by
their hash.

    python -m spark_etl.jobs.jars        fetches all of them ahead of the first job (as an installer does) and prints their paths

HIGHWATER_JARS names a folder that holds them already; then nothing is fetched.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyspark

from spark_etl.errors import EtlError

# A folder with the jars that is on the machine already; nothing is fetched then.
VARIABLE: Final = "HIGHWATER_JARS"
FETCH_S_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Jar:
    """One Maven artifact, and the hash of the file that was tested."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


POSTGRES: Final = Jar(
    "org.postgresql",
    "postgresql",
    "42.7.8",
    "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
ICEBERG: Final = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
# Only where the warehouse is on S3.
ICEBERG_AWS: Final = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
ALWAYS: Final = (POSTGRES, ICEBERG)


def jar_paths(jars: tuple[Jar, ...] = ALWAYS, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Where the jars are; those that are missing are fetched. Raises EtlError that says how to provide them by hand."""
    environment = os.environ if environ is None else environ
    given = environment.get(VARIABLE)
    if given:
        return [_in_folder(Path(given), jar) for jar in jars]
    folder = cache_folder(environment) / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two jobs may start for the first time at once
        for jar in jars:
            if not (folder / jar.file_name).exists():
                _fetch(jar, folder)
    return [folder / jar.file_name for jar in jars]


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """What can be made or fetched again, of this user."""
    environment = os.environ if environ is None else environ
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highwater"


def java() -> str:
    """The java to run, as Spark itself finds it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def proxy_options(environ: Mapping[str, str]) -> list[str]:
    """Java's options for the proxy that pip and curl take from the environment; a proxy's password is not passed on."""
    given = {name.lower(): value for name, value in environ.items() if value}
    options = []
    for scheme in ("http", "https"):
        proxy = given.get(f"{scheme}_proxy") or given.get("all_proxy") or ""
        address = urlsplit(proxy if "://" in proxy else f"//{proxy}")
        if address.hostname:
            options += [f"-D{scheme}.proxyHost={address.hostname}", f"-D{scheme}.proxyPort={address.port or 80}"]
    spared = [host.strip().lstrip("*") for host in given.get("no_proxy", "").split(",") if host.strip()]
    if options and spared:
        # A domain of the variable means itself and all below it.
        hosts = [host for name in spared for host in (name.lstrip("."), f"*.{name.lstrip('.')}")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def _in_folder(folder: Path, jar: Jar) -> Path:
    path = folder / jar.file_name
    if not path.is_file():
        raise EtlError(f"{VARIABLE}={folder} has no {jar.file_name}.", "put the jar there, or unset the variable.")
    return path


def _fetch(jar: Jar, folder: Path) -> None:
    """By Ivy and its usual repository, which is not named here."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        command = [
            java(),
            *proxy_options(os.environ),
            "-jar",
            str(ivy),
            "-cache",
            f"{scratch}/cache",
            *("-dependency", jar.group, jar.artifact, jar.version),
            *("-confs", "default", "-types", "jar"),
            *("-retrieve", f"{scratch}/[artifact]-[revision].[ext]"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
            output = (done.stdout + done.stderr)[-1000:]
        except (OSError, subprocess.TimeoutExpired) as error:
            output = str(error)
        fetched = Path(scratch) / jar.file_name
        if not fetched.exists():
            raise EtlError(
                f"The jar {jar.file_name} could not be fetched: {output}",
                f"check the network, or set {VARIABLE} to a folder that holds it.",
            )
        with fetched.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise EtlError(
                f"The jar {jar.file_name} that was fetched is not the one that was tested (sha256 {digest}).",
                f"set {VARIABLE} to a folder with the right one.",
            )
        os.replace(fetched, folder / jar.file_name)


def main() -> int:
    """Fetch all jars; print their paths, or why there are none."""
    try:
        paths = jar_paths()
    except EtlError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(map(str, paths)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
