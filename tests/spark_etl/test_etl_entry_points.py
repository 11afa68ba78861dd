"""Configuration, result and start of a job."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from deploy.local import etl
from deploy.local.spark_install import Installer
from deploy.local.terminal import DevError
from spark_etl.errors import ConfigError, EtlError
from spark_etl.jobs.arrow_map import map_in_arrow
from spark_etl.jobs.config import JobResult, parse_config
from spark_etl.jobs.jars import POSTGRES, VARIABLE, jar_paths, proxy_options
from spark_etl.jobs.run import main
from tests.daemons import REPOSITORY, daemon_environment
from tests.spark_etl.metering import CLUSTER, TENANT, utc

CONFIG: dict[str, Any] = {
    "run_id": str(uuid.uuid4()),
    "job": "ingest",
    "master": "local[*]",
    "lake": "lake/",
    "checkpoints": "checkpoints",
    "database": {"host": "127.0.0.1", "port": 5432, "name": "n", "user": "u", "password": "hush"},
    "range": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T01:00:00+01:00"},
    "late_window_hours": 24,
    "spark": {"spark.executor.instances": 2},
    "clusters": [
        {
            "cluster_id": CLUSTER,
            "tenant_id": TENANT,
            "cluster_name": "c",
            "namesrv_addr": "127.0.0.1:9876",
            "access_key": "key",
            "secret_key": "hush",
            "retention_hours": None,
        }
    ],
}


def changed(**members: Any) -> dict[str, Any]:
    return {**CONFIG, **members}


def cluster_changed(**members: Any) -> dict[str, Any]:
    return changed(clusters=[{**CONFIG["clusters"][0], **members}])


def test_a_configuration_is_read() -> None:
    config = parse_config(CONFIG, "ingest")
    assert (config.lake, config.late_window, config.spark) == (
        "lake",
        timedelta(days=1),
        {"spark.executor.instances": "2"},
    )
    assert config.range == (utc("2026-11-01"), utc("2026-11-02"))
    assert config.clusters[0].retention_hours is None
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (changed(job="usage_billing"), r"for job 'usage_billing'.*start spark_etl.jobs.usage_billing"),
        (changed(run_id="seven"), "Invalid UUID.*run_id"),
        (changed(lake=None), "got `null`.*lake"),
        (changed(lake=7), "Expected `str`, got `int`.*lake"),
        (changed(database={}), "missing required field `host`.*database"),
        (changed(database={**CONFIG["database"], "port": "5432"}), "database.port"),
        (changed(range={"from": "2026-11-01T00:00:00", "to": "2026-11-02T00:00:00Z"}), "timezone.*range.from"),
        (changed(range={"from": "2026-11-02T00:00:00Z", "to": "2026-11-02T00:00:00Z"}), "range.*is empty"),
        (changed(range="yesterday"), "range"),
        (changed(late_window_hours=-1), "late_window_hours"),
        (changed(late_window_hours="48"), "late_window_hours"),
        (changed(clusters=None), "clusters"),
        (changed(clusters=["one"]), r"clusters\[.*\]"),
        (cluster_changed(cluster_id="x"), "cluster_id.*UUID"),
        (cluster_changed(namesrv_addr=None), r"got `null`.*clusters\[.*\].namesrv_addr"),
        (cluster_changed(retention_hours="3"), r"clusters\[.*\].retention_hours"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_member(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_config(values, "ingest")


def test_a_result_is_written_whole_with_times_in_utc(tmp_path: Path) -> None:
    JobResult(rows_in=3, range_from=utc("2026-11-21 13:00")).write(tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "state": "completed",
        "rows_in": 3,
        "rows_out": None,
        "rows_quarantined": None,
        "rows_late": None,
        "rows_refused": None,
        "snapshot_id": "",
        "range_from": "2026-11-21T13:00:00+00:00",
        "range_to": None,
        "error": "",
        "cluster_errors": {},
        "lines": None,
        "notes": "",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "can't be read"), ("[]", "Expected `object`"), ("{}", "missing required field `run_id`")],
)
def test_a_job_that_cannot_start_says_why_in_its_result(tmp_path: Path, text: str, complaint: str) -> None:
    config, result = tmp_path / "config.json", tmp_path / "result.json"
    config.write_text(text)

    def never(*_: Any) -> JobResult:
        raise AssertionError("it must not run")

    assert main("ingest", never, ["--config", str(config), "--result", str(result)]) == 1
    reported = json.loads(result.read_text())
    assert reported["state"] == "failed"
    assert complaint.split(".*")[-1] in reported["error"]
    assert "Way out" in reported["error"]


def test_jars_of_yours_are_used_and_a_missing_one_is_named(tmp_path: Path) -> None:
    given = {VARIABLE: str(tmp_path)}
    with pytest.raises(EtlError, match=rf"{VARIABLE}=.* has no {POSTGRES.file_name}.*unset the variable"):
        jar_paths((POSTGRES,), given)
    (tmp_path / POSTGRES.file_name).touch()
    assert jar_paths((POSTGRES,), given) == [tmp_path / POSTGRES.file_name]


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        ({"PATH": "/bin"}, []),
        ({"https_proxy": "http://proxy:3128/"}, ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]),
        ({"HTTP_PROXY": "user:word@proxy:3128"}, ["-Dhttp.proxyHost=proxy", "-Dhttp.proxyPort=3128"]),
        (
            {"https_proxy": "http://proxy", "no_proxy": "localhost, .corp.example"},
            [
                "-Dhttps.proxyHost=proxy",
                "-Dhttps.proxyPort=80",
                "-Dhttp.nonProxyHosts=localhost|*.localhost|corp.example|*.corp.example",
            ],
        ),
    ],
)
def test_jars_come_through_the_proxy_that_the_environment_names(environ: dict[str, str], options: list[str]) -> None:
    assert proxy_options(environ) == options


def test_python_processes_of_this_machine_import_compiled_modules_and_no_zip(spark: SparkSession) -> None:
    """From the zip each takes seconds longer to start, and the planner of a stream has ten."""

    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    (row,) = map_in_arrow(spark.range(1), where, StructType().add("file", "string")).collect()
    assert row.file == pyspark.__file__


def started_by_the_platform(tmp_path: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """`python -m deploy.local.etl ingest` with a configuration that is not there."""
    result = tmp_path / "result.json"
    variables = {name: value for name, value in daemon_environment().items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "deploy.local.etl",
            "ingest",
            "--config",
            str(tmp_path / "none"),
            "--result",
            str(result),
        ],
        cwd=REPOSITORY,
        env={**variables, **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, json.loads(result.read_text())


def test_the_platform_says_in_one_line_why_spark_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(installer: Installer) -> None:
        raise DevError("The package index does not answer.", "check the network.")

    monkeypatch.setattr(Installer, "install", fail)
    result = tmp_path / "result.json"
    assert etl.main(["ingest", "--config", str(tmp_path / "none"), "--result", str(result)]) == 1
    assert json.loads(result.read_text()) == {
        "state": "failed",
        "error": "The package index does not answer. Way out: check the network.",
    }


def test_the_platform_starts_the_job_itself(tmp_path: Path, java_home: Path) -> None:
    status, reported = started_by_the_platform(tmp_path, JAVA_HOME=str(java_home))
    assert (status, reported["state"]) == (1, "failed")
    assert reported["error"].startswith("The configuration none can't be read")
