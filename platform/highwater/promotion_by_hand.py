"""The order of a promotion by one who has no rows: `highwater admin promote`. Pure, without sockets or a clock: the command carries
its requests out on the cluster, the simulation (tests/sim/control_plane.py) on its network. The control plane's own order is
controlplane/failover/promotion/order.py; both go by the rule of promotion.py.

No one stops a replica here that may lead and does not answer. It acknowledges what it likes until it hears of the new epoch: in
mode sync nothing that a clean promotion lacks, for those that promised follow it no more; else what `may_lose` agrees to.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

from highwater._admin_replica import PromotionPlan, group_by_promises
from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import Decision, Standing, decide, is_drained, lacks_an_epoch, promises_in
from mqwire.bodies import ReplicaStatus

_DRAIN_MS: Final = 10_000
_LOOK_PERIOD_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class AskStatus:
    """Answered by the replica's ReplicaStatus."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class HoldSends:
    """Have the master refuse sends for so long, or take them again (0). Answered by its ReplicaStatus."""

    replica_id: int
    epoch: int
    for_ms: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Answered by whether `most_s` have not passed yet since the first one."""

    seconds: float
    most_s: float


@dataclass(frozen=True, slots=True)
class Promise:
    """Ask for a promise of the epoch. Answered by the replica's ReplicaStatus."""

    replica_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Promote:
    """Answered by the new leader's ReplicaStatus. `with_incomplete_log`: its log may lack records at its end, and may lead so.
    `lacks_an_epoch`: see promotion.py.
    """

    replica_id: int
    expected_epoch: int
    new_epoch: int
    in_sync: tuple[int, ...]
    with_incomplete_log: bool
    lacks_an_epoch: bool
    decision: Decision


@dataclass(frozen=True, slots=True)
class Follow:
    """Tell a replica of its leader."""

    replica_id: int
    epoch: int
    leader_address: str


Request = AskStatus | HoldSends | Wait | Promise | Promote | Follow


@dataclass(frozen=True, slots=True)
class Promoted:
    """Who leads, and why that is clean or not."""

    decision: Decision
    status: ReplicaStatus


def promotion_by_hand(plan: PromotionPlan, *, may_lose: bool) -> Generator[Request, Any, Promoted]:
    """Drain the master if one answers, have all that answer promise, and promote whom their promises decide for.

    A request that fails is answered by its HighwaterError. Raises that of one that must not fail, and NoRouteError where the
    candidate does not lead in the end.
    """
    wanted_id, ballot = plan.candidate.replica_id, plan.ballot
    if plan.master is not None:
        yield from _drain(plan, plan.master, may_lose=may_lose)
    promised = yield from _promises(plan)
    promises = {one.replica_id: Standing.of(one) for one in promised}
    group = group_by_promises(plan.group, promised)
    decision = decide(group, promises, wanted_id, may_lose=may_lose, may_choose=False)
    if decision.leader_id is None:
        raise NoRouteError(
            f"{decision.cleanness.because} Nothing was promoted, and no replica leads; with --yes replica {wanted_id} is"
        )
    incomplete = decision.may_lack or promises[decision.leader_id].log_may_be_incomplete
    in_sync, may_lack = tuple(sorted(promises)), incomplete or (may_lose and not decision.cleanness.clean)
    lacks = may_lack and lacks_an_epoch(group, promises[decision.leader_id], ballot.fence)
    status = yield from _done(
        Promote(decision.leader_id, ballot.fence, ballot.epoch, in_sync, may_lack, lacks, decision)
    )
    if decision.gives_back:
        raise NoRouteError(
            f"{decision.cleanness.because} So replica {decision.leader_id} leads again, in epoch {status.epoch}; with --yes"
            f" replica {wanted_id} is promoted all the same, and what it lacks is lost"
        )
    # So that they follow at once. The new master notifies them too, a moment later: nothing depends on these answers.
    for replica_id in plan.addresses:
        if replica_id != wanted_id:
            yield Follow(replica_id, ballot.epoch, status.address)
    return Promoted(decision, status)


def _drain(plan: PromotionPlan, master: ReplicaStatus, *, may_lose: bool) -> Generator[Request, Any, None]:
    """Let the candidate catch up with a master that takes no more sends."""
    yield from _done(HoldSends(master.replica_id, master.epoch, _DRAIN_MS))
    is_level, time_is_left = False, True
    try:
        while not is_level and time_is_left:
            source = yield from _done(AskStatus(master.replica_id))
            target = yield from _done(AskStatus(plan.candidate.replica_id))
            is_level = is_drained(
                end_offset=source.end_offset, confirm_offset=source.confirm_offset, held_offset=target.held_offset
            )
            if not is_level:
                time_is_left = yield Wait(_LOOK_PERIOD_S, _DRAIN_MS / 1000 * 0.8)
    except HighwaterError:
        if not may_lose:
            yield from _done(HoldSends(master.replica_id, master.epoch, 0))
        raise
    if is_level or may_lose:
        return
    yield from _done(HoldSends(master.replica_id, master.epoch, 0))
    raise NoRouteError(
        f"replica {plan.candidate.replica_id} did not catch up within {_DRAIN_MS // 1000} s; the master goes on."
        " With --yes it is promoted all the same, and what it lacks is lost"
    )


def _promises(plan: PromotionPlan) -> Generator[Request, Any, list[ReplicaStatus]]:
    """Have every replica that answers promise the fence; one that refuses has promised another one, or elects."""
    answers = []
    first = None if plan.master is None else plan.master.replica_id  # before it hears of the fence from a slave
    for replica_id in sorted(plan.addresses, key=lambda key: (key != first, plan.addresses[key])):
        answer = yield Promise(replica_id, plan.ballot.fence)
        if isinstance(answer, ReplicaStatus):
            answers.append(answer)
    promises = promises_in(map(Standing.of, answers), plan.ballot)
    return [answer for answer in answers if answer.replica_id in promises]


def _done(request: Request) -> Generator[Request, Any, ReplicaStatus]:
    answer: ReplicaStatus | HighwaterError = yield request
    if isinstance(answer, HighwaterError):
        raise answer
    return answer
