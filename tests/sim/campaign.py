"""Campaigns: seeds of some modes and flush types over all cores, a failing one printed at once, one table at the end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import IO

import msgspec

from tests.sim.seed_processes import REPOSITORY, Result, Task, run_task, run_tasks

_PROGRESS_S = 10.0


class Row:
    """What the seeds of one mode and flush type came to so far."""

    def __init__(self, mode: str, flush: str) -> None:
        self.mode = mode
        self.flush = flush
        self.seeds = self.violations = 0
        self.counts: Counter[str] = Counter()
        self.elapsed_s = self.cpu_s = 0.0

    def take(self, result: Result) -> None:
        self.seeds += 1
        self.violations += result.violation is not None
        self.counts.update(result.counts)
        self.elapsed_s += result.elapsed_s
        self.cpu_s += result.cpu_s

    def _changes(self) -> str:
        """Of the commits of offsets and changes of topics that were answered: how many had to survive."""
        judged, excused = (self.counts[f"answered changes {what}"] for what in ("judged", "that may be lost"))
        return f"{judged:,} of {judged + excused:,}"

    def line(self, jobs: int) -> str:
        """A row of the table. The seeds of several rows may overlap, so wall time is that of its seeds over `jobs`."""
        return (
            f"| {self.mode} | {self.flush} | {self.seeds:,} | {self.counts['SEND_OK']:,} | {self.counts['faults']:,}"
            f" | {self._changes()} | {self.violations} | {self.elapsed_s / jobs:,.0f} s | {self.cpu_s / max(1, self.seeds):.2f} s |"
        )


class OtherCommitError(Exception):
    """The kept results are of other code: they belong into no table with those of this code."""


def campaign(
    kinds: Sequence[tuple[str, str]],
    seeds: range,
    *,
    jobs: int,
    promotions: bool = True,
    show: bool = False,
    kept_in: Path | None = None,
) -> int:
    """Run these seeds of each mode and flush type; the exit status: 1 after a violation, 130 after an interrupt.

    With `kept_in` each result is appended to that file, and those that stand there are not run again. Raises
    OtherCommitError. `show` prints each line of the trace, one seed after the other.
    """
    rows = {kind: Row(*kind) for kind in kinds}
    kept = list(_kept(kept_in)) if kept_in is not None else []
    wanted = {
        Task(mode, flush, seed, promotions): None for mode, flush in kinds for seed in seeds
    }  # in order, as seeds are run in it
    results = [result for result in kept if result.task in wanted]
    for result in results:
        del wanted[result.task]
        _take(rows, result)
    if kept:
        print(f"  {len(results):,} seeds were run before, by {kept_in}", flush=True)
    status = 0
    try:
        with (
            kept_in.open("a", encoding="utf-8") if kept_in is not None else nullcontext() as file,
            closing(_results(list(wanted), jobs, show=show)) as found,
        ):
            reported_s = time.monotonic()
            for done, result in enumerate(found, 1):
                _keep(file, result)
                _take(rows, result)
                if time.monotonic() - reported_s > _PROGRESS_S:
                    reported_s = time.monotonic()
                    print(
                        f"  {done:,} of {len(wanted):,} seeds; now mode {result.task.mode}, {result.task.flush} flush",
                        file=sys.stderr,
                        flush=True,
                    )
    except KeyboardInterrupt:
        print("interrupted: the table is of those that were run", file=sys.stderr)
        status = 130
    print(
        "\n| mode | flush | seeds | SEND_OK | faults | changes judged | violations | wall time | processor time of a seed |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows.values():
        print(row.line(jobs))
    if len(rows) == 1:
        for name, count in sorted(row.counts.items()):
            print(f"  {count:>9} {name}")
    return status or min(1, sum(row.violations for row in rows.values()))


def _results(tasks: Sequence[Task], jobs: int, *, show: bool) -> Generator[Result]:
    if show:
        yield from (run_task(task, show=True) for task in tasks)
    else:
        with closing(run_tasks(tasks, min(jobs, len(tasks)))) as results:
            yield from results


def _take(rows: dict[tuple[str, str], Row], result: Result) -> None:
    task = result.task
    rows[task.mode, task.flush].take(result)
    if result.violation is not None:
        kind = "" if task.promotions else " --no-promotions"
        print(*result.last_lines, sep="\n")
        print(f"\n{task.mode}, {task.flush} flush, seed {task.seed}: {result.violation}")
        print(
            f"again: ./dev sim{kind} --mode {task.mode} --flush {task.flush} --first-seed {task.seed} --seeds 1 --trace\n",
            flush=True,
        )


def _keep(file: IO[str] | None, result: Result) -> None:
    if file is not None:
        file.write(f"{msgspec.json.encode(result).decode()}\n")
        file.flush()


def _kept(path: Path) -> Iterable[Result]:
    """What the file holds, a new one nothing; its first line names the code that the results are of."""
    code = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.strip()
    if not path.exists():
        path.write_text(f"{code}\n", "utf-8")
    first, *lines = path.read_text("utf-8").splitlines(keepends=True)
    if first.strip() != code:
        raise OtherCommitError(f"{path} holds results of {first.strip()}, and this is {code}: name another file")
    return [msgspec.json.decode(line, type=Result) for line in lines if line.endswith("\n")]
