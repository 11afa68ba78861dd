"""What an operator may ask of a group that elects its leader, and what each step of that does and stops. Pure.

A replica that is asked to lead, or to count, must have caught up; and at each step a majority of those that count then must
be there: a change that no one can confirm would stop the group.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from controlplane.clusters.sizes import VOTERS
from controlplane.common.sentences import from_sdk, say, say_all
from controlplane.failover.membership.verdict import Electorate, electorate_of, keeps_up
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, standing_of
from controlplane.failover.words import replica_names
from highwater.promotion import Recovery, judge_recovery

NOTHING = say("Nothing.")


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
            problems = [say("No other voter has caught up yet. Wait until one has.")]
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
        problems = [say("Replica %(replica_id)s is not a voter of %(group)s.", replica_id=replica_id, group=view.name)]
    moves = leader is not None and replica_id not in (None, leader.replica_id)
    steps = (
        PlannedStep(say("Look at every replica"), say("Finds the leader, and whether a majority is there.")),
        PlannedStep(
            say("Write the preferred leader into the log"),
            say_all(
                say("The leader appends a record, and a majority confirms it."),
                say("From then on no replica is preferred. The current leader stays.")
                if replica_id is None
                else say(
                    "From then on the leadership moves to replica %(replica_id)s whenever it is in sync and"
                    " another has led for five seconds.",
                    replica_id=replica_id,
                ),
            ),
            say("Sends, for a moment, when the leadership moves to replica %(replica_id)s.", replica_id=replica_id)
            if moves
            else NOTHING,
        ),
        PlannedStep(
            say("Write the configuration"), say("preferredLeaderId in each broker.conf. No broker is restarted.")
        ),
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
        problems = [say("There is no replica %(replica_id)s in %(group)s.", replica_id=replica_id, group=view.name)]
    elif leader is not None and leader.replica_id == replica_id:
        problems.append(
            say("Replica %(replica_id)s is the leader. Transfer the leadership first.", replica_id=replica_id)
        )
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


def is_assigned_again(view: GroupView, replica_id: int) -> bool:
    """Return whether a recovery with this replica is a promotion: a change into or out of dledger hangs, and it does not elect."""
    replica = view.replica(replica_id)
    return view.elections_in_doubt and replica is not None and replica.answers and replica.quorum is None


def recovery_of(view: GroupView, replica_id: int) -> Recovery:
    """Return whether the group may go on without the voters that do not answer, led by this replica, and what that costs.

    Where a change of the mode hangs and this replica does not elect, each of the group may: all are voters.
    """
    answers = {one.replica_id: one for replica in view.replicas if (one := standing_of(replica)) is not None}
    return judge_recovery(_voters_of(view, replica_id), answers, replica_id)


def refusal_without(view: GroupView, lost: Collection[int]) -> str | None:
    """Return why no one may be promoted even when these have been given up: they can elect no one then."""
    left = [replica for replica in view.replicas if replica.replica_id not in lost]
    return promotion_refusal(replace(view, replicas=left))


def _voters_of(view: GroupView, replica_id: int) -> tuple[int, ...]:
    if is_assigned_again(view, replica_id):
        return tuple(sorted(replica.replica_id for replica in view.replicas))
    return electorate_of(view).voters


def plan_recover(view: GroupView, replica_id: int, now: datetime) -> QuorumPlan:
    """Have the group go on with the voters that are left, led by `replica_id`: a majority of its disks is gone for good."""
    leader, voters = view.master, _voters_of(view, replica_id)
    recovery = recovery_of(view, replica_id)
    problems = [] if recovery.problem is None else [from_sdk(recovery.problem)]
    is_assigned = is_assigned_again(view, replica_id)
    may_elect = promotion_refusal(view) is not None if is_assigned else view.elects or view.elections_in_doubt
    if not may_elect:
        problems = [say("%(group)s does not elect its leader. Promote a replica instead.", group=view.name)]
    elif leader is not None and leader.accepts_sends is not False:
        problems = [
            say(
                "Replica %(replica_id)s is the leader and takes sends. There is nothing to recover.",
                replica_id=leader.replica_id,
            )
        ]
    elif is_assigned and not problems and (refusal := refusal_without(view, recovery.lost)) is not None:
        problems = [refusal]
    lost, left = replica_names(recovery.lost), replica_names(recovery.survivors)
    steps = (
        PlannedStep(
            say("Stop the lost replicas for good"),
            say("Stops the process of %(lost)s, and confirms that it has ended.", lost=lost),
        ),
        PlannedStep(
            say("Lead with the replicas that are left"),
            say(
                "Replica %(replica_id)s begins an epoch above all others. Ask for a mode with several replicas afterwards.",
                replica_id=replica_id,
            )
            if is_assigned
            else say(
                "Replica %(replica_id)s begins an epoch above all others, in which only %(left)s counts."
                " Sends are taken again.",
                replica_id=replica_id,
                left=left,
            ),
        ),
        PlannedStep(
            say("Forget the lost replicas"),
            say("Deletes what is left on the disks of %(lost)s, and frees the ports.", lost=lost),
        ),
        PlannedStep(say("Write the configuration"), say("dLegerPeers in each broker.conf. No broker is restarted.")),
    )
    return QuorumPlan(
        group=view.name,
        kind=ChangeKind.RECOVER,
        looked_at=now,
        problems=tuple(problems),
        leader_id=None if leader is None else leader.replica_id,
        target=replica_id,
        removing=() if problems else recovery.lost,
        voters_before=voters,
        voters_after=voters if problems else recovery.survivors,
        steps=() if problems else steps,
        loss="" if problems else from_sdk(recovery.loss),
    )


def plan_resize(
    view: GroupView,
    replicas: int,
    next_id: int,
    now: datetime,
    remove: Sequence[int] | None = None,
    *,
    given_up: Collection[int] = (),
) -> QuorumPlan:
    """Grow to, or shrink to, so many replicas. Without `remove` those go that would be missed least. Replicas that an operator has
    `given_up` are no part of a growth.
    """
    present = len(view.replicas)
    if replicas not in VOTERS:
        kind = ChangeKind.GROW if replicas > present else ChangeKind.SHRINK
        words = say(
            "A group that elects its leader has 3 or 5 replicas. An even number tolerates no more"
            " failures than one less."
        )
        return QuorumPlan(group=view.name, kind=kind, looked_at=now, problems=(words,))
    waiting = set(electorate_of(view).observers)
    if replicas < present:
        return _plan_shrink(view, present - replicas, now, remove)
    if replicas == present and not waiting:
        words = say("%(group)s already has %(present)s replicas.", group=view.name, present=present)
        return QuorumPlan(group=view.name, kind=ChangeKind.GROW, looked_at=now, problems=(words,))
    adding = [*sorted(waiting), *range(next_id, next_id + replicas - present)]
    plan = _plan_grow(view, adding, now)
    if lost := sorted(waiting.intersection(given_up)):
        words = say(
            "An operator gave up %(names)s for good, and with its old disk such a replica could lead a group of its own. Retry"
            " that recovery, or replace each one.",
            names=replica_names(lost),
        )
        plan = replace(plan, problems=(words,), steps=())
    return plan


def successor(view: GroupView, electorate: Electorate, leaving: Sequence[int]) -> int | None:
    """Who takes over best: the preferred leader, else the lowest id; a voter that is in sync, and stays. None: no one."""
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
        problems = [say("There is no replica %(unknown)s in %(group)s.", unknown=unknown[0], group=view.name)]
    elif len(removing) != count:
        problems = [say("Name %(count)s replicas to remove, or none to have them chosen.", count=count)]
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
            problems = [
                say("The leader would be removed, and no remaining voter has caught up yet. Wait until one has.")
            ]
    alive = any(_is_there(view, replica_id) for replica_id in removing)
    aside: tuple[PlannedStep, ...] = ()
    if leader is not None and target is not None:
        aside = (_transfer_steps(leader, target)[1],)
    look = PlannedStep(
        say("Look at every replica"), say("Finds the leader, and whether a majority is there at each step.")
    )
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
        return [
            say(
                "%(group)s does not elect its leader. Promote a replica, or switch the master, instead.",
                group=view.name,
            )
        ]
    leader = view.master
    if leader is None:
        return [
            say(
                "%(group)s has no leader right now, and only a leader can make changes. See the role map.",
                group=view.name,
            )
        ]
    if leader.accepts_sends is False:
        return [
            say(
                "Replica %(replica_id)s is the leader, but can't confirm anything: %(refusal)s.",
                replica_id=leader.replica_id,
                refusal=leader.refusal or say("it gives no reason"),
            )
        ]
    if electorate.transferring_to is not None:
        return [
            say(
                "The leadership is moving to replica %(transferring_to)s. Try again in a moment.",
                transferring_to=electorate.transferring_to,
            )
        ]
    return []


def _target_problems(view: GroupView, electorate: Electorate, target: int) -> list[str]:
    replica, name = view.replica(target), say("Replica %(target)s", target=target)
    if replica is None:
        return [say("There is no replica %(target)s in %(group)s.", target=target, group=view.name)]
    if replica is view.master:
        return [say("%(name)s is already the leader.", name=name)]
    if target not in electorate.voters:
        return [say("%(name)s is an observer. Only a voter can lead.", name=name)]
    if not replica.answers:
        return [say("%(name)s does not answer.", name=name)]
    if replica.quorum is not None and replica.quorum.not_electable_because:
        return [
            say(
                "%(name)s can't lead: %(not_electable_because)s.",
                name=name,
                not_electable_because=replica.quorum.not_electable_because,
            )
        ]
    if not keeps_up(replica):
        return [say("%(name)s has not caught up yet. Wait until it has.", name=name)]
    return []


def _majority_problems(view: GroupView, voters: set[int], *, new: set[int]) -> list[str]:
    there = [replica_id for replica_id in voters if replica_id in new or _is_there(view, replica_id)]
    needed = len(voters) // 2 + 1
    if len(there) >= needed:
        return []
    return [
        say(
            "During this change %(needed)s of %(voters)s voters would have to confirm each record, but only %(there)s answer."
            " Bring a replica back first.",
            needed=needed,
            voters=len(voters),
            there=len(there),
        )
    ]


def _is_there(view: GroupView, replica_id: int) -> bool:
    replica = view.replica(replica_id)
    return replica is not None and replica.answers


def _transfer_steps(leader: ReplicaView, target: int) -> tuple[PlannedStep, ...]:
    return (
        PlannedStep(
            say("Look at every replica"),
            say("Checks again that replica %(target)s is a voter, answers and has caught up.", target=target),
        ),
        PlannedStep(
            say("Hand the leadership over"),
            say(
                "Replica %(leader)s refuses sends until replica %(target)s has caught up. Then replica %(target)s campaigns in"
                " an epoch above %(epoch)s. If that fails, replica %(leader)s resumes.",
                leader=leader.replica_id,
                target=target,
                epoch=leader.epoch,
            ),
            say(
                "Sends, meanwhile: clients retry by themselves, and the timeline shows how long it took."
                " Reads continue. No acknowledged message is lost."
            ),
        ),
        PlannedStep(say("Verify the first write"), say("Replica %(target)s stores a test message.", target=target)),
    )


def _adding_steps(adding: Sequence[int], voters: int) -> tuple[PlannedStep, ...]:
    names = replica_names(adding)
    grown = voters + len(adding)
    return (
        PlannedStep(
            say("Look at every replica"), say("Finds the leader, and whether a majority is there at each step.")
        ),
        PlannedStep(
            say("Start"), say("Gives %(names)s ports, a configuration and an empty store, and starts it.", names=names)
        ),
        PlannedStep(
            say("Observe"),
            say("The leader lets %(names)s fetch the log: reads are served, without a vote yet.", names=names),
        ),
        PlannedStep(
            say("Catch up"),
            say(
                "Waits for %(names)s to catch up. Duration depends on the size of the log, the disks and the network.",
                names=names,
            ),
        ),
        PlannedStep(
            say("Promote to voter"),
            say(
                "Writes one record for each to the log. Then %(majority)s of %(voters)s voters confirm each send.",
                majority=grown // 2 + 1,
                voters=grown,
            ),
        ),
    )


def _removing_steps(removing: Sequence[int], voters_after: int, *, alive: bool) -> tuple[PlannedStep, ...]:
    names = replica_names(removing)
    return (
        PlannedStep(
            say("Take the vote"),
            say(
                "Writes one record for each to the log: no vote for %(names)s any more. Then %(majority)s of %(voters)s voters"
                " confirm each send.",
                names=names,
                majority=voters_after // 2 + 1,
                voters=voters_after,
            ),
        ),
        PlannedStep(
            say("Stop and forget"),
            say("Stops %(names)s and frees the ports and the disk space.", names=names),
            say("Reads from %(names)s. Consumers move to another replica.", names=names) if alive else NOTHING,
        ),
        PlannedStep(say("Write the configuration"), say("dLegerPeers in each broker.conf. No broker is restarted.")),
    )
