"""The Spark session of a job: one way for local[*], standalone, YARN and Kubernetes masters."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from spark_etl.errors import EtlError
from spark_etl.jobs.jars import ALWAYS, ICEBERG_AWS, cache_folder, jar_paths

# Where `import spark_etl` and `import highwater` are found.
IMPORT_ROOTS: Final = tuple(str(Path(__file__).resolve().parents[2] / folder) for folder in ("", "platform"))

PYTHONS: Final = {
    "PYSPARK_PYTHON": "spark.pyspark.python",
    "PYSPARK_DRIVER_PYTHON": "spark.pyspark.driver.python",
}
# Java compiles fully what was called ten times as often as it otherwise would, and collects garbage in pauses alone: a job takes
# minutes and most of its code is generated for it, so compiling took a third of all processor time.
JAVA_OPTIONS: Final = (
    "-Duser.timezone=UTC -XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hours, days and months are UTC ones.
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    # Overflow and bad casts are errors, never nulls.
    "spark.sql.ansi.enabled": "true",
    # Else SQL's Python functions have other variables than all other Python code, and with them processes of their own.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "8",
    # The lake's tables; its catalog is given by each run, as it knows the database.
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def home_without_zip(installed: Path) -> Path:
    """A folder like PySpark's own, but for the zip of its Python modules; made where it is missing.

    Spark has its Python processes on this machine import PySpark from that zip, where nothing is compiled: each takes five
    times as long to start as with the modules beside it, and on a busy machine longer than the ten seconds that Spark
    allows the planner of a stream.
    """
    name = hashlib.sha256(str(installed).encode()).hexdigest()[:16]
    folder = cache_folder() / "spark-home" / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in installed.iterdir():
        if path.name != "python" and path.suffix != ".py":
            with suppress(FileExistsError):
                (folder / path.name).symlink_to(path)
    return folder


def build_session(name: str, master: str, settings: Mapping[str, str], *, lake: str = "") -> SparkSession:
    """A session, or the one that this process has already. `settings` win over ours; a `lake` on S3 adds what reads it.

    Raises EtlError when there is no Java.
    """
    if os.environ.get("JAVA_HOME") is None and shutil.which("java") is None:
        raise EtlError("Spark needs Java 17 or newer, which isn't on this machine.", "install it, or set JAVA_HOME.")
    # Driver and executors must run the same version of Python. PySpark looks at the variables alone; who starts it by
    # spark-submit gets them from these settings.
    for variable, setting in PYTHONS.items():
        os.environ[variable] = settings.get(setting) or os.environ.get(variable) or sys.executable
    installed = Path(pyspark.__file__).parent
    # This Python has PySpark itself; another one may need the zip.
    if master.startswith("local") and os.environ["PYSPARK_PYTHON"] == sys.executable and (installed / "bin").is_dir():
        os.environ.setdefault("SPARK_HOME", str(home_without_zip(installed)))
    # Memory that the JVM's many threads would each keep for themselves.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    roots = os.pathsep.join(IMPORT_ROOTS)
    # Spark's Python workers on this machine inherit it; those of a cluster get it by configuration.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [roots, os.environ.get("PYTHONPATH")]))
    jars = ",".join(map(str, jar_paths((*ALWAYS, ICEBERG_AWS) if lake.startswith("s3://") else ALWAYS)))
    given = {
        **SETTINGS,
        **(LOCAL_SETTINGS if master.startswith(("local", "spark://127.")) else {}),
        "spark.jars": jars,
        "spark.executorEnv.PYTHONPATH": roots,
        **settings,
    }
    if settings.get("spark.jars"):
        given["spark.jars"] = f"{jars},{settings['spark.jars']}"
    builder = SparkSession.builder.appName(f"highwater-{name}").master(master)
    for key, value in given.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # It logs each connection that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return session
