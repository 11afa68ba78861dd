"""What a broker needs of the machine that it runs on: clocks, disk, network, threads, chance, and the order to stop.

`Environment()` is the real one, and adds nothing. The simulation (tests/sim) passes its own, so that whole
brokers run on virtual time: nothing in `brokerd` may ask for the time, a file, a socket, a thread or a random number elsewhere.
`trio` itself is the scheduler in both; its readiness calls (`trio.lowlevel.wait_readable`) take what `Network` hands out.
"""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, TypeVarTuple

import trio

from brokerd.clock import SystemClock
from brokerd.flush_thread import FlushThread
from brokerd.store import Disk, OsDisk
from mqwire.tls_connection import Connected

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class OneCallThread(Protocol):
    """A thread that runs one blocking call at a time (flush_thread.py)."""

    async def run(self, call: Callable[[], object]) -> None:
        """Run `call` and wait for its end, also when cancelled; raises what it raises."""


class Threads(Protocol):
    """Where blocking calls run."""

    async def run(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run `call` in some thread; returns and raises what it does."""

    def one_call_thread(self) -> OneCallThread:
        """A thread of its own for one caller's many calls."""


class OsThreads:
    """Real threads: trio's own, and one that is cheaper to hand a call to."""

    async def run(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await trio.to_thread.run_sync(call, *arguments)

    def one_call_thread(self) -> OneCallThread:
        return FlushThread()


class _TcpConnection:
    def __init__(self, stream: trio.SocketStream) -> None:
        self.send_all = stream.send_all
        self.receive_some = stream.receive_some
        self.close = stream.socket.close


class Network(Protocol):
    """Where connections come from and go to. What it returns are non-blocking sockets, or behave as such."""

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        """A listening socket; raises OSError when the port is taken."""

    async def connect(self, host: str, port: int) -> Connected:
        """A connection to there; raises OSError."""


class OsNetwork:
    """TCP."""

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        return listener

    async def connect(self, host: str, port: int) -> Connected:
        return _TcpConnection(await trio.open_tcp_stream(host, port))


@contextmanager
def termination_signals() -> Iterator[Callable[[], Awaitable[str]]]:
    """Catches SIGTERM and SIGINT while entered; the value waits for the next one, and returns its name."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:

        async def next_signal() -> str:
            return signal.Signals(await anext(signals)).name

        yield next_signal


@dataclass(frozen=True, slots=True)
class Environment:
    """See the module. `stop_orders`, while entered, gives a function that waits for an order to stop and returns whose."""

    clock: SystemClock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=OsDisk)
    network: Network = field(default_factory=OsNetwork)
    threads: Threads = field(default_factory=OsThreads)
    random: random.Random = field(default_factory=random.Random)
    stop_orders: Callable[[], AbstractContextManager[Callable[[], Awaitable[str]]]] = termination_signals
