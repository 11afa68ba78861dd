"""Runs one after the other, whatever each of them finds. Each ends with a row of a table: `./dev nemesis … | grep '^|'`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tests.nemesis.run import Outcome

_COLUMNS = ("mode", "seed", "acknowledged", "violations", "wall time")


def campaign(
    runs: Iterable[tuple[str, int]], run_one: Callable[[str, int], Outcome], say: Callable[[str], object]
) -> list[str]:
    """Have each (mode, seed) run, say what it found, and return those that found a violation, or could not be run."""
    failed: list[str] = []
    count = 0
    for line in (_row(*_COLUMNS), _row(*("---" for _ in _COLUMNS))):
        say(line)
    for mode, seed in runs:
        count += 1
        say(f"nemesis {mode} --seed {seed}")
        began_s = time.monotonic()
        try:
            outcome = run_one(mode, seed)
        except Exception as error:  # what there is of the next runs is worth more than where this one broke
            say(f"  NOT RUN: {type(error).__name__}: {error}")
            outcome, violations = Outcome(mode, seed), "not run"
        else:
            _describe(outcome, say)
            violations = str(len(outcome.violations))
        if violations != "0":
            failed.append(f"{mode} --seed {seed}")
        say(_row(mode, seed, outcome.acknowledged, violations, f"{time.monotonic() - began_s:.0f} s"))
    say(f"{count} runs, {len(failed)} with violations or not run{': ' if failed else ''}{', '.join(failed)}")
    return failed


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _describe(outcome: Outcome, say: Callable[[str], object]) -> None:
    for reason in outcome.left_out:
        say(f"  left out: {reason}")
    for violation in outcome.violations:
        say(f"  VIOLATION: {violation}")
    for (asked, end), count in sorted(outcome.operations.items()):
        say(f"  {asked} {end}: {count}")
    if outcome.sent_back:
        say(f"  messages may be lost: consumers were sent back {outcome.sent_back} times")
    say(
        f"  {len(outcome.events)} events, {outcome.committed} offsets committed, {outcome.answered} answered,"
        f" {dict(outcome.changes)}, {outcome.consumers} push consumers, seen {dict(outcome.seen)}"
    )
