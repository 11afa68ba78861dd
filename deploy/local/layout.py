"""Where everything lies: the checkout, and the state directory (`.local/`) with all that a running platform writes."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.terminal import DevError

# sun_path holds 108 bytes with its NUL; supervisord first binds "<socket>.<pid>" and links it to its name afterwards.
SOCKET_PATH_BYTES_MAX = 107 - len(".4194304")

REPOSITORY = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Layout:
    """Paths of one local platform. Nothing is created before `create()`."""

    state: Path
    root: Path = field(default=REPOSITORY)

    @classmethod
    def from_environment(cls) -> Layout:
        """`.local/` in the checkout unless HIGHWATER_STATE_DIR names another place."""
        return cls(state=Path(os.environ.get("HIGHWATER_STATE_DIR") or REPOSITORY / ".local").expanduser().resolve())

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def supervisor(self) -> Path:
        return self.state / "supervisor"

    @property
    def supervisor_config(self) -> Path:
        return self.supervisor / "supervisord.conf"

    @property
    def supervisor_programs(self) -> Path:
        """The provisioner's program files (`*.conf`), one or more per cluster."""
        return self.supervisor / "conf.d"

    @property
    def daemon_logs(self) -> Path:
        """The tenants' daemons' logs: `<cluster id>.<process>.log`."""
        return self.supervisor / "logs"

    @property
    def supervisor_pid(self) -> Path:
        return self.supervisor / "supervisord.pid"

    @property
    def supervisor_socket(self) -> Path:
        """In the state directory; in a private temporary folder when that path is too long for a unix socket."""
        path = self.supervisor / "supervisor.sock"
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        digest = hashlib.sha256(os.fsencode(self.state)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"highwater-{os.getuid()}-{digest}" / "supervisor.sock"

    @property
    def postgres(self) -> Path:
        return self.state / "postgres"

    @property
    def redis(self) -> Path:
        return self.state / "redis"

    @property
    def clusters(self) -> Path:
        """Data of the tenants' clusters, one folder per cluster id."""
        return self.state / "clusters"

    @property
    def mail(self) -> Path:
        """What would be mailed, a file each: a laptop has no mail server, and a log shall hold no link that resets a password."""
        return self.state / "mail"

    @property
    def spark(self) -> Path:
        """What Spark's jobs need and the environment lacks: packages, a Java runtime; and how far their installation is."""
        return self.state / "spark"

    @property
    def secrets_file(self) -> Path:
        return self.state / "secrets.json"

    def token_file(self, tenant: str, options: Sequence[str]) -> Path:
        """Where `./dev token` keeps the tenant's token that was asked for with these options."""
        digest = hashlib.sha256("\0".join(options).encode()).hexdigest()[:8]
        return self.state / "tokens" / (f"{tenant}-{digest}" if options else tenant)

    @property
    def ports_file(self) -> Path:
        return self.state / "ports.json"

    @property
    def services_file(self) -> Path:
        """Which database and Redis the running platform uses (embedded, or the user's own by URL)."""
        return self.state / "services.json"

    @property
    def fingerprint_file(self) -> Path:
        return self.state / "code.sha256"

    @property
    def lock_file(self) -> Path:
        return self.state / "dev.lock"

    def create(self) -> None:
        """Makes the folders, readable by their owner only: they hold passwords and messages."""
        try:
            for folder in (self.state, self.logs, self.mail, self.supervisor, self.supervisor_programs, self.clusters):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as exc:
            raise DevError(
                f"Can't create {exc.filename}: {exc.strerror}.",
                "use a writable checkout, or set HIGHWATER_STATE_DIR to a folder that you may write to.",
            ) from exc

    def create_socket_folder(self) -> None:
        """Raises DevError when someone else owns the temporary folder: they could replace the socket."""
        folder = self.supervisor_socket.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise DevError(
                f"{folder} belongs to someone else.",
                "set HIGHWATER_STATE_DIR to a shorter path (under about 80 bytes), so that the socket fits in it.",
            )

    def remove_socket(self) -> None:
        """Removes the socket, and its folder when that was made for it alone."""
        self.supervisor_socket.unlink(missing_ok=True)
        if self.supervisor_socket.parent != self.supervisor:
            shutil.rmtree(self.supervisor_socket.parent, ignore_errors=True)


def write_private(path: Path, text: str) -> None:
    """Writes a file for its owner's eyes only, atomically: a reader sees the old text or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
