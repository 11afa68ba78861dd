"""Asking and directing the replicas of a running group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from highwater import Admin, HighwaterError, Message, Producer, ReplicaStatus, SendStatus
from mqwire.bodies import ReplicaStatus as Status
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader
from mqwire.headers_pull import QueryMessageRequestHeader
from mqwire.headers_replica import ReplicaDemoteRequestHeader, ReplicaPromoteRequestHeader
from mqwire.message import StoredMessage, decode_records
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import Refused, call, cluster_info, connect, exchange

WAIT_S = 60.0  # nothing is measured by it: a machine may be busy, and each wait is for a condition
# For groups of which each send shall be answered with what is so in the end, however slow the machine is.
PATIENT = {"slaveTimeout": "12000", "syncFlushTimeout": "12000", "haMaxTimeSlaveNotCatchup": "60000"}


def ask(replica: BrokerDaemon, code: HighwaterRequestCode, header: CustomHeader | None = None) -> bytes:
    """The body of an answer; asks again while the replica cuts its log. Raises tests.remoting.Refused."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            return bytes(call(replica.address, RemotingCommand.request(code, header)).body)
        except Refused as refused:
            if refused.code != ResponseCode.SYSTEM_BUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(0.05)


def status(replica: BrokerDaemon) -> ReplicaStatus:
    """What the replica reports of itself."""
    return Status.from_json(ask(replica, HighwaterRequestCode.REPLICA_STATUS))


def registered(group: ReplicaGroup) -> dict[int, str]:
    """The group's addresses by brokerId, as the name server gives them to clients."""
    data = cluster_info(group.namesrv).broker_addr_table.get(group.name)
    return {} if data is None else dict(data.broker_addrs)


def wait_level(group: ReplicaGroup, master: int = 0, *slaves: int) -> None:
    """Returns once these slaves (default: all others) are in sync and hold all that the master holds."""
    wanted = set(slaves or (number for number in range(len(group.replicas)) if number != master))

    def level() -> bool:
        reported = status(group[master])
        held = {one.replica_id for one in reported.followers if one.in_sync and one.gap_bytes == 0}
        return wanted <= held and reported.end_offset == reported.held_offset

    wait_until(level, timeout_s=WAIT_S, what=f"replicas {sorted(wanted)} are level with replica {master}")


def wait_in_sync(group: ReplicaGroup, master: int = 0) -> None:
    """Returns once all others are in sync, also under a load that never lets them be level."""
    others = len(group.replicas) - 1
    wait_until(
        lambda: sum(one.in_sync for one in status(group[master]).followers) == others,
        timeout_s=WAIT_S,
        what=f"{others} replicas are in sync with replica {master}",
    )


def wait_leads(group: ReplicaGroup, number: int) -> None:
    """Returns once this replica takes sends."""
    wait_until(lambda: status(group[number]).accepts_sends, timeout_s=WAIT_S, what=f"replica {number} leads")


def same_logs(group: ReplicaGroup) -> bool:
    """Whether both logs are the same, byte for byte, as far as both go: the master may append by itself at any time."""
    end_offset = min(status(group[number]).end_offset for number in (0, 1))
    first, second = (
        b"".join(path.read_bytes() for path in sorted((group[number].folder / "store" / "commitlog").iterdir()))
        for number in (0, 1)
    )
    return end_offset > 0 and first[:end_offset] == second[:end_offset]


def wait_registered(group: ReplicaGroup, expected: dict[int, int]) -> None:
    """Returns once the name server says brokerId -> replica as expected."""
    addresses = {broker_id: group[number].address for broker_id, number in expected.items()}
    wait_until(lambda: registered(group) == addresses, timeout_s=WAIT_S, what=f"the name server lists {addresses}")


def promote(group: ReplicaGroup, number: int, epoch: int | None = None, *, loses: bool = False) -> ReplicaStatus:
    """Promotes a replica from the epoch that it is in; raises tests.remoting.Refused. `loses`: someone has agreed to a loss."""
    expected = status(group[number]).epoch
    header = ReplicaPromoteRequestHeader(
        group=group.name,
        replica_id=number,
        expected_epoch=expected,
        new_epoch=epoch or expected + 1,
        with_incomplete_log=loses,
    )
    return Status.from_json(ask(group[number], HighwaterRequestCode.REPLICA_PROMOTE, header))


def demote(group: ReplicaGroup, number: int) -> ReplicaStatus:
    """Ends a replica's leadership in its epoch."""
    header = ReplicaDemoteRequestHeader(group=group.name, epoch=status(group[number]).epoch)
    return Status.from_json(ask(group[number], HighwaterRequestCode.REPLICA_DEMOTE, header))


def send_raw(replica: BrokerDaemon, topic: str, body: bytes = b"x", *, queue: int = 0, properties: str = "") -> int:
    """One send; returns the response's code."""
    fields = {
        "a": "test-producer", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1", "h": "0",
        "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=body)
    with connect(replica.address) as stream:
        return exchange(stream, request).code


def query_key(replica: BrokerDaemon, topic: str, key: str) -> list[bytes]:
    """The bodies of the messages that the index of this very replica finds."""
    header = QueryMessageRequestHeader(
        topic=topic, key=key, max_num=64, begin_timestamp=0, end_timestamp=int(time.time() * 1000) + 3_600_000
    )
    with connect(replica.address) as stream:
        reply = exchange(stream, RemotingCommand.request(RequestCode.QUERY_MESSAGE, header))
    if reply.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.SYSTEM_BUSY):  # busy: it cuts its log
        return []
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return [record.body for record in decode_records(bytes(reply.body))]


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
def producer(group: ReplicaGroup, **options: Any) -> Iterator[Producer]:
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
