"""Campaigns: `./dev sim --mode sync --seeds 1000`. See README.md."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.sim.changing_bugs import CHANGING_BUGS
from tests.sim.planted_bugs import BUGS, SURVIVORS, PlantedBug
from tests.sim.quorum_bugs import QUORUM_BUGS
from tests.sim.seeds import MODES, run_seed
from tests.sim.shell_bugs import SHELL_BUGS
from tests.sim.step_bugs import STEP_BUGS
from tests.sim.world import FLUSHES, Outcome

_PROGRESS_S = 5.0


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 after a violation."""
    parser = argparse.ArgumentParser(
        prog="./dev sim", description="Simulates broker groups under faults, seed by seed."
    )
    parser.add_argument("--mode", choices=MODES, help="(sync; with --planted-bugs those of all modes)")
    parser.add_argument("--flush", choices=FLUSHES, default="sync", help="flushDiskType")
    parser.add_argument("--seeds", type=int, help="how many (100)")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--no-promotions",
        dest="promotions",
        action="store_false",
        help="nothing is promoted: the replica that led must lead again by itself",
    )
    parser.add_argument("--trace", action="store_true", help="print every line of the trace")
    parser.add_argument(
        "--planted-bugs", action="store_true", help="look for each planted bug instead, for at most --seeds seeds (200)"
    )
    parser.add_argument("--bug", default="", help="with --planted-bugs: those with this in their names only")
    parser.add_argument(
        "--table", action="store_true", help="all modes and flush types, each with --seeds seeds, in one table"
    )
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # the trace says it all
    if options.planted_bugs:
        return find_planted_bugs(options.mode, options.first_seed, options.seeds or 200, options.bug)
    if options.table:
        return table(options.first_seed, options.seeds or 100)
    return campaign(
        options.mode or "sync",
        options.flush,
        options.first_seed,
        options.seeds or 100,
        promotions=options.promotions,
        show=options.trace,
    )


def find_planted_bugs(mode: str | None, first_seed: int, seeds: int, name: str = "") -> int:
    """A table with the first seed that finds each; every one but the survivors must be found.

    A bug that was found is not looked for again, and the others go on side by side, seed after seed, so that one that few seeds
    find does not hold up those that follow it. A seed that fails without the bug as well proves nothing, and has a row of its own.
    The exit status is how many turned out otherwise.
    """
    every = (*BUGS, *SURVIVORS, *SHELL_BUGS, *STEP_BUGS, *QUORUM_BUGS, *CHANGING_BUGS)
    wanted = [bug for bug in every if mode in (None, bug.mode) and name in bug.name]
    missing = list(wanted)
    print("| bug | mode | flush | first seed | what it finds |")
    print("|---|---|---|---:|---|")
    for seed in range(first_seed, first_seed + seeds):
        for bug in list(missing):
            found = find(bug, seed, 1)
            if found is None:
                continue
            sound = run_seed(bug.mode, bug.flush, seed, replicas=bug.replicas)
            if sound.violation is not None:
                print(f"| (none) | {bug.mode} | {bug.flush} | {seed} | {_cell(sound.violation)} |", flush=True)
                continue
            missing.remove(bug)
            print(f"| {bug.name} | {bug.mode} | {bug.flush} | {seed} | {_cell(found.violation)} |", flush=True)
    for bug in missing:
        why = "as expected: no promise hangs on it" if bug in SURVIVORS else f"not found within {seeds} seeds"
        print(f"| {bug.name} | {bug.mode} | {bug.flush} | | {why} |", flush=True)
    return sum((bug in missing) is not (bug in SURVIVORS) for bug in wanted)


def _cell(violation: str | None) -> str:
    return (violation or "").replace("|", "/").replace("\n", " ")[:120]


def find(bug: PlantedBug, first_seed: int, seeds: int) -> Outcome | None:
    """The first seed that finds it."""
    with bug.patch():
        for seed in range(first_seed, first_seed + seeds):
            outcome = run_seed(bug.mode, bug.flush, seed, replicas=bug.replicas)
            if outcome.violation is not None:
                return outcome
    return None


def campaign(mode: str, flush: str, first_seed: int, seeds: int, *, promotions: bool, show: bool) -> int:
    """Run seeds until one fails."""
    counts: Counter[str] = Counter()
    began_s = reported_s = time.monotonic()
    for seed in range(first_seed, first_seed + seeds):
        outcome = run_seed(mode, flush, seed, promotions=promotions, show=show)
        counts.update(outcome.counts)
        if outcome.violation is not None:
            report_failure(mode, flush, outcome, promotions=promotions, shown=show)
            return 1
        if time.monotonic() - reported_s > _PROGRESS_S:
            reported_s = time.monotonic()
            done = seed - first_seed + 1
            print(f"  {done} of {seeds} seeds, {done / (reported_s - began_s):.1f} each second", flush=True)
    print(f"{mode}, {flush} flush: {seeds} seeds, no violation, {time.monotonic() - began_s:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:>9} {name}")
    return 0


def table(first_seed: int, seeds: int) -> int:
    """The nightly campaign, as Markdown on stdout; goes on after a violation, and returns how many there were."""
    found: list[str] = []
    print("| mode | flush | seeds | SEND_OK | faults | violations | wall time | processor time of a seed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for mode in MODES:
        for flush in FLUSHES:
            counts: Counter[str] = Counter()
            began_s, began_cpu_s, before = time.monotonic(), time.process_time(), len(found)
            for seed in range(first_seed, first_seed + seeds):
                outcome = run_seed(mode, flush, seed)
                counts.update(outcome.counts)
                if outcome.violation is not None:
                    found.append(
                        f"{outcome.violation}\nagain: ./dev sim --mode {mode} --flush {flush} --first-seed {seed}"
                        " --seeds 1 --trace"
                    )
            cpu_s = (time.process_time() - began_cpu_s) / seeds
            print(
                f"| {mode} | {flush} | {seeds:,} | {counts['SEND_OK']:,} | {counts['faults']:,} | {len(found) - before}"
                f" | {time.monotonic() - began_s:,.0f} s | {cpu_s:.2f} s |",
                flush=True,
            )
    print(*found, sep="\n\n")
    return min(len(found), 1)


def report_failure(mode: str, flush: str, outcome: Outcome, *, promotions: bool, shown: bool) -> None:
    """What happened last, and how to see it again."""
    if not shown:
        print("\n".join(outcome.last_lines[-40:]))
    print(f"\nseed {outcome.seed}: {outcome.violation}")
    kind = "" if promotions else " --no-promotions"
    print(f"again: ./dev sim{kind} --mode {mode} --flush {flush} --first-seed {outcome.seed} --seeds 1 --trace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
