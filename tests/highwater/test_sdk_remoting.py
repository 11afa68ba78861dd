"""Requests and answers over one connection per address, against scripted servers."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import anyio
import pytest

from highwater import Credentials, _remoting, errors
from highwater._client import ClientInstance, make_options
from highwater._network import AnyioBackend, NetworkStream
from highwater._remoting import SILENT_AFTER_SECONDS, RemotingClient
from mqwire.acl import signature_2, signature_matches
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.highwater.scripted import ScriptedServer, scripted_server

pytestmark = pytest.mark.anyio

CODE = RequestCode.GET_BROKER_RUNTIME_INFO


@asynccontextmanager
async def remoting(credentials: Credentials | None = None) -> AsyncIterator[RemotingClient]:
    async with anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, credentials=credentials)
        yield client
        await client.aclose()
        tasks.cancel_scope.cancel()


def request(body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(CODE, body=body)


async def test_answers_find_their_requests_in_whatever_order_they_come() -> None:
    async def echo_later(request: RemotingCommand) -> RemotingCommand:
        # The first request is answered last.
        await anyio.sleep(0.05 / (1 + int(bytes(request.body))))
        return request.reply(body=request.body)

    answers: dict[int, bytes] = {}
    async with scripted_server(GET_BROKER_RUNTIME_INFO=echo_later) as server, remoting() as client:

        async def ask(number: int) -> None:
            answer = await client.invoke(server.address, request(str(number).encode()), 5000)
            answers[number] = bytes(answer.body)

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(ask, number)
        assert server.connection_count == 1
    assert answers == {number: str(number).encode() for number in range(50)}


async def test_a_request_that_is_not_answered_in_time_raises_and_leaves_the_connection_alone() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        with pytest.raises(errors.RequestTimeoutError, match=r"within 50 ms"):
            await client.invoke(server.address, request(), 50)
        server.scripts[CODE] = lambda request: request.reply()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 1


@pytest.fixture
def soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_remoting, "SILENT_AFTER_SECONDS", 0.1)
    monkeypatch.setattr(_remoting, "LAST_ANSWERS_SECONDS", 1.0)


@pytest.mark.usefixtures("soon_silent")
async def test_a_connection_over_which_nothing_comes_is_left_and_the_next_request_makes_a_new_one() -> None:
    """Something on the way swallowed every byte: the requests of as many minutes as TCP tries were lost."""
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke(server.address, request(), 300)
        server.scripts[CODE] = lambda request: request.reply()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 2


@pytest.mark.usefixtures("soon_silent")
async def test_a_request_that_is_cancelled_with_the_time_of_its_caller_has_run_out_too() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        with anyio.move_on_after(0.25):
            await client.invoke(server.address, request(), 250)
        server.scripts[CODE] = lambda request: request.reply()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 2


@pytest.mark.usefixtures("soon_silent")
async def test_a_request_that_is_cancelled_before_its_time_says_nothing_of_the_connection() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        with anyio.move_on_after(0.25):
            await client.invoke(server.address, request(), 5000)
        server.scripts[CODE] = lambda request: request.reply()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 1


@pytest.mark.usefixtures("soon_silent")
async def test_several_requests_of_little_time_tell_that_nothing_comes() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        for _ in range(4):
            with pytest.raises(errors.RequestTimeoutError):
                await client.invoke(server.address, request(), 80)
        assert server.connection_count > 1


@pytest.mark.usefixtures("soon_silent")
async def test_who_else_waits_on_a_connection_that_is_left_is_answered_over_it_or_hears_of_it_soon() -> None:
    was_left = anyio.Event()

    async def answer(asked: RemotingCommand) -> RemotingCommand | None:
        if asked.body == b"late":
            await was_left.wait()
        elif asked.body:
            was_left.set()
        return asked.reply() if asked.body else None

    async with scripted_server(GET_BROKER_RUNTIME_INFO=answer) as server, remoting() as client:
        reported: list[str] = []

        async def ask(body: bytes) -> None:
            try:
                await client.invoke(server.address, request(body), 60_000)
                reported.append("answered")
            except errors.ConnectionLostError as error:
                reported.append(str(error))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, b"late")
            tasks.start_soon(ask, b"")
            await server.seen(CODE, 2)
            with pytest.raises(errors.RequestTimeoutError):
                await client.invoke(server.address, request(), 300)
            await client.invoke(server.address, request(b"at once"), 5000)
        assert reported == ["answered", f"nothing comes from {server.address} any more"]
        assert server.connection_count == 2


async def test_a_connection_over_which_others_are_answered_is_kept() -> None:
    async def answer(asked: RemotingCommand) -> RemotingCommand | None:
        return asked.reply() if asked.body else None

    async with scripted_server(GET_BROKER_RUNTIME_INFO=answer) as server, remoting() as client:

        async def ask_in_vain() -> None:
            with pytest.raises(errors.RequestTimeoutError):
                await client.invoke(server.address, request(), SILENT_AFTER_SECONDS * 1000)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_in_vain)
            await server.seen(CODE, 1)
            await client.invoke(server.address, request(b"answer"), 5000)
        await client.invoke(server.address, request(b"answer"), 5000)
        assert server.connection_count == 1


class _Sink:
    """A stream that takes some bytes, then none, or each piece after a while; nothing ever comes."""

    def __init__(self, room_bytes: float, piece_takes_s: float = 0.0) -> None:
        self._room_bytes, self._piece_takes_s = room_bytes, piece_takes_s

    async def send(self, data: bytes) -> None:
        self._room_bytes -= len(data)
        await (anyio.sleep(self._piece_takes_s) if self._room_bytes >= 0 else anyio.sleep_forever())

    async def receive(self, max_bytes: int) -> bytes:
        await anyio.sleep_forever()
        raise AssertionError("for ever")

    async def aclose(self) -> None:
        """Nothing is open."""


class _Sinks:
    def __init__(self, *streams: _Sink) -> None:
        self.left = list(streams)

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> NetworkStream:
        return self.left.pop(0)


@pytest.mark.usefixtures("soon_silent")
async def test_a_connection_that_takes_no_more_bytes_is_left_though_no_request_gets_into_it() -> None:
    """One-way sends had filled it, and each later request ran out of its time before it was queued."""
    backend = _Sinks(_Sink(1), _Sink(1 << 30))
    async with anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, backend=backend)
        await client.invoke_oneway("10.0.0.1:1", request(bytes(_remoting.MAX_UNSENT_BYTES)), 1000)
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke("10.0.0.1:1", request(), 200)
        await client.invoke_oneway("10.0.0.1:1", request(), 1000)
        assert backend.left == []
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("soon_silent")
async def test_a_connection_that_takes_bytes_slowly_is_kept() -> None:
    backend = _Sinks(_Sink(1 << 30, piece_takes_s=0.05), _Sink(1 << 30))
    async with anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, backend=backend)
        await client.invoke_oneway("10.0.0.1:1", request(bytes(4 << 20)), 1000)
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke("10.0.0.1:1", request(), 300)
        await client.invoke_oneway("10.0.0.1:1", request(), 1000)
        assert len(backend.left) == 1
        tasks.cancel_scope.cancel()


@pytest.mark.usefixtures("soon_silent")
async def test_who_waits_on_a_connection_hears_that_it_was_left_without_another_request() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:

        async def run_out() -> None:
            await server.seen(CODE, 1)
            with pytest.raises(errors.RequestTimeoutError):
                await client.invoke(server.address, request(), 300)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_out)
            with pytest.raises(errors.ConnectionLostError):
                await client.invoke(server.address, request(), 60_000)


class _SlowDials(AnyioBackend):
    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> NetworkStream:
        await anyio.sleep(SILENT_AFTER_SECONDS + 0.1)
        return await super().connect(host, port, tls)


async def test_a_connection_that_took_long_to_make_is_kept_though_the_first_request_ran_out_of_its_time() -> None:
    async def late(request: RemotingCommand) -> RemotingCommand:
        await anyio.sleep(0.5)
        return request.reply()

    async with scripted_server(GET_BROKER_RUNTIME_INFO=late) as server, anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, backend=_SlowDials())
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke(server.address, request(), SILENT_AFTER_SECONDS * 1000 + 300)
        await client.invoke(server.address, request(), 5000)
        await client.aclose()
        assert server.connection_count == 1


async def test_an_answer_that_comes_too_late_is_dropped() -> None:
    async def late(request: RemotingCommand) -> RemotingCommand:
        await anyio.sleep(0.1)
        return request.reply()

    async with scripted_server(GET_BROKER_RUNTIME_INFO=late) as server, remoting() as client:
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke(server.address, request(), 20)
        await anyio.sleep(0.15)
        server.scripts[CODE] = lambda request: request.reply(remark="mine")
        assert (await client.invoke(server.address, request(), 5000)).remark == "mine"


async def test_a_caller_that_is_cancelled_leaves_the_connection_whole() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        with anyio.move_on_after(0.05):
            await client.invoke(server.address, request(bytes(1_000_000)), 5000)
        server.scripts[CODE] = lambda request: request.reply()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 1


async def test_when_the_connection_breaks_everyone_who_waits_gets_an_error() -> None:
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None) as server, remoting() as client:
        reported: list[errors.HighwaterError] = []

        async def ask() -> None:
            with pytest.raises(errors.ConnectionLostError) as caught:
                await client.invoke(server.address, request(), 5000)
            reported.append(caught.value)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await server.seen(CODE, 3)
            await server.drop_connections()
        assert len({id(error) for error in reported}) == 3
        assert all(error.retryable for error in reported)


async def test_after_a_connection_broke_the_next_request_makes_a_new_one() -> None:
    async with scripted_server() as server, remoting() as client:
        await client.invoke(server.address, request(), 5000)
        await server.drop_connections()
        await server.all_gone()
        await client.invoke(server.address, request(), 5000)
        assert server.connection_count == 2


async def test_where_no_one_listens_the_error_says_so_and_is_retryable() -> None:
    async with remoting() as client:
        with pytest.raises(errors.ConnectError, match=r"cannot connect to 127.0.0.1:1\b") as caught:
            await client.invoke("127.0.0.1:1", request(), 5000)
        assert caught.value.retryable


async def test_after_a_failed_dial_the_next_requests_fail_at_once() -> None:
    async with remoting() as client:
        with pytest.raises(errors.ConnectError):
            await client.invoke("127.0.0.1:1", request(), 5000)
        with pytest.raises(errors.ConnectError, match="next try in"):
            await client.invoke("127.0.0.1:1", request(), 5000)


async def test_bytes_that_are_not_the_protocol_break_the_connection_with_a_clear_error() -> None:
    page = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    async with scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: page) as server, remoting() as client:
        with pytest.raises(errors.ProtocolError, match="does not speak the remoting protocol"):
            await client.invoke(server.address, request(), 5000)


async def test_a_broken_frame_after_a_good_answer_does_not_spoil_the_answer() -> None:
    def answer(request: RemotingCommand) -> bytes:
        return request.reply(remark="good").encode() + b"\xff" * 8

    async with scripted_server(GET_BROKER_RUNTIME_INFO=answer) as server, remoting() as client:
        assert (await client.invoke(server.address, request(), 5000)).remark == "good"


async def test_requests_of_the_server_are_served() -> None:
    async with scripted_server() as server, remoting() as client:
        seen: list[str] = []

        async def handle(address: str, request: RemotingCommand) -> RemotingCommand:
            seen.append(address)
            return request.reply(remark="served")

        client.handle(RequestCode.GET_CONSUMER_RUNNING_INFO, handle)
        await client.invoke(server.address, request(), 5000)
        await server.send_to_all(RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO))
        await server.responded()
        assert seen == [server.address]
        assert server.responses[0].remark == "served"


async def test_a_request_of_the_server_that_no_one_serves_is_answered_as_not_supported() -> None:
    async with scripted_server() as server, remoting() as client:
        await client.invoke(server.address, request(), 5000)
        await server.send_to_all(RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE))
        await server.responded()
        assert server.responses[0].code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_a_handler_that_fails_is_answered_as_a_system_error_and_ends_nothing() -> None:
    async with scripted_server() as server, remoting() as client:

        async def handle(address: str, request: RemotingCommand) -> RemotingCommand:
            raise RuntimeError("a bug")

        client.handle(RequestCode.GET_CONSUMER_RUNNING_INFO, handle)
        await client.invoke(server.address, request(), 5000)
        await server.send_to_all(RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO))
        await server.responded()
        assert server.responses[0].code == ResponseCode.SYSTEM_ERROR
        await client.invoke(server.address, request(), 5000)


async def test_with_credentials_every_request_is_signed() -> None:
    async with scripted_server() as server, remoting(Credentials("key", "secret", "token")) as client:
        await client.invoke(server.address, request(b"body"), 5000)
        await client.invoke_oneway(server.address, request(), 5000)
        for signed in await server.seen(CODE, 2):
            assert signed.ext_fields["AccessKey"] == "key"
            assert signed.ext_fields["SecurityToken"] == "token"
            assert signature_2(signed, "secret") == signed.ext_fields["Signature"]


async def test_a_stock_brokers_credentials_sign_as_stock_clients_do() -> None:
    credentials = Credentials("key", "secret", signature_version=1)
    async with scripted_server() as server, remoting(credentials) as client:
        await client.invoke(server.address, request(b"body"), 5000)
        (signed,) = await server.seen(CODE, 1)
        assert signature_matches(signed, "secret")


async def test_what_was_sent_one_way_is_on_its_way_before_the_client_stops() -> None:
    async with scripted_server() as server:
        async with remoting() as client:
            for _ in range(200):
                one_way = RemotingCommand.request(CODE, body=bytes(1000), oneway=True)
                await client.invoke_oneway(server.address, one_way, 5000)
        assert len(await server.seen(CODE, 200)) == 200


async def test_a_client_that_was_stopped_dials_no_more() -> None:
    async with scripted_server() as server, anyio.create_task_group() as tasks:
        client = RemotingClient(tasks)
        await client.aclose()
        with pytest.raises(errors.ClientStateError):
            await client.invoke(server.address, request(), 5000)


async def test_a_client_that_was_told_its_addresses_connects_to_no_other() -> None:
    async with scripted_server() as server, anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, only_addresses=["127.0.0.1:1"])
        with pytest.raises(errors.ConnectError, match="no address that this client may connect to"):
            await client.invoke(server.address, request(), 5000)
        with pytest.raises(errors.ConnectError, match="no address"):
            await client.invoke_oneway(server.address, request(), 5000)
        assert server.connection_count == 0
        await client.aclose()


async def test_the_name_servers_are_among_the_addresses_that_a_client_was_told() -> None:
    options = make_options(
        "127.0.0.1:1", credentials=None, timeout_ms=1000, use_tls=False, only_addresses=["127.0.0.1:2"]
    )
    assert options.only_addresses == frozenset({"127.0.0.1:1", "127.0.0.1:2"})


@asynccontextmanager
async def impatient(patience_ms: int) -> AsyncIterator[RemotingClient]:
    async with anyio.create_task_group() as tasks:
        client = RemotingClient(tasks, patience_ms=patience_ms)
        yield client
        await client.aclose()
        tasks.cancel_scope.cancel()


def silent_server() -> AbstractAsyncContextManager[ScriptedServer]:
    return scripted_server(GET_BROKER_RUNTIME_INFO=lambda request: None)


async def test_who_did_not_answer_is_not_asked_again_where_patience_is_limited() -> None:
    async with silent_server() as silent, scripted_server() as good, impatient(60_000) as client:
        with pytest.raises(errors.RequestTimeoutError):
            await client.invoke(silent.address, request(), 100)
        began_s = time.monotonic()
        with pytest.raises(errors.RequestTimeoutError, match="not asked again"):
            await client.invoke(silent.address, request(), 5_000)
        assert time.monotonic() - began_s < 1
        assert len(silent.requests) == 1
        assert (await client.invoke(good.address, request(), 5_000)).code == ResponseCode.SUCCESS


async def test_all_who_do_not_answer_take_no_more_than_the_patience_and_at_once_they_take_it_once() -> None:
    async with AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(silent_server()) for _ in range(6)]
        client = await stack.enter_async_context(impatient(900))
        began_s = time.monotonic()

        async def ask(address: str, timeout_ms: int) -> None:
            with pytest.raises(errors.RequestTimeoutError):
                await client.invoke(address, request(), timeout_ms)

        async with anyio.create_task_group() as tasks:
            for one in silent[:3]:
                tasks.start_soon(ask, one.address, 300)
        await ask(silent[3].address, 10_000)  # 600 ms are left
        await ask(silent[4].address, 10_000)
        await ask(silent[5].address, 10_000)
        assert 0.8 < time.monotonic() - began_s < 3
        assert [len(one.requests) for one in silent] == [1, 1, 1, 1, 0, 0]


async def test_an_error_of_the_callers_own_code_comes_through_unwrapped() -> None:
    options = make_options("127.0.0.1:1", credentials=None, timeout_ms=1000, use_tls=False)
    client = ClientInstance(options)

    async def use() -> None:
        await client.start()
        try:
            raise KeyError("mine")
        finally:
            await client.stop()

    with pytest.raises(KeyError):
        await use()


async def test_a_callers_timeout_around_a_client_ends_it_cleanly() -> None:
    options = make_options("127.0.0.1:1", credentials=None, timeout_ms=1000, use_tls=False)
    started = time.monotonic()
    with anyio.move_on_after(0.05) as scope:
        client = ClientInstance(options)
        await client.start()
        try:
            await anyio.sleep(30)
        finally:
            await client.stop()
    assert scope.cancelled_caught
    assert time.monotonic() - started < 20
