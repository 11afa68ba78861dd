"""One Spark session for the whole room: small, quiet, without a web page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_etl.datasource import register
from spark_etl.jobs.session import build_session
from tests.spark_etl.database import Database, migrated_database
from tests.spark_etl.job_world import SETTINGS, JobWorld


@pytest.fixture(scope="session")
def spark(java_home: Path) -> Iterator[SparkSession]:
    """local[2] with 512 MiB; the data source is registered, the PostgreSQL driver is there."""
    os.environ["JAVA_HOME"] = str(java_home)
    session = build_session("tests", "local[2]", SETTINGS)
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def database(postgres_url: str, django_db_blocker: Any) -> Iterator[Database]:
    """The control plane's tables, as its migrations make them."""
    with django_db_blocker.unblock(), migrated_database(postgres_url) as made:
        yield made


@pytest.fixture
def world(spark: SparkSession, database: Database, tmp_path: Path) -> JobWorld:
    """A cluster, tenant and lake of this test's own."""
    return JobWorld(spark, database, tmp_path)
