"""Network namespaces, joined by veth pairs that can be cut in silence: one for each replica. Needs root and `ip`, `tc`.

Each namespace has one address, reached over a pair of its own from here and from each other namespace, so that a cut is
between two places and nothing else. A cut is a `blackhole` queue on both ends: what is sent into it is lost without a
word, as with a pulled cable; TCP sends it again when the cut heals.

The test itself moves into a namespace too: the machine's own interfaces never change. A browser that another test run has
open there would give up what it loads as soon as one did (ERR_NETWORK_CHANGED).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations

HERE = -1  # the place of the test itself: clients, and the name server where that has no place of its own

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_libc = ctypes.CDLL(None, use_errno=True)


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


def _enter(namespace: int) -> None:
    """Move this thread, and the threads and processes that it will start, into an open namespace (setns(2)), and close it."""
    failed = _libc.setns(namespace, _CLONE_NEWNET)
    os.close(namespace)
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Network:
    """Namespaces 0, 1 … and the place here, all joined. Addresses are of 10.213.0.0/16, by process, so that runs don't meet."""

    def __init__(self, count: int) -> None:
        self._tag = f"hw{os.getpid() % 100_000}"
        self._third = os.getpid() % 250
        self.count = count
        self._outside: int | None = None  # the namespace that the test came from, while it is in its own

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

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Lose what one place sends to another; the other way is open."""
        self._run(*self._one_way("add", sender, receiver), "blackhole")

    def heal_one_way(self, sender: int, receiver: int) -> None:
        self._run(*self._one_way("del", sender, receiver))

    def _one_way(self, verb: str, sender: int, receiver: int) -> tuple[int, *tuple[str, ...]]:
        device = next(device for place, device in self._ends(sender, receiver) if place == sender)
        return (sender, "tc", "qdisc", verb, "dev", device, "root")

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
        return f"{self._tag}n{place + 1}"

    def _ends(self, one: int, other: int) -> list[tuple[int, str]]:
        low, high = sorted((one, other))
        return [(low, f"{self._tag}v{low + 1}{high + 1}a"), (high, f"{self._tag}v{low + 1}{high + 1}b")]

    def _run(self, place: int, *command: str) -> None:
        self._run_outside(*self.prefix(place), *command)

    def _run_outside(self, *command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")

    def start(self) -> None:
        """Make the namespaces and move this thread into its own."""
        for place in self._places():
            self._run_outside("ip", "netns", "add", self._name(place))
            self._run(place, "ip", "link", "set", "lo", "up")
            self._run(place, "ip", "addr", "add", f"{self.address(place)}/32", "dev", "lo")
        for low, high in combinations(self._places(), 2):
            (_, first), (_, second) = ends = self._ends(low, high)
            peer = ("peer", "name", second, "netns", self._name(high))
            self._run(low, "ip", "link", "add", first, "type", "veth", *peer)
            for (place, device), other in zip(ends, (high, low), strict=True):
                self._run(place, "ip", "link", "set", device, "up")
                source = self.address(place)
                self._run(place, "ip", "route", "add", f"{self.address(other)}/32", "dev", device, "src", source)
        self._outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        _enter(os.open(f"/run/netns/{self._name(HERE)}", os.O_RDONLY))

    def stop(self) -> None:
        """Move back, and remove the namespaces with all that joins them."""
        if self._outside is not None:
            _enter(self._outside)
            self._outside = None
        for place in self._places():
            subprocess.run(["ip", "netns", "del", self._name(place)], capture_output=True, check=False)


@contextmanager
def network(count: int) -> Iterator[Network]:
    """The namespaces for the length of the block."""
    made = Network(count)
    try:
        made.start()
        yield made
    finally:
        made.stop()
