"""Changes of the mode that have begun: their ways, and on how many replicas a record is for certain meanwhile."""

from collections.abc import Sequence
from itertools import takewhile

from controlplane.clusters.models import (
    Cluster,
    ClusterMode,
    Operation,
    OperationState,
    OperationType,
    StepState,
    in_sync_replicas_of,
)
from controlplane.failover.mode_ladder import copies_for_certain, modes_on_the_way
from mqwire.mode import Mode

ALONE = (ClusterMode.SINGLE, ClusterMode.MULTI)


def broker_mode(mode: str) -> Mode:
    """Return the mode of each group of a cluster: a broker knows of its own group only."""
    return Mode.SINGLE if mode in ALONE else Mode(mode)


def mode_path(present: str, wanted: str) -> tuple[str, ...]:
    """Return the modes to go through, the wanted one last; empty when there is nothing to do."""
    path = modes_on_the_way(broker_mode(present), broker_mode(wanted))
    return (*path[:-1], wanted) if path else ()


def replicas_surely_holding(mode: str, hanging: Sequence[tuple[str, str]]) -> int:
    """Return on how many replicas of a group whose leader is assigned an acknowledged record is for certain.

    `hanging` are changes of the mode, (from, to), that are under way or failed in the middle: the leader may act by any mode
    on those ways already, so the weakest of them counts.
    """
    modes = (broker_mode(one) for one in (mode, *(one for change in hanging for one in mode_path(*change))))
    return copies_for_certain(modes, in_sync_replicas_of)


def mode_changes_hanging(cluster: Cluster) -> list[tuple[str, str]]:
    """Return (from, to) of each change of the mode that has begun since the last that was completed: one that is under way,
    and those that failed.
    """
    return [(change.metadata["from"], change.metadata["to"]) for change in _changes_hanging(cluster)]


def elections_in_doubt(cluster: Cluster) -> bool:
    """Whether a change into or out of dledger has asked a leader for it, and is not completed."""
    return any(
        ClusterMode.DLEDGER in (change.metadata["from"], change.metadata["to"]) and _has_asked(change)
        for change in _changes_hanging(cluster)
    )


def _changes_hanging(cluster: Cluster) -> list[Operation]:
    changes = Operation.objects.filter(cluster=cluster, type=OperationType.CLUSTER_MODE).order_by("-started_at")
    # One from a mode to itself changes the number of replicas alone: it settles nothing, and nothing of it can hang.
    of_modes = (one for one in changes.iterator(chunk_size=20) if one.metadata["from"] != one.metadata["to"])
    return list(takewhile(lambda change: not _is_settled(change), of_modes))


def _is_settled(change: Operation) -> bool:
    """Whether every replica acts by the new mode, and the cluster's row says so: what is left is to write files."""
    noted = change.steps.filter(name="mode_note", state=StepState.COMPLETED)
    return change.state == OperationState.COMPLETED or noted.exists()


def _has_asked(change: Operation) -> bool:
    """Whether a worker has ever begun the step that asks for dledger, or the first one after it. A retry counts on."""
    asks = ["mode_change"] if change.metadata["to"] == ClusterMode.DLEDGER else ["mode_pass", "mode_change"]
    return change.steps.filter(name__in=asks, attempts__gt=0).exists()
