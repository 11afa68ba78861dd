"""The leader port: one address of a broker group that its leader serves (leaderListenPort).

RocketMQ's clients ask for routes each 30 s and reconnect at once. With the same address for brokerId 0 before and after
a failover, a client that still holds the former route reaches the new leader with its next attempt. That needs replicas
that share brokerIP1. Replicas speak to each other, and are told apart, by their own listenPort only.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Container

    from brokerd.config import BrokerConfig
    from brokerd.peer import Peer
    from brokerd.replica.replica import Replica
    from brokerd.services.registration import RegistrationService
    from brokerd.services.stranded_pulls import StrandedPulls

logger = logging.getLogger(__name__)

_CONFIRM_LOOK_S: Final = 0.02
_BIND_PERIOD_S: Final = 0.2  # while a former leader on this host holds the port: a stopped process, perhaps


class _Pulls(Protocol):
    def send_elsewhere(self, peers: Container[Peer]) -> None: ...


class _Dispatcher(Protocol):
    @property
    def pulls(self) -> _Pulls: ...


class _Server(Protocol):
    def bound(self, port: int) -> socket.socket: ...

    async def accept(self, listener: socket.socket, nursery: trio.Nursery, peers: set[Peer] | None = None) -> None: ...


class _Broker(Protocol):
    """What the leader port uses of the broker."""

    config: BrokerConfig
    replica: Replica
    nursery: trio.Nursery | None
    registration: RegistrationService
    stopping: bool
    stranded_pulls: StrandedPulls

    @property
    def dispatcher(self) -> _Dispatcher: ...


class LeaderPort:
    """Bound while this replica leads.

    Invariant: what is accepted here is closed, and the port free, as soon as the replica stops leading.
    """

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._listener: socket.socket | None = None
        self._changed = trio.Event()
        self._settled = trio.Event()

    @property
    def _port(self) -> int:
        return self._broker.config.leader_listen_port

    @property
    def address(self) -> str | None:
        """Where clients reach the leader; None while this replica does not listen there."""
        return None if self._listener is None else f"{self._broker.config.broker_ip1}:{self._port}"

    async def settled(self) -> None:
        """Wait until the port was bound, or found taken, since this replica leads; returns at once without a leader port."""
        while self._port and self._broker.replica.leads and not self._broker.stopping and not self._settled.is_set():
            await self._settled.wait()

    def role_changed(self) -> None:
        """Leave the port at once when this replica does not lead any more."""
        if not self._broker.replica.leads:
            self.stop_listening()
            # A task that waits for the port needs to look at the role again.
            settled, self._settled = self._settled, trio.Event()
            settled.set()
        self._changed.set()

    def port_changed(self) -> None:
        """Another port was configured while the broker runs: leave the old one, and take the new one if this replica leads."""
        self.stop_listening()
        settled, self._settled = self._settled, trio.Event()
        settled.set()
        self._changed.set()
        self._broker.registration.role_changed()

    def stop_listening(self) -> None:
        """Take no new connections; those that are there go on while this replica leads."""
        listener, self._listener = self._listener, None
        if listener is not None:
            trio.lowlevel.notify_closing(listener)
            listener.close()

    async def run(self, server: _Server) -> None:
        """Serve while leading, until cancelled."""
        taken = False
        while True:
            self._changed = trio.Event()
            if not self._may_bind():
                taken = False
                waits_for_confirmation = self._port and self._broker.replica.leads
                with trio.move_on_after(_CONFIRM_LOOK_S if waits_for_confirmation else float("inf")):
                    await self._changed.wait()
                continue
            try:
                self._listener = server.bound(self._port)
            except OSError as error:
                if not taken:
                    logger.warning(
                        "leaderListenPort %d cannot be bound (%s): clients are given listenPort until it can",
                        *(self._port, error.strerror or error),
                    )
                taken = True
                self._settled.set()
                with trio.move_on_after(_BIND_PERIOD_S):
                    await self._changed.wait()
                continue
            taken = False
            await self._serve(server, self._listener)

    def _may_bind(self) -> bool:
        """Whether it leads for sure: its epoch record is confirmed, so that a stale leader never takes the port back."""
        return bool(self._port) and not self._broker.stopping and self._broker.replica.has_confirmed_epoch

    async def _serve(self, server: _Server, listener: socket.socket) -> None:
        logger.info("serving clients on leaderListenPort %d too", self._port)
        broker = self._broker
        peers: set[Peer] = set()
        self._settled.set()
        broker.registration.role_changed()
        if broker.nursery is not None:
            broker.nursery.start_soon(broker.stranded_pulls.free)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.accept, listener, nursery, peers)
                while broker.replica.leads and (self._listener is listener or broker.stopping):
                    await self._changed.wait()
                    self._changed = trio.Event()
                # This runs after the call that ended the leadership, so that what it answered is written by now.
                broker.dispatcher.pulls.send_elsewhere(peers)
                _close_all(peers)
        finally:
            self.stop_listening()
            _close_all(peers)


def _close_all(peers: set[Peer]) -> None:
    for peer in list(peers):
        peer.flush()
        peer.close()
