"""Replicas that leave their group for good: stopped, forgotten by the others, and their room freed. Harmless to repeat."""

from collections.abc import Callable, Mapping, Sequence

from django.db import transaction

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, Replica
from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.processes import cluster_replicas, replica_process_name
from controlplane.provisioning.steps import StepContext

_STOPPED = (ProcessState.MISSING, ProcessState.STOPPED)


def removing_settled(context: StepContext, leaders: Mapping[str, int]) -> dict[str, list[int]]:
    """Return who goes, by group: as it was planned, but for who leads by now, in whose place another one goes.

    Written down before anything is removed, so that the worker that goes on removes the same ones, whichever replica leads then.
    """
    with transaction.atomic():
        operation = Operation.objects.select_for_update().get(pk=context.operation.pk)
        metadata = operation.metadata
        if not metadata.get("removal_begun"):
            removing = {
                group: _without_leader(context, group, ids, leaders[group])
                for group, ids in metadata["removing"].items()
            }
            metadata = {**metadata, "removing": removing, "removal_begun": True}
            Operation.objects.filter(pk=operation.pk).update(metadata=metadata, updated_at=context.now)
    settled: dict[str, list[int]] = metadata["removing"]
    return settled


def removal_end_noted(context: StepContext, row: Replica, end_offset: int) -> int:
    """Return where the leader's log ended when the replica that leaves was first seen stopped; written down the first time."""
    key = f"{row.group.name}/{row.broker_id}"
    with transaction.atomic():
        operation = Operation.objects.select_for_update().get(pk=context.operation.pk)
        ends: dict[str, int] = operation.metadata.get("removal_ends", {})
        if key not in ends:
            ends = {**ends, key: end_offset}
            metadata = {**operation.metadata, "removal_ends": ends}
            Operation.objects.filter(pk=operation.pk).update(metadata=metadata, updated_at=context.now)
    return ends[key]


def replica_remove(
    context: StepContext,
    row: Replica,
    have_forgotten: Callable[[Replica], None],
    require_level: Callable[[Replica], None] | None = None,
) -> None:
    """Stop one, have the others forget it, and free its port, its row and its room.

    Forgotten before its disk goes: until then it can be started again, and the group is as it was. `require_level` raises
    StepNotReady while those that stay lack what it may hold.
    """
    cluster = context.cluster
    replica_stop(context, row)
    have_forgotten(row)
    if require_level is not None:
        require_level(row)
    context.driver.folder_remove(cluster.id, f"{row.group.name}-{row.broker_id}")
    with transaction.atomic():
        PortLease.objects.filter(holder=row.pk).delete()
        BrokerGroup.objects.filter(pk=row.group_id, preferred_leader=row.broker_id).update(preferred_leader=None)
        Replica.objects.filter(pk=row.pk).delete()


def replica_stop(context: StepContext, row: Replica) -> None:
    """Stop one that leaves, and confirm that its process has ended; no one starts it while the operation runs."""
    with transaction.atomic():
        # The health sampling starts processes under this lock.
        Cluster.objects.select_for_update().get(pk=context.cluster.pk)
        Replica.objects.filter(pk=row.pk).update(fenced=True, updated_at=context.now)
    name = replica_process_name(context.cluster, row)
    context.driver.process_remove(name)
    state = context.driver.process_statuses([name])[name].state
    if state not in _STOPPED:
        raise StepNotReady(
            say(
                "The process of replica %(broker_id)s is %(state)s, not stopped yet.",
                broker_id=row.broker_id,
                state=state,
            )
        )


def forgotten_by(cluster: Cluster, gone: Replica, addresses: Sequence[str]) -> None:
    """Have replicas strike one off their lists, the first of them the leader, whose list the others follow. One that is away
    keeps it; raises StepNotReady when the leader is, or when one refuses.
    """
    for position, address in enumerate(addresses):
        answer = replica_remoting.replica_members(
            cluster, address, group=gone.group.name, change="forget", replica_id=gone.broker_id
        )
        if answer.refused or (answer.status is None and position == 0):
            raise StepNotReady(
                say("The replica at %(address)s answered: %(error)s", address=address, error=answer.error)
            )


def _without_leader(context: StepContext, group: str, ids: Sequence[int], leader: int) -> list[int]:
    if leader not in ids:
        return list(ids)
    rows = [row.broker_id for row in cluster_replicas(context.cluster) if row.group.name == group]
    instead = max(replica_id for replica_id in rows if replica_id not in ids)
    return sorted({*ids, instead} - {leader})
