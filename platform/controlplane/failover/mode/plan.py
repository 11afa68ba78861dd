"""Another mode for a running cluster, in place: what each step would change and stop. Pure.

single (or multi, with several groups) <-> async <-> sync <-> dledger: who wants to go further passes through those between.
On the way up replicas are added before anything else, to groups whose leader is assigned; on the way down to a group of one
they go after asynchronous replication, where no one waits for them. Each group's leader writes a record for each mode,
which the old one confirms; no byte is moved, and no broker is restarted. Source: replication.md, "Mode change".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.clusters.models import ClusterMode, FlushType
from controlplane.clusters.sizes import GROUPS_MAX, REPLICAS_MAX, VOTERS
from controlplane.common.sentences import say, say_all, say_count
from controlplane.failover.membership.plan import PlannedStep
from controlplane.failover.membership.verdict import keeps_up
from controlplane.failover.mode_changes import ALONE, broker_mode, mode_path
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.words import listed

_DOES: dict[tuple[str, str], str] = {
    (
        ClusterMode.SINGLE,
        ClusterMode.ASYNC,
    ): say(
        "The new replicas are slaves: they hold what the master holds, a moment later, and can"
        " be read from and promoted. No send waits for them."
    ),
    (
        ClusterMode.ASYNC,
        ClusterMode.SINGLE,
    ): say(
        "From now on the master alone holds the messages: while it is down nothing is sent or"
        " read, and what is on its disk is lost with its disk."
    ),
    (
        ClusterMode.ASYNC,
        ClusterMode.SYNC,
    ): say("From now on SEND_OK means that a slave holds the message, too: each send waits for the fastest slave."),
    (
        ClusterMode.SYNC,
        ClusterMode.ASYNC,
    ): say("From now on no send waits for a slave: promoting one may lose the last moment."),
    (ClusterMode.SYNC, ClusterMode.DLEDGER): say(
        "From now on a majority confirms each send, and the replicas elect their leader: no one"
        " is promoted any more. The present master leads on."
    ),
    (
        ClusterMode.DLEDGER,
        ClusterMode.SYNC,
    ): say(
        "From now on no leader is elected: the present leader leads on, and when it dies, sends"
        " stop until an operator promotes a slave."
    ),
}


_IN_MEMORY = say(
    "The flush type stays ASYNC_FLUSH: what a majority has in memory counts, whether it is on their disks or not."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePlan:
    """What would happen. `problems` forbid it, each with the way out; `path` are the modes after the present one.

    `replicas_…` are per group; `adding` and `removing` are replica ids by group.
    """

    mode_before: str
    mode_after: str
    looked_at: datetime
    replicas_before: int = 1
    replicas_after: int = 1
    problems: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    adding: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: tuple[PlannedStep, ...] = ()

    @property
    def possible(self) -> bool:
        return not self.problems

    @property
    def costs_safety(self) -> bool:
        """Whether fewer replicas hold each message afterwards."""
        return bool(self.removing)


def replicas_allowed(mode: str) -> tuple[int, ...]:
    """Return how many replicas a group of the mode may have."""
    if mode in ALONE:
        return (1,)
    return VOTERS if mode == ClusterMode.DLEDGER else tuple(range(2, REPLICAS_MAX + 1))


def replicas_usual(mode: str, present: int) -> int:
    """Return how many replicas a group should have in the mode when no one says so: no fewer than now, as far as it allows."""
    allowed = replicas_allowed(mode)
    return next((count for count in allowed if count >= present), allowed[-1])


def plan_mode(
    present: str,
    wanted: str,
    views: Sequence[GroupView],
    now: datetime,
    *,
    replicas: int | None = None,
    next_ids: Mapping[str, int] | None = None,
    flush_disk_type: str = FlushType.SYNC_FLUSH,
    hanging: str | None = None,
) -> ModePlan:
    """Plan the change of all groups of a cluster. `next_ids` is the first replica id of each group that is not used yet.

    `hanging` is the mode that was asked for last, or the one before it, if that change hangs: leaders may act by it, so the way
    back to the present one begins there.
    """
    if hanging is not None and present == wanted:
        present = hanging
    before = max((len(view.replicas) for view in views), default=1)
    after = replicas_usual(wanted, before) if replicas is None else replicas
    path = mode_path(present, wanted)
    removing = {
        view.name: _least_missed(view, len(view.replicas) - after) for view in views if len(view.replicas) > after
    }
    adding = {
        view.name: tuple(range(first, first + after - len(view.replicas)))
        for view in views
        if len(view.replicas) < after
        for first in [_next_id(view, next_ids)]
    }
    problems = _problems(present, wanted, after, path, views, removing)
    return ModePlan(
        mode_before=present,
        mode_after=wanted,
        looked_at=now,
        replicas_before=before,
        replicas_after=after,
        problems=tuple(problems),
        path=path if not problems else (),
        adding={} if problems else adding,
        removing={} if problems else removing,
        steps=() if problems else tuple(_steps(present, wanted, path, views, adding, removing, flush_disk_type)),
    )


def removed_before(wanted: str) -> bool:
    """Whether replicas go before the last change of the mode: a group that is to be alone must be so."""
    return wanted in ALONE


def _next_id(view: GroupView, next_ids: Mapping[str, int] | None) -> int:
    used = max((replica.replica_id + 1 for replica in view.replicas), default=0)
    return max(used, (next_ids or {}).get(view.name, 0))


def _least_missed(view: GroupView, count: int) -> tuple[int, ...]:
    """Who is away first, then the highest ids; never the leader."""
    leader = view.master

    def missed(replica: ReplicaView) -> tuple[bool, int]:
        return replica.answers, -replica.replica_id

    others = sorted((replica for replica in view.replicas if replica is not leader), key=missed)
    return tuple(sorted(replica.replica_id for replica in others[:count]))


def _steps(
    present: str,
    wanted: str,
    path: Sequence[str],
    views: Sequence[GroupView],
    adding: Mapping[str, Sequence[int]],
    removing: Mapping[str, Sequence[int]],
    flush_disk_type: str,
) -> list[PlannedStep]:
    names = _and([view.name for view in views])
    steps = [PlannedStep(say("Look at every replica"), say("Checks again that %(names)s can be changed.", names=names))]
    if adding:
        steps += _adding_steps(adding)
    elif _unfinished(views):
        steps.append(PlannedStep(say("Catch up"), say("Waits until every replica has caught up.")))
    before = present
    changes = []
    for mode in path:
        in_memory = mode == ClusterMode.DLEDGER and flush_disk_type == FlushType.ASYNC_FLUSH
        does = say_all(_DOES[broker_mode(before), broker_mode(mode)], _IN_MEMORY if in_memory else "")
        changes.append(PlannedStep(say("Change from %(before)s to %(mode)s", before=before, mode=mode), does))
        before = mode
    gone = [_removing_step(removing, waits=wanted == ClusterMode.SYNC)] if removing else []
    if removed_before(wanted):
        steps += [*changes[:-1], *gone, *changes[-1:]]
    else:
        steps += [*changes, *gone]
    if wanted == ClusterMode.DLEDGER:
        policy: str = say("Automatic promotion is switched off: the groups elect.")
    else:
        policy = say("There is no replica to promote any more.") if wanted in ALONE else ""
    words = say_all(say("Updates the cluster and each broker.conf. No broker restarts."), policy)
    return [*steps, PlannedStep(say("Record the new mode"), words)]


def _adding_steps(adding: Mapping[str, Sequence[int]]) -> list[PlannedStep]:
    names = _replicas_of(adding)
    count = sum(len(ids) for ids in adding.values())
    return [
        PlannedStep(
            say("Start the new replicas"),
            say_count(
                "Gives %(names)s ports, a configuration with the cluster’s keys and an empty store, and starts it. Clients"
                " need no change: the name servers keep their addresses.",
                "Gives %(names)s ports, a configuration with the cluster’s keys and an empty store, and starts them. Clients"
                " need no change: the name servers keep their addresses.",
                count,
                names=names,
            ),
        ),
        PlannedStep(
            say("Catch up"),
            say(
                "Each fetches its master’s log and tables while the master keeps serving. Duration"
                " depends on the size of the log, the disks and the network."
            ),
        ),
        PlannedStep(
            say("Update the running masters"),
            say(
                "Consumers may be sent to a slave (slaveReadEnable), and the leader serves one more"
                " port, so that clients find the next master at once (leaderListenPort). The present port"
                " goes on serving."
            ),
        ),
    ]


def _removing_step(removing: Mapping[str, Sequence[int]], *, waits: bool) -> PlannedStep:
    names = _replicas_of(removing)
    one = sum(len(ids) for ids in removing.values()) == 1
    stops: str = say("Reads from %(names)s. Consumers move to the master.", names=names)
    if waits:
        stops = say_all(stops, say("Sends pause while it stops.") if one else say("Sends pause while they stop."))
    return PlannedStep(
        say("Remove replicas"),
        say(
            "Stops %(names)s, has the others forget it, and deletes its copy of the messages. The leader keeps everything.",
            names=names,
        )
        if one
        else say(
            "Stops %(names)s, has the others forget them, and deletes their copies of the messages. The leader keeps"
            " everything.",
            names=names,
        ),
        stops,
    )


def _problems(
    present: str,
    wanted: str,
    after: int,
    path: Sequence[str],
    views: Sequence[GroupView],
    removing: Mapping[str, Sequence[int]],
) -> list[str]:
    groups = len(views)
    if wanted == ClusterMode.SINGLE and groups > 1:
        return [
            say(
                "A cluster of mode single has one broker group, and this one has %(groups)s. Change to multi instead: it keeps"
                " them, with one broker each.",
                groups=groups,
            )
        ]
    if wanted == ClusterMode.MULTI and groups < 2:
        first = say("change to async, then add a group") if present in ALONE else say("add a group")
        return [
            say(
                "Mode multi has 2 to %(most)s broker groups, and this cluster has one. First %(first)s (POST …/grow/), and"
                " change to multi last. With one group there is mode single.",
                most=GROUPS_MAX,
                first=first,
            )
        ]
    allowed = replicas_allowed(wanted)
    if after not in allowed:
        amount = f"{allowed[0]}"
        for count in allowed[1:]:
            amount = say("%(first)s or %(second)s", first=amount, second=count)
        return [
            say("A group of mode %(mode)s has 1 replica, not %(after)s.", mode=wanted, after=after)
            if allowed == (1,)
            else say(
                "A group of mode %(mode)s has %(amount)s replicas, not %(after)s.",
                mode=wanted,
                amount=amount,
                after=after,
            )
        ]
    if present == wanted and not any(len(view.replicas) != after for view in views):
        return [
            say_count(
                "The cluster is in mode %(mode)s already, with %(count)s replica in each group.",
                "The cluster is in mode %(mode)s already, with %(count)s replicas in each group.",
                after,
                mode=present,
            )
        ]
    problems = []
    for view in views:
        problems += _group_problems(present, wanted, after, view, removing.get(view.name, ()))
    return problems


def _group_problems(present: str, wanted: str, after: int, view: GroupView, removing: Sequence[int]) -> list[str]:
    count, resize = len(view.replicas), f"POST …/groups/{view.name}/resize/"
    if present == ClusterMode.DLEDGER and (count > REPLICAS_MAX or wanted == ClusterMode.DLEDGER):
        there = (
            ""
            if wanted == ClusterMode.DLEDGER
            else say("First shrink it to %(least)s, then change the mode.", least=VOTERS[0])
        )
        words = say(
            "%(group)s elects with %(count)s voters: their number is changed by %(resize)s.",
            group=view.name,
            count=count,
            resize=resize,
        )
        return [say_all(words, there)]
    if count < after and present == ClusterMode.DLEDGER:
        return [
            say(
                "%(group)s has %(count)s replicas: change the mode first, then add one (POST …/grow/).",
                group=view.name,
                count=count,
            )
        ]
    master = view.master
    if master is None:
        out = say("wait until its broker is back") if count == 1 else say("bring one back, or promote one, first")
        out = say("wait for its election") if present == ClusterMode.DLEDGER and not view.elections_in_doubt else out
        return [
            say(
                "%(group)s has no leader right now, and only a leader can make changes: %(out)s.",
                group=view.name,
                out=out,
            )
        ]
    if master.accepts_sends is False:
        return [
            say(
                "Replica %(replica_id)s of %(group)s refuses sends: %(refusal)s.",
                replica_id=master.replica_id,
                group=view.name,
                refusal=master.refusal or say("it gives no reason"),
            )
        ]
    # A replica that leaves need not have caught up; one that an unfinished change has left behind catches up by this one.
    unfinished = present in ALONE
    behind = [
        replica
        for replica in view.replicas
        if replica is not master and replica.replica_id not in removing and not unfinished and not keeps_up(replica)
    ]
    if not behind:
        return []
    first = behind[0]
    out = say("wait until it has caught up") if first.answers else say("it does not answer: bring it back")
    without = say(", or remove it by asking for fewer replicas") if present != ClusterMode.DLEDGER and count > 2 else ""
    return [
        say(
            "Replica %(replica_id)s of %(group)s has not caught up, and every replica must before the mode changes:"
            " %(out)s%(without)s.",
            replica_id=first.replica_id,
            group=view.name,
            out=out,
            without=without,
        )
    ]


def _unfinished(views: Sequence[GroupView]) -> bool:
    return any(not keeps_up(replica) for view in views for replica in view.replicas if replica is not view.master)


def _replicas_of(replicas: Mapping[str, Sequence[int]]) -> str:
    return _and(
        [
            say("%(replicas)s of %(group)s", replicas=_replicas([str(one) for one in ids]), group=group)
            for group, ids in sorted(replicas.items())
        ]
    )


def _replicas(ids: Sequence[str]) -> str:
    return say("replica %(ids)s", ids=_and(ids)) if len(ids) == 1 else say("replicas %(ids)s", ids=_and(ids))


def _and(words: Sequence[str]) -> str:
    if len(words) < 2:
        return words[0] if words else ""
    return say("%(first)s and %(second)s", first=listed(words[:-1], comma=True), second=words[-1])
