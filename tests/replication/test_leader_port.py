"""leaderListenPort: who serves it, and that replicas are known by their own addresses all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import Admin, BrokerError
from mqwire.bodies import ReplicaStatus
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_replica import ReplicaDemoteRequestHeader
from tests.daemons import ReplicaGroup
from tests.processes import steady_ports, wait_until
from tests.remoting import RECEIVE_BYTES, connect, create_topic, exchange
from tests.replication.replicas import (
    WAIT_S,
    demote,
    promote,
    registered,
    send_raw,
    status,
    wait_leads,
    wait_level,
)

pytestmark = pytest.mark.timeout(240)
TOPIC = "held"


@pytest.fixture
def leader_address() -> str:
    return f"127.0.0.1:{steady_ports(1)}"


@pytest.fixture
def group(tmp_path: Path, leader_address: str) -> Iterator[ReplicaGroup]:
    conf = {"leaderListenPort": leader_address.rpartition(":")[2]}
    with ReplicaGroup.start(tmp_path, conf) as running:
        wait_level(running)
        wait_served_by(running, leader_address, 0)
        yield running


def wait_served_by(group: ReplicaGroup, leader_address: str, master: int) -> None:
    wait_until(
        lambda: registered(group) == {0: leader_address, 1: group[1 - master].address},
        timeout_s=WAIT_S,
        what=f"replica {master} is registered with the leader port",
    )


def test_who_stops_leading_answers_and_leaves_the_port_at_once(group: ReplicaGroup, leader_address: str) -> None:
    header = ReplicaDemoteRequestHeader(group=group.name, epoch=status(group[0]).epoch)
    request = RemotingCommand.request(HighwaterRequestCode.REPLICA_DEMOTE, header)
    with connect(group[0].address) as own, connect(leader_address) as stream:
        reply = exchange(stream, request)
        assert reply.code == ResponseCode.SUCCESS
        assert ReplicaStatus.from_json(reply.body).role == "slave"
        assert stream.recv(RECEIVE_BYTES) == b"", "its connections are closed, so that clients come to the next leader"
        assert exchange(own, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS)).code == ResponseCode.SUCCESS
    with pytest.raises(ConnectionRefusedError):
        connect(leader_address)
    # Clients wait at that address for the next leader, which they do not learn of for up to 30 s.
    assert registered(group)[0] == leader_address


def test_a_held_pull_is_sent_elsewhere(group: ReplicaGroup, leader_address: str) -> None:
    create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
    assert send_raw(group[0], TOPIC) == ResponseCode.SUCCESS
    wait_level(group)
    fields = {
        "consumerGroup": "TOOLS_CONSUMER", "topic": TOPIC, "queueId": "0", "queueOffset": "1",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "60000",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    with connect(leader_address) as stream:
        stream.sendall(RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields).encode())
        # Answered after the pull, so that that one is held by now.
        assert exchange(stream, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS)).code == 0
        demote(group, 0)
        received = b"".join(iter(lambda: stream.recv(RECEIVE_BYTES), b""))
    connection = Connection()
    connection.receive_data(received)
    assert [answer.code for answer in connection.commands()] == [ResponseCode.FLOW_CONTROL]


def test_replicas_know_each_other_by_their_own_addresses(group: ReplicaGroup, leader_address: str) -> None:
    def listed_by_admin() -> set[tuple[str, int | None]]:
        with Admin(group.namesrv) as admin:
            return {(member.address, member.broker_id) for member in admin.group_status(group.name)}

    master, slave = group[0].address, group[1].address
    assert listed_by_admin() == {(master, 0), (slave, 1)}
    assert status(group[0]).address == status(group[1]).leader_address == master
    assert [follower.address for follower in status(group[0]).followers] == [slave]
    promote(group, 1)
    wait_served_by(group, leader_address, 1)
    wait_level(group, 1, 0)
    assert listed_by_admin() == {(slave, 0), (master, 1)}
    assert status(group[0]).leader_address == slave
    # A restarted leader finds the others and leads again, with the port.
    group[1].stop()
    group[1].start()
    wait_leads(group, 1)
    wait_served_by(group, leader_address, 1)
    wait_level(group, 1, 0)


def test_a_replica_that_knows_no_one_finds_the_leader_at_its_port(group: ReplicaGroup) -> None:
    group[1].kill()
    (group[1].folder / "store").rename(group[1].folder / "former")
    group[1].start()
    wait_until(
        lambda: status(group[1]).leader_address == group[0].address,
        timeout_s=WAIT_S,
        what="the empty replica follows the leader by its own address",
    )
    wait_level(group, 0, 1)


def test_a_running_master_takes_the_port_without_a_restart(tmp_path: Path, leader_address: str) -> None:
    port = leader_address.rpartition(":")[2]
    with ReplicaGroup.start(tmp_path) as group, Admin(group.namesrv) as admin:
        wait_level(group)
        with pytest.raises(BrokerError, match="listenPort already"):
            admin.update_broker_config(group[0].address, {"leaderListenPort": group[0].address.rpartition(":")[2]})
        for replica in group.replicas:
            admin.update_broker_config(replica.address, {"leaderListenPort": port})
        wait_served_by(group, leader_address, 0)
        assert send_raw(group[0], "TBW102") == ResponseCode.SUCCESS, "who has the old route goes on"
        promote(group, 1)
        wait_served_by(group, leader_address, 1)
