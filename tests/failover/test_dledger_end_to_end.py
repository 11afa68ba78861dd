"""A group that elects its leader, over REST, nothing replaced: its leader is killed under load, the role is transferred back,
and a replica whose machine is lost is replaced by an empty one. One cluster serves the module, in order.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import Sender, send_ok, stored
from tests.support.platform_stack import PlatformStack

TENANT = "electing"
TOPIC = "payments"


@pytest.fixture(scope="module")
def live(platform_stack: PlatformStack) -> Iterator[LiveGroup]:
    platform_stack.manage("create_tenant", TENANT)
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, "trio", mode="dledger")
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 2, "write_queue_nums": 2})
        assert answer.status_code == 201, answer.text
        yield live
        assert api.delete(live.path).status_code == 202


def _healthy(group: dict[str, Any]) -> bool:
    return bool(group["state"] == "healthy")


def _wait_goes_on(sender: Sender) -> None:
    """Returns when some more sends were acknowledged from now on."""
    sent = len(sender.acknowledged)
    wait_for(lambda: len(sender.acknowledged), lambda found: found > sent + 20, "load goes on")


def _election(live: LiveGroup, above: int) -> dict[str, Any] | None:
    """The event of the first election after this epoch, once its first write is known."""
    events = [one for one in live.get("failovers/")["results"] if one["kind"] == "election"]
    found = [one for one in events if int(one["new_epoch"]) > above and one["writes_back_at"] is not None]
    return min(found, key=lambda one: int(one["new_epoch"]), default=None)


def test_the_role_map_shows_who_leads_who_counts_and_who_voted_for_whom(live: LiveGroup) -> None:
    group = live.wait_group(_healthy, "healthy")
    leader = group["master_id"]
    assert group["electorate"]["voters"] == [0, 1, 2]
    states = {replica["replica_id"]: replica["election_state"] for replica in group["replicas"]}
    assert states == {replica_id: "leader" if replica_id == leader else "follower" for replica_id in range(3)}
    votes = [replica["voted_for"] for replica in group["replicas"]]
    assert votes.count(leader) >= 2
    followers = [replica for replica in group["replicas"] if replica["replica_id"] != leader]
    assert all(replica["last_pull_at"] is not None and replica["gap_bytes"] == "0" for replica in followers)
    assert send_ok(live, TOPIC) == "SEND_OK"


def test_no_one_promotes_in_it(live: LiveGroup) -> None:
    answer = live.ask("promote")
    assert (answer.status_code, answer.json()["code"]) == (422, "not_promotable")
    assert "transfer the leadership" in answer.json()["detail"]


def test_a_killed_leader_is_replaced_by_an_election_that_the_timeline_shows(live: LiveGroup) -> None:
    before = live.wait_group(_healthy, "healthy")
    old = before["master_id"]
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        os.kill(live.pid(old), signal.SIGKILL)
        event = wait_for(
            lambda: _election(live, int(before["epoch"])), lambda found: found is not None, "the election's event"
        )
        _wait_goes_on(sender)
    group = live.wait_group(_healthy, "healthy again")
    assert int(group["epoch"]) > int(before["epoch"])
    assert not set(sender.acknowledged) - set(stored(live, TOPIC))
    assert (event["operation_id"], event["state"], event["old_master_id"]) == (None, "completed", old)
    assert {"lost", "noticed", "elected", "first_write"} <= {line["name"] for line in event["timeline"]}
    assert event["outage_ms"] is not None
    assert "to the first message that replica" in event["measured_how"]


def test_the_leadership_is_transferred_without_loss(live: LiveGroup) -> None:
    before = live.wait_group(_healthy, "healthy")
    target = (before["master_id"] + 1) % 3
    preview = live.ask("transfer", {"target": target}, dry_run=True).json()
    assert (preview["possible"], preview["leader_id"], len(preview["steps"])) == (True, before["master_id"], 3)
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        answer = live.ask("transfer", {"target": target}, key="transfer-1")
        assert answer.status_code == 202, answer.text
        operation = live.finished(answer.json())
        assert operation["state"] == "completed", json.dumps(operation, indent=1)
        _wait_goes_on(sender)
    group = live.wait_group(lambda found: found["master_id"] == target and _healthy(found), "transferred")
    assert int(group["epoch"]) > int(before["epoch"])
    assert not set(sender.acknowledged) - set(stored(live, TOPIC))
    transfer = live.failover(operation)
    names = [line["name"] for line in transfer["timeline"]]
    assert [name for name in names if name != "rejoined"] == [
        "requested",
        "looked",
        "sends_held",
        "elected",
        "registered",
        "first_write",
    ]
    assert (transfer["kind"], transfer["lossless"]) == ("transfer", True)
    assert transfer["outage_ms"] is not None
    assert _election(live, int(before["epoch"])) is None  # it was ordered
    assert live.ask("transfer", {"target": target}, key="transfer-1").headers["Idempotent-Replayed"] == "true"


def test_a_lost_replica_is_replaced_by_an_empty_one(live: LiveGroup) -> None:
    before = live.wait_group(_healthy, "healthy")
    lost = next(replica_id for replica_id in range(3) if replica_id != before["master_id"])
    acknowledged = stored(live, TOPIC)
    live.lose_machine(lost)
    group = live.wait_group(lambda found: found["state"] == "degraded", "noticed")
    assert group["sentences"][0].startswith("1 of 3 replicas is unreachable. Writes and reads continue;")
    assert send_ok(live, TOPIC) == "SEND_OK"
    preview = live.ask("replace", {"replica": lost}, dry_run=True).json()
    assert (preview["adding"], preview["removing"], preview["possible"]) == ([3], [lost], True)
    answer = live.ask("replace", {"replica": lost}, key="replace-1")
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    group = live.wait_group(_healthy, "healthy with the new one")
    assert group["electorate"]["voters"] == sorted({0, 1, 2, 3} - {lost})
    assert [replica["replica_id"] for replica in group["replicas"]] == group["electorate"]["voters"]
    assert group["epoch"] == before["epoch"]  # no one was disturbed
    assert not set(acknowledged) - set(stored(live, TOPIC))
    assert send_ok(live, TOPIC) == "SEND_OK"
    moved = live.ask("transfer", {"target": 3})
    assert live.finished(moved.json())["state"] == "completed"
    assert not set(acknowledged) - set(stored(live, TOPIC))


def test_the_group_grows_to_five_and_shrinks_again_under_load(live: LiveGroup) -> None:
    before = live.wait_group(_healthy, "healthy")
    with Sender(live, TOPIC) as sender:
        for replicas in (5, 3):
            answer = live.ask("resize", {"replicas": replicas})
            assert answer.status_code == 202, answer.text
            operation = live.finished(answer.json())
            assert operation["state"] == "completed", json.dumps(operation, indent=1)
            group = live.group()
            assert len(group["electorate"]["voters"]) == len(group["replicas"]) == replicas
            _wait_goes_on(sender)
    group = live.wait_group(_healthy, "healthy")
    assert (group["epoch"], group["electorate"]["voters"]) == (before["epoch"], before["electorate"]["voters"])
    assert not set(sender.acknowledged) - set(stored(live, TOPIC))


def test_the_mode_is_changed_in_place_and_back_under_load(live: LiveGroup) -> None:
    before = live.wait_group(_healthy, "healthy")
    pids = {replica["replica_id"]: live.pid(replica["replica_id"]) for replica in before["replicas"]}
    with Sender(live, TOPIC) as sender:
        for mode, path in (("async", ["sync", "async"]), ("dledger", ["sync", "dledger"])):
            preview = live.api.post(f"{live.path}mode/?dry_run=true", json={"mode": mode}).json()
            assert (preview["possible"], preview["path"]) == (True, path), preview
            answer = live.api.post(f"{live.path}mode/", json={"mode": mode})
            assert answer.status_code == 202, answer.text
            operation = live.finished(answer.json())
            assert operation["state"] == "completed", json.dumps(operation, indent=1)
            assert live.get()["mode"] == mode
            _wait_goes_on(sender)
            group = live.wait_group(_healthy, "healthy in the new mode")
            assert (group["electorate"] is None) is (mode != "dledger")
            if mode == "async":  # one restarts with the files of the new mode
                restarted = next(replica_id for replica_id in pids if replica_id != group["master_id"])
                os.kill(pids.pop(restarted), signal.SIGKILL)
                live.wait_group(lambda found: found["state"] != "healthy", "its end is noticed")
                live.wait_group(_healthy, "it is back")
    assert (group["master_id"], group["epoch"]) == (before["master_id"], before["epoch"])
    assert {replica_id: live.pid(replica_id) for replica_id in pids} == pids  # no one was restarted
    assert not set(sender.acknowledged) - set(stored(live, TOPIC))
