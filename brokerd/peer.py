"""One connected program: its address, and the bytes that wait to be written to it.

Writes never wait: `flush` hands the operating system what it takes, and only a peer that reads too slowly costs a task
of its own until it has caught up. That lets any part of the broker (a reader, the flush service, a long poll) answer.
"""

from __future__ import annotations

import itertools
import logging
import math
import socket
from typing import TYPE_CHECKING, Final

import trio

from mqwire.addresses import network_of
from mqwire.message import pack_host

if TYPE_CHECKING:
    from brokerd.acl_file import Account
    from brokerd.tls import TlsSocket
    from mqwire.command import RemotingCommand

logger = logging.getLogger(__name__)

# A reader stops taking requests from a peer that has this much unread...
PAUSE_READING_BYTES: Final = 4 * 1024 * 1024
# ...and from one that has shown no account much earlier: all that it gets are refusals.
PAUSE_STRANGER_BYTES: Final = 16 * 1024
# ...and answers that come from elsewhere (long polls, notifications) end a connection that lets this much pile up.
DISCONNECT_BYTES: Final = 32 * 1024 * 1024
# All peers together may leave this much unread; beyond it, who has read nothing for longest goes.
TOTAL_UNREAD_BYTES: Final = 64 * 1024 * 1024
# The kernel takes no more in one call anyway; joining more would only copy.
_WRITE_CHUNK_BYTES: Final = 1024 * 1024

_ids = itertools.count(1)


class Unread:
    """What this process holds for peers that have not read it yet."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._bytes: dict[Peer, int] = {}  # who has read nothing for longest first

    def count(self, peer: Peer) -> None:
        """The peer has this much unread by now, and has read some of it, or had nothing unread before."""
        self.forget(peer)
        if peer.pending_bytes:
            self._bytes[peer] = peer.pending_bytes
            self.total_bytes += peer.pending_bytes

    def count_more(self, peer: Peer) -> None:
        """The peer has more unread than before."""
        if peer not in self._bytes:
            self.count(peer)
            return
        self.total_bytes += peer.pending_bytes - self._bytes[peer]
        self._bytes[peer] = peer.pending_bytes

    def forget(self, peer: Peer) -> None:
        """The peer has read all, or is gone."""
        self.total_bytes -= self._bytes.pop(peer, 0)

    def make_room(self) -> None:
        """Disconnect those who have read nothing for longest, until what is left is not too much."""
        while self.total_bytes > TOTAL_UNREAD_BYTES:
            peer = next(iter(self._bytes))
            size = self._bytes[peer]
            logger.warning("%r leaves %d bytes unread while all leave too much, disconnecting it", peer, size)
            self.forget(peer)
            peer.close()


unread = Unread()


class Peer:
    """A connection as the broker's parts see it."""

    __slots__ = (
        "_nursery",
        "_pending",
        "_taken",
        "_writing",
        "access_key",
        "awaits_since_s",
        "checked_for",
        "closed",
        "connected_s",
        "has_been_served",
        "has_certificate",
        "id",
        "is_platform",
        "last_read_s",
        "network",
        "partial_deadline_s",
        "pending_bytes",
        "proven",
        "proven_frames",
        "remote_address",
        "remote_host",
        "socket",
        "unfinished_bytes",
    )

    def __init__(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        self.id = next(_ids)
        self.socket: socket.socket | TlsSocket = sock
        address = sock.getpeername()
        ip = address[0].partition("%")[0]
        if ip.startswith("::ffff:"):  # an IPv4 client on a dual-stack socket
            ip = ip[7:]
        self.network = network_of(ip)  # where it counts while it is a stranger's
        self.remote_address: tuple[str, int] = (ip, address[1])
        self.remote_host = pack_host(ip, address[1])
        self.closed = False
        self.connected_s = 0.0  # later by what its first request has waited for others
        self.last_read_s = 0.0
        self.partial_deadline_s = math.inf  # when the frame that is arriving must be complete
        self.pending_bytes = 0
        self.proven = False  # a request of its was served that only an account may make
        self.access_key = ""  # which it showed first
        self.is_platform = False  # it is the infrastructure's, a replica or the control plane
        self.checked_for: Account | None = None  # whose the request was, checked already, that waits first here
        self.has_been_served = False  # it has had an answer, and be it a refusal
        self.awaits_since_s = math.inf  # what it has sent waits since then for others here, by no fault of its own
        self.has_certificate = False  # it showed one of the CA that tls.server.trustCertPath names
        self.proven_frames = False  # whether unfinished_bytes count among the proven peers'
        self.unfinished_bytes = 0  # of the frame that is arriving
        self._pending: list[bytes] = []
        self._taken: trio.Event | None = None  # set when the peer has taken more
        self._writing = False
        self._nursery = nursery

    def __repr__(self) -> str:
        return f"<Peer {self.id} {self.remote_address[0]}:{self.remote_address[1]}>"

    def send(self, command: RemotingCommand) -> None:
        """Write one command soon; for answers and notifications that no reader is about to flush."""
        self.write(command.encode())
        self.flush()

    def write(self, data: bytes) -> None:
        """Queue bytes for the next `flush`."""
        if not self.closed:
            self._pending.append(data)
            self.pending_bytes += len(data)

    def flush(self) -> None:
        """Give the kernel what it takes now; the rest goes out as the peer reads."""
        if self.closed or not self._pending:
            return
        if self._writing:
            unread.count_more(self)
            unread.make_room()
            return
        while self._pending:
            data = self._take()
            try:
                sent = self.socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            self.pending_bytes -= sent
            if sent < len(data):
                self._pending.insert(0, data[sent:])
                if self.pending_bytes > DISCONNECT_BYTES:
                    logger.warning("%r leaves %d bytes unread, disconnecting it", self, self.pending_bytes)
                    self.close()
                    return
                unread.count(self)
                unread.make_room()
                if self.closed:
                    return
                self._writing = True
                self._nursery.start_soon(self._write_as_the_peer_reads)
                return

    def _take(self) -> bytes:
        pending = self._pending
        if len(pending) == 1:
            return pending.pop()
        size = count = 0
        while count < len(pending) and size < _WRITE_CHUNK_BYTES:
            size += len(pending[count])
            count += 1
        data = b"".join(pending[:count])
        del pending[:count]
        return data

    async def _write_as_the_peer_reads(self) -> None:
        try:
            while self._pending and not self.closed:
                await trio.lowlevel.wait_writable(self.socket)
                data = self._take()
                try:
                    sent = self.socket.send(data)
                except BlockingIOError:
                    sent = 0
                self.pending_bytes -= sent
                if sent < len(data):
                    self._pending.insert(0, data[sent:])
                if sent:
                    unread.count(self)
                self._wake_reader()
        except (OSError, trio.ClosedResourceError):
            self.close()
        finally:
            self._writing = False
            self._wake_reader()

    async def wait_until_read(self) -> None:
        """Hold a reader back until its peer has taken most of what waits for it."""
        while self.pending_bytes > (PAUSE_READING_BYTES if self.proven else PAUSE_STRANGER_BYTES) and not self.closed:
            self.flush()
            if self._writing:
                # Not the socket itself: only one task may wait for it, and that is the writer.
                self._taken = trio.Event()
                await self._taken.wait()

    def _wake_reader(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.set()

    def close(self) -> None:
        """End the connection; its reader notices and cleans up."""
        if self.end_silently():
            self.socket.close()

    def close_soon(self) -> None:
        """End the connection once the request that is being served is answered: it may be this peer's."""
        self._nursery.start_soon(self._close_later)

    async def _close_later(self) -> None:
        self.close()

    def end_silently(self) -> bool:
        """End the connection here and leave its socket open, so that the other end does not notice; False: it had ended."""
        if self.closed:
            return False
        self.closed = True
        self._pending.clear()
        self.pending_bytes = 0
        unread.forget(self)
        self._wake_reader()
        trio.lowlevel.notify_closing(self.socket)
        return True
