"""Stock Java and Go producers with their default settings write on at once after a promotion, without a restart.

They look for the route each 30 s, and neither looks sooner because a send was refused. The group's leaderListenPort is
why they need not: the new master is where the former one was.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import ReplicaGroup
from tests.interop.clients import DriverProcess
from tests.processes import steady_ports, wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, demote, promote, registered, send_raw, wait_level
from tests.replication.stock_senders import WELL_UNDER_S, StockSenders

TOPIC = "switched"
QUEUES = 2

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def leader_port() -> int:
    return steady_ports(1)


@pytest.fixture
def group(tmp_path: Path, leader_port: int) -> Iterator[ReplicaGroup]:
    # Alone after the second promotion: it shall acknowledge all the same.
    conf = {
        "flushDiskType": "SYNC_FLUSH",
        "leaderListenPort": str(leader_port),
        "enableAutoInSyncReplicas": "true",
        "haSendHeartbeatInterval": "1000",
        "haMaxTimeSlaveNotCatchup": "3000",
    }
    with ReplicaGroup.start(tmp_path, conf, synchronous=True) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=QUEUES, namesrv=running.namesrv)
        yield running


def wait_addresses(group: ReplicaGroup, addresses: dict[int, str]) -> None:
    wait_until(lambda: registered(group) == addresses, timeout_s=WAIT_S, what=f"the name server lists {addresses}")


def test_java_and_go_producers_write_on_after_a_switchover_and_after_the_death_of_the_master(
    group: ReplicaGroup, leader_port: int, java_client: DriverProcess, go_client: DriverProcess
) -> None:
    at_leader_port = f"127.0.0.1:{leader_port}"
    wait_addresses(group, {0: at_leader_port, 1: group[1].address})
    with StockSenders(group, TOPIC, QUEUES, [java_client, go_client]) as senders:
        senders.wait_all_write()
        demote(group, 0)
        promote(group, 1)
        switched = senders.wait_all_write(time.monotonic())
        wait_addresses(group, {0: at_leader_port, 1: group[0].address})
        wait_level(group, 1, 0)

        group[1].kill()
        promote(group, 0)
        promoted = senders.wait_all_write(time.monotonic())
        wait_addresses(group, {0: at_leader_port})
    print(f"seconds until they wrote again: switchover {switched}, master killed and slave promoted {promoted}")
    senders.assert_all_held(group[0])
    assert max(*switched.values(), *promoted.values()) < WELL_UNDER_S


def test_while_a_stopped_former_master_holds_the_port_the_new_one_is_known_by_its_own(
    group: ReplicaGroup, leader_port: int
) -> None:
    at_leader_port = f"127.0.0.1:{leader_port}"
    wait_addresses(group, {0: at_leader_port, 1: group[1].address})
    os.kill(group[0].pid, signal.SIGSTOP)
    try:
        promote(group, 1)
        wait_addresses(group, {0: group[1].address})
    finally:
        os.kill(group[0].pid, signal.SIGCONT)
    wait_addresses(group, {0: at_leader_port, 1: group[0].address})
    assert send_raw(group[1], TOPIC) == 0
