"""Failover drills over REST, nothing replaced: of a synchronous pair under load with the leadership given back, and of a group
that elects its leader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import Sender, send_ok, stored
from tests.support.platform_stack import PlatformStack

TENANT = "drilling"
TOPIC = "payments"
CONFIRMED = {"confirm": "broker-a"}


def _healthy(group: dict[str, Any]) -> bool:
    return bool(group["state"] == "healthy")


def _live(platform_stack: PlatformStack, slug: str, **values: Any) -> Iterator[LiveGroup]:
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, slug, **values)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC})
        assert answer.status_code == 201, answer.text
        live.wait_group(_healthy, "healthy")
        yield live
        assert api.delete(live.path).status_code == 202


@pytest.fixture(scope="module")
def tenant(platform_stack: PlatformStack) -> PlatformStack:
    platform_stack.manage("create_tenant", TENANT)
    return platform_stack


@pytest.fixture(scope="module")
def pair(tenant: PlatformStack) -> Iterator[LiveGroup]:
    yield from _live(tenant, "pair", mode="sync", replicas=2)


@pytest.fixture(scope="module")
def wide(tenant: PlatformStack) -> Iterator[LiveGroup]:
    """Two broker groups of two."""
    yield from _live(tenant, "wide", mode="sync", groups=2, replicas=2)


@pytest.fixture(scope="module")
def trio(tenant: PlatformStack) -> Iterator[LiveGroup]:
    yield from _live(tenant, "trio", mode="dledger")


def _drilled(live: LiveGroup, **values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The operation and the report of one drill."""
    answer = live.ask("drill", {**CONFIRMED, **values})
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    drill = next(one for one in live.get("drills/")["results"] if one["operation_id"] == operation["id"])
    assert operation["state"] == "completed", json.dumps([operation, drill], indent=1)
    return operation, drill


def test_a_drill_of_a_pair_measures_the_outage_loses_nothing_and_gives_the_leadership_back(pair: LiveGroup) -> None:
    before = pair.wait_group(_healthy, "healthy")
    plan = pair.ask("drill", {"gives_back": True}, dry_run=True).json()
    assert (plan["possible"], plan["clean"], plan["leader_id"]) == (True, True, before["master_id"]), plan
    with Sender(pair, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        operation, drill = _drilled(pair, gives_back=True)
        sent = len(sender.acknowledged)
        wait_for(lambda: len(sender.acknowledged), lambda found: found > sent + 20, "load goes on")
    assert (drill["verdict"], drill["probes_missing"]) == ("passed", 0), drill
    assert drill["rto_ms"] > 0
    assert drill["probes_sent"] >= drill["probes_acknowledged"] >= 20
    assert (drill["mode"], drill["leader_id"], drill["new_leader_id"]) == (
        "sync",
        before["master_id"],
        1 - before["master_id"],
    )
    names = [line["name"] for line in drill["timeline"]]
    assert names[:4] == ["requested", "preflight", "probing", "fault"]
    assert {"fenced", "promoted", "first_write", "rejoining", "rejoined", "measured"} <= set(names)
    group = pair.wait_group(_healthy, "healthy again")
    assert group["master_id"] == before["master_id"]
    assert not set(sender.acknowledged) - set(stored(pair, TOPIC))
    kinds = [one["kind"] for one in pair.get("failovers/")["results"] if one["operation_id"] == operation["id"]]
    assert kinds == ["switchover", "drill"]
    assert send_ok(pair, TOPIC) == "SEND_OK"


def test_a_drill_of_a_group_that_elects_waits_for_its_election(trio: LiveGroup) -> None:
    before = trio.wait_group(_healthy, "healthy")
    pid = trio.pid(before["master_id"])
    with Sender(trio, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        _, drill = _drilled(trio)
    assert (drill["verdict"], drill["probes_missing"]) == ("passed", 0), drill
    assert drill["rto_ms"] > 0
    group = trio.wait_group(_healthy, "healthy again")
    assert group["master_id"] == drill["new_leader_id"] != before["master_id"]
    assert int(group["epoch"]) > int(before["epoch"])
    assert trio.pid(before["master_id"]) not in (0, pid)
    assert "elected" in [line["name"] for line in drill["timeline"]]
    assert not [one for one in trio.get("failovers/")["results"] if one["kind"] == "election"]  # it was ordered
    assert not set(sender.acknowledged) - set(stored(trio, TOPIC))


def test_the_leadership_of_a_group_that_elects_is_handed_back(trio: LiveGroup) -> None:
    before = trio.wait_group(_healthy, "healthy")
    _, drill = _drilled(trio, gives_back=True)
    assert drill["verdict"] == "passed", drill
    assert trio.wait_group(_healthy, "healthy again")["master_id"] == before["master_id"]


def test_a_pair_survives_a_leader_that_hangs(pair: LiveGroup) -> None:
    before = pair.wait_group(_healthy, "healthy")
    pid = pair.pid(before["master_id"])
    with Sender(pair, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        _, drill = _drilled(pair, fault="hang")
    assert (drill["verdict"], drill["fault"]) == ("passed", "hang"), drill
    assert drill["new_leader_id"] != before["master_id"]
    pair.wait_group(_healthy, "healthy again")
    assert pair.pid(before["master_id"]) not in (0, pid)
    assert not set(sender.acknowledged) - set(stored(pair, TOPIC))


def test_a_group_that_elects_survives_a_leader_that_hangs(trio: LiveGroup) -> None:
    before = trio.wait_group(_healthy, "healthy")
    pid = trio.pid(before["master_id"])
    with Sender(trio, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        _, drill = _drilled(trio, fault="hang")
    assert (drill["verdict"], drill["fault"]) == ("passed", "hang"), drill
    assert drill["new_leader_id"] != before["master_id"]
    trio.wait_group(_healthy, "healthy again")
    assert trio.pid(before["master_id"]) not in (0, pid)
    assert not set(sender.acknowledged) - set(stored(trio, TOPIC))


def test_a_pair_survives_a_leader_that_is_cut_off(pair: LiveGroup) -> None:
    before = pair.wait_group(_healthy, "healthy")
    with Sender(pair, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        _, drill = _drilled(pair, fault="cut")
    assert (drill["verdict"], drill["fault"]) == ("passed", "cut"), drill
    assert drill["new_leader_id"] != before["master_id"]
    pair.wait_group(_healthy, "healthy again")
    assert not set(sender.acknowledged) - set(stored(pair, TOPIC))


def test_a_group_that_elects_survives_a_leader_that_is_cut_off_and_the_same_process_follows_again(
    trio: LiveGroup,
) -> None:
    before = trio.wait_group(_healthy, "healthy")
    pid = trio.pid(before["master_id"])
    with Sender(trio, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        _, drill = _drilled(trio, fault="cut")
    assert (drill["verdict"], drill["fault"]) == ("passed", "cut"), drill
    assert drill["new_leader_id"] != before["master_id"]
    trio.wait_group(_healthy, "healthy again")
    assert trio.pid(before["master_id"]) == pid
    assert not set(sender.acknowledged) - set(stored(trio, TOPIC))


def test_a_drill_of_one_of_two_groups_leaves_the_other_alone(wide: LiveGroup) -> None:
    assert wide.get()["tls_ca"]  # so the brokers, the probes and the drill's requests speak TLS
    wait_for(lambda: wide.group("broker-b"), _healthy, "broker-b is healthy")
    leader, other = wide.group("broker-b")["master_id"], wide.group("broker-a")
    answer = wide.api.post(f"{wide.path}groups/broker-b/drill/", json={"confirm": "broker-b", "fault": "cut"})
    assert answer.status_code == 202, answer.text
    assert wide.finished(answer.json())["state"] == "completed"
    drill = wide.get("drills/")["results"][0]
    assert (drill["group"], drill["verdict"], drill["leader_id"]) == ("broker-b", "passed", leader), drill
    assert wide.group("broker-a")["epoch"] == other["epoch"]
    assert send_ok(wide, TOPIC) == "SEND_OK"


def test_a_drill_does_not_begin_where_a_replica_is_away(pair: LiveGroup) -> None:
    slave = 1 - pair.wait_group(_healthy, "healthy")["master_id"]
    pair.lose_machine(slave)
    pair.wait_group(lambda found: found["state"] != "healthy", "noticed")
    answer = pair.ask("drill", CONFIRMED)
    assert (answer.status_code, answer.json()["code"]) == (422, "not_possible")
    assert "A drill needs a healthy group" in answer.json()["detail"]
    pair.machine_is_back(slave)
    pair.wait_group(_healthy, "healthy again")
