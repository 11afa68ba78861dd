"""The workflow's steps against a driver in memory, with the daemons' answers put in: order, repetition, failure, deletion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from unittest.mock import patch

import pytest
import yaml
from django.utils import timezone

from controlplane.clusters.lifecycle import cluster_delete
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Credential,
    CredentialState,
    NameServer,
    Operation,
    OperationState,
    OperationStep,
    Replica,
    StepState,
)
from controlplane.clusters.services import cluster_create
from controlplane.common.errors import Conflict
from controlplane.provisioning import health, probe, steps
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.ports import leader_ports, ports_release
from controlplane.provisioning.processes import (
    cluster_daemons,
    cluster_process_names,
    replica_daemons,
    replica_process_name,
)
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import STEPS, StepContext
from controlplane.topics.models import Topic
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World


@pytest.fixture(autouse=True)
def _daemons_that_answer() -> Iterator[None]:
    """What real daemons answer is the end-to-end test's business."""

    def registered(name_servers: list[str], *_: object, **__: object) -> list[probe.Registration]:
        brokers = frozenset(replica.address for replica in Replica.objects.exclude(port=None))
        return [probe.Registration(address, brokers) for address in name_servers]

    with (
        patch.object(probe, "port_answers", return_value=True),
        patch.object(probe, "registrations", side_effect=registered),
        patch.object(probe, "broker_answers", return_value=""),
        patch.object(probe, "broker_refuses_strangers", return_value=True),
    ):
        yield


def create(world: World, slug: str = "fresh") -> tuple[Cluster, Operation]:
    return cluster_create(actor=world.alice, tenant=world.acme, slug=slug)


def run(operation: Operation, driver: DriverTwin) -> Operation:
    """Run steps until none can be claimed."""
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        if operation_step_run(step.pk, driver) != Outcome.COMPLETED:
            break
    operation.refresh_from_db()
    operation.cluster.refresh_from_db()
    return operation


def test_the_cluster_runs_after_the_last_step(world: World, driver: DriverTwin) -> None:
    _, operation = create(world)
    run(operation, driver)
    assert (operation.state, operation.cluster.state) == (OperationState.COMPLETED, ClusterState.RUNNING)
    assert set(driver.states.values()) == {ProcessState.RUNNING}
    assert set(operation.cluster.credentials.values_list("state", flat=True)) == {CredentialState.ACTIVE}


def test_name_servers_start_before_brokers(world: World, driver: DriverTwin) -> None:
    run(create(world)[1], driver)
    starts = [call for call in driver.calls if call.startswith("start")]
    assert ["namesrv" in start for start in starts] == [True, False]


def test_every_step_run_twice_leaves_the_same_as_once(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    before = _picture(cluster, driver)
    for step in operation.steps.order_by("position"):
        context = StepContext.of(step, driver)
        STEPS[step.name](context)
        STEPS[step.name](context)
    assert _picture(cluster, driver) == before


def test_the_configuration_speaks_rocketmqs_keys(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    replica = Replica.objects.get(group__cluster=cluster)
    text = driver.files[f"{cluster.pk}/broker-a-0/broker.conf"]
    values = dict(line.split("=", 1) for line in text.splitlines())
    assert values["brokerClusterName"] == "fresh"
    assert values["listenPort"] == str(replica.port)
    assert values["namesrvAddr"] == cluster.namesrv_addr
    assert (values["aclEnable"], values["autoCreateTopicEnable"]) == ("true", "false")


def test_ports_are_leased_once_each(world: World, driver: DriverTwin) -> None:
    for slug in ("one", "two", "three"):
        run(create(world, slug)[1], driver)
    ports = list(PortLease.objects.values_list("port", flat=True))
    assert len(ports) == len(set(ports)) == 3 * (1 + 4)


def test_a_group_of_several_replicas_has_a_leader_port_for_life(world: World, driver: DriverTwin) -> None:
    cluster, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="led", mode="dledger", replicas=3)
    context = StepContext.of(operation.steps.order_by("position")[0], driver)
    STEPS["allocate_ports"](context)
    group = cluster.broker_groups.get()
    (port,) = leader_ports(cluster.pk).values()
    assert leader_ports(cluster.pk) == {group.pk: port}
    driver.taken_ports.add(port)  # by the leader itself
    STEPS["allocate_ports"](context)
    assert leader_ports(cluster.pk) == {group.pk: port}
    STEPS["render_configuration"](context)
    for number in range(3):
        assert f"\nleaderListenPort={port}\n" in driver.files[f"{cluster.pk}/broker-a-{number}/broker.conf"]
    ports_release(cluster.pk)
    assert not leader_ports(cluster.pk)


def test_a_leader_port_that_a_running_group_gets_restarts_no_one(world: World, driver: DriverTwin) -> None:
    cluster, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="led", mode="async", replicas=2)
    context = StepContext.of(operation.steps.order_by("position")[0], driver)
    STEPS["allocate_ports"](context)
    with_port = [daemon.process.configuration for daemon in replica_daemons(cluster, driver)]
    PortLease.objects.filter(purpose="leaderListenPort").delete()
    assert [daemon.process.configuration for daemon in replica_daemons(cluster, driver)] == with_port


def test_a_group_of_one_has_no_leader_port(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    assert not leader_ports(cluster.pk)


def test_a_port_that_someone_took_is_exchanged_at_the_retry(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    first = operation.steps.order_by("position")[0]
    operation_step_run(first.pk, driver)
    taken = NameServer.objects.get(cluster=cluster).port
    assert taken is not None
    driver.taken_ports.add(taken)
    STEPS["allocate_ports"](StepContext.of(first, driver))
    assert NameServer.objects.get(cluster=cluster).port not in (None, taken)
    assert not PortLease.objects.filter(port=taken).exists()


def test_the_ports_of_a_running_daemon_are_kept(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    port = NameServer.objects.get(cluster=cluster).port
    assert port is not None
    driver.taken_ports.add(port)  # by the daemon itself
    STEPS["allocate_ports"](StepContext.of(operation.steps.all()[0], driver))
    assert NameServer.objects.get(cluster=cluster).port == port


def test_an_exhausted_range_fails_with_a_cause_and_a_hint(world: World, driver: DriverTwin) -> None:
    driver.taken_ports.update(range(20000, 30000))
    _, operation = create(world)
    run(operation, driver)
    assert operation.state == OperationState.FAILED
    assert "no free port" in (operation.error or {})["cause"]
    assert (operation.error or {})["hint"]


def test_a_daemon_that_keeps_crashing_fails_the_operation_with_its_last_words(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    name = replica_process_name(cluster, Replica.objects.get(group__cluster=cluster))
    driver.states[name] = ProcessState.BACKOFF
    driver.logs[name] = ["brokerd: broker.conf:7: listenPort: 'x' is not a number"]
    run(operation, driver)
    waiting = operation.steps.get(name="start_brokers")
    assert waiting.state == StepState.PENDING
    _let_time_pass(waiting, seconds=20)
    run(operation, driver)
    assert operation.cluster.state == ClusterState.FAILED
    assert "listenPort: 'x' is not a number" in (operation.error or {})["cause"]


def test_a_step_that_waits_too_long_fails_with_what_it_waited_for(world: World, driver: DriverTwin) -> None:
    _, operation = create(world)
    with patch.object(probe, "registrations", return_value=[probe.Registration("127.0.0.1:1")]):
        run(operation, driver)
        _let_time_pass(operation.steps.get(name="wait_for_registration"), seconds=3600)
        run(operation, driver)
    assert operation.state == OperationState.FAILED
    assert "does not know" in (operation.error or {})["cause"]


def test_a_supervisor_that_is_away_is_waited_for(world: World, driver: DriverTwin) -> None:
    _, operation = create(world)
    driver.away = True
    assert operation_step_run(operation.steps.order_by("position")[0].pk, driver) == Outcome.WAITING
    driver.away = False
    _let_time_pass(operation.steps.get(position=0), seconds=0)
    assert run(operation, driver).state == OperationState.COMPLETED


def test_a_broker_that_lets_strangers_in_is_never_opened(world: World, driver: DriverTwin) -> None:
    _, operation = create(world)
    with patch.object(probe, "broker_refuses_strangers", return_value=False):
        run(operation, driver)
    assert operation.cluster.state == ClusterState.PROVISIONING


def test_an_error_of_ours_fails_the_operation_instead_of_hanging_it(world: World, driver: DriverTwin) -> None:
    _, operation = create(world)

    def broken(context: StepContext) -> None:
        raise ZeroDivisionError("ours")

    with patch.dict(steps.STEPS, {"allocate_ports": broken}):
        run(operation, driver)
    assert operation.state == OperationState.FAILED
    assert "ZeroDivisionError" in (operation.error or {})["cause"]


def test_a_retry_goes_through_after_the_cause_is_gone(world: World, driver: DriverTwin) -> None:
    from controlplane.clusters.operations import operation_retry

    driver.taken_ports.update(range(20000, 30000))
    _, operation = create(world)
    run(operation, driver)
    driver.taken_ports.clear()
    Cluster.objects.filter(pk=operation.cluster_id).update(state=ClusterState.FAILED)
    operation_retry(actor=world.alice, operation=operation)
    assert run(operation, driver).cluster.state == ClusterState.RUNNING


def test_deleting_stops_the_brokers_first_and_frees_everything(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    Topic.objects.create(cluster=cluster, name="invoices")
    names = cluster_process_names(cluster)
    cluster.refresh_from_db()
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    cluster.refresh_from_db()
    assert cluster.state == ClusterState.DELETED
    assert [call for call in driver.calls if call.startswith("remove")] == [f"remove {name}" for name in names]
    assert "broker-a" in names[0]
    assert driver.files == {}
    for model in (PortLease, NameServer, Replica, Topic, Credential):
        held = model.objects.filter(**_of(model, cluster))
        assert not held.exists(), model


def test_the_name_of_a_deleted_cluster_is_free_again(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    cluster.refresh_from_db()
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    assert create(world)[0].pk != cluster.pk


def test_deleting_twice_is_refused_and_the_steps_may_still_run_twice(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    cluster.refresh_from_db()
    deletion = cluster_delete(actor=world.alice, cluster=cluster)
    with pytest.raises(Conflict):
        cluster_delete(actor=world.alice, cluster=cluster)
    run(deletion, driver)
    for step in deletion.steps.order_by("position"):
        STEPS[step.name](StepContext.of(step, driver))


def test_a_cluster_that_is_being_provisioned_is_not_deleted(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    operation_step_run(operation.steps.order_by("position")[0].pk, driver)
    cluster.refresh_from_db()
    with pytest.raises(Conflict):
        cluster_delete(actor=world.alice, cluster=cluster)


def _let_time_pass(step: OperationStep, *, seconds: int) -> None:
    started = None if step.started_at is None else step.started_at - timedelta(seconds=seconds)
    OperationStep.objects.filter(pk=step.pk).update(not_before=timezone.now(), started_at=started)


def _picture(cluster: Cluster, driver: DriverTwin) -> object:
    cluster.refresh_from_db()
    return (
        cluster.state,
        sorted(PortLease.objects.filter(cluster_id=cluster.pk).values_list("port", "purpose", "holder")),
        sorted(NameServer.objects.filter(cluster=cluster).values_list("port", "data_dir")),
        sorted(Replica.objects.filter(group__cluster=cluster).values_list("port", "data_dir")),
        # Of certificates only that they are there: each writing issues fresh ones, which daemons take as they run.
        {path: "" if path.endswith(("tls.pem", "tls.key")) else text for path, text in driver.files.items()},
        dict(driver.processes),
        dict(driver.states),
    )


def _of(model: type, cluster: Cluster) -> dict[str, object]:
    if model is PortLease:
        return {"cluster_id": cluster.pk}
    return {"group__cluster": cluster} if model is Replica else {"cluster": cluster}


def test_name_servers_know_every_key_of_the_cluster_as_brokers_do(world: World, driver: DriverTwin) -> None:
    keys = set(world.cluster.credentials.values_list("access_key", flat=True))
    for daemon in cluster_daemons(world.cluster, driver):
        (text,) = [text for path, text in daemon.files.items() if path.endswith("/plain_acl.yml")]
        assert {account["accessKey"] for account in yaml.safe_load(text)["accounts"]} == keys


@pytest.mark.parametrize("model", [Replica, NameServer])
def test_a_daemon_that_was_removed_while_its_health_was_sampled_is_not_started_again(
    world: World, driver: DriverTwin, model: type[Replica] | type[NameServer]
) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    row = model.objects.get(**{"group__cluster" if model is Replica else "cluster": cluster})
    statuses = driver.process_statuses

    def removed_at_once(names: Sequence[str]) -> dict[str, ProcessStatus]:
        for name in names:
            if ("namesrv" in name) == (model is NameServer):
                driver.process_remove(name)
        model.objects.filter(pk=row.pk).delete()
        return statuses(names)

    running = set(driver.processes)
    with (
        patch.object(driver, "process_statuses", removed_at_once),
        patch.object(health, "registrations", return_value=[]),
    ):
        health.cluster_sample_health(cluster.pk, driver)
    assert len(driver.processes) == len(running) - 1


def test_a_daemon_that_no_one_restarts_is_started_again(world: World, driver: DriverTwin) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    running = set(driver.processes)
    driver.process_remove(replica_process_name(cluster, Replica.objects.get(group__cluster=cluster)))
    with patch.object(health, "registrations", return_value=[]):
        health.cluster_sample_health(cluster.pk, driver)
    assert set(driver.processes) == running


def test_a_daemon_started_again_gets_no_key_that_was_deleted_while_its_health_was_sampled(
    world: World, driver: DriverTwin
) -> None:
    cluster, operation = create(world)
    run(operation, driver)
    credential = cluster.credentials.get(is_control=False)
    name = replica_process_name(cluster, Replica.objects.get(group__cluster=cluster))
    driver.process_remove(name)

    def deleted_meanwhile(*_: object, **__: object) -> list[probe.Registration]:
        credential.delete()
        return []

    with (
        patch.object(health, "registrations", deleted_meanwhile),
        patch.object(health, "accounts_reconcile"),  # it comes when the daemon has read the file already
    ):
        health.cluster_sample_health(cluster.pk, driver)
    assert name in driver.processes
    assert not [path for path, text in driver.files.items() if "broker-" in path and credential.access_key in text]
