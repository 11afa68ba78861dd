"""Drills in the test's own process, step by step, with probes that are written by hand."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.utils import timezone

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationStep, StepState
from controlplane.failover.drill import steps
from controlplane.failover.drill.services import drill_start
from controlplane.failover.models import Drill, DrillFault
from controlplane.provisioning.runner import Outcome, operation_step_run
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM
from tests.failover.scripted_group import ScriptedGroup

if TYPE_CHECKING:
    import pytest


class CrashingDriver(DriverTwin):
    """A driver whose killed processes' replicas stop answering."""

    group: ScriptedGroup

    def process_pause(self, name: str) -> None:
        super().process_pause(name)
        self.group[int(name.rpartition("-")[2])].answers = False

    def process_kill(self, name: str) -> None:
        super().process_kill(name)
        self.group[int(name.rpartition("-")[2])].answers = False


def probe_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends are accepted but for two seconds from the fault on, and all that were acknowledged are found."""

    def started(drill: Drill) -> bool:
        now = timezone.now()
        # Since the fault comes within milliseconds, what follows it is written down already.
        rows = [[50 * n - 3000, 50 * n - 2995, 2] for n in range(60)] + [
            [2000 + 50 * n, 2005 + 50 * n, 2] for n in range(40)
        ]
        Drill.objects.filter(pk=drill.pk).update(
            prober=uuid.uuid4(), probing_started_at=now, probed_at=now, probing_ended_at=now, probes=rows
        )
        return True

    monkeypatch.setattr(steps, "prober_start", started)
    monkeypatch.setattr(steps, "_numbers_found", lambda context, drill: set(range(len(drill.probes))))


def start(
    cluster: Cluster,
    driver: DriverTwin,
    *,
    gives_back: bool = False,
    fault: DrillFault = DrillFault.KILL,
    confirm: str = "broker-a",
) -> Drill:
    group = BrokerGroup.objects.get(cluster=cluster, name="broker-a")
    return drill_start(
        actor=SYSTEM, cluster=cluster, group=group, driver=driver, gives_back=gives_back, fault=fault, confirm=confirm
    )


def run(drill: Drill, driver: CrashingDriver, *, twice: bool = False) -> Operation:
    """Run the steps; the old leader comes back when it is started. `twice` runs each again before it is completed."""
    for step in drill.operation.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        if step.name == "failover_rejoin":
            driver.group.back(drill.leader_id)
        outcome = Outcome.WAITING
        for _ in range(3):
            OperationStep.objects.filter(pk=step.pk).update(not_before=None)
            outcome = operation_step_run(step.pk, driver)
            if twice and outcome == Outcome.COMPLETED:
                twice_over = OperationStep.objects.filter(pk=step.pk)
                twice_over.update(state=StepState.PENDING)
                outcome = operation_step_run(step.pk, driver)
            if outcome != Outcome.WAITING:
                break
        if outcome != Outcome.COMPLETED:
            break
    drill.refresh_from_db()
    return Operation.objects.get(pk=drill.operation_id)
