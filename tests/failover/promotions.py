"""Promotions in the test's own process, step by step."""

from __future__ import annotations

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationStep, StepState
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.promotion.services import failover_start
from controlplane.provisioning.runner import Outcome, operation_step_run
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM
from tests.failover.scripted_group import ScriptedGroup


def start(
    cluster: Cluster, driver: DriverTwin, kind: FailoverKind = FailoverKind.PROMOTE, confirm: str = ""
) -> Failover:
    return failover_start(
        actor=SYSTEM,
        cluster=cluster,
        group=BrokerGroup.objects.get(cluster=cluster, name="broker-a"),
        kind=kind,
        driver=driver,
        confirm=confirm,
    )


def operation_of(failover: Failover) -> Operation:
    """Its operation: each promotion by order has one."""
    assert failover.operation is not None
    return failover.operation


def lose(group: ScriptedGroup, replica_id: int = 0) -> None:
    group[replica_id].answers = False


def run(failover: Failover, driver: DriverTwin, group: ScriptedGroup | None = None) -> Operation:
    """Run steps until none can be claimed; the old master comes back when it is started."""
    operation = operation_of(failover)
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        if step.name == "failover_rejoin" and group is not None and failover.old_master_id is not None:
            group.back(failover.old_master_id)
        OperationStep.objects.filter(pk=step.pk).update(not_before=None)
        if operation_step_run(step.pk, driver) != Outcome.COMPLETED:
            break
    failover.refresh_from_db()
    operation.refresh_from_db()
    return operation


def names(failover: Failover) -> list[str]:
    return [step.name for step in failover.timeline.order_by("happened_at", "created_at")]
