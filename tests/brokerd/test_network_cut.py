"""A broker that is cut off: to others as with a pulled cable, for a bounded time, and then as before."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from brokerd.network_cut import NetworkCut
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import NetworkCutRequestHeader
from mqwire.tls_connection import Connected
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.processes import wait_until
from tests.remoting import connect, exchange


class Elsewhere:
    """The other end of outgoing connections: it answers what it was sent, and notes what was closed."""

    def __init__(self) -> None:
        self.closed = False
        self.sent: list[bytes] = []
        self._send, self._receive = trio.open_memory_channel[bytes](10)

    def listen(self, host: str, port: int, backlog: int) -> socket.socket:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> Connected:
        return self

    async def send_all(self, data: bytes) -> None:
        self.sent.append(data)
        await self._send.send(data)

    async def receive_some(self, max_bytes: int) -> bytes:
        return await self._receive.receive()

    def close(self) -> None:
        self.closed = True


@pytest.mark.trio
async def test_what_a_connection_of_ours_receives_during_a_cut_never_came(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere()
    network = NetworkCut(elsewhere)
    connection = await network.connect("elsewhere", 1)
    async with trio.open_nursery() as nursery:
        assert network.ask()
        nursery.start_soon(network.run, 5.0)
        await trio.sleep(1)
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await connection.send_all(b"lost")
        assert (elsewhere.sent, trio.current_time() > began) == ([], True)
    fresh = await network.connect("elsewhere", 1)
    await fresh.send_all(b"again")
    assert await fresh.receive_some(100) == b"again"


@pytest.mark.trio
async def test_the_other_end_notices_a_closed_connection_only_after_the_cut(
    autojump_clock: trio.testing.MockClock,
) -> None:
    elsewhere = Elsewhere()
    network = NetworkCut(elsewhere)
    connection = await network.connect("elsewhere", 1)
    async with trio.open_nursery() as nursery:
        assert network.ask()
        nursery.start_soon(network.run, 5.0)
        await trio.sleep(1)
        connection.close()
        assert not elsewhere.closed
    assert elsewhere.closed


@pytest.mark.trio
async def test_two_cuts_are_not_in_force_at_once(autojump_clock: trio.testing.MockClock) -> None:
    network = NetworkCut(Elsewhere())
    assert network.ask()
    assert not network.ask()
    await network.run(1.0)
    assert network.ask()


@pytest.mark.trio
async def test_a_stop_ends_a_cut_and_one_that_is_about_to_begin(autojump_clock: trio.testing.MockClock) -> None:
    for after_s in (0.0, 1.0):
        network = NetworkCut(Elsewhere())
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            assert network.ask()
            nursery.start_soon(network.run, 60.0)
            await trio.sleep(after_s)
            network.end()
            assert not network.is_cut
        assert trio.current_time() - began == after_s
        assert not network.ask()


def test_a_broker_that_is_stopped_while_it_is_cut_off_leaves_its_name_servers(tmp_path: Path) -> None:
    name_server = NameServerDaemon(tmp_path / "namesrv").start()
    reported = tmp_path / "namesrv" / "namesrvd.log"
    broker = BrokerDaemon(tmp_path / "broker", name_server.address, {})
    try:
        broker.start()
        wait_until(lambda: " registered: " in reported.read_text("utf-8"), timeout_s=10, what="the registration")
        with connect(broker.address) as asker:
            assert exchange(asker, _cut(for_millis=60_000)).code == ResponseCode.SUCCESS
            wait_until(lambda: _is_silent(connect(broker.address)), timeout_s=10, what="the cut")
        assert broker.stop() == 0
        assert " unregistered: " in reported.read_text("utf-8")
    finally:
        broker.kill()
        name_server.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerDaemon]:
    daemon = BrokerDaemon(tmp_path / "broker", "", {})
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


def _cut(replica_id: int = 0, for_millis: int = 1000) -> RemotingCommand:
    header = NetworkCutRequestHeader(group="broker-a", replica_id=replica_id, for_millis=for_millis)
    return RemotingCommand.request(HighwaterRequestCode.NETWORK_CUT, header)


def _is_silent(stream: socket.socket) -> bool:
    """Whether what is sent there is taken and not answered: neither an answer nor an end comes."""
    stream.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        exchange(stream, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return False
    return True


def _ended(stream: socket.socket) -> bool:
    stream.settimeout(0.05)
    try:
        return stream.recv(100) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_broker_that_is_cut_off_answers_no_one_and_serves_again_by_itself(broker: BrokerDaemon) -> None:
    before, asker = connect(broker.address), connect(broker.address)
    assert exchange(asker, _cut()).code == ResponseCode.SUCCESS
    wait_until(lambda: _is_silent(connect(broker.address)), timeout_s=10, what="the cut")
    assert _is_silent(before)
    wait_until(lambda: _ended(before), timeout_s=10, what="the end of the cut")
    with connect(broker.address) as after:
        assert exchange(after, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0


def test_nothing_reaches_it_that_was_asked_because_of_its_answer(broker: BrokerDaemon) -> None:
    """A drill's fence did: the leader promised in the moment before it was cut off, and stood in the way of every other."""
    with connect(broker.address) as before, connect(broker.address) as asker:
        assert exchange(before, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
        assert exchange(asker, _cut()).code == ResponseCode.SUCCESS
        assert _is_silent(before)


@pytest.mark.parametrize("for_millis", [0, -1, 60_001])
def test_a_cut_without_an_end_in_sight_is_refused(broker: BrokerDaemon, for_millis: int) -> None:
    with connect(broker.address) as stream:
        assert exchange(stream, _cut(for_millis=for_millis)).code == ResponseCode.INVALID_PARAMETER


def test_a_cut_that_is_meant_for_another_replica_is_refused(broker: BrokerDaemon) -> None:
    with connect(broker.address) as stream:
        assert exchange(stream, _cut(replica_id=7)).code == ResponseCode.INVALID_PARAMETER
