"""Disks that took the place of others in a quorum-led group: when they count.

Each disk has an incarnation, drawn at its first start (epoch.json), named in pulls and votes, and noted by the log's voters
records. Of a replica whose disk was lost, the empty one neither counts nor votes, though it goes by the same id: what its
predecessor had held and promised is gone, and a leader that is cut off, and leads no more, could confirm by it what the
group never sees. It is adopted as if a voter was removed and another added: first a record without it, which a majority
of the others must confirm, and so are shown to follow this leader; then a record with it.

Source of the idea: the directory ids of KIP-853 (Kafka), where an operator does both steps; here the leader does.
"""

from __future__ import annotations

from collections.abc import Mapping

from brokerd.replica.in_sync import FollowerState
from brokerd.replica.voters import Members


def next_members(
    members: Members,
    own_id: int,
    own_incarnation: str,
    followers: Mapping[int, FollowerState],
    *,
    now_s: float,
    recent_s: float,
) -> Members | None:
    """What the leader writes next, once its last change is confirmed; None when all disks are known and count."""
    there = {key: one for key, one in followers.items() if one.incarnation and now_s - one.last_pull_s <= recent_s}
    # Of a group that is older than the incarnations: each that counts now is taken as it is.
    first_seen = {key: one.incarnation for key, one in there.items() if members.counts(key) and one.joined}
    seen = members.having({own_id: own_incarnation, **first_seen})
    if seen != members:
        return seen
    for replica_id, follower in sorted(there.items()):
        if not (follower.joined and follower.in_sync):
            continue  # not before it has caught up: until then it would only be missed
        known = members.knows(replica_id, follower.incarnation)
        if replica_id in members.replacing:
            if not known:
                return members.with_new_disk(replica_id, follower.incarnation)  # lost once more
            return members.with_voter(replica_id, follower.incarnation)
        if members.counts(replica_id) and not known:
            others = members.with_new_disk(replica_id, follower.incarnation)
            if _could_confirm(others, own_id, there):
                return others
    return None


def _could_confirm(members: Members, own_id: int, there: Mapping[int, FollowerState]) -> bool:
    counted = [
        key for key, one in there.items() if members.counts(key) and one.joined and members.knows(key, one.incarnation)
    ]
    return len(counted) + members.counts(own_id) >= members.majority
