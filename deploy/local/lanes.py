"""All tests at once, in two lanes: those of the daemons and clients, and those of the platform above them.

Both mostly wait (for processes, a browser, a JVM), so that two of them side by side need little more than the longer one.
The first lane is shown as it runs, the second when it has ended, and what failed in either once more at the end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from deploy.local.terminal import Terminal

# Everything that is not named here runs in the first lane.
PLATFORM_TESTS = ("controlplane", "console", "failover", "insight_end_to_end", "spark_etl", "deploy")
NO_TESTS_COLLECTED = 5
_TOLD_AT_THE_END = ("FAILED ", "ERROR ", "XFAIL ", "=")


def run_lanes(python: Path, repository: Path, folder: Path, terminal: Terminal) -> int:
    """Runs both lanes in `repository`, their logs in `folder`; returns 0 when all tests passed."""
    folder.mkdir(parents=True, exist_ok=True)
    tests = repository / "tests"
    platform = [f"tests/{name}" for name in PLATFORM_TESTS if (tests / name).is_dir()]
    first = _start(python, repository, "daemons", [f"--ignore={path}" for path in platform], subprocess.PIPE)
    second_log = folder / "platform.log"
    with first, second_log.open("wb") as log, _start(python, repository, "platform", platform, log) as second:
        shown = _show(first)
        statuses = [_wait(first), _wait(second)]
    hidden = second_log.read_text("utf-8", "replace")
    terminal.say("== the platform's tests")
    terminal.say(hidden)
    terminal.say("== all tests")
    for line in [*_summary(shown), *_summary(hidden.splitlines())]:
        terminal.say(line)
    return max(statuses)


def cache_of(repository: Path, lane: str) -> Path:
    """Where a lane keeps what failed last."""
    return repository / ".pytest_cache" / lane


def _start(
    python: Path, repository: Path, lane: str, arguments: Sequence[str], output: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    command = [str(python), "-m", "pytest", "-o", f"cache_dir={cache_of(repository, lane)}", *arguments]
    # A lane without a terminal: what it prints may be shown much later.
    return subprocess.Popen(command, cwd=repository, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def _show(process: subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout is not None, "it was started with a pipe"
    lines: list[str] = []
    while True:
        try:
            chunk = process.stdout.readline()
        except KeyboardInterrupt:
            continue  # both lanes got the same signal and write their summaries
        if not chunk:
            return lines
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        lines.append(chunk.decode("utf-8", "replace").rstrip("\n"))


def _wait(process: subprocess.Popen[bytes]) -> int:
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue
        if status == NO_TESTS_COLLECTED:
            return 0
        return status if status >= 0 else 128 - status  # as a shell counts an end by a signal


def _summary(lines: Sequence[str]) -> list[str]:
    """The outcome of a pytest run: from its short summary on, the lines that say what."""
    starts = [number for number, line in enumerate(lines) if "short test summary info" in line]
    tail = lines[starts[-1] + 1 :] if starts else lines[-1:]
    return [line for line in tail if line.startswith(_TOLD_AT_THE_END) or line is tail[-1]]
