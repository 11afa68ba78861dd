"""A consumer that waits at the leader is given a message when a majority has confirmed it, however late that is."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from highwater import Producer
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_pull import PullMessageRequestHeader
from tests.dledger.groups import quorum_group, wait_leader
from tests.remoting import RECEIVE_BYTES, connect, create_topic, exchange
from tests.replication.replicas import send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
SUSPEND, WITH_SUBSCRIPTION = 2, 4  # PullSysFlag
LONGER_THAN_ANYBODY_WAITS_MS = 120_000


def pull(offset: int, sys_flag: int) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group="billing",
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=LONGER_THAN_ANYBODY_WAITS_MS,
        subscription="*",
        sub_version=0,
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def test_each_message_wakes_the_pull_that_waits_for_it(tmp_path: Path) -> None:
    """The leader's own flush ends before a follower reports: what arrived must not be forgotten in between."""
    with quorum_group(tmp_path) as group:
        leader = group[wait_leader(group)]
        create_topic(leader.address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "wakes") as producer, connect(leader.address) as stream:
            send_until_ok(producer, TOPIC, b"first")
            answer = exchange(stream, pull(0, WITH_SUBSCRIPTION))
            assert answer.code == ResponseCode.SUCCESS
            for number in range(1, 11):
                waiting = pull(number, SUSPEND | WITH_SUBSCRIPTION)
                stream.sendall(waiting.encode())
                send_until_ok(producer, TOPIC, b"%d" % number)
                assert answer_to(waiting, stream).code == ResponseCode.SUCCESS


def answer_to(request: RemotingCommand, stream: socket.socket) -> RemotingCommand:
    """Raises TimeoutError when it is not answered within the connection's time, which is shorter than the pull's."""
    connection = Connection()
    while True:
        connection.receive_data(stream.recv(RECEIVE_BYTES))
        for answer in connection.commands():
            if answer.opaque == request.opaque:
                return answer
