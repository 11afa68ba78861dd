"""Promotions on a platform of their own, with two workers: one is killed in the middle of each step, Redis or PostgreSQL is
restarted under it. Each time there is exactly one new leadership, and never do two replicas take sends.

One synchronous pair serves the module, in order; the platform takes a dead worker's step over after one second.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from highwater.promotion import ballot_above
from tests.failover.live_group import LiveGroup, wait_for
from tests.failover.load import stored
from tests.failover.two_masters import EverySender
from tests.failover.workers import Moment, held_at, restart_server, second_worker, step_completed, timeline_line
from tests.support.platform_stack import PlatformStack, running_platform

TENANT = "resumed"
TOPIC = "payments"
SWITCHOVER = [
    *map(timeline_line, ("preflight", "sends_held", "drained", "fenced", "promoted", "first_write")),
    step_completed("failover_rejoin"),
]

DRILL = {
    "the leader stands still": Moment("clusters_replica", "UPDATE", "NEW.fenced"),
    "the leader is killed": timeline_line("fault"),
    "the other one is promoted": timeline_line("promoted"),
    "the report is written": timeline_line("measured"),
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformStack]:
    folder = tmp_path_factory.mktemp("resumed")
    with (
        running_platform(folder, {"HIGHWATER_STEP_LEASE_S": "1"}) as platform,
        second_worker(platform, folder / "logs" / "second.log"),
    ):
        yield platform


@pytest.fixture(scope="module")
def live(platform: PlatformStack) -> Iterator[LiveGroup]:
    """The pair, during whose creation a worker is killed with all brokers started."""
    platform.manage("create_tenant", TENANT)
    with platform.api(platform.token(TENANT)) as api:
        with held_at(platform, step_completed("start_brokers")) as worker:
            killer = threading.Thread(target=worker.kill)
            killer.start()
            live = LiveGroup.create(platform, api, TENANT, "pair", mode="sync", replicas=2)
            killer.join()
        answer = api.post(f"{live.path}topics/", json={"name": TOPIC, "read_queue_nums": 1, "write_queue_nums": 1})
        assert answer.status_code == 201, answer.text
        yield live


def healthy(live: LiveGroup) -> dict[str, Any]:
    return live.wait_group(lambda found: found["state"] == "healthy", "healthy")


def senders(live: LiveGroup, group: dict[str, Any]) -> EverySender:
    return EverySender([replica["address"] for replica in group["replicas"]], TOPIC, live.credentials)


def switched_once(live: LiveGroup, before: dict[str, Any], operation: dict[str, Any], load: EverySender) -> None:
    """One operation, one new epoch, one new master, nothing lost, each line of the timeline once."""
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    after = healthy(live)
    assert after["master_id"] == 1 - before["master_id"]
    assert int(after["epoch"]) == ballot_above([int(before["epoch"])]).epoch  # one ballot
    old, new = (before["replicas"][group["master_id"]]["address"] for group in (before, after))
    assert load.masters() == [old, new]
    found = stored(live, TOPIC)
    assert not set(load.acknowledged()) - set(found)
    assert len(found) == len(set(found))
    names = [line["name"] for line in live.failover(operation)["timeline"]]
    assert len(names) == len(set(names))
    assert {"promoted", "first_write"} <= set(names)


def load_flows(load: EverySender, more: int = 20) -> None:
    before = len(load.taken)
    wait_for(lambda: len(load.taken), lambda found: found >= before + more, "load")


def test_a_worker_killed_while_a_cluster_is_made_costs_seconds(live: LiveGroup) -> None:
    operation = live.api.get(f"tenants/{TENANT}/operations/").json()["results"][-1]
    step = next(step for step in operation["steps"] if step["name"] == "start_brokers")
    assert (operation["state"], step["state"]) == ("completed", "completed")
    assert step["attempts"] >= 2
    healthy(live)


@pytest.mark.parametrize("moment", SWITCHOVER, ids=lambda moment: moment.condition.split("'")[1])
def test_a_worker_is_killed_and_another_goes_on(live: LiveGroup, platform: PlatformStack, moment: Moment) -> None:
    before = healthy(live)
    with senders(live, before) as load:
        load_flows(load)
        with held_at(platform, moment) as worker:
            answer = live.ask("switchover")
            assert answer.status_code == 202, answer.text
            worker.kill()
            operation = live.finished(answer.json())
        load_flows(load)
    switched_once(live, before, operation, load)


@pytest.mark.parametrize("moment", DRILL)
def test_a_worker_is_killed_in_a_drill_and_the_report_claims_nothing_that_was_not_measured(
    live: LiveGroup, platform: PlatformStack, moment: str
) -> None:
    before = healthy(live)
    with senders(live, before) as load:
        load_flows(load)
        with held_at(platform, DRILL[moment]) as worker:
            answer = live.ask("drill", {"confirm": "broker-a"})
            assert answer.status_code == 202, answer.text
            worker.kill()
            operation = live.finished(answer.json())
        load_flows(load)
    switched_once(live, before, operation, load)
    drill = next(one for one in live.get("drills/")["results"] if one["operation_id"] == operation["id"])
    assert (drill["verdict"], drill["rto_ms"] is None) in (("passed", False), ("not_measured", True)), drill
    assert drill["probes_missing"] == 0


def test_two_operators_ask_at_once_and_the_whole_worker_is_killed(live: LiveGroup, platform: PlatformStack) -> None:
    before = healthy(live)
    with senders(live, before) as load:
        load_flows(load)
        answers: list[Any] = []
        with held_at(platform, timeline_line("promoted")) as worker:
            threads = [threading.Thread(target=lambda: answers.append(live.ask("switchover"))) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            worker.kill(whole_worker=True)
            assert sorted(answer.status_code for answer in answers) == [202, 409]
            operation = live.finished(next(answer.json() for answer in answers if answer.status_code == 202))
        load_flows(load)
    switched_once(live, before, operation, load)


@pytest.mark.parametrize("name", ["redis", "postgres"])
def test_a_server_is_restarted_in_the_middle(live: LiveGroup, platform: PlatformStack, name: str) -> None:
    before = healthy(live)
    with senders(live, before) as load:
        load_flows(load)
        with held_at(platform, timeline_line("fenced")) as worker:
            answer = live.ask("switchover")
            worker.arrived()
            # Redis loses what it has; PostgreSQL's fast shutdown ends every session.
            restart_server(platform, name, signal.SIGKILL if name == "redis" else signal.SIGINT)
        operation = wait_for(lambda: finished_or_none(live, answer.json()), bool, "operation")
        load_flows(load)
    switched_once(live, before, operation, load)


def test_a_lost_masters_worker_is_killed_after_the_fence(live: LiveGroup, platform: PlatformStack) -> None:
    """The old master's process is stopped, the candidate not yet promoted: no one may start the old one."""
    before = healthy(live)
    old = before["master_id"]
    with senders(live, before) as load:
        load_flows(load)
        live.lose_machine(old)
        live.wait_group(lambda found: found["state"] == "no_master", "noticed")
        with held_at(platform, step_completed("failover_fence")) as worker:
            answer = live.ask("promote")
            assert answer.status_code == 202, answer.text
            worker.arrived()
            live.machine_is_back(old)  # it would lead again if someone started it now
            worker.kill()
            operation = live.finished(answer.json())
        load_flows(load)
    switched_once(live, before, operation, load)


def test_a_restarted_synchronous_master_whose_slave_is_dead_leads_again_by_itself(live: LiveGroup) -> None:
    before = healthy(live)
    master = before["master_id"]
    with senders(live, before) as load:
        load_flows(load)
        live.lose_machine(1 - master)
        live.wait_group(lambda found: found["state"] == "degraded", "slave lost")
        os.kill(live.pid(master), signal.SIGKILL)  # supervisord starts it again, but its slave can't agree
        repeated(live, before)
        load_flows(load)
    live.machine_is_back(1 - master)
    healthy(live)
    assert load.masters() == [before["replicas"][master]["address"]]
    assert not set(load.acknowledged()) - set(stored(live, TOPIC))


@pytest.fixture(scope="module")
def loose(live: LiveGroup) -> LiveGroup:
    """An asynchronous pair on the same platform."""
    loose = LiveGroup.create(live.platform, live.api, TENANT, "loose", mode="async", replicas=2)
    answer = loose.api.post(f"{loose.path}topics/", json={"name": TOPIC, "read_queue_nums": 1, "write_queue_nums": 1})
    assert answer.status_code == 201, answer.text
    return loose


def test_a_restarted_asynchronous_master_leads_again_if_its_slave_was_dead_before(loose: LiveGroup) -> None:
    before = healthy(loose)
    loose.lose_machine(1)
    loose.wait_group(was_alone_for_a_while, "the master alone")
    os.kill(loose.pid(0), signal.SIGKILL)
    failover = repeated(loose, before)
    assert "holds everything that was acknowledged" in failover["lossless_because"]
    loose.machine_is_back(1)
    healthy(loose)


def test_where_the_dead_slave_may_have_led_the_page_waits_for_an_operator(loose: LiveGroup) -> None:
    """The master died first: someone could have promoted the slave, which then died, too."""
    before = healthy(loose)
    loose.lose_machine(0)
    loose.wait_group(lambda found: found["state"] == "no_master", "master lost")
    loose.lose_machine(1)
    loose.wait_group(lambda found: not found["candidates"], "slave lost")
    loose.machine_is_back(0)
    group = loose.wait_group(
        lambda found: found["state"] == "no_master" and found["candidates"] == [0], "the master is back"
    )
    assert "was restarted and does not lead yet. Sends fail" in group["sentences"][0]
    assert "replica 1 since" in group["sentences"][0]
    assert "what replica 1 took as master" in group["sentences"][-1]
    preflight = loose.ask("promote", dry_run=True).json()
    assert (preflight["confirmation_needed"], preflight["messages_at_risk"]) == (True, None)
    assert loose.ask("promote").status_code == 409
    operation = loose.finished(loose.ask("promote", {"confirm": "broker-a"}).json())
    assert operation["state"] == "completed", json.dumps(operation, indent=1)
    group = loose.wait_group(lambda found: found["master_id"] == 0, "leads")
    assert int(group["epoch"]) > int(before["epoch"])
    loose.machine_is_back(1)
    healthy(loose)


def repeated(live: LiveGroup, before: dict[str, Any]) -> dict[str, Any]:
    """Wait until the same master leads again by a repeated promotion, with no one's word; return that failover."""
    group = live.wait_group(
        lambda found: found["master_id"] == before["master_id"] and int(found["epoch"]) > int(before["epoch"]),
        "leads again",
    )
    assert group["replicas"][group["master_id"]]["accepts_sends"]
    failover: dict[str, Any] = wait_for(
        lambda: live.get("failovers/")["results"][0], lambda found: found["state"] == "completed", "failover"
    )
    assert (failover["kind"], failover["requested_by"], failover["lossless"]) == ("repeat", "failover", True)
    names = [line["name"] for line in failover["timeline"]]
    assert names[0] == "claim_blocked"
    assert "first_write" in names
    assert failover["outage_ms"] > 0
    return failover


def was_alone_for_a_while(group: dict[str, Any]) -> bool:
    """Whether the master was seen leading well after the slave's end, which supervisord reports to the second."""
    master, slave = group["replicas"]
    if slave["unreachable_since"] is None:
        return False
    seen, away = (datetime.fromisoformat(time) for time in (master["last_seen_at"], slave["unreachable_since"]))
    return seen - away > timedelta(seconds=4)


def finished_or_none(live: LiveGroup, operation: dict[str, Any]) -> dict[str, Any] | None:
    """The operation once it is over; None also while the API is without its database."""
    answer = live.api.get(f"operations/{operation['id']}/")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {"state": "in_progress"}
    return None if found["state"] == "in_progress" else found
