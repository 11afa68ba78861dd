"""How far the installation of Spark is, where a program of the platform's own does it: a file that it writes.

The local platform's program is `deploy/local/spark_install.py`. Without HIGHWATER_SPARK_SETUP, the operator installs Spark.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils.dateparse import parse_datetime

from controlplane.common.sentences import say

# The installer reports every few seconds. After a silence of this length it isn't running.
SILENCE_MAX = timedelta(minutes=2)
INTERRUPTED = say("The installation of Spark was interrupted.")
MISSING = say("Spark is not installed yet.")
CONTINUE = say("./dev up continues it.")


@dataclass(frozen=True, slots=True)
class SparkSetup:
    """What the installer last reported. `way_out` says what to do, where something has to be done."""

    is_ready: bool
    sentence: str
    way_out: str = ""
    next_try_at: datetime | None = None
    ready_at: datetime | None = None
    packages: str = ""
    """The folder in which PySpark and pyarrow are, once they are; empty where this environment has them itself."""


def spark_setup_read(file: Path, now: datetime) -> SparkSetup:
    """Return what the file says; a missing or damaged one says that Spark is not installed yet."""
    try:
        values: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        return SparkSetup(is_ready=False, sentence=MISSING, way_out=say("./dev up installs it."))
    return _setup_of(values, now)


def _setup_of(values: Mapping[str, Any], now: datetime) -> SparkSetup:
    updated_at, state = _moment(values.get("updated_at")), values.get("state")
    if state == "installing" and (updated_at is None or now - updated_at > SILENCE_MAX):
        return SparkSetup(is_ready=False, sentence=INTERRUPTED, way_out=CONTINUE)
    return SparkSetup(
        is_ready=state == "ready",
        sentence=str(values["sentence"]) if values.get("sentence") else MISSING,
        way_out=str(values.get("way_out") or ""),
        next_try_at=_moment(values.get("next_try_at")) if state == "waiting" else None,
        ready_at=_moment(values.get("ready_at")) if state == "ready" else None,
        packages=str(values.get("packages") or "") if state == "ready" else "",
    )


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = parse_datetime(value)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
