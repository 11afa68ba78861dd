"""The broker's sockets: accept, read, decode all, dispatch, write once.

One task per connection reads into one shared buffer: whatever a peer has sent by then is decoded and served together
(architecture.md section 4).
"""

from __future__ import annotations

import logging
import math
import socket
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.admission import Admission, connections_max, raise_descriptor_limit
from brokerd.network_cut import NetworkCut
from brokerd.peer import Peer
from brokerd.tls import ServerTls, TlsSocket
from mqwire.connection import Connection
from mqwire.errors import RemoteProtocolError
from mqwire.strangers_log import StrangersLog
from mqwire.turns import AnyShare, Rows, Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brokerd.config import BrokerConfig
    from brokerd.environment import Network
    from mqwire.command import RemotingCommand

logger = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES: Final = 512 * 1024
# Of a peer that has not shown an account the kernel holds, and one turn takes of a large frame, this much: where hundreds send
# frames of megabytes, their memory for TCP is under pressure otherwise, the kernel drops what has come, and a good client waits.
_UNPROVEN_WINDOW_BYTES: Final = 64 * 1024
# What is held for a record of TLS of which a part is here, however small.
_OPEN_RECORD_BYTES: Final = 32 * 1024
# A first request is smaller as a rule. Hundreds of requests in one bite would be a stranger's to wait here.
_STRANGERS_BITE_BYTES: Final = 4 * 1024
# Of peers with an account, bites are small while so much that was read waits for its turn.
_WAITING_BYTES: Final = 32 * 1024 * 1024
_SMALL_BITE_BYTES: Final = 16 * 1024
# Decoded at once: commands take many times the memory of their bytes, so those that are not served in a turn stay bytes.
_COMMANDS_PER_TURN: Final = 128
_PROVEN_WINDOW_BYTES: Final = 1 << 30  # the kernel's own limits hold
# Room for a header beside the largest body that maxMessageSize lets through.
_FRAME_MARGIN_BYTES: Final = 128 * 1024
# Properties of 32 KiB, in a JSON header where each byte may be escaped, and room for the other fields.
_MAX_HEADER_BYTES: Final = 256 * 1024
# An unproven peer shows within this time that it has an account; RocketMQ's clients do so with their first request.
_UNPROVEN_IDLE_S: Final = 10.0
# Someone who drips a frame (slowloris) is cut after this long, someone on a slow line who delivers is not.
_PARTIAL_FRAME_TIMEOUT_S: Final = 15.0
_PARTIAL_FRAME_BYTES_PER_S: Final = 64 * 1024
_SWEEP_PERIOD_S: Final = 2.5
_ACCEPTS_PER_TURN: Final = 8
_ACCEPT_PAUSE_S: Final = 0.1
# A busy client has sent more while its requests were served: looking at once is cheaper than waiting for the event. But the
# other connections are served after so many looks, or after this long and one chunk.
_TURNS: Final = 8
_TURN_S: Final = 0.002


class Service(Protocol):
    """What is served."""

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        """Serve commands of a connection; returns how many of them: the others wait for its next turn."""

    def pause_s(self, peer: Peer, code: int) -> float:
        """How long a command of this code that was not served has to wait for its turn, in seconds."""

    def peer_closed(self, peer: Peer) -> None:
        """A connection ended."""


class Server:
    """Listens and serves until cancelled."""

    def __init__(self, config: BrokerConfig, network: Network) -> None:
        self._config = config
        self._network = NetworkCut.of(network)
        self._network.on_cut(self._silence)
        self._tls = ServerTls(config)
        self._admission = Admission(connections_max(raise_descriptor_limit()))
        self._service: Service | None = None
        self._buffer = bytearray(_RECEIVE_BUFFER_BYTES)
        self._resting = Rows(trio.StrictFIFOLock)
        self._strangers_turn = trio.StrictFIFOLock()
        self._shares = Shares(trio.StrictFIFOLock, trio.lowlevel.checkpoint)
        self._strangers_log = StrangersLog(logger, lambda: trio.current_time() * 1000)
        self._waiting_bytes = 0  # read of peers with an account, and not served yet
        self._listener: socket.socket | None = None
        self._ha_listener: socket.socket | None = None

    @property
    def peers(self) -> frozenset[Peer]:
        """Everyone who is connected."""
        return frozenset(self._admission.peers)

    @property
    def address(self) -> str:
        """Where it listens, as ip:port."""
        if self._listener is None:
            raise RuntimeError("listen() comes first")
        ip, port = self._listener.getsockname()[:2]
        return f"{ip}:{port}"

    def listen(self) -> tuple[str, int]:
        """Bind the listening sockets; returns the first one's address. Raises OSError when one is taken."""
        config = self._config
        listener = self.bound(config.listen_port)
        if config.ha_listen_port not in (0, config.listen_port):
            # The same service on another port: replicas may be kept apart from clients by a firewall.
            try:
                self._ha_listener = self.bound(config.ha_listen_port)
            except OSError:
                listener.close()
                raise
        self._listener = listener
        address = listener.getsockname()
        return address[0], address[1]

    def bound(self, port: int) -> socket.socket:
        """A listening socket on bindAddress; raises OSError when the port is taken."""
        config = self._config
        return self._network.listen(config.bind_address, port, config.server_socket_backlog)

    async def run(self, service: Service, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled; every connection ends with it."""
        listener = self._listener
        if listener is None:
            raise RuntimeError("listen() comes first")
        self._service = service
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._sweep)
                task_status.started()
                if self._ha_listener is not None:
                    nursery.start_soon(self.accept, self._ha_listener, nursery)
                await self.accept(listener, nursery)
        finally:
            self.stop_listening()
            for peer in list(self._admission.peers):
                peer.close()

    def stop_listening(self) -> None:
        """Take no new connections; those that are there go on."""
        for listener in (self._listener, self._ha_listener):
            if listener is not None and listener.fileno() >= 0:
                trio.lowlevel.notify_closing(listener)
                listener.close()

    async def accept(self, listener: socket.socket, nursery: trio.Nursery, peers: set[Peer] | None = None) -> None:
        """Serve who connects there until the listener is closed, while `run` runs; `peers` is kept to be who is connected
        that way.
        """
        service = self._service
        if service is None:
            raise RuntimeError("run() comes first")
        while True:
            try:
                await trio.lowlevel.wait_readable(listener)
                await self._network.healed()
                # Several at a time: in the queue of the kernel a client would wait for one turn of all other peers each.
                for _ in range(_ACCEPTS_PER_TURN):
                    sock, _address = listener.accept()
                    self._admit(sock, service, nursery, peers)
            except (BlockingIOError, ConnectionError):
                continue
            except trio.ClosedResourceError:
                return
            except OSError as error:
                if listener.fileno() < 0:
                    return
                logger.warning("cannot accept a connection: %s", error)  # out of file descriptors, mostly
                await trio.sleep(_ACCEPT_PAUSE_S)

    def _admit(self, sock: socket.socket, service: Service, nursery: trio.Nursery, peers: set[Peer] | None) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _UNPROVEN_WINDOW_BYTES)
            peer = Peer(sock, nursery)
        except OSError:  # it has gone already
            sock.close()
            return
        peer.connected_s = peer.last_read_s = trio.current_time()
        leaving = self._admission.admit(peer)
        if leaving is not None:
            self._strangers_log.warning(
                leaving.network,
                "%r: closing it, %d connections are open and it has shown no account",
                *(leaving, len(self._admission.peers)),
            )
            leaving.close()
            if leaving is peer:
                return
        if peers is not None:
            peers.add(peer)
        nursery.start_soon(self._serve, service, peer, peers)

    def _silence(self) -> list[Callable[[], None]]:
        return [peer.socket.close for peer in list(self._admission.peers) if peer.end_silently()]

    async def _serve(self, service: Service, peer: Peer, peers: set[Peer] | None) -> None:
        connection = Connection(
            max_frame_bytes=self._config.max_message_size_bytes + _FRAME_MARGIN_BYTES,
            max_header_bytes=_MAX_HEADER_BYTES,
        )
        try:
            if self._tls.is_offered and not peer.closed:  # as one that has made room for another before its turn came
                # The peer's before the handshake, so that closing a peer to make room for another frees its descriptor at once.
                peer.socket = await self._tls.accept(peer.socket)
                if isinstance(peer.socket, TlsSocket):
                    await peer.socket.handshake(self._shares.of_stranger(peer.network))
                    peer.has_certificate = peer.socket.has_certificate
            await self._read(service, peer, connection)
        except (OSError, trio.ClosedResourceError) as error:
            logger.debug("%r: %s", peer, error)
        except RemoteProtocolError as error:
            line = "%r: closing, it does not speak the remoting protocol: %s"
            self._strangers_log.warning(peer.network, line, peer, error)
        except Exception:
            # A fault of ours costs this peer its connection, not everyone the broker.
            logger.exception("%r: closing after an error of this program", peer)
        finally:
            began_s = trio.current_time()
            self._admission.leave(peer)
            if peers is not None:
                peers.discard(peer)
            peer.close()
            service.peer_closed(peer)
            # Thousands of the same people may end in one turn of the loop: the others of them wait for their next.
            self._share_of(peer).spend(trio.current_time() - began_s)

    async def _read(self, service: Service, peer: Peer, connection: Connection) -> None:
        sock = peer.socket
        share = self._share_of(peer)
        buffer = memoryview(self._buffer)
        wait_readable = trio.lowlevel.wait_readable
        pending = sock.pending if isinstance(sock, TlsSocket) else None
        partial_since_s: float | None = None  # when the unfinished frame began to arrive
        turns, turn_since_s = 0, 0.0  # since the other connections had theirs
        is_window_open = False
        while not peer.closed:
            if turns == 0:
                if pending is not None and pending():  # decrypted already: the socket itself may stay silent
                    await trio.lowlevel.checkpoint()
                else:
                    await wait_readable(sock)
            if peer.proven:
                await share.turn()
            else:
                await self._strangers_turn_of(peer, share)
            await self._network.begun()
            began_s = trio.current_time()
            try:
                count = sock.recv_into(buffer[: self._bite_bytes(peer)])
            except BlockingIOError:
                turns = 0
                if pending is not None and not peer.proven:  # a part of a record is here
                    self._count_unfinished(peer, max(connection.buffered_bytes, _OPEN_RECORD_BYTES))
                continue
            if count == 0:
                return
            peer.last_read_s = began_s
            if turns == 0:
                turn_since_s = began_s
            turns = (turns + 1) % _TURNS
            connection.receive_data(buffer[:count])
            is_served, left_code = self._serve_some(service, peer, connection)
            share.spend(trio.current_time() - began_s)
            if peer.proven and not is_window_open:
                is_window_open = True
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, _PROVEN_WINDOW_BYTES)
                share = self._share_of(peer)
            if connection.has_more:
                await self._serve_the_rest(service, peer, connection, share, left_code)
            if peer.pending_bytes:
                await peer.wait_until_read()
            unfinished = connection.buffered_bytes
            if not unfinished:
                partial_since_s = None
                peer.partial_deadline_s = math.inf
                if peer.unfinished_bytes:
                    self._admission.count_unfinished(peer, 0)
            else:
                if is_served or partial_since_s is None:
                    partial_since_s = peer.last_read_s
                peer.partial_deadline_s = (
                    partial_since_s + _PARTIAL_FRAME_TIMEOUT_S + unfinished / _PARTIAL_FRAME_BYTES_PER_S
                )
                self._count_unfinished(peer, unfinished)
            if trio.current_time() - turn_since_s > _TURN_S:
                turns = 0

    async def _strangers_turn_of(self, peer: Peer, share: AnyShare) -> None:
        """Wait for the turn of one that has shown no account. What its first request waits here is no time of its own."""
        if not peer.has_been_served:
            peer.awaits_since_s = trio.current_time()
        try:
            if peer.unfinished_bytes:
                # One of them in a turn of the loop: the large frames of hundreds would hold up everyone for as long as it takes
                # to read from each. A request that proves an account is small as a rule, and one read takes it.
                async with self._strangers_turn:
                    await trio.lowlevel.checkpoint()
            await share.turn()
        finally:
            if not peer.has_been_served:
                peer.connected_s += trio.current_time() - peer.awaits_since_s
                peer.awaits_since_s = math.inf

    def _share_of(self, peer: Peer) -> AnyShare:
        if not peer.proven:
            return self._shares.of_stranger(peer.network)
        # Without access control no one knows who has several connections: each has turns of its own.
        return self._shares.of_account(peer.access_key or repr(peer))

    def _bite_bytes(self, peer: Peer) -> int:
        """How much is read at once."""
        if peer.proven:
            return _RECEIVE_BUFFER_BYTES if self._waiting_bytes < _WAITING_BYTES else _SMALL_BITE_BYTES
        return _UNPROVEN_WINDOW_BYTES if peer.unfinished_bytes else _STRANGERS_BITE_BYTES

    @staticmethod
    def _serve_some(service: Service, peer: Peer, connection: Connection) -> tuple[bool, int | None]:
        """Serve what one turn serves of what has arrived. Returns whether that was anything, and the code of the first command
        that was not served.
        """
        commands = connection.look(_COMMANDS_PER_TURN)
        if not commands:
            return False, None
        served = service.dispatch(peer, commands)
        peer.has_been_served = True
        peer.flush()
        connection.take(served)
        return True, commands[served].code if served < len(commands) else None

    async def _serve_the_rest(
        self, service: Service, peer: Peer, connection: Connection, share: AnyShare, left_code: int | None
    ) -> None:
        """Serve what is left of what was read, in turns with the other connections."""
        held_bytes = connection.buffered_bytes
        if held_bytes > _RECEIVE_BUFFER_BYTES:  # a large frame, and one behind it
            self._count_unfinished(peer, held_bytes)
        self._waiting_bytes += held_bytes
        try:
            while connection.has_more and not peer.closed:
                await trio.lowlevel.checkpoint()
                await peer.wait_until_read()
                if left_code is not None and service.pause_s(peer, left_code):
                    left_code = await self._serve_after_rest(service, peer, connection, left_code)
                else:
                    await share.turn()
                    if peer.closed:
                        return
                    began_s = trio.current_time()
                    left_code = self._serve_some(service, peer, connection)[1]
                    share.spend(trio.current_time() - began_s)
        finally:
            self._waiting_bytes -= held_bytes

    async def _serve_after_rest(
        self, service: Service, peer: Peer, connection: Connection, left_code: int
    ) -> int | None:
        """Serve some once the others of its kind have rested: one connection after the other, of each account in turn."""
        peer.awaits_since_s = trio.current_time()
        try:
            async with self._resting.turn(peer.access_key or repr(peer)):
                await trio.sleep(service.pause_s(peer, left_code))
                return None if peer.closed else self._serve_some(service, peer, connection)[1]
        finally:
            peer.awaits_since_s = math.inf
            peer.last_read_s = trio.current_time()

    def _count_unfinished(self, peer: Peer, size_bytes: int) -> None:
        """It holds so much that no request is made of yet. Where that is too much, someone is ended."""
        leaving = self._admission.count_unfinished(peer, size_bytes)
        if leaving is not None:
            line = "%r: closing, unfinished frames hold too much memory"
            self._strangers_log.warning(leaving.network, line, leaving)
            self._admission.leave(leaving)
            leaving.close()

    async def _sweep(self) -> None:
        idle_s = float(self._config.server_channel_max_idle_time_seconds)
        log = self._strangers_log
        while True:
            await trio.sleep(_SWEEP_PERIOD_S)
            swept_s = trio.current_time()
            for peer in list(self._admission.peers):
                now_s = min(swept_s, peer.awaits_since_s)
                if now_s > peer.partial_deadline_s:
                    log.warning(peer.network, "%r: closing, a frame has been incomplete for too long", peer)
                    peer.close()
                elif not peer.proven and self._config.acl_enable and now_s > self._unproven_until_s(peer):
                    lasted_s = now_s - peer.connected_s
                    log.info(peer.network, "%r: closing, it has shown no account for %.1f s", peer, lasted_s)
                    peer.close()
                elif now_s - peer.last_read_s > idle_s and not peer.pending_bytes:
                    logger.info("%r: closing, it has been silent for %g s", peer, idle_s)
                    peer.close()

    @staticmethod
    def _unproven_until_s(peer: Peer) -> float:
        """When it must have shown an account: later where a large first request is on its way and arrives fast enough."""
        return peer.connected_s + _UNPROVEN_IDLE_S + peer.unfinished_bytes / _PARTIAL_FRAME_BYTES_PER_S
