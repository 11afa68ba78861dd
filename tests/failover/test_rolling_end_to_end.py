"""Rolling restarts over REST, nothing replaced: of synchronous replicas, of a group that elects and of a broker alone, under load;
and an upgrade where no program is older.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import Sender, stored
from tests.support.platform_stack import PlatformStack

TENANT = "rolling"
TOPIC = "payments"


def _healthy(group: dict[str, Any]) -> bool:
    return bool(group["state"] == "healthy")


@pytest.fixture(scope="module")
def tenant(platform_stack: PlatformStack) -> PlatformStack:
    platform_stack.manage("create_tenant", TENANT)
    return platform_stack


def _live(platform_stack: PlatformStack, name: str, **values: Any) -> Iterator[LiveGroup]:
    slug = f"{name}-{secrets.token_hex(3)}"  # one that is deleted keeps its slug while that can be taken back
    with platform_stack.api(platform_stack.token(TENANT)) as api:
        live = LiveGroup.create(platform_stack, api, TENANT, slug, **values)
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC})
        assert answer.status_code == 201, answer.text
        yield live
        assert api.delete(live.path).status_code == 202


@pytest.fixture
def trio(tenant: PlatformStack) -> Iterator[LiveGroup]:
    """Three replicas of which two must hold each record: one may be away."""
    yield from _live(tenant, "trio", mode="sync", replicas=3)


@pytest.fixture
def electing(tenant: PlatformStack) -> Iterator[LiveGroup]:
    yield from _live(tenant, "electing", mode="dledger")


@pytest.fixture
def alone(tenant: PlatformStack) -> Iterator[LiveGroup]:
    yield from _live(tenant, "alone", mode="single")


def rolled(live: LiveGroup, verb: str = "restart") -> dict[str, Any]:
    answer = live.api.post(f"{live.path}{verb}/", json={})
    assert answer.status_code == 202, answer.text
    operation = live.finished(answer.json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    return operation


def pids(live: LiveGroup, replicas: int) -> list[int]:
    return [live.pid(replica) for replica in range(replicas)]


def restarted_under_load(live: LiveGroup, replicas: int) -> dict[str, Any]:
    """Restart all with a producer that sends throughout; every process is another then, and nothing acknowledged is lost."""
    before, leader = pids(live, replicas), live.wait_group(_healthy, "healthy")["master_id"]
    with Sender(live, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        operation = rolled(live)
        sent = len(sender.acknowledged)
        wait_for(lambda: len(sender.acknowledged), lambda found: found > sent + 20, "load goes on")
    assert not set(pids(live, replicas)) & set(before)
    assert not set(sender.acknowledged) - set(stored(live, TOPIC))
    brokers = [daemon for daemon in operation["metadata"]["daemons"] if daemon["kind"] == "broker"]
    assert brokers[-1]["replica"] == leader, "who led comes last"
    assert brokers[-1]["leadership_moved_to"] not in (None, leader)
    assert [daemon["leadership_moved_to"] for daemon in brokers[:-1]] == [None] * (replicas - 1)
    times = [(daemon["stopped_at"], daemon["back_at"]) for daemon in operation["metadata"]["daemons"]]
    assert times == sorted(times)
    assert all(back <= stopped for (_, back), (stopped, _) in itertools.pairwise(times)), "one at a time"
    return operation


def test_a_synchronous_group_is_restarted_under_load_and_loses_nothing(trio: LiveGroup) -> None:
    answer = trio.api.patch(f"{trio.path}configuration/", json={"values": {"fileReservedTime": 96}})
    assert answer.json()["needs_restart"] is True
    assert trio.get("configuration/")["restart_needed"] is True
    operation = restarted_under_load(trio, 3)
    found = trio.get("configuration/")
    assert (found["restart_needed"], found["silent"]) == (False, [])
    refused = operation["metadata"]["sends_refused_ms"]
    print(f"synchronous group of three: sends refused for {refused} ms")
    assert set(refused) == {"broker-a"}
    kinds = [one["kind"] for one in trio.get("failovers/")["results"] if one["operation_id"] == operation["id"]]
    assert kinds == ["switchover"]


def test_a_group_that_elects_is_restarted_under_load_and_loses_nothing(electing: LiveGroup) -> None:
    operation = restarted_under_load(electing, 3)
    print(f"dledger: sends refused for {operation['metadata']['sends_refused_ms']} ms")
    kinds = [one["kind"] for one in electing.get("failovers/")["results"]]
    assert kinds == ["transfer"], "and no election that no one ordered"


def test_a_broker_alone_says_that_sends_stop_and_for_how_long_they_did(alone: LiveGroup) -> None:
    plan = alone.api.post(f"{alone.path}restart/", json={"dry_run": True}).json()
    assert (plan["possible"], plan["stops_sends"]) == (True, True), plan
    before = alone.pid(0)
    with Sender(alone, TOPIC) as sender:
        wait_for(lambda: len(sender.acknowledged), lambda found: found > 20, "load")
        operation = rolled(alone)
    assert alone.pid(0) != before
    assert not set(sender.acknowledged) - set(stored(alone, TOPIC))
    refused = operation["metadata"]["sends_refused_ms"]["broker-a"]
    print(f"single: sends refused for {refused} ms")
    assert refused > 0


def test_daemons_that_run_what_is_installed_are_not_upgraded(alone: LiveGroup) -> None:
    found = alone.get("daemons/")
    assert found["upgrade_available"] is False
    assert all(daemon["running"] == daemon["installed"] for daemon in found["daemons"]), found
    answer = alone.api.post(f"{alone.path}upgrade/", json={})
    assert (answer.status_code, answer.json()["code"]) == (422, "not_possible")
