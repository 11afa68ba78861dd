"""Replicas that leave their group for good, in the order of order.py: stopped, forgotten by the others, and their room freed.
Harmless to repeat.
"""

from collections.abc import Mapping, Sequence

from django.db import transaction

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, Replica
from controlplane.clusters.replica_answer import Answer
from controlplane.common.sentences import say
from controlplane.failover.membership.order import Forget, Free, StopForGood
from controlplane.provisioning.certificate_files import certificates_lock
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.models import PortLease
from controlplane.provisioning.processes import cluster_replicas, replica_process_name
from controlplane.provisioning.steps import StepContext, require_own_try

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


def removal_end_noted(context: StepContext, group: str, replica_id: int, end_offset: int) -> int:
    """Return where the leader's log ended when the replica that leaves was first seen stopped; written down the first time.

    By each try of the operation: after one that failed the replica is started again, and followers acknowledge what they take.
    """
    key = f"{group}/{replica_id}/{context.started_at.isoformat()}"
    with transaction.atomic():
        operation = Operation.objects.select_for_update().get(pk=context.operation.pk)
        ends: dict[str, int] = operation.metadata.get("removal_ends", {})
        if key not in ends:
            ends = {**ends, key: end_offset}
            metadata = {**operation.metadata, "removal_ends": ends}
            Operation.objects.filter(pk=operation.pk).update(metadata=metadata, updated_at=context.now)
    return ends[key]


def leaving_carried_out(context: StepContext, request: StopForGood | Forget | Free) -> Answer | None:
    """Do what an order asks for of one that leaves; nothing where another worker has freed it meanwhile."""
    cluster = context.cluster
    rows = {row.broker_id: row for row in cluster_replicas(cluster) if row.group.name == request.group}
    row = rows.get(request.replica_id)
    match request:
        case _ if row is None:
            return Answer(error="it is gone")
        case StopForGood():
            replica_stop(context, row)
        case Forget(group, replica_id, by_id):
            return replica_remoting.replica_members(
                cluster, rows[by_id].address, group=group, change="forget", replica_id=replica_id
            )
        case Free(group, replica_id):
            with transaction.atomic():
                # Under these locks others write certificates, and accounts and what the health sampling starts, for the rows
                # that are there: a folder that they wrote to in this moment would be there again, with its keys.
                certificates_lock(cluster)
                Cluster.objects.select_for_update().get(pk=cluster.pk)
                # A worker that stood still may come to this when the operation has ended, and the replica runs again: what it
                # has acknowledged since may be on no other disk.
                require_own_try(context)
                if not Replica.objects.filter(pk=row.pk, fenced=True).exists():
                    raise StepNotReady(
                        say("Replica %(replica_id)s of %(name)s was started again.", replica_id=replica_id, name=group)
                    )
                PortLease.objects.filter(holder=row.pk).delete()
                BrokerGroup.objects.filter(pk=row.group_id, preferred_leader=replica_id).update(preferred_leader=None)
                Replica.objects.filter(pk=row.pk).delete()
                context.driver.folder_remove(cluster.id, f"{group}-{replica_id}")
    return None


def replica_stop(context: StepContext, row: Replica) -> None:
    """Stop one that leaves, and confirm that its process has ended; no one starts it while the operation runs."""
    with transaction.atomic():
        # The health sampling starts processes under this lock.
        Cluster.objects.select_for_update().get(pk=context.cluster.pk)
        require_own_try(context)
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


def _without_leader(context: StepContext, group: str, ids: Sequence[int], leader: int) -> list[int]:
    if leader not in ids:
        return list(ids)
    rows = [row.broker_id for row in cluster_replicas(context.cluster) if row.group.name == group]
    instead = max(replica_id for replica_id in rows if replica_id not in ids)
    return sorted({*ids, instead} - {leader})
