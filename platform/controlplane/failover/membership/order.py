"""The order of a growth and of a removal in a group that elects its leader: whom to ask for what, and what comes next. Pure,
without Django's rows, sockets or a clock.

Each step is an order (../orders.py): the Celery steps (steps.py) carry its requests out by remoting, the simulation
(tests/sim/mode_operator.py) on its network. The group's log decides who counts and who leads; a step asks
the leader for one thing, unless that is so already, and looks until a majority has confirmed it.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.clusters.replica_answer import Answer
from controlplane.common.sentences import from_sdk, say
from controlplane.failover.membership.plan import refusal_without, successor
from controlplane.failover.membership.verdict import Electorate, electorate_of, keeps_up
from controlplane.failover.orders import Look, LookClosely, Pause, Result
from controlplane.failover.promotion.fencing import promises_given, replicas_to_fence, said_by_electors
from controlplane.failover.promotion.order import TRY_AGAIN, Fence, FenceAnswers, Promote
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, promotion_group
from controlplane.provisioning.errors import StepFailed, StepNotReady
from highwater.promotion import Ballot, Recovery, Standing, judge_recovery, lacks_an_epoch
from mqwire.bodies import ReplicaStatus

# A leader gives a transfer up after 1.5 s and goes on; an election of another takes three at most.
TRANSFER_S = 6.0
_TRANSFER_POLL_S = 0.02
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChangeMembers:
    """Ask the leader for one change of who counts: addObserver, addVoter, removeVoter or prefer. Answered by an Answer."""

    leader_id: int
    change: str
    replica_id: int | None


@dataclass(frozen=True, slots=True)
class Transfer:
    """Ask the leader to hand its role over. Answered by an Answer: begun, not done."""

    leader_id: int
    target_id: int


@dataclass(frozen=True, slots=True)
class StopForGood:
    """End the process of one that leaves, and let no one start it. Answered when it has surely ended."""

    group: str
    replica_id: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Have one replica strike the one that leaves off its list. Answered by an Answer."""

    group: str
    replica_id: int
    by_id: int


@dataclass(frozen=True, slots=True)
class Free:
    """Delete the disk, the row and the port of one that has left."""

    group: str
    replica_id: int


@dataclass(frozen=True, slots=True)
class NoteTarget:
    """Write down to whom the leader is about to hand its role over."""

    target_id: int


@dataclass(frozen=True, slots=True)
class NoteAsked:
    """Write down, before it is asked, that this replica may lead from now on, in the ballot's epoch."""

    replica_id: int
    ballot: Ballot


Request = (
    Look
    | LookClosely
    | Pause
    | ChangeMembers
    | Transfer
    | NoteTarget
    | StopForGood
    | Forget
    | Free
    | Fence
    | NoteAsked
    | Promote
)
Order = Generator[Request, Any, Result]


def look(*, sends: bool = True) -> Order[tuple[GroupView, ReplicaView, Electorate]]:
    """Return the group, its leader and who counts. Raises StepNotReady without a leader, and, with `sends`, while that one can
    confirm nothing.
    """
    view: GroupView = yield Look()
    leader = view.master
    if leader is None:
        raise StepNotReady(say("%(name)s has no leader right now.", name=view.name))
    if sends and leader.accepts_sends is False:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s leads, but can confirm nothing: %(refusal)s.",
                replica_id=leader.replica_id,
                refusal=leader.refusal,
            )
        )
    return view, leader, electorate_of(view)


def observe(adding: Collection[int]) -> Order[None]:
    """Name the new replicas to the leader, and wait until each pulls."""
    view, leader, electorate = yield from look()
    for replica_id in adding:
        if replica_id in electorate.voters:
            continue
        replica = view.replica(replica_id)
        if replica is None or replica.in_sync is None:
            yield from _changed(leader, "addObserver", replica_id)
            raise StepNotReady(say("Replica %(broker_id)s does not pull from the leader yet.", broker_id=replica_id))


def catch_up(adding: Collection[int]) -> Order[None]:
    """Wait until the new replicas hold what the leader holds."""
    view, _, electorate = yield from look()
    for replica_id in adding:
        replica = view.replica(replica_id)
        if replica_id in electorate.voters or (replica is not None and keeps_up(replica)):
            continue
        behind = None if replica is None else replica.gap_bytes
        words = (
            say("It does not pull just now.")
            if behind is None
            else say("It is %(behind)s MiB behind.", behind=f"{behind / _MEBIBYTE:.1f}")
        )
        raise StepNotReady(
            say("Replica %(broker_id)s has not caught up yet. %(words)s", broker_id=replica_id, words=words),
            delay_s=1.0,
        )


def make_voters(adding: Collection[int]) -> Order[None]:
    """Make the new replicas voters, one after the other: each change waits for the one before it."""
    _, leader, electorate = yield from look()
    require_confirmed(electorate)
    for replica_id in adding:
        if replica_id not in electorate.voters:
            yield from _changed(leader, "addVoter", replica_id)
            raise StepNotReady(
                say("A majority has not confirmed replica %(broker_id)s as a voter yet.", broker_id=replica_id),
                delay_s=0.2,
            )


def step_aside(removing: Sequence[int]) -> Order[None]:
    """If the leader is to go, have it hand its role to a voter that stays."""
    view, leader, electorate = yield from look()
    if leader.replica_id not in removing:
        return
    target_id = successor(view, electorate, removing)
    if target_id is None:
        raise StepNotReady(say("No remaining voter has caught up with the leader yet."), delay_s=1.0)
    yield NoteTarget(target_id)
    yield from asked_to_hand_over(leader, target_id)
    yield from handed_over(leader, target_id)
    yield from look(sends=False)


def take_votes(removing: Sequence[int]) -> Order[None]:
    """Take the votes of those that go, one after the other; the leader hands its role over first."""
    view, leader, electorate = yield from look()
    require_confirmed(electorate)
    for replica_id in removing:
        if replica_id not in electorate.voters:
            continue
        if replica_id == leader.replica_id:
            target_id = successor(view, electorate, removing)
            if target_id is None:
                raise StepNotReady(
                    say(
                        "Replica %(replica_id)s is the leader, and no remaining voter has caught up yet.",
                        replica_id=replica_id,
                    ),
                    delay_s=1.0,
                )
            yield from asked_to_hand_over(leader, target_id)
            yield from handed_over(leader, target_id)
            raise StepNotReady(say("Replica %(target)s leads now.", target=target_id), delay_s=0.2)
        yield from _changed(leader, "removeVoter", replica_id)
        raise StepNotReady(
            say("A majority has not confirmed that replica %(replica_id)s counts no more.", replica_id=replica_id),
            delay_s=0.2,
        )


def leave(removing: Collection[int]) -> Order[None]:
    """Stop those that count no more, have the others forget them, and free their room, one after the other."""
    for replica_id in removing:
        view, leader, _ = yield from look()
        yield StopForGood(view.name, replica_id)
        # A change of the mode into DLedger would wait for what one that is away keeps.
        others = [one.replica_id for one in view.replicas if one.replica_id not in removing]
        yield from forgotten(view.name, replica_id, leader.replica_id, others)
        yield Free(view.name, replica_id)


def forgotten(name: str, replica_id: int, leader_id: int, others: Iterable[int]) -> Generator[Forget, Answer, None]:
    """Have the others strike one off their lists, the leader first, whose list they follow. One that is away keeps it;
    StepNotReady when the leader is, or when one refuses.

    Before its disk goes: until then it can be started again, and the group is as it was.
    """
    for other_id in sorted(others, key=lambda one: one != leader_id):
        answer = yield Forget(name, replica_id, other_id)
        if answer.refused or (answer.status is None and other_id == leader_id):
            raise StepNotReady(
                say("Replica %(replica_id)s answered: %(error)s", replica_id=other_id, error=answer.error)
            )


def prefer(wanted_id: int | None) -> Order[None]:
    """Have it written into the log whom the group wants as its leader."""
    _, leader, electorate = yield from look()
    if electorate.preferred_leader != wanted_id:
        yield from _changed(leader, "prefer", wanted_id)
        raise StepNotReady(say("A majority has not confirmed it yet."), delay_s=0.2)
    require_confirmed(electorate)


def asked_to_hand_over(leader: ReplicaView, target_id: int) -> Order[None]:
    """Ask the leader for the transfer."""
    answer: Answer = yield Transfer(leader.replica_id, target_id)
    if answer.status is None:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s did not hand its role over: %(error)s",
                replica_id=leader.replica_id,
                error=answer.error,
            )
        )


def handed_over(leader: ReplicaView, target_id: int) -> Order[ReplicaStatus]:
    """Look closely until the target leads, and return what it says; StepNotReady when the leader goes on. It waits within
    itself: each moment of it is outage.
    """
    time_is_left = True
    while time_is_left:
        answers: Mapping[int, ReplicaStatus | None] = yield LookClosely((leader.replica_id, target_id))
        status, old = answers[target_id], answers[leader.replica_id]
        if status is not None and status.role == "master" and status.epoch > (leader.epoch or 0):
            return status
        if old is not None and old.role == "master" and old.quorum is not None and old.quorum.transferring_to is None:
            raise StepNotReady(
                say(
                    "Replica %(target)s did not take over in time: replica %(replica_id)s goes on.",
                    target=target_id,
                    replica_id=leader.replica_id,
                )
            )
        time_is_left = yield Pause(_TRANSFER_POLL_S, TRANSFER_S)
    raise StepNotReady(say("Replica %(target)s does not lead yet.", target=target_id))


def lead_assigned(view: GroupView, recovery: Recovery, target_id: int, ballot: Ballot) -> Order[None]:
    """Have those that are left promise the fence, and the target lead, as in a promotion; the lost ones, which may elect, have been
    stopped for good.
    """
    if (refusal := refusal_without(view, recovery.lost)) is not None:
        raise StepFailed(refusal, hint=TRY_AGAIN)
    asked = tuple(replica_id for replica_id in replicas_to_fence(view) if replica_id in recovery.survivors)
    heard: FenceAnswers = yield Fence(asked, ballot.fence)
    said = [Standing.of(answer.status) for answer in heard.answers.values() if answer.status is not None]
    promises = promises_given(view, said, ballot)
    for replica_id in asked:
        if replica_id not in promises:
            error = heard.answers[replica_id].error
            words = say("Replica %(replica_id)s did not step down: %(error)s", replica_id=replica_id, error=error)
            raise StepNotReady(words, delay_s=0.3)
    voters = [*recovery.lost, *recovery.survivors]
    standings = {**said_by_electors(view), **promises}
    problem = judge_recovery(voters, standings, target_id).problem
    if problem is not None:
        raise StepFailed(say("Nothing was changed. %(problem)s", problem=from_sdk(problem)), hint=TRY_AGAIN)
    yield NoteAsked(target_id, ballot)
    # An operator has agreed to the loss. The lost ones may have elected a leader of whom those that are left have nothing.
    lacks = lacks_an_epoch(promotion_group(view), standings[target_id], ballot.fence)
    answer: Answer = yield Promote(target_id, ballot, tuple(promises), with_incomplete_log=True, lacks_an_epoch=lacks)
    if answer.status is None:
        words = say("Replica %(candidate_id)s was not promoted: %(error)s", candidate_id=target_id, error=answer.error)
        raise StepNotReady(words, delay_s=0.3)


def require_confirmed(electorate: Electorate) -> None:
    """Raise StepNotReady while the last change of the voters is not in force for good."""
    if electorate.change_pending:
        raise StepNotReady(say("A majority has not confirmed the last change of the voters yet."), delay_s=0.2)


def _changed(leader: ReplicaView, change: str, replica_id: int | None) -> Order[None]:
    """Ask the leader for one change; raises StepNotReady with its words when it refuses."""
    answer: Answer = yield ChangeMembers(leader.replica_id, change, replica_id)
    if answer.status is None:
        raise StepNotReady(
            say("Replica %(replica_id)s answered: %(error)s", replica_id=leader.replica_id, error=answer.error),
            delay_s=0.2,
        )
