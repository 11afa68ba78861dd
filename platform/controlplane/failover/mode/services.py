"""Writes: another mode for a running cluster. Planned on a fresh look at every replica; the workers do it (steps.py)."""

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.limits import limits_check
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationType, Replica
from controlplane.clusters.operations import operation_start
from controlplane.clusters.remoting import require_running
from controlplane.clusters.services import replica_id_next
from controlplane.common.audit import audit_event_record
from controlplane.common.sentences import say_all
from controlplane.failover.errors import NotPossible
from controlplane.failover.mode.order import change_steps
from controlplane.failover.mode.plan import ModePlan, plan_mode, removed_before
from controlplane.failover.mode_changes import ALONE, mode_changes_hanging
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import Driver
from controlplane.tenants.rules import actor_require


def mode_preview(*, cluster: Cluster, mode: str, driver: Driver, replicas: int | None = None) -> ModePlan:
    """Look at every replica now, and say what the change would do. Raises Conflict unless the cluster is running.

    `replicas` of each group; without it as many as now, as far as the mode allows.
    """
    require_running(cluster)
    next_ids = {group.name: replica_id_next(group) for group in BrokerGroup.objects.filter(cluster=cluster)}
    views = cluster_sample(cluster, driver)
    return plan_mode(
        cluster.mode,
        mode,
        views,
        timezone.now(),
        replicas=replicas,
        next_ids=next_ids,
        flush_disk_type=cluster.flush_disk_type,
        hanging=_hanging(cluster),
    )


def _hanging(cluster: Cluster) -> str | None:
    """Return by which mode leaders may act beside the cluster's own: the one that was asked for last, if that change hangs, or the
    one before it where the row has the new one already.
    """
    for before, asked_for in mode_changes_hanging(cluster)[:1]:
        return before if asked_for == cluster.mode else asked_for
    return None


def mode_change_start(
    *, actor: Actor, cluster: Cluster, mode: str, driver: Driver, replicas: int | None = None
) -> Operation:
    """Start the operation that changes the mode of every group, and the number of its replicas.

    Raises NotPossible with the causes, Conflict when the cluster isn't running or another operation on it is in progress.
    """
    actor_require(actor, "cluster.grow", cluster.tenant)
    plan = mode_preview(cluster=cluster, mode=mode, driver=driver, replicas=replicas)
    if plan.problems:
        raise NotPossible(say_all(*plan.problems))
    details = {
        "from": plan.mode_before,
        "to": plan.mode_after,
        "replicas": plan.replicas_after,
        "adding": {group: list(ids) for group, ids in plan.adding.items()},
        "removing": {group: list(ids) for group, ids in plan.removing.items()},
    }
    with transaction.atomic():
        operation = operation_start(
            actor=actor,
            cluster=cluster,
            operation_type=OperationType.CLUSTER_MODE,
            metadata=details,
            steps=_steps(plan),
        )
        for group in BrokerGroup.objects.filter(cluster=cluster, name__in=plan.adding):
            _rows_add(group, plan.adding[group.name])
        limits_check(cluster.tenant, more_brokers=-sum(map(len, plan.removing.values())))
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details=details,
        )
    return operation


def _steps(plan: ModePlan) -> set[str]:
    was_alone = plan.mode_before in ALONE
    return change_steps(
        modes=len(plan.path),
        adds=bool(plan.adding),
        removes=bool(plan.removing),
        leaves_alone=was_alone and plan.mode_after not in ALONE,
        becomes_alone=removed_before(plan.mode_after),
    )


def _rows_add(group: BrokerGroup, replica_ids: tuple[int, ...]) -> None:
    for replica_id in replica_ids:
        Replica.objects.get_or_create(
            group=group,
            broker_id=replica_id,
            defaults={"broker_role": "SLAVE", "host": settings.HIGHWATER_ADVERTISED_HOST},
        )
    used = max(group.replica_ids_used, max(replica_ids) + 1)
    BrokerGroup.objects.filter(pk=group.pk).update(replica_ids_used=used, updated_at=timezone.now())
