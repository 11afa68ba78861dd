"""Processes of the platform that lost their supervisor (it was killed, say): how they are found and stopped.

They are known by a mark in their environment, or by their working directory. Both are read from /proc, so on other systems
than Linux nothing is found.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.local.supervisor import MARK, alive

STOP_SECONDS_MAX = 20

# They write their titles over their environments, so no mark is left; but they work in their data directories.
TITLE_SETTERS = ("postgres", "redis-server", "valkey-server")


@dataclass(frozen=True)
class Leftover:
    pid: int
    name: str


def find_leftovers(state: Path) -> list[Leftover]:
    """Every living process of the platform in `state`, supervisord included; not ourselves nor those who called us."""
    mark = os.fsencode(f"{MARK}={state}")
    spared = _ancestors()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid in spared:
            continue
        try:
            name = (entry / "comm").read_text().strip()
            ours = mark in (entry / "environ").read_bytes().split(b"\0")
            if name in TITLE_SETTERS:
                ours = ours or (entry / "cwd").resolve().is_relative_to(state)
        except OSError:
            continue  # ended meanwhile, or another user's
        if ours and alive(pid):
            found.append(Leftover(pid, name))
    return found


def describe(leftovers: list[Leftover]) -> str:
    """As in `3 processes that lost their supervisor (postgres, python)`."""
    names = ", ".join(sorted({leftover.name for leftover in leftovers}))
    return f"{len(leftovers)} processes that lost their supervisor ({names})"


def stop_leftovers(leftovers: list[Leftover]) -> None:
    """Asks them to end, PostgreSQL by its fast shutdown; kills what is still there after STOP_SECONDS_MAX."""
    # supervisord first, or it would start again what we stop.
    for leftover in sorted(leftovers, key=lambda leftover: leftover.name != "supervisord"):
        _send(leftover.pid, signal.SIGINT if leftover.name == "postgres" else signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while any(alive(leftover.pid) for leftover in leftovers) and time.monotonic() < deadline:
        time.sleep(0.05)
    for leftover in leftovers:
        if alive(leftover.pid):
            _send(leftover.pid, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _ancestors() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 0:
        pids.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            break
    return pids
