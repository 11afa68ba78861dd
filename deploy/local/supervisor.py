"""supervisord: its configuration, and a client for its XML-RPC interface on a unix socket.

It alone starts and stops the platform's processes, restarts those that crash, and outlives the terminal.
"""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import socket
import subprocess
import time
import xmlrpc.client  # nosec B411  # its parser is told to refuse document types, with which XML is made to explode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from deploy.local.environment import Environment
from deploy.local.layout import Layout, write_private
from deploy.local.terminal import DevError, tail

START_SECONDS_MAX = 15
STOP_SECONDS_MAX = 90
SERVERS = ("postgres", "redis")

# In the environment of supervisord and all that it starts: `./dev down` finds by it what lost its supervisor.
MARK = "HIGHWATER_STACK"

# What supervised processes inherit from the terminal. Tenants' daemons get it too: no passwords, ours or the user's.
INHERITED = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True)
class Program:
    """One supervised process. Lower `priority` starts first and stops last."""

    name: str
    command: Sequence[str]
    priority: int
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path = Path("/")
    stop_signal: str = "TERM"
    stop_seconds_max: int = 15
    start_seconds: int = 1
    ends_by_itself: bool = False
    """Its work has an end: exit status 0 is its success, any other status starts it again."""
    stop_as_group: bool = False
    """SIGTERM goes to its children, too: for a program whose children don't end with it."""

    def render(self, logs: Path) -> str:
        options = {
            "command": shlex.join(self.command),
            "directory": str(self.directory),
            "environment": ",".join(
                f"{name}={_environment_value(name, value)}" for name, value in sorted(self.environment.items())
            ),
            "priority": self.priority,
            # Started by name, in order, once what they need is ready.
            "autostart": "false",
            "autorestart": "unexpected" if self.ends_by_itself else "true",
            "startsecs": 0 if self.ends_by_itself else self.start_seconds,
            "startretries": 3,
            "stopsignal": self.stop_signal,
            "stopwaitsecs": self.stop_seconds_max,
            # SIGTERM goes to the process itself, which ends its children in good order; SIGKILL to all of them.
            "stopasgroup": "true" if self.stop_as_group else "false",
            "killasgroup": "true",
            "redirect_stderr": "true",
            # Escaped once more than the rest: supervisord expands this value twice.
            "stdout_logfile": _escape(str(logs / f"{self.name}.log")),
            "stdout_logfile_maxbytes": "10MB",
            "stdout_logfile_backups": 2,
        }
        lines = [f"{key}={_escape(str(value))}" for key, value in options.items() if value != ""]
        return "\n".join([f"[program:{self.name}]", *lines])


def _escape(text: str) -> str:
    return text.replace("%", "%%")  # supervisord expands %(name)s in every value


def _environment_value(name: str, value: str) -> str:
    """The value in the quotes that it doesn't hold itself: JSON comes in single ones."""
    if "\n" in value or ('"' in value and ("'" in value or value[0] in "\"'" or value[-1] in "\"'")):
        raise DevError(
            f"{name} contains a quotation mark or a line break, which supervisord can't carry.",
            "write it percent-encoded (%22).",
        )
    return f"'{value}'" if '"' in value else f'"{value}"'


def render_config(layout: Layout, programs: Sequence[Program]) -> str:
    """The whole configuration. Includes the provisioner's `conf.d/*.conf`."""
    for path in (layout.state, layout.root):
        if any(character in str(path) for character in ";#'\"\n"):
            raise DevError(
                f"The path {path} contains a character that supervisord's configuration can't carry.",
                "move the checkout.",
            )
    user = ["user=root"] if os.getuid() == 0 else []
    head = [
        "; Written by ./dev up; changes are overwritten.",
        "[unix_http_server]",
        f"file={_escape(str(layout.supervisor_socket))}",
        "chmod=0700",
        "[supervisord]",
        f"logfile={_escape(str(layout.logs / 'supervisord.log'))}",
        "logfile_maxbytes=10MB",
        "logfile_backups=2",
        f"pidfile={_escape(str(layout.supervisor_pid))}",
        f"childlogdir={_escape(str(layout.logs))}",
        "umask=077",
        "identifier=highwater",
        *user,
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
        "[supervisorctl]",
        f"serverurl=unix://{_escape(str(layout.supervisor_socket))}",
        "[include]",
        "files=conf.d/*.conf",
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(program.render(layout.logs) for program in programs) + "\n"


@dataclass(frozen=True)
class ProcessInfo:
    """What supervisord knows of one process. States: STOPPED STARTING RUNNING BACKOFF STOPPING EXITED FATAL."""

    name: str
    group: str
    state: str
    pid: int
    description: str
    log: Path | None

    @property
    def full_name(self) -> str:
        return self.name if self.name == self.group else f"{self.group}:{self.name}"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=STOP_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _UnixTransport(xmlrpc.client.Transport):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        return _UnixConnection(self._path)

    def getparser(self) -> Any:
        parser, target = super().getparser()
        _refuse_document_types(parser)
        return parser, target


def _refuse_document_types(parser: Any) -> None:
    """Make the parser of an answer raise ResponseError at a document type: entities, with which a small text becomes a huge one,
    are declared nowhere else, and supervisord sends none.
    """

    def refuse(name: str, *_: object) -> None:
        raise xmlrpc.client.ResponseError(f"the answer declares a document type, {name}")

    parser._parser.StartDoctypeDeclHandler = refuse  # xmlrpc.client has no public way to its expat parser


class Supervisor:
    """A running supervisord, spoken to by XML-RPC."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._rpc = cast(
            Any, xmlrpc.client.ServerProxy("http://localhost", _UnixTransport(str(layout.supervisor_socket)))
        ).supervisor

    @classmethod
    def connect(cls, layout: Layout) -> Supervisor | None:
        """The running supervisord of this state directory; None also when its socket is there but no one answers."""
        if not layout.supervisor_socket.exists():
            return None
        supervisor = cls(layout)
        try:
            state = supervisor._rpc.getState()["statename"]
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return None
        return supervisor if state in ("RUNNING", "RESTARTING") else None

    @classmethod
    def launch(cls, layout: Layout, environment: Environment) -> Supervisor:
        """Starts supervisord as a daemon in a session of its own, so that no Ctrl-C or closed terminal reaches it.

        Raises:
            DevError: it does not come up; carries what it said.
        """
        layout.remove_socket()
        layout.create_socket_folder()
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        path = os.pathsep.join([str(environment.bin), os.environ.get("PATH", os.defpath)])
        result = subprocess.run(
            [str(environment.python), "-m", "supervisor.supervisord", "-c", str(layout.supervisor_config)],
            cwd="/",
            env={
                **inherited,
                "PATH": path,
                "PYTHONUNBUFFERED": "1",
                MARK: str(layout.state),
                "HIGHWATER_STATE_DIR": str(layout.state),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while result.returncode == 0 and time.monotonic() < deadline:
            supervisor = cls.connect(layout)
            if supervisor is not None:
                return supervisor
            time.sleep(0.05)
        raise DevError(
            f"supervisord does not start:\n{tail(result.stdout + result.stderr)}",
            f"look into {layout.logs / 'supervisord.log'}",
        )

    @property
    def pid(self) -> int:
        return int(self._rpc.getPID())

    def processes(self) -> list[ProcessInfo]:
        """All of them, the tenants' daemons included, ordered by name."""
        return [
            ProcessInfo(
                name=info["name"],
                group=info["group"],
                state=info["statename"],
                pid=info["pid"],
                description=info["description"],
                log=Path(info["stdout_logfile"]) if info["stdout_logfile"] else None,
            )
            for info in sorted(self._rpc.getAllProcessInfo(), key=lambda info: (info["group"], info["name"]))
        ]

    def state(self, name: str) -> str | None:
        """The state of one program; None when supervisord has never heard of it."""
        return next((process.state for process in self.processes() if process.group == name), None)

    def adopt(self, programs: Sequence[Program]) -> list[str]:
        """Makes supervisord use the configuration as it is now on disk, for our own programs only.

        New programs are added (not started); changed ones are stopped and replaced. The provisioner's are left alone.

        Returns:
            Names of the programs that changed.
        """
        ours = {program.name for program in programs}
        [(added, changed, removed)] = self._rpc.reloadConfig()
        for name in [name for name in [*changed, *removed] if name in ours]:
            self._rpc.stopProcessGroup(name)
            self._rpc.removeProcessGroup(name)
        for name in [name for name in [*added, *changed] if name in ours]:
            self._rpc.addProcessGroup(name)
        return [name for name in changed if name in ours]

    def start(self, name: str) -> None:
        """Starts a program and returns at once; `settle` returns whether it stays up. Harmless when it runs.

        Raises:
            DevError: it can't even be started; carries the end of its log.
        """
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while self.state(name) == "STOPPING" and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            self._rpc.startProcess(name, False)
        except xmlrpc.client.Fault as fault:
            if fault.faultString.startswith("ALREADY_STARTED"):
                return
            raise self._failure(name) from fault

    def settle(self, names: Sequence[str]) -> None:
        """Returns once all these programs have stayed up for their `start_seconds`.

        Raises:
            DevError: one of them does not; carries the end of its log.
        """
        deadline = time.monotonic() + START_SECONDS_MAX
        for name in names:
            while (state := self.state(name)) != "RUNNING":
                if state != "STARTING" or time.monotonic() > deadline:
                    raise self._failure(name)
                time.sleep(0.05)

    def stop(self, names: Sequence[str]) -> None:
        """Stops these programs at the same time; returns when all have ended. Harmless for those that don't run."""
        for name in names:
            try:
                self._rpc.stopProcess(name, False)
            except xmlrpc.client.Fault as fault:
                if not fault.faultString.startswith(("NOT_RUNNING", "BAD_NAME")):
                    raise
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while any(process.state == "STOPPING" for process in self.processes() if process.full_name in names):
            if time.monotonic() > deadline:
                raise DevError(f"{', '.join(names)} don't stop.", f"look into {self._layout.logs}/supervisord.log")
            time.sleep(0.05)

    def check(self, names: Sequence[str]) -> None:
        """Raises DevError for the first of these programs that is not running."""
        for name in names:
            if self.state(name) not in ("RUNNING", "STARTING"):
                raise self._failure(name)

    def _failure(self, name: str) -> DevError:
        log = self._layout.logs / f"{name}.log"
        said = tail(log.read_text(errors="replace")) if log.exists() else "    (it wrote nothing)"
        return DevError(f"{name} does not stay up. It said:\n{said}", f"the whole log: ./dev logs {name}")

    def shutdown(self) -> None:
        """Stops every process, then supervisord; returns when it is gone.

        supervisord would stop one after the other, the highest priority number first. That order matters only for the
        servers that others need, so everything else is stopped at the same time, before it is asked.

        Raises:
            DevError: it is still there after STOP_SECONDS_MAX.
        """
        pid = self.pid
        self.stop([process.full_name for process in self.processes() if process.group not in SERVERS])
        try:
            self._rpc.shutdown()
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            os.kill(pid, signal.SIGTERM)  # SIGTERM asks the same; whether it worked is seen below
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while alive(pid):
            if time.monotonic() > deadline:
                raise DevError(
                    f"supervisord (pid {pid}) still runs after {STOP_SECONDS_MAX} s.",
                    f"look into {self._layout.logs}/supervisord.log",
                )
            time.sleep(0.05)


def alive(pid: int) -> bool:
    """The process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True  # no /proc here: that it takes signals must do


def write_config(layout: Layout, programs: Sequence[Program]) -> None:
    write_private(layout.supervisor_config, render_config(layout, programs))
