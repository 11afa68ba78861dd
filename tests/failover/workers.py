"""A platform with a second worker, whose workers, queue and database a test may kill or hold still at a chosen moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from deploy.local.supervisor import MARK
from tests.failover.live_group import wait_for
from tests.support.platform_stack import PlatformStack
from tests.support.servers import kept

# Of the advisory lock at which workers wait: any number that no one else uses.
_LOCK = 0x48575F46
_WAITING = """
    SELECT activity.pid, activity.client_port FROM pg_locks AS lock JOIN pg_stat_activity AS activity USING (pid)
    WHERE lock.locktype = 'advisory' AND lock.objid = %s AND NOT lock.granted
"""


@dataclass(frozen=True)
class Moment:
    """When a worker is about to write this row: what comes before is done, but no one knows yet."""

    table: str
    event: str
    condition: str


def timeline_line(name: str) -> Moment:
    """It is about to write this line of a failover's timeline."""
    return Moment("failover_failoverstep", "INSERT", f"NEW.name = '{name}'")


def step_completed(name: str) -> Moment:
    """It has done all of this step, and is about to say so."""
    return Moment("clusters_operationstep", "UPDATE", f"NEW.name = '{name}' AND NEW.state = 'completed'")


@contextmanager
def second_worker(platform: PlatformStack, log: Path) -> Iterator[None]:
    """One more worker beside the platform's own."""
    stack = platform.stack
    command = ["env", *(f"{name}={value}" for name, value in stack.django_variables().items())]
    command += [f"{MARK}={platform.state_dir}", "sh", "-c", 'cd "$0" && exec "$@"', str(stack.layout.root)]
    command += [sys.executable, "-m", "celery", "-A", "controlplane", "worker", "--loglevel", "INFO"]
    command += ["--queues", "celery,failovers"]
    command += ["--concurrency", "2", "--hostname", "second@%h"]
    with kept(command, "SIGQUIT", log):  # a cold shutdown: it finishes nothing
        wait_for(lambda: log.read_text(), lambda text: "ready." in text, "second worker")
        yield


@contextmanager
def held_at(platform: PlatformStack, moment: Moment) -> Iterator[HeldWorker]:
    """Whoever comes to this moment waits there, by a trigger and a lock of the database, until the block ends."""
    held = HeldWorker(platform.stack.django_variables()["DATABASE_URL"], moment)
    try:
        yield held
    finally:
        held.let_go()


class HeldWorker:
    """The moment at which a worker's process waits. Our session has the lock that it waits for."""

    def __init__(self, url: str, moment: Moment) -> None:
        self._url = url
        self._moment = moment
        self._connection: psycopg.Connection | None = psycopg.connect(url, autocommit=True)
        for statement in (
            f"SELECT pg_advisory_lock({_LOCK})",
            f"""CREATE OR REPLACE FUNCTION hold_still() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK}); RETURN NEW; END $$""",
            f"""CREATE TRIGGER hold_still BEFORE {moment.event} ON {moment.table} FOR EACH ROW
                WHEN ({moment.condition}) EXECUTE FUNCTION hold_still()""",
        ):
            self._connection.execute(statement)

    def arrived(self) -> tuple[int, int]:
        """Wait until a worker is there; returns (pid of its session in the database, its own port)."""
        assert self._connection is not None
        connection = self._connection
        found: tuple[int, int] = wait_for(
            lambda: connection.execute(_WAITING, (_LOCK,)).fetchone(),
            lambda row: row is not None,
            "a worker at the moment",
        )
        return found

    def kill(self, *, whole_worker: bool = False) -> None:
        """SIGKILL the process that waits, or its worker with all its processes; then no one waits any more."""
        session, port = self.arrived()
        assert self._connection is not None
        process = _client_process(port, self._connection.info.port)
        if whole_worker:
            os.killpg(os.getpgid(process), signal.SIGKILL)
        else:
            os.kill(process, signal.SIGKILL)
        # What was waiting for the lock would be written all the same: the database does not know that its client died.
        self._connection.execute("SELECT pg_terminate_backend(%s)", (session,))
        self.let_go()

    def let_go(self) -> None:
        """No one is held any more. Harmless to repeat."""
        if self._connection is None:
            return
        try:
            self._drop_trigger(self._connection)
        except psycopg.OperationalError:  # the test restarted the database
            wait_for(self._dropped_anew, bool, "the database")
        self._connection.close()
        self._connection = None

    def _dropped_anew(self) -> bool:
        try:
            with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                self._drop_trigger(connection)
        except psycopg.OperationalError:
            return False
        return True

    def _drop_trigger(self, connection: psycopg.Connection) -> None:
        connection.execute(f"DROP TRIGGER IF EXISTS hold_still ON {self._moment.table}")


def server_pid(platform: PlatformStack, name: str) -> int:
    """The process of postgres, redis, worker or beat; 0 while it does not run."""
    return next((process.pid for process in platform.stack.processes() or [] if process.name == name), 0)


def restart_server(platform: PlatformStack, name: str, number: signal.Signals) -> None:
    """Signal the platform's PostgreSQL or Redis, and wait until supervisord has it running again."""
    old = server_pid(platform, name)
    os.kill(old, number)
    wait_for(lambda: server_pid(platform, name), lambda pid: pid not in (0, old), f"{name} again")


def _client_process(port: int, server_port: int) -> int:
    """The process whose connection goes from this TCP port to the server's, by Linux's tables."""
    return int(wait_for(lambda: _found_client(port, server_port), bool, f"the process with port {port}"))


def _found_client(port: int, server_port: int) -> int:
    here, there = f":{port:04X}", f":{server_port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1].endswith(here) and line[2].endswith(there)}
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(file) in sockets:
                return int(file.parts[2])
        except OSError:  # it was closed meanwhile, or its process has ended
            continue
    return 0
