"""A broker that is cut off from everyone for a while, on request: for failover drills (NETWORK_CUT).

To the others it is as with a pulled cable: connections stay open, what is sent over them is taken and never answered, and new
ones wait. The broker itself goes on, with all that it believes. When the time is over, what was open is closed and new
connections are taken again; only a stop ends a cut sooner, and no cut outlives the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import trio

if TYPE_CHECKING:
    import socket

    from brokerd.environment import Network
    from mqwire.tls_connection import Connected

logger = logging.getLogger(__name__)


class NetworkCut:
    """A network that can be cut. Sockets that listen are its `network`'s own: an acceptor there waits for `healed` first."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._healed: trio.Event | None = None
        self._asked_for = False
        self._scope = trio.CancelScope()
        self._is_over = False
        self._silence: list[Callable[[], list[Callable[[], None]]]] = []
        self._held: list[Callable[[], None]] = []
        self.count = 0

    @classmethod
    def of(cls, network: Network) -> Self:
        """`network` itself, if it can be cut already."""
        return network if isinstance(network, cls) else cls(network)

    @property
    def is_cut(self) -> bool:
        return self._healed is not None

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        """As the network's."""
        return self._network.listen(host, port, backlog)

    async def connect(self, host: str, port: int) -> Connected:
        """As the network's; waits for the end of a cut."""
        await self.healed()
        count = self.count
        return _Outgoing(self, count, await self._network.connect(host, port))

    async def healed(self) -> None:
        """Wait for the end of a cut; returns at once without one."""
        while self._healed is not None:
            await self._healed.wait()

    def on_cut(self, silence: Callable[[], list[Callable[[], None]]]) -> None:
        """Have `silence` end connections without a word when a cut begins; it returns what closes them at last."""
        self._silence.append(silence)

    def hold(self, close: Callable[[], None]) -> None:
        """Close something at the end of the cut: before, the other end must not notice."""
        self._held.append(close)

    def ask(self) -> bool:
        """Reserve the next cut for the caller, who then awaits `run`; False while one is in force or about to begin, and after
        `end`.
        """
        if self._asked_for or self._is_over:
            return False
        self._asked_for = True
        return True

    async def run(self, for_s: float) -> None:
        """Cut now, and heal after `for_s`, also when cancelled, or at `end`.

        Started as a task by a request's handler it begins when the answer has been written, and before anything is read that was
        sent because of the answer: a drill's fence must not reach a leader that is about to be cut off.
        """
        try:
            with self._scope:
                await trio.lowlevel.checkpoint_if_cancelled()
                self._begin(for_s)
                await trio.sleep(for_s)
        finally:
            self._scope = trio.CancelScope()
            self._heal()

    async def begun(self) -> None:
        """Wait until a cut that was asked for has begun: tasks of one step run in any order, and none may answer before it."""
        while self._asked_for and self._healed is None and not self._is_over:
            await trio.lowlevel.checkpoint()

    def end(self) -> None:
        """Heal now, and be cut no more: the broker stops, and has others to notify."""
        self._is_over = True
        self._scope.cancel()
        self._heal()

    def _begin(self, for_s: float) -> None:
        logger.warning("a drill: cut off from everyone for %g s", for_s)
        self.count += 1
        self._healed = trio.Event()
        for silence in self._silence:
            self._held += silence()

    def _heal(self) -> None:
        self._asked_for = False
        if self._healed is None:
            return
        healed, self._healed = self._healed, None
        held, self._held = self._held, []
        for close in held:
            close()
        logger.warning("a drill: no longer cut off")
        healed.set()


class _Outgoing:
    """A connection of ours to elsewhere, made before the cut number `count + 1`."""

    def __init__(self, network: NetworkCut, count: int, connected: Connected) -> None:
        self._network = network
        self._count = count
        self._connected = connected

    async def send_all(self, data: bytes) -> None:
        await self._raise_if_cut()
        await self._connected.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """As the connection's; what came during a cut never came."""
        await self._raise_if_cut()
        data = await self._connected.receive_some(max_bytes)
        await self._raise_if_cut()
        return data

    async def _raise_if_cut(self) -> None:
        if self._count != self._network.count:
            await self._network.healed()
            raise trio.BrokenResourceError("the network was cut")

    def close(self) -> None:
        """At once, but the other end of a cut connection notices after the cut."""
        if self._network.is_cut and self._count != self._network.count:
            self._network.hold(self._connected.close)
        else:
            self._connected.close()
