"""Quorum-led groups of real brokers: started on free loopback ports, asked and disturbed by process id."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from highwater import ReplicaStatus
from mqwire.bodies import ReplicaStatus as Status
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.daemons import BrokerDaemon, NameServerDaemon, ReplicaGroup
from tests.processes import steady_ports, wait_until
from tests.remoting import Refused, call
from tests.replication.network import HERE, Network

WAIT_S = 60.0


def peers_of(addresses: Mapping[int, str]) -> str:
    """dLegerPeers of replicas that hear each other there."""
    return ";".join(f"n{replica_id}-{address}" for replica_id, address in sorted(addresses.items()))


@contextmanager
def quorum_group(
    folder: Path,
    *,
    replicas: int = 3,
    conf: Mapping[str, str] | None = None,
    name: str = "broker-a",
    places: Network | None = None,
    place: Callable[[BrokerDaemon, int], None] = lambda replica, number: None,
    names: NameServerDaemon | None = None,
) -> Iterator[ReplicaGroup]:
    """A name server and a group that elects; entered when a leader takes sends.

    `places` puts each replica into a network namespace of its own; `place` changes a daemon before its first start. `names` runs
    already, else there is one beside the test.
    """
    if names is None:
        host = "127.0.0.1" if places is None else places.address(HERE)
        names = NameServerDaemon(folder / "namesrv", host=host).start()
    base = steady_ports(2 * replicas)
    hosts = ["127.0.0.1" if places is None else places.address(replica_id) for replica_id in range(replicas)]
    peers = {replica_id: f"{hosts[replica_id]}:{base + replicas + replica_id}" for replica_id in range(replicas)}
    group = ReplicaGroup(names, [], name)
    try:
        for replica_id in range(replicas):
            properties = {
                "brokerName": name,
                "enableDLegerCommitLog": "true",
                "dLegerGroup": name,
                "dLegerPeers": peers_of(peers),
                "dLegerSelfId": f"n{replica_id}",
                "slaveReadEnable": "true",
                **(conf or {}),
            }
            daemon = BrokerDaemon(folder / f"{name}-{replica_id}", names.address, properties, port=base + replica_id)
            daemon.host = hosts[replica_id]
            daemon.command_prefix = () if places is None else places.prefix(replica_id)
            place(daemon, replica_id)
            group.replicas.append(daemon.start())
        wait_leader(group)
        yield group
    finally:
        for replica in group.replicas:
            if replica.process is not None and replica.process.running:
                replica.process.popen.send_signal(signal.SIGCONT)
        group.kill()


def status(replica: BrokerDaemon) -> ReplicaStatus:
    """What the replica reports of itself, as soon as it does not cut its log just now; raises OSError when it is not there."""
    found: list[ReplicaStatus] = []

    def reported() -> bool:
        try:
            reply = call(replica.address, RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS))
        except Refused as refused:
            if refused.code == ResponseCode.SYSTEM_BUSY:
                return False
            raise
        found.append(Status.from_json(reply.body))
        return True

    wait_until(reported, timeout_s=WAIT_S, what=f"{replica.address} reports its status")
    return found[0]


def leader_among(group: ReplicaGroup, *without: int) -> int | None:
    """Which replica leads and takes sends; None when none of those that answer does."""
    for number, replica in enumerate(group.replicas):
        if number in without or replica.process is None or not replica.process.running:
            continue
        try:
            reported = status(replica)
        except OSError:
            continue
        if reported.role == "master" and reported.accepts_sends:
            return number
    return None


def wait_leader(group: ReplicaGroup, *without: int) -> int:
    """Returns once some replica but `without` leads and takes sends."""
    found: list[int] = []

    def led() -> bool:
        number = leader_among(group, *without)
        if number is not None:
            found.append(number)
        return number is not None

    wait_until(led, timeout_s=WAIT_S, what=f"a replica but {without} leads {group.name}", interval_s=0.02)
    return found[0]


def wait_all_level(group: ReplicaGroup) -> None:
    """Returns once one leads and every other holds, and knows to be confirmed, all that it has."""

    def level() -> bool:
        reported = [status(replica) for replica in group.replicas]
        leaders = [one for one in reported if one.role == "master"]
        end = (reported[0].end_offset, reported[0].log_epoch)
        return len(leaders) == 1 and all(
            (one.end_offset, one.log_epoch) == end and one.confirm_offset == end[0] for one in reported
        )

    wait_until(level, timeout_s=WAIT_S, what=f"the replicas of {group.name} are level")
