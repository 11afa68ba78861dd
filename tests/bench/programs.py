"""RocketMQ's own benchmark programs, run for a bounded time, and the numbers that they print.

Producer, BatchProducer and Consumer of org.apache.rocketmq.example.benchmark never end by themselves and may be deaf
to SIGTERM: they are killed by their process id once they have printed enough. Each line covers the ten seconds before
it, so the first ones hold the JVM's warm-up and are left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java_toolchain import java_command
from tests.processes import ChildProcess, child_environment, wait_until

BENCHMARK_PACKAGE = "org.apache.rocketmq.example.benchmark"
CLIENT_HEAP = ("-Xms512m", "-Xmx512m")

_RATES = {
    "Producer": re.compile(r"Send TPS: (\d+)"),
    "BatchProducer": re.compile(r"Send MPS: (\d+)"),
    "Consumer": re.compile(r"Consume TPS: (\d+)"),
}
_FAILURES = re.compile(r"(?:Send Failed|Response Failed|Send Message Failed|Consume Fail): (\d+)")
_ERROR = re.compile(r"(?:Caused by: )?org\.apache\.rocketmq\.\S*Exception: ")
_COMPLETE = re.compile(r"\[Complete\] Send Total: (\d+)")


@dataclass(frozen=True)
class Program:
    """One benchmark program with its arguments; ``label`` names the measurement in tables."""

    label: str
    main_class: str
    arguments: tuple[str, ...] = ()
    # How often it prints, from the tenth second on, and how many lines are left out as warm-up.
    report_interval_s: int = 10
    skipped_lines: int = 1

    def command(self, namesrv: str, topic: str, home: Path) -> list[str]:
        return java_command(
            f"{BENCHMARK_PACKAGE}.{self.main_class}",
            *("-n", namesrv, "-t", topic, "-ri", str(self.report_interval_s * 1000), *self.arguments),
            home=home,
            heap=CLIENT_HEAP,
            flags=(f"-Drocketmq.client.logRoot={home}", "-Drocketmq.client.logLevel=ERROR"),
            quick_start=False,
        )


def producer(threads: int, size_bytes: int = 1024) -> Program:
    arguments = ("-w", str(threads), "-s", str(size_bytes))
    return Program(f"Producer, {threads} threads, {size_bytes} B", "Producer", arguments)


def batch_producer(threads: int = 4, batch: int = 32, size_bytes: int = 128) -> Program:
    arguments = ("-w", str(threads), "-b", str(batch), "-s", str(size_bytes))
    label = f"BatchProducer, {threads} threads, {batch} x {size_bytes} B"
    return Program(label, "BatchProducer", arguments)


def consumer(threads: int = 20) -> Program:
    # Lines each second: a backlog doesn't last for thirty of them. The one that counts covers seconds 6 to 15.
    arguments = ("-w", str(threads), "-g", "bench_consumer")
    return Program(f"Consumer, {threads} threads, from a backlog of 128 B", "Consumer", arguments, 1, 5)


@dataclass
class Samples:
    """What one run printed: rates per second in order, without the warm-up, how many requests failed, and why."""

    rates: list[int]
    failures: int
    first_error: str | None = None


def rates_in(output: str, main_class: str) -> list[int]:
    """Every rate that a program has printed so far."""
    return [int(rate) for rate in _RATES[main_class].findall(output)]


def failures_in(output: str) -> int:
    """The failures that the last line counts since the start."""
    lines = [line for line in output.splitlines() if _FAILURES.search(line)]
    return sum(int(count) for count in _FAILURES.findall(lines[-1])) if lines else 0


def measure(program: Program, namesrv: str, topic: str, folder: Path, *, samples: int) -> Samples:
    """Runs ``program`` until it has printed ``samples`` lines beyond its warm-up; returns those."""
    # A folder per run, so that a failure's cause is looked for in this run's logs only.
    folder = folder / f"{program.main_class}-{time.monotonic_ns()}"
    log = folder / f"{program.main_class}.log"
    process = ChildProcess(program.command(namesrv, topic, folder), log_path=log, env=_environment(folder))
    try:
        needed = samples + program.skipped_lines

        def enough() -> bool:
            assert process.running, f"{program.label} ended by itself:\n{process.log_tail()}"
            return len(rates_in(process.output(), program.main_class)) >= needed

        timeout_s = (needed + 3) * program.report_interval_s + 60.0
        wait_until(enough, timeout_s=timeout_s, what=f"{needed} lines of {program.label}", interval_s=0.2)
    finally:
        process.kill()
    output = process.output()
    rates = rates_in(output, program.main_class)[program.skipped_lines : needed]
    failures = failures_in(output)
    return Samples(rates, failures, first_error_in(folder) if failures else None)


def first_error_in(folder: Path) -> str | None:
    """The first exception of a client that is named in any log below ``folder``."""
    for log in sorted(folder.rglob("*.log")):
        for line in log.read_text("utf-8", "replace").splitlines():
            if _ERROR.match(line):
                return line[:300]
    return None


def run_count(program: Program, count: int, namesrv: str, topic: str, folder: Path) -> int:
    """Runs a Producer that sends ``count`` messages and ends; returns how many it sent. Raises AssertionError."""
    command = [*program.command(namesrv, topic, folder), "-q", str(count)]
    with ChildProcess(command, log_path=folder / "Producer.log", env=_environment(folder)) as process:
        complete = process.wait_for_line(_COMPLETE.pattern, timeout_s=120.0)
        failures = failures_in(process.output())
        assert failures == 0, f"{failures} sends failed:\n{process.log_tail()}"
        return int(complete.group(1))


def _environment(folder: Path) -> dict[str, str]:
    return child_environment(HOME=str(folder))


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number, the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (ordered[middle - 1] + ordered[middle]) / 2
