"""Stock push consumers of Java and Go that have read what a promotion loses: none passes over what takes its numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import Admin, MessageQueue
from mqwire.codes import ResponseCode
from tests.daemons import ReplicaGroup
from tests.interop.clients import Cluster, ConsumerHandle, DriverProcess
from tests.processes import steady_ports, wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, promote, send_raw, wait_level

TOPIC = "shown"
HELD, LOST, NEXT = 20, 15, 30
# Go's client drops a queue whose offset was moved, and shares the queues out again after ten seconds.
FOLLOWS_WITHIN_MS = 90_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    """A master that acknowledges alone; the new one is where it was, so that clients find it at once."""
    conf = {"flushDiskType": "SYNC_FLUSH", "leaderListenPort": str(steady_ports(1))}
    with ReplicaGroup.start(tmp_path, conf) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=1, namesrv=running.namesrv)
        yield running


@pytest.fixture(params=["java_client", "go_client"])
def stock_client(request: pytest.FixtureRequest) -> DriverProcess:
    client: DriverProcess = request.getfixturevalue(request.param)
    return client


def send(group: ReplicaGroup, replica: int, count: int, what: str) -> list[str]:
    bodies = [f"{what} {number}" for number in range(count)]
    for body in bodies:
        assert send_raw(group[replica], TOPIC, body.encode()) == ResponseCode.SUCCESS
    return bodies


def receive(consumer: ConsumerHandle, count: int, timeout_ms: int = 30_000) -> int:
    return len({one["offset_msg_id"] for one in consumer.receive(count, timeout_ms)})


def test_they_go_back_to_what_their_group_has_committed_and_get_all_that_came_since(
    group: ReplicaGroup, stock_client: DriverProcess
) -> None:
    cluster, queue = Cluster(group.namesrv), MessageQueue(TOPIC, group.name, 0)
    with Admin(group.namesrv) as admin:
        with stock_client.consumer(cluster, TOPIC, group="readers") as consumer:
            send(group, 0, HELD, "held")
            assert receive(consumer, HELD) == HELD
            wait_until(
                lambda: admin.consumer_offset("readers", queue) == HELD, timeout_s=WAIT_S, what="they are committed"
            )
            wait_level(group)
            group[1].kill()
            send(group, 0, LOST, "lost")
            assert receive(consumer, LOST) == LOST
            os.kill(stock_client.process.pid, signal.SIGSTOP)  # it asks once the queue has grown past what it has read
            try:
                group[0].kill()
                group[1].start()
                promote(group, 1, loses=True)
                send(group, 1, NEXT, "next")
            finally:
                os.kill(stock_client.process.pid, signal.SIGCONT)
            assert receive(consumer, NEXT, FOLLOWS_WITHIN_MS) >= NEXT
            wait_until(
                lambda: admin.consumer_offset("readers", queue) == HELD + NEXT,
                timeout_s=WAIT_S,
                what="all are committed",
            )
