"""Runs a Spark job on this machine: `python -m deploy.local.etl usage_billing --config FILE --result FILE`.

`./dev up` installs neither PySpark (half a gigabyte) nor Java. Here, before the first job, PySpark is added to the environment, and
where Java is missing one line says so. Then this process becomes `python -m spark_etl.jobs.<job>`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.local.environment import ETL, Environment
from deploy.local.layout import REPOSITORY
from deploy.local.terminal import DevError, Terminal

JOBS = ("ingest", "usage_billing", "lag_analytics", "billing_check", "compaction")


def ensure(environment: Environment, terminal: Terminal) -> None:
    """Makes the environment able to run Spark jobs; quick when it is.

    Raises:
        DevError: no Java, or PySpark could not be installed.
    """
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise DevError(
            "Spark jobs need Java >= 17, which isn't on this machine.",
            "sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless   (or set JAVA_HOME)",
        )
    if _present(environment):
        return
    with (environment.prefix / "etl.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two jobs may be the first
        if not _present(environment):
            environment.add(ETL, terminal)


def _present(environment: Environment) -> bool:
    return all(environment.package_folder(name) is not None for name in ("pyspark", "pyarrow"))


def main(arguments: Sequence[str]) -> int:
    """Replaces this process by the job's; returns only when that can't be."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.etl", description=__doc__)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--result", type=Path, required=True)
    options = parser.parse_args(arguments)
    environment = Environment.current()
    try:
        ensure(environment, Terminal())
    except DevError as error:
        options.result.write_text(json.dumps({"state": "failed", "error": f"{error.cause} Way out: {error.way_out}"}))
        print(f"{error.cause} Way out: {error.way_out}", file=sys.stderr)
        return 1
    files = ["--config", str(options.config.resolve()), "--result", str(options.result.resolve())]
    os.chdir(REPOSITORY)
    command = [str(environment.python), "-m", f"spark_etl.jobs.{options.job}", *files]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "platform")])
    os.execv(command[0], command)  # the same program, further on
    raise AssertionError("execv does not return")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
