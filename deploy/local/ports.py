"""TCP ports of the local platform: the usual one, or a free one when it is taken; remembered in `.local/ports.json`."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

from deploy.local.layout import write_private
from deploy.local.terminal import DevError

LOOPBACK = "127.0.0.1"
USUAL_PORTS = {"web": 8000, "postgres": 5432, "redis": 6379}


def is_free(port: int) -> bool:
    """True when a server could listen on the port now."""
    # With SO_REUSEADDR, as servers set it: a connection that is still closing doesn't take a port.
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen()
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that no one listens on. Another process could take it before you do; use it at once."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


class Ports:
    """Remembered ports by service name. `usual=False` always takes a random free one (for tests)."""

    def __init__(self, path: Path, usual: bool = True) -> None:
        self._path = path
        self._usual = usual
        self._ports: dict[str, int] = {}
        # A missing or broken file only means that ports are chosen again.
        with contextlib.suppress(OSError, ValueError):
            self._ports = {str(name): int(port) for name, port in json.loads(path.read_text()).items()}

    def __getitem__(self, name: str) -> int:
        return self._ports[name]

    def __contains__(self, name: str) -> bool:
        return name in self._ports

    def choose(self, name: str) -> int:
        """A port for a service that is about to start: the remembered one, else the usual one, else any free one."""
        candidates = [self._ports.get(name), USUAL_PORTS[name] if self._usual else None]
        port = next((port for port in candidates if port is not None and is_free(port)), None) or free_port()
        if self._ports.get(name) != port:
            self._ports[name] = port
            write_private(self._path, json.dumps(self._ports) + "\n")
        return port

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Keep others off the service's port until it listens; raises DevError when one was quicker.

        The web server listens with SO_REUSEPORT. Without this, two platforms that start at the same time would choose the same
        port, and each would get some of the other's requests. This socket never listens, so no request comes here.
        """
        with socket.socket() as holder:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                holder.bind((LOOPBACK, self._ports[name]))
            except OSError as error:
                raise DevError(f"Port {self._ports[name]} was taken in this moment: {error}.", "./dev up") from error
            yield

    def surprises(self) -> list[str]:
        """One sentence for each service that does not listen where one would look for it."""
        if not self._usual:
            return []
        return [
            f"{name} listens on port {port}, because {USUAL_PORTS[name]} was taken when it first started"
            for name, port in sorted(self._ports.items())
            if port != USUAL_PORTS[name]
        ]
