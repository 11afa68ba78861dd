"""The detector: from what the replicas of one group last said to a verdict. Pure: no database, no clock, no sockets.

Which promotion is clean says highwater/promotion.py; here the last samples stand for the promises that a fence will ask for.

Who led last holds all that it acknowledged. So it may lead again although too few answer, if no one can have led since: every
replica that does not answer was down already when it was last seen leading, and has been down from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from controlplane.common.sentences import from_sdk, say, say_count
from controlplane.failover.disks import KnownDisk
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.words import clock, listed, replica_names
from highwater import promotion
from highwater.promotion import Cleanness as Cleanness
from highwater.promotion import FormerLeader, Standing
from mqwire.bodies import QuorumStatus

# A supervisor restarts what crashes within a second or two; samples come each three seconds. Two of them, missed in a
# row, make a dead master.
DEAD_AFTER = timedelta(seconds=2.5)
STALE_AFTER = timedelta(seconds=20)
# Supervisors report ends in whole seconds, rounded down.
_ROUNDED = timedelta(seconds=1)
_MEBIBYTE = 1024 * 1024


class GroupState(StrEnum):
    """NO_MASTER: sends fail until a replica is promoted or the master is back."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    NO_MASTER = "no_master"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica's last sample. Offsets are of the CommitLog, in bytes; None is not known."""

    replica_id: int
    is_placed: bool = True  # it has a port: without one no process of it has ever run
    sampled_at: datetime | None = None
    last_seen_at: datetime | None = None
    unreachable_since: datetime | None = None
    process_ended_at: datetime | None = None
    ran_unseen: bool = False
    role: str = ""
    epoch: int | None = None
    log_epoch: int | None = None
    end_offset: int | None = None
    held_offset: int | None = None
    gap_bytes: int | None = None
    gap_messages: int | None = None
    in_sync: bool | None = None
    accepts_sends: bool | None = None
    refusal: str = ""
    claims: bool | None = None
    promotable: bool | None = None
    not_promotable_because: str = ""
    disk: str = ""  # the incarnation of the last one that counted
    disk_is_new: bool = False
    disk_epoch: int | None = None  # with disk_offset: the most that it was seen to hold
    disk_offset: int | None = None
    log_may_be_incomplete: bool = False
    shows_below: bool = False
    led_last_epoch: bool = False
    surely_held_by: int | None = None  # what is acknowledged, by its mode
    follower_ids: Sequence[int] = ()  # when it was last seen leading
    in_sync_epoch: int | None = None
    in_sync_until: datetime | None = None
    quorum: QuorumStatus | None = None

    @property
    def answers(self) -> bool:
        return self.last_seen_at is not None and self.unreachable_since is None

    @property
    def leads(self) -> bool:
        return self.answers and self.role == "master"

    @property
    def cannot_serve(self) -> bool:
        """Whether it leads in name only: its log is damaged or its disk failed, and it takes no message before a restart or a
        repair. Too few followers in sync, a full disk or a switchover end by themselves.
        """
        return self.leads and self.accepts_sends is False and self.promotable is False

    @property
    def position(self) -> tuple[int, int] | None:
        """What candidates are compared by: (last epoch, held offset)."""
        if self.log_epoch is None or self.held_offset is None:
            return None
        return self.log_epoch, self.held_offset

    @property
    def known_disk(self) -> KnownDisk:
        """What is remembered of its disk."""
        noted = self.disk_epoch, self.disk_offset
        position = None if noted[0] is None or noted[1] is None else (noted[0], noted[1])
        return KnownDisk(self.disk, self.disk_is_new, position)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group. `leader_id` is who was last seen leading: at `led_at`, in `led_epoch`, with its log to `led_to_offset`.
    `asked_id` is who was last asked to lead, in `asked_epoch`, whether it answered or not. `epoch` is the row's: the newest that
    was reserved or seen led in; `foreign_epoch` the newest of which it is not known who led in it, if anyone: a promotion by hand
    or a restarted group had asked for it, or one of ours had asked another replica to lead, unseen. `in_sync_replicas` is what the
    cluster's mode promises: see `copies_for_certain`.

    One that `elects` its leader, by its cluster's row, is judged by membership/verdict.py. `elections_in_doubt`: a change of the
    mode into or out of dledger has begun and is not completed, so that any part of the replicas may elect.
    """

    name: str
    in_sync_replicas: int
    replicas: Sequence[ReplicaView]
    elects: bool = False
    elections_in_doubt: bool = False
    leader_id: int | None = None
    led_at: datetime | None = None
    led_epoch: int | None = None
    led_to_offset: int | None = None
    asked_id: int | None = None
    asked_epoch: int | None = None
    foreign_epoch: int | None = None
    epoch: int = 0

    def placed(self) -> "GroupView":
        """Return the group without replicas that have never had a port: they hold nothing, promise nothing and can't lead."""
        return replace(self, replicas=[replica for replica in self.replicas if replica.is_placed])

    def replica(self, replica_id: int | None) -> ReplicaView | None:
        """Return the replica of this id."""
        return next((replica for replica in self.replicas if replica.replica_id == replica_id), None)

    @property
    def master(self) -> ReplicaView | None:
        """Who leads now: of several, which a fence will soon end, the one in the highest epoch."""
        leading = [replica for replica in self.replicas if replica.leads]
        return max(leading, key=lambda replica: replica.epoch or 0, default=None)

    @property
    def former_master(self) -> ReplicaView | None:
        """Who leads, or led last."""
        return self.master or self.replica(self.leader_id)

    @property
    def copies_for_certain(self) -> int:
        """On how many replicas an acknowledged record surely is: by the cluster's mode, or fewer by the word of one that answers or
        led last. By hand, or by its file, a group may act by another mode, or by minInSyncReplicas.
        """
        former = self.former_master
        heard = [one.surely_held_by for one in self.replicas if one.answers or one is former]
        return min([self.in_sync_replicas, *(one for one in heard if one is not None)])

    @property
    def replica_ids(self) -> list[int]:
        """All that an acknowledged record may be on: also who followed the leader, and has no row."""
        former = self.former_master
        ids = {one.replica_id for one in self.replicas}
        return sorted(ids if former is None else ids.union(former.follower_ids))

    @property
    def silent(self) -> list[ReplicaView]:
        """Those that do not answer."""
        return [replica for replica in self.replicas if not replica.answers]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sentences` say in words what is wrong and what can be done; one that says all is well when it is.

    `candidates` are those that could be promoted, best first; `cleanness` is of promoting the first. `repeats` says that
    this one led last, was restarted, and asks in vain: a promotion that has it lead again changes no master.
    """

    state: GroupState
    sentences: tuple[str, ...]
    master_id: int | None = None
    master_dead_since: datetime | None = None
    candidates: tuple[int, ...] = ()
    cleanness: Cleanness | None = None
    repeats: bool = False


def judge(group: GroupView, now: datetime) -> Verdict:
    """Return the verdict on one group."""
    group = group.placed()
    samples = [replica.sampled_at for replica in group.replicas if replica.sampled_at is not None]
    if len(samples) < len(group.replicas) or now - max(samples, default=now) > STALE_AFTER:
        return Verdict(GroupState.UNKNOWN, (say("There is no recent data about %(group)s.", group=group.name),))
    master = group.master
    refusal = promotion_refusal(group)
    candidates = () if refusal else tuple(replica.replica_id for replica in candidates_ranked(group))
    if master is not None and not master.cannot_serve:
        return _with_master(group, master, candidates)
    former = master or group.replica(group.leader_id)
    since = None if former is None else former.process_ended_at or former.unreachable_since
    who = (
        say("A master")
        if former is None
        else say("Replica %(replica_id)s, the master of %(group)s,", replica_id=former.replica_id, group=group.name)
    )
    if former is not None and not former.answers and since is not None and not is_dead(former, now):
        sentence = say("%(who)s has not answered since %(since)s.", who=who, since=clock(since))
        return Verdict(GroupState.DEGRADED, (sentence,), candidates=candidates)
    if former is not None and former.answers and former.claims:
        if group.silent and not all(is_dead(replica, now) for replica in group.silent):
            sentence = say("%(who)s was restarted and is asking the others whether it may lead again.", who=who)
            return Verdict(GroupState.DEGRADED, (sentence,), candidates=candidates)
        first = say(
            "%(who)s was restarted and does not lead yet. Sends fail. %(group)s", who=who, group=claim_words(group)
        )
        since = group.led_at
    elif former is not None and former.cannot_serve:
        why = former.not_promotable_because or former.refusal or say("it gives no reason")
        first = say("%(who)s takes no messages: %(why)s. Sends fail.", who=who, why=why)
    elif former is None or former.answers:
        first = say("%(group)s has no master. Sends fail.", group=group.name)
    else:
        first = say(
            "%(group)s has had no master since %(since)s: replica %(replica_id)s is down. Sends fail.",
            group=group.name,
            since=clock(since),
            replica_id=former.replica_id,
        )
    readable = [replica.replica_id for replica in group.replicas if replica.answers]
    reads = (
        say("Reads continue from %(readable)s.", readable=replica_names(readable))
        if readable
        else say("No replica answers, so nothing can be read either.")
    )
    if not candidates:
        sentences = (first, reads, refusal) if refusal else (first, reads)
        return Verdict(GroupState.NO_MASTER, sentences, master_dead_since=since)
    cleanness = cleanness_of(group, candidates[0])
    best = group.replica(candidates[0])
    repeats = bool(best is not None and best is former and best.claims and group.silent)
    if repeats and cleanness.clean:
        offer = say(
            "Replica %(candidates)s is asked to lead again within seconds: %(because)s",
            candidates=candidates[0],
            because=cleanness.because,
        )
    else:
        offer = say(
            "Replica %(candidates)s can be promoted: %(because)s", candidates=candidates[0], because=cleanness.because
        )
    return Verdict(GroupState.NO_MASTER, (first, reads, offer), None, since, candidates, cleanness, repeats)


def is_dead(replica: ReplicaView, now: datetime) -> bool:
    """Whether a replica is away for so long that it is not waited for: its supervisor has had the time to restart it."""
    if replica.answers or replica.unreachable_since is None:
        return False
    return now - replica.unreachable_since >= DEAD_AFTER


def candidates_ranked(group: GroupView) -> list[ReplicaView]:
    """Return who answers, may be promoted, no longer elects and does not lead; by (last epoch, held offset), then who led
    last, then by replica id.
    """
    able = [
        replica
        for replica in group.replicas
        if replica.answers and not replica.leads and replica.promotable and replica.position is not None
        if replica.quorum is None
    ]
    return sorted(
        able,
        key=lambda replica: (
            *(-part for part in replica.position or (0, 0)),
            replica.replica_id != group.leader_id,
            replica.replica_id,
        ),
    )


def cleanness_of(group: GroupView, candidate_id: int) -> Cleanness:
    """Return whether promoting this replica is clean, given that the fence finds everyone as the last samples did."""
    candidate, former = group.replica(candidate_id), group.former_master
    answers = {one.replica_id: one for replica in group.replicas if (one := standing_of(replica)) is not None}
    if candidate is None or candidate_id not in answers:
        return Cleanness(
            False,
            say(
                "replica %(candidate_id)s does not answer, so that no one knows what it holds.",
                candidate_id=candidate_id,
            ),
        )
    rule = promotion_group(group)
    cleanness = in_sentences(promotion.cleanness_of(rule, answers, candidate_id, at_risk=at_risk(candidate, former)))
    counted = promotion.counting(rule, answers)
    if candidate is not former or candidate_id not in counted or len(counted) >= rule.needed:
        return cleanness
    if any(one.position > counted[candidate_id].position for one in counted.values()):
        return cleanness
    return _led_last(group, candidate)


def in_sentences(cleanness: Cleanness) -> Cleanness:
    """Return the same with its reason as a sentence that a page can translate."""
    return replace(cleanness, because=from_sdk(cleanness.because))


def promotion_group(group: GroupView, *, led_in_this_operation: bool = False) -> promotion.Group:
    """Return the group as the rule wants it. `led_in_this_operation`: who led last was seen leading since it began."""
    former = group.former_master
    led_last = None
    if former is not None:
        own = former.replica_id == group.leader_id
        ended_at = None if former.answers else former.process_ended_at
        # A fence ends its leadership first: now, as far as a forecast goes. After the fence it does not lead when asked.
        if ended_at is None:
            ended_at = max((one.sampled_at for one in group.replicas if one.sampled_at is not None), default=None)
        led_last = FormerLeader(
            replica_id=former.replica_id,
            epoch=group.led_epoch if own else former.epoch,
            end_offset=group.led_to_offset if own else None,
            no_one_since=led_in_this_operation or former.leads or no_one_led_since(group, former),
            ended_at_s=None if ended_at is None else (ended_at + _ROUNDED).timestamp(),
        )
    may_have_led = {one.replica_id: one.log_epoch for one in group.replicas if one.log_epoch is not None}
    if group.asked_id is not None:
        may_have_led[group.asked_id] = max(may_have_led.get(group.asked_id, 0), group.asked_epoch or 0)
    if (foreign := foreign_epoch(group)) is not None:
        may_have_led |= {replica_id: max(may_have_led.get(replica_id, 0), foreign) for replica_id in group.replica_ids}
    return promotion.Group(
        replica_ids=group.replica_ids,
        in_sync_replicas=group.copies_for_certain,
        former=led_last,
        may_have_led=may_have_led,
    )


def foreign_epoch(group: GroupView) -> int | None:
    """Return the newest epoch that any replica has heard of and the group's row has not; else what the row noted of such a one."""
    unknown = [one.epoch for one in group.replicas if one.epoch is not None and one.epoch > group.epoch]
    return max(unknown, default=group.foreign_epoch)


def standing_of(replica: ReplicaView) -> Standing | None:
    """Return what a replica says of itself; None while it does not answer."""
    if not replica.answers or replica.log_epoch is None or replica.held_offset is None:
        return None
    return Standing(
        replica_id=replica.replica_id,
        epoch=replica.epoch or 0,
        log_epoch=replica.log_epoch,
        held_offset=replica.held_offset,
        end_offset=replica.end_offset or 0,
        leads=replica.leads,
        promotable=replica.promotable is True,
        elects=replica.quorum is not None,
        disk_is_new=replica.disk_is_new,
        log_may_be_incomplete=replica.log_may_be_incomplete,
        shows_below=replica.shows_below,
        led_last_epoch=replica.led_last_epoch,
        in_sync_epoch=replica.in_sync_epoch,
        in_sync_until_s=None if replica.in_sync_until is None else replica.in_sync_until.timestamp(),
    )


def no_one_led_since(group: GroupView, former: ReplicaView) -> bool:
    """Whether no one can have led after the last leader was last seen leading."""
    in_doubt = [one for one in group.silent if one is not former and not was_down_all_along(group, one)]
    highest = max((one.log_epoch for one in group.replicas if one.log_epoch is not None), default=None)
    return not in_doubt and highest is not None and highest == former.log_epoch == group.led_epoch


def was_down_all_along(group: GroupView, replica: ReplicaView) -> bool:
    """Whether this replica's process had ended when the leader was last seen leading, and has neither run nor answered since."""
    ended, silent = replica.process_ended_at, replica.unreachable_since
    if replica.answers or replica.ran_unseen or ended is None or silent is None or group.led_at is None:
        return False
    return ended + _ROUNDED < group.led_at and silent <= group.led_at


def _led_last(group: GroupView, candidate: ReplicaView) -> Cleanness:
    """Whether the last leader loses nothing when it leads again, though too few others answer; none of them holds more."""
    name = say("replica %(replica_id)s", replica_id=candidate.replica_id)
    if no_one_led_since(group, candidate):
        silent = [replica.replica_id for replica in group.silent]
        return Cleanness(
            True,
            say(
                "%(name)s led last, and %(silent)s has been down since before: no other replica has taken anything.",
                name=name,
                silent=replica_names(silent),
            )
            if len(silent) == 1
            else say(
                "%(name)s led last, and %(silent)s have been down since before: no other replica has taken anything.",
                name=name,
                silent=replica_names(silent),
            ),
            0,
            0,
        )
    in_doubt = [replica for replica in group.silent if not was_down_all_along(group, replica)]
    others = replica_names([replica.replica_id for replica in in_doubt or group.silent])
    since = "" if group.led_at is None else say(" after %(led_at)s", led_at=clock(group.led_at))
    return Cleanness(
        False,
        say(
            "%(name)s has what it acknowledged itself; what %(others)s took as master%(since)s, if"
            " promoted meanwhile, would be lost. That can't be known while %(others)s does not answer.",
            name=name,
            others=others,
            since=since,
        ),
    )


def claim_words(group: GroupView) -> str:
    """Why a restarted leader does not lead."""
    if not group.silent:
        return say("It leads again when every replica agrees; one whose log goes further does not.")
    away = listed(
        [
            say(
                "replica %(replica_id)s since %(time)s",
                replica_id=replica.replica_id,
                time=clock(replica.unreachable_since),
            )
            for replica in group.silent
        ],
        comma=True,
    )
    return say("It leads again when every replica agrees, but some do not answer: %(away)s.", away=away)


def _with_master(group: GroupView, master: ReplicaView, candidates: tuple[int, ...]) -> Verdict:
    sentences: list[str] = []
    if master.accepts_sends is False:
        sentences.append(
            say(
                "The master of %(group)s refuses sends: %(refusal)s.",
                group=group.name,
                refusal=master.refusal or say("it gives no reason"),
            )
        )
    for replica in group.replicas:
        if replica is master:
            continue
        if not replica.answers:
            since = (
                say(" since %(unreachable_since)s", unreachable_since=clock(replica.unreachable_since))
                if replica.unreachable_since
                else ""
            )
            sentences.append(
                say(
                    "Replica %(replica_id)s of %(group)s has not answered%(since)s.",
                    replica_id=replica.replica_id,
                    group=group.name,
                    since=since,
                )
            )
        elif replica.leads:
            sentences.append(
                say(
                    "Replica %(replica_id)s of %(group)s still considers itself master. It is fenced.",
                    replica_id=replica.replica_id,
                    group=group.name,
                )
            )
        elif not replica.in_sync:
            behind = (
                ""
                if replica.gap_bytes is None
                else say(": %(gap_bytes)s behind", gap_bytes=bytes_words(replica.gap_bytes))
            )
            sentences.append(
                say(
                    "Replica %(replica_id)s of %(group)s is not in sync%(behind)s.",
                    replica_id=replica.replica_id,
                    group=group.name,
                    behind=behind,
                )
            )
    in_sync = 1 + sum(
        replica.answers and replica.in_sync is True for replica in group.replicas if replica is not master
    )
    if in_sync < group.copies_for_certain:
        sentences.append(say("Sends are stored, but answered SLAVE_NOT_AVAILABLE until a slave is in sync again."))
    if sentences:
        return Verdict(GroupState.DEGRADED, tuple(sentences), master.replica_id, candidates=candidates)
    slaves = len(group.replicas) - 1
    if slaves:
        sentence = say_count(
            "%(group)s: replica %(replica_id)s leads, and %(count)s slave is in sync.",
            "%(group)s: replica %(replica_id)s leads, and %(count)s slaves are in sync.",
            slaves,
            group=group.name,
            replica_id=master.replica_id,
        )
    else:
        sentence = say("%(group)s: replica %(replica_id)s leads.", group=group.name, replica_id=master.replica_id)
    return Verdict(GroupState.HEALTHY, (sentence,), master.replica_id, candidates=candidates)


def bytes_words(count: int) -> str:
    """Return an amount of the log for a sentence."""
    return say("%(count)s bytes", count=count) if count < _MEBIBYTE else f"{count / _MEBIBYTE:.1f} MiB"


def at_risk(candidate: ReplicaView, former: ReplicaView | None) -> tuple[int | None, int | None]:
    """Return the bytes and messages that the candidate lacks of the old master's log, as far as is known; None: unknown."""
    if former is None or former.replica_id == candidate.replica_id:
        return 0, 0
    if former.end_offset is None or candidate.held_offset is None:
        return None, None
    if former.disk_is_new or former.log_may_be_incomplete:
        return None, None  # it does not hold any more what it acknowledged
    lost_bytes = max(0, former.end_offset - candidate.held_offset)
    if lost_bytes == 0:
        return 0, 0
    # The master counted them when it was last asked; if the candidate has more by now, that was too many.
    return lost_bytes, candidate.gap_messages or None
