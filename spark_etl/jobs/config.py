"""A job's configuration and result: two JSON files, written and read by the process that starts it."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from spark_etl.errors import ConfigError

_Positive = Annotated[float, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL database."""

    host: str
    port: int
    name: str
    user: str
    password: str = ""

    def __repr__(self) -> str:
        return f"Database({self.host}:{self.port}/{self.name}, {self.user})"

    @property
    def url(self) -> str:
        """For JDBC. stringtype lets uuid and timestamptz columns take texts."""
        return (
            f"jdbc:postgresql://{self.host}:{self.port}/{self.name}?stringtype=unspecified&reWriteBatchedInserts=true"
        )


class MeteredCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster whose metering topic is read. `cluster_name` is its brokerClusterName."""

    cluster_id: str
    tenant_id: str
    cluster_name: str
    namesrv_addr: str
    access_key: str = ""
    secret_key: str = ""
    use_tls: bool = False
    """With the machine's own authorities."""
    tls_ca: str = ""
    """The cluster's own: PEM text, or a file that every executor has; switches TLS on."""
    retention_hours: _Positive | None = None
    topic_retention_hours: dict[str, _Positive] = {}
    """Of topics that keep messages for less than the brokers do."""
    brokers: tuple[str, ...] | None = None
    """The broker groups that it has now; None: all that were ever seen. One that was removed does not hold
    `ingested_until` back.
    """

    def __repr__(self) -> str:
        return f"MeteredCluster({self.cluster_name}, {self.cluster_id})"


class HourBounds(msgspec.Struct, frozen=True):
    """[from, to): what a backfill asks for."""

    begin: _Moment = msgspec.field(name="from")
    end: _Moment = msgspec.field(name="to")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long the lake keeps what; compaction removes what is older."""

    lake_days: _Positive = 400
    """Metering records: a backfill reaches no further."""
    quarantine_days: _Positive = 90
    snapshot_hours: _Positive = 48
    """Versions of the tables that no invoice was made from. A job that stood still for longer counts its whole window
    again, and usage_billing all that was ingested since.
    """
    orphan_hours: Annotated[float, msgspec.Meta(ge=24)] = 72
    """Files that no table knows: what killed runs left. Longer than the longest run, as those of a run that still
    writes are known to no table either.
    """


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What the job repair is to do; see its module."""

    action: Literal["reread", "requeue", "accept", "migrate"]
    clusters: tuple[str, ...] = ()
    """Cluster ids; empty: all."""
    reason: str = ""
    by: str = ""
    source: str = ""


class InvoiceMonths(msgspec.Struct, frozen=True, kw_only=True):
    """What the job invoice counts again: a tenant's months, as one version of the lake has them."""

    tenant_id: str
    snapshot_id: int
    months: tuple[HourBounds, ...]


class _Values(msgspec.Struct, frozen=True, kw_only=True):
    run_id: UUID
    job: str
    lake: _Name
    checkpoints: _Name
    database: Database
    clusters: tuple[MeteredCluster, ...]
    master: str = "local[*]"
    namespace: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,62}$")] = "highwater"
    range: HourBounds | None = None
    late_window_hours: _Positive = 48
    spark: dict[str, str | int | float | bool] = {}
    retention: Retention = Retention()
    repair: Repair | None = None
    invoice: InvoiceMonths | None = None


class JobConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A job's configuration. `lake` is a folder or URL that Spark can write to; `namespace` names its tables in the
    catalog.
    """

    run_id: str
    job: str
    master: str
    lake: str
    checkpoints: str
    namespace: str
    database: Database
    range: tuple[datetime, datetime] | None
    late_window: timedelta
    spark: dict[str, str]
    clusters: tuple[MeteredCluster, ...]
    retention: Retention
    repair: Repair | None
    invoice: InvoiceMonths | None


class CountedLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one price made of one topic of one cluster in one direction, in the month that begins at `month`."""

    month: datetime
    cluster_id: str
    direction: str
    topic: str
    price_id: str
    messages: int
    bytes: int
    billed_units: Decimal
    amount: Decimal


class JobResult(msgspec.Struct, kw_only=True):
    """What a job reports. `range_from` and `range_to` say how far the data was counted, `snapshot_id` from which
    version of the lake.
    """

    state: Literal["completed", "failed"] = "completed"
    rows_in: int | None = None
    rows_out: int | None = None
    rows_quarantined: int | None = None
    rows_late: int | None = None
    rows_refused: int | None = None
    snapshot_id: str = ""
    range_from: datetime | None = None
    range_to: datetime | None = None
    error: str = ""
    cluster_errors: dict[str, str] = {}
    """By cluster id: what failed, or is wrong, there alone."""
    lines: list[CountedLine] | None = None
    """Of the job invoice."""
    notes: str = ""
    """What an operator should know and can't change; no failure."""

    def encode(self) -> bytes:
        """As JSON, times in UTC."""
        values = {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in msgspec.structs.asdict(self).items()
        }
        return msgspec.json.encode(values)

    def write(self, path: Path) -> None:
        """Replaces the file at once, so that no reader sees half of it."""
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(self.encode())
        os.replace(temporary, path)


def load_config(path: Path, job: str) -> JobConfig:
    """The configuration in a file; raises ConfigError that names the member that is wrong."""
    try:
        values = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"The configuration {path.name} can't be read: {error}.", "write it as JSON.") from error
    return parse_config(values, job)


def parse_config(values: Any, job: str) -> JobConfig:
    """The same, of the values themselves."""
    named = values.get("job") if isinstance(values, dict) else None
    if isinstance(named, str) and named != job:
        raise ConfigError(f"The configuration is for job {named!r}, not {job!r}.", f"start spark_etl.jobs.{named}.")
    try:
        given = msgspec.convert(values, _Values)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The configuration can't be used: {error}.", "see spark_etl/README.md.") from error
    if given.range is not None and given.range.begin >= given.range.end:
        raise ConfigError("The range of the configuration is empty.", "range.from must be before range.to.")
    return JobConfig(
        run_id=str(given.run_id),
        job=given.job,
        master=given.master,
        lake=given.lake.rstrip("/"),
        checkpoints=given.checkpoints.rstrip("/"),
        namespace=given.namespace,
        database=given.database,
        range=None if given.range is None else (given.range.begin, given.range.end),
        late_window=timedelta(hours=given.late_window_hours),
        spark={name: _text(value) for name, value in given.spark.items()},
        clusters=tuple(_checked(cluster, index) for index, cluster in enumerate(given.clusters)),
        retention=given.retention,
        repair=given.repair,
        invoice=given.invoice,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(cluster: MeteredCluster, index: int) -> MeteredCluster:
    for name in ("cluster_id", "tenant_id"):
        text = getattr(cluster, name)
        try:
            UUID(text)
        except ValueError:
            raise ConfigError(
                f"The configuration can't be used: `$.clusters[{index}].{name}` is {text!r}.", "it must be a UUID."
            ) from None
    return cluster
