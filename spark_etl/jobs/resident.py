"""One Spark session for many runs: `python -m spark_etl.jobs.resident`, kept by the process that starts the jobs.

Each line on standard input is a run, `{"job": "ingest", "config": FILE, "result": FILE}`; it has ended when its
result file is there. Runs come one after the other. The process ends with its standard input, so it can't outlive who
started it, and after `--idle-s` without a run.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from mqwire.jobs import JobName
from spark_etl.datasource import register
from spark_etl.errors import ConfigError, EtlError
from spark_etl.jobs.config import JobConfig, JobResult, load_config
from spark_etl.jobs.run import Run, shortened
from spark_etl.jobs.session import build_session

logger = logging.getLogger("spark_etl")

IDLE_S: Final = 900.0


class Order(msgspec.Struct, frozen=True):
    """One run."""

    job: str
    config: str
    result: str


class Resident:
    """Runs jobs in one session, which is made for the first of them."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def execute(self, order: Order) -> None:
        """Runs a job to its end; the result file is written whatever happens."""
        self._result(order).write(Path(order.result))

    def _result(self, order: Order) -> JobResult:
        try:
            if order.job not in list(JobName):
                raise ConfigError(f"There is no job {order.job!r}.", f"use one of {', '.join(JobName)}.")
            run: Run = importlib.import_module(f"spark_etl.jobs.{order.job}").run
            config = load_config(Path(order.config), order.job)
            return run(self._session(config), config)
        except EtlError as error:
            logger.error("%s", error)
            return JobResult(state="failed", error=str(error))
        except Exception as error:
            # Whatever it is, the starter of the run learns it from the result.
            logger.exception("%s failed", order.job)
            return JobResult(state="failed", error=shortened(error))

    def _session(self, config: JobConfig) -> SparkSession:
        if self._spark is None or not is_alive(self._spark):
            self._spark = build_session("resident", config.master, config.spark, lake=config.lake)
            register(self._spark)
        return self._spark


def is_alive(spark: SparkSession) -> bool:
    """Whether the session's JVM answers and its context runs."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:  # py4j raises many classes when the JVM is gone
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what comes; returns when nothing came for a while."""
    parser = argparse.ArgumentParser(prog="python -m spark_etl.jobs.resident")
    parser.add_argument("--idle-s", type=float, default=IDLE_S, help="end after so long without a run")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    orders: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_take_orders, args=(orders,), daemon=True).start()
    resident = Resident()
    while True:
        try:
            line = orders.get(timeout=options.idle_s)
        except queue.Empty:
            logger.info("nothing to do for %g s: the session is given back", options.idle_s)
            return 0
        resident.execute(msgspec.json.decode(line, type=Order))


def _take_orders(orders: queue.Queue[bytes]) -> None:
    # Not by sys.stdin: its lock, held by this thread, would abort the interpreter at its end.
    with os.fdopen(os.dup(0), "rb") as lines:
        for line in lines:
            orders.put(line)
    # At once, in the middle of whatever it does: a job must bear being killed anyway. The JVM ends with its input.
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
