"""The order of a promotion: whom to ask for what, and what comes next. Pure, without Django's rows, sockets or a clock.

Each function is a generator: it yields a request, is sent the answer, and returns what it has come to; it raises StepNotReady
to be run again, and StepFailed. The Celery steps (steps.py) carry the requests out by remoting and rows, the simulation
(tests/sim/control_plane.py) on its network. What the answers decide is fencing.py's and highwater/promotion.py's.

Run again from its beginning, by another worker or by two at once, each comes to the same: nothing is decided by memory, but by what
replicas say and by `Promotion`, which the rows remember.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from controlplane.clusters.replica_answer import Answer
from controlplane.common.sentences import say
from controlplane.failover.promotion.fencing import (
    decision_after_fence,
    promises_given,
    replicas_to_fence,
    unpromised,
)
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import GroupView
from controlplane.provisioning.errors import StepFailed, StepNotReady
from highwater.promotion import Ballot, Decision, Standing

Result = TypeVar("Result")

CONFIRM = say("Ask again, and type the group's name to confirm the loss.")
TRY_AGAIN = say("Look at the group's replicas, and ask again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """What the rows remember of one promotion. `old_master_id` led last when it was asked for, at `begun_at`.

    `may_lose`: an operator has agreed to a loss. `may_choose`: another than the candidate may lead where that one is not clean.
    """

    candidate_id: int
    old_master_id: int | None
    begun_at: datetime
    may_lose: bool
    may_choose: bool


@dataclass(frozen=True, slots=True)
class Look:
    """Ask every replica, and note what they say. Answered by a GroupView."""


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
    """Kill the replica's process, and let no one start it before all is done. Answered when it has surely ended."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class NoteSendsStopped:
    """No one takes sends any more."""


Request = Look | Fence | Stop | NoteSendsStopped
Order = Generator[Request, Any, Result]


def carried_out(order: Order[Result], carry_out: Callable[[Any], object]) -> Result:
    """Run an order to its end, each of its requests by `carry_out`; what that raises ends it."""
    answer: object = None
    while True:
        try:
            request = order.send(answer)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        answer = carry_out(request)


@dataclass(frozen=True, slots=True)
class Fenced:
    """What a fence came to: who leads, who promised, and how who led was fenced ("none" did, "demoted" or "stopped")."""

    decision: Decision
    promised_ids: tuple[int, ...]
    fence: str


def fence_and_decide(promotion: Promotion, ballot: Ballot, view: GroupView) -> Order[Fenced]:
    """Have every replica promise the fence, stop who may lead and does not answer, look again, and decide who leads.

    `view` is the group as it was seen just before.
    """
    require_no_elections(view)
    asked = tuple(replicas_to_fence(view))
    heard: FenceAnswers = yield Fence(asked, ballot.fence)
    said = [Standing.of(one.status, heard.asked_at_s) for one in heard.answers.values() if one.status is not None]
    promises = promises_given(view, said, ballot)
    fence = "demoted" if any(one.leads and one.replica_id in promises for one in view.replicas) else "none"
    doubtful = unpromised(
        view,
        promises,
        [replica_id for replica_id, answer in heard.answers.items() if answer.came],
        candidate_id=promotion.candidate_id,
        old_master_id=promotion.old_master_id,
    )
    for replica_id in doubtful.answering:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s did not step down: %(error)s",
                replica_id=replica_id,
                error=heard.answers[replica_id].error,
            ),
            delay_s=0.3,
        )
    for replica_id in doubtful.silent:
        yield Stop(replica_id)
        fence = "stopped"
    yield NoteSendsStopped()
    after: GroupView = yield Look()
    require_no_elections(after)  # by what they say after the fence; giving the role back would be a promotion, too
    decision = decision_after_fence(
        after,
        view,
        promises,
        candidate_id=promotion.candidate_id,
        begun_at=promotion.begun_at,
        may_lose=promotion.may_lose,
        may_choose=promotion.may_choose,
    )
    return Fenced(decision, tuple(sorted(promises)), fence)


def require_no_elections(view: GroupView) -> None:
    """Raise StepFailed where an election may be won: no one is promoted or demoted beside it."""
    if (refusal := promotion_refusal(view)) is not None:
        raise StepFailed(refusal, hint=TRY_AGAIN)
