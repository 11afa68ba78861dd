"""What a program of the platform costs, with all that it has started: processor time and memory, from Linux's /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Cost:
    """Processor time so far, that of ended children included; memory now, shared pages counted once (Pss)."""

    processor_s: float
    memory_bytes: int
    age_s: float
    """Of the process on top."""

    @property
    def cores(self) -> float:
        """Processor time a second, on average since the start."""
        return self.processor_s / max(self.age_s, 1.0)


def cost_below(pid: int) -> Cost | None:
    """The process and all below it; None where that can't be known (not Linux, or it has ended)."""
    stats = _stats()
    if pid not in stats:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    family, waiting = {pid}, [pid]
    while waiting:
        parent = waiting.pop()
        children = [child for child, values in stats.items() if int(values[1]) == parent]
        family.update(children)
        waiting += children
    # utime, stime, and those of children that were waited for
    processor = sum(sum(map(int, stats[member][11:15])) for member in family) / ticks
    uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return Cost(processor, sum(map(memory_bytes, family)), uptime_s - int(stats[pid][19]) / ticks)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, its share of what it has in common with others; 0 when it has just ended."""
    try:
        text = (PROC / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0)


def describe_cost(cost: Cost) -> str:
    """In words."""
    hours, minutes = divmod(round(cost.age_s / 60), 60)
    since = f"{hours} h {minutes} min" if hours else f"{max(minutes, 1)} min"
    return (
        f"Spark's jobs take {cost.memory_bytes / 1024**2:,.0f} MiB of memory now, and took {100 * cost.cores:.1f} % of a core"
        f" in the last {since}."
    )


def _stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat from the state on (field 3), by process."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        try:
            found[int(folder.name)] = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
    return found
