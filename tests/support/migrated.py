"""A PostgreSQL data directory with all migrations in it: made by the first run of tests that needs it, copied by the others.

All migrations take ten seconds of a processor, and a run of all tests starts a dozen servers. It lies in `.pytest_cache/` and is
made again when the control plane's code has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from deploy.local.environment import DEVELOPMENT, Environment
from deploy.local.layout import REPOSITORY, Layout, write_private
from deploy.local.postgres import DATABASE, Postgres, find_postgres
from deploy.local.stack import Services, Stack, code_fingerprint
from deploy.local.terminal import Terminal
from tests.processes import free_ports
from tests.support.servers import ADMIN_PASSWORD, PASSWORD, kept

# A database of that server, with tables and nobody in them. The platform's own has its operator too.
TEMPLATE = "migrated"
_FOLDER = REPOSITORY / ".pytest_cache" / "migrated"
_MADE_OF = "made-of"


def copy_postgres(data: Path) -> None:
    """Puts the data directory there; `data` may be an empty folder."""
    with _current() as made:
        shutil.copytree(made.postgres, data, dirs_exist_ok=True)


def copy_state(layout: Layout, variables: Mapping[str, str]) -> None:
    """Puts all into a platform's state directory that its `up` then takes for migrated; nothing where it has a database."""
    if variables.get("DATABASE_URL"):
        return
    layout.create()
    with _current() as made:
        shutil.copytree(made.postgres, layout.postgres)
        for file, target in (
            (made.secrets_file, layout.secrets_file),
            (made.fingerprint_file, layout.fingerprint_file),
        ):
            shutil.copy2(file, target)


@contextmanager
def _current() -> Iterator[Layout]:
    """As the code is now. One run at a time makes or copies it."""
    layout = Layout(_FOLDER)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with _FOLDER.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        requirements = hashlib.sha256((REPOSITORY / DEVELOPMENT).read_bytes()).hexdigest()
        wanted = f"{code_fingerprint(REPOSITORY)} {requirements}"
        made_of = _FOLDER / _MADE_OF
        if not made_of.exists() or made_of.read_text() != wanted:
            shutil.rmtree(_FOLDER)
            _make(layout)
            made_of.write_text(wanted)
        yield layout


def _make(layout: Layout) -> None:
    """By the platform's own migrations, as `./dev up` runs them."""
    layout.create()
    layout.state.chmod(0o755)  # where PostgreSQL must run as another user than root, it has to reach its data
    write_private(layout.secrets_file, json.dumps({"postgres_admin": ADMIN_PASSWORD, "postgres": PASSWORD}))
    environment = Environment.current()
    fingerprint = code_fingerprint(REPOSITORY) + "\n"
    stack = Stack(layout, environment, Terminal(quiet=True), usual_ports=False, throw_away=True, variables={})
    stack.ports.choose("web")
    server = Postgres(
        find_postgres(environment), layout.postgres, free_ports(), ADMIN_PASSWORD, PASSWORD, throw_away=True
    )
    server.initialise()
    with kept(server.command(), "SIGINT", layout.logs / "postgres.log"):
        server.wait_ready()
        server.ensure_database()
        services = Services(server.url, "redis://127.0.0.1:1/0", server, None)
        stack._migrate(services)
        beside = urlsplit(server.url)._replace(path="/postgres").geturl()
        with psycopg.connect(beside, autocommit=True) as connection:
            connection.execute(f"create database {TEMPLATE} template {DATABASE}")
        stack._ensure_operator(services)
    write_private(layout.fingerprint_file, fingerprint)
