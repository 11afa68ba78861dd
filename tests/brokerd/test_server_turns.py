"""A connection that has always more to say is served a few times in a row; then it is the others' turn."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from unittest.mock import Mock

import pytest
import trio
import trio.testing

from brokerd.config import BrokerConfig
from brokerd.environment import OsNetwork
from brokerd.peer import Peer
from brokerd.server import Server
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.turns import SHARE_S, Share, Shares
from tests.noted_turns import turns_noted

FRAME = RemotingCommand.request(RequestCode.HEART_BEAT).encode()
SERVED_MAX = 1000


class EndlessClient:
    """Takes the place of the dispatcher, to send the next request while one is being served."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.served = 0

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        self.served += len(commands)
        if self.served < SERVED_MAX:
            self.socket.sendall(FRAME)
        else:
            self.socket.close()
        return len(commands)

    def pause_s(self, peer: Peer, code: int) -> float:
        return 0.0

    def peer_closed(self, peer: Peer) -> None:
        """Nothing is kept of it."""


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    theirs.setblocking(False)
    return ours, theirs


def test_other_tasks_run_between_the_turns_of_a_connection() -> None:
    # Eight; twice that where the reader is the last in one turn of the loop and the first in the next.
    assert trio.run(_most_turns_in_a_row) <= 16


async def _most_turns_in_a_row() -> int:
    ours, theirs = connected()
    client = EndlessClient(ours)
    config = BrokerConfig()
    seen = [0]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            peer = Peer(theirs, nursery)
            ours.sendall(FRAME)
            nursery.start_soon(Server(config, OsNetwork())._read, client, peer, Connection())
            while client.served < SERVED_MAX:
                await trio.lowlevel.checkpoint()
                seen.append(client.served)
    peer.close()
    return max(later - earlier for earlier, later in itertools.pairwise(seen))


@pytest.mark.trio
async def test_connections_that_wait_are_accepted_together() -> None:
    """One in each turn of the loop, a client would wait in the kernel's queue for as many turns as strangers stand there."""
    server = Server(BrokerConfig(bind_address="127.0.0.1", listen_port=0), OsNetwork())
    host, port = server.listen()
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection((host, port)))
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run, EndlessClient(stack.enter_context(socket.socket())))
            for _ in range(6):  # turns of the loop
                await trio.lowlevel.checkpoint()
            accepted = len(server._admission.peers)
            nursery.cancel_scope.cancel()
    assert accepted == 20


@pytest.mark.trio
async def test_connections_that_end_together_end_in_turns() -> None:
    server = Server(BrokerConfig(bind_address="127.0.0.1", listen_port=0), OsNetwork())
    ended = [0]

    def end(_peer: Peer) -> None:
        ended[-1] += 1
        time.sleep(2 * SHARE_S)  # as one does that leaves a thousand groups

    host, port = server.listen()
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection((host, port))) for _ in range(20)]
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run, Mock(peer_closed=end))
                while len(server.peers) < len(streams):
                    await trio.lowlevel.checkpoint()
                for stream in streams:
                    stream.close()
                while server.peers:
                    await trio.lowlevel.checkpoint()
                    ended.append(0)
                nursery.cancel_scope.cancel()
    assert max(ended) <= 3


class RestingService(EndlessClient):
    """Serves nothing before it was asked how long that has to wait."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.rests = True

    def pause_s(self, peer: Peer, code: int) -> float:
        self.rests = False
        return 0.001

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        if self.rests:
            return 0
        self.socket.close()
        self.served += len(commands)
        return len(commands)


@pytest.mark.trio
async def test_a_request_that_has_to_wait_is_served_after_its_pause() -> None:
    ours, theirs = connected()
    service = RestingService(ours)
    async with trio.open_nursery() as nursery:
        peer = Peer(theirs, nursery)
        ours.sendall(FRAME * 3)
        await Server(BrokerConfig(), OsNetwork())._read(service, peer, Connection())
    peer.close()
    assert service.served == 3


class WaitingLooks:
    """Serves a request once it has had its pause."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.paused: Peer | None = None

    def pause_s(self, peer: Peer, code: int) -> float:
        self.paused = peer
        return 0.01

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        if peer is not self.paused:
            return 0
        self.paused = None
        self.order.append(peer.access_key)
        return 1

    def peer_closed(self, peer: Peer) -> None:
        """Nothing is kept of it."""


async def _whose_looks_are_served(keys: Sequence[str]) -> list[str]:
    """Whose requests are served, in order, of clients of which each has sent one."""
    service, server = WaitingLooks(), Server(BrokerConfig(), OsNetwork())
    with contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            for key in keys:
                ours, theirs = connected()
                stack.enter_context(ours)
                peer = Peer(theirs, nursery)
                peer.proven, peer.access_key = True, key
                ours.sendall(FRAME)
                nursery.start_soon(server._read, service, peer, Connection())
            await trio.sleep(60)
            nursery.cancel_scope.cancel()
    return service.order


def test_of_requests_that_have_to_wait_each_accounts_are_served_in_turn() -> None:
    order = trio.run(
        _whose_looks_are_served, ["many"] * 20 + ["one"], clock=trio.testing.MockClock(autojump_threshold=0)
    )
    assert order.index("one") <= 2


class Stranger:
    """A client whose large frame is on its way, and what the server's side of it is."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.socket, theirs = connected()
        self.peer = Peer(theirs, nursery)

    def sends_a_part(self) -> None:
        self.socket.sendall(LARGE_FRAME[self.peer.unfinished_bytes :][:PART_BYTES])


LARGE_FRAME = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, body=bytes(1024 * 1024)).encode()
PART_BYTES = 32 * 1024


async def _strangers_read_in_each_turn(*, have_shown_an_account: bool) -> list[int]:
    """How many of ten clients, each in the middle of a large frame, are read from in a turn of the loop."""
    server = Server(BrokerConfig(), OsNetwork())
    counts = []
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            strangers = [Stranger(nursery) for _ in range(10)]
            service = EndlessClient(strangers[0].socket)
            for stranger in strangers:
                stranger.peer.proven = have_shown_an_account
                stranger.sends_a_part()
                nursery.start_soon(server._read, service, stranger.peer, Connection())
            while not all(stranger.peer.unfinished_bytes == PART_BYTES for stranger in strangers):
                await trio.lowlevel.checkpoint()
            for stranger in strangers:
                stranger.sends_a_part()
            before = [PART_BYTES] * 10
            while min(before) < 2 * PART_BYTES:
                await trio.lowlevel.checkpoint()
                now = [stranger.peer.unfinished_bytes for stranger in strangers]
                counts.append(sum(was != so_much for was, so_much in zip(before, now, strict=True)))
                before = now
            nursery.cancel_scope.cancel()
    for stranger in strangers:
        stranger.socket.close()
        stranger.peer.close()
    return counts


def test_one_unfinished_frame_of_a_stranger_grows_in_a_turn_of_the_loop() -> None:
    counts = trio.run(functools.partial(_strangers_read_in_each_turn, have_shown_an_account=False))
    assert max(counts) == 1
    assert sum(counts) == 10


def test_unfinished_frames_of_known_clients_grow_together() -> None:
    assert max(trio.run(functools.partial(_strangers_read_in_each_turn, have_shown_an_account=True))) > 1


async def _is_open_after(seconds: float, *, unfinished_bytes: int = 0, proven: bool = False) -> bool:
    server = Server(BrokerConfig(acl_enable=True), OsNetwork())
    ours, theirs = connected()
    async with trio.open_nursery() as nursery:
        peer = Peer(theirs, nursery)
        peer.connected_s = peer.last_read_s = trio.current_time()
        peer.unfinished_bytes, peer.proven = unfinished_bytes, proven
        server._admission.peers.add(peer)
        nursery.start_soon(server._sweep)
        await trio.sleep(seconds)
        is_open = not peer.closed
        nursery.cancel_scope.cancel()
    peer.close()
    ours.close()
    return is_open


async def _is_open_while_it_waits(*, proven: bool) -> bool:
    """Whether a client is served at last whose request waits for others' turns for as long as no client may be silent."""
    server = Server(BrokerConfig(acl_enable=True), OsNetwork())
    ours, theirs = connected()
    async with trio.open_nursery() as nursery:
        peer = Peer(theirs, nursery)
        peer.connected_s = peer.last_read_s = trio.current_time()
        peer.proven = proven
        server._admission.admit(peer)
        nursery.start_soon(server._sweep)
        service = WaitingLooks()
        ours.sendall(FRAME)
        share = server._share_of(peer)
        async with server._resting.turn("others"), share._queue:
            share.spend(1.0 if not proven else 0.0)
            nursery.start_soon(server._read, service, peer, Connection())
            await trio.sleep(180)
        await trio.sleep(6)  # what it waited does not count afterwards, either
        is_open = not peer.closed and (bool(service.order) or peer.has_been_served)
        nursery.cancel_scope.cancel()
    peer.close()
    ours.close()
    return is_open


def _with_virtual_time(check: Callable[[], Awaitable[bool]]) -> bool:
    return trio.run(check, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_client_that_shows_no_account_is_ended_after_ten_seconds() -> None:
    assert _with_virtual_time(lambda: _is_open_after(9))
    assert not _with_virtual_time(lambda: _is_open_after(13))


def test_a_client_whose_first_request_waits_here_is_not_ended_for_that() -> None:
    assert _with_virtual_time(lambda: _is_open_while_it_waits(proven=False))


def test_a_client_that_is_not_read_from_while_its_request_waits_here_is_not_silent() -> None:
    assert _with_virtual_time(lambda: _is_open_while_it_waits(proven=True))


def test_a_client_that_has_shown_an_account_may_stay() -> None:
    assert _with_virtual_time(lambda: _is_open_after(60, proven=True))


def test_a_large_first_request_has_the_time_that_a_slow_line_needs() -> None:
    assert _with_virtual_time(lambda: _is_open_after(25, unfinished_bytes=1024 * 1024))
    assert not _with_virtual_time(lambda: _is_open_after(29, unfinished_bytes=1024 * 1024))


async def _served_for_s() -> float:
    """How long a client is served that sends a byte of its frame each second."""
    server = Server(BrokerConfig(), OsNetwork())
    ours, theirs = connected()
    async with trio.open_nursery() as nursery:
        peer = Peer(theirs, nursery)
        server._admission.peers.add(peer)
        nursery.start_soon(server._serve, EndlessClient(ours), peer, None)
        nursery.start_soon(server._sweep)
        began_s = trio.current_time()
        for byte in LARGE_FRAME[:60]:
            if peer.closed:
                break
            ours.sendall(bytes([byte]))
            await trio.sleep(1)
        lasted_s = trio.current_time() - began_s
        nursery.cancel_scope.cancel()
    ours.close()
    return lasted_s


def test_a_frame_that_drips_is_cut_off_however_often_something_comes() -> None:
    assert 15 < trio.run(_served_for_s, clock=trio.testing.MockClock(autojump_threshold=0)) < 20


async def _whose_turns_they_have(monkeypatch: pytest.MonkeyPatch, access_key: str) -> list[str]:
    """Whose turns two clients have, who have shown this account; an empty one where there is no access control."""
    asked: list[str] = []
    of_account = Shares.of_account

    def noted(shares: Shares, name: str) -> Share:
        asked.append(name)
        return of_account(shares, name)

    monkeypatch.setattr(Shares, "of_account", noted)
    server = Server(BrokerConfig(), OsNetwork())
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                ours, theirs = connected()
                peer = Peer(theirs, nursery)
                peer.proven, peer.access_key = True, access_key
                ours.sendall(FRAME)
                nursery.start_soon(server._read, RestingService(ours), peer, Connection())
    return asked


@pytest.mark.trio
async def test_connections_of_a_key_share_turns_and_others_have_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(await _whose_turns_they_have(monkeypatch, "orders-app")) == {"orders-app"}
    assert len(set(await _whose_turns_they_have(monkeypatch, ""))) == 2


class ProvingClient(EndlessClient):
    """Its first request shows an account; its second one is the last."""

    def dispatch(self, peer: Peer, commands: Sequence[RemotingCommand]) -> int:
        if peer.proven:
            self.socket.close()
        else:
            peer.proven, peer.access_key = True, "orders-app"
            self.socket.sendall(FRAME)
        return len(commands)


@pytest.mark.trio
async def test_a_client_takes_a_strangers_turn_until_it_has_shown_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(BrokerConfig(), OsNetwork())
    noted = turns_noted(monkeypatch, server._shares)
    ours, theirs = connected()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            peer = Peer(theirs, nursery)
            ours.sendall(FRAME)
            await server._read(ProvingClient(ours), peer, Connection())
    peer.close()
    assert noted[:4] == ["turn of a stranger", "time of a stranger", "turn of an account", "time of an account"]
    assert not [one for one in noted[4:] if "stranger" in one]
