"""How much the kernel holds of what a peer sends: little, until the peer has shown an account."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest
import trio

from brokerd.config import BrokerConfig
from brokerd.environment import OsNetwork
from brokerd.peer import Peer
from brokerd.server import Server
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand

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

    def pause_s(self, command: RemotingCommand) -> float:
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
