"""What a leader of a quorum-led group knows of its followers from their pulls: who is there, who is ahead, who has room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brokerd.replica.voters import Members


@dataclass(slots=True)
class Puller:
    """One follower, or a voter that has not pulled in this epoch yet."""

    seen_s: float
    end_offset: int
    pulled: bool = True  # in this epoch; else it only voted
    joined: bool = True  # else it does not count: what it knew of votes and records is lost
    full: bool = False  # its disk is

    def there(self, now_s: float, within_s: float) -> bool:
        """Whether it counts, and was heard of so lately."""
        return self.joined and now_s - self.seen_s <= within_s


def in_touch(
    pullers: Mapping[int, Puller],
    members: Members,
    own_id: int,
    now_s: float,
    within_s: float,
    *,
    with_room: bool = False,
) -> int:
    """How many voters are there, the leader included; `with_room`: of those whose disks are not full, and the leader."""
    others = (pullers.get(voter) for voter in members.voters if voter != own_id)
    there = sum(
        puller is not None and puller.there(now_s, within_s) and not (with_room and puller.full) for puller in others
    )
    return there + (own_id in members.voters)


def successors(pullers: Mapping[int, Puller], members: Members, own_id: int) -> tuple[int, ...]:
    """Who should lead next: by how much they hold, and those with full disks after the others."""
    others = [voter for voter in members.voters if voter in pullers and voter != own_id]
    return tuple(sorted(others, key=lambda voter: (pullers[voter].full, -pullers[voter].end_offset, voter)))


def best_with_room(
    pullers: Mapping[int, Puller], members: Members, own_id: int, now_s: float, within_s: float
) -> int | None:
    """The voter with room on its disk that holds most; None when no one has any."""
    for voter in successors(pullers, members, own_id):
        puller = pullers[voter]
        if puller.pulled and not puller.full and puller.there(now_s, within_s):
            return voter
    return None
