"""Replicas that a change of the mode adds and removes: by REST, step by step, repeated, and with workers that died. The brokers
are scripted, the rows real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, Replica
from controlplane.clusters.operations import operation_retry
from controlplane.clusters.stuck_operations import operation_fail
from controlplane.failover.membership.order import Free, StopForGood
from controlplane.failover.membership.removal import leaving_carried_out
from controlplane.failover.models import ReplicaSample
from controlplane.failover.sampling import fences_release
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.ports import leader_ports
from controlplane.provisioning.processes import cluster_replicas, replica_daemons
from controlplane.provisioning.steps import StepContext
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, Json, World
from tests.failover.electing import run_all, run_step
from tests.failover.replicated import make_replicated
from tests.failover.scripted_modes import ScriptedModes


class Killed(BaseException):
    """The worker is gone: nothing after this line runs."""


SOLO = "/api/v1/tenants/acme/clusters/solo/"
TRIO = "/api/v1/tenants/acme/clusters/trio/"


@pytest.fixture
def solo(world: World, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedModes]:
    """A cluster of one broker, on the host where others will be."""
    cluster = make_replicated(world.acme, "solo", "single", replicas=1)
    monkeypatch.setattr(settings, "HIGHWATER_ADVERTISED_HOST", cluster_replicas(cluster)[0].host)
    with ScriptedModes.of(cluster, "single").answering(driver) as scripted:
        yield scripted


@pytest.fixture
def trio(world: World, driver: DriverTwin) -> Iterator[ScriptedModes]:
    """A group of three whose leader is assigned."""
    cluster = make_replicated(world.acme, "trio", "async", replicas=3)
    with ScriptedModes.of(cluster, "async").answering(driver) as scripted:
        yield scripted


def begin(api: Callable[..., Json], world: World, path: str, mode: str, replicas: int | None = None) -> Operation:
    answer = api(world.alice).call("POST", f"{path}mode/", {"mode": mode, "replicas": replicas})
    assert answer.status_code == 202, answer.json()
    return Operation.objects.get(pk=answer.json()["id"])


def go_on(modes: ScriptedModes, operation: Operation, driver: DriverTwin) -> Operation:
    """Run what can be run; new replicas catch up meanwhile."""
    run_all(operation, driver)
    modes.group.catch_up()
    return run_all(operation, driver)


def ids(modes: ScriptedModes) -> list[int]:
    return [row.broker_id for row in cluster_replicas(modes.group.cluster)]


def started(driver: DriverTwin) -> list[str]:
    return [call.rpartition("-")[2] for call in driver.calls if call.startswith("start ")]


def restarting_parts(modes: ScriptedModes, driver: DriverTwin) -> dict[int, str]:
    cluster = Cluster.objects.get(pk=modes.group.cluster.pk)
    daemons = replica_daemons(cluster, driver)
    return {one.row.broker_id: one.process.configuration for one in daemons if isinstance(one.row, Replica)}


def test_a_dry_run_says_who_would_come_and_changes_nothing(
    world: World, api: Callable[..., Json], solo: ScriptedModes
) -> None:
    answer = api(world.alice).call("POST", f"{SOLO}mode/?dry_run=true", {"mode": "sync", "replicas": 3})
    found = answer.json()
    assert (answer.status_code, found["possible"], found["path"]) == (200, True, ["async", "sync"])
    assert (found["adding"], found["replicas_before"], found["replicas_after"]) == ({"broker-a": [1, 2]}, 1, 3)
    assert (ids(solo), Operation.objects.filter(type="cluster.mode").exists()) == ([0], False)


def test_a_single_cluster_gets_a_slave_and_its_master_is_not_restarted(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin
) -> None:
    before = restarting_parts(solo, driver)
    operation = go_on(solo, begin(api, world, SOLO, "async"), driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    cluster = Cluster.objects.get(slug="solo")
    assert (cluster.mode, cluster.mode_at_creation, ids(solo)) == ("async", "single", [0, 1])
    assert started(driver) == ["1"]
    assert restarting_parts(solo, driver)[0] == before[0]
    (port,) = leader_ports(cluster.pk).values()
    master = solo.group[0].address
    assert solo.configured[master] == {"slaveReadEnable": "true", "leaderListenPort": str(port)}
    assert solo.asked[-1] == "async 1"
    text = next(text for path, text in driver.files.items() if path.endswith("broker-a-1/broker.conf"))
    assert "brokerRole=SLAVE\n" in text
    assert f"leaderListenPort={port}\n" in text


def test_the_mode_is_not_changed_before_the_new_replicas_are_level(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin
) -> None:
    operation = run_all(begin(api, world, SOLO, "async"), driver)
    assert operation.state == OperationState.IN_PROGRESS
    assert "4.8 MiB behind" in operation.steps.get(name="mode_catch_up").message
    assert Cluster.objects.get(slug="solo").mode == "single"
    assert "async 1" not in solo.asked


@pytest.fixture
def growing(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin
) -> tuple[ScriptedModes, Operation]:
    """A group of two that is to have three; the slave does not answer."""
    go_on(solo, begin(api, world, SOLO, "async"), driver)
    operation = begin(api, world, SOLO, "sync", replicas=3)
    assert operation.metadata["adding"] == {"broker-a": [2]}
    solo.group[1].answers = solo.group[1].pulls = False
    driver.calls.clear()
    return solo, operation


def test_a_replica_that_stays_is_started_though_an_operation_that_has_ended_had_stopped_it(
    growing: tuple[ScriptedModes, Operation], driver: DriverTwin
) -> None:
    """It was waited for to catch up, for hours, and no one else starts it while an operation runs."""
    modes, operation = growing
    Replica.objects.filter(group__cluster=modes.group.cluster, broker_id=1).update(fenced=True)
    assert go_on(modes, operation, driver).state == OperationState.COMPLETED
    assert started(driver) == ["1", "2"]
    assert not Replica.objects.filter(group__cluster=modes.group.cluster, fenced=True).exists()


def test_no_one_waits_for_a_replica_that_is_to_go_to_catch_up(
    growing: tuple[ScriptedModes, Operation], driver: DriverTwin
) -> None:
    modes, operation = growing
    metadata = {**operation.metadata, "removing": {"broker-a": [1]}}
    Operation.objects.filter(pk=operation.pk).update(metadata=metadata)
    run_all(operation, driver)
    modes.group.catch_up()
    assert run_step(operation, driver, "mode_catch_up") == "completed"
    assert started(driver) == ["2"]


def test_a_repeated_step_starts_and_notifies_no_one_twice(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin
) -> None:
    operation = go_on(solo, begin(api, world, SOLO, "dledger"), driver)
    assert (operation.state, ids(solo)) == (OperationState.COMPLETED, [0, 1, 2])
    asked = list(solo.asked)
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.IN_PROGRESS)
    operation.steps.update(state="pending", started_at=None)
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert (solo.asked, started(driver), ids(solo)) == (asked, ["1", "2"], [0, 1, 2])


def test_what_failed_on_its_way_up_is_taken_back_or_gone_on_with(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin
) -> None:
    failed = run_all(begin(api, world, SOLO, "async"), driver)
    Operation.objects.filter(pk=failed.pk).update(state=OperationState.FAILED)
    back = run_all(begin(api, world, SOLO, "single"), driver)
    assert (back.state, ids(solo)) == (OperationState.COMPLETED, [0])
    again = go_on(solo, begin(api, world, SOLO, "async"), driver)
    assert (again.state, ids(solo)) == (OperationState.COMPLETED, [0, 2])  # an id is never a second replica's


def test_replicas_are_forgotten_before_their_disk_is_cleared(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    before = restarting_parts(trio, driver)
    operation = begin(api, world, TRIO, "single")
    assert operation.metadata["removing"] == {"broker-a": [1, 2]}
    gone = {row.broker_id: row.pk for row in cluster_replicas(trio.group.cluster) if row.broker_id}
    assert run_all(operation, driver).state == OperationState.COMPLETED
    changes = [call for call in driver.calls if call.startswith(("remove ", "folder_remove "))]
    assert [call.split()[0] for call in changes] == ["remove", "folder_remove"] * 2
    assert trio.group.forgotten == [(0, 1), (0, 2)]
    cluster = Cluster.objects.get(slug="trio")
    assert (cluster.mode, cluster.mode_at_creation, ids(trio)) == ("single", "async", [0])
    assert not PortLease.objects.filter(holder__in=gone.values()).exists()
    assert trio.asked == ["single 1"]
    assert restarting_parts(trio, driver) == {0: before[0]}
    text = next(text for path, text in driver.files.items() if path.endswith("broker-a-0/broker.conf"))
    assert "totalReplicas" not in text


def test_a_replicas_folder_goes_when_no_one_writes_to_it_any_more(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts and certificates are written for the rows that are there: they would make it again."""
    found: list[list[int]] = []
    monkeypatch.setattr(driver, "folder_remove", lambda cluster_id, folder: found.append(ids(trio)))
    assert run_all(begin(api, world, TRIO, "single"), driver).state == OperationState.COMPLETED
    assert found == [[0, 2], [0]]


def test_whoever_leads_stays_although_another_one_was_to(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    operation = begin(api, world, TRIO, "single")
    trio.group.elect(2)
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert (ids(trio), BrokerGroup.objects.get(cluster__slug="trio").replica_ids_used) == ([2], 3)


def test_who_was_chosen_first_goes_whoever_leads_after_a_worker_died(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    """Else two workers could remove all of a group between them."""
    operation = begin(api, world, TRIO, "single")
    run_step(operation, driver, "mode_look")
    driver.away = True
    run_step(operation, driver, "mode_remove")
    driver.away = False
    trio.group.elect(2)
    operation.refresh_from_db()
    assert operation.metadata["removing"] == {"broker-a": [1, 2]}
    assert run_step(operation, driver, "mode_remove") == "failed"
    operation.refresh_from_db()
    assert operation.error == {
        "cause": "Replica 2 of broker-a leads by now, and was to be removed.",
        "hint": "Switch over to another replica, and retry.",
        "step": "mode_remove",
    }
    assert ids(trio) == [0, 1, 2]


def held_up(api: Callable[..., Json], world: World, trio: ScriptedModes, driver: DriverTwin) -> Operation:
    """A removal that has stopped replica 2, and waits for replica 1 to hold what that one held."""
    operation = begin(api, world, TRIO, "async", replicas=2)
    trio.group[1].end_offset -= 900
    assert run_all(operation, driver).state == OperationState.IN_PROGRESS
    return operation


def test_a_replica_leaves_when_those_that_stay_hold_what_it_held(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    """What was acknowledged may be on the leader and on the one that leaves; without its row the other's word alone would do."""
    operation = held_up(api, world, trio, driver)
    waits = "Replica 1 of broker-a has not caught up with what replica 2 held."
    assert waits in operation.steps.get(name="mode_remove_last").message
    assert ids(trio) == [0, 1, 2]
    trio.group[1].end_offset += 900
    trio.group[0].end_offset += 500  # what came since is not waited for: it is acknowledged without the one that leaves
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert ids(trio) == [0, 1]


def test_after_a_retry_those_that_stay_hold_what_was_taken_since_the_first_try(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    """In between the one that leaves was started again, and followed: what it took may be on the leader and on it alone."""
    operation = held_up(api, world, trio, driver)
    operation_fail(actor=SYSTEM, operation=operation, reason="it takes too long")
    trio.group[1].end_offset += 900
    trio.group[0].end_offset += 500
    trio.group[2].end_offset += 500
    operation.refresh_from_db()
    operation_retry(actor=SYSTEM, operation=operation)
    assert run_all(operation, driver).state == OperationState.IN_PROGRESS
    assert ids(trio) == [0, 1, 2]
    trio.group[1].end_offset += 500
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert ids(trio) == [0, 1]


@pytest.mark.parametrize("then", ["failed", "retried", "started again"])
def test_a_worker_that_stood_still_frees_no_replica_that_may_have_followed_since(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin, then: str
) -> None:
    """What the leader acknowledged with it meanwhile may be on no third disk: its own went, and with its row its word."""
    operation = held_up(api, world, trio, driver)
    late = StepContext.of(operation.steps.get(name="mode_remove_last"), driver)
    if then == "started again":
        Replica.objects.filter(group__cluster=trio.group.cluster, broker_id=2).update(fenced=False)
    else:
        operation_fail(actor=SYSTEM, operation=operation, reason="it takes too long")
    if then == "retried":
        operation.refresh_from_db()
        operation_retry(actor=SYSTEM, operation=operation)
        run_all(operation, driver)
    with pytest.raises((StepFailed, StepNotReady)):
        leaving_carried_out(late, Free("broker-a", 2))
    assert ids(trio) == [0, 1, 2]
    assert not [call for call in driver.calls if call.startswith("folder_remove ")]


def test_a_worker_that_stood_still_stops_no_replica_of_an_operation_that_has_ended(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    """It may lead by now."""
    operation = held_up(api, world, trio, driver)
    late = StepContext.of(operation.steps.get(name="mode_remove_last"), driver)
    operation_fail(actor=SYSTEM, operation=operation, reason="it takes too long")
    Replica.objects.filter(group__cluster=trio.group.cluster).update(fenced=False)
    driver.calls.clear()
    with pytest.raises(StepFailed):
        leaving_carried_out(late, StopForGood("broker-a", 2))
    assert driver.calls == []
    assert not Replica.objects.filter(group__cluster=trio.group.cluster, fenced=True).exists()


def test_no_one_is_removed_while_the_leader_takes_no_sends(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    operation = begin(api, world, TRIO, "async", replicas=2)
    trio.group.refusal = "the disk is full"
    assert run_all(operation, driver).state == OperationState.IN_PROGRESS
    assert "refuses sends: the disk is full" in operation.steps.get(name="mode_remove_last").message
    assert ids(trio) == [0, 1, 2]


def test_a_removal_gives_way_when_the_master_dies_and_who_was_stopped_for_it_is_started_again(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    """A promotion that is to lose nothing may need its answer, and waited for the end of the step, for two minutes."""
    operation = held_up(api, world, trio, driver)
    stopped = Replica.objects.filter(group__cluster=trio.group.cluster, fenced=True)
    assert [row.broker_id for row in stopped] == [2]
    trio.group[0].answers = False
    run_step(operation, driver, "mode_remove_last")
    long_ago = timezone.now() - timedelta(seconds=8)
    ReplicaSample.objects.filter(replica__group__cluster=trio.group.cluster, replica__broker_id=0).update(
        unreachable_since=long_ago
    )
    assert run_step(operation, driver, "mode_remove_last") == "failed"
    operation.refresh_from_db()
    assert operation.error is not None
    assert operation.error["cause"] == "broker-a has lost its master."
    fences_release(trio.group.cluster)
    assert ids(trio) == [0, 1, 2]
    assert not stopped.all().exists()


def test_a_master_that_restarts_when_the_last_slave_has_gone_is_made_to_lead(
    world: World, api: Callable[..., Json], trio: ScriptedModes, driver: DriverTwin
) -> None:
    operation = begin(api, world, TRIO, "single")
    for name in ("mode_look", "mode_remove"):
        assert run_step(operation, driver, name) == "completed"
    trio.claims, trio.group.leader = True, None
    assert run_all(operation, driver).state == OperationState.COMPLETED
    assert trio.asked == ["promote 0", "single 1"]


@dataclass
class KillsAtEachCall:
    """Whoever asks for something the first time is killed just before it is done."""

    killed: list[str] = field(default_factory=list)

    def __call__(self, call: str) -> None:
        if call not in self.killed:
            self.killed.append(call)
            raise Killed


def until_completed(modes: ScriptedModes, operation: Operation, driver: DriverTwin) -> None:
    for _ in range(40):
        try:
            run_all(operation, driver)
        except Killed:
            operation.steps.filter(state="running").update(state="pending", claim=None)
        modes.group.catch_up()
        if Operation.objects.get(pk=operation.pk).state != OperationState.IN_PROGRESS:
            break


def test_a_worker_killed_at_any_request_leaves_nothing_that_the_next_one_does_not_finish(
    world: World, api: Callable[..., Json], solo: ScriptedModes, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = KillsAtEachCall()
    solo.before_call = kills
    called = driver._called
    changing = ("start ", "remove ", "folder_remove ")

    def call(name: str) -> None:
        if name.startswith(changing):
            kills(name)
        called(name)

    monkeypatch.setattr(driver, "_called", call)
    for mode, members in (("dledger", [0, 1, 2]), ("single", [0])):
        operation = begin(api, world, SOLO, mode)
        until_completed(solo, operation, driver)
        operation.refresh_from_db()
        assert (operation.state, ids(solo)) == (OperationState.COMPLETED, members), operation.error
    kinds = [call.split()[0] for call in kills.killed]
    assert {"start", "configure", "mode", "remove", "forget", "folder_remove"} == set(kinds)
    assert [ask for ask in solo.asked if not ask.startswith("configure")] == [
        *("async 1", "sync 2", "dledger 1"),
        *("sync 2", "async 1", "single 1"),
    ]
    assert set(started(driver)) == {"1", "2"}
