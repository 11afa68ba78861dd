"""What a promotion changes in its own row and in its group's, and when another worker was first. Pure, without Django: the Celery
steps (steps.py) read both rows under a lock and write what comes out, the simulation (tests/sim/control_plane.py) has them as they
are here.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.common.sentences import from_sdk, say
from controlplane.failover.promotion.fencing import next_ballot
from controlplane.failover.promotion.order import Fenced, Promotion
from controlplane.failover.promotion.verdict import GroupView, foreign_epoch
from controlplane.provisioning.errors import StepNotReady


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """What a group's row says, with the ids of its replicas; see models.GroupLeadership."""

    epoch: int = 0
    leader_id: int | None = None
    led_at: datetime | None = None
    led_epoch: int | None = None
    led_to_offset: int | None = None
    asked_id: int | None = None
    asked_epoch: int | None = None
    foreign_epoch: int | None = None


def reserved(row: Promotion, read: Promotion, group: GroupRow, view: GroupView) -> tuple[Promotion, GroupRow]:
    """Return both rows with a ballot above all that `view` and the group's row have seen, and nothing decided for it yet. `row` is
    the promotion's row now, `read` what its worker has read of it. Raises StepNotReady when another worker reserved one since.
    """
    if row.ballot != read.ballot:
        raise StepNotReady(say("Another worker reserved an epoch."), delay_s=0.2)
    ballot = next_ballot(view, group.epoch)
    # Now, for the fence hides it.
    foreign = foreign_epoch(replace(view, epoch=group.epoch, foreign_epoch=group.foreign_epoch))
    group = replace(group, epoch=ballot.epoch, foreign_epoch=foreign)
    return replace(row, ballot=ballot, decided_id=None, lossless=False, may_lack=False), group


def decided(
    row: Promotion, read: Promotion, group: GroupRow, candidate_id: int, fenced: Fenced
) -> tuple[Promotion, GroupRow]:
    """Return both rows with who leads by the promises for the ballot that `read` has, and, before it is, that it was asked to.
    Raises StepNotReady when that was decided, or another ballot was reserved, since.
    """
    if row.ballot != read.ballot or row.decided_id is not None:
        raise StepNotReady(say("Another worker has decided."), delay_s=0.1)
    assert row.ballot is not None, "decided by the promises for it"
    leader_id = fenced.decision.leader_id
    because = from_sdk(fenced.decision.cleanness.because)
    row = replace(
        row,
        candidate_id=candidate_id,
        decided_id=leader_id,
        because=because,
        lossless=fenced.decision.cleanness.clean,
        may_lack=fenced.with_incomplete_log,
    )
    assert row.ballot is not None, "as before"
    if (group.asked_epoch or 0) < row.ballot.epoch:
        foreign = group.foreign_epoch
        if group.asked_id not in (None, leader_id) and (group.asked_epoch or 0) > (group.led_epoch or 0):
            foreign = max(foreign or 0, group.asked_epoch or 0)  # the other one may have led in it, unseen
        group = replace(group, asked_id=leader_id, asked_epoch=row.ballot.epoch, foreign_epoch=foreign)
    return row, group


def led(group: GroupRow, promotion: Promotion) -> GroupRow:
    """Return the group's row with the promotion's candidate as its leader, unless the group went on to a newer epoch."""
    is_of_it = promotion.ballot is not None and group.epoch == promotion.ballot.epoch
    return replace(group, leader_id=promotion.candidate_id) if is_of_it else group
