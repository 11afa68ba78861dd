"""How much of what a peer sends the kernel holds, and one turn takes: little, until the peer has shown an account."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from brokerd.config import BrokerConfig
from brokerd.environment import OsNetwork
from brokerd.peer import Peer
from brokerd.server import Server
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection

FRAME = RemotingCommand.request(RequestCode.HEART_BEAT).encode()


class Doorkeeper:
    """Takes the place of the dispatcher: notes the window at each request, and takes the second one for proof of an account."""

    def __init__(self) -> None:
        self.windows_bytes: list[int] = []

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        assert isinstance(peer.socket, socket.socket)
        self.windows_bytes.append(peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP))
        peer.proven = len(self.windows_bytes) >= 2
        return len(commands)

    def pause_s(self, peer: Peer, code: int) -> float:
        return 0.0

    def peer_closed(self, peer: Peer) -> None:
        """Nothing is kept of it."""


@pytest.mark.trio
async def test_the_window_of_a_peer_opens_when_it_has_shown_an_account() -> None:
    keeper = Doorkeeper()
    server = Server(BrokerConfig(bind_address="127.0.0.1", listen_port=0, ha_listen_port=0), OsNetwork())
    address = server.listen()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, keeper)
            with socket.create_connection(address) as client:
                for requests in (1, 2, 3):
                    client.sendall(FRAME)
                    while len(keeper.windows_bytes) < requests:
                        await trio.lowlevel.checkpoint()
                        await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    stranger, prover, proven = keeper.windows_bytes
    assert stranger == prover == 64 * 1024
    assert proven > 1024 * 1024


class Idler(Doorkeeper):
    """Takes requests for served, and proves nothing by them."""

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        return len(commands)


class NotingSocket:
    """A socket that notes how much each read asks for."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.asked_bytes: list[int] = []
        self.fileno = sock.fileno
        self.getpeername = sock.getpeername
        self.getsockopt = sock.getsockopt
        self.setsockopt = sock.setsockopt
        self.close = sock.close

    def recv_into(self, buffer: memoryview) -> int:
        count = self._sock.recv_into(buffer)
        self.asked_bytes.append(len(buffer))
        return count


async def reads_of(sent: Sequence[bytes], *, proven: bool, waiting_bytes: int = 0) -> list[int]:
    """How much is asked for by the reads that take these, one after the other."""
    server = Server(BrokerConfig(), OsNetwork())
    server._waiting_bytes = waiting_bytes
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        theirs, _ = listener.accept()
        theirs.setblocking(False)
        noting: Any = NotingSocket(theirs)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                peer = Peer(noting, nursery)
                peer.proven = proven
                nursery.start_soon(server._read, Idler(), peer, Connection())
                for number, data in enumerate(sent, 1):
                    client.sendall(data)
                    while len(noting.asked_bytes) < number:
                        await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        peer.close()
    asked: list[int] = noting.asked_bytes
    return asked[: len(sent)]


LARGE = RemotingCommand.request(RequestCode.HEART_BEAT, body=bytes(8 * 1024)).encode()
KIBIBYTE = 1024


@pytest.mark.trio
async def test_a_stranger_is_read_from_in_small_bites_but_for_the_rest_of_a_frame() -> None:
    bites = await reads_of([FRAME, LARGE[:2000], LARGE[2000:]], proven=False)
    assert bites == [4 * KIBIBYTE, 4 * KIBIBYTE, 64 * KIBIBYTE]


@pytest.mark.trio
async def test_a_known_client_is_read_from_in_large_bites_unless_much_waits_to_be_served() -> None:
    assert await reads_of([FRAME], proven=True) == [512 * KIBIBYTE]
    assert await reads_of([FRAME], proven=True, waiting_bytes=32 * KIBIBYTE * KIBIBYTE) == [16 * KIBIBYTE]
