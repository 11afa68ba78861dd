"""Replicas that an operator gave up for good: with its old disk one of them could lead a group of its own."""

import uuid

from controlplane.clusters.models import Cluster, Operation, OperationState, OperationType, Replica
from controlplane.clusters.operations import operation_metadata_change

_ASKED = "recovery_asked"


def recovery_asked_note(operation: Operation) -> None:
    """Write down that the chosen replica is asked to lead: before it is, for its answer may be lost."""
    if not operation.metadata.get(_ASKED):
        operation_metadata_change(operation, lambda metadata: metadata.update({_ASKED: True}))


def recovery_was_asked(operation: Operation) -> bool:
    """Whether the chosen replica of a recovery may lead."""
    return bool(operation.metadata.get(_ASKED))


def replicas_given_up(cluster: Cluster) -> set[uuid.UUID]:
    """Return the rows of those that no one may start: of recoveries that have asked another replica to lead. They end with the rows
    themselves: a retry removes them, and so does a replacement.
    """
    recoveries = Operation.objects.filter(cluster=cluster, type=OperationType.GROUP_RECOVER)
    given_up: set[uuid.UUID] = set()
    for recovery in recoveries.exclude(state=OperationState.COMPLETED):
        if recovery_was_asked(recovery):
            name, ids = recovery.metadata["group"], recovery.metadata["removing"]
            rows = Replica.objects.filter(group__cluster=cluster, group__name=name, broker_id__in=ids)
            given_up.update(rows.values_list("pk", flat=True))
    return given_up
