"""When a promotion is safe beside replicas that may still elect. Pure.

In the middle of a change of the mode into or out of dledger some replicas elect while others take an assigned leader. A vote
and a promotion could then make two leaders of one epoch, unless the replicas that may still elect are no majority of the
voters. A replica that no longer elects stays so until a later record of the mode, which only a leader can write; one that
does not answer may still elect.

Replicas that have missed a change of the voters name older ones. These decide nothing where so many hold more than each replica
that names them that it could not win: no one votes for a shorter log (the Raft paper, section 5.4.1), nor does a disk that is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from controlplane.common.sentences import say, say_all, say_count
from highwater.promotion import election_may_be_won

if TYPE_CHECKING:  # the verdict asks this module
    from controlplane.failover.promotion.verdict import GroupView, ReplicaView


def elects_no_more(group: GroupView, replica: ReplicaView) -> bool:
    """Return whether this replica surely votes for no one. While a change hangs, silent ones may have taken any part of it."""
    if replica.quorum is not None or replica.last_seen_at is None:
        return False
    return replica.answers or not group.elections_in_doubt


def promotion_refusal(group: GroupView) -> str | None:
    """Return why no one of this group may be promoted or demoted now, with the way out; None when it is safe."""
    if group.elects and not group.elections_in_doubt:
        return say("This group elects its leader itself: transfer the leadership instead (POST …/transfer/).")
    reporting = [replica for replica in group.replicas if replica.quorum is not None]
    if not group.elections_in_doubt and not reporting:
        return None
    rows = {replica.replica_id: replica for replica in group.replicas}
    # By those that answer, else by what the others reported last. Who has no row any more is gone with its disk.
    deciding = [replica for replica in reporting if replica.answers] or reporting
    electorates = {frozenset(one.quorum.voters) for one in deciding if one.quorum is not None} or {frozenset(rows)}
    for voters in sorted(electorates, key=lambda voters: (-len(voters), sorted(voters))):
        present = [rows[replica_id] for replica_id in sorted(voters) if replica_id in rows]
        doubtful = [replica for replica in present if not elects_no_more(group, replica)]
        naming = [one for one in deciding if one.quorum is not None and voters == frozenset(one.quorum.voters)]
        outrun = bool(naming) and all(_lacks_votes(group, one, len(voters), doubtful) for one in naming)
        if election_may_be_won(len(voters), len(doubtful)) and not outrun:
            return _words(group, len(present), doubtful, needed=len(present) - len(voters) // 2)
    return None


def _lacks_votes(group: GroupView, candidate: ReplicaView, voters: int, doubtful: Sequence[ReplicaView]) -> bool:
    """Return whether this replica can win no election, whatever the others do: too many of those that may vote hold more.

    Only where every replica answers and none leads: else logs may have grown or been truncated since. One that is promoted then
    has the others truncate what it lacks, so each that may be has to hold more than this replica as well.
    """
    if group.silent or group.master is not None:
        return False
    if not all(_holds_more(one, candidate) for one in group.replicas if one.quorum is None):
        return False
    return not election_may_be_won(voters, sum(_may_vote_for(candidate, one) for one in doubtful))


def _may_vote_for(candidate: ReplicaView, voter: ReplicaView) -> bool:
    """Whether the voter may give this replica its vote. One whose disk is new gives none before it has caught up with a leader,
    but to found a group, where no log has an epoch.
    """
    if voter is not candidate and candidate.log_epoch and voter.quorum is not None and not voter.quorum.has_caught_up:
        return False
    return not _holds_more(voter, candidate)


def _holds_more(replica: ReplicaView, candidate: ReplicaView) -> bool:
    """Return whether the replica holds, undamaged and as its flush type promises, more than the whole log of the candidate."""
    if (
        not replica.promotable
        or replica.position is None
        or candidate.log_epoch is None
        or candidate.end_offset is None
    ):
        return False
    return replica.position > (candidate.log_epoch, candidate.end_offset)


def _words(group: GroupView, count: int, doubtful: list[ReplicaView], *, needed: int) -> str:
    names = _names([replica.replica_id for replica in doubtful])
    certain = count - len(doubtful)
    silent = [replica.replica_id for replica in doubtful if not replica.answers]
    back = say("bring %(silent)s back, or ", silent=_names(silent)) if silent else ""
    words = say_count(
        "A change of the mode of %(group)s is not finished: %(names)s may still elect a leader. Of %(replicas)s replicas only"
        " %(count)s certainly no longer elects, and %(needed)s must before one may be promoted."
        " Way out: %(back)sretry the change of the mode once a replica leads.",
        "A change of the mode of %(group)s is not finished: %(names)s may still elect a leader. Of %(replicas)s replicas only"
        " %(count)s certainly no longer elect, and %(needed)s must before one may be promoted."
        " Way out: %(back)sretry the change of the mode once a replica leads.",
        certain,
        group=group.name,
        names=names,
        replicas=count,
        needed=needed,
        back=back,
    )
    if not silent or not group.elections_in_doubt:
        return words
    gone = say(
        "Only if the disks of %(silent)s are gone for good: recover the group from lost disks.", silent=_names(silent)
    )
    return say_all(words, gone)


def _names(replica_ids: list[int]) -> str:
    if len(replica_ids) == 1:
        return say("replica %(ids)s", ids=replica_ids[0])
    most = ", ".join(map(str, replica_ids[:-1]))
    return say("replicas %(most)s and %(last)s", most=most, last=replica_ids[-1])
