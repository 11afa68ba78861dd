"""What a program of the platform costs, as `./dev status` says it."""

from __future__ import annotations

import os
import subprocess
import sys

from deploy.local.costs import Cost, cost_below, describe_cost

MIB = 1024**2


def test_processor_time_and_memory_of_children_count_and_ended_ones_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    program += f"; held = b'x' * {50 * MIB}; print(); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cost = cost_below(process.pid)
        process.communicate(b"\n")
    assert cost is not None
    assert cost.processor_s >= 0.3
    assert 50 * MIB < cost.memory_bytes < 500 * MIB
    assert 0 < cost.age_s < 600


def test_a_process_that_has_ended_costs_nothing_that_is_known() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert cost_below(process.pid) is None
    assert cost_below(os.getpid()) is not None


def test_a_cost_is_reported_in_words() -> None:
    assert describe_cost(Cost(processor_s=216, memory_bytes=700 * MIB, age_s=7200)) == (
        "Spark's jobs take 700 MiB of memory now, and took 3.0 % of a core in the last 2 h 0 min."
    )
