"""PostgreSQL and Redis for one test run: the embedded ones, on free ports, without durability.

Their ports are chosen long before they are bound, so they lie where the kernel gives none to others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from deploy.local.environment import Environment
from deploy.local.postgres import Postgres, find_postgres
from deploy.local.redis_server import Redis, find_redis
from tests.processes import free_ports

KEEPER = Path(__file__).with_name("keeper.py")
STOP_SECONDS_MAX = 30
ADMIN_PASSWORD = PASSWORD = "tests"


@contextmanager
def kept(command: Sequence[str], stop_signal: str, log: Path) -> Iterator[None]:
    """Runs a server for the length of the block; it goes with this process, however that ends."""
    with log.open("ab") as output:
        keeper = subprocess.Popen(
            [sys.executable, str(KEEPER), stop_signal, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is for pytest; the server must outlive its last test
        )
    try:
        yield
    finally:
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(STOP_SECONDS_MAX)


class PostgresForTests:
    """Known by its URL from the first moment on, so that settings can name it; started when the first test needs it."""

    def __init__(self, copy_data: Callable[[Path], None] | None = None) -> None:
        """`copy_data` puts a data directory where it is told; an empty one is made without it."""
        self._copy_data = copy_data
        self._folder = Path(tempfile.gettempdir()) / f"highwater-test-postgres-{os.getpid()}"
        self._server = Postgres(
            find_postgres(Environment.current()),
            self._folder / "data",
            free_ports(),
            admin_password=ADMIN_PASSWORD,
            password=PASSWORD,
            throw_away=True,
        )
        self.url = self._server.url

    @contextmanager
    def running(self) -> Iterator[str]:
        # Anyone may enter: where PostgreSQL must run as another user than root, it has to reach its data.
        self._folder.mkdir(mode=0o755, exist_ok=True)
        try:
            if self._copy_data is None:
                self._server.initialise()
            else:
                self._copy_data(self._server.data)
            with kept(self._server.command(), "SIGINT", self._folder / "postgres.log"):
                self._server.wait_ready()
                self._server.ensure_database()
                yield self.url
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


class RedisForTests:
    """As PostgresForTests."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.gettempdir()) / f"highwater-test-redis-{os.getpid()}"
        self._server = Redis(
            find_redis(Environment.current()), self._folder, free_ports(), password="tests", throw_away=True
        )
        self.url = self._server.url

    @contextmanager
    def running(self) -> Iterator[str]:
        try:
            self._server.write_config()
            with kept(self._server.command(), "SIGTERM", self._folder / "redis.log"):
                self._server.wait_ready()
                yield self.url
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
