"""The `local` driver: daemons on this machine under supervisord.

supervisord is no one's child but init's, so daemons outlive workers and the web server; it restarts what crashes.
The program files in `supervisor/conf.d` are what it starts from after its own restart. It reads all of them or none: a file
that names a log in a folder that is gone stops every cluster from being changed. So all logs are in one folder that stays.
"""

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from controlplane.provisioning.cgroups import groups_remove, limited
from controlplane.provisioning.drivers.base import (
    PROCESS_PREFIX,
    DaemonProcess,
    HostUsage,
    Inventory,
    ProcessState,
    ProcessStatus,
    ProcessUsage,
)
from controlplane.provisioning.drivers.supervisor_rpc import SupervisorRpc
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.proc import Proc

# A blank before one of these starts a comment, even inside quotes.
_COMMENT = re.compile(r"\s[;#]")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
# A daemon stops in good order within 10 s (flush, unregister); then it is killed.
_STOP_WAIT_S = 12
# supervisord kills after that time, and has to see the end.
_ENDED_WITHIN_S = _STOP_WAIT_S + 5
_LOOK_AGAIN_S = 0.05
# supervisord waits 1 s, 2 s, 3 s … between tries: ten minutes in all. After that the health sampling starts it again.
_START_RETRIES = 34
_LOG_TAIL_BYTES = 64 * 1024


class LocalDriver:
    """See `controlplane.provisioning.drivers.base.Driver`."""

    def __init__(self, state_dir: Path | None = None, supervisor_socket: str | None = None) -> None:
        self._state_dir = Path(state_dir or settings.HIGHWATER_STATE_DIR)
        self._rpc = SupervisorRpc(supervisor_socket or settings.HIGHWATER_SUPERVISOR_SOCKET)

    def cluster_dir(self, cluster_id: uuid.UUID) -> Path:
        return self._state_dir / "clusters" / str(cluster_id)

    def files_write(self, cluster_id: uuid.UUID, files: Mapping[str, str]) -> None:
        cluster = self.cluster_dir(cluster_id)
        cluster.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(cluster):
            for relative, text in files.items():
                path = cluster / relative
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                if path.is_file() and path.read_text("utf-8") == text:
                    continue
                _write_atomically(path, text)

    def files_remove(self, cluster_id: uuid.UUID) -> None:
        path = self.cluster_dir(cluster_id)
        for name in self._programs_in(path):  # there should be none
            self.process_kill(name)
        if path.exists():
            shutil.rmtree(path)
        for log in self._logs.glob(f"{cluster_id}.*"):
            log.unlink(missing_ok=True)

    def folder_remove(self, cluster_id: uuid.UUID, folder: str) -> None:
        _check_name(folder)
        path = self.cluster_dir(cluster_id) / folder
        if path.exists():
            shutil.rmtree(path)

    def process_start(self, process: DaemonProcess) -> None:
        _check_name(process.name)
        path = self._program_path(process.name)
        text = self._program_text(process)
        known = process.name in {info["name"] for info in self._rpc.all_process_info()}
        changed = not path.is_file() or path.read_text("utf-8") != text
        if changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._logs.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_atomically(path, text)
        if known and changed:
            self._rpc.stop(process.name)
            self._remove_ended(process.name)
        if process.user:
            self._give_folders(process.cluster_id, process.user)
        if changed or not known:
            self._rpc.reload_config()
            self._rpc.add_group(process.name)
        self._rpc.start(process.name)

    def _give_folders(self, cluster_id: uuid.UUID, user: int) -> None:
        """Make the user the owner of the daemons' folders. The cluster's directory stays the platform's, which writes there as
        root: its owner could put a link in a folder's place.
        """
        cluster = self.cluster_dir(cluster_id)
        for folder in (cluster, cluster.parent):
            folder.chmod(0o711)
        # A step, the health sampling and the accounts' may be at one folder at once: what is written while it changes hands would
        # stay the platform's, and its daemon could not read it.
        with _locked(cluster):
            for folder in cluster.iterdir():
                if folder.is_dir():
                    _give(folder, user)

    def process_remove(self, name: str) -> None:
        _check_name(name)
        self._rpc.stop(name)
        self._forget(name)

    def process_kill(self, name: str) -> None:
        _check_name(name)
        self._rpc.stop_soon(name)  # first: supervisord starts again what ends otherwise
        self._rpc.kill(name)
        self._rpc.stop(name)
        self._forget(name)

    def process_pause(self, name: str) -> None:
        _check_name(name)
        self._rpc.pause(name)

    def _forget(self, name: str) -> None:
        self._program_path(name).unlink(missing_ok=True)
        self._rpc.reload_config()
        self._remove_ended(name)
        groups_remove(name)

    def _remove_ended(self, name: str) -> None:
        """Have supervisord forget a program that was asked to end, as soon as it has."""
        deadline = time.monotonic() + _ENDED_WITHIN_S
        while not self._rpc.remove_group(name):
            if time.monotonic() > deadline:
                raise DriverError(f"{name} was asked to stop and still runs after {_ENDED_WITHIN_S} s")
            time.sleep(_LOOK_AGAIN_S)

    def process_statuses(self, names: Sequence[str]) -> dict[str, ProcessStatus]:
        infos = {info["name"]: info for info in self._rpc.all_process_info()}
        return {name: _status(name, infos.get(name)) for name in names}

    def host_usages(self) -> list[HostUsage]:
        return [Proc().host(settings.HIGHWATER_ADVERTISED_HOST, self._state_dir)]

    def process_usages(self) -> list[ProcessUsage]:
        host = settings.HIGHWATER_ADVERTISED_HOST
        running = [(str(info["name"]), int(info["pid"])) for info in self._rpc.all_process_info() if info["pid"]]
        looks = [Proc().process(name, host, pid) for name, pid in running if name.startswith(PROCESS_PREFIX)]
        return [usage for usage in looks if usage is not None]

    def inventory(self) -> Inventory:
        names = [str(info["name"]) for info in self._rpc.all_process_info()]
        folders = sorted((self._state_dir / "clusters").glob("*"))
        clusters = [found for folder in folders if (found := _uuid_in(folder.name)) is not None]
        return Inventory([name for name in names if name.startswith(PROCESS_PREFIX)], clusters)

    def log_tail(self, cluster_id: uuid.UUID, name: str, lines: int) -> list[str]:
        try:
            with self._log_path(cluster_id, name).open("rb") as log:
                size_bytes = log.seek(0, os.SEEK_END)
                log.seek(max(0, size_bytes - _LOG_TAIL_BYTES))
                text = log.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def port_is_free(self, host: str, port: int) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As the daemons do: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
        return True

    @property
    def _programs(self) -> Path:
        return self._state_dir / "supervisor" / "conf.d"

    @property
    def _logs(self) -> Path:
        return self._state_dir / "supervisor" / "logs"

    def _program_path(self, name: str) -> Path:
        return self._programs / f"{name}.conf"

    def _programs_in(self, directory: Path) -> list[str]:
        """Return the names of the programs that run in this directory."""
        line = f"directory={directory}".replace("%", "%%")
        return [
            path.stem for path in sorted(self._programs.glob("*.conf")) if line in path.read_text("utf-8").splitlines()
        ]

    def _log_path(self, cluster_id: uuid.UUID, name: str) -> Path:
        return self._logs / f"{cluster_id}.{name}.log"

    def _program_text(self, process: DaemonProcess) -> str:
        environment = {
            **process.environment,
            "PYTHONPATH": os.pathsep.join([str(settings.ROOT_DIR), str(settings.ROOT_DIR / "platform")]),
            "PYTHONUNBUFFERED": "1",
            # A changed configuration changes this file, and so restarts the daemon.
            "HIGHWATER_CONFIGURATION": hashlib.sha256(process.configuration.encode("utf-8")).hexdigest(),
        }
        options = {
            "command": shlex.join(
                limited(process.cluster_id, process.name, [*_as_user(process.user), *process.command])
            ),
            "directory": str(self.cluster_dir(process.cluster_id)),
            "environment": ",".join(f'{name}="{_value(value)}"' for name, value in sorted(environment.items())),
            "autostart": "true",
            "autorestart": "true",
            "startsecs": "1",
            "startretries": str(_START_RETRIES),
            "stopsignal": "TERM",
            "stopwaitsecs": str(_STOP_WAIT_S),
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": str(self._log_path(process.cluster_id, process.name)),
            "stdout_logfile_maxbytes": "10MB",
            "stdout_logfile_backups": "3",
        }
        # supervisord expands %(name)s in every value.
        lines = [f"{key}={_one_line(value).replace('%', '%%')}" for key, value in options.items()]
        return "\n".join([f"[program:{process.name}]", *lines, ""])


def _as_user(user: int) -> list[str]:
    """Put in front of a command, this runs it as that user, who can never gain rights."""
    number = str(user)
    return ["setpriv", "--reuid", number, "--regid", number, "--clear-groups", "--no-new-privs", "--"] if user else []


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against every other process that locks it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give(folder: Path, user: int) -> None:
    """Make the user the owner of a folder and all in it; quick where that is so already."""
    if folder.stat().st_uid == user:
        return
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            os.chown(os.path.join(parent, name), user, user, follow_symlinks=False)
    os.chown(folder, user, user)  # last: until then all is looked at again


def _uuid_in(text: str) -> uuid.UUID | None:
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise DriverError(f"{name!r} can't be the name of a process")


def _one_line(text: str) -> str:
    """Refuse what would break the file: supervisord then reads none of them, and no cluster could be changed."""
    if any(ord(character) < 32 for character in text) or _COMMENT.search(text):
        raise DriverError(f"supervisord's configuration can't carry {text!r}")
    return text


def _value(text: str) -> str:
    if '"' in text:
        raise DriverError("supervisord can't carry a quotation mark in an environment variable")
    return text


def _write_atomically(path: Path, text: str) -> None:
    """Write beside the target and rename: a reader sees the old or the new file, never half of one. Mode 0600, and the owner
    of the folder.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    owner = path.parent.stat().st_uid
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if owner != os.geteuid():
                os.fchown(file.fileno(), owner, owner)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _status(name: str, info: dict[str, Any] | None) -> ProcessStatus:
    if info is None:
        return ProcessStatus(name, ProcessState.MISSING)
    state = ProcessState(str(info["statename"]).lower())
    return ProcessStatus(
        name=name,
        state=state,
        pid=int(info["pid"]) or None,
        started_at=_time(info["start"]),
        stopped_at=_time(info["stop"]),
        exit_status=int(info["exitstatus"]) if state in (ProcessState.EXITED, ProcessState.BACKOFF) else None,
        description=str(info["spawnerr"] or info["description"]),
    )


def _time(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
