"""A stock Java producer with its default settings writes on as soon as a killed leader has a successor: leaderListenPort."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.dledger.groups import quorum_group, wait_all_level, wait_leader
from tests.interop.clients import DriverProcess
from tests.processes import steady_ports, wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, registered
from tests.replication.stock_senders import WELL_UNDER_S, StockSenders

TOPIC = "led"
QUEUES = 2


@pytest.mark.timeout(300)
def test_a_java_producer_writes_on_when_a_killed_leader_has_a_successor(
    java_client: DriverProcess, tmp_path: Path
) -> None:
    port = steady_ports(1)
    with quorum_group(tmp_path, conf={"leaderListenPort": str(port)}) as group:
        leader = wait_leader(group)
        create_topic(group[leader].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        wait_until(
            lambda: registered(group).get(0) == f"127.0.0.1:{port}",
            timeout_s=WAIT_S,
            what="the leader port is registered as broker 0",
        )
        with StockSenders(group, TOPIC, QUEUES, [java_client]) as senders:
            senders.wait_all_write()
            killed_s = time.monotonic()
            group[leader].kill()
            wait_leader(group, leader)
            led_s = time.monotonic()
            took = senders.wait_all_write(led_s)
        print(f"new leader {led_s - killed_s:.2f} s after the kill; seconds until it wrote behind that: {took}")
        group[leader].start()
        wait_all_level(group)
        for replica in group.replicas:
            senders.assert_all_held(replica)
        assert max(took.values()) < WELL_UNDER_S
