"""A cluster is suspended and resumed, deleted and restored, or removed when its time is up. Daemons are put in; what real ones do
is in test_lifecycle_end_to_end.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.alerts.models import Alert, AlertState
from controlplane.clusters import limits, replica_remoting
from controlplane.clusters.lifecycle import (
    cluster_delete,
    cluster_purge,
    cluster_restore,
    cluster_resume,
    cluster_suspend,
    clusters_purge,
)
from controlplane.clusters.limits import limit_uses
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operation_retry, operation_start
from controlplane.clusters.replica_remoting import Answer
from controlplane.clusters.services import cluster_create
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.models import AuditEvent
from controlplane.insight.job_config import config_of
from controlplane.insight.models import Job, JobRun
from controlplane.insight.progress import progress_get
from controlplane.provisioning import health, probe, steps
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.processes import cluster_process_names
from controlplane.provisioning.runner import Outcome, operation_step_run
from controlplane.provisioning.steps import StepContext
from controlplane.tenants.models import Tenant
from mqwire.bodies import ReplicaStatus
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World, make_cluster


@pytest.fixture(autouse=True)
def _daemons_that_answer() -> Iterator[None]:
    def registered(name_servers: list[str], *_: object, **__: object) -> list[probe.Registration]:
        brokers = frozenset(replica.address for replica in Replica.objects.exclude(port=None))
        return [probe.Registration(address, brokers) for address in name_servers]

    def silent(_: Cluster, addresses: list[str], **__: object) -> dict[str, Answer]:
        return {address: Answer(error="refused") for address in addresses}

    with (
        patch.object(probe, "port_answers", return_value=True),
        patch.object(probe, "registrations", side_effect=registered),
        patch.object(probe, "broker_answers", return_value=""),
        patch.object(probe, "broker_refuses_strangers", return_value=True),
        patch.object(replica_remoting, "replica_statuses", silent),
    ):
        yield


@pytest.fixture
def undo_hours(settings: Any) -> float:
    settings.HIGHWATER_DELETE_UNDO_HOURS = 24.0
    return 24.0


@pytest.fixture
def cluster(world: World, driver: DriverTwin) -> Cluster:
    """One that runs."""
    made, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="fresh")
    run(operation, driver)
    made.refresh_from_db()
    assert made.is_running
    return made


def run(operation: Operation, driver: DriverTwin, *, most: int = 100) -> Operation:
    """Run steps until none can be claimed, or so many have run."""
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position")[:most]:
        if operation_step_run(step.pk, driver) != Outcome.COMPLETED:
            break
    operation.refresh_from_db()
    operation.cluster.refresh_from_db()
    return operation


def suspend(world: World, cluster: Cluster, driver: DriverTwin) -> Cluster:
    operation = run(cluster_suspend(actor=world.alice, cluster=cluster, reason="the weekend"), driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    cluster.refresh_from_db()
    return cluster


def ports_of(cluster: Cluster) -> list[tuple[int, str]]:
    return sorted(PortLease.objects.filter(cluster_id=cluster.pk).values_list("port", "purpose"))


def test_a_suspended_cluster_has_no_process_and_keeps_its_files_ports_and_keys(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    files, ports, keys = dict(driver.files), ports_of(cluster), cluster.credentials.count()
    suspend(world, cluster, driver)
    assert cluster.state == ClusterState.SUSPENDED
    assert driver.processes == {}
    assert (driver.files, ports_of(cluster), cluster.credentials.count()) == (files, ports, keys)


def test_it_says_since_when_by_whom_and_why(world: World, cluster: Cluster, driver: DriverTwin, api: Any) -> None:
    suspend(world, cluster, driver)
    stopped = api(world.bob).call("GET", cluster.path).json()["stopped"]
    assert (stopped["by"], stopped["reason"], stopped["delete_at"]) == (world.alice.email, "the weekend", None)
    assert cluster.stopped_at is not None


def test_brokers_are_stopped_before_name_servers(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    names = cluster_process_names(cluster)
    suspend(world, cluster, driver)
    assert [call for call in driver.calls if call.startswith("remove")] == [f"remove {name}" for name in names]


def test_a_leader_is_stopped_after_its_followers(world: World, driver: DriverTwin) -> None:
    made, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="trio", mode="sync", replicas=3)
    with patch.object(steps, "wait_for_replication"):
        run(operation, driver, most=4)
    leader = Replica.objects.get(group__cluster=made, broker_id=1)

    def statuses(_: Cluster, addresses: list[str]) -> dict[str, Answer]:
        roles = {address: "master" if address == leader.address else "slave" for address in addresses}
        return {address: Answer(cast("ReplicaStatus", SimpleNamespace(role=role))) for address, role in roles.items()}

    driver.calls.clear()
    with patch.object(replica_remoting, "replica_statuses", statuses):
        steps.stop_processes(StepContext.of(operation.steps.all()[0], driver))
    stops = [call.rpartition("-")[2] for call in driver.calls if "broker" in call and call.startswith("remove")]
    assert stops == ["0", "2", "1"]


@pytest.mark.parametrize(("held", "waits"), [(100, False), (60, True)])
def test_a_follower_that_lacks_records_is_waited_for(world: World, driver: DriverTwin, held: int, waits: bool) -> None:
    made, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="pair", mode="async")
    run(operation, driver, most=1)
    leader, follower = Replica.objects.filter(group__cluster=made).order_by("broker_id")

    def status(role: str, end_offset: int) -> Answer:
        return Answer(cast("ReplicaStatus", SimpleNamespace(role=role, group="broker-a", end_offset=end_offset)))

    answers = {leader.address: status("master", 100), follower.address: status("slave", held)}
    context = StepContext.of(operation.steps.all()[0], driver)
    with patch.object(replica_remoting, "replica_statuses", return_value=answers):
        if waits:
            with pytest.raises(StepNotReady, match=r"Replica 1 of broker-a is .* behind its leader"):
                steps.settle_replicas(context)
        else:
            steps.settle_replicas(context)


@pytest.mark.parametrize(
    ("operation_type", "in_sync", "waits"),
    [
        (OperationType.CLUSTER_SUSPEND, [0], False),
        (OperationType.CLUSTER_SUSPEND, [0, 1], True),
        (OperationType.CLUSTER_DELETE, [0, 1], False),
    ],
)
def test_a_follower_that_never_catches_up_holds_neither_a_suspension_nor_a_deletion_for_long(
    world: World, driver: DriverTwin, operation_type: OperationType, in_sync: list[int], waits: bool
) -> None:
    made, operation = cluster_create(actor=world.alice, tenant=world.acme, slug="pair", mode="async")
    run(operation, driver, most=1)
    Operation.objects.filter(pk=operation.pk).update(type=operation_type)
    step = operation.steps.all()[0]
    step.started_at = timezone.now() - timedelta(minutes=3)
    step.save()
    leader, follower = Replica.objects.filter(group__cluster=made).order_by("broker_id")

    def status(role: str, end_offset: int) -> Answer:
        values = {"role": role, "group": "broker-a", "end_offset": end_offset, "in_sync": in_sync}
        return Answer(cast("ReplicaStatus", SimpleNamespace(**values)))

    answers = {leader.address: status("master", 100), follower.address: status("slave", 60)}
    with patch.object(replica_remoting, "replica_statuses", return_value=answers):
        context = StepContext.of(OperationStep.objects.get(pk=step.pk), driver)
        if waits:
            with pytest.raises(StepNotReady, match="behind its leader"):
                steps.settle_replicas(context)
        else:
            steps.settle_replicas(context)


def test_a_resumed_cluster_runs_at_its_addresses(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    names, ports, address = cluster_process_names(cluster), ports_of(cluster), cluster.namesrv_addr
    suspend(world, cluster, driver)
    operation = run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    cluster.refresh_from_db()
    assert (cluster.state, cluster.stopped_at, cluster.stopped_by) == (ClusterState.RUNNING, None, "")
    assert (sorted(driver.processes), ports_of(cluster), cluster.namesrv_addr) == (sorted(names), ports, address)


def test_usage_is_read_to_its_end_before_the_stop_and_counted_again_after_it(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspend(world, cluster, driver)
    assert progress_get(cluster).sealed_at is not None
    assert str(cluster.pk) not in str(config_of(JobRun(job=Job.INGEST)))
    run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    assert progress_get(cluster).sealed_at is None
    assert str(cluster.pk) in str(config_of(JobRun(job=Job.INGEST)))


def test_while_it_is_suspended_nobody_looks_at_it_or_starts_it(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspend(world, cluster, driver)
    driver.calls.clear()
    health.cluster_sample_health(cluster.pk, driver)
    assert driver.calls == []


def test_an_alert_of_a_cluster_that_is_stopped_ends(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    from controlplane.alerts.engine import alerts_evaluate

    now = timezone.now()
    alert = Alert.objects.create(
        cluster=cluster,
        kind="daemon_down",
        subject="broker-a replica 0",
        state=AlertState.FIRING,
        value=1,
        threshold=0,
        since=now,
        known_at=now,
        fired_at=now,
    )
    suspend(world, cluster, driver)
    alerts_evaluate()
    alert.refresh_from_db()
    assert (alert.state, alert.resolved_because) == (AlertState.RESOLVED, "Its cluster does not run any more.")


def test_a_change_of_a_suspended_cluster_is_refused_with_who_stopped_it(
    world: World, cluster: Cluster, driver: DriverTwin, api: Callable[..., Json]
) -> None:
    suspend(world, cluster, driver)
    answer = api(world.alice).call("POST", f"{cluster.path}topics/", {"name": "payments"})
    assert (answer.status_code, answer.json()["code"]) == (409, "cluster_not_running")
    assert f"{world.alice.email} stopped it at" in answer.json()["detail"]
    assert "resume" in answer.json()["hint"]


def test_suspending_is_refused_while_another_operation_runs(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    cluster_suspend(actor=world.alice, cluster=cluster)
    with pytest.raises(Conflict, match="suspending"):
        cluster_suspend(actor=world.alice, cluster=cluster)
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.RUNNING)
    with pytest.raises(Conflict, match=r"“Suspending the cluster”, which .* is at “Stop serving clients"):
        cluster_suspend(actor=world.alice, cluster=cluster)


def test_a_suspension_that_only_waits_is_given_up_for_a_resume(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspension = cluster_suspend(actor=world.alice, cluster=cluster)
    resume = cluster_resume(actor=world.alice, cluster=cluster)
    suspension.refresh_from_db()
    assert (suspension.state, (suspension.error or {})["cause"]) == (
        OperationState.FAILED,
        "The cluster was resumed before it was suspended.",
    )
    assert run(resume, driver).cluster.state == ClusterState.RUNNING


def test_a_worker_at_a_step_of_the_suspension_keeps_the_resume_waiting(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspension = cluster_suspend(actor=world.alice, cluster=cluster)
    OperationStep.objects.filter(operation=suspension, position=0).update(state=StepState.RUNNING)
    with pytest.raises(Conflict, match="in progress"):
        cluster_resume(actor=world.alice, cluster=cluster)
    cluster.refresh_from_db()
    assert cluster.state == ClusterState.SUSPENDING


def test_a_resume_that_failed_is_retried(world: World, cluster: Cluster, driver: DriverTwin) -> None:
    suspend(world, cluster, driver)
    resume = cluster_resume(actor=world.alice, cluster=cluster)
    with patch.object(probe, "broker_answers", side_effect=RuntimeError("odd")):
        run(resume, driver)
    assert (resume.state, resume.cluster.state) == (OperationState.FAILED, ClusterState.RESUMING)
    assert "odd" in (resume.cluster.error or {})["cause"]
    assert run(operation_retry(actor=world.alice, operation=resume), driver).cluster.state == ClusterState.RUNNING


def test_a_resume_whose_brokers_do_not_start_leaves_the_end_of_the_usage_as_it_is(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspend(world, cluster, driver)
    sealed_at = progress_get(cluster).sealed_at
    with patch.object(driver, "process_start", side_effect=RuntimeError("no space left")):
        operation = run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    assert operation.state == OperationState.FAILED
    assert progress_get(cluster).sealed_at == sealed_at is not None


def test_what_a_resume_that_failed_later_has_started_is_metered(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    suspend(world, cluster, driver)
    with patch.object(probe, "broker_refuses_strangers", side_effect=RuntimeError("odd")):
        run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    cluster.refresh_from_db()
    assert (cluster.state, progress_get(cluster).sealed_at) == (ClusterState.RESUMING, None)
    (read,) = (one for one in config_of(JobRun(job=Job.INGEST))["clusters"] if one["cluster_id"] == str(cluster.pk))
    assert read["access_key"]


def test_a_key_that_went_while_a_cluster_was_suspended_is_in_no_file_after_it(
    world: World, cluster: Cluster, driver: DriverTwin
) -> None:
    key = cluster.credentials.get(is_control=False)
    # What the last change of the keys has left.
    driver.files |= {f"{path}.bak": text for path, text in driver.files.items() if path.endswith("plain_acl.yml")}
    assert any(key.access_key in text for text in driver.files.values())
    suspend(world, cluster, driver)
    key.delete()
    run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    assert not [path for path, text in driver.files.items() if key.access_key in text]


def test_a_broker_that_was_away_when_a_limit_changed_gets_it_at_the_next_look(
    world: World, cluster: Cluster, driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = {key: str(value) for key, value in limits.broker_quota_keys(cluster.tenant).items()}
    Tenant.objects.filter(pk=cluster.tenant_id).update(limits={"stored_bytes": 9})
    given: list[tuple[str, dict[str, str]]] = []
    admin = SimpleNamespace(update_broker_config=lambda address, changes: given.append((address, changes)))
    monkeypatch.setattr(limits, "cluster_admin", lambda _: nullcontext(admin))
    monkeypatch.setattr(limits, "broker_configurations", lambda _, addresses: dict.fromkeys(addresses, has))
    monkeypatch.setattr(health, "registrations", lambda *_, **__: [])
    health.cluster_sample_health(cluster.pk, driver)
    (replica,) = Replica.objects.filter(group__cluster=cluster)
    assert given == [(replica.address, {"quotaStoredBytes": "9"})]


def test_a_running_cluster_is_not_resumed(world: World, cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="running, not suspended"):
        cluster_resume(actor=world.alice, cluster=cluster)


def test_a_deleted_cluster_is_stopped_and_kept_until_its_time_is_up(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    files = dict(driver.files)
    before = timezone.now()
    assert run(cluster_delete(actor=world.alice, cluster=cluster), driver).state == OperationState.COMPLETED
    cluster.refresh_from_db()
    assert cluster.state == ClusterState.DELETION_PENDING
    assert (driver.processes, driver.files) == ({}, files)
    assert cluster.delete_at is not None
    assert before <= cluster.delete_at - timedelta(hours=undo_hours) <= timezone.now()


def test_it_keeps_its_name_and_counts_against_the_limits_meanwhile(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    used = {use.name: use.used for use in limit_uses(world.acme)}
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    assert {use.name: use.used for use in limit_uses(world.acme)} == used
    with pytest.raises(Conflict, match="has a cluster called"):
        cluster_create(actor=world.alice, tenant=world.acme, slug="fresh")


def test_a_restored_cluster_runs_with_all_that_it_had(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    ports, keys = ports_of(cluster), cluster.credentials.count()
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    operation = run(cluster_restore(actor=world.alice, cluster=cluster), driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    cluster.refresh_from_db()
    assert (cluster.state, cluster.delete_at, cluster.stopped_at) == (ClusterState.RUNNING, None, None)
    assert (ports_of(cluster), cluster.credentials.count()) == (ports, keys)


def test_a_deletion_that_still_waits_for_its_usage_is_taken_back(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    deletion = cluster_delete(actor=world.alice, cluster=cluster)
    restore = cluster_restore(actor=world.alice, cluster=cluster)
    deletion.refresh_from_db()
    assert (deletion.error or {})["cause"] == "The deletion was taken back."
    assert run(restore, driver).cluster.state == ClusterState.RUNNING


def test_a_suspended_cluster_is_deleted_and_restored_too(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    suspend(world, cluster, driver)
    assert (
        run(cluster_delete(actor=world.alice, cluster=cluster), driver).cluster.state == ClusterState.DELETION_PENDING
    )
    assert run(cluster_restore(actor=world.alice, cluster=cluster), driver).cluster.state == ClusterState.RUNNING


def test_what_is_deleted_for_good_is_not_restored(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    purge = cluster_purge(actor=world.alice, cluster=cluster, confirm="fresh")
    with pytest.raises(Conflict, match="no deletion of this cluster that can be taken back"):
        cluster_restore(actor=world.alice, cluster=cluster)
    run(purge, driver)
    cluster.refresh_from_db()
    assert cluster.state == ClusterState.DELETED
    assert (driver.files, ports_of(cluster)) == ({}, [])


def test_deleting_for_good_wants_the_clusters_name_and_a_deletion(world: World, cluster: Cluster) -> None:
    with pytest.raises(InvalidInput):
        cluster_purge(actor=world.alice, cluster=cluster, confirm="orders")
    with pytest.raises(Conflict, match="does not wait for its deletion"):
        cluster_purge(actor=world.alice, cluster=cluster, confirm="fresh")


def test_beat_removes_what_is_due_and_nothing_else(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    assert clusters_purge() == 0
    assert clusters_purge(timezone.now() + timedelta(hours=undo_hours)) == 1
    assert clusters_purge(timezone.now() + timedelta(hours=undo_hours)) == 0
    removal = Operation.objects.filter(cluster=cluster).latest("created_at")
    assert removal.requested_by == "end of the undo window"
    assert run(removal, driver).cluster.state == ClusterState.DELETED


def test_a_cluster_with_another_operation_does_not_keep_the_others_that_are_due(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float
) -> None:
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    busy = make_cluster(world.acme, "busy", ClusterState.DELETION_PENDING)
    due = timezone.now() + timedelta(hours=undo_hours)
    Cluster.objects.filter(pk=busy.pk).update(delete_at=due)
    operation_start(actor=world.alice, cluster=busy, operation_type=OperationType.CLUSTER_RESTART)
    assert clusters_purge(due) == 1
    busy.refresh_from_db()
    cluster.refresh_from_db()
    assert (busy.state, cluster.state) == (ClusterState.DELETION_PENDING, ClusterState.DELETING)


def test_a_second_deletion_is_refused_with_what_can_be_done(
    world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float, api: Callable[..., Json]
) -> None:
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    answer = api(world.alice).call("DELETE", cluster.path)
    assert (answer.status_code, answer.json()["code"]) == (409, "cluster_deleted")
    assert "restore" in answer.json()["hint"]


def test_every_act_is_in_the_audit_trail(world: World, cluster: Cluster, driver: DriverTwin, undo_hours: float) -> None:
    suspend(world, cluster, driver)
    run(cluster_resume(actor=world.alice, cluster=cluster), driver)
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    run(cluster_restore(actor=world.alice, cluster=cluster), driver)
    run(cluster_delete(actor=world.alice, cluster=cluster), driver)
    cluster_purge(actor=world.alice, cluster=cluster, confirm="fresh")
    written = AuditEvent.objects.filter(resource=cluster.path).values_list("action", flat=True)
    acts = ["suspend", "resume", "delete", "restore", "purge"]
    assert {f"cluster.{act}" for act in acts} <= set(written)
