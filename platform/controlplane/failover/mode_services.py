"""Writes: another mode for a running cluster. Planned on a fresh look at every replica; the workers do it (mode_steps.py)."""

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, Operation, OperationType
from controlplane.clusters.operations import operation_start
from controlplane.clusters.remoting import require_running
from controlplane.common.audit import audit_event_record
from controlplane.failover.errors import NotPossible
from controlplane.failover.mode_plan import ModePlan, plan_mode
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import Driver
from controlplane.tenants.rules import actor_require


def mode_preview(*, cluster: Cluster, mode: str, driver: Driver) -> ModePlan:
    """Look at every replica now, and say what the change would do. Raises Conflict unless the cluster is running."""
    require_running(cluster)
    return plan_mode(cluster.mode, mode, cluster_sample(cluster, driver), timezone.now())


def mode_change_start(*, actor: Actor, cluster: Cluster, mode: str, driver: Driver) -> Operation:
    """Start the operation that changes the mode of every group.

    Raises NotPossible with the causes, Conflict when the cluster isn't running or another operation on it is in progress.
    """
    actor_require(actor, "cluster.grow", cluster.tenant)
    plan = mode_preview(cluster=cluster, mode=mode, driver=driver)
    if plan.problems:
        raise NotPossible(" ".join(plan.problems))
    details = {"from": plan.mode_before, "to": plan.mode_after}
    with transaction.atomic():
        operation = operation_start(
            actor=actor, cluster=cluster, operation_type=OperationType.CLUSTER_MODE, metadata=details
        )
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details=details,
        )
    return operation
