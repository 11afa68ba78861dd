"""Which promotion the control plane begins by itself. Pure, without Django: the look at a cluster (services.py) and the simulated
control plane (tests/sim/control_plane.py) both act by it.
"""

from dataclasses import dataclass
from datetime import datetime

from controlplane.failover.promotion.verdict import GroupState, GroupView, judge


@dataclass(frozen=True, slots=True)
class OwnPromotion:
    """`repeats`: the candidate led last, was restarted, and asks the others in vain."""

    candidate_id: int
    repeats: bool


def promotion_to_begin(group: GroupView, now: datetime, *, when_lossless: bool) -> OwnPromotion | None:
    """Return the promotion to begin without anyone's asking; None where no one is needed, or something acknowledged may be lost.

    A restarted master whose claim is blocked is asked to lead again whatever the policy: no master changes. Another replica
    is promoted only if the policy says so (`when_lossless`). Where elections may be won there is no candidate.
    """
    verdict = judge(group, now)
    if verdict.state != GroupState.NO_MASTER or verdict.cleanness is None or not verdict.cleanness.clean:
        return None
    if not (verdict.repeats or when_lossless):
        return None
    return OwnPromotion(verdict.candidates[0], verdict.repeats)
