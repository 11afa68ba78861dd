"""The detector's word on a group that elects its leader: who leads, who counts, who is away, and what that means. Pure.

No one has to do anything: the group decides, so that there are no candidates and no cleanness. What a majority of
the voters holds is confirmed, and stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controlplane.common.sentences import say, say_count
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import (
    STALE_AFTER,
    GroupState,
    GroupView,
    ReplicaView,
    Verdict,
    bytes_words,
    judge,
)
from controlplane.failover.words import replica_names

# An election takes a second or three: only one that takes longer is worth its reasons.
_LONG_ELECTION = timedelta(seconds=10)
LAST_MOMENT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Electorate:
    """Who counts, as far as any replica has reported: by the leader, else by the replica in the highest epoch.

    `voters` is empty when none ever reported; `reported_now` is False when the only report is older than the last sample.
    """

    voters: tuple[int, ...] = ()
    observers: tuple[int, ...] = ()
    preferred_leader: int | None = None
    change_pending: bool = False
    transferring_to: int | None = None
    reported_now: bool = False

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1


def electorate_of(group: GroupView) -> Electorate:
    """Return who counts in the group."""
    reporting = [replica for replica in group.replicas if replica.quorum is not None]
    if not reporting:
        return Electorate()
    master = group.master
    # In the middle of a change of the mode the leader may be an assigned one already.
    best = master if master in reporting else max(reporting, key=lambda replica: (replica.answers, replica.epoch or 0))
    if best.quorum is None:
        return Electorate()
    quorum = best.quorum
    rows = {replica.replica_id for replica in group.replicas}
    return Electorate(
        voters=tuple(sorted(quorum.voters)),
        # Leaders remember for good whom they ever saw: only those that still exist are shown.
        observers=tuple(sorted(rows.difference(quorum.voters))),
        preferred_leader=quorum.preferred_leader,
        change_pending=quorum.change_pending,
        transferring_to=quorum.transferring_to,
        reported_now=best.answers,
    )


def keeps_up(replica: ReplicaView) -> bool:
    """Whether a follower has caught up but for the last moment. Its leader calls it in sync only while it holds all that is
    confirmed, which under load the slower of two followers hardly ever does.
    """
    return replica.answers and (
        replica.in_sync is True or (replica.gap_bytes is not None and replica.gap_bytes <= LAST_MOMENT_BYTES)
    )


def verdict_of(group: GroupView, now: datetime) -> Verdict:
    """Return the verdict on any group: in the middle of a change of its mode its leader is assigned once that is safe."""
    refusal = promotion_refusal(group)
    if not group.elects or refusal is None:
        return judge(group, now)
    verdict = judge_elected(group, now)
    if group.elections_in_doubt and verdict.state == GroupState.NO_MASTER:
        return replace(verdict, sentences=(*verdict.sentences, refusal))
    return verdict


def judge_elected(group: GroupView, now: datetime) -> Verdict:
    """Return the verdict on one group that elects its leader."""
    samples = [replica.sampled_at for replica in group.replicas if replica.sampled_at is not None]
    if not samples or now - max(samples) > STALE_AFTER:
        return Verdict(GroupState.UNKNOWN, (say("There is no recent data about %(group)s.", group=group.name),))
    electorate = electorate_of(group)
    if not electorate.voters:
        return Verdict(
            GroupState.NO_MASTER,
            (say("No replica of %(group)s has answered yet, so its voters are not known.", group=group.name),),
        )
    silent = [replica_id for replica_id in electorate.voters if not _answers(group, replica_id)]
    leader = group.master
    if leader is not None and leader.accepts_sends is not False:
        return _writable(group, leader, electorate, silent)
    return _refusing(group, leader, electorate, silent, now)


def _writable(group: GroupView, leader: ReplicaView, electorate: Electorate, silent: Sequence[int]) -> Verdict:
    voters = electorate.voters
    sentences: list[str] = []
    if silent:
        spare = len(voters) - len(silent) - electorate.majority
        left = (
            say("if one more fails, writes are refused") if spare <= 0 else say("%(spare)s more may fail", spare=spare)
        )
        sentences.append(
            say(
                "%(unreachable)s. Writes and reads continue; %(left)s.",
                unreachable=_unreachable(silent, voters),
                left=left,
            )
        )
    sentences += _about_replicas(group, leader, electorate)
    # An observer that catches up, or a change that is being confirmed, is on its way, not wrong.
    troubled = bool(silent) or any(
        replica is not leader and replica.replica_id in voters and not keeps_up(replica) for replica in group.replicas
    )
    if not troubled:
        followers = {2: say("The other voter is in sync"), 3: say("Both followers are in sync")}.get(
            len(voters), say("All %(count)s followers are in sync", count=len(voters) - 1)
        )
        sentences.insert(
            0,
            say(
                "%(group)s: replica %(replica_id)s is the leader (epoch %(epoch)s). %(followers)s.",
                group=group.name,
                replica_id=leader.replica_id,
                epoch=leader.epoch,
                followers=followers,
            ),
        )
    state = GroupState.DEGRADED if troubled else GroupState.HEALTHY
    return Verdict(state, tuple(sentences), leader.replica_id)


def _refusing(
    group: GroupView, leader: ReplicaView | None, electorate: Electorate, silent: Sequence[int], now: datetime
) -> Verdict:
    """No send is taken: no leader, or one that is cut off from the others."""
    voters = electorate.voters
    readable = [replica.replica_id for replica in group.replicas if replica.answers]
    reads = (
        say("reads continue from %(readable)s", readable=replica_names(readable))
        if readable
        else say("nothing can be read either")
    )
    answering = len(voters) - len(silent)
    since = group.led_at if leader is None else None
    sentences: list[str] = []
    if answering < electorate.majority:
        sentences.append(
            say(
                "%(unreachable)s. Writes are refused; %(reads)s.", unreachable=_unreachable(silent, voters), reads=reads
            )
        )
        sentences.append(
            say(
                "Writes resume by themselves once %(majority)s of %(voters)s replicas reach each other."
                " No acknowledged message is lost while the disks of a majority exist.",
                majority=electorate.majority,
                voters=len(voters),
            )
        )
    elif leader is None:
        last_seen = "" if since is None else say(" (last leader seen at %(since)s UTC)", since=f"{since:%H:%M:%S}")
        sentences.append(
            say(
                "%(group)s has no leader: an election is in progress%(since)s. Writes are refused; %(reads)s.",
                group=group.name,
                since=last_seen,
                reads=reads,
            )
        )
        if since is not None and now - since > _LONG_ELECTION:
            sentences.append(
                say(
                    "%(answering)s of %(voters)s voters answer, but they may not reach each other: an"
                    " election should have ended by now.",
                    answering=answering,
                    voters=len(voters),
                )
            )
    elif leader.quorum is not None and leader.quorum.transferring_to is not None:
        sentences.append(
            say(
                "Replica %(replica_id)s of %(group)s is handing the leadership to replica"
                " %(transferring_to)s. Sends are refused for a moment; %(reads)s.",
                replica_id=leader.replica_id,
                group=group.name,
                transferring_to=leader.quorum.transferring_to,
                reads=reads,
            )
        )
    else:
        sentences.append(
            say(
                "Replica %(replica_id)s of %(group)s is the leader but refuses sends (%(refusal)s); %(reads)s.",
                replica_id=leader.replica_id,
                group=group.name,
                refusal=leader.refusal or say("it gives no reason"),
                reads=reads,
            )
        )
    sentences += _about_replicas(group, leader, electorate)
    moving = leader is not None and leader.quorum is not None and leader.quorum.transferring_to is not None
    state = GroupState.DEGRADED if moving and answering >= electorate.majority else GroupState.NO_MASTER
    return Verdict(
        state, tuple(sentences), None if leader is None else leader.replica_id, None if leader is not None else since
    )


def _about_replicas(group: GroupView, leader: ReplicaView | None, electorate: Electorate) -> list[str]:
    sentences: list[str] = []
    for replica in group.replicas:
        if replica is leader:
            continue
        name = say("Replica %(replica_id)s", replica_id=replica.replica_id)
        if not replica.answers:
            since = (
                say(" since %(unreachable_since)s UTC", unreachable_since=f"{replica.unreachable_since:%H:%M:%S}")
                if replica.unreachable_since
                else ""
            )
            sentences.append(say("%(name)s has not answered%(since)s.", name=name, since=since))
            continue
        quorum = replica.quorum
        if replica.leads:
            sentences.append(
                say(
                    "%(name)s still considers itself leader of epoch %(epoch)s. It can confirm nothing, and"
                    " will step down.",
                    name=name,
                    epoch=replica.epoch,
                )
            )
        elif quorum is not None and quorum.not_electable_because:
            sentences.append(
                say(
                    "%(name)s neither votes nor leads: %(not_electable_because)s.",
                    name=name,
                    not_electable_because=quorum.not_electable_because,
                )
            )
        elif leader is not None and replica.replica_id in electorate.observers:
            sentences.append(
                say("%(name)s is an observer without a vote: %(replica)s.", name=name, replica=_behind(replica))
            )
        elif leader is not None and replica.in_sync is False and not keeps_up(replica):
            sentences.append(say("%(name)s is %(replica)s.", name=name, replica=_behind(replica)))
        elif leader is not None and replica.in_sync is None:
            sentences.append(say("%(name)s answers, but does not pull from the leader.", name=name))
    if electorate.change_pending:
        sentences.append(say("A change of the voters is not confirmed by a majority yet."))
    return sentences


def _behind(replica: ReplicaView) -> str:
    if replica.gap_bytes is None:
        return say("behind by an unknown amount")
    if replica.gap_bytes == 0:
        return say("caught up")
    size = bytes_words(replica.gap_bytes)
    if replica.gap_messages is None:
        return say("%(size)s behind", size=size)
    return say("%(size)s and %(messages)s messages behind", size=size, messages=replica.gap_messages)


def _answers(group: GroupView, replica_id: int) -> bool:
    replica = group.replica(replica_id)
    return replica is not None and replica.answers


def _unreachable(silent: Sequence[int], voters: Sequence[int]) -> str:
    return say_count(
        "%(count)s of %(voters)s replicas is unreachable",
        "%(count)s of %(voters)s replicas are unreachable",
        len(silent),
        voters=len(voters),
    )
