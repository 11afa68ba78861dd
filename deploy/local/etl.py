"""Runs a Spark job on this machine: `python -m deploy.local.etl usage_billing --config FILE --result FILE`.

Installs what is missing first (`spark_install.py` has usually done so long before), then becomes `python -m spark_etl.jobs.<job>`
with the packages and the Java that were installed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.local.environment import Environment
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.spark_install import Installer
from deploy.local.terminal import DevError


def main(arguments: Sequence[str]) -> int:
    """Replaces this process by the job's; returns only when that can't be."""
    if not arguments or not (REPOSITORY / "spark_etl" / "jobs" / f"{arguments[0]}.py").is_file():
        print(__doc__, file=sys.stderr)
        return 2
    environment = Environment.current()
    try:
        setup = Installer(Layout.from_environment(), environment).install()
    except DevError as error:
        text = f"{error.cause} Way out: {error.way_out}"
        print(text, file=sys.stderr)
        if "--result" in arguments[:-1]:
            result = Path(arguments[arguments.index("--result") + 1])
            result.write_text(json.dumps({"state": "failed", "error": text}))
        return 1
    command = [str(environment.python), "-m", f"spark_etl.jobs.{arguments[0]}", *arguments[1:]]
    os.environ.update(setup.job_variables(os.environ))
    os.execv(command[0], command)  # nosec B606  # the same program, further on
    raise AssertionError("execv does not return")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
