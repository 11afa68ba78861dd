"""The benchmark of the Spark jobs runs; nothing here measures anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.daemons import REPOSITORY, daemon_environment


@pytest.mark.long
def test_the_quick_benchmark_of_the_spark_jobs_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.etl", "--quick"],
        cwd=REPOSITORY,
        env=daemon_environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "usage_billing, 0.02 million rows" in done.stdout
