"""The order of a promotion and of a switchover: whom to ask for what, and what comes next. Pure, without Django's rows, sockets
or a clock.

Each step is an order (../orders.py): the Celery steps (steps.py) carry its requests out by remoting and rows, the simulation
(tests/sim/control_plane.py) on its network. What the answers decide is fencing.py's and highwater/promotion.py's; what is
remembered from run to run is `Promotion`.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.clusters.replica_answer import Answer
from controlplane.common.sentences import from_sdk, say
from controlplane.failover.orders import Look, LookClosely, Pause, Result
from controlplane.failover.promotion.fencing import (
    decision_after_fence,
    has_promised_newer,
    promised_ids,
    promises_given,
    replicas_to_fence,
    said_by_electors,
    unpromised,
)
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, promotion_group, standing_of
from controlplane.provisioning.errors import StepFailed, StepNotReady
from highwater.promotion import Ballot, Decision, Standing, is_drained, lacks_an_epoch
from mqwire.bodies import ReplicaStatus

DRAIN_S = 4.0
_DRAIN_POLL_S = 0.02
_CONFIRM = say("Ask again, and type the group's name to confirm the loss.")
TRY_AGAIN = say("Look at the group's replicas, and ask again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What the rows remember of one promotion. `old_master_id` led last when it was asked for, at `begun_at`.

    `may_lose`: an operator has agreed to a loss. `drains`: a switchover, in which the master hands over all that it has, so that
    no other than the candidate leads. `ballot` is reserved for it; `decided_id` is who leads by the promises for that ballot, for
    good, `because` says why the candidate may not be clean, `lossless` that nothing is lost by what was decided, and `may_lack`
    that the log of who leads was known to be one that may lack records at its end.
    """

    candidate_id: int
    old_master_id: int | None
    begun_at: datetime
    may_lose: bool
    drains: bool
    ballot: Ballot | None = None
    decided_id: int | None = None
    because: str = ""
    lossless: bool = False
    may_lack: bool = False


@dataclass(frozen=True, slots=True)
class Reserve:
    """Take a ballot above all that this view and the group's row have seen, for who has read `promotion`: by compare-and-set on
    both rows, which forgets what was decided. Answered by the Promotion as it is then; StepNotReady when another was first.
    """

    promotion: Promotion
    view: GroupView


@dataclass(frozen=True, slots=True)
class HoldSends:
    """Have the master refuse sends for some seconds, or take them again. Answered by an Answer."""

    replica_id: int
    epoch: int
    hold: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """Ask these to promise the epoch, all at once. Answered by FenceAnswers."""

    replica_ids: tuple[int, ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class FenceAnswers:
    """What was said, by replica id. `asked_at_s`: when they were asked, by the asker's clock."""

    asked_at_s: float
    answers: Mapping[int, Answer]


@dataclass(frozen=True, slots=True)
class Stop:
    """Kill the replica's process, and let no one start it before it is let go. Answered when it has surely ended."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """Start what was stopped: as slaves, or asking the others first, for they have seen that they led."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a fence came to: who leads, who promised, and how who led was fenced ("none" did, "demoted" or "stopped").

    `with_incomplete_log`: who leads has said that its log may lack records at its end.
    """

    decision: Decision
    promised_ids: tuple[int, ...]
    fence: str
    with_incomplete_log: bool


@dataclass(frozen=True, slots=True)
class Decide:
    """Write down who leads, for who has read `promotion`: once for each ballot, by compare-and-set. `candidate_id` is who leads
    if nothing is given back. Answered by the Promotion as it is then; StepNotReady when another has decided.
    """

    promotion: Promotion
    candidate_id: int
    fenced: Fenced


@dataclass(frozen=True, slots=True)
class Promote:
    """Have the replica lead, if it has promised nothing newer than the ballot's fence, and its log has lost nothing since, unless
    `with_incomplete_log` agrees to that. `lacks_an_epoch`: see promotion.py of the SDK. Answered by an Answer.
    """

    replica_id: int
    ballot: Ballot
    in_sync: tuple[int, ...] = ()
    with_incomplete_log: bool = False
    lacks_an_epoch: bool = False


@dataclass(frozen=True, slots=True)
class NoteSendsStopped:
    """No one takes sends any more; or, with `stopped` false, nothing was changed."""

    stopped: bool = True


@dataclass(frozen=True, slots=True)
class NoteGivenBack:
    """Who led last leads again, as it says."""

    status: ReplicaStatus


@dataclass(frozen=True, slots=True)
class NoteLeader:
    """The candidate leads in the ballot's epoch: the group's row names it, unless that went on to a newer one.

    `status` is what it said when it was promoted, None when that was seen by a look. It is noted as who was seen leading: a leader
    that is gone before the next look holds what it acknowledged all the same.
    """

    promotion: Promotion
    status: ReplicaStatus | None


Request = (
    Look
    | LookClosely
    | Pause
    | Reserve
    | HoldSends
    | Fence
    | Stop
    | LetGo
    | Decide
    | Promote
    | NoteSendsStopped
    | NoteGivenBack
    | NoteLeader
)
Order = Generator[Request, Any, Result]


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was seen when the ballot was reserved."""

    candidate: ReplicaView
    former: ReplicaView | None
    ballot: Ballot


def preflight(promotion: Promotion) -> Order[Preflight | None]:
    """Reserve an epoch above all that any replica has seen; None: it was reserved before."""
    view: GroupView = yield Look()
    candidate = _answering(view, promotion.candidate_id)
    if promotion.ballot is not None:
        return None
    if candidate.leads:
        raise StepFailed(
            say("Replica %(replica_id)s is already the master.", replica_id=candidate.replica_id), hint=TRY_AGAIN
        )
    if promotion.drains and view.master is None:
        raise StepFailed(say("There is no master to switch from."), hint=say("Promote a replica instead."))
    _require_no_elections(view)
    promotion = yield Reserve(promotion, view)
    assert promotion.ballot is not None, "just reserved"
    return Preflight(candidate, view.former_master, promotion.ballot)


def drain(promotion: Promotion) -> Order[int | None]:
    """Hold sends until the candidate has everything, and return where the log ended then, in bytes; None: all is done already.

    The one step that waits within itself: each moment of it is outage.
    """
    view: GroupView = yield Look()
    if _is_done(promotion, view):
        return None
    master = view.master
    if master is None or master.replica_id == promotion.candidate_id:
        raise StepFailed(say("The master is gone: nothing was switched."), hint=say("Promote a replica instead."))
    yield NoteSendsStopped()
    held: Answer = yield HoldSends(master.replica_id, master.epoch or 0, hold=True)
    if held.status is None:
        raise StepNotReady(say("The master did not hold sends: %(error)s", error=held.error))
    behind, time_is_left = 0, True
    while time_is_left:
        looked: Mapping[int, ReplicaStatus | None] = yield LookClosely((master.replica_id, promotion.candidate_id))
        source, target = looked[master.replica_id], looked[promotion.candidate_id]
        if source is not None and target is not None:
            behind = source.end_offset - target.held_offset
            if is_drained(
                end_offset=source.end_offset, confirm_offset=source.confirm_offset, held_offset=target.held_offset
            ):
                return source.end_offset
        time_is_left = yield Pause(_DRAIN_POLL_S, DRAIN_S)
    yield HoldSends(master.replica_id, master.epoch or 0, hold=False)
    yield NoteSendsStopped(stopped=False)
    raise StepFailed(
        say(
            "Replica %(candidate_id)s was still %(behind)s bytes behind after %(drain_s)s s. The"
            " master takes sends again; nothing was switched.",
            candidate_id=promotion.candidate_id,
            behind=behind,
            drain_s=f"{DRAIN_S:.0f}",
        ),
        hint=say("Wait until the replica is in sync, and ask again."),
    )


def fence(promotion: Promotion) -> Order[None]:
    """Have every replica promise the fence, stop who may lead and does not answer, and decide for good who leads."""
    view: GroupView = yield Look()
    if _is_done(promotion, view):
        return
    if promotion.ballot is None:
        raise StepFailed(say("No epoch was reserved."), hint=TRY_AGAIN)
    if promotion.decided_id is None:
        promotion = yield from _with_ballot_to_promise(promotion, promotion.ballot, view)
        promotion = yield from _decided(promotion, view)
    yield from _give_back_unless_candidate(promotion)


def promote(promotion: Promotion) -> Order[None]:
    """Have whom the promises decided for lead in the reserved epoch."""
    view: GroupView = yield Look()
    leading: ReplicaStatus | None = None
    if not _is_done(promotion, view):
        candidate = _free_to_lead(promotion, view)
        if (
            promotion.ballot is None
            or promotion.decided_id is None
            or has_promised_newer(candidate, promotion.ballot.fence)
            # Perhaps only since it promised: then what was decided goes by what it holds no more, and its page would say so.
            or (candidate.log_may_be_incomplete and (promotion.lossless or not promotion.may_lose))
        ):
            if promotion.ballot is not None:
                _require_newest(promotion.ballot, view)  # what was agreed to be lost was of that moment
            promotion = yield Reserve(promotion, view)
            promotion = yield from _decided(promotion, view)
            yield from _give_back_unless_candidate(promotion)
            # Of the new fence the view from before it knows nothing: no one would be in sync with the new leader.
            view = yield Look()
            _free_to_lead(promotion, view)
        assert promotion.ballot is not None, "reserved before"
        _require_newest(promotion.ballot, view)
        in_sync = tuple(promised_ids(view, promotion.ballot.fence))
        may_lack = not promotion.lossless  # by an operator's word, or as every replica's promise allows
        lacks = may_lack and _lacks_an_epoch(view, promotion.candidate_id, promotion.ballot)
        answer: Answer = yield Promote(promotion.candidate_id, promotion.ballot, in_sync, may_lack, lacks)
        if answer.status is None:
            raise StepNotReady(
                say(
                    "Replica %(candidate_id)s was not promoted: %(error)s",
                    candidate_id=promotion.candidate_id,
                    error=answer.error,
                )
            )
        leading = answer.status
    yield NoteLeader(promotion, leading)


def _lacks_an_epoch(view: GroupView, leader_id: int, ballot: Ballot) -> bool:
    candidate = view.replica(leader_id)
    standing = None if candidate is None else standing_of(candidate)
    return standing is not None and lacks_an_epoch(promotion_group(view), standing, ballot.fence)


def _with_ballot_to_promise(promotion: Promotion, ballot: Ballot, view: GroupView) -> Order[Promotion]:
    """Return the promotion with a ballot that every replica can still promise: this one, or a newer one that is reserved here.

    A leader that hears of the fence from its followers before it is asked itself claims the next epoch. It then leads again, and
    would refuse this fence for ever. It takes sends again, too, which a switchover has it hand over once more.
    """
    if not any(one.answers and has_promised_newer(one, ballot.fence) for one in view.replicas):
        return promotion
    _require_newest(ballot, view)
    _require_no_leader(view, but=promotion.old_master_id)
    if promotion.drains and view.master is not None:
        yield from drain(promotion)
    reserved: Promotion = yield Reserve(promotion, view)
    return reserved


def _decided(promotion: Promotion, view: GroupView) -> Order[Promotion]:
    """Fence the group by the promotion's ballot, and write down who leads."""
    assert promotion.ballot is not None, "reserved before"
    fenced = yield from _fence_and_decide(promotion, promotion.ballot, view)
    decision = fenced.decision
    if decision.leader_id is None:
        yield LetGo()
        raise StepFailed(_no_one_agreed(from_sdk(decision.cleanness.because)), hint=_CONFIRM)
    candidate_id = promotion.candidate_id if decision.gives_back else decision.leader_id
    decided: Promotion = yield Decide(promotion, candidate_id, fenced)
    return decided


def _give_back_unless_candidate(promotion: Promotion) -> Order[None]:
    """Where nothing is to be lost, nothing is changed: who led last leads again, what was stopped is started."""
    former_id = promotion.decided_id
    if former_id == promotion.candidate_id:
        return
    assert former_id is not None, "decided before"
    assert promotion.ballot is not None, "reserved before"
    # Readers wait for these, as for those that followed it before: who is promoted next may be taken for clean by that.
    view: GroupView = yield Look()
    _require_newest(promotion.ballot, view)
    in_sync = tuple(promised_ids(view, promotion.ballot.fence))
    lacks = promotion.may_lack and _lacks_an_epoch(view, former_id, promotion.ballot)
    answer: Answer = yield Promote(former_id, promotion.ballot, in_sync, promotion.may_lack, lacks)
    if not answer.came:
        raise StepNotReady(
            say("Replica %(former_id)s does not lead again yet: %(error)s", former_id=former_id, error=answer.error),
            delay_s=0.3,
        )
    yield LetGo()
    if answer.status is not None:
        yield NoteGivenBack(answer.status)
    raise StepFailed(_no_one_agreed(promotion.because), hint=_CONFIRM)


def _fence_and_decide(promotion: Promotion, ballot: Ballot, view: GroupView) -> Order[Fenced]:
    """Have every replica promise the fence, stop who may lead and does not answer, look again, and decide who leads.

    `view` is the group as it was seen just before.
    """
    _require_no_elections(view)
    answers: dict[int, Answer] = {}
    said: list[Standing] = []
    for asked in _in_order_of_fencing(view):
        heard: FenceAnswers = yield Fence(asked, ballot.fence)
        answers |= heard.answers
        said += [Standing.of(one.status, heard.asked_at_s) for one in heard.answers.values() if one.status is not None]
    promises = promises_given(view, said, ballot)
    how = "demoted" if any(one.leads and one.replica_id in promises for one in view.replicas) else "none"
    doubtful = unpromised(
        view,
        promises,
        [replica_id for replica_id, answer in answers.items() if answer.came],
        candidate_id=promotion.candidate_id,
        old_master_id=promotion.old_master_id,
    )
    for replica_id in doubtful.answering:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s did not step down: %(error)s",
                replica_id=replica_id,
                error=answers[replica_id].error,
            ),
            delay_s=0.3,
        )
    for replica_id in doubtful.silent:
        yield Stop(replica_id)
        how = "stopped"
    yield NoteSendsStopped()
    after: GroupView = yield Look()
    _require_no_elections(after)  # by what they say after the fence; giving the role back would be a promotion, too
    standings = {**said_by_electors(after), **promises}
    decision = decision_after_fence(
        after,
        view,
        standings,
        candidate_id=promotion.candidate_id,
        begun_at=promotion.begun_at,
        may_lose=promotion.may_lose,
        may_choose=not promotion.drains,
    )
    leads = None if decision.leader_id is None else standings.get(decision.leader_id)
    incomplete = decision.may_lack or (leads is not None and leads.log_may_be_incomplete)
    return Fenced(decision, tuple(sorted(promises)), how, incomplete)


def _in_order_of_fencing(view: GroupView) -> list[tuple[int, ...]]:
    """Return who is asked for a promise, those of a tuple at once. A master that hears of the fence from a slave before it is asked
    itself claims the next epoch, and takes sends again: so it is the first.
    """
    to_fence = replicas_to_fence(view)
    first = [replica_id for replica_id in to_fence if view.master is not None and replica_id == view.master.replica_id]
    others = [replica_id for replica_id in to_fence if replica_id not in first]
    return [tuple(asked) for asked in (first, others) if asked]


def _require_no_elections(view: GroupView) -> None:
    """Raise StepFailed where an election may be won: no one is promoted or demoted beside it."""
    if (refusal := promotion_refusal(view)) is not None:
        raise StepFailed(refusal, hint=TRY_AGAIN)


def _require_newest(ballot: Ballot, view: GroupView) -> None:
    """Raise StepFailed where another promotion has reserved a newer epoch, or someone has led in one: a replica that was down then
    knows nothing of it, and would lead in this one.
    """
    if view.epoch > ballot.epoch:
        raise StepFailed(say("The group has gone on to a newer epoch meanwhile."), hint=TRY_AGAIN)


def _require_no_leader(view: GroupView, *, but: int | None = None) -> None:
    """Raise StepFailed where any replica leads, other than `but`."""
    if any(replica.leads and replica.replica_id != but for replica in view.replicas):
        raise StepFailed(say("Another replica leads: someone else changed the group."), hint=TRY_AGAIN)


def _free_to_lead(promotion: Promotion, view: GroupView) -> ReplicaView:
    """Return the candidate, unless anything else leads or may be elected."""
    _require_no_leader(view)
    _require_no_elections(view)
    return _answering(view, promotion.candidate_id)


def _answering(view: GroupView, replica_id: int) -> ReplicaView:
    replica = view.replica(replica_id)
    if replica is None or not replica.answers:
        raise StepNotReady(say("Replica %(replica_id)s does not answer.", replica_id=replica_id))
    return replica


def _is_done(promotion: Promotion, view: GroupView) -> bool:
    """Whether the candidate leads in the reserved epoch: whatever comes before has been done."""
    candidate = view.replica(promotion.candidate_id)
    if candidate is None or promotion.ballot is None:
        return False
    return candidate.leads and candidate.epoch == promotion.ballot.epoch


def _no_one_agreed(because: str) -> str:
    return say("Messages may be lost: %(because)s No one has agreed to that.", because=because)
