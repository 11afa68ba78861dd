"""Rolling restarts step by step: the order, repeated steps, what stops one, a retry. The brokers are scripted, the rows real."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.clusters.models import (
    Cluster,
    CredentialState,
    Operation,
    OperationState,
    OperationStep,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operation_cancel, operation_retry, operation_yields
from controlplane.clusters.replica_remoting import ProbeAnswer
from controlplane.common.errors import Conflict, NotAllowed
from controlplane.common.models import AuditEvent
from controlplane.failover.errors import NotPossible
from controlplane.failover.models import Failover, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.services import automatic_failover
from controlplane.failover.promotion.steps import present_failover
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.rolling import steps
from controlplane.failover.rolling.plan import planned, problem_of, successor_of
from controlplane.failover.rolling.report import entry_note
from controlplane.failover.rolling.services import Purpose, rolling_plan, rolling_start
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning import probe, versions
from controlplane.provisioning.drivers.base import DaemonProcess, ProcessState, ProcessStatus
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.probe import Registration
from controlplane.provisioning.processes import (
    cluster_process_names,
    cluster_replicas,
    name_server_process_name,
    replica_process_name,
)
from controlplane.provisioning.runner import Outcome, operation_step_run
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


class RestartingDriver(DriverTwin):
    """A replica whose process is removed is away until it is started again; `stuck` ones come back and never catch up."""

    group: ScriptedGroup
    stuck: set[int]
    started: dict[str, datetime]

    def process_statuses(self, names: Sequence[str]) -> dict[str, ProcessStatus]:
        found = super().process_statuses(names)
        return {name: replace(status, started_at=self.started.get(name)) for name, status in found.items()}

    def process_remove(self, name: str) -> None:
        super().process_remove(name)
        if "broker-a" in name:
            replica = self.group[int(name.rpartition("-")[2])]
            assert not replica.leads or len(self.group.replicas) == 1, "a leader hands its role over first"
            replica.answers = False

    def process_start(self, process: DaemonProcess) -> None:
        was_there = process.name in self.states
        super().process_start(process)
        if not was_there:
            self.started[process.name] = timezone.now()
        if "broker-a" in process.name and not was_there:
            replica_id = int(process.name.rpartition("-")[2])
            if replica_id not in self.stuck:
                self.group.back(replica_id)
                self.group[replica_id].leads = len(self.group.replicas) == 1


class FollowedGroup(ScriptedGroup):
    """Followers take what the leader takes."""

    def _probe(self, cluster: Cluster, address: str) -> ProbeAnswer:
        answer = super()._probe(cluster, address)
        for other in self.replicas:
            self._follow(other, self._at(address))
        return answer


class NoWatch:
    """Stands in for the probes: nothing was refused."""

    refused_since = None
    refused_ms = 0

    def __init__(self, producer: object) -> None: ...

    def __enter__(self) -> NoWatch:
        return self

    def __exit__(self, *error: object) -> None: ...


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "trio", "sync", replicas=3)


@pytest.fixture
def driver(tmp_path: Path) -> RestartingDriver:
    return RestartingDriver(tmp_path)


@pytest.fixture(autouse=True)
def group(cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedGroup]:
    def registered(
        servers: list[str], credentials: object, wanted: set[str], *_: object, **__: object
    ) -> list[Registration]:
        return [Registration(server, frozenset(wanted)) for server in servers]

    monkeypatch.setattr(steps, "SendWatch", NoWatch)
    monkeypatch.setattr(steps, "_RUN_S", 0.0)
    monkeypatch.setattr(probe, "registrations", registered)
    monkeypatch.setattr(probe, "port_answers", lambda host, port: True)
    monkeypatch.setattr(steps, "failover_topics", lambda context: None)
    reported: dict[str, str | None] = {row.address: "1.0+old" for row in Replica.objects.filter(group__cluster=cluster)}
    reported |= {server.address: "1.0+old" for server in cluster.name_servers.all()}
    monkeypatch.setattr(steps, "versions_reported", lambda cluster: reported)
    monkeypatch.setattr(versions, "versions_reported", lambda cluster: reported)
    with FollowedGroup.of(cluster).answering() as found:
        driver.group, driver.stuck, driver.started = found, set(), {}
        long_ago = timezone.now() - timedelta(hours=1)
        for name in cluster_process_names(cluster):
            driver.states[name] = ProcessState.RUNNING
            driver.started[name] = long_ago
        cluster_sample(cluster, driver)
        yield found


def run(operation: Operation, driver: DriverTwin, *, twice: bool = False, tries: int = 4, until: str = "") -> Operation:
    """Run the steps until one fails, or waits `tries` times, or `until` is next. `twice` runs each again before it is completed."""
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        if step.name == until:
            break
        outcome = Outcome.WAITING
        for _ in range(tries):
            OperationStep.objects.filter(pk=step.pk).update(not_before=None)
            outcome = operation_step_run(step.pk, driver)
            if twice and outcome == Outcome.COMPLETED:
                OperationStep.objects.filter(pk=step.pk).update(state=StepState.PENDING)
                Operation.objects.filter(pk=operation.pk).update(state=OperationState.IN_PROGRESS)
                outcome = operation_step_run(step.pk, driver)
            if outcome != Outcome.WAITING:
                break
        if outcome != Outcome.COMPLETED:
            break
    operation.refresh_from_db()
    return operation


def start(cluster: Cluster, driver: DriverTwin, purpose: Purpose = Purpose.RESTART) -> Operation:
    return rolling_start(actor=SYSTEM, cluster=cluster, driver=driver, purpose=purpose)


def removed(driver: DriverTwin) -> list[str]:
    """The processes that were stopped, in order, by the end of their names."""
    calls = [call.split(" ")[1] for call in driver.calls if call.startswith("remove ")]
    return [name.split("-", 2)[2] for name in calls]


def brokers(operation: Operation) -> Mapping[int, dict[str, object]]:
    daemons = operation.metadata["daemons"]
    return {daemon["replica"]: daemon for daemon in daemons if daemon["kind"] == "broker"}


@pytest.mark.parametrize("twice", [False, True])
def test_name_servers_come_first_then_followers_and_who_led_last_after_its_role_has_moved(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, twice: bool
) -> None:
    operation = run(start(cluster, driver), driver, twice=twice)
    assert operation.state == OperationState.COMPLETED, operation.error
    servers = [f"namesrv-{server.position}" for server in cluster.name_servers.all()]
    assert removed(driver) == [*servers, "broker-a-1", "broker-a-2", "broker-a-0"]
    assert len(group.promotions) == 1
    assert brokers(operation)[0]["leadership_moved_to"] == group.promotions[0][1]
    assert all(daemon["back_at"] for daemon in operation.metadata["daemons"])


def test_a_daemon_that_is_restarted_gets_no_key_that_was_deleted_since_it_was_looked_at(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = cluster.credentials.latest("created_at")

    def deleted_meanwhile(*arguments: object, **changes: object) -> None:
        type(deleted).objects.filter(pk=deleted.pk).update(state=CredentialState.DELETING)
        entry_note(*arguments, **changes)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr(steps, "entry_note", deleted_meanwhile)
    run(start(cluster, driver), driver)
    written = [text for path, text in driver.files.items() if "plain_acl" in path]
    assert written
    assert not [text for text in written if deleted.access_key in text]


def test_a_group_with_a_silent_replica_is_not_begun_with(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup
) -> None:
    group[2].answers = False
    plan = rolling_plan(cluster=cluster, driver=driver)
    assert plan.problems == ("Replica 2 of broker-a does not answer.",)
    with pytest.raises(NotPossible, match="Nothing was restarted"):
        start(cluster, driver)
    assert not Operation.objects.filter(cluster=cluster, type="cluster.restart").exists()


def test_a_follower_that_does_not_catch_up_stops_it_before_another_is_taken_away(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup
) -> None:
    driver.stuck = {1}
    operation = run(start(cluster, driver), driver)
    step = operation.steps.get(name="roll_followers")
    assert (operation.state, step.state) == (OperationState.IN_PROGRESS, StepState.PENDING)
    assert step.message == "Replica 1 of broker-a does not answer."
    assert [name for name in removed(driver) if name.startswith("broker")] == ["broker-a-1"]
    assert group.master is group[0]
    assert operation_yields(operation), "should the leader die now, another is promoted"


def test_a_retry_goes_on_with_what_is_left(cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup) -> None:
    driver.stuck = {2}
    operation = run(start(cluster, driver), driver)
    Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)
    OperationStep.objects.filter(operation=operation, state=StepState.PENDING).update(state=StepState.FAILED)
    group.back(2)
    operation_retry(actor=SYSTEM, operation=operation)
    operation = run(operation, driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    names = removed(driver)
    assert len(names) == len(set(names)), "no daemon twice"


def test_a_retry_moves_the_leadership_of_one_that_was_promoted_before_it_was_stopped(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A promotion had ended the operation between the note that replica 1 is to be stopped and its stop."""

    def ended(operation: Operation, row: uuid.UUID, **values: object) -> None:
        entry_note(operation, row, **values)  # type: ignore[arg-type]  # one type for all values
        Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)

    operation = run(start(cluster, driver), driver, until="roll_followers")
    with monkeypatch.context() as ending:
        ending.setattr(steps, "entry_note", ended)
        run(operation, driver, tries=1)
    assert brokers(operation)[1]["stopped_at"] is not None
    for replica in group.replicas:
        replica.leads, replica.epoch, replica.log_epoch = replica.replica_id == 1, 9, 9
    cluster_sample(cluster, driver)
    operation_retry(actor=SYSTEM, operation=operation)
    operation = run(operation, driver, tries=6)  # the driver fails where a leader is stopped
    assert operation.state == OperationState.COMPLETED, operation.error
    assert brokers(operation)[1]["leadership_moved_to"] is not None


def test_a_worker_that_dies_after_the_stop_leaves_a_daemon_that_the_next_one_starts(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(process: DaemonProcess) -> None:
        raise SystemExit

    operation = start(cluster, driver)
    with monkeypatch.context() as dying:
        dying.setattr(driver, "process_start", killed)
        with pytest.raises(SystemExit):
            run(operation, driver)
    OperationStep.objects.filter(operation=operation, state=StepState.RUNNING).update(
        state=StepState.PENDING, claim=None
    )
    operation = run(operation, driver)
    assert operation.state == OperationState.COMPLETED, operation.error


def lose_the_leader(cluster: Cluster, driver: DriverTwin, group: ScriptedGroup, ago_s: int) -> GroupView:
    """The leader has been dead for that long, as the samples have it."""
    group[0].answers = False
    row = Replica.objects.get(group__cluster=cluster, broker_id=0)
    driver.states[replica_process_name(cluster, row)] = ProcessState.FATAL
    cluster_sample(cluster, driver)
    ago = timezone.now() - timedelta(seconds=ago_s)
    ReplicaSample.objects.filter(replica=row).update(unreachable_since=ago)
    GroupLeadership.objects.filter(group=row.group).update(led_at=ago)
    (view,) = cluster_sample(cluster, driver)
    return view


def test_a_group_that_lost_its_leader_before_its_turn_ends_the_restart_so_that_another_is_promoted_at_once(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(failover_policy="automatic_when_lossless")
    cluster.refresh_from_db()
    operation = run(start(cluster, driver), driver, until="roll_leaders")
    lose_the_leader(cluster, driver, group, ago_s=1)
    operation = run(operation, driver)
    assert operation.state == OperationState.IN_PROGRESS, "it may be back soon"
    Failover.objects.create(  # begun, and not decided
        operation=operation, cluster=cluster, group_name="broker-a", kind="switchover", requested_by="x", candidate_id=1
    )
    view = lose_the_leader(cluster, driver, group, ago_s=20)
    assert automatic_failover(cluster, view, driver) is None
    operation = run(operation, driver)
    assert operation.state == OperationState.FAILED
    assert (operation.error or {})["cause"] == "broker-a has lost its leader meanwhile."
    assert automatic_failover(cluster, view, driver) is not None


def test_a_leader_that_is_away_because_another_was_just_decided_for_ends_nothing(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(context: object) -> None:
        raise SystemExit

    operation = run(start(cluster, driver), driver, until="roll_leaders")
    with monkeypatch.context() as dying:
        dying.setattr(steps, "failover_promote", killed)
        with pytest.raises(SystemExit):
            run(operation, driver)
    OperationStep.objects.filter(operation=operation, state=StepState.RUNNING).update(
        state=StepState.PENDING, claim=None
    )
    GroupLeadership.objects.update(led_at=timezone.now() - timedelta(seconds=20))
    assert group.master is None
    operation = run(operation, driver)
    assert operation.state == OperationState.COMPLETED, operation.error


@pytest.mark.parametrize("late", ["failover_verify", "failover_topics"])
def test_a_new_leader_that_takes_its_time_gets_its_topics_and_its_place_in_the_report(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    asked: list[int] = []

    def not_yet(context: object) -> None:
        raise StepNotReady("The new master does not take sends yet.")

    operation = run(start(cluster, driver), driver, until="roll_leaders")
    with monkeypatch.context() as slow:
        slow.setattr(steps, late, not_yet)
        run(operation, driver, tries=1)
    operation.refresh_from_db()
    assert operation.metadata["sends_wait"] is (late == "failover_verify"), "which hurries"
    monkeypatch.setattr(steps, "failover_topics", lambda context: asked.append(present_failover(context).candidate_id))
    operation = run(operation, driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    moved = Failover.objects.get(operation=operation)
    assert moved.writes_back_at is not None
    assert asked == [moved.candidate_id] == [brokers(operation)[0]["leadership_moved_to"]]


def test_a_broker_alone_is_restarted_with_the_followers(world: World, driver: RestartingDriver) -> None:
    solo = make_replicated(world.acme, "solo", "single", replicas=1)
    with FollowedGroup.of(solo).answering() as driver.group:
        cluster_sample(solo, driver)
        operation = run(start(solo, driver), driver, until="roll_leaders")
    assert brokers(operation)[0]["back_at"] is not None


def test_a_run_of_a_step_restarts_one_daemon(cluster: Cluster, driver: RestartingDriver) -> None:
    operation = run(start(cluster, driver), driver, until="roll_followers")
    operation = run(operation, driver, tries=1)
    step = operation.steps.get(name="roll_followers")
    assert (step.state, step.message) == (StepState.PENDING, "broker-a #1 is back; the next one follows.")
    assert [name for name in removed(driver) if name.startswith("broker")] == ["broker-a-1"]


def test_a_worker_whose_operation_was_ended_stops_and_starts_nothing(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(operation: Operation, row: uuid.UUID, **values: object) -> None:
        entry_note(operation, row, **values)  # type: ignore[arg-type]  # one type for all values
        Operation.objects.filter(pk=operation.pk).update(state=OperationState.FAILED)

    operation = run(start(cluster, driver), driver, until="roll_followers")
    before = driver.calls.copy()
    monkeypatch.setattr(steps, "entry_note", ended)
    run(operation, driver, tries=1)
    assert not [call for call in driver.calls[len(before) :] if call.startswith(("remove", "start"))]


def test_a_daemon_that_someone_stopped_meanwhile_is_not_started_by_who_only_waits_for_it(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_at_once(process: DaemonProcess) -> None:
        RestartingDriver.process_start(driver, process)
        driver.states.pop(process.name)

    operation = run(start(cluster, driver), driver, until="roll_followers")
    monkeypatch.setattr(driver, "process_start", stopped_at_once)
    before = len(driver.calls)
    run(operation, driver, tries=1)
    assert len([call for call in driver.calls[before:] if call.startswith("start")]) == 1


def test_an_upgrade_needs_a_daemon_that_runs_another_version(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda kind: "1.0+old")
    monkeypatch.setattr(steps, "installed_version", lambda kind: "1.0+old")
    with pytest.raises(NotPossible, match="another version"):
        start(cluster, driver, Purpose.UPGRADE)
    monkeypatch.setattr(versions, "installed_version", lambda kind: "1.1+new")
    operation = start(cluster, driver, Purpose.UPGRADE)
    assert operation.type == "cluster.upgrade"


def test_an_upgrade_moves_the_leadership_first_and_each_broker_reports_the_new_version(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda kind: "1.1+new")
    monkeypatch.setattr(steps, "installed_version", lambda kind: "1.1+new")
    reported = versions.versions_reported(cluster)
    addresses = {replica_process_name(cluster, row): row.address for row in cluster_replicas(cluster)}
    addresses |= {name_server_process_name(cluster, row): row.address for row in cluster.name_servers.all()}
    led: list[int] = []

    def start_installed(process: DaemonProcess) -> None:
        RestartingDriver.process_start(driver, process)
        reported[addresses[process.name]] = "1.1+new"
        led.append(next(replica.replica_id for replica in group.replicas if replica.leads))

    monkeypatch.setattr(driver, "process_start", start_installed)
    operation = run(start(cluster, driver, Purpose.UPGRADE), driver)
    assert operation.state == OperationState.COMPLETED, operation.error
    told = [(daemon["version_before"], daemon["version_after"]) for daemon in operation.metadata["daemons"]]
    assert told == [("1.0+old", "1.1+new")] * len(addresses)
    assert led[-1] != 0, "who led was restarted after another led"
    assert {one.is_outdated for one in versions.cluster_versions(cluster)} == {False}


def test_an_upgrade_after_which_an_older_version_runs_has_failed(
    cluster: Cluster, driver: RestartingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda kind: "1.1+new")
    monkeypatch.setattr(steps, "installed_version", lambda kind: "1.1+new")
    operation = run(start(cluster, driver, Purpose.UPGRADE), driver)
    assert operation.state == OperationState.FAILED
    assert "runs 1.0+old, not what is installed" in (operation.error or {})["cause"]


def test_who_asked_is_in_the_audit_trail_and_a_developer_may_not(
    cluster: Cluster, driver: RestartingDriver, world: World
) -> None:
    with pytest.raises(NotAllowed):
        rolling_start(actor=world.bob, cluster=cluster, driver=driver)
    rolling_start(actor=world.alice, cluster=cluster, driver=driver)
    event = AuditEvent.objects.get(action="cluster.restart")
    assert event.details["daemons"] == 3 + cluster.name_servers.count()
    with pytest.raises(Conflict):
        rolling_start(actor=world.alice, cluster=cluster, driver=driver)


def test_a_replica_alone_has_no_one_to_hand_its_role_to() -> None:
    now = timezone.now()
    alone = ReplicaView(replica_id=0, role="master", last_seen_at=now, accepts_sends=True)
    view = GroupView(name="broker-a", in_sync_replicas=1, replicas=(alone,))
    assert problem_of(view) is None
    (restart,) = planned(view, {0: "10.0.0.1:10911"})
    assert (restart.name, restart.stops_sends, restart.moves_leadership) == ("broker-a", True, False)


def test_a_synchronous_pair_has_no_replica_to_spare_and_three_have(cluster: Cluster, driver: RestartingDriver) -> None:
    plan = rolling_plan(cluster=cluster, driver=driver)
    assert (plan.possible, plan.stops_sends) == (True, False)
    shared = {"last_seen_at": timezone.now(), "accepts_sends": True, "in_sync": True}
    pair = tuple(
        ReplicaView(replica_id=number, role=role, **shared)  # type: ignore[arg-type]  # one type for all values
        for number, role in enumerate(("master", "slave"))
    )
    stops = [one.stops_sends for one in planned(GroupView(name="a", in_sync_replicas=2, replicas=pair), {})]
    assert stops == [True, True]
    stops = [one.stops_sends for one in planned(GroupView(name="a", in_sync_replicas=1, replicas=pair), {})]
    assert stops == [False, False]


def test_a_leader_hands_its_role_to_a_follower_that_was_restarted_already() -> None:
    now = timezone.now()
    shared = {"last_seen_at": now, "log_epoch": 1, "held_offset": 100, "promotable": True, "in_sync": True}
    replicas = tuple(
        ReplicaView(replica_id=number, role="master" if number == 0 else "slave", **shared)  # type: ignore[arg-type]  # one type for all values
        for number in range(3)
    )
    view = GroupView(name="broker-a", in_sync_replicas=2, replicas=replicas)
    assert [successor_of(view, done) for done in ({2}, set(), {1, 2})] == [2, 1, 1]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_cancelled_restart_waits_for_the_broker_under_way_and_leaves_the_others(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, purpose: Purpose
) -> None:
    driver.stuck = {1}
    operation = run(start(cluster, driver, purpose), driver)
    operation_cancel(actor=SYSTEM, operation=operation)
    operation = run(operation, driver)
    assert operation.state == OperationState.IN_PROGRESS, "replica 1 is away"
    group.back(1)
    operation = run(operation, driver)
    assert (operation.state, operation.error) == (OperationState.CANCELLED, None)
    assert [replica for replica, daemon in brokers(operation).items() if daemon["back_at"]] == [1]
    assert [name for name in removed(driver) if name.startswith("broker")] == ["broker-a-1"]
    assert group.master is group[0]
    assert AuditEvent.objects.filter(action="operation.cancel").count() == 1


def test_a_restart_that_is_cancelled_while_a_leadership_moves_has_that_replica_back_and_a_leader(
    cluster: Cluster, driver: RestartingDriver, group: ScriptedGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_yet(context: object) -> None:
        raise StepNotReady("The new master does not take sends yet.")

    operation = run(start(cluster, driver), driver, until="roll_leaders")
    with monkeypatch.context() as slow:
        slow.setattr(steps, "failover_verify", not_yet)
        run(operation, driver, tries=1)
    operation_cancel(actor=SYSTEM, operation=operation)
    operation = run(operation, driver)
    assert brokers(operation)[0]["back_at"] is not None
    assert group.master is not None
    assert operation.state == OperationState.COMPLETED, "it was the last one"


def test_a_restart_that_is_cancelled_before_it_began_restarts_nothing(
    cluster: Cluster, driver: RestartingDriver
) -> None:
    operation = start(cluster, driver)
    operation_cancel(actor=SYSTEM, operation=operation)
    assert run(operation, driver).state == OperationState.CANCELLED
    assert removed(driver) == []
    with pytest.raises(Conflict, match="has ended"):
        operation_cancel(actor=SYSTEM, operation=operation)


def test_only_rolling_restarts_are_cancelled(world: World) -> None:
    creation = Operation.objects.filter(type="cluster.create")[0]
    with pytest.raises(Conflict, match="Only a rolling restart or upgrade"):
        operation_cancel(actor=SYSTEM, operation=creation)
