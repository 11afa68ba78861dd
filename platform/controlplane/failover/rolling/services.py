"""Writes: a rolling restart or upgrade. Planned on a fresh look at every replica; the workers do it (steps.py)."""

from dataclasses import dataclass
from enum import StrEnum

from django.db import transaction

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, Operation, OperationType
from controlplane.clusters.operations import operation_start
from controlplane.clusters.remoting import require_running
from controlplane.common.audit import audit_event_record
from controlplane.common.sentences import say, say_all
from controlplane.failover.errors import NotPossible
from controlplane.failover.rolling.plan import PlannedRestart, planned, problem_of
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.processes import cluster_name_servers, cluster_replicas
from controlplane.provisioning.versions import cluster_versions
from controlplane.tenants.rules import actor_require


class Purpose(StrEnum):
    """Why the daemons are restarted."""

    RESTART = "restart"
    UPGRADE = "upgrade"


_TYPES = {Purpose.RESTART: OperationType.CLUSTER_RESTART, Purpose.UPGRADE: OperationType.CLUSTER_UPGRADE}


@dataclass(frozen=True, slots=True)
class RollingPlan:
    """What a restart would do, in order. `problems` stand against it now."""

    problems: tuple[str, ...]
    restarts: tuple[PlannedRestart, ...]

    @property
    def possible(self) -> bool:
        return not self.problems

    @property
    def stops_sends(self) -> bool:
        """Whether some group has no replica to spare: its sends stop, or are not confirmed, while one is restarted."""
        return any(restart.stops_sends for restart in self.restarts)


def rolling_plan(*, cluster: Cluster, driver: Driver, purpose: Purpose = Purpose.RESTART) -> RollingPlan:
    """Look at every replica now, and say what would be restarted, in which order. Raises Conflict unless it is running."""
    require_running(cluster)
    views = [view.placed() for view in cluster_sample(cluster, driver)]
    problems = [problem for view in views if (problem := problem_of(view)) is not None]
    if purpose is Purpose.UPGRADE and not any(one.is_outdated for one in cluster_versions(cluster)):
        problems.append(say("No daemon is known to run another version than the one that is installed."))
    addresses: dict[str, dict[int, str]] = {}
    for replica in cluster_replicas(cluster):
        if replica.port is not None:
            addresses.setdefault(replica.group.name, {})[replica.broker_id] = replica.address
    servers = [
        PlannedRestart(say("name server %(number)s", number=server.position + 1), server.address)
        for server in cluster_name_servers(cluster)
        if server.port is not None
    ]
    turns = [planned(view, addresses.get(view.name, {})) for view in views]
    last = [turn[-1:] for turn in turns]  # each group's leader, or only replica
    followers = [restart for turn in turns for restart in turn[:-1]]
    return RollingPlan(tuple(problems), (*servers, *followers, *(restart for turn in last for restart in turn)))


def rolling_start(*, actor: Actor, cluster: Cluster, driver: Driver, purpose: Purpose = Purpose.RESTART) -> Operation:
    """Start the operation that restarts every daemon, one after another.

    Raises NotPossible with the causes, Conflict when the cluster isn't running or another operation on it is in progress.
    """
    actor_require(actor, "cluster.restart", cluster.tenant)
    plan = rolling_plan(cluster=cluster, driver=driver, purpose=purpose)
    if plan.problems:
        raise NotPossible(say_all(say("Nothing was restarted."), *plan.problems))
    with transaction.atomic():
        operation = operation_start(
            actor=actor, cluster=cluster, operation_type=_TYPES[purpose], metadata={"purpose": purpose.value}
        )
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={"daemons": len(plan.restarts), "operation": str(operation.pk)},
        )
    return operation
