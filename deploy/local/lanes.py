"""All tests at once, in three lanes: each takes the next group of rooms when it is done with one, the longest first. Beside them
runs a group that mostly waits.

Tests wait for processes, a browser, a JVM; three of them side by side keep two cores busy. A group is a pytest
run of its own: what its rooms share is started once, and ends with it instead of running on beside the others. Its report is
shown when it has ended, and what failed in any of them once more at the end. docs/decisions.md says why not pytest-xdist.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.terminal import Terminal

LANES = 3

OTHERS = "others"  # all rooms that no group names
BESIDE = "nemesis"  # minutes of weather, in which it hardly computes: it would leave a lane idle
# Rooms that share what is slow to start, the longest groups first.
GROUPS: Mapping[str, Sequence[str]] = {
    BESIDE: ("nemesis",),
    "console": ("console",),
    "controlplane": ("controlplane",),
    "failover": ("failover",),
    "interop": ("interop", "security"),
    "spark": ("spark_etl",),
    "replicas": ("replication", "dledger"),
    "insight": ("insight_end_to_end",),
    OTHERS: (),
    "deploy": ("deploy",),
    "sdk": ("highwater", "bench"),
    "sim": ("sim",),
}
NO_TESTS_COLLECTED = 5
_POLL_S = 0.1
_SHOWN_AT_THE_END = ("FAILED ", "ERROR ", "XFAIL ", "RERUN ", "=")


@dataclass
class _Run:
    """The pytest run of a group that is under way."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    started_s: float


def run_lanes(python: Path, repository: Path, folder: Path, terminal: Terminal) -> int:
    """Runs all groups in `repository`, their logs in `folder`; returns 0 when all tests passed."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting = _groups(repository)
    running: list[_Run] = []
    statuses: list[int] = []
    summaries: list[str] = []
    began_s, idle_before_s = time.monotonic(), _idle_s()
    while waiting or running:
        try:
            while waiting and (waiting[0][0] == BESIDE or sum(run.name != BESIDE for run in running) < LANES):
                name, paths = waiting.pop(0)
                terminal.say(f"== {name}: {' '.join(paths)}")
                running.append(_start(python, repository, folder, name, paths))
            time.sleep(_POLL_S)
            before_s = _processor_s()
            ended = next((run for run in running if run.process.poll() is not None), None)
        except KeyboardInterrupt:
            waiting.clear()  # those that run got the same signal and write their summaries
            statuses.append(128 + 2)
            continue
        if ended is not None:
            running.remove(ended)
            report = ended.log.read_text("utf-8", "replace")
            terminal.say(report)
            took = f"took {time.monotonic() - ended.started_s:.0f} s, {_processor_s() - before_s:.0f} s of a processor"
            terminal.say(f"== {ended.name} {took}")
            statuses.append(_status(ended.process.returncode))
            summaries += [f"{ended.name}, which {took}:", *_summary(report.splitlines())]
    possible_s = (time.monotonic() - began_s) * (os.cpu_count() or 1)
    terminal.say(f"== all tests; the processors were idle {(_idle_s() - idle_before_s) / possible_s:.0%} of the time")
    for line in summaries:
        terminal.say(line)
    return max(statuses, default=0)


def _groups(repository: Path) -> list[tuple[str, list[str]]]:
    """Names and folders of all groups that are there."""
    rooms = sorted(path.name for path in (repository / "tests").iterdir() if any(path.glob("**/test_*.py")))
    named = {room for members in GROUPS.values() for room in members}
    groups = {**GROUPS, OTHERS: [room for room in rooms if room not in named]}
    found = [(name, [f"tests/{room}" for room in members if room in rooms]) for name, members in groups.items()]
    return [(name, paths) for name, paths in found if paths]


def _start(python: Path, repository: Path, folder: Path, name: str, paths: Sequence[str]) -> _Run:
    # Each keeps by itself what failed last, and lists what took long.
    options = ["-o", f"cache_dir={repository / '.pytest_cache' / name}", "--durations=12", "--durations-min=5"]
    command = [str(python), "-m", "pytest", *options, *paths]
    # Whoever wants no byte code written would have each of hundreds of daemons compile its modules anew.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=repository,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return _Run(name, process, log, time.monotonic())


def _processor_s() -> float:
    """What all children that have ended, and theirs, have used: not those that left them, as a platform's supervisor does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _idle_s() -> float:
    """How long all processors together have had nothing to do since the machine started; 0 where Linux does not say so."""
    uptime = Path("/proc/uptime")
    return float(uptime.read_text().split()[1]) if uptime.exists() else 0.0


def _status(returncode: int) -> int:
    if returncode == NO_TESTS_COLLECTED:
        return 0
    return returncode if returncode >= 0 else 128 - returncode  # as a shell counts an end by a signal


def _summary(lines: Sequence[str]) -> list[str]:
    """The outcome of a pytest run: from its summaries on, the lines that say what failed, and what was tried once more."""
    starts = [number for number, line in enumerate(lines) if line.startswith("=") and "test summary info" in line]
    tail = lines[starts[0] + 1 :] if starts else lines[-1:]
    return [line for line in tail if line.startswith(_SHOWN_AT_THE_END) or line is tail[-1]]
