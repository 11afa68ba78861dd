"""The resident Spark session of this worker: a process that runs job after job, so that no run pays for a start of Spark.

It is started for the first run, again when it has died or the settings have changed, and ends when it was idle for
HIGHWATER_JOB_RESIDENT_IDLE_S, when a run has to be ended, or with this worker: its standard input is the leash.
"""

import atexit
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

# A process that is asked to end by its input is given so long.
_END_S_MAX = 10.0


class ResidentSession:
    """A process that runs jobs; `log` is where it writes."""

    def __init__(self, folder: Path, key: str, environment: dict[str, str]) -> None:
        self.key = key
        self.log = folder / "resident.log"
        parts = [part.format(python=sys.executable, job="resident") for part in settings.HIGHWATER_JOB_COMMAND]
        command = [*parts, "--idle-s", str(settings.HIGHWATER_JOB_RESIDENT_IDLE_S)]
        with open(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=settings.ROOT_DIR,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, job: str, config: Path, result: Path) -> bool:
        """Order a run; False when the process has just ended and another one must take it."""
        line = json.dumps({"job": job, "config": str(config), "result": str(result)}) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            return False
        return self.status is None

    def end(self) -> None:
        """End it and what it has started, at once."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, and what was written to it is lost with it
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S_MAX)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)  # the JVM and its Python workers too
        self._process.wait()


_running: ResidentSession | None = None


def resident_session(folder: Path, config: dict[str, Any], environment: dict[str, str]) -> ResidentSession:
    """Return the running session, or a new one where there is none that fits the configuration."""
    global _running
    # What a session can't change while it runs.
    key = json.dumps(
        [settings.HIGHWATER_JOB_COMMAND, config["master"], config["spark"], config["lake"]], sort_keys=True
    )
    if _running is not None and (_running.status is not None or _running.key != key):
        resident_end()
    if _running is None:
        _running = ResidentSession(folder, key, environment)
    return _running


def resident_end() -> None:
    """End the session of this worker, if there is one."""
    global _running
    if _running is not None:
        session, _running = _running, None
        session.end()


atexit.register(resident_end)
