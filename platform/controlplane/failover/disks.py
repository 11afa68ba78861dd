"""Whether what a replica says is of the disk that counted, whole. Pure, without Django: the rows (sampling.py), the promises
(promotion/fencing.py) and the simulation (tests/sim/control_plane.py) go by it.

A disk can be replaced, put back, or rolled back to a copy of itself, and its replica knows nothing of that: it may have caught up,
once. Someone else has to say that it holds what the group has acknowledged since: a leader that lives.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqwire.bodies import FollowerStatus, ReplicaStatus

Position = tuple[int, int]  # (last epoch, held offset)


@dataclass(frozen=True, slots=True)
class KnownDisk:
    """What is remembered of a replica's disk: the incarnation of the last one that counted (empty: none was seen yet), and the
    most that it was seen to hold. `is_new`: another was seen in its place since, and no leader has called either of them in sync.
    """

    incarnation: str = ""
    is_new: bool = False
    position: Position | None = None

    def is_other(self, incarnation: str) -> bool:
        """Whether this is not the disk that counted. One of a version that names none is taken for it."""
        return self.is_new or bool(self.incarnation and incarnation and incarnation != self.incarnation)

    def has_lost(self, position: Position) -> bool:
        """Whether the disk that counted held more than this: it lost something, or its log was truncated a moment ago."""
        return self.position is not None and position < self.position


def disk_after(known: KnownDisk, status: ReplicaStatus, leader: ReplicaStatus | None) -> KnownDisk:
    """Return what is remembered after this answer. The first disk that is ever seen counts: in a new group none has held anything
    before; another one, or one that lost something, once the leader says so.
    """
    position = status.log_epoch, status.held_offset
    if leader is not None and is_vouched_for(status, leader):
        return KnownDisk(status.incarnation or known.incarnation, is_new=False, position=position)
    if known.is_other(status.incarnation):
        return KnownDisk(known.incarnation, is_new=True, position=known.position)
    return KnownDisk(known.incarnation or status.incarnation, position=max(known.position or position, position))


def is_vouched_for(status: ReplicaStatus, leader: ReplicaStatus) -> bool:
    """Whether the leader says that the disk which gave this answer is in sync.

    Its word is older than what it has heard: so the answer itself must show all that it takes this replica to hold, and all that is
    confirmed.
    """
    if leader.replica_id == status.replica_id:
        return status.role == "master"
    follower = follower_in(leader, status.replica_id)
    if follower is None or not follower.in_sync or follower.incarnation not in ("", status.incarnation):
        return False
    heard_of = leader.end_offset - follower.gap_bytes
    return (
        status.has_caught_up
        and status.log_epoch == leader.log_epoch
        and status.held_offset >= max(heard_of, leader.confirm_offset)
    )


def follower_in(leader: ReplicaStatus | None, replica_id: int) -> FollowerStatus | None:
    """Return the leader's word on a follower."""
    followers = () if leader is None else leader.followers
    return next((one for one in followers if one.replica_id == replica_id), None)
