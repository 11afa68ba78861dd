"""A master that dies while its cluster grows: a promotion does not wait for that, and it can be gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from controlplane.clusters import operations
from controlplane.clusters.lifecycle import cluster_resume
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    StepState,
)
from controlplane.clusters.operations import operation_retry, operation_start, step_claim, step_complete, step_fail
from controlplane.clusters.services import cluster_grow
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.failover.models import FailoverKind, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import cluster_replicas, replica_daemons, replica_process_name
from controlplane.provisioning.runner import operation_step_run
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World, make_operation
from tests.failover.electing import all_running
from tests.failover.promotions import lose, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "sync")


@pytest.fixture
def group(cluster: Cluster, driver: DriverTwin) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        yield group


def at(cluster: Cluster, name: str) -> Operation:
    """The cluster grows by a group, and is at this step."""
    operation = operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_GROW)
    step = operation.steps.get(name=name)
    operation.steps.filter(position__lt=step.position).update(state=StepState.COMPLETED)
    return operation


@pytest.mark.parametrize("step", ["wait_for_registration", "wait_for_replication", "verify", "spread_topics"])
def test_a_growth_that_only_waits_makes_way_for_a_promotion(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin, step: str
) -> None:
    growth = at(cluster, step)
    claim = step_claim(growth.steps.get(name=step).pk)
    assert claim is not None
    lose(group)
    failover = start(cluster, driver)
    growth.refresh_from_db()
    assert growth.state == OperationState.FAILED
    assert growth.error is not None
    assert (growth.error["cause"], growth.error["step"]) == (
        "Interrupted: broker-a had no master, and Highwater itself asked for one.",
        step,
    )
    assert step_complete(claim) is False  # the worker that had it finds it gone
    assert run(failover, driver, group).state == OperationState.COMPLETED
    assert group.promotions == [(5, 1)]


def test_a_step_that_ends_while_a_promotion_looks_at_it_is_not_taken_for_the_present_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one does not yield, and a worker may have begun it: it would go on beside the promotion."""
    restart = operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_RESTART)
    followers = restart.steps.get(name="roll_followers")
    restart.steps.filter(position__lt=followers.position).update(state=StepState.COMPLETED)
    claim = step_claim(followers.pk)
    assert claim is not None
    yields = operations._yields

    def and_ends(*asked: Any) -> bool:
        found = yields(*asked)
        step_complete(claim)
        return found

    monkeypatch.setattr(operations, "_yields", and_ends)
    with transaction.atomic():
        assert operations.operation_interrupt(cluster, "a promotion goes first") is None
    restart.refresh_from_db()
    assert restart.state == OperationState.IN_PROGRESS
    assert restart.steps.get(name="roll_followers").state == StepState.COMPLETED


def test_it_is_gone_on_with_afterwards(cluster: Cluster, group: ScriptedGroup, driver: DriverTwin) -> None:
    growth = at(cluster, "wait_for_replication")
    lose(group)
    run(start(cluster, driver), driver, group)
    assert operation_retry(actor=SYSTEM, operation=growth).state == OperationState.IN_PROGRESS


@pytest.mark.parametrize(
    "later", [OperationType.CLUSTER_CA, OperationType.CLUSTER_RESTART, OperationType.CLUSTER_RESUME]
)
def test_a_growth_that_failed_is_gone_on_with_though_daemons_were_restarted_or_certified_since(
    cluster: Cluster, later: OperationType
) -> None:
    """A renewal of the CA begins by itself. Nothing else gives the new group its share of the topics."""
    growth = at(cluster, "spread_topics")
    claim = step_claim(growth.steps.get(name="spread_topics").pk)
    assert claim is not None
    step_fail(claim, cause="A broker did not answer.")
    since = operation_start(actor=SYSTEM, cluster=cluster, operation_type=later)
    Operation.objects.filter(pk=since.pk).update(state=OperationState.COMPLETED)
    growth.refresh_from_db()
    assert operation_retry(actor=SYSTEM, operation=growth).state == OperationState.IN_PROGRESS


def test_a_promotion_that_someone_else_has_overtaken_is_not_repeated(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    lose(group)
    first = operation_of(start(cluster, driver))
    Operation.objects.filter(pk=first.pk).update(state=OperationState.FAILED)
    run(start(cluster, driver), driver, group)
    with pytest.raises(Conflict, match="moved on"):
        operation_retry(actor=SYSTEM, operation=first)


def test_what_starts_processes_is_waited_for_and_named(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    growth = at(cluster, "start_brokers")
    OperationStep.objects.filter(operation=growth, name="start_brokers").update(message="The broker is starting.")
    lose(group)
    with pytest.raises(Conflict) as refused:
        start(cluster, driver)
    error = refused.value
    assert error.message == (
        "Another operation on this cluster is in progress: “Growing the cluster”, which test asked for, is at"
        " “Start the brokers” (The broker is starting.)."
    )
    assert "takes 60 seconds at most, then the operation fails, and can be retried" in error.hint
    assert error.extra == {"operation": growth.path}


def test_a_master_that_lives_is_no_reason_to_end_anything(
    cluster: Cluster, group: ScriptedGroup, driver: DriverTwin
) -> None:
    growth = at(cluster, "wait_for_replication")
    for kind in (FailoverKind.SWITCHOVER, FailoverKind.PROMOTE):
        with pytest.raises(Conflict):
            start(cluster, driver, kind, confirm="broker-a")
    growth.refresh_from_db()
    assert growth.state == OperationState.IN_PROGRESS


def test_the_automatic_policy_does_not_wait_either(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "auto", "sync", policy="automatic_when_lossless")
    with ScriptedGroup.of(cluster).answering() as group:
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        growth = at(cluster, "start_brokers")
        lose(group)
        cluster_sample(cluster, driver)
        long_ago = timezone.now() - timedelta(seconds=8)
        ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
            unreachable_since=long_ago
        )
        (view,) = cluster_sample(cluster, driver)
        assert automatic_failover(cluster, view, driver) is None
        growth.steps.filter(name="start_brokers").update(state=StepState.COMPLETED)
        assert automatic_failover(cluster, view, driver) is not None
        growth.refresh_from_db()
        assert growth.state == OperationState.FAILED


@pytest.mark.parametrize("by", ["replica", "group"])
def test_a_growth_that_has_no_ports_yet_is_in_no_ones_way(world: World, driver: DriverTwin, by: str) -> None:
    cluster = make_replicated(world.acme, "auto", "sync", policy="automatic_when_lossless")
    with ScriptedGroup.of(cluster).answering() as group:
        all_running(cluster, driver)
        cluster_sample(cluster, driver)
        for number in range(3):  # as many operations as a tenant has at once
            make_operation(world.acme, f"busy-{number}")
        growth = cluster_grow(actor=SYSTEM, cluster=cluster, by=by)
        assert growth.waits
        lose(group)
        cluster_sample(cluster, driver)
        long_ago = timezone.now() - timedelta(seconds=8)
        ReplicaSample.objects.filter(replica__group__cluster=cluster, replica__broker_id=0).update(
            unreachable_since=long_ago
        )
        view = next(view for view in cluster_sample(cluster, driver) if view.name == "broker-a")
        failover = automatic_failover(cluster, view, driver)
        assert failover is not None
        assert run(failover, driver, group).state == OperationState.COMPLETED
        assert group.promotions == [(5, 1)]
        growth.refresh_from_db()
        assert operation_retry(actor=SYSTEM, operation=growth).state == OperationState.IN_PROGRESS


def test_a_cluster_whose_growth_never_got_ports_is_resumed_without_what_it_would_have_added(
    world: World, driver: DriverTwin
) -> None:
    cluster = make_replicated(world.acme, "pair", "sync")
    growth = cluster_grow(actor=SYSTEM, cluster=cluster, by="replica")
    claim = step_claim(growth.steps.get(name="allocate_ports").pk)
    assert claim is not None
    step_fail(claim, cause="There is no free port.")
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.SUSPENDED, stopped_at=timezone.now())
    resumed = cluster_resume(actor=SYSTEM, cluster=cluster)
    for name in ("stop_processes", "render_configuration"):
        operation_step_run(resumed.steps.get(name=name).pk, driver)
    step = resumed.steps.get(name="render_configuration")
    assert (step.state, step.message) == (StepState.COMPLETED, "")
    daemons = replica_daemons(cluster, driver)
    assert [daemon.process.name[-1] for daemon in daemons] == ["0", "1"]
    assert all(
        "totalReplicas=2\n" in daemon.process.configuration for daemon in daemons
    )  # a third one is never heard of


@pytest.mark.parametrize("by", ["replica", "group"])
def test_a_growth_starts_what_is_new_and_leaves_brokers_that_run_alone(
    world: World, driver: DriverTwin, by: str
) -> None:
    """What a newer platform would have them run with is a rolling restart's: here all of a group would be away at once."""
    cluster = make_replicated(world.acme, "pair", "sync")
    all_running(cluster, driver)
    growth = cluster_grow(actor=SYSTEM, cluster=cluster, by=by)
    for name in ("allocate_ports", "render_configuration"):
        operation_step_run(growth.steps.get(name=name).pk, driver)
    down = replica_process_name(cluster, cluster_replicas(cluster)[1])
    driver.states[down] = ProcessState.STOPPED
    driver.calls.clear()
    operation_step_run(growth.steps.get(name="start_brokers").pk, driver)
    new = ["broker-a-2"] if by == "replica" else ["broker-b-0", "broker-b-1"]
    started = [call.split("-", 2)[2] for call in driver.calls if call.startswith("start ")]
    assert started == ["broker-a-1", *new]


def test_a_cluster_of_one_broker_is_shown_how_it_gets_more(world: World) -> None:
    cluster = make_replicated(world.acme, "solo", "single", replicas=1)
    with pytest.raises(InvalidInput, match="Change its mode first, to async, sync or dledger"):
        cluster_grow(actor=SYSTEM, cluster=cluster)
