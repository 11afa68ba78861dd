"""The name server's sockets: accept, read, decode all, process, answer in one send.

Resource handling: a peer that no one knows may send frames of 64 KiB; a broker's first registration may be larger. All frames
of strangers that are under way share two allowances, one for the small and one for the larger. Who drips a frame, or
doesn't read its answers, is cut off.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import resource
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from mqwire.acl import ACCESS_KEY
from mqwire.addresses import network_of
from mqwire.codes import ResponseCode
from mqwire.connection import Connection
from mqwire.errors import RemoteProtocolError
from mqwire.held_frames import HeldFrames
from mqwire.strangers_log import StrangersLog
from mqwire.tls import FIRST_BYTE, ClientAuth, ReloadedContext, TlsConfigError, TlsFiles, TlsMode, server_context
from mqwire.tls_connection import Connected, TlsConnection
from mqwire.turns import AnyShare, Shares
from namesrvd.acl import Accounts, AclConfigError
from namesrvd.kv_config import KVConfigManager, write_durably
from namesrvd.processor import Outcome, Processor
from namesrvd.route_info import RouteInfoManager

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mqwire.command import RemotingCommand
    from namesrvd.config import NamesrvConfig

logger = logging.getLogger(__name__)

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_HEADER_BYTES: Final = 64 * 1024
# What a peer may have under way, and all strangers together in such frames; most requests come whole, and count nothing.
UNTRUSTED_FRAME_BYTES: Final = 64 * 1024
UNTRUSTED_SMALL_FRAMES_BYTES: Final = 16 * 1024 * 1024
# And in larger frames: a few large brokers that register for the first time, for whom the small ones leave room.
UNTRUSTED_LARGE_FRAMES_BYTES: Final = 48 * 1024 * 1024
# What is held for a record of TLS of which a part is here, however small.
OPEN_RECORD_BYTES: Final = 32 * 1024
# A broker on a slow line that delivers is given longer than the frame timeout.
_FRAME_BYTES_PER_S: Final = 64 * 1024
_RECEIVE_BYTES: Final = 64 * 1024
# A stranger's requests are small. Hundreds of them in one bite would be the stranger's to wait here.
_STRANGERS_BITE_BYTES: Final = 4 * 1024
# Answers are sent together, but not more of them than this at once are held.
_SEND_BYTES: Final = 256 * 1024
# All answers that are not read yet; beyond it, who has read nothing for longest goes.
UNREAD_MAX_BYTES: Final = 48 * 1024 * 1024
# Others get their turn after this many requests of one peer.
_REQUESTS_PER_TURN: Final = 64

_ACCEPTS_PER_TURN: Final = 8
_ACCEPT_PAUSE_S: Final = 0.1

_RESERVED_DESCRIPTORS: Final = 64
# One address may be a whole company's. Who shows an account with its first request is not counted.
UNPROVEN_PER_ADDRESS_MAX: Final = 1_024
# Stock clients, the SDK and brokers sign their first request already.
UNPROVEN_IDLE_S: Final = 10.0
_HANDSHAKE_TIMEOUT_S: Final = 10.0
# Each takes about 100 KiB; a client is through in two steps.
HANDSHAKES_MAX: Final = 256

_ids = itertools.count(1)


def _raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard one; returns how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _tls_of(config: NamesrvConfig) -> ReloadedContext | None:
    if config.tls_server_mode == TlsMode.ENFORCING.value and not config.tls_server_cert_path:
        raise TlsConfigError("tls.server.mode=enforcing needs a certificate: name its file in tls.server.certPath")
    if not config.tls_server_cert_path or config.tls_server_mode == TlsMode.DISABLED.value:
        return None
    files = TlsFiles(
        config.tls_server_cert_path,
        config.tls_server_key_path,
        config.tls_server_trust_cert_path,
        config.tls_server_key_password,
    )
    auth = ClientAuth(config.tls_server_need_client_auth)
    return ReloadedContext(files, lambda files: server_context(files, auth))


class _Turns:
    """A socket whose reader waits for its turn unless it is trusted: hundreds would hold up everyone for as long as it takes to
    serve each. Strangers have one turn for all of them, and so have the connections of an account. Of those that are in the
    middle of a frame one is read from in a turn of the loop.
    """

    def __init__(self, accepted: socket.socket, turn: trio.StrictFIFOLock, share: AnyShare) -> None:
        self._socket = accepted
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(accepted))
        self._turn = turn
        self._share: AnyShare | None = share
        self._read_s = math.inf
        self.in_frame = False  # of a stranger's

    def prove(self, share: AnyShare) -> None:
        """It is no stranger's, but has these turns."""
        self._spend()
        self._share = share

    def trust(self) -> None:
        """It waits for no turn."""
        self._share = None

    async def turn(self) -> None:
        """Wait for the next turn."""
        if self._share is not None:
            self._spend()
            await self._share.turn()
            self._read_s = trio.current_time()

    def _spend(self) -> None:
        """Count as spent what has passed since it was read from: nothing waits between that and its answer, nor in a handshake."""
        if self._share is not None:
            now_s = trio.current_time()
            self._share.spend(max(0.0, now_s - self._read_s))
            self._read_s = math.inf

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        self._spend()
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            if self._share is not None:
                if self.in_frame:
                    async with self._turn:
                        await trio.lowlevel.checkpoint()
                await self._share.turn()
            # Not by trio, which lets others run before it returns: all of those would have their turns at once then.
            with contextlib.suppress(BlockingIOError):
                data = self._socket.recv(max_bytes)
                self._read_s = trio.current_time()
                return data

    async def send_all(self, data: bytes) -> None:
        self._spend()
        await self._stream.send_all(data)

    def close(self) -> None:
        self._stream.socket.close()  # and not self._socket's: a task that waits for it is to learn of it


class Peer:
    """One connection. Equal only to itself, so it can stand for the channel in the registry."""

    __slots__ = (
        "_name",
        "connection",
        "has_certificate",
        "host",
        "partial_since_s",
        "proven",
        "record_bytes",
        "scope",
        "socket_stream",
        "stream",
        "tls",
        "trusted",
        "unfinished_bytes",
        "waiting",
    )

    def __init__(self, accepted: socket.socket, strangers_turn: trio.StrictFIFOLock, shares: Shares) -> None:
        address = accepted.getpeername()
        self.host = network_of(address[0])  # where it counts among strangers
        self.socket_stream = _Turns(accepted, strangers_turn, shares.of_stranger(self.host))
        self.stream: Connected = self.socket_stream
        self.tls: TlsConnection | None = None  # the stream, where it is one
        self.scope = trio.CancelScope()
        self.connection = Connection(max_frame_bytes=MAX_FRAME_BYTES, max_header_bytes=MAX_HEADER_BYTES)
        self.proven = False  # it has shown an account; without access control: it was served a request
        self.trusted = False
        self.has_certificate = False  # of the CA that tls.server.trustCertPath names
        self.unfinished_bytes = 0  # of a frame of a stranger's, and of a record
        self.record_bytes = 0  # held for a record of TLS of which a part is here
        self.waiting = trio.CancelScope()  # for what it sends next
        self.partial_since_s: float | None = None
        self._name = f"{address[0]}:{address[1]}#{next(_ids)}"

    def __repr__(self) -> str:
        return self._name


@dataclass(slots=True)
class _Answers:
    """The answers of one wake-up that are not sent yet."""

    replies: list[RemotingCommand] = field(default_factory=list)
    changing_kv: list[RemotingCommand] = field(default_factory=list)
    kv_changed: bool = False
    size_bytes: int = 0  # about

    def add(self, outcome: Outcome) -> None:
        if outcome.reply is not None:
            self.replies.append(outcome.reply)
            self.size_bytes += len(outcome.reply.body) + len(outcome.reply.remark or "")
            self.size_bytes += sum(map(len, outcome.reply.ext_fields.values()))
        if outcome.kv_changed:
            self.kv_changed = True
            if outcome.reply is not None:
                self.changing_kv.append(outcome.reply)


class Server:
    """Listens and serves until cancelled."""

    def __init__(
        self,
        config: NamesrvConfig,
        processor: Processor,
        route_info: RouteInfoManager,
        kv_config: KVConfigManager,
        accounts: Accounts | None,
    ) -> None:
        self._config = config
        self._processor = processor
        self._routes = route_info
        self._kv = kv_config
        self._accounts = accounts
        self._kv_lock = trio.Lock()
        self._strangers_turn = trio.StrictFIFOLock()
        self._shares = Shares(trio.StrictFIFOLock, trio.lowlevel.checkpoint)
        self._strangers_log = StrangersLog(logger, monotonic_ms)
        self._unread_bytes: dict[Peer, int] = {}  # of answers; who has read nothing for longest first
        self._all_unread_bytes = 0
        self._peers: set[Peer] = set()
        self._by_host: dict[str, dict[Peer, None]] = {}  # in the order in which they came
        self._unproven: dict[str, dict[Peer, None]] = {}  # of those, by host and in that order, too
        self._places = min(config.max_connections, _raise_descriptor_limit() - _RESERVED_DESCRIPTORS)
        self._tls = _tls_of(config)
        self._shaking: dict[
            str, dict[Peer, None]
        ] = {}  # who is in a TLS handshake, by address, in the order in which they began
        # Of strangers; whether in frames above UNTRUSTED_FRAME_BYTES.
        self._frames: dict[bool, HeldFrames[Peer]] = {
            False: HeldFrames(UNTRUSTED_SMALL_FRAMES_BYTES),
            True: HeldFrames(UNTRUSTED_LARGE_FRAMES_BYTES),
        }

    async def run(self, *, task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `started` gets the listening address. Raises OSError when it can't be had."""
        with self._bind() as listener:
            address = listener.getsockname()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._scan)
                nursery.start_soon(self._accept, listener, nursery)
                task_status.started((address[0], address[1]))
                await trio.sleep_forever()

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery) -> None:
        """Several at a time: in the queue of the kernel a client would wait for one look of ours at all other peers each."""
        while True:
            await trio.lowlevel.wait_readable(listener)
            for _ in range(_ACCEPTS_PER_TURN):
                try:
                    accepted, _address = listener.accept()
                except (BlockingIOError, ConnectionError):  # none is left, or one has gone again
                    break
                except OSError as error:
                    logger.warning("cannot accept a connection: %s", error)  # out of file descriptors, mostly
                    await trio.sleep(_ACCEPT_PAUSE_S)
                    break
                nursery.start_soon(self._serve, accepted)

    def _bind(self) -> socket.socket:
        config = self._config
        family = socket.AF_INET6 if ":" in config.bind_address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((config.bind_address, config.listen_port))
            listener.listen(config.server_socket_backlog)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        return listener

    async def _scan(self) -> None:
        while True:
            await trio.sleep(self._config.scan_not_active_broker_interval_ms / 1000)
            for channel in self._routes.scan_not_active_brokers():
                if isinstance(channel, Peer):
                    channel.scope.cancel()
            if self._accounts is not None:
                try:
                    if self._accounts.refresh():
                        logger.info("the accounts have changed and were read again")
                except AclConfigError as error:
                    logger.error("the accounts stay as they were: %s", error)

    async def _serve(self, accepted: socket.socket) -> None:
        if len(self._peers) >= self._places and not self._make_room():
            accepted.close()
            return
        try:
            peer = Peer(accepted, self._strangers_turn, self._shares)
        except OSError:  # it has gone already
            accepted.close()
            return
        self._admit(peer)
        try:
            with peer.scope:
                if self._tls is not None:
                    await self._secure(peer, accepted, self._tls)
                await self._serve_requests(peer)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            logger.debug("%r: %s", peer, error)
        except RemoteProtocolError as error:
            line = "%r: closing, it does not speak the remoting protocol: %s"
            self._strangers_log.warning(peer.host, line, peer, error)
        except Exception:
            # A fault of ours costs this peer its connection, not everyone the name server.
            logger.exception("%r: closing after an error of this program", peer)
        finally:
            self._account(peer, 0)
            # The one of TLS knows the peer: in a circle, both would wait for the garbage collector.
            peer.stream, peer.tls = peer.socket_stream, None
            self._forget(peer)
            self._routes.on_channel_closed(peer)
            peer.socket_stream.close()

    def _admit(self, peer: Peer) -> None:
        """Give it a place. Where its address has too many that have shown no account, the oldest of those makes room."""
        own = self._unproven.get(peer.host, {})
        if len(own) >= UNPROVEN_PER_ADDRESS_MAX:
            self._close_for_room(next(iter(own)))
        self._peers.add(peer)
        self._by_host.setdefault(peer.host, {})[peer] = None
        self._unproven.setdefault(peer.host, {})[peer] = None

    def _prove(self, peer: Peer, command: RemotingCommand) -> None:
        """This request has shown an account, or there are none."""
        peer.proven = True
        _drop(self._unproven, peer)
        if self._accounts is not None:
            access_key = None if peer.has_certificate else command.ext_fields.get(ACCESS_KEY)
            peer.socket_stream.prove(self._shares.of_account(access_key or repr(peer)))

    def _make_room(self) -> bool:
        """Close a connection that is no broker's, the oldest of the address that has most: one host can't take all places.
        One that has shown an account stays while another has not.

        Returns whether there was one. A client that is closed opens another connection when it needs one.
        """
        for by_host in (self._unproven, self._by_host):
            for own in sorted(by_host.values(), key=len, reverse=True):
                for peer in own:
                    if not peer.trusted:
                        self._close_for_room(peer)
                        return True
        logger.warning("a connection is refused: all %d are those of brokers", len(self._peers))
        return False

    def _forget(self, peer: Peer) -> None:
        """Free the connection's place; harmless when done twice."""
        self._peers.discard(peer)
        _drop(self._by_host, peer)
        _drop(self._unproven, peer)

    def _close_for_room(self, peer: Peer) -> None:
        line = "%r: closing it, %d connections are open"
        self._strangers_log.warning(peer.host, line, peer, len(self._peers))
        self._forget(peer)
        peer.scope.cancel()

    def _idle_s(self, peer: Peer) -> float:
        """For how long it may be silent."""
        idle_s = float(self._config.server_channel_max_idle_time_seconds)
        return idle_s if peer.proven or self._accounts is None else min(idle_s, UNPROVEN_IDLE_S)

    async def _secure(self, peer: Peer, accepted: socket.socket, tls: ReloadedContext) -> None:
        """Find out by the first byte whether the peer speaks TLS, and come to terms with it."""
        with trio.move_on_after(self._idle_s(peer)) as waiting:
            await trio.lowlevel.wait_readable(accepted)
        if waiting.cancelled_caught:
            raise trio.ClosedResourceError
        first = accepted.recv(1, socket.MSG_PEEK)
        if first != FIRST_BYTE:
            if first and self._config.tls_server_mode == TlsMode.ENFORCING.value:
                raise RemoteProtocolError("plain text, but tls.server.mode is enforcing: connect with TLS")
            return
        await peer.socket_stream.turn()
        with self._in_handshake(peer):
            secured = TlsConnection(
                *(peer.socket_stream, tls.get()), server_side=True, note_record=partial(self._note_record, peer)
            )
            with trio.move_on_after(_HANDSHAKE_TIMEOUT_S) as shaking:
                await secured.handshake()
        if shaking.cancelled_caught:
            raise trio.ClosedResourceError
        peer.stream = peer.tls = secured
        peer.has_certificate = secured.has_certificate

    @contextlib.contextmanager
    def _in_handshake(self, peer: Peer) -> Iterator[None]:
        """One more is in a handshake. Where that is too many, the first of the address that has most is ended."""
        own = self._shaking.setdefault(peer.host, {})
        own[peer] = None
        if sum(map(len, self._shaking.values())) > HANDSHAKES_MAX:
            fullest: dict[Peer, None] = max(self._shaking.values(), key=len)
            leaving = next(iter(fullest))
            line = "%r: closing, too many others are in a TLS handshake, too"
            self._strangers_log.info(leaving.host, line, leaving)
            self._end_handshake(leaving)
            leaving.scope.cancel()
        try:
            yield
        finally:
            self._end_handshake(peer)

    def _end_handshake(self, peer: Peer) -> None:
        """Harmless when done twice."""
        _drop(self._shaking, peer)

    async def _serve_requests(self, peer: Peer) -> None:
        connection = peer.connection
        while data := await self._receive(peer):
            connection.receive_data(data)
            while commands := connection.look(_REQUESTS_PER_TURN):
                connection.take(len(commands))
                await self._process(peer, commands)
                peer.partial_since_s = None
                commands = []  # who waits, or is silent, holds none
                if not connection.has_more:
                    break
                await peer.socket_stream.turn()
            self._check_unfinished_frame(peer, connection.buffered_bytes)

    async def _receive(self, peer: Peer) -> bytes | bytearray:
        """What has arrived; nothing when the peer is gone or has used up its time."""
        now_s = trio.current_time()
        deadline_s = now_s + self._idle_s(peer)
        why = "it has been silent for too long"
        if peer.partial_since_s is not None:
            deadline_s = now_s + self._config.server_channel_max_idle_time_seconds
            patience_s = self._config.frame_read_timeout_ms / 1000
            patience_s += peer.connection.buffered_bytes / _FRAME_BYTES_PER_S
            if peer.partial_since_s + patience_s < deadline_s:
                deadline_s = peer.partial_since_s + patience_s
                why = "a frame has been incomplete for too long"
        if peer.tls is not None and peer.tls.has_more:  # received already: it must not be served for nothing
            await peer.socket_stream.turn()
        with trio.move_on_at(deadline_s) as peer.waiting:
            is_small = not peer.trusted and peer.partial_since_s is None
            return await peer.stream.receive_some(_STRANGERS_BITE_BYTES if is_small else _RECEIVE_BYTES)
        self._strangers_log.info(peer.host, "%r: closing, %s", peer, why)
        return b""

    def _check_unfinished_frame(self, peer: Peer, unfinished_bytes: int) -> None:
        if unfinished_bytes == 0:
            peer.partial_since_s = None
        elif peer.partial_since_s is None:
            peer.partial_since_s = trio.current_time()
        self._check_unfinished(peer, unfinished_bytes)

    def _note_record(self, peer: Peer, is_open: bool) -> None:
        """A part of a record of TLS is here and the rest is waited for, or that is over."""
        peer.record_bytes = OPEN_RECORD_BYTES if is_open else 0
        if is_open:
            patience_s = self._config.frame_read_timeout_ms / 1000
            peer.waiting.deadline = min(peer.waiting.deadline, trio.current_time() + patience_s)
        self._check_unfinished(peer, peer.connection.buffered_bytes)

    def _check_unfinished(self, peer: Peer, frame_bytes: int) -> None:
        leaving = self._account(peer, 0 if peer.trusted else frame_bytes + peer.record_bytes)
        if leaving is None:
            return
        kind = "above" if leaving.unfinished_bytes > UNTRUSTED_FRAME_BYTES else "of at most"
        why = f"an unknown peer sends a frame {kind} {UNTRUSTED_FRAME_BYTES} bytes while others do; try again later"
        if leaving is peer:
            raise RemoteProtocolError(why)
        self._strangers_log.warning(leaving.host, "%r: closing, %s", leaving, why)
        self._account(leaving, 0)
        leaving.scope.cancel()

    def _account(self, peer: Peer, unfinished_bytes: int) -> Peer | None:
        """It has so much of a frame; returns who is to be ended where that is too much of all strangers'."""
        was_large, is_large = (size > UNTRUSTED_FRAME_BYTES for size in (peer.unfinished_bytes, unfinished_bytes))
        if was_large is not is_large:
            self._frames[was_large].count(peer, peer.host, 0)
        peer.unfinished_bytes = unfinished_bytes
        peer.socket_stream.in_frame = unfinished_bytes > 0
        return self._frames[is_large].count(peer, peer.host, unfinished_bytes)

    async def _process(self, peer: Peer, commands: list[RemotingCommand]) -> None:
        answers = _Answers()
        for command in commands:
            outcome = self._processor.process(
                *(peer, command), has_certificate=peer.has_certificate, is_proven=peer.proven
            )
            if outcome is None:
                continue
            if outcome.proven and not peer.proven:
                self._prove(peer, command)
            if outcome.trusted and not peer.trusted:
                peer.trusted = True
                peer.socket_stream.trust()
            answers.add(outcome)
            if answers.size_bytes > _SEND_BYTES:
                await self._send(peer, answers)
                answers = _Answers()
        await self._send(peer, answers)

    async def _send(self, peer: Peer, answers: _Answers) -> None:
        if answers.kv_changed:
            await self._persist_kv_config(answers.changing_kv)
        if not answers.replies:
            return
        data = b"".join([reply.encode() for reply in answers.replies])
        patience_s = self._config.frame_read_timeout_ms / 1000 + len(data) / _FRAME_BYTES_PER_S
        self._count_unread(peer, len(data))
        try:
            with trio.move_on_after(patience_s) as scope:
                await peer.stream.send_all(data)
        finally:
            self._count_unread(peer, 0)
        if scope.cancelled_caught:
            logger.warning("%r: closing, it does not read its answers", peer)
            raise trio.ClosedResourceError

    def _count_unread(self, peer: Peer, size_bytes: int) -> None:
        """So much is about to be sent to it. Where that is too much with what others have not read, end theirs, oldest first."""
        self._all_unread_bytes += size_bytes - self._unread_bytes.pop(peer, 0)
        if size_bytes:
            self._unread_bytes[peer] = size_bytes
        while self._all_unread_bytes > UNREAD_MAX_BYTES and len(self._unread_bytes) > 1:
            slowest = next(iter(self._unread_bytes))
            self._all_unread_bytes -= self._unread_bytes.pop(slowest)
            logger.warning("%r: closing, it does not read its answers while others don't either", slowest)
            slowest.scope.cancel()

    async def _persist_kv_config(self, replies: list[RemotingCommand]) -> None:
        """Write the table before the answers go out; they say so when it can't be written."""
        try:
            async with self._kv_lock:
                await trio.to_thread.run_sync(write_durably, self._config.kv_config_path, self._kv.encode())
        except OSError as error:
            logger.error("%s cannot be written: %s", self._config.kv_config_path, error)
            for reply in replies:
                reply.code = ResponseCode.SYSTEM_ERROR
                reply.remark = f"the KV configuration was changed but cannot be written: {error.strerror or error}"


def _drop(by_host: dict[str, dict[Peer, None]], peer: Peer) -> None:
    """Harmless when it is not there."""
    own = by_host.get(peer.host)
    if own is not None:
        own.pop(peer, None)
        if not own:
            del by_host[peer.host]


def monotonic_ms() -> float:
    """The registry's clock: never set back, in milliseconds, in the current trio run."""
    return math.floor(trio.current_time() * 1000)
