"""What strangers did to name servers: memory and turns that are no longer theirs."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from mqwire.acl import SessionCredentials, sign_request
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.held_frames import HeldFrames
from namesrvd import server as server_module
from namesrvd.acl import Accounts
from namesrvd.config import NamesrvConfig
from namesrvd.kv_config import KVConfigManager
from namesrvd.processor import Processor
from namesrvd.route_info import RouteInfoManager
from namesrvd.server import HANDSHAKES_MAX, Server
from tests.noted_turns import turns_noted
from tests.remoting import connect, exchange
from tests.security.accounts import ACCOUNTS, PROGRAM
from tests.security.attacks import OF_STRANGERS, LiveNameServer, under
from tests.security.live_broker import MEBIBYTE, RESIDENT_MAX_BYTES


@pytest.fixture
def names(tmp_path: Path) -> Iterator[LiveNameServer]:
    started = LiveNameServer(tmp_path / "names")
    yield started
    started.daemon.kill()


def test_small_unfinished_frames_of_strangers_share_one_allowance(names: LiveNameServer) -> None:
    before = names.resident_bytes
    header = b'{"code":105,"extFields":{}}'
    unfinished = struct.pack(">II", 60 * 1024, len(header)) + header + bytes(59 * 1024)
    with contextlib.ExitStack() as stack:
        for _ in range(900):
            stream = stack.enter_context(names.connection())
            with contextlib.suppress(OSError):  # it may be closed while it writes
                stream.sendall(unfinished)
        with names.connection() as good:
            assert names.ask(good).code == ResponseCode.TOPIC_NOT_EXIST
        assert names.resident_bytes - before < 64 * MEBIBYTE


def test_memory_stays_within_its_bound_under_each_attack_of_strangers(names: LiveNameServer) -> None:
    for attack in OF_STRANGERS:
        with under(attack, names.address):
            until_s = time.monotonic() + 0.5
            while time.monotonic() < until_s:
                with names.connection() as good:  # an earlier one may have made room
                    assert names.ask(good).code == ResponseCode.TOPIC_NOT_EXIST, attack
                assert names.resident_bytes < RESIDENT_MAX_BYTES, attack


def name_server(config: NamesrvConfig | None = None, accounts: Accounts | None = None) -> Server:
    """A name server in this process, open to all where there are no accounts."""
    config = config or NamesrvConfig(bind_address="127.0.0.1", listen_port=0)
    routes, settings = RouteInfoManager(lambda: 0.0), KVConfigManager()
    processor = Processor(config, routes, settings, accounts=accounts, clock_ms=lambda: 0.0)
    return Server(config, processor, routes, settings, accounts)


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    return Accounts(str(file))


def ask_for_route(stream: socket.socket, credentials: SessionCredentials | None = None) -> None:
    request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "orders"})
    if credentials is not None:
        sign_request(request, credentials)
    assert exchange(stream, request).code == ResponseCode.TOPIC_NOT_EXIST


def is_closed(stream: socket.socket) -> bool:
    stream.settimeout(1.5)
    try:
        return stream.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.trio
async def test_the_strangers_of_one_address_have_few_places_while_others_are_free(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "UNPROVEN_PER_ADDRESS_MAX", 3)
    server = name_server(accounts=accounts)
    with trio.fail_after(30), contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            known = [stack.enter_context(connect(f"{host}:{port}")) for _ in range(3)]
            for stream in known:
                await trio.to_thread.run_sync(ask_for_route, stream, PROGRAM)
            strangers = []
            for _ in range(5):
                strangers.append(stack.enter_context(connect(f"{host}:{port}")))
                await trio.to_thread.run_sync(ask_for_route, strangers[-1])
            assert len(server._peers) == 6
            assert [await trio.to_thread.run_sync(is_closed, stream) for stream in strangers[:2]] == [True, True]
            for stream in known + strangers[2:]:
                await trio.to_thread.run_sync(ask_for_route, stream)
            nursery.cancel_scope.cancel()
    assert not server._unproven


@pytest.mark.trio
async def test_who_has_shown_no_account_is_not_silent_for_long(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "UNPROVEN_IDLE_S", 0.5)
    forged = SessionCredentials(PROGRAM.access_key, "not the secret")
    server = name_server(accounts=accounts)
    with trio.fail_after(30), contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            silent, unsigned, wrongly_signed, signed = (
                stack.enter_context(connect(f"{host}:{port}")) for _ in range(4)
            )
            await trio.to_thread.run_sync(ask_for_route, unsigned)
            await trio.to_thread.run_sync(ask_for_route, wrongly_signed, forged)
            await trio.to_thread.run_sync(ask_for_route, signed, PROGRAM)
            for stream in (silent, unsigned, wrongly_signed):
                assert await trio.to_thread.run_sync(is_closed, stream)
            assert len(server._peers) == 1
            await trio.to_thread.run_sync(ask_for_route, signed)
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_stranger_takes_a_turn_for_what_it_asks_and_a_broker_none(monkeypatch: pytest.MonkeyPatch) -> None:
    server = name_server()
    noted = turns_noted(monkeypatch, server._shares)

    async def ask(stream: socket.socket, code: int, fields: dict[str, str]) -> int:
        request = RemotingCommand.request(code, ext_fields=fields)
        return (await trio.to_thread.run_sync(exchange, stream, request)).code

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            with connect(f"{host}:{port}") as stream:
                await ask(stream, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
                assert noted[1:3] == ["turn of a stranger", "time of a stranger"]  # after no time at all
                broker = {
                    "brokerName": "a",
                    "brokerAddr": "127.0.0.1:10911",
                    "haServerAddr": "127.0.0.1:10912",
                    "clusterName": "c",
                    "brokerId": "0",
                }
                assert await ask(stream, RequestCode.REGISTER_BROKER, broker) == ResponseCode.SUCCESS
                so_far = len(noted)
                await ask(stream, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
                assert len(noted) == so_far
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_client_takes_a_strangers_turn_until_it_has_shown_an_account(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = name_server(accounts=accounts)
    noted = turns_noted(monkeypatch, server._shares)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            with connect(f"{host}:{port}") as stream:
                await trio.to_thread.run_sync(ask_for_route, stream)
                assert {one for one in noted if "account" in one} == set()
                await trio.to_thread.run_sync(ask_for_route, stream, PROGRAM)
                so_far = len(noted)
                await trio.to_thread.run_sync(ask_for_route, stream)
                assert {one for one in noted[so_far:] if "stranger" in one} == set()
                assert "turn of an account" in noted[so_far:]
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_new_brokers_large_registration_comes_in_while_a_strangers_large_frames_fill_the_allowance(
    accounts: Accounts,
) -> None:
    server = name_server(accounts=accounts)
    server._frames[True] = HeldFrames(MEBIBYTE)
    frame = RemotingCommand.request(RequestCode.REGISTER_BROKER, body=bytes(MEBIBYTE)).encode()
    with trio.fail_after(30), contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)

            async def sent(address: str, part: bytes) -> socket.socket:
                stream = stack.enter_context(socket.create_connection((host, port), source_address=(address, 0)))
                await trio.to_thread.run_sync(stream.sendall, part)
                of_stream = f":{stream.getsockname()[1]}#"
                while [len(part)] != [peer.unfinished_bytes for peer in server._peers if of_stream in repr(peer)]:
                    await trio.lowlevel.checkpoint()
                return stream

            hostile = [await sent("127.0.0.2", frame[: MEBIBYTE * 3 // 10]) for _ in range(3)]
            broker = await sent("127.0.0.1", frame[: MEBIBYTE // 4])
            ended = [await trio.to_thread.run_sync(is_closed, stream) for stream in (*hostile, broker)]
            assert ended.count(True) == 1
            assert not ended[-1]
            await trio.to_thread.run_sync(broker.sendall, frame[MEBIBYTE // 4 : MEBIBYTE // 2])
            assert not await trio.to_thread.run_sync(is_closed, broker)
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_of_too_many_handshakes_the_first_of_the_address_with_most_ends() -> None:
    server = name_server()

    def shaking(address: str, count: int) -> list[Any]:
        return [Mock(host=address, scope=trio.CancelScope()) for _ in range(count)]

    one, many = shaking("192.0.2.1", 1), shaking("192.0.2.2", HANDSHAKES_MAX)
    with contextlib.ExitStack() as stack:
        for peer in one + many:
            stack.enter_context(server._in_handshake(peer))
        assert [peer.scope.cancel_called for peer in one + many[:2]] == [False, True, False]
    assert not server._shaking


@pytest.mark.trio
async def test_connections_that_wait_are_accepted_together() -> None:
    server = name_server()
    with contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            host, port = await nursery.start(server.run)
            for _ in range(20):
                stack.enter_context(connect(f"{host}:{port}"))
            for _ in range(6):  # turns of the loop
                await trio.lowlevel.checkpoint()
            accepted = len(server._peers)
            nursery.cancel_scope.cancel()
    assert accepted == 20
