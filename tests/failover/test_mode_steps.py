"""A cluster's mode changed in place: by REST, step by step, repeated and retried. The brokers are scripted, the rows real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    StepState,
)
from controlplane.clusters.operations import operation_retry
from controlplane.clusters.stuck_operations import operation_fail
from controlplane.failover.mode_changes import mode_changes_hanging
from controlplane.failover.selectors import group_view
from controlplane.provisioning.processes import replica_daemons
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, Json, World
from tests.failover.electing import run_all, run_step
from tests.failover.replicated import make_replicated
from tests.failover.scripted_modes import ScriptedModes

TRIO = "/api/v1/tenants/acme/clusters/trio/"


@pytest.fixture
def modes(world: World, driver: DriverTwin) -> Iterator[ScriptedModes]:
    cluster = make_replicated(world.acme, "trio", "async", replicas=3)
    with ScriptedModes.of(cluster, "async").answering(driver) as scripted:
        yield scripted


def change(api: Callable[..., Json], world: World, driver: DriverTwin, mode: str) -> Operation:
    answer = api(world.alice).call("POST", f"{TRIO}mode/", {"mode": mode})
    assert answer.status_code == 202, answer.json()
    return run_all(Operation.objects.get(pk=answer.json()["id"]), driver)


def test_a_dry_run_shows_the_way_and_changes_nothing(
    world: World, api: Callable[..., Json], modes: ScriptedModes
) -> None:
    answer = api(world.alice).call("POST", f"{TRIO}mode/?dry_run=true", {"mode": "dledger"})
    found = answer.json()
    assert (answer.status_code, found["possible"], found["path"]) == (200, True, ["sync", "dledger"])
    assert all(step["does"] and step["stops"] for step in found["steps"])
    assert (modes.asked, Operation.objects.filter(type="cluster.mode").exists()) == ([], False)


def test_a_group_passes_through_sync_and_the_cluster_is_in_the_new_mode(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    Cluster.objects.filter(slug="trio").update(failover_policy="automatic_when_lossless")
    operation = change(api, world, driver, "dledger")
    assert (operation.state, modes.asked) == (OperationState.COMPLETED, ["sync 2", "dledger 1"])
    cluster = Cluster.objects.get(slug="trio")
    assert (cluster.mode, cluster.mode_at_creation, cluster.failover_policy) == ("dledger", "async", "manual")
    texts = [text for path, text in driver.files.items() if path.endswith("broker.conf")]
    assert all("enableDLegerCommitLog=true" in text for text in texts)


def test_back_again_asks_in_the_other_direction(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    change(api, world, driver, "dledger")
    modes.asked.clear()
    change(api, world, driver, "async")
    assert modes.asked == ["sync 2", "async 1"]
    assert Cluster.objects.get(slug="trio").mode == "async"


def test_no_broker_is_restarted_by_a_changed_mode(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    def configuration() -> dict[str, str]:
        cluster = Cluster.objects.get(slug="trio")
        return {one.process.name: one.process.configuration for one in replica_daemons(cluster, driver)}

    before = configuration()
    change(api, world, driver, "dledger")
    assert configuration() == before
    assert not any(call.startswith("start ") for call in driver.calls)


def test_a_retry_asks_for_nothing_that_is_in_force(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    operation = change(api, world, driver, "dledger")
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.IN_PROGRESS)
    operation.steps.update(state="pending", started_at=None)
    modes.asked.clear()
    assert (run_all(operation, driver).state, modes.asked) == (OperationState.COMPLETED, [])


def test_a_replica_that_does_not_answer_is_waited_for_by_name(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    answer = api(world.alice).call("POST", f"{TRIO}mode/", {"mode": "sync"})
    modes.group[2].answers = False
    operation = run_all(Operation.objects.get(pk=answer.json()["id"]), driver)
    assert operation.state == OperationState.IN_PROGRESS
    assert operation.steps.get(name="mode_look").message == "Replica 2 of broker-a does not answer."


@pytest.mark.parametrize(("state", "held_by"), [("in_progress", 1), ("failed", 1), ("completed", 2)])
def test_a_change_that_hangs_may_have_left_a_leader_who_acknowledges_alone(
    world: World, modes: ScriptedModes, state: str, held_by: int
) -> None:
    Cluster.objects.filter(slug="trio").update(mode="sync")
    cluster = Cluster.objects.get(slug="trio")
    Operation.objects.create(
        tenant=cluster.tenant,
        cluster=cluster,
        type=OperationType.CLUSTER_MODE,
        state=state,
        resource=cluster.path,
        requested_by="alice",
        metadata={"from": "sync", "to": "async"},
    )
    (group,) = BrokerGroup.objects.filter(cluster=cluster)
    assert group_view(group).in_sync_replicas == held_by


def test_the_present_mode_asked_for_again_takes_a_leader_back_that_acts_by_another_already(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    def die(call: str) -> None:
        if call == "mode sync":
            modes.group[2].answers = modes.group[2].pulls = False

    modes.before_call = die
    answer = api(world.alice).call("POST", f"{TRIO}mode/", {"mode": "sync"})
    failed = run_all(Operation.objects.get(pk=answer.json()["id"]), driver)
    assert failed.state == OperationState.IN_PROGRESS
    failed.steps.exclude(state=StepState.COMPLETED).update(state=StepState.FAILED)
    Operation.objects.filter(pk=failed.pk).update(state=OperationState.FAILED)
    leader = modes.group.leader
    assert leader is not None
    assert modes.modes[leader] == "sync"
    modes.before_call = lambda call: None
    modes.group[2].answers = modes.group[2].pulls = True
    done = change(api, world, driver, "async")
    assert (done.state, done.metadata["from"], done.metadata["to"]) == (OperationState.COMPLETED, "sync", "async")
    assert set(modes.modes.values()) == {"async"}
    assert mode_changes_hanging(Cluster.objects.get(slug="trio")) == []


def test_a_change_that_failed_once_the_mode_was_recorded_hangs_no_more_or_is_asked_for_again(
    world: World, api: Callable[..., Json], modes: ScriptedModes, driver: DriverTwin
) -> None:
    """Else no promotion would ever count as clean again: the leader might acknowledge alone."""
    answer = api(world.alice).call("POST", f"{TRIO}mode/", {"mode": "sync"})
    operation = Operation.objects.get(pk=answer.json()["id"])
    last = operation.steps.latest("position")
    OperationStep.objects.filter(pk=last.pk).update(not_before=timezone.now() + timedelta(hours=1))
    for step in operation.steps.exclude(pk=last.pk):
        while run_step(operation, driver, step.name) != StepState.COMPLETED:
            pass
    operation_fail(actor=SYSTEM, operation=operation, reason="the disk is full")
    cluster = Cluster.objects.get(slug="trio")
    assert (cluster.mode, mode_changes_hanging(cluster)) == ("sync", [])
    operation_retry(actor=SYSTEM, operation=Operation.objects.get(pk=operation.pk))
    operation_fail(actor=SYSTEM, operation=operation, reason="it waits")
    assert mode_changes_hanging(cluster) == [("async", "sync")]
    done = change(api, world, driver, "sync")
    assert (done.state, mode_changes_hanging(cluster)) == (OperationState.COMPLETED, [])
    assert modes.asked == ["sync 2"]


@pytest.mark.parametrize(("who", "status"), [("teammate", 403), ("outsider", 404), ("anonymous", 401)])
def test_only_operators_change_the_mode(
    world: World, api: Callable[..., Json], modes: ScriptedModes, who: str, status: int
) -> None:
    for query in ("", "?dry_run=true"):
        assert api(world.people[who]).call("POST", f"{TRIO}mode/{query}", {"mode": "sync"}).status_code == status
    assert modes.asked == []


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [("async", 422, "not_possible"), ("multi", 422, "not_possible"), ("raft", 400, "invalid_input")],
)
def test_what_is_no_change_is_a_problem(
    world: World, api: Callable[..., Json], modes: ScriptedModes, mode: str, status: int, code: str
) -> None:
    answer = api(world.alice).call("POST", f"{TRIO}mode/", {"mode": mode})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
