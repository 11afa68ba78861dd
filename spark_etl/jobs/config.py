"""A job's configuration and result: two JSON files, written and read by whoever starts it."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from spark_etl.errors import ConfigError

# A job's place here is its lock in the database.
JOBS: Final = ("ingest", "usage_billing", "lag_analytics", "billing_check", "compaction")


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL database."""

    host: str
    port: int
    name: str
    user: str
    password: str = field(repr=False)

    @property
    def url(self) -> str:
        # stringtype lets uuid and timestamptz columns take texts.
        return (
            f"jdbc:postgresql://{self.host}:{self.port}/{self.name}?stringtype=unspecified&reWriteBatchedInserts=true"
        )


@dataclass(frozen=True, slots=True)
class MeteredCluster:
    """A cluster whose metering topic is read. `cluster_name` is its brokerClusterName."""

    cluster_id: str
    tenant_id: str
    cluster_name: str
    namesrv_addr: str
    access_key: str
    secret_key: str = field(repr=False)
    retention_hours: float | None = None


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What a job is told. `lake` and `checkpoints` are folders or URLs that Spark can write to."""

    run_id: str
    job: str
    master: str
    lake: str
    checkpoints: str
    database: Database
    range: tuple[datetime, datetime] | None
    late_window: timedelta
    spark: Mapping[str, str]
    clusters: tuple[MeteredCluster, ...]
    continuous_seconds: float | None = None
    """ingest only: go on for so long, in micro-batches, instead of ending when everything is read."""


@dataclass(slots=True)
class JobResult:
    """What a job tells. `range_from` and `range_to` say how far the data was counted."""

    state: Literal["completed", "failed"] = "completed"
    rows_in: int | None = None
    rows_out: int | None = None
    rows_quarantined: int | None = None
    range_from: datetime | None = None
    range_to: datetime | None = None
    error: str = ""

    def write(self, path: Path) -> None:
        """Replaces the file at once, so that no reader sees half of it."""
        values = {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
        }
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "w") as file:
            json.dump(values, file)
        os.replace(temporary, path)


def load_config(path: Path, job: str) -> JobConfig:
    """The configuration in a file; raises ConfigError that names the member that is wrong."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"The configuration {path.name} can't be read: {error}.", "write it as JSON.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"The configuration {path.name} is no JSON object.", "see spark_etl/README.md.")
    return parse_config(values, job)


def parse_config(values: Mapping[str, Any], job: str) -> JobConfig:
    """The same, of the values themselves."""
    named = _get(values, "job", str)
    if named != job:
        raise ConfigError(f"The configuration is for job {named!r}, not {job!r}.", f"start spark_etl.jobs.{named}.")
    database = _get(values, "database", dict)
    return JobConfig(
        run_id=_uuid(values, "run_id"),
        job=job,
        master=_get(values, "master", str, "local[*]"),
        lake=_get(values, "lake", str).rstrip("/"),
        checkpoints=_get(values, "checkpoints", str).rstrip("/"),
        database=Database(
            host=_get(database, "host", str, within="database"),
            port=_get(database, "port", int, within="database"),
            name=_get(database, "name", str, within="database"),
            user=_get(database, "user", str, within="database"),
            password=_get(database, "password", str, "", within="database"),
        ),
        range=_range(values.get("range")),
        late_window=timedelta(hours=_positive(values, "late_window_hours", 48)),
        spark={str(name): str(value) for name, value in _get(values, "spark", dict, {}).items()},
        clusters=tuple(_cluster(cluster, index) for index, cluster in enumerate(_get(values, "clusters", list))),
        continuous_seconds=_positive(values, "continuous_seconds", 0) or None,
    )


def _cluster(values: Any, index: int) -> MeteredCluster:
    within = f"clusters[{index}]"
    if not isinstance(values, dict):
        raise ConfigError(f"{within} of the configuration is no object.", "see spark_etl/README.md.")
    retention = values.get("retention_hours")
    return MeteredCluster(
        cluster_id=_uuid(values, "cluster_id", within),
        tenant_id=_uuid(values, "tenant_id", within),
        cluster_name=_get(values, "cluster_name", str, within=within),
        namesrv_addr=_get(values, "namesrv_addr", str, within=within),
        access_key=_get(values, "access_key", str, "", within=within),
        secret_key=_get(values, "secret_key", str, "", within=within),
        retention_hours=None if retention is None else _positive(values, "retention_hours", 0, within),
    )


def _get(values: Mapping[str, Any], name: str, kind: type, default: Any = None, *, within: str = "") -> Any:
    value = values.get(name)
    if value is None:
        value = default
    if not isinstance(value, kind) or isinstance(value, bool):
        where = f"{within}.{name}" if within else name
        given = "missing" if value is None else f"{value!r}"
        raise ConfigError(f"Member {where} of the configuration is {given}.", f"it must be of type {kind.__name__}.")
    return value


def _uuid(values: Mapping[str, Any], name: str, within: str = "") -> str:
    text = _get(values, name, str, within=within)
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise ConfigError(f"Member {name} of the configuration is {text!r}.", "it must be a UUID.") from None


def _positive(values: Mapping[str, Any], name: str, default: float, within: str = "") -> float:
    value = values.get(name, default)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        where = f"{within}.{name}" if within else name
        raise ConfigError(f"Member {where} of the configuration is {value!r}.", "it must be a number of at least 0.")
    return float(value)


def _range(value: Any) -> tuple[datetime, datetime] | None:
    if value is None:
        return None
    moments = []
    for end in ("from", "to"):
        text = value.get(end) if isinstance(value, dict) else None
        try:
            moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ConfigError(
                f"Member range.{end} of the configuration is {text!r}.",
                "write it as 2026-11-21T13:00:00Z, with its zone.",
            )
        moments.append(moment)
    if moments[0] >= moments[1]:
        raise ConfigError("The range of the configuration is empty.", "range.from must be before range.to.")
    return moments[0], moments[1]
