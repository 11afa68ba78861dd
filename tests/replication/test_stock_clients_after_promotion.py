"""Stock Java and Go producers with their default settings write again after a promotion, without a restart.

They look for the route each 30 s, and neither looks sooner because a send was refused: that is how long it may take.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.daemons import ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import plans
from tests.remoting import create_topic
from tests.replication.replicas import demote, promote, wait_level

TOPIC = "switched"
ROUTE_POLL_S = 30.0
SLACK_S = 90.0  # for a busy machine; what is usual is in README.md


@pytest.mark.timeout(300)
def test_java_and_go_producers_write_again_after_a_promotion(
    java_client: DriverProcess, go_client: DriverProcess, tmp_path: Path
) -> None:
    took_s: dict[str, float] = {}
    with ReplicaGroup.start(tmp_path, {"flushDiskType": "SYNC_FLUSH"}, synchronous=True) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=4, namesrv=group.namesrv)
        cluster = Cluster(group.namesrv)

        def send(client: DriverProcess, number: int) -> bool:
            (made,) = client.produce(
                cluster, TOPIC, plans(f"{client.name}-{number}", 1, sizes=[100]), group=f"switched-{client.name}"
            )
            return bool(made["status"] == "SEND_OK")

        assert send(java_client, 0)
        assert send(go_client, 0)

        def until_sent(client: DriverProcess) -> None:
            number = 1
            while not send(client, number) and time.monotonic() < promoted_s + ROUTE_POLL_S + SLACK_S:
                number += 1
                time.sleep(0.3)
            took_s[client.name] = time.monotonic() - promoted_s

        demote(group, 0)
        promote(group, 1)
        promoted_s = time.monotonic()
        threads = [threading.Thread(target=until_sent, args=(client,)) for client in (java_client, go_client)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(f"seconds until they wrote again: {took_s}")
    assert max(took_s.values()) < ROUTE_POLL_S + SLACK_S, took_s
