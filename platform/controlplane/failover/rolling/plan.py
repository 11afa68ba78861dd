"""What stands against a restart, who is restarted when, and who takes over. Pure: no database, no clock, no sockets."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from controlplane.common.sentences import say
from controlplane.failover.membership.plan import successor as voter_successor
from controlplane.failover.membership.verdict import electorate_of
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, candidates_ranked


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """One daemon, in its turn. `moves_leadership`: it leads now, and hands its role over first. `stops_sends`: without it too few
    are left to take sends, or to confirm them.
    """

    name: str
    address: str
    moves_leadership: bool = False
    stops_sends: bool = False
    alone: bool = False

    @property
    def does(self) -> str:
        """Return what happens, in words."""
        if self.stops_sends and self.alone:
            return say("Restarted. Sends and pulls of its group stop until it is back.")
        if self.stops_sends and self.moves_leadership:
            return say(
                "Hands its leadership over, then is restarted. Until it is back no send of its group is confirmed."
            )
        if self.stops_sends:
            return say("Restarted. Until it is back no send of its group is confirmed: too few replicas are left.")
        if self.moves_leadership:
            return say("Hands its leadership to a follower that has caught up, then is restarted.")
        return say("Restarted; the next one waits until it is back and has caught up.")


def problem_of(view: GroupView) -> str | None:
    """Return why no replica of the group may be taken away now, None when each is level with a leader that takes sends."""
    leader = view.master
    if leader is None:
        return say("%(group)s has no leader right now.", group=view.name)
    if leader.accepts_sends is False:
        return say(
            "Replica %(replica)s of %(group)s leads, but takes no sends: %(refusal)s.",
            replica=leader.replica_id,
            group=view.name,
            refusal=leader.refusal,
        )
    for replica in view.replicas:
        if not replica.answers:
            return say("Replica %(replica)s of %(group)s does not answer.", replica=replica.replica_id, group=view.name)
        if replica is not leader and not replica.in_sync:
            return say(
                "Replica %(replica)s of %(group)s has not caught up.", replica=replica.replica_id, group=view.name
            )
    return None


def in_turn(view: GroupView) -> list[ReplicaView]:
    """Return the replicas in the order of their restarts: the leader last, so that its role moves once."""
    return sorted(view.replicas, key=lambda replica: (replica.leads, replica.replica_id))


def planned(view: GroupView, addresses: dict[int, str]) -> list[PlannedRestart]:
    """Return the restarts of one group. A replica alone has no one to hand its role to."""
    alone = len(view.replicas) == 1
    # Of a group that elects a majority counts, which is left without one of them.
    too_few = alone or (not view.elects and len(view.replicas) - 1 < view.copies_for_certain)
    return [
        PlannedRestart(
            name=view.name if alone else f"{view.name} #{replica.replica_id}",
            address=addresses.get(replica.replica_id, ""),
            moves_leadership=replica.leads and not alone,
            stops_sends=too_few,
            alone=alone,
        )
        for replica in in_turn(view)
    ]


def successor_of(view: GroupView, restarted: Collection[int]) -> int | None:
    """Return who takes over: a follower that has caught up, at best one that was restarted already. None: no one can now."""
    leader = view.master
    if leader is None:
        return None
    if view.elects:
        return voter_successor(view, electorate_of(view), [leader.replica_id])
    able = [replica for replica in candidates_ranked(view) if replica.in_sync]
    chosen: Sequence[ReplicaView] = [one for one in able if one.replica_id in restarted] or able
    return chosen[0].replica_id if chosen else None
