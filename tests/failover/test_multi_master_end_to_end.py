"""A multi-master cluster over REST: queues spread, one group lost and back, slaves for each and gone again, a third group."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from highwater import Message, Producer
from tests.failover.live_group import LiveGroup, wait_for
from tests.support.platform_stack import PlatformStack

TENANT = "spread-out"
TOPIC = "clicks"


@pytest.fixture(scope="module")
def live(platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, "wide", mode="multi", groups=2)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 8, "write_queue_nums": 8})
        assert answer.status_code == 201, answer.text
        yield live
        assert api.delete(live.path).status_code == 202


def queues(live: LiveGroup) -> dict[str, int]:
    live_offsets = live.get(f"topics/{TOPIC}/")["live"]
    return dict(Counter(queue["broker_name"] for queue in live_offsets["queues"] or ()))


def sent_to(live: LiveGroup, count: int) -> set[str]:
    """The groups that took `count` messages, which all were acknowledged."""
    with Producer(namesrv=live.get()["namesrv_addr"], group="spread", credentials=live.credentials) as producer:
        return {producer.send(Message(TOPIC, b"x")).queue.broker_name for _ in range(count)}


def test_eight_queues_on_two_groups_are_four_and_four(live: LiveGroup) -> None:
    wait_for(lambda: queues(live), lambda found: found == {"broker-a": 4, "broker-b": 4}, "spread")
    assert sent_to(live, 16) == {"broker-a", "broker-b"}


def test_with_one_group_down_sends_go_on_with_the_other(live: LiveGroup) -> None:
    os.kill(live.pid(0), signal.SIGKILL)
    assert "broker-b" in sent_to(live, 16)
    wait_for(lambda: queues(live), lambda found: found == {"broker-a": 4, "broker-b": 4}, "restarted")


def test_each_group_gets_a_slave_in_place_and_loses_it_again(live: LiveGroup) -> None:
    pid = live.pid(0)
    for mode, members in (("sync", [0, 1]), ("multi", [0])):
        answer = live.api.post(f"{live.path}mode/", json={"mode": mode})
        assert answer.status_code == 202, answer.text
        operation = live.finished(answer.json())
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        found = live.get()
        assert found["mode"] == mode
        for group in found["broker_groups"]:
            assert [replica["broker_id"] for replica in group["replicas"]] == members
        assert sent_to(live, 16) == {"broker-a", "broker-b"}
    assert live.pid(0) == pid


def test_growing_spreads_the_topic_to_the_new_group_and_keeps_what_was_written_readable(live: LiveGroup) -> None:
    answer = live.api.post(f"{live.path}grow/")
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    # Read queues of the first groups stay: they may hold unread messages.
    wait_for(lambda: queues(live), lambda found: found == {"broker-a": 4, "broker-b": 4, "broker-c": 2}, "spread")
    assert sent_to(live, 24) == {"broker-a", "broker-b", "broker-c"}
    assert [group["state"] for group in live.get("groups/")["results"]][:2] == ["healthy", "healthy"]
