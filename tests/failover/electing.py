"""Changes of groups that elect their leader, in the test's own process, step by step."""

from __future__ import annotations

from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, OperationStep, StepState
from controlplane.failover.membership.services import QuorumChange, quorum_change_start
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.processes import cluster_replicas, replica_process_name
from controlplane.provisioning.runner import operation_step_run
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM

_LOOKS = 6


def begin(cluster: Cluster, driver: DriverTwin, change: QuorumChange, confirm: str = "") -> Operation:
    group = BrokerGroup.objects.get(cluster=cluster, name="broker-a")
    return quorum_change_start(
        actor=SYSTEM, cluster=cluster, group=group, change=change, driver=driver, confirm=confirm
    )


def run_step(operation: Operation, driver: DriverTwin, name: str) -> str:
    """Run one step once, whatever it waits for; returns its state."""
    step = operation.steps.get(name=name)
    OperationStep.objects.filter(pk=step.pk).update(not_before=None)
    operation_step_run(step.pk, driver)
    step.refresh_from_db()
    return str(step.state)


def run_all(operation: Operation, driver: DriverTwin) -> Operation:
    """Run every step, looking again at those that wait; stops at one that goes on waiting or fails."""
    for step in operation.steps.exclude(state=StepState.COMPLETED).order_by("position"):
        for _ in range(_LOOKS):
            state = run_step(operation, driver, step.name)
            if state in (StepState.COMPLETED, StepState.FAILED):
                break
        if state != StepState.COMPLETED:
            break
    return Operation.objects.get(pk=operation.pk)


def completed(operation: Operation) -> bool:
    return Operation.objects.get(pk=operation.pk).state == OperationState.COMPLETED


def all_running(cluster: Cluster, driver: DriverTwin) -> None:
    """Every process of the cluster's replicas runs."""
    for replica in cluster_replicas(cluster):
        driver.states[replica_process_name(cluster, replica)] = ProcessState.RUNNING
