"""Drills step by step: pre-flight, repeated steps, a promotion that is not clean any more. The brokers are scripted, the rows
real, and the probes are written by hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django.utils.translation import override

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Operation,
    OperationState,
    OperationStep,
    Replica,
)
from controlplane.clusters.operations import operation_retry
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import in_words
from controlplane.failover.drill.services import drill_faults_end, drill_preview
from controlplane.failover.errors import ConfirmationNeeded, NotPossible
from controlplane.failover.management.commands import failover_drill
from controlplane.failover.models import Drill, DrillFault, DrillVerdict, Failover
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import replica_process_name
from controlplane.provisioning.runner import Outcome, operation_step_run
from tests.controlplane.world import SYSTEM, World
from tests.failover.drills import CrashingDriver, probe_by_hand, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "sync")


@pytest.fixture
def crashing(tmp_path: Any) -> CrashingDriver:
    return CrashingDriver(tmp_path)


@pytest.fixture
def group(cluster: Cluster, crashing: CrashingDriver) -> Iterator[ScriptedGroup]:
    with ScriptedGroup.of(cluster).answering() as group:
        crashing.group = group
        for replica in Replica.objects.filter(group__cluster=cluster).select_related("group"):
            crashing.states[replica_process_name(cluster, replica)] = ProcessState.RUNNING
        cluster_sample(cluster, crashing)
        yield group


@pytest.fixture(autouse=True)
def _probes_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    probe_by_hand(monkeypatch)


@pytest.mark.parametrize("twice", [False, True])
def test_a_drill_stops_the_leader_promotes_and_writes_its_report(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver, twice: bool
) -> None:
    drill = start(cluster, crashing)
    operation = run(drill, crashing, twice=twice)
    assert operation.state == OperationState.COMPLETED, operation.error
    assert (drill.verdict, drill.probes_sent, drill.probes_missing) == (DrillVerdict.PASSED, 100, 0)
    assert drill.rto_ms == 2050
    assert group.promotions == [(5, 1)]
    assert not Replica.objects.filter(group__cluster=cluster, fenced=True).exists()


def test_the_leader_stands_still_before_the_supervisor_is_asked_to_end_it(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    run(start(cluster, crashing), crashing)
    ends = [call for call in crashing.calls if call.startswith(("pause", "kill"))]
    assert [call.split()[0] for call in ends[:2]] == ["pause", "kill"]
    assert all(call.endswith("broker-a-0") for call in ends)


def test_a_leader_that_hangs_is_ended_by_the_fence_and_started_again(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.HANG)
    operation = run(drill, crashing, twice=True)
    assert operation.state == OperationState.COMPLETED, operation.error
    calls = [call.split()[0] for call in crashing.calls if call.endswith("broker-a-0")]
    assert calls.index("pause") < calls.index("kill") < calls.index("start")
    fenced = [line.detail for line in drill.failover.timeline.all() if line.name == "fenced"]
    assert fenced[0].startswith("The process of replica 0 is stopped.")
    assert drill.fault_ended_at is not None


def test_a_leader_that_is_cut_off_is_not_suspended_but_ended_by_the_fence(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.CUT)
    operation = run(drill, crashing, twice=True)
    assert operation.state == OperationState.COMPLETED, operation.error
    calls = [call.split()[0] for call in crashing.calls if call.endswith("broker-a-0")]
    assert "pause" not in calls
    assert calls.index("kill") < calls.index("start")
    assert group.promotions == [(5, 1)]
    assert drill.fault_ended_at is not None


def test_a_leader_that_refuses_to_be_cut_off_fails_the_drill_with_nothing_changed(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.CUT)
    refused = replica_remoting.Answer(error="request code 20016 is not supported", refused=True)
    with patch.object(replica_remoting, "network_cut", return_value=refused):
        operation = run(drill, crashing)
    assert "Nothing was cut: request code 20016 is not supported." in (operation.error or {})["cause"]
    drill_faults_end(cluster, crashing)
    assert not [call for call in crashing.calls if call.startswith(("pause", "kill"))]


def test_a_process_that_a_failed_drill_left_hanging_is_ended_once(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.HANG)
    for step in drill.operation.steps.order_by("position")[:3]:
        while operation_step_run(step.pk, crashing) == Outcome.WAITING:
            OperationStep.objects.filter(pk=step.pk).update(not_before=None)
    drill_faults_end(cluster, crashing)
    assert not [call for call in crashing.calls if call.startswith("kill")]  # not while the drill goes on
    Drill.objects.update(fault_at=timezone.now() + timedelta(minutes=1))  # the twin's processes were started just now
    Operation.objects.filter(pk=drill.operation_id).update(state=OperationState.FAILED)
    for _ in range(2):
        drill_faults_end(cluster, crashing)
    assert [call for call in crashing.calls if call.startswith("kill")] == [
        call.replace("pause", "kill") for call in crashing.calls if call.startswith("pause")
    ]


def test_a_leader_that_a_failed_drill_cut_off_is_not_ended(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.CUT)
    Drill.objects.update(fault_at=timezone.now() + timedelta(minutes=1))  # the twin's processes were started just now
    Operation.objects.filter(pk=drill.operation_id).update(state=OperationState.FAILED)
    drill_faults_end(cluster, crashing)
    drill.refresh_from_db()
    assert drill.fault_ended_at is not None
    assert not [call for call in crashing.calls if call.startswith("kill")]


def test_a_process_that_was_started_since_the_fault_is_left_alone(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, fault=DrillFault.HANG)
    Drill.objects.update(fault_at=timezone.now() - timedelta(minutes=1))
    Operation.objects.filter(pk=drill.operation_id).update(state=OperationState.FAILED)
    drill_faults_end(cluster, crashing)
    drill.refresh_from_db()
    assert drill.fault_ended_at is not None
    assert not [call for call in crashing.calls if call.startswith("kill")]


def test_the_command_line_says_what_would_happen_until_it_is_confirmed(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover_drill, "get_driver", lambda: crashing)
    monkeypatch.setattr(time, "sleep", lambda seconds: run(Drill.objects.get(), crashing))
    out = StringIO()
    call_command("failover_drill", "acme", "pair", "broker-a", "--fault", "hang", stdout=out)
    assert "The process of replica 0 is suspended" in out.getvalue()
    assert not Drill.objects.exists()
    call_command("failover_drill", "acme", "pair", "broker-a", "--confirm", "broker-a", stdout=out)
    assert "Passed: Writes were accepted again after 2.05 s" in out.getvalue()
    group[0].answers = False
    with pytest.raises(CommandError, match="A drill needs a healthy group"):
        call_command("failover_drill", "acme", "pair", "broker-a", stdout=out)


def test_the_leadership_is_given_back_by_a_switchover_of_the_same_operation(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing, gives_back=True)
    operation = run(drill, crashing)
    assert operation.state == OperationState.COMPLETED, operation.error
    kinds = list(Failover.objects.filter(operation=operation).order_by("created_at").values_list("kind", flat=True))
    assert kinds == ["drill", "switchover"]
    assert group[0].leads


def test_a_drill_needs_the_groups_name(cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver) -> None:
    with pytest.raises(ConfirmationNeeded):
        start(cluster, crashing, confirm="")
    with pytest.raises(InvalidInput):
        start(cluster, crashing, confirm="broker-b")
    assert not Drill.objects.exists()


def test_a_drill_does_not_begin_while_a_replica_is_not_in_sync(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    group[1].end_offset -= 100
    with pytest.raises(NotPossible, match="A drill needs a healthy group") as refused:
        start(cluster, crashing)
    with override("zh-hans"):
        assert "drill" not in in_words(refused.value.message), "the refusal is in the reader's language, too"


def test_asynchronous_replication_promises_too_little_for_a_drill(world: World, crashing: CrashingDriver) -> None:
    cluster = make_replicated(world.acme, "lossy", "async")
    row = BrokerGroup.objects.get(cluster=cluster, name="broker-a")
    with ScriptedGroup.of(cluster).answering():
        plan = drill_preview(cluster=cluster, group=row, driver=crashing)
    wanted = "A promotion would not be clean: what the old master acknowledged may be lost"
    assert [problem.partition(";")[0] for problem in plan.problems] == [wanted]


def test_the_preview_names_another_operation(cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver) -> None:
    start(cluster, crashing)
    row = BrokerGroup.objects.get(cluster=cluster, name="broker-a")
    plan = drill_preview(cluster=cluster, group=row, driver=crashing)
    assert plan.problems[0].startswith("Another operation on this cluster is in progress: “Failover drill”")


def test_nothing_is_stopped_when_the_group_is_unwell_by_the_time_the_drill_begins(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing)
    group[1].answers = False
    operation = run(drill, crashing)
    assert operation.state == OperationState.FAILED
    assert (operation.error or {})["cause"].startswith("Nothing was stopped.")
    assert not [call for call in crashing.calls if call.startswith(("pause", "kill"))]


def test_a_promotion_that_is_not_clean_any_more_is_not_done_and_the_leader_is_started_again(
    cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver
) -> None:
    drill = start(cluster, crashing)
    for step in drill.operation.steps.order_by("position")[:3]:
        while operation_step_run(step.pk, crashing) == Outcome.WAITING:
            OperationStep.objects.filter(pk=step.pk).update(not_before=None)
    group[1].damage = "its log is damaged"
    operation = run(drill, crashing)
    assert operation.state == OperationState.FAILED
    assert group.promotions == []
    assert not Replica.objects.filter(group__cluster=cluster, fenced=True).exists()
    assert [call for call in crashing.calls if call.startswith("start ")]
    assert drill.verdict == ""


def test_a_failed_drill_is_not_retried(cluster: Cluster, group: ScriptedGroup, crashing: CrashingDriver) -> None:
    drill = start(cluster, crashing)
    group[1].answers = False
    operation = run(drill, crashing)
    with pytest.raises(Conflict, match="is not retried"):
        operation_retry(actor=SYSTEM, operation=operation)
