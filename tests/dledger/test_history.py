"""Histories of produces and consumes through real processes that are killed, stopped and cut off (history.py says what holds)."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import Producer
from tests.daemons import ReplicaGroup
from tests.dledger.groups import WAIT_S, leader_among, quorum_group, status, wait_all_level, wait_leader
from tests.dledger.history import Disturbance, disturbance, final_content
from tests.interop.clients import DriverProcess
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.network import Network, network, why_not
from tests.replication.replicas import send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "history"
QUEUES = 3


def more_is_acknowledged(load: Disturbance, count: int = 40) -> None:
    """Returns once that many more messages were acknowledged than by now."""
    wanted = load.history.acknowledged + count
    wait_until(lambda: load.history.acknowledged >= wanted, timeout_s=WAIT_S, what="sends are acknowledged again")


def judge(load: Disturbance, group: ReplicaGroup) -> None:
    wait_all_level(group)
    contents = [final_content(replica, TOPIC, QUEUES) for replica in group.replicas]
    assert contents[0] == contents[1] == contents[2]
    assert load.history.violations(contents[0], dict.fromkeys(range(QUEUES), 0)) == []
    assert load.history.acknowledged > 100
    assert len(load.history.shown) > 100


def prepared(group: ReplicaGroup) -> None:
    create_topic(group[wait_leader(group)].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
    with Producer(group.namesrv, "first") as producer:
        for _ in range(QUEUES):
            send_until_ok(producer, "another", b"so that all know the group")
    wait_all_level(group)


def test_kills_and_pauses_under_load_from_our_sdk_and_a_stock_java_client(
    java_client: DriverProcess, tmp_path: Path
) -> None:
    with quorum_group(tmp_path) as group:
        prepared(group)
        with disturbance(group, TOPIC, QUEUES) as load:
            load.write("ours-0", 0)
            load.write("ours-1", 1)
            load.write_with(java_client, "java")
            load.read_all()
            more_is_acknowledged(load, 100)

            former = wait_leader(group)
            group[former].kill()
            wait_leader(group, former)
            more_is_acknowledged(load)
            group[former].start()
            more_is_acknowledged(load)

            former = wait_leader(group)
            os.kill(group[former].pid, signal.SIGSTOP)
            wait_leader(group, former)
            more_is_acknowledged(load)
            os.kill(group[former].pid, signal.SIGCONT)
            more_is_acknowledged(load)

            followers = [number for number in range(3) if number != leader_among(group)]
            for number in followers:
                os.kill(group[number].pid, signal.SIGSTOP)
            time.sleep(0.5)  # sends that no one confirms are under way; how many does not matter
            for number in followers:
                group[number].kill()
            for number in followers:
                group[number].start()
            more_is_acknowledged(load)
        judge(load, group)


@pytest.fixture
def places() -> Iterator[Network]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with network(3) as made:
        yield made


def test_a_partition_with_the_leader_on_the_small_side(places: Network, tmp_path: Path) -> None:
    """Clients reach everyone, and the old leader reaches no one: it takes nothing, shows what is confirmed, and comes back."""
    with quorum_group(tmp_path, places=places) as group:
        prepared(group)
        with disturbance(group, TOPIC, QUEUES) as load:
            for number in range(QUEUES):
                load.write(f"writer-{number}", number)
            load.read_all()
            more_is_acknowledged(load, 100)
            former = wait_leader(group)
            others = [number for number in range(3) if number != former]
            for number in others:
                places.cut(former, number)
            wait_until(lambda: not status(group[former]).accepts_sends, timeout_s=WAIT_S, what="the minority refuses")
            leader = wait_leader(group, former)
            more_is_acknowledged(load)
            assert status(group[former]).confirm_offset < status(group[leader]).confirm_offset
            for number in others:
                places.heal(former, number)
            wait_until(
                lambda: status(group[former]).epoch == status(group[leader]).epoch,
                timeout_s=WAIT_S,
                what="the former leader follows",
            )
            more_is_acknowledged(load)
        judge(load, group)
