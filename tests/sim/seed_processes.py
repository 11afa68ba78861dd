"""Seeds run side by side, each in one of a few processes of this program, which end with it however it ends.

`run_tasks` is the campaign's side. This module run by itself is one such process: a task as a line of JSON on standard
input, what it came to as one on standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Generator, Iterable
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from tempfile import TemporaryDirectory

import msgspec

from tests.processes import ChildProcess, child_environment
from tests.sim.seeds import run_seed
from tests.sim.world import Outcome

REPOSITORY = Path(__file__).parents[2]
SEED_LIMIT_S = 900  # a usual one takes some seconds; a hundred times as long is one that hangs
_LINES_SENT = 40
_SEEDS_OF_A_PROCESS = 50  # each leaves some megabytes behind


class Task(msgspec.Struct, frozen=True):
    """One seed to be run."""

    mode: str
    flush: str
    seed: int
    promotions: bool = True


class Result(msgspec.Struct, frozen=True):
    """What a task came to. `violation`: also that it raised, took too long, or took its process with it."""

    task: Task
    violation: str | None
    counts: dict[str, int]
    last_lines: tuple[str, ...] = ()
    elapsed_s: float = 0.0
    cpu_s: float = 0.0


def run_task(task: Task, *, show: bool = False) -> Result:
    """Run it here. What is raised is a violation too: a campaign goes on, and prints it."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    try:
        outcome = run_seed(task.mode, task.flush, task.seed, promotions=task.promotions, show=show)
    except Exception:
        outcome = Outcome(task.seed, "", traceback.format_exc(), {}, ())
    return Result(
        task,
        outcome.violation,
        outcome.counts,
        outcome.last_lines[-_LINES_SENT:] if outcome.violation is not None else (),
        time.monotonic() - began_s,
        time.process_time() - began_cpu_s,
    )


def run_tasks(tasks: Iterable[Task], jobs: int, *, limit_s: float = SEED_LIMIT_S) -> Generator[Result]:
    """The results in the order in which they come. Close the iterator early, and the processes end at once.

    At most `jobs` seeds are under way, each for at most `limit_s` seconds.
    """
    waiting = iter(tasks)
    with TemporaryDirectory(prefix="highwater-sim-") as folder, DefaultSelector() as selector:
        busy: dict[int, tuple[ChildProcess, Task]] = {}  # by the number of the process
        begun = [0] * jobs  # how many tasks each has

        def begin(number: int, process: ChildProcess | None) -> None:
            task = next(waiting, None)
            begun[number] += 1
            if process is not None and (task is None or begun[number] > _SEEDS_OF_A_PROCESS):
                process.kill()
                process, begun[number] = None, 1
            if task is None:
                return
            process = process or _start(Path(folder, str(number)), limit_s)
            busy[number] = process, task
            selector.register(process.stdout, EVENT_READ, number)
            process.stdin.write(f"{msgspec.json.encode(task).decode()}\n")
            process.stdin.flush()

        try:
            for number in range(jobs):
                begin(number, None)
            while busy:
                for key, _ in selector.select():
                    process, task = busy.pop(key.data)
                    selector.unregister(process.stdout)
                    line = process.stdout.readline()
                    if line.endswith("\n"):
                        result = msgspec.json.decode(line, type=Result)
                        begin(key.data, process)
                    else:
                        result = Result(task, _end_of(process, limit_s), {})
                        begin(key.data, None)
                    yield result
        finally:
            for process, _ in busy.values():
                process.kill()


def _start(log_path: Path, limit_s: float) -> ChildProcess:
    paths = f"{REPOSITORY}:{REPOSITORY / 'platform'}"
    return ChildProcess(
        [sys.executable, "-m", "tests.sim.seed_processes", str(limit_s)],
        log_path=log_path,
        env=child_environment(PYTHONPATH=paths),
        cwd=REPOSITORY,
        piped=True,
    )


def _end_of(process: ChildProcess, limit_s: float) -> str:
    process.popen.wait()
    status = process.kill()
    if status == -signal.SIGALRM:
        return f"it did not end within {limit_s:g} s"
    return f"its process ended with status {status}: {process.log_tail(20)}"


def _serve(limit_s: float) -> None:
    """Run the tasks of standard input, until that ends. A seed that takes too long ends the process."""
    logging.disable(logging.CRITICAL)  # the trace says it all
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed is none
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        result = run_task(msgspec.json.decode(line, type=Task))
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(f"{msgspec.json.encode(result).decode()}\n")
        answers.flush()


if __name__ == "__main__":
    _serve(float(sys.argv[1]))
