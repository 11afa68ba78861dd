"""Network namespaces, joined by veth pairs that can be cut in silence: one for each replica. Needs root and `ip`, `tc`.

Each namespace has one address, reached over a pair of its own from here and from each other namespace, so that a cut is
between two places and nothing else. A cut is a `blackhole` queue on both ends: what is sent into it is lost without a
word, as with a pulled cable; TCP sends it again when the cut heals.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

HERE = -1  # the place of the test itself: clients and the name server


def why_not() -> str | None:
    """Why namespaces cannot be used here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need ip and tc (iproute2)"
    probe = f"hw{os.getpid()}p"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this machine does not let us make network namespaces"
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


class Network:
    """Namespaces 0, 1 … and the place here, all joined. Addresses are of 10.213.0.0/16, by process, so that runs don't meet."""

    def __init__(self, count: int) -> None:
        self._tag = f"hw{os.getpid() % 100_000}"
        self._third = os.getpid() % 250
        self.count = count

    def address(self, place: int) -> str:
        return f"10.213.{self._third}.{place + 2}"

    def prefix(self, place: int) -> list[str]:
        """In front of a command, to run it in that namespace."""
        return ["ip", "netns", "exec", self._name(place)]

    def cut(self, one: int, other: int) -> None:
        """Lose everything between two places from now on."""
        for place, device in self._ends(one, other):
            self._run(place, "tc", "qdisc", "add", "dev", device, "root", "blackhole")

    def heal(self, one: int, other: int) -> None:
        for place, device in self._ends(one, other):
            self._run(place, "tc", "qdisc", "del", "dev", device, "root")

    def isolate(self, place: int) -> None:
        """Cut a place off from all others."""
        for other in self._places():
            if other != place:
                self.cut(place, other)

    def rejoin(self, place: int) -> None:
        for other in self._places():
            if other != place:
                self.heal(place, other)

    def _places(self) -> range:
        return range(HERE, self.count)

    def _name(self, place: int) -> str:
        return f"{self._tag}n{place}"

    def _ends(self, one: int, other: int) -> list[tuple[int, str]]:
        low, high = sorted((one, other))
        return [(low, f"{self._tag}v{low + 1}{high + 1}a"), (high, f"{self._tag}v{low + 1}{high + 1}b")]

    def _run(self, place: int, *command: str) -> None:
        prefix = [] if place == HERE else self.prefix(place)
        done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} in place {place}: {done.stderr.strip()}")

    def start(self) -> None:
        for place in range(self.count):
            self._run(HERE, "ip", "netns", "add", self._name(place))
            self._run(place, "ip", "link", "set", "lo", "up")
            self._run(place, "ip", "addr", "add", f"{self.address(place)}/32", "dev", "lo")
        self._run(HERE, "ip", "addr", "add", f"{self.address(HERE)}/32", "dev", "lo")
        for low, high in combinations(self._places(), 2):
            (_, first), (_, second) = ends = self._ends(low, high)
            self._run(HERE, "ip", "link", "add", first, "type", "veth", "peer", "name", second)
            for place, device in ends:
                if place != HERE:
                    self._run(HERE, "ip", "link", "set", device, "netns", self._name(place))
            for (place, device), other in zip(ends, (high, low), strict=True):
                self._run(place, "ip", "link", "set", device, "up")
                source = self.address(place)
                self._run(place, "ip", "route", "add", f"{self.address(other)}/32", "dev", device, "src", source)

    def stop(self) -> None:
        for place in range(self.count):
            subprocess.run(["ip", "netns", "del", self._name(place)], capture_output=True, check=False)
            (_, device), _ = self._ends(HERE, place)
            subprocess.run(["ip", "link", "del", device], capture_output=True, check=False)
        subprocess.run(["ip", "addr", "del", f"{self.address(HERE)}/32", "dev", "lo"], capture_output=True, check=False)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """The namespaces for the length of the block."""
    made = Network(count)
    try:
        made.start()
        yield made
    finally:
        made.stop()
