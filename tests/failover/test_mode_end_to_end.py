"""One cluster from a single broker to a group that elects, and back, over REST, nothing replaced: a stock Java producer and
consumer go on through all of it, and the master's process is the same one to the end.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.stock_load import StockLoad
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.conftest import java_client as java_client
from tests.support.platform_stack import PlatformStack

TENANT = "ladder"
TOPIC = "rungs"
QUEUES = 2
# (mode, replicas asked for, the modes after the one before, who belongs to the group then)
RUNGS: list[tuple[str, int | None, list[str], list[int]]] = [
    ("async", 3, ["async"], [0, 1, 2]),
    ("sync", None, ["sync"], [0, 1, 2]),
    ("dledger", None, ["dledger"], [0, 1, 2]),
    ("sync", None, ["sync"], [0, 1, 2]),
    ("async", None, ["async"], [0, 1, 2]),
    ("single", None, ["single"], [0]),
]


@pytest.fixture
def live(platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, "ladder", mode="single")
        answer = api.post(
            f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": QUEUES, "write_queue_nums": QUEUES}
        )
        assert answer.status_code == 201, answer.text
        yield live
        assert api.delete(live.path).status_code == 202


def change(live: LiveGroup, mode: str, replicas: int | None = None) -> dict[str, Any]:
    body = {"mode": mode} if replicas is None else {"mode": mode, "replicas": replicas}
    preview = live.api.post(f"{live.path}mode/?dry_run=true", json=body).json()
    assert preview["possible"], preview
    answer = live.api.post(f"{live.path}mode/", json=body)
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    return preview  # type: ignore[no-any-return]  # JSON


def test_a_stock_client_goes_from_single_to_dledger_and_back_with_its_cluster(
    live: LiveGroup, java_client: DriverProcess
) -> None:
    before = live.get()
    pid = live.pid(0)
    keys = live.credentials
    cluster = Cluster(before["namesrv_addr"], keys.access_key, keys.secret_key)
    with java_client.consumer(cluster, TOPIC, group="rungs-readers") as consumer:
        with StockLoad(java_client, cluster, TOPIC) as load:
            load.wait_more()
            for mode, replicas, path, members in RUNGS:
                assert change(live, mode, replicas)["path"] == path
                found = live.get()
                assert found["mode"] == mode
                assert [one["broker_id"] for one in found["broker_groups"][0]["replicas"]] == members
                load.wait_more()
                assert live.pid(0) == pid, f"the master was restarted on its way to {mode}"
        load.assert_delivered(consumer)
    after = live.get()
    assert (after["id"], after["namesrv_addr"]) == (before["id"], before["namesrv_addr"])
    folder = live.store(0).parent.parent
    assert sorted(one.name for one in folder.iterdir() if one.name.startswith("broker-a-")) == ["broker-a-0"]
    # Alone again, it needs no one's agreement to lead.
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: live.pid(0), lambda found: found not in (0, pid), "restarted")
    with StockLoad(java_client, cluster, TOPIC) as load:
        load.wait_more()
