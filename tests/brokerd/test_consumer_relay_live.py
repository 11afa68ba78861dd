"""Requests that a live broker relays to a member, over sockets: members that leave, answer nonsense, or never."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mqwire.codes import RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from tests.brokerd.test_client_manage import heartbeat
from tests.daemons import BrokerDaemon
from tests.remoting import RECEIVE_BYTES, connect, exchange

GROUP, CLIENT = "readers", "c@1"


class Client:
    """A connection that reads what comes, request or answer, in its order."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self._connection = Connection()
        self._read: list[RemotingCommand] = []

    def next(self) -> RemotingCommand:
        while not self._read:
            data = self.stream.recv(RECEIVE_BYTES)
            assert data, "the broker closed the connection"
            self._connection.receive_data(data)
            self._read += self._connection.commands()
        return self._read.pop(0)

    def next_of(self, code: int) -> RemotingCommand:
        """The next request of a code; others, such as notifications, are passed over."""
        while (command := self.next()).is_response or command.code != code:
            pass
        return command


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerDaemon]:
    folder: Path = tmp_path_factory.mktemp("relay")
    daemon = BrokerDaemon(folder, "", {"mappedFileSizeCommitLog": str(8 * 1024 * 1024)}).start()
    try:
        yield daemon
    finally:
        daemon.stop()


@pytest.fixture
def clients(broker: BrokerDaemon) -> Iterator[tuple[Client, Client]]:
    """A member of the group, and an administrator whose request for its state has reached it."""
    with ExitStack() as exits:
        member, admin = (Client(exits.enter_context(connect(broker.address))) for _number in range(2))
        joined = exchange(member.stream, RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat(CLIENT, GROUP)))
        assert joined.code == ResponseCode.SUCCESS, joined.remark
        yield member, admin


def ask(admin: Client, **fields: str) -> RemotingCommand:
    request = RemotingCommand.request(
        RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields={"consumerGroup": GROUP, "clientId": CLIENT, **fields}
    )
    admin.stream.sendall(request.encode())
    return request


def test_a_members_answer_reaches_the_administrator(clients: tuple[Client, Client]) -> None:
    member, admin = clients
    request = ask(admin)
    asked = member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    member.stream.sendall(asked.reply(body=b"{}" * 100_000).encode())
    answer = admin.next()
    assert (answer.opaque, answer.code, len(answer.body)) == (request.opaque, ResponseCode.SUCCESS, 200_000)


def test_a_member_that_leaves_is_answered_for_at_once(clients: tuple[Client, Client]) -> None:
    member, admin = clients
    ask(admin)
    member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    member.stream.close()
    answer = admin.next()
    # Not CONSUME_MSG_TIMEOUT, which is what it would be after ten seconds.
    assert (answer.code, "disconnected" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_member_that_answers_nonsense_is_answered_for(clients: tuple[Client, Client]) -> None:
    member, admin = clients
    ask(admin)
    member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    member.stream.sendall(b"\x00\x00\x00\x08\x05\x00\x00\x04junk")
    assert admin.next().code == ResponseCode.SYSTEM_ERROR


def test_what_a_member_writes_beside_its_answer_harms_no_one(clients: tuple[Client, Client]) -> None:
    member, admin = clients
    ask(admin)
    asked = member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    asked.serialize_type = SerializeType.ROCKETMQ
    answer = asked.reply(body=b"{}")
    # The fields' own lengths lie; they are never read.
    answer.raw_ext_fields, answer._ext_fields = b"\x7f\xff\xff", None
    member.stream.sendall(answer.encode())
    assert bytes(admin.next().body) == b"{}"


def test_the_member_is_served_while_it_is_asked(clients: tuple[Client, Client]) -> None:
    member, admin = clients
    ask(admin)
    asked = member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    beat = RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat(CLIENT, GROUP))
    assert exchange(member.stream, beat).code == ResponseCode.SUCCESS
    member.stream.sendall(asked.reply().encode())
    assert admin.next().code == ResponseCode.SUCCESS


def test_an_administrator_that_leaves_takes_nothing_with_it(
    broker: BrokerDaemon, clients: tuple[Client, Client]
) -> None:
    member, admin = clients
    ask(admin)
    asked = member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO)
    admin.stream.close()
    member.stream.sendall(asked.reply().encode())
    with connect(broker.address) as stream:
        other = Client(stream)
        ask(other)
        member.stream.sendall(member.next_of(RequestCode.GET_CONSUMER_RUNNING_INFO).reply(body=b"2").encode())
        assert bytes(other.next().body) == b"2"
