"""A synchronous master/slave cluster over REST, nothing replaced: planned switchover under load, then its master's machine is
lost, promoted away, and comes back. One cluster serves the module, in order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from highwater import Admin, HighwaterError, Message, Producer, is_system_topic
from highwater.promotion import ballot_above
from mqwire.names import RMQ_SYS_PROBE
from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import Sender, send_ok, stored
from tests.support.platform_stack import PlatformStack

TENANT = "failing-over"
TOPIC = "payments"
LATE_TOPIC = "refunds"


@pytest.fixture(scope="module")
def live(platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, "pair", mode="sync", replicas=2)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 2, "write_queue_nums": 2})
        assert answer.status_code == 201, answer.text
        yield live
        assert api.delete(live.path).status_code == 202


def _healthy(group: dict[str, Any]) -> bool:
    return bool(group["state"] == "healthy")


def test_the_role_map_shows_master_and_slave_in_sync(live: LiveGroup) -> None:
    group = live.wait_group(_healthy, "healthy")
    assert [(replica["replica_id"], replica["role"]) for replica in group["replicas"]] == [(0, "master"), (1, "slave")]
    assert all(replica["in_sync"] for replica in group["replicas"])
    assert group["epoch"] == group["replicas"][0]["epoch"]
    assert send_ok(live, TOPIC) == "SEND_OK"


def _newest_finished(live: LiveGroup) -> dict[str, Any]:
    """The last failover, once its operation has ended: the group is healthy a moment before, and takes no other until then."""
    newest: dict[str, Any] = live.get("failovers/")["results"][0]
    assert live.finished({"id": newest["operation_id"]})["state"] == "completed"
    return newest


def test_a_planned_switchover_under_load_loses_nothing(live: LiveGroup) -> None:
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        answer = live.ask("switchover", key="switch-1")
        assert answer.status_code == 202, answer.text
        operation = live.finished(answer.json())
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        before = len(sender.acknowledged)
        wait_for(lambda: len(sender.acknowledged), lambda found: found > before + 20, "load after the switch")
    group = live.wait_group(lambda found: found["master_id"] == 1 and _healthy(found), "switched")
    assert {replica["role"] for replica in group["replicas"]} == {"master", "slave"}
    found = stored(live, TOPIC)
    assert not set(sender.acknowledged) - set(found)
    failover = live.failover(operation)
    assert (failover["kind"], failover["lossless"], failover["fence"]) == ("switchover", True, "demoted")
    names = [line["name"] for line in failover["timeline"]]
    assert names[:5] == ["requested", "preflight", "sends_held", "drained", "fenced"]
    assert {"promoted", "registered", "first_write", "rejoined"} <= set(names)
    assert failover["outage_ms"] < 20_000


def test_tenants_neither_see_nor_use_the_topic_of_our_first_writes(live: LiveGroup) -> None:
    assert [topic["name"] for topic in live.get("topics/")["results"]] == [TOPIC]
    assert is_system_topic(RMQ_SYS_PROBE)  # hidden in lists of the command line, and in no bill
    namesrv, credentials = live.get()["namesrv_addr"], live.credentials
    with (
        Producer(namesrv=namesrv, group="curious", credentials=credentials) as producer,
        pytest.raises(HighwaterError, match="permission"),
    ):
        producer.send(Message(RMQ_SYS_PROBE, b"x"))
    with Admin(namesrv, credentials=credentials) as admin, pytest.raises(HighwaterError, match="permission"):
        admin.topic_stats(RMQ_SYS_PROBE)


def test_the_same_key_asks_once(live: LiveGroup) -> None:
    answer = live.ask("switchover", key="switch-1")
    assert answer.headers["Idempotent-Replayed"] == "true"
    assert len(live.get("failovers/")["results"]) == 1


def test_a_lost_master_is_seen_promoted_away_and_rejoins(live: LiveGroup) -> None:
    old = live.group()["master_id"]
    heir = 1 - old
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
    acknowledged = list(sender.acknowledged)
    # A topic of the last moment: it was answered, so the heir has it.
    answer = live.api.post(f"{live.path}topics/", json={"name": LATE_TOPIC})
    assert answer.status_code == 201, answer.text
    live.lose_machine(old)
    group = live.wait_group(lambda found: found["state"] == "no_master", "noticed")
    assert f"replica {old} is down" in group["sentences"][0]
    assert f"Reads continue from replica {heir}" in group["sentences"][1]
    preflight = live.ask("promote", dry_run=True).json()
    assert (preflight["possible"], preflight["clean"], preflight["messages_at_risk"]) == (True, True, "0")
    answer = live.ask("promote")
    assert answer.status_code == 202, answer.text
    wait_for(
        lambda: [line["name"] for line in live.failover(answer.json())["timeline"]],
        lambda names: "first_write" in names,
        "first write",
    )
    # Stored, but the second copy that synchronous replication promises is missing until the old master is back.
    assert send_ok(live, TOPIC) == "SLAVE_NOT_AVAILABLE"
    live.machine_is_back(old)
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    group = live.wait_group(_healthy, "healthy again")
    assert (group["master_id"], live.replica(old)["role"]) == (heir, "slave")
    failover = live.failover(operation)
    assert (failover["lossless"], failover["fence"], failover["messages_at_risk"]) == (True, "stopped", "0")
    assert failover["rejoined_at"] is not None
    assert failover["outage_ms"] > 0
    assert send_ok(live, LATE_TOPIC) == "SEND_OK"
    assert not set(acknowledged) - set(stored(live, TOPIC))
    assert send_ok(live, TOPIC) == "SEND_OK"


def test_only_one_of_two_requests_at_once_promotes(live: LiveGroup) -> None:
    before = live.group()
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(live.ask("switchover").status_code)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [202, 409]
    group = live.wait_group(
        lambda found: found["master_id"] not in (None, before["master_id"]) and _healthy(found), "switched once"
    )
    assert int(group["epoch"]) == ballot_above([int(before["epoch"])]).epoch  # one ballot
    _newest_finished(live)


def test_with_the_automatic_policy_a_lost_master_needs_no_one(live: LiveGroup) -> None:
    answer = live.api.patch(live.path, json={"failover_policy": "automatic_when_lossless"})
    assert answer.status_code == 200, answer.text
    old = live.wait_group(_healthy, "healthy")["master_id"]
    live.lose_machine(old)
    live.wait_group(lambda found: found["master_id"] == 1 - old, "promoted by itself")
    live.machine_is_back(old)
    live.wait_group(_healthy, "healthy again")
    assert _newest_finished(live)["kind"] == "automatic"
    assert send_ok(live, TOPIC) == "SEND_OK"


def test_growing_by_a_replica_restarts_no_one_and_the_new_slave_holds_all(live: LiveGroup) -> None:
    live.wait_group(_healthy, "healthy")
    before = [live.pid(0), live.pid(1)]
    answer = live.api.post(f"{live.path}grow/", json={"by": "replica"})
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    group = live.wait_group(lambda found: len(found["replicas"]) == 3 and _healthy(found), "three of them in sync")
    assert [live.pid(0), live.pid(1)] == before
    assert {replica["end_offset"] for replica in group["replicas"]} == {group["replicas"][0]["end_offset"]}
    assert send_ok(live, TOPIC) == "SEND_OK"
