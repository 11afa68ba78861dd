"""What the steps of a promotion decide, by a group's samples and the answers to its fence. Pure, without Django: the order
of the steps (order.py) goes by it. What is clean says highwater/promotion.py.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.failover.promotion.verdict import GroupView, ReplicaView, at_risk, promotion_group, standing_of
from highwater.promotion import (
    Ballot,
    Decision,
    Standing,
    ballot_above,
    counting,
    decide,
    promises_in,
)


def next_ballot(view: GroupView, row_epoch: int) -> Ballot:
    """Return the ballot to reserve: above all that anyone has seen."""
    return ballot_above([row_epoch, *(one.epoch for one in view.replicas if one.epoch is not None)])


def replicas_to_fence(view: GroupView) -> list[int]:
    """Return who is asked to promise the fence: all but those that vote."""
    return [replica.replica_id for replica in view.replicas if replica.quorum is None]


def promises_given(view: GroupView, said: Iterable[Standing], ballot: Ballot) -> dict[int, Standing]:
    """Return the promises among what replicas said when they were fenced, by replica id."""
    return promises_in((_with_samples(one, view) for one in said), ballot)


def said_by_electors(view: GroupView) -> dict[int, Standing]:
    """Return what those that still elect say of their logs, in a group where they can win no election (safety.py).

    They promise nothing, and need not: none of them leads or can, and all that could send them more have promised or were stopped.
    So what they hold is final, and counts as a promise does. None of them can be promoted.

    Where the row still says dledger, who led last and still elects has never acted by another mode: what it holds past a majority's
    end it has neither acknowledged nor shown, and does not count. That end is known only where no one's disk has lost anything: who
    led last may be the only one left that holds what a majority held.
    """
    standings = [standing_of(replica) for replica in view.replicas if replica.quorum is not None and not replica.leads]
    said = {one.replica_id: replace(one, promotable=False) for one in standings if one is not None}
    answers = {one.replica_id: one for replica in view.replicas if (one := standing_of(replica)) is not None}
    everyone = list(counting(promotion_group(view), answers).values())
    former = None if view.former_master is None else said.get(view.former_master.replica_id)
    if former is not None and view.elects and len(everyone) == len(view.replicas):
        majority = sorted(everyone, key=lambda one: one.position)[-(len(everyone) // 2 + 1)]
        if former.position > majority.position:
            said[former.replica_id] = replace(former, log_epoch=majority.log_epoch, held_offset=majority.held_offset)
    return said


@dataclass(frozen=True, slots=True)
class Unpromised:
    """Who may lead and has not promised: those that answered, and those that did not, which are to be stopped."""

    answering: tuple[int, ...]
    silent: tuple[int, ...]


def unpromised(
    view: GroupView,
    promises: Collection[int],
    answering: Collection[int],
    *,
    candidate_id: int,
    old_master_id: int | None,
) -> Unpromised:
    """Return who else may lead although it was fenced. `old_master_id` led last when this was asked for."""
    electors = said_by_electors(view)
    doubtful = [
        replica.replica_id
        for replica in view.replicas
        if replica.replica_id not in {*promises, *electors, candidate_id}
        if _may_lead(replica, candidate_id, old_master_id)
    ]
    return Unpromised(
        tuple(one for one in doubtful if one in answering), tuple(one for one in doubtful if one not in answering)
    )


def decision_after_fence(
    view: GroupView,
    before: GroupView,
    promises: Mapping[int, Standing],
    *,
    candidate_id: int,
    begun_at: datetime,
    may_lose: bool,
    may_choose: bool,
) -> Decision:
    """Return who leads. `before` is the group when it was fenced, `view` after that; `begun_at` when this was asked for.

    Whose promise is all that came of it, for it does not answer any more, leads only where no one else can: it would be waited for
    while the group has no leader. What it promised to hold counts all the same.
    """
    candidate = view.replica(candidate_id)
    group = promotion_group(view, led_in_this_operation=before.led_at is not None and before.led_at >= begun_at)
    if group.former is not None:
        group = replace(group, former=replace(group.former, last_word=_last_word(before, group.former.replica_id)))

    def decided(promises: Mapping[int, Standing]) -> Decision:
        return decide(
            group,
            promises,
            candidate_id,
            may_lose=may_lose,
            may_choose=may_choose,
            at_risk=(None, None) if candidate is None else at_risk(candidate, before.former_master),
        )

    silent_ids = {one.replica_id for one in view.silent}
    decision = decided(
        {key: replace(one, promotable=False) if key in silent_ids else one for key, one in promises.items()}
    )
    return decided(promises) if decision.leader_id is None else decision


def _last_word(before: GroupView, former_id: int) -> Standing | None:
    """Return what who led last said just before the fence, if it waited for an election: none could be won (safety.py), so that it
    has led no more. It promises nothing, and is stopped.
    """
    former = before.replica(former_id)
    return None if former is None or former.leads or former.quorum is None else standing_of(former)


def has_promised_newer(candidate: ReplicaView, fence: int) -> bool:
    """Return whether what was decided can never happen: the candidate has promised an epoch in which no one leads."""
    return (candidate.epoch or 0) > fence


def promised_ids(view: GroupView, fence: int) -> list[int]:
    """Return whom the new leader takes as in sync until they prove otherwise: those that still keep the promise."""
    return [one.replica_id for one in view.replicas if one.answers and one.epoch == fence]


def _may_lead(replica: ReplicaView, candidate_id: int, old_master_id: int | None) -> bool:
    """Whether a replica other than the candidate may lead, as far as anyone knows."""
    if replica.leads or replica.replica_id == old_master_id:
        return True
    # The last leader is the candidate itself: one that does not answer may have been promoted past us since.
    return not replica.answers and old_master_id in (None, candidate_id)


def _with_samples(standing: Standing, view: GroupView) -> Standing:
    """What a replica said, with what the samples remember and it can't know: its disk of before, its leader's word of before.

    The sample is older than the promise: the disk may have been replaced in between. No leader lives that could say that it counts.
    """
    sample = view.replica(standing.replica_id)
    if sample is None:
        return standing
    known = sample.known_disk
    is_other, has_lost = known.is_other(standing.incarnation), known.has_lost(standing.position)
    standing = replace(
        standing,
        disk_is_new=is_other,
        log_may_be_incomplete=standing.log_may_be_incomplete or (has_lost and not is_other),
    )
    if standing.in_sync_until_s is None and sample.in_sync_until is not None and not (is_other or has_lost):
        until_s = sample.in_sync_until.timestamp()
        return replace(standing, in_sync_epoch=sample.in_sync_epoch, in_sync_until_s=until_s)
    return standing
