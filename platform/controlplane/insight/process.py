"""A job, in this worker's resident Spark session or as a process of its own.

Its configuration goes in by a file that only we can read, its result comes out by another.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.dateparse import parse_datetime

from controlplane.insight import leash
from controlplane.insight.locks import JobLock
from controlplane.insight.resident import resident_end, resident_session

_POLL_S = 0.5
_LOCK_CHECK_S = 5.0
_ERROR_CHARACTERS_MAX = 4000
_CLUSTER_ERROR_CHARACTERS_MAX = 2000
_SECRET_NAMES = ("password", "secret_key")
# What the job must not see: it has the database's address in its configuration.
_HIDDEN = ("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASE_URL", "REDIS_URL", "EMAIL_URL")


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a run ended. Unknown is None; `error` is empty for a run that completed."""

    completed: bool
    error: str = ""
    rows_in: int | None = None
    rows_out: int | None = None
    rows_quarantined: int | None = None
    rows_late: int | None = None
    rows_refused: int | None = None
    snapshot_id: str = ""
    range_from: datetime | None = None
    range_to: datetime | None = None
    cluster_errors: dict[UUID, str] = field(default_factory=dict)
    """By cluster: what failed, or is wrong, there alone."""
    lines: list[dict[str, Any]] = field(default_factory=list)
    """What the job `invoice` counted; as untrusted as the rest."""
    notes: str = ""


def run_job(job: str, config: dict[str, Any], lock: JobLock, *, in_session: bool = True) -> JobResult:
    """Run the job `spark_etl.jobs.<job>` to its end, and return its result. Its files are removed afterwards.

    It runs in the worker's resident session, unless that is switched off, or not `in_session`. It is ended when it takes
    longer than job_timeout_s(), or when the job's lock is lost.
    """
    folder = Path(settings.HIGHWATER_STATE_DIR) / "jobs" / str(config["run_id"])
    folder.mkdir(mode=0o700, parents=True)
    try:
        _write_private(folder / "config.json", json.dumps(config))
        run = _run_resident if in_session and settings.HIGHWATER_JOB_RESIDENT_IDLE_S > 0 else _run
        log, status, cause = run(job, folder, lock, config)
        tail = _tail(log, _secrets(config))
        return result_of(folder / "result.json", status, cause, tail)
    finally:
        shutil.rmtree(folder)


def result_of(file: Path, status: int, cause: str, tail: str) -> JobResult:
    """Return the result that a process left; `cause` says why we ended it, if we did. What it wrote is not trusted."""
    if cause:
        return JobResult(False, cause)
    try:
        answer: Any = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return JobResult(False, f"It ended with status {status} and left no result.\n{tail}".strip())
    except ValueError as error:
        return JobResult(False, f"Its result can't be read: {error}")
    if not isinstance(answer, dict):
        return JobResult(False, "Its result is no JSON object.")
    completed = status == 0 and answer.get("state") == "completed"
    said = str(answer.get("error") or "")
    return JobResult(
        completed=completed,
        error="" if completed else (said or f"It ended with status {status}.\n{tail}")[:_ERROR_CHARACTERS_MAX].strip(),
        rows_in=_count(answer.get("rows_in")),
        rows_out=_count(answer.get("rows_out")),
        rows_quarantined=_count(answer.get("rows_quarantined")),
        rows_late=_count(answer.get("rows_late")),
        rows_refused=_count(answer.get("rows_refused")),
        snapshot_id=_snapshot(answer.get("snapshot_id")),
        range_from=_moment(answer.get("range_from")),
        range_to=_moment(answer.get("range_to")),
        cluster_errors=_cluster_errors(answer.get("cluster_errors")),
        lines=_lines(answer.get("lines")),
        notes=str(answer.get("notes") or "")[:_ERROR_CHARACTERS_MAX],
    )


def job_timeout_s(config: dict[str, Any]) -> float:
    """Return how long a run may take: the usual time, and more for each day of the range that a backfill asks for."""
    timeout_s = float(settings.HIGHWATER_JOB_TIMEOUT_S)
    asked = config.get("range")
    if asked:
        length = datetime.fromisoformat(asked["to"]) - datetime.fromisoformat(asked["from"])
        timeout_s += settings.HIGHWATER_JOB_TIMEOUT_PER_DAY_S * length.total_seconds() / 86_400
    return timeout_s


def _run_resident(job: str, folder: Path, lock: JobLock, config: dict[str, Any]) -> tuple[Path, int, str]:
    """Let the resident session run it; a session that dies meanwhile is started again by the next run."""
    result = folder / "result.json"
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    for _ in range(2):
        session = resident_session(folder.parent, config, environment)
        # It may have ended, idle for long, just before.
        if session.send(job, folder / "config.json", result):
            break
    cause = _wait(lambda: result.exists() or session.status is not None, lock, job_timeout_s(config))
    if cause or session.status is not None:
        status = 1 if session.status is None else session.status
        resident_end()
        return session.log, status, cause
    return session.log, 0, ""


def _run(job: str, folder: Path, lock: JobLock, config: dict[str, Any]) -> tuple[Path, int, str]:
    files = ["--config", str(folder / "config.json"), "--result", str(folder / "result.json")]
    # By its path and isolated (-I), so that it starts without importing the control plane.
    parts = [part.format(python=sys.executable, job=job) for part in settings.HIGHWATER_JOB_COMMAND]
    command = [sys.executable, "-I", leash.__file__, *parts, *files]
    environment = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=settings.ROOT_DIR,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    try:
        cause = _wait(lambda: process.poll() is not None, lock, job_timeout_s(config))
    finally:
        process.stdin.close()  # the leash: whatever still runs ends
    return folder / "log", process.wait(), cause


def _wait(has_ended: Callable[[], bool], lock: JobLock, timeout_s: float) -> str:
    """Wait for a run's end; return why it must end before that, if it must."""
    started = checked = time.monotonic()
    while True:
        if has_ended():
            return ""
        time.sleep(_POLL_S)
        now = time.monotonic()
        if now - started > timeout_s:
            return f"It took longer than {timeout_s:.0f} s, and was ended."
        if now - checked > _LOCK_CHECK_S:
            if not lock.is_held():
                return "The connection to the database was lost, and with it the job's lock; the job was ended."
            checked = now


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def _tail(log: Path, secrets: list[str]) -> str:
    with log.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - _ERROR_CHARACTERS_MAX))
        text = file.read().decode("utf-8", errors="replace").replace("\x00", "")
    for secret in secrets:
        text = text.replace(secret, "…")
    # Without the first characters: a secret that the cut went through would not have been found.
    return text[-_ERROR_CHARACTERS_MAX + 200 :]


def _secrets(value: Any) -> list[str]:
    """Every secret of the configuration, so that none gets into the row of a run that failed."""
    if isinstance(value, dict):
        own = [text for name, text in value.items() if name in _SECRET_NAMES and isinstance(text, str) and text]
        return own + [secret for inner in value.values() for secret in _secrets(inner)]
    if isinstance(value, list):
        return [secret for inner in value for secret in _secrets(inner)]
    return []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _snapshot(value: Any) -> str:
    """Iceberg's snapshots are 64-bit numbers; kept as text, for no arithmetic is done with them."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isascii() and text.isdigit() and len(text) <= 20 else ""


def _lines(value: Any) -> list[dict[str, Any]]:
    return [line for line in value if isinstance(line, dict)] if isinstance(value, list) else []


def _cluster_errors(value: Any) -> dict[UUID, str]:
    found: dict[UUID, str] = {}
    for key, error in value.items() if isinstance(value, dict) else ():
        try:
            found[UUID(key)] = str(error)[:_CLUSTER_ERROR_CHARACTERS_MAX]
        except ValueError:
            continue  # of no cluster that there could be
    return found


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = parse_datetime(value)
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None
