"""Asking and directing the replicas of a running group."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from highwater import Admin, HighwaterError, Message, Producer, ReplicaStatus, SendStatus
from mqwire.bodies import ReplicaStatus as Status
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaDemoteRequestHeader, ReplicaPromoteRequestHeader
from mqwire.message import StoredMessage, decode_records
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import call, cluster_info, connect, exchange

WAIT_S = 20.0


def status(replica: BrokerDaemon) -> ReplicaStatus:
    """What the replica tells of itself."""
    return Status.from_json(call(replica.address, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS)).body)


def registered(group: ReplicaGroup) -> dict[int, str]:
    """The group's addresses by brokerId, as the name server tells them to clients."""
    data = cluster_info(group.namesrv).broker_addr_table.get(group.name)
    return {} if data is None else dict(data.broker_addrs)


def wait_level(group: ReplicaGroup, master: int = 0, *slaves: int) -> None:
    """Returns once these slaves (default: all others) are in sync and hold all that the master holds."""
    wanted = set(slaves or (number for number in range(len(group.replicas)) if number != master))

    def level() -> bool:
        told = status(group[master])
        held = {one.replica_id for one in told.followers if one.in_sync and one.gap_bytes == 0}
        return wanted <= held and told.end_offset == told.held_offset

    wait_until(level, timeout_s=WAIT_S, what=f"replicas {sorted(wanted)} are level with replica {master}")


def wait_registered(group: ReplicaGroup, expected: dict[int, int]) -> None:
    """Returns once the name server says brokerId -> replica as expected."""
    addresses = {broker_id: group[number].address for broker_id, number in expected.items()}
    wait_until(lambda: registered(group) == addresses, timeout_s=WAIT_S, what=f"the name server lists {addresses}")


def promote(group: ReplicaGroup, number: int, epoch: int | None = None) -> ReplicaStatus:
    """Promotes a replica from the epoch that it is in; raises tests.remoting.Refused."""
    expected = status(group[number]).epoch
    header = ReplicaPromoteRequestHeader(
        group=group.name, replica_id=number, expected_epoch=expected, new_epoch=epoch or expected + 1
    )
    reply = call(group[number].address, RemotingCommand.request(HighwaterRequestCode.REPLICA_PROMOTE, header))
    return Status.from_json(reply.body)


def demote(group: ReplicaGroup, number: int) -> ReplicaStatus:
    """Ends a replica's leadership in its epoch."""
    header = ReplicaDemoteRequestHeader(group=group.name, epoch=status(group[number]).epoch)
    reply = call(group[number].address, RemotingCommand.request(HighwaterRequestCode.REPLICA_DEMOTE, header))
    return Status.from_json(reply.body)


def send_raw(replica: BrokerDaemon, topic: str, body: bytes = b"x", *, queue: int = 0, properties: str = "") -> int:
    """One send; returns the response's code."""
    fields = {
        "a": "test-producer", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
    with connect(replica.address) as stream:
        return exchange(stream, request).code


def read_all(replica: BrokerDaemon, topic: str, *, queue: int = 0) -> list[StoredMessage]:
    """What a reader finds in one queue of this very replica."""
    found: list[StoredMessage] = []
    offset = 0
    with connect(replica.address) as stream:
        while True:
            fields = {
                "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            reply = exchange(stream, RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields))
            if reply.code != ResponseCode.SUCCESS:
                return found
            found += decode_records(reply.body)
            offset = int(reply.ext_fields["nextBeginOffset"])


@contextlib.contextmanager
def producer(group: ReplicaGroup, **options: int) -> Iterator[Producer]:
    """A producer of ours."""
    with Producer(group.namesrv, "replication-tests", **options) as made:
        yield made


@contextlib.contextmanager
def admin(group: ReplicaGroup) -> Iterator[Admin]:
    with Admin(group.namesrv) as made:
        yield made


def send_until_ok(sender: Producer, topic: str, body: bytes) -> None:
    """Sends again and again until it is stored as promised."""

    def sent() -> bool:
        try:
            return sender.send(Message(topic, body)).status is SendStatus.SEND_OK
        except HighwaterError:
            return False

    wait_until(sent, timeout_s=WAIT_S, what=f"a message to {topic} is taken", interval_s=0.1)
