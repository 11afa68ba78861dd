"""The whole local platform, as `./dev up` starts it, in a temporary state directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from deploy.local.environment import Environment
from deploy.local.layout import Layout
from deploy.local.leftovers import TITLE_SETTERS, find_leftovers, stop_leftovers
from deploy.local.stack import Stack
from deploy.local.supervisor import MARK
from deploy.local.terminal import Terminal
from tests.support.commands import Commands
from tests.support.migrated import copy_state

REQUEST_TIMEOUT_S = 30.0


class PlatformStack:
    """A running platform: web, worker, beat, PostgreSQL, Redis and supervisord, all our own."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), MARK: str(stack.layout.state)}
        variables = {**os.environ, **stack.django_variables(), **paths}
        self.commands = Commands(variables, stack.layout.logs / "commands.log")

    @property
    def console_url(self) -> str:
        """`http://127.0.0.1:PORT`, without a slash at its end."""
        return self.stack.console_url

    @property
    def state_dir(self) -> Path:
        return self.stack.layout.state

    def manage(self, *arguments: str) -> str:
        """What `manage.py ARGUMENTS` does and prints on this platform. Raises DevError when it fails."""
        return self.commands.run(*arguments)

    def token(self, tenant: str) -> str:
        """An API token of the tenant, as `./dev token TENANT` prints it."""
        return self.manage("issue_token", tenant).strip()

    def api(self, token: str) -> httpx.Client:
        """A client for the REST API; its paths are relative to `/api/v1/`. Close it, or use it in a with statement."""
        return httpx.Client(
            base_url=f"{self.console_url}/api/v1/",
            headers={"Authorization": f"Bearer {token}"},
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,  # no proxy between us and the loopback
        )

    def log(self, name: str) -> str:
        """What a process of ours has written so far (web, worker, beat, postgres, redis, supervisord)."""
        return (self.stack.layout.logs / f"{name}.log").read_text(errors="replace")


@contextmanager
def running_platform(
    folder: Path, variables: Mapping[str, str] | None = None, *, afresh: bool = False
) -> Iterator[PlatformStack]:
    """A platform for the length of the block. Its logs stay in `folder/logs`; its data goes.

    Args:
        folder: the state directory; must not be in use.
        variables: settings such as HIGHWATER_PORT_RANGE, or HIGHWATER_JOBS=on for Spark's jobs.
            DATABASE_URL and REDIS_URL of the tests don't reach it.
        afresh: it makes its database and migrates it, where others begin with a copy of one.
    """
    clean = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    clean |= {"HIGHWATER_JOBS": "off", **(variables or {})}  # no Spark beside the tests, but where one asks for it
    layout = Layout(state=folder.resolve())
    stack = Stack(
        layout,
        Environment.current(),
        Terminal(quiet=True),
        usual_ports=False,
        throw_away=True,
        variables=clean,
    )
    with _stopped_with_us(layout):
        try:
            if not afresh:
                copy_state(layout, clean)
            stack.up()
            platform = PlatformStack(stack)
            try:
                yield platform
            finally:
                platform.commands.end()
        finally:
            _kill_all_but_servers(layout)
            stack.down()
            for data in (layout.postgres, layout.redis, layout.clusters):
                shutil.rmtree(data, ignore_errors=True)


def _kill_all_but_servers(layout: Layout) -> None:
    """No one needs what they would still write: workers finish steps, and brokers take leave, for up to half a minute.

    supervisord first, or it would start them again. PostgreSQL and Redis are left to `down`, which finds and stops them at
    once: a killed PostgreSQL leaves shared memory behind.
    """
    leftovers = [leftover for leftover in find_leftovers(layout.state) if leftover.name not in TITLE_SETTERS]
    supervisor = layout.supervisor_pid.read_text().strip() if layout.supervisor_pid.exists() else ""
    for leftover in sorted(leftovers, key=lambda leftover: str(leftover.pid) != supervisor):
        with suppress(ProcessLookupError):
            os.kill(leftover.pid, signal.SIGKILL)


@contextmanager
def _stopped_with_us(layout: Layout) -> Iterator[None]:
    """A watcher process that stops the platform should this process die before it can."""
    watcher = subprocess.Popen(
        [sys.executable, __file__, str(layout.state)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()


if __name__ == "__main__":
    sys.stdin.buffer.read()
    stop_leftovers(find_leftovers(Path(sys.argv[1])))
