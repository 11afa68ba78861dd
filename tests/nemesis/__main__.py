"""`./dev nemesis MODE [--seconds 60] [--seed N] [--runs N]`: real daemons, weather by seed, and a judge of every answer."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.nemesis.campaign import campaign
from tests.nemesis.run import MODES, Outcome, run


def main() -> int:
    """0 when no run found a violation."""
    parser = argparse.ArgumentParser(prog="./dev nemesis", description=__doc__)
    parser.add_argument("mode", choices=[*MODES, "all"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of weather in each run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # what clients meet in this weather is noted and judged
    modes = MODES if options.mode == "all" else [options.mode]
    runs = [(mode, seed) for mode in modes for seed in range(options.seed, options.seed + options.runs)]
    return 1 if campaign(runs, partial(_run, seconds=options.seconds), _say) else 0


def _run(mode: str, seed: int, seconds: float) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="nemesis-") as folder:
        return run(mode, seed, seconds, Path(folder), _say)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
