"""One Spark session for the whole room: small, quiet, without a web page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_etl.datasource import register
from spark_etl.jobs.session import build_session

SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # Small frames on two busy cores: compiling costs more than it saves. The jobs' own processes compile as they always do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(java_home: Path) -> Iterator[SparkSession]:
    """local[2] with 512 MiB; the data source is registered, the PostgreSQL driver is there."""
    os.environ["JAVA_HOME"] = str(java_home)
    session = build_session("tests", "local[2]", SETTINGS)
    register(session)
    yield session
    session.stop()
