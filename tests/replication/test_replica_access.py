"""Replica pulls under access control: who may report what a slave holds, and when a report counts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from mqwire.acl import SessionCredentials
from mqwire.bodies import ReplicaStatus
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_replica import ReplicaPullRequestHeader, ReplicaPullResponseHeader
from tests.daemons import BrokerDaemon, DaemonCluster, ReplicaGroup
from tests.processes import free_ports
from tests.remoting import Refused, call, connect, create_topic, signed
from tests.replication.replicas import send_raw

REPLICA = SessionCredentials("replica-account", "replica-secret")
TENANT = SessionCredentials("tenant-account", "tenant-secret")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    """A master alone, of a group of two under synchronous replication and access control."""
    accounts = [
        {"accessKey": REPLICA.access_key, "secretKey": REPLICA.secret_key, "admin": True},
        {"accessKey": TENANT.access_key, "secretKey": TENANT.secret_key, "defaultTopicPerm": "PUB|SUB"},
    ]
    acl_file = tmp_path / "plain_acl.yml"
    acl_file.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [], "accounts": accounts}), "utf-8")
    inner = json.dumps({"accessKey": REPLICA.access_key, "secretKey": REPLICA.secret_key}, separators=(",", ":"))
    conf = {"aclEnable": "true", "aclConfigFile": str(acl_file), "innerClientAuthenticationCredentials": inner}
    conf |= {"totalReplicas": "1", "haSendHeartbeatInterval": "1000"}
    with ReplicaGroup.start(tmp_path, conf, replicas=1, synchronous=True) as running:
        create_topic(running[0].address, "orders", queues=1, credentials=REPLICA, namesrv=running.namesrv)
        yield running


def reported(master: BrokerDaemon) -> ReplicaStatus:
    reply = call(master.address, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS), REPLICA)
    return ReplicaStatus.from_json(reply.body)


def pull(master: BrokerDaemon, epoch: int, **changes: int | str) -> RemotingCommand:
    """A pull that claims to hold all that the master has."""
    status = reported(master)
    fields: dict[str, object] = {
        "group": status.group, "replica_id": 1, "leader_epoch": epoch, "end_offset": status.end_offset,
        "last_epoch": status.log_epoch, "durable_offset": status.end_offset, "max_bytes": 1024, "max_wait_millis": 0,
        "address": "127.0.0.1:1", **changes,
    }  # fmt: skip
    return RemotingCommand.request(HighwaterRequestCode.REPLICA_PULL, ReplicaPullRequestHeader(**fields))  # type: ignore[arg-type] # the twin is not the real type


@pytest.mark.parametrize(
    "credentials",
    [None, TENANT, SessionCredentials("replica-account", "guessed-it")],
    ids=["nobody", "a-tenant", "a-guesser"],
)
def test_a_report_that_no_replica_signed_is_refused_and_does_not_count(
    group: ReplicaGroup, credentials: SessionCredentials | None
) -> None:
    epoch = reported(group[0]).epoch
    with pytest.raises(Refused) as refused:
        call(group[0].address, pull(group[0], epoch), credentials)
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert (reported(group[0]).followers, reported(group[0]).in_sync) == ([], [0])


def test_a_captured_pull_of_a_former_epoch_is_fenced_when_it_is_replayed(group: ReplicaGroup) -> None:
    epoch = reported(group[0]).epoch
    captured = signed(pull(group[0], epoch), REPLICA).encode()
    group[0].kill()
    group[0].start()
    assert reported(group[0]).epoch > epoch
    with connect(group[0].address) as stream:
        stream.sendall(captured)
        answer = _read_one(stream)
    assert answer.header(ReplicaPullResponseHeader).answer == "fenced"
    assert reported(group[0]).in_sync == [0]


def _read_one(stream: socket.socket) -> RemotingCommand:
    connection = Connection()
    while True:
        connection.receive_data(stream.recv(65536))
        commands = connection.commands()
        if commands:
            return commands[0]


def test_one_slave_that_reports_over_many_connections_counts_once(group: ReplicaGroup) -> None:
    epoch = reported(group[0]).epoch
    for _ in range(3):
        call(group[0].address, pull(group[0], epoch), REPLICA)
    assert reported(group[0]).in_sync == [0, 1]


def test_a_report_in_the_masters_own_name_does_not_count(group: ReplicaGroup) -> None:
    epoch = reported(group[0]).epoch
    reply = call(group[0].address, pull(group[0], epoch, replica_id=0), REPLICA)
    assert reply.header(ReplicaPullResponseHeader).answer == "fenced"
    assert reported(group[0]).followers == []


def test_a_slave_behind_by_more_than_ha_max_gap_not_in_sync_is_not_available(tmp_path: Path) -> None:
    conf = {"haMaxGapNotInSync": "2000", "slaveTimeout": "300", "totalReplicas": "1"}
    with ReplicaGroup.start(tmp_path, conf, replicas=1, synchronous=True) as group:
        address = group[0].address
        create_topic(address, "orders", queues=1, namesrv=group.namesrv)
        status = ReplicaStatus.from_json(
            call(address, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS)).body
        )
        header = ReplicaPullRequestHeader(
            group=group.name, replica_id=1, leader_epoch=status.epoch, end_offset=status.end_offset,
            last_epoch=status.log_epoch, durable_offset=status.end_offset, max_bytes=1, max_wait_millis=0,
            address="127.0.0.1:1",
        )  # fmt: skip
        call(address, RemotingCommand.request(HighwaterRequestCode.REPLICA_PULL, header))
        codes = [send_raw(group[0], "orders", bytes(900)) for _ in range(4)]
    assert codes[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT, "one slave is there and does not answer"
    assert codes[-1] == ResponseCode.SLAVE_NOT_AVAILABLE, "it is too far behind to be waited for"


def test_ha_listen_port_serves_pulls_too(tmp_path: Path) -> None:
    port = free_ports()
    with DaemonCluster.start(tmp_path, {"haListenPort": str(port)}):
        reply = call(f"127.0.0.1:{port}", RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS))
    assert ReplicaStatus.from_json(reply.body).role == "master"
