"""`./dev nemesis MODE [--seconds 60] [--seed N] [--runs N]`: real daemons, weather by seed, and a judge of every answer."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.nemesis.run import MODES, run


def main() -> int:
    """0 when no run found a violation."""
    parser = argparse.ArgumentParser(prog="./dev nemesis", description=__doc__)
    parser.add_argument("mode", choices=[*MODES, "all"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of weather in each run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what clients meet in this weather is noted and judged
    failed = 0
    for mode in MODES if options.mode == "all" else [options.mode]:
        for seed in range(options.seed, options.seed + options.runs):
            print(f"nemesis {mode} --seed {seed} --seconds {options.seconds:g}", flush=True)
            began_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
                outcome = run(mode, seed, options.seconds, Path(folder), lambda line: print(line, flush=True))
            for reason in outcome.left_out:
                print(f"  left out: {reason}")
            for violation in outcome.violations:
                print(f"  VIOLATION: {violation}")
            for (asked, end), count in sorted(outcome.operations.items()):
                print(f"  {asked} {end}: {count}")
            failed += bool(outcome.violations)
            print(
                f"  {len(outcome.events)} events, {outcome.acknowledged} messages acknowledged, {outcome.committed}"
                f" offsets committed, {dict(outcome.changes)}, {outcome.consumers} push consumers, seen {dict(outcome.seen)},"
                f" {len(outcome.violations)} violations, {time.monotonic() - began_s:.0f} s",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
