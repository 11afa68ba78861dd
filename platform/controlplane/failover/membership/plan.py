"""What an operator may ask of a group that elects its leader, and what each step of that does and stops. Pure.

A replica that is asked to lead, or to count, must have caught up; and at each step a majority of those that count then must
be there: a change that no one can confirm would stop the group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.clusters.services import VOTERS
from controlplane.failover.membership.verdict import Electorate, electorate_of, keeps_up
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, standing_of
from highwater.promotion import Recovery, judge_recovery

NOTHING = "Nothing."


class ChangeKind(StrEnum):
    """What is asked for; `group.` in front of it is the operation's type."""

    TRANSFER = "transfer"
    PREFER = "prefer"
    REPLACE = "replace"
    GROW = "grow"
    SHRINK = "shrink"
    RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step in words: what it does, and what stands still meanwhile."""

    title: str
    does: str
    stops: str = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumPlan:
    """What would happen. `problems` forbid it. `target` is who is to lead, or, with PREFER, whom the group shall want;
    `adding` and `removing` are replica ids. `loss` is what is lost; it must be confirmed by typing the group's name.
    """

    group: str
    kind: ChangeKind
    looked_at: datetime
    problems: tuple[str, ...] = ()
    leader_id: int | None = None
    target: int | None = None
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    voters_before: tuple[int, ...] = ()
    voters_after: tuple[int, ...] = ()
    steps: tuple[PlannedStep, ...] = ()
    loss: str = ""

    @property
    def possible(self) -> bool:
        return not self.problems


def plan_transfer(view: GroupView, target: int | None, now: datetime) -> QuorumPlan:
    """Hand the leadership to `target`; to the best of the others when None."""
    electorate, leader = electorate_of(view), view.master
    problems = _group_problems(view, electorate)
    if not problems and target is None:
        target = successor(view, electorate, ())
        if target is None:
            problems = ["No other voter has caught up yet. Wait until one has."]
    if not problems and target is not None:
        problems = _target_problems(view, electorate, target)
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.TRANSFER,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        target=target,
        voters_before=electorate.voters,
        voters_after=electorate.voters,
        steps=() if problems or leader is None or target is None else _transfer_steps(leader, target),
    )


def plan_prefer(view: GroupView, replica_id: int | None, now: datetime) -> QuorumPlan:
    """Have the group want `replica_id` as its leader; None for no one in particular."""
    electorate, leader = electorate_of(view), view.master
    problems = _group_problems(view, electorate)
    if not problems and replica_id is not None and replica_id not in electorate.voters:
        problems = [f"Replica {replica_id} is not a voter of {view.name}."]
    moves = leader is not None and replica_id not in (None, leader.replica_id)
    steps = (
        PlannedStep("Look at every replica", "Finds the leader, and whether a majority is there."),
        PlannedStep(
            "Write the preferred leader into the log",
            "The leader appends a record, and a majority confirms it. "
            + (
                "From then on no replica is preferred. The current leader stays."
                if replica_id is None
                else f"From then on the leadership moves to replica {replica_id} whenever it is in sync and another"
                " has led for five seconds."
            ),
            f"Sends, for a moment, when the leadership moves to replica {replica_id}." if moves else NOTHING,
        ),
        PlannedStep("Write the configuration", "preferredLeaderId in each broker.conf. No broker is restarted."),
    )
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.PREFER,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        target=replica_id,
        voters_before=electorate.voters,
        voters_after=electorate.voters,
        steps=() if problems else steps,
    )


def plan_replace(view: GroupView, replica_id: int, new_id: int, now: datetime) -> QuorumPlan:
    """Put an empty replica, `new_id`, in the place of `replica_id`, which need not be alive."""
    electorate, leader = electorate_of(view), view.master
    problems = _group_problems(view, electorate)
    old = view.replica(replica_id)
    if old is None:
        problems = [f"There is no replica {replica_id} in {view.name}."]
    elif leader is not None and leader.replica_id == replica_id:
        problems.append(f"Replica {replica_id} is the leader. Transfer the leadership first.")
    after = tuple(sorted({*electorate.voters, new_id} - {replica_id}))
    if not problems:
        problems = _majority_problems(view, {*electorate.voters, new_id}, new={new_id})
    alive = old is not None and old.answers
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.REPLACE,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        adding=(new_id,),
        removing=(replica_id,),
        voters_before=electorate.voters,
        voters_after=after,
        steps=()
        if problems
        else (
            *_adding_steps((new_id,), len(electorate.voters)),
            *_removing_steps((replica_id,), len(after), alive=alive),
        ),
    )


def recovery_of(view: GroupView, replica_id: int) -> Recovery:
    """Return whether the group may go on without the voters that do not answer, led by this replica, and what that costs."""
    answers = {one.replica_id: one for replica in view.replicas if (one := standing_of(replica)) is not None}
    return judge_recovery(electorate_of(view).voters, answers, replica_id)


def plan_recover(view: GroupView, replica_id: int, now: datetime) -> QuorumPlan:
    """Have the group go on with the voters that are left, led by `replica_id`: a majority of its disks is gone for good."""
    electorate, leader = electorate_of(view), view.master
    recovery = recovery_of(view, replica_id)
    problems = [] if recovery.problem is None else [recovery.problem[0].upper() + recovery.problem[1:]]
    if not view.elects:
        problems = [f"{view.name} does not elect its leader. Promote a replica instead."]
    elif leader is not None and leader.accepts_sends is not False:
        problems = [f"Replica {leader.replica_id} is the leader and takes sends. There is nothing to recover."]
    lost, left = _names(recovery.lost), _names(recovery.survivors)
    steps = (
        PlannedStep("Stop the lost replicas for good", f"Stops the process of {lost}, and confirms that it has ended."),
        PlannedStep(
            "Lead with the replicas that are left",
            f"Replica {replica_id} begins an epoch above all others, in which only {left} counts. Sends are taken again.",
        ),
        PlannedStep("Forget the lost replicas", f"Deletes what is left on the disks of {lost}, and frees the ports."),
        PlannedStep("Write the configuration", "dLegerPeers in each broker.conf. No broker is restarted."),
    )
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.RECOVER,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        target=replica_id,
        removing=() if problems else recovery.lost,
        voters_before=electorate.voters,
        voters_after=electorate.voters if problems else recovery.survivors,
        steps=() if problems else steps,
        loss="" if problems else recovery.loss[0].upper() + recovery.loss[1:],
    )


def plan_resize(
    view: GroupView, replicas: int, next_id: int, now: datetime, remove: Sequence[int] | None = None
) -> QuorumPlan:
    """Grow to, or shrink to, so many replicas. Without `remove` those go that would be missed least."""
    present = len(view.replicas)
    if replicas not in VOTERS:
        kind = ChangeKind.GROW if replicas > present else ChangeKind.SHRINK
        words = "A group that elects its leader has 3 or 5 replicas. An even number tolerates no more failures than one less."
        return QuorumPlan(group=view.name, kind=kind, looked_at=now, problems=(words,))
    waiting = set(electorate_of(view).observers)
    if replicas < present:
        return _plan_shrink(view, present - replicas, now, remove)
    if replicas == present and not waiting:
        words = f"{view.name} already has {present} replicas."
        return QuorumPlan(group=view.name, kind=ChangeKind.GROW, looked_at=now, problems=(words,))
    return _plan_grow(view, [*sorted(waiting), *range(next_id, next_id + replicas - present)], now)


def successor(view: GroupView, electorate: Electorate, leaving: Sequence[int]) -> int | None:
    """Who takes over best: the preferred leader, else the lowest id; a voter that is level, and stays. None: no one."""
    able = [
        replica.replica_id
        for replica in view.replicas
        if replica.replica_id not in leaving and not _target_problems(view, electorate, replica.replica_id)
    ]
    return electorate.preferred_leader if electorate.preferred_leader in able else min(able, default=None)


def _plan_grow(view: GroupView, adding: Sequence[int], now: datetime) -> QuorumPlan:
    electorate, leader = electorate_of(view), view.master
    problems = _group_problems(view, electorate)
    voters = set(electorate.voters)
    for replica_id in adding:
        voters.add(replica_id)
        problems = problems or _majority_problems(view, voters, new=set(adding))
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.GROW,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        adding=tuple(adding),
        voters_before=electorate.voters,
        voters_after=tuple(sorted(voters)),
        steps=() if problems else _adding_steps(adding, len(electorate.voters)),
    )


def _plan_shrink(view: GroupView, count: int, now: datetime, remove: Sequence[int] | None) -> QuorumPlan:
    electorate, leader = electorate_of(view), view.master
    problems = _group_problems(view, electorate)
    leader_id = None if leader is None else leader.replica_id
    removing = _least_missed(view, electorate, count) if remove is None else sorted(set(remove))
    unknown = [replica_id for replica_id in removing if view.replica(replica_id) is None]
    if unknown:
        problems = [f"There is no replica {unknown[0]} in {view.name}."]
    elif len(removing) != count:
        problems = [f"Name {count} replicas to remove, or none to have them chosen."]
    # Who is away goes first: with each that leaves, a majority needs fewer.
    removing.sort(key=lambda replica_id: (_is_there(view, replica_id), replica_id))
    voters = set(electorate.voters)
    for replica_id in removing:
        voters.discard(replica_id)
        problems = problems or _majority_problems(view, voters, new=set())
    target = None
    if not problems and leader_id in removing:
        target = successor(view, electorate, removing)
        if target is None:
            problems = ["The leader would be removed, and no remaining voter has caught up yet. Wait until one has."]
    alive = any(_is_there(view, replica_id) for replica_id in removing)
    aside: tuple[PlannedStep, ...] = ()
    if leader is not None and target is not None:
        aside = (_transfer_steps(leader, target)[1],)
    look = PlannedStep("Look at every replica", "Finds the leader, and whether a majority is there at each step.")
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.SHRINK,
        looked_at=now,
        problems=tuple(problems),
        leader_id=leader_id,
        target=target,
        removing=tuple(removing),
        voters_before=electorate.voters,
        voters_after=tuple(sorted(voters)),
        steps=() if problems else (look, *aside, *_removing_steps(removing, len(voters), alive=alive)),
    )


def _least_missed(view: GroupView, electorate: Electorate, count: int) -> list[int]:
    """Those that are away first, then observers, then by the highest id; leader and preferred leader last."""
    leader = view.master

    def missed(replica: ReplicaView) -> tuple[bool, bool, bool, int]:
        return (
            replica is leader or replica.replica_id == electorate.preferred_leader,
            replica.answers,
            replica.replica_id in electorate.voters,
            -replica.replica_id,
        )

    return sorted(replica.replica_id for replica in sorted(view.replicas, key=missed)[:count])


def _group_problems(view: GroupView, electorate: Electorate) -> list[str]:
    """What forbids every change."""
    if not view.elects:
        return [f"{view.name} does not elect its leader. Promote a replica, or switch the master, instead."]
    leader = view.master
    if leader is None:
        return [f"{view.name} has no leader right now, and only a leader can make changes. See the role map."]
    if leader.accepts_sends is False:
        return [
            f"Replica {leader.replica_id} is the leader, but can't confirm anything: {leader.refusal or 'it gives no reason'}."
        ]
    if electorate.transferring_to is not None:
        return [f"The leadership is moving to replica {electorate.transferring_to}. Try again in a moment."]
    return []


def _target_problems(view: GroupView, electorate: Electorate, target: int) -> list[str]:
    replica, name = view.replica(target), f"Replica {target}"
    if replica is None:
        return [f"There is no replica {target} in {view.name}."]
    if replica is view.master:
        return [f"{name} is already the leader."]
    if target not in electorate.voters:
        return [f"{name} is an observer. Only a voter can lead."]
    if not replica.answers:
        return [f"{name} does not answer."]
    if replica.quorum is not None and replica.quorum.not_electable_because:
        return [f"{name} can't lead: {replica.quorum.not_electable_because}."]
    if not keeps_up(replica):
        return [f"{name} has not caught up yet. Wait until it has."]
    return []


def _majority_problems(view: GroupView, voters: set[int], *, new: set[int]) -> list[str]:
    there = [replica_id for replica_id in voters if replica_id in new or _is_there(view, replica_id)]
    needed = len(voters) // 2 + 1
    if len(there) >= needed:
        return []
    words = (
        f"During this change {needed} of {len(voters)} voters would have to confirm each record, but only {len(there)}"
    )
    return [f"{words} answer. Bring a replica back first."]


def _is_there(view: GroupView, replica_id: int) -> bool:
    replica = view.replica(replica_id)
    return replica is not None and replica.answers


def _transfer_steps(leader: ReplicaView, target: int) -> tuple[PlannedStep, ...]:
    return (
        PlannedStep(
            "Look at every replica", f"Checks again that replica {target} is a voter, answers and has caught up."
        ),
        PlannedStep(
            "Hand the leadership over",
            f"Replica {leader.replica_id} refuses sends until replica {target} has caught up. Then replica {target} campaigns"
            f" in an epoch above {leader.epoch}. If that fails, replica {leader.replica_id} resumes.",
            "Sends, meanwhile: clients retry by themselves, and the timeline shows how long it took. Reads continue. No"
            " acknowledged message is lost.",
        ),
        PlannedStep("Verify the first write", f"Replica {target} stores a test message."),
    )


def _adding_steps(adding: Sequence[int], voters: int) -> tuple[PlannedStep, ...]:
    names = _names(adding)
    grown = voters + len(adding)
    return (
        PlannedStep("Look at every replica", "Finds the leader, and whether a majority is there at each step."),
        PlannedStep("Start", f"Gives {names} ports, a configuration and an empty store, and starts it."),
        PlannedStep("Observe", f"The leader lets {names} fetch the log: reads are served, without a vote yet."),
        PlannedStep(
            "Catch up",
            f"Waits for {names} to catch up. Duration depends on the size of the log, the disks and the network.",
        ),
        PlannedStep(
            "Promote to voter",
            f"Writes one record for each to the log. Then {grown // 2 + 1} of {grown} voters confirm each send.",
        ),
    )


def _removing_steps(removing: Sequence[int], voters_after: int, *, alive: bool) -> tuple[PlannedStep, ...]:
    names = _names(removing)
    return (
        PlannedStep(
            "Take the vote",
            f"Writes one record for each to the log: no vote for {names} any more. Then {voters_after // 2 + 1} of"
            f" {voters_after} voters confirm each send.",
        ),
        PlannedStep(
            "Stop and forget",
            f"Stops {names} and frees the ports and the disk space.",
            f"Reads from {names}. Consumers move to another replica." if alive else NOTHING,
        ),
        PlannedStep("Write the configuration", "dLegerPeers in each broker.conf. No broker is restarted."),
    )


def _names(replica_ids: Sequence[int]) -> str:
    noun = "replica" if len(replica_ids) == 1 else "replicas"
    return f"{noun} {' and '.join(str(replica_id) for replica_id in replica_ids)}"
