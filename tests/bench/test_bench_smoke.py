"""The benchmark runs and reads its programs' output; nothing here measures anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.load import ResponseCounter
from tests.bench.programs import failures_in, median, rates_in
from tests.bench.promotion import Round, first_accepted_s, table
from tests.bench.report import Report
from tests.daemons import REPOSITORY, daemon_environment

PRODUCER_OUTPUT = "\n".join(
    [
        "topic: bench, threadCount: 16, messageSize: 1024",
        "Current Time: 2026-11-21 04:00:00 | Send TPS: 18012 | Max RT(ms): 211 | Send Failed: 0 | Response Failed: 0",
        "Current Time: 2026-11-21 04:00:10 | Send TPS: 21877 | Max RT(ms): 211 | Send Failed: 2 | Response Failed: 1",
    ]
)


def test_every_line_of_the_producer_is_a_sample() -> None:
    assert rates_in(PRODUCER_OUTPUT, "Producer") == [18012, 21877]


def test_failures_are_those_of_the_last_line() -> None:
    assert failures_in(PRODUCER_OUTPUT) == 3


@pytest.mark.parametrize(("values", "middle"), [([3, 1, 2], 2), ([4, 1, 2, 3], 2.5), ([7], 7)])
def test_the_median_is_the_middle(values: list[float], middle: float) -> None:
    assert median(values) == middle


def test_a_ratio_says_how_many_times_better_ours_is() -> None:
    report = Report()
    report.add("apache", "sends", [100, 300, 200], unit="messages/s")
    report.add("highwater", "sends", [500], unit="messages/s")
    report.add("apache", "memory", [4000], unit="MiB", higher_is_better=False)
    report.add("highwater", "memory", [400], unit="MiB", higher_is_better=False)
    assert report.rows["sends"].ratio == 2.5
    assert report.rows["memory"].ratio == 10
    assert "| sends | messages/s | 200 | 500 | 2.50 |" in report.markdown()


def test_responses_are_counted_by_code_whatever_the_pieces() -> None:
    binary = b"\x01\x00\x00\x0a" + (16).to_bytes(2, "big") + bytes(8)
    header = b'{"code":0,"flag":1}'
    as_json = len(header).to_bytes(4, "big") + header
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in [binary, as_json, as_json])
    counter = ResponseCounter()
    assert sum(counter.feed(stream[index : index + 1]) for index in range(len(stream))) == 3
    assert counter.codes == {0: 2, 16: 1}


def test_the_quick_benchmark_of_our_broker_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "--quick", "--only", "highwater"],
        cwd=REPOSITORY,
        env=daemon_environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "| Producer, messages acknowledged | messages | - | 3,000 |" in done.stdout


def test_the_quick_measurement_of_metering_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.metering", "--quick"],
        cwd=REPOSITORY,
        env=daemon_environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "pull of 32" in done.stdout


def test_the_measurement_of_the_hot_path_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.hot_path", "--rounds", "1", "--only", "32 x 128 B"],
        cwd=REPOSITORY,
        env=daemon_environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "batch of 32 x 128 B" in done.stdout
    assert "pull of 32 x 128 B" in done.stdout


def test_a_promotion_is_measured_from_the_click_to_the_first_write_after_it() -> None:
    assert first_accepted_s([9.9, 12.5, 12.1], click_s=10.0) == pytest.approx(2.1)
    assert first_accepted_s([9.9], click_s=10.0) is None
    rounds = [Round("idle", 3, 0.5, 2.0), Round("idle", 4, 0.7, 3.0), Round("busy", 4, 0.7, None)]
    assert table(rounds).splitlines()[-2:] == [
        "| idle, median of 2 | 3.50 | 0.60 | 2.50 |",
        "| busy, median of 1 | 4.00 | 0.70 | none |",
    ]
