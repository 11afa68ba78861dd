"""What every job's entry point does: read the configuration, make the session, run, write the result."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_etl.datasource import register
from spark_etl.errors import EtlError
from spark_etl.jobs.config import JobConfig, JobResult, load_config
from spark_etl.jobs.session import build_session

logger = logging.getLogger("spark_etl")

Run = Callable[[SparkSession, JobConfig], JobResult]

ERROR_LENGTH_MAX = 4000


def main(job: str, run: Run, arguments: Sequence[str] | None = None) -> int:
    """Runs one job; returns the exit status: 0 completed, 1 failed. The result file is written in both cases."""
    parser = argparse.ArgumentParser(prog=f"python -m spark_etl.jobs.{job}")
    parser.add_argument("--config", type=Path, required=True, help="JSON, see spark_etl/README.md")
    parser.add_argument("--result", type=Path, required=True, help="the result goes here, as JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)

    def stop(signal_number: int, frame: FrameType | None) -> None:
        # At once, in the middle of whatever it does: a job must bear being killed anyway. The JVM ends with its input.
        JobResult(
            state="failed", error="The job was stopped by SIGTERM. Way out: run it again; nothing was half done."
        ).write(options.result)
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    result = _result(job, run, options.config)
    result.write(options.result)
    return 0 if result.state == "completed" else 1


def _result(job: str, run: Run, config_file: Path) -> JobResult:
    try:
        config = load_config(config_file, job)
        spark = build_session(job, config.master, config.spark, lake=config.lake)
        try:
            register(spark)
            return run(spark, config)
        finally:
            spark.stop()
    except EtlError as error:
        logger.error("%s", error)
        return JobResult(state="failed", error=str(error))
    except Exception as error:
        # Whatever it is, the starter of the job learns it from the result.
        logger.exception("%s failed", job)
        return JobResult(state="failed", error=shortened(error))


def shortened(error: BaseException) -> str:
    """An error as one or few lines: of a Python worker's traceback only its end, where the cause is."""
    text = str(error)
    if isinstance(error, PySparkException) and "Traceback (most recent call last)" in text:
        lines = [line for line in text.splitlines() if line and not line.startswith((" ", "\t", "Traceback"))]
        causes = [line for line in lines if ".errors." in line or "Error:" in line]
        text = "\n".join(dict.fromkeys(causes)) or text
    return (text or type(error).__name__)[:ERROR_LENGTH_MAX]
