"""The steps of a change of a cluster's mode. Every step may run twice, or from two workers, or again after its worker was
killed: what a replica's status says is in force is not asked for again.
"""

from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, ClusterMode, FailoverPolicy, in_sync_replicas_of
from controlplane.failover.mode_plan import mode_path
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.processes import cluster_replicas
from controlplane.provisioning.steps import Step, StepContext
from mqwire.bodies import ReplicaStatus

_TRY_AGAIN = "Look at the role map, and retry when every replica is level."


def mode_look(context: StepContext) -> None:
    """Wait until every group has a leader, and every replica answers."""
    for name, statuses in _statuses(context).items():
        _leader(name, statuses)


def mode_pass(context: StepContext) -> None:
    """Between asynchronous replication and DLedger every group is synchronous for a moment."""
    before, after = context.operation.metadata["from"], context.operation.metadata["to"]
    if len(mode_path(before, after)) == 2:
        _have_mode(context, ClusterMode.SYNC, done=after)


def mode_change(context: StepContext) -> None:
    """Have every group be in the wanted mode."""
    _have_mode(context, context.operation.metadata["to"], done="")


def mode_note(context: StepContext) -> None:
    """Write the new mode into the cluster's row, and learn the groups' epochs before anybody decrees one."""
    wanted = context.operation.metadata["to"]
    cluster = context.cluster
    values: dict[str, object] = {"mode": wanted, "founded_mode": cluster.mode_at_creation}
    if wanted == ClusterMode.DLEDGER:
        values["failover_policy"] = FailoverPolicy.MANUAL
    if cluster.mode != wanted:
        Cluster.objects.filter(pk=cluster.pk, mode=cluster.mode).update(**values, updated_at=timezone.now())
    cluster_sample(Cluster.objects.select_related("tenant").get(pk=cluster.pk), context.driver)


def _have_mode(context: StepContext, mode: str, *, done: str) -> None:
    """Ask the leaders of groups that are in neither mode; raises StepNotReady until every replica acts by one of them."""
    for name, statuses in _statuses(context).items():
        modes = {status.mode for status in statuses.values()}
        if modes <= {mode, done}:
            continue
        leader = _leader(name, statuses)
        if leader.pending_mode is None and leader.mode not in (mode, done):
            answer = replica_remoting.replica_mode(
                context.cluster,
                leader.address,
                group=name,
                mode=mode,
                in_sync_replicas=in_sync_replicas_of(mode),
            )
            if answer.refused and "one step at a time" in answer.error:
                raise StepFailed(f"{name}: {answer.error}", hint=_TRY_AGAIN)
            if answer.status is None:
                raise StepNotReady(f"Replica {leader.replica_id} of {name} answered: {answer.error}", delay_s=0.3)
        others = sorted(replica_id for replica_id, status in statuses.items() if status.mode not in (mode, done))
        names = " and ".join(str(replica_id) for replica_id in others)
        raise StepNotReady(f"In {name} replica {names} does not act by the mode {mode} yet.", delay_s=0.3)


def _statuses(context: StepContext) -> dict[str, dict[int, ReplicaStatus]]:
    """What every replica tells, by group; raises StepNotReady while one does not answer."""
    replicas = [replica for replica in cluster_replicas(context.cluster) if replica.port is not None]
    answers = replica_remoting.replica_statuses(context.cluster, [replica.address for replica in replicas])
    groups: dict[str, dict[int, ReplicaStatus]] = {}
    for replica in replicas:
        status = answers[replica.address].status
        if status is None:
            raise StepNotReady(f"Replica {replica.broker_id} of {replica.group.name} does not answer.", delay_s=1.0)
        groups.setdefault(replica.group.name, {})[replica.broker_id] = status
    return groups


def _leader(name: str, statuses: dict[int, ReplicaStatus]) -> ReplicaStatus:
    leading = [status for status in statuses.values() if status.role == "master"]
    if not leading:
        raise StepNotReady(f"No replica of {name} leads just now.")
    return max(leading, key=lambda status: status.epoch)


STEPS: dict[str, Step] = {step.__name__: step for step in (mode_look, mode_pass, mode_change, mode_note)}
