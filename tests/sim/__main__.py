"""Campaigns: `./dev sim --mode sync --seeds 1000`. See README.md."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.sim.campaign import OtherCommitError, campaign
from tests.sim.changing_bugs import CHANGING_BUGS
from tests.sim.damage_bugs import DAMAGE_BUGS
from tests.sim.planted_bugs import BUGS, SURVIVORS, PlantedBug
from tests.sim.quorum_bugs import QUORUM_BUGS
from tests.sim.seeds import MODES
from tests.sim.service_bugs import SERVICE_BUGS
from tests.sim.shell_bugs import SHELL_BUGS
from tests.sim.step_bugs import STEP_BUGS
from tests.sim.world import FLUSHES, Outcome

PLANTED_BUGS = (*BUGS, *SHELL_BUGS, *SERVICE_BUGS, *STEP_BUGS, *DAMAGE_BUGS, *QUORUM_BUGS, *CHANGING_BUGS)


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 after a violation."""
    parser = argparse.ArgumentParser(
        prog="./dev sim", description="Simulates broker groups under faults, seed by seed."
    )
    parser.add_argument("--mode", choices=MODES, help="(sync; with --planted-bugs those of all modes)")
    parser.add_argument("--flush", choices=FLUSHES, help="flushDiskType (sync)")
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
        "--table", action="store_true", help="all modes, or --mode, and flush types, each with --seeds seeds"
    )
    parser.add_argument("--jobs", type=int, help="so many seeds at a time (one a processor)")
    parser.add_argument(
        "--results", type=Path, help="a file to keep each seed's result in: one that is there goes on where it ended"
    )
    options = parser.parse_args(arguments)
    without_effect = _without_effect(options)
    if without_effect:
        parser.error(without_effect)
    jobs = options.jobs or os.cpu_count() or 1
    logging.disable(logging.CRITICAL)  # the trace says it all
    if options.planted_bugs:
        return find_planted_bugs(options.mode, options.first_seed, options.seeds or 200, options.bug)
    kinds = [(options.mode or "sync", options.flush or "sync")]
    if options.table:
        kinds = [(mode, flush) for mode in MODES if options.mode in (None, mode) for flush in FLUSHES]
    try:
        return campaign(
            kinds,
            range(options.first_seed, options.first_seed + (options.seeds or 100)),
            jobs=jobs,
            promotions=options.promotions,
            show=options.trace,
            kept_in=options.results,
        )
    except OtherCommitError as error:
        parser.error(str(error))


def _without_effect(options: argparse.Namespace) -> str | None:
    """What of these options would change nothing, or cannot be done; None where all have their effect."""
    given = {
        "--flush": options.flush is not None,
        "--no-promotions": not options.promotions,
        "--trace": options.trace,
        "--table": options.table,
        "--jobs": options.jobs is not None,
        "--results": options.results is not None,
    }
    if options.jobs is not None and options.jobs < 1:
        return "--jobs must be at least 1"
    if options.planted_bugs and any(given.values()):
        names = " and ".join(name for name, is_given in given.items() if is_given)
        return f"a planted bug has a flush type of its own, and is looked for in one process: leave out {names}"
    if options.bug and not options.planted_bugs:
        return "--bug chooses among planted bugs: give --planted-bugs, too"
    if options.table and options.flush is not None:
        return "--table has every flush type: leave out --flush"
    modes = MODES if options.table and options.mode is None else (options.mode or "sync",)
    if not options.promotions and not set(modes) <= {"async", "sync"}:
        return "--no-promotions needs a mode whose leader is promoted: give --mode async or --mode sync"
    return None


def find_planted_bugs(mode: str | None, first_seed: int, seeds: int, name: str = "") -> int:
    """A table with the first seed that finds each; every one but the survivors must be found.

    A bug that was found is not looked for again, and the others go on side by side, seed after seed, so that one that few seeds
    find does not hold up those that follow it. A seed that fails without the bug as well proves nothing, and has a row of its own;
    so has a bug that does not fit.
    The exit status is how many turned out otherwise.
    """
    wanted = [bug for bug in (*PLANTED_BUGS, *SURVIVORS) if mode in (None, bug.mode) and name in bug.name]
    missing, misfits = list(wanted), 0
    print("| bug | mode | flush | first seed | what it finds |")
    print("|---|---|---|---:|---|")
    for seed in range(first_seed, first_seed + seeds):
        for bug in list(missing):
            try:
                found = find(bug, seed, 1)
            except MisfitError as error:
                missing.remove(bug)
                misfits += 1
                print(
                    f"| {bug.name} | {bug.mode} | {bug.flush} | {seed} | does not fit: {_cell(str(error))} |",
                    flush=True,
                )
                continue
            if found is None:
                continue
            sound = bug.run(seed)
            if sound.violation is not None:
                print(f"| (none) | {bug.mode} | {bug.flush} | {seed} | {_cell(sound.violation)} |", flush=True)
                continue
            missing.remove(bug)
            print(f"| {bug.name} | {bug.mode} | {bug.flush} | {seed} | {_cell(found.violation)} |", flush=True)
    for bug in missing:
        why = "as expected: no promise hangs on it" if bug in SURVIVORS else f"not found within {seeds} seeds"
        print(f"| {bug.name} | {bug.mode} | {bug.flush} | | {why} |", flush=True)
    return misfits + sum((bug in missing) is not (bug in SURVIVORS) for bug in wanted)


def _cell(violation: str | None) -> str:
    return (violation or "").replace("|", "/").replace("\n", " ")[:120]


class MisfitError(Exception):
    """What a planted bug changes is called in another way by now: it is found because nothing works, and proves nothing."""


def find(bug: PlantedBug, first_seed: int, seeds: int) -> Outcome | None:
    """The first seed that finds it. Raises MisfitError."""
    with bug.patch(), _misfits() as misfits:
        for seed in range(first_seed, first_seed + seeds):
            outcome = bug.run(seed)
            if outcome.violation is not None and re.search(
                "TypeError.*<locals>", outcome.violation
            ):  # it ended a broker
                misfits.append(outcome.violation)
            if misfits:
                raise MisfitError(f"{bug.name}: {misfits[0]}")
            if outcome.violation is not None:
                return outcome
    return None


@contextmanager
def _misfits() -> Iterator[list[str]]:
    """Collects the TypeErrors of calls to functions that a test has defined within another one, which brokers catch and log."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            found.extend(str(one) for one in _each(error) if isinstance(one, TypeError) and "<locals>" in str(one))

    root, disabled = logging.getLogger(), logging.root.manager.disable
    handlers = root.handlers[:]
    root.handlers[:] = [Handler()]
    logging.disable(logging.INFO)
    try:
        yield found
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers


def _each(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    elif error is not None:
        yield error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
