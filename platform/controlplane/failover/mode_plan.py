"""Another mode for a running cluster, in place: what each step would change and stop. Pure.

async <-> sync <-> dledger, one step at a time; whoever wants two passes through sync. Each group's leader writes a record,
which the old mode confirms; no byte is moved, and no broker is restarted. Source: replication.md, "Mode change".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.clusters.models import ClusterMode
from controlplane.clusters.services import REPLICAS_MAX, VOTERS
from controlplane.failover.quorum_plan import PlannedStep
from controlplane.failover.quorum_verdict import keeps_up
from controlplane.failover.verdict import GroupView

# In the order in which a group goes through them.
CHANGEABLE = (ClusterMode.ASYNC, ClusterMode.SYNC, ClusterMode.DLEDGER)

_DOES: dict[tuple[str, str], str] = {
    (
        ClusterMode.ASYNC,
        ClusterMode.SYNC,
    ): "From now on SEND_OK means that a slave holds the message, too: each send waits for the fastest slave.",
    (
        ClusterMode.SYNC,
        ClusterMode.ASYNC,
    ): "From now on no send waits for a slave: promoting one may lose the last moment.",
    (ClusterMode.SYNC, ClusterMode.DLEDGER): "From now on a majority confirms each send, and the replicas elect their"
    " leader: nobody promotes any more. The present master leads on.",
    (
        ClusterMode.DLEDGER,
        ClusterMode.SYNC,
    ): "From now on nobody is elected: the present leader leads on, and when it dies,"
    " sends stop until an operator promotes a slave.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePlan:
    """What would happen. `problems` forbid it; `path` are the modes behind the present one."""

    mode_before: str
    mode_after: str
    looked_at: datetime
    problems: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    steps: tuple[PlannedStep, ...] = ()

    @property
    def possible(self) -> bool:
        return not self.problems


def mode_path(present: str, wanted: str) -> tuple[str, ...]:
    """Return the modes to go through, the wanted one last; empty when there is no way or nothing to do."""
    if present not in CHANGEABLE or wanted not in CHANGEABLE:
        return ()
    begin, end = CHANGEABLE.index(ClusterMode(present)), CHANGEABLE.index(ClusterMode(wanted))
    return CHANGEABLE[begin + 1 : end + 1] if end > begin else tuple(reversed(CHANGEABLE[end:begin]))


def plan_mode(present: str, wanted: str, views: Sequence[GroupView], now: datetime) -> ModePlan:
    """Plan the change of all groups of a cluster."""
    path = mode_path(present, wanted)
    problems = _problems(present, wanted, path, views)
    steps: list[PlannedStep] = []
    if not problems:
        names = ", ".join(view.name for view in views)
        steps.append(PlannedStep("Look at every replica", f"Checks again that all replicas of {names} are level."))
        before = present
        for mode in path:
            steps.append(PlannedStep(f"Change from {before} to {mode}", _DOES[before, mode]))
            before = mode
        policy = ""
        if wanted == ClusterMode.DLEDGER:
            policy = " A policy that promotes by itself is given up: the groups decide."
        steps.append(
            PlannedStep(
                "Note the new mode", f"The cluster's page and each broker.conf tell it. No broker restarts.{policy}"
            )
        )
    return ModePlan(
        mode_before=present,
        mode_after=wanted,
        looked_at=now,
        problems=tuple(problems),
        path=path if not problems else (),
        steps=tuple(steps),
    )


def _problems(present: str, wanted: str, path: Sequence[str], views: Sequence[GroupView]) -> list[str]:
    if present == wanted:
        return [f"The cluster is in mode {present} already."]
    if not path:
        words = "Modes are changed between async, sync and dledger"
        return [f"{words}; from {present} to {wanted} there is no way in place."]
    problems = []
    for view in views:
        master = view.master
        if master is None:
            problems.append(f"No replica of {view.name} leads just now: only a leader can change anything.")
        elif master.accepts_sends is False:
            problems.append(f"Replica {master.replica_id} of {view.name} refuses sends: {master.refusal or 'no why'}.")
        elif behind := [
            replica.replica_id for replica in view.replicas if replica is not master and not keeps_up(replica)
        ]:
            problems.append(
                f"Replica {behind[0]} of {view.name} is not level: every one must be, before the mode changes."
            )
        count = len(view.replicas)
        if wanted == ClusterMode.DLEDGER and count not in VOTERS:
            problems.append(
                f"{view.name} has {count} replicas; groups that elect have 3 or 5: grow it by a replica first."
            )
        if wanted != ClusterMode.DLEDGER and count > REPLICAS_MAX:
            problems.append(
                f"{view.name} has {count} replicas; mode {wanted} has {REPLICAS_MAX} at most: shrink it first."
            )
    return problems
