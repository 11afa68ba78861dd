"""Which promotion loses nothing, and the order of one. Pure: no sockets, rows or clock.

One place for the rule of replication.md, "Assigned leadership". The control plane's steps
(controlplane/failover/promotion/order.py, which the simulation executes, too) and `highwater admin promote` decide by it, in
this order:

1. `ballot_above`: two epochs above all that anyone has seen; a caller with a row reserves both in it by compare-and-set. One
   without a row draws others (`ballot_drawn`).
2. Every replica is asked to promise `Ballot.fence` (REPLICA_DEMOTE, naming no leader). A replica that promised takes nothing
   older and follows no one; the promise is durable before it is answered. `promises_in` says which answers are promises.
3. A replica that may lead and did not answer is stopped, where someone can stop it.
4. `decide`: who leads, by what the promises say. Decided once: a repeated step goes by what was written down.
5. REPLICA_PROMOTE, from `Ballot.fence` to `Ballot.epoch`: refused by a replica that has promised anything newer since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from highwater.sentences import Sentence, say, say_count
from mqwire.bodies import ReplicaStatus

# Epochs are numbered by four: the fence and the epoch of a ballot that is reserved, then those of one that is drawn. So no one's
# fence is ever the epoch in which another's leader leads: who promised it would follow that leader, in spite of the promise.
_EPOCHS = 4
_DRAWN_FROM = (
    1 << 16
)  # two who draw at once may both find enough promises of one fence, and have two leaders in its epoch


@dataclass(frozen=True, slots=True)
class Ballot:
    """The epoch that replicas promise, and the one that the promoted replica leads in."""

    fence: int
    epoch: int


def ballot_above(seen: Iterable[int]) -> Ballot:
    """Return the ballot of one who reserves it in a row: of the first two epochs of four."""
    highest = max(seen, default=0)
    fence = highest + _EPOCHS - highest % _EPOCHS
    return Ballot(fence, fence + 1)


def ballot_drawn(seen: Iterable[int], random: Random) -> Ballot:
    """Return the ballot of one who has no row to reserve it in: of the last two epochs of four, and drawn, so that two at once
    hardly have the same.
    """
    fence = ballot_above(seen).fence + 2 + _EPOCHS * random.randrange(_DRAWN_FROM)
    return Ballot(fence, fence + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What one replica says of itself. Offsets are of the CommitLog, in bytes.

    `disk_is_new`: its disk took the place of one that counted, and has not caught up since; what that one held is gone.
    `log_may_be_incomplete`: its disk lost or damaged what may have counted, and it has not caught up since.
    `shows_below`: leaders show readers what too few hold, while too few are in sync. `led_last_epoch`: it led in its log's last
    epoch, and holds all that it has shown in that. Until `in_sync_until_s`, by the caller's
    clock, the leader of `in_sync_epoch` has shown no one anything that this replica does not hold. `incarnation`: of its disk.
    """

    replica_id: int
    epoch: int
    log_epoch: int
    held_offset: int
    end_offset: int
    leads: bool = False
    promotable: bool = True
    elects: bool = False
    disk_is_new: bool = False
    log_may_be_incomplete: bool = False
    shows_below: bool = False
    led_last_epoch: bool = False
    in_sync_epoch: int | None = None
    in_sync_until_s: float | None = None
    incarnation: str = ""

    @property
    def position(self) -> tuple[int, int]:
        """What candidates are compared by: (last epoch, held offset)."""
        return self.log_epoch, self.held_offset

    @classmethod
    def of(cls, status: ReplicaStatus, asked_at_s: float | None = None) -> Standing:
        """`asked_at_s`: when it was asked, by the caller's clock."""
        lease_ms = None if asked_at_s is None else status.in_sync_for_ms
        return cls(
            replica_id=status.replica_id,
            epoch=status.epoch,
            log_epoch=status.log_epoch,
            held_offset=status.held_offset,
            end_offset=status.end_offset,
            leads=status.role == "master",
            promotable=status.promotable,
            elects=status.quorum is not None,
            disk_is_new=not status.has_caught_up,
            log_may_be_incomplete=status.log_may_be_incomplete,
            shows_below=status.shows_below,
            led_last_epoch=status.led_last_epoch,
            in_sync_epoch=status.in_sync_epoch,
            in_sync_until_s=None if lease_ms is None or asked_at_s is None else asked_at_s + lease_ms / 1000,
            incarnation=status.incarnation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerLeader:
    """Who led last, as far as is known: its log went to `end_offset` of `epoch` when it was last asked.

    `no_one_since`: no one else can have led after it, so that it holds all that was ever acknowledged. `ended_at_s`: its process
    had surely ended by then, by the caller's clock. `last_word`: what it said when it led no more, where it can't have led since.
    """

    replica_id: int
    epoch: int | None = None
    end_offset: int | None = None
    no_one_since: bool = False
    ended_at_s: float | None = None
    last_word: Standing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group whose leader is assigned: all its replicas, whether they answer or not, and on how many an acknowledged record is.

    `may_have_led`: replica id -> the newest epoch that its log was ever seen to have, or that it was asked to lead in: its answer
    may have been lost, and it may have led unseen.
    """

    replica_ids: Collection[int]
    in_sync_replicas: int
    former: FormerLeader | None = None
    may_have_led: Mapping[int, int] = field(default_factory=dict)

    @property
    def needed(self) -> int:
        """How many must answer, for one of them to hold everything that was acknowledged."""
        return len(self.replica_ids) - self.in_sync_replicas + 1


@dataclass(frozen=True, slots=True)
class Cleanness:
    """Whether a promotion loses nothing that was acknowledged, and why: a sentence of this module (sentences.py).

    What is at risk lies between the candidate's end and the last end that the master reported; None when it is unknown.
    """

    clean: bool
    because: str
    bytes_at_risk: int | None = None
    messages_at_risk: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Who leads in the ballot's epoch; None: no one is to. `gives_back`: the former leader, for the wish was not clean.
    `may_lack`: a disk has lost what counted, perhaps, and the one that leads is not known to have it.
    """

    leader_id: int | None
    cleanness: Cleanness
    gives_back: bool = False
    may_lack: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """Whether a group that elects its leader may go on without the voters that are `lost`; if so, what that may cost.

    `problem` forbids it. `loss` is what an operator must agree to, empty where the replica does not answer. `survivors` are the
    only voters afterwards.
    """

    lost: tuple[int, ...]
    survivors: tuple[int, ...]
    problem: str | None
    loss: str


def judge_recovery(voters: Collection[int], answers: Mapping[int, Standing], wanted_id: int) -> Recovery:
    """Return what it means that `wanted_id` leads by an operator's word: every voter that does not answer with a disk that
    counted is lost for good.

    An acknowledged record is on a majority of the voters. Where a majority is lost, it may have been on lost ones alone: no
    promise can rule that out, so there is no clean recovery. The replica that holds most is the only one that may lead. Of a
    majority that is left one log may be incomplete, so that it elects no one: after a minute the brokers allow it, too.
    """
    counted = {key: one for key, one in answers.items() if key in voters and not one.disk_is_new}
    lost = tuple(sorted(set(voters) - counted.keys()))
    survivors = tuple(sorted(counted))
    best = max(counted.values(), key=lambda one: one.position, default=None)
    wanted = counted.get(wanted_id)
    problem = None
    may_be_stranded = bool(lost) and any(one.log_may_be_incomplete for one in counted.values())
    if len(counted) > len(voters) // 2 and not may_be_stranded:
        problem = say_count(
            "%(names)s answers with the disks that counted, a majority of %(all)s voters: they elect a leader by themselves.",
            "%(names)s answer with the disks that counted, a majority of %(all)s voters: they elect a leader by themselves.",
            len(survivors),
            names=_capital_names(survivors),
            all=len(voters),
        )
    elif wanted is None or best is None:
        problem = say("%(name)s does not answer, or is no voter whose disk counted.", name=_capital_names([wanted_id]))
    elif best.position > wanted.position:
        problem = say(
            "%(best)s holds more than %(name)s does: recover with that one.",
            best=_capital_names([best.replica_id]),
            name=_names([wanted_id]),
        )
    elif not wanted.promotable:
        problem = say("%(name)s says that it must not lead.", name=_capital_names([wanted_id]))
    loss = "" if wanted is None else _recovery_loss(lost, len(voters), wanted)
    return Recovery(lost, survivors, problem, loss)


def _recovery_loss(lost: Sequence[int], voters: int, wanted: Standing) -> Sentence:
    return say_count(
        "%(names)s of %(all)s voters is given up for good. Whatever was acknowledged and is not in the log of %(name)s, which"
        " ends at %(place)s, is lost, and how much that is can't be known. Stop each that is given up, and never let it run again"
        " with its old disk: it could lead a group of its own.",
        "%(names)s of %(all)s voters are given up for good. Whatever was acknowledged and is not in the log of %(name)s, which"
        " ends at %(place)s, is lost, and how much that is can't be known. Stop each that is given up, and never let it run again"
        " with its old disk: it could lead a group of its own.",
        len(lost),
        names=_capital_names(lost),
        all=voters,
        name=_names([wanted.replica_id]),
        place=_place(wanted),
    )


def promises_in(answers: Iterable[Standing], ballot: Ballot) -> dict[int, Standing]:
    """Return those of the answers to the fence that are promises, by replica id."""
    return {one.replica_id: one for one in answers if one.epoch == ballot.fence and not one.leads and not one.elects}


def counting(group: Group, answers: Mapping[int, Standing]) -> dict[int, Standing]:
    """Return those of the answers that say what the group holds: of its replicas, with disks that have not lost anything."""
    own = {key: one for key, one in answers.items() if key in group.replica_ids}
    return {
        key: one
        for key, one in own.items()
        if not one.disk_is_new and not one.log_may_be_incomplete and not _lost_tail(group, one)
    }


def cleanness_of(
    group: Group,
    answers: Mapping[int, Standing],
    candidate_id: int,
    *,
    at_risk: tuple[int | None, int | None] = (None, None),
) -> Cleanness:
    """Return whether promoting this replica is clean, by what was answered: before the fence a forecast, after it the truth.

    Every acknowledged record is on `in_sync_replicas` of the replicas; so when `group.needed` of them answer, it is on one
    that answers, and so on the one of them with the highest position. Who led last holds all that it acknowledged itself.
    """
    name = _names([candidate_id])
    candidate = answers.get(candidate_id)
    if candidate is None:
        because = say("%(name)s does not answer, so that no one knows what it holds.", name=name)
        return Cleanness(False, because, *at_risk)
    counted, former = counting(group, answers), group.former
    if candidate_id not in counted:
        because = _with_new_disks(_why_not_counted(group, candidate), answers, candidate)
        return Cleanness(False, because, *_more(group, candidate, at_risk))
    best = max(counted.values(), key=lambda one: one.position)
    if best.position > candidate.position:
        because = say(
            "%(best)s holds more than %(name)s does (to %(best_place)s, not %(place)s).",
            best=_names([best.replica_id]),
            name=name,
            best_place=_place(best),
            place=_place(candidate),
        )
        return Cleanness(False, because, *at_risk)
    led_last = _no_one_led_after(former, answers, counted)
    if len(counted) >= group.needed and not led_last and _may_have_shown(group, answers, counted):
        because = say(
            "%(name)s holds everything that was acknowledged, but %(who)s may have shown consumers what no other replica holds:"
            " too few were in sync with it, or no one knows when it ended (minInSyncReplicas lets it go on). Those would be"
            " passed over: their offsets are given to other messages. %(known)s",
            name=name,
            who=say("the old master") if former is None else _names([former.replica_id]),
            known=_shown_words(at_risk),
        )
        return Cleanness(False, because, *at_risk)
    if len(counted) >= group.needed or led_last:
        return Cleanness(True, say("%(name)s holds everything that was acknowledged.", name=name), 0, 0)
    return Cleanness(False, _too_few_answer(group, answers, len(counted)), *at_risk)


def _too_few_answer(group: Group, answers: Mapping[int, Standing], counted: int) -> Sentence:
    takes = (
        say("the old master's answer")
        if group.in_sync_replicas == 1
        else say("answers of %(count)s replicas", count=group.needed)
    )
    new = sorted(key for key, one in answers.items() if one.disk_is_new)
    if new:
        return say_count(
            "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
            " answers (the disk of %(names)s is new, and says nothing).",
            "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
            " answer (the disk of %(names)s is new, and says nothing).",
            counted,
            who=takes,
            all=len(group.replica_ids),
            names=_names(new),
        )
    return say_count(
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answers.",
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answer.",
        counted,
        who=takes,
        all=len(group.replica_ids),
    )


def is_drained(*, end_offset: int, confirm_offset: int, held_offset: int) -> bool:
    """Return whether a master that takes no more sends may hand its role to one that holds its log to `held_offset`.

    What waits for its acknowledgement is drained, too: no sender gets an error for what is kept.
    """
    return held_offset >= end_offset and confirm_offset >= end_offset


def decide(
    group: Group,
    promises: Mapping[int, Standing],
    wanted_id: int,
    *,
    may_lose: bool = False,
    may_choose: bool = True,
    at_risk: tuple[int | None, int | None] = (None, None),
) -> Decision:
    """Return who leads after the fence, by the promises.

    Whom the request named, if that is clean or `may_lose` says that an operator agreed to a loss. Else, so that a fence does
    not leave the group without a leader: who led last, if it promised; else, with `may_choose`, a replica that is clean, or holds
    most where a disk may have lost something and all have promised, each on the disk that counted.
    """
    cleanness = cleanness_of(group, promises, wanted_id, at_risk=at_risk)
    wanted = promises.get(wanted_id)
    if wanted is not None and wanted.promotable and (cleanness.clean or may_lose):
        return Decision(wanted_id, cleanness)
    if cleanness.clean and wanted is not None:
        cleanness = Cleanness(False, say("%(name)s must not lead by now.", name=_names([wanted_id])))
    former = group.former
    ranked = ranked_by_position(promises.values(), None if former is None else former.replica_id)
    if former is not None:
        back = promises.get(former.replica_id)
        if back is not None and back.promotable and cleanness_of(group, promises, back.replica_id).clean:
            return Decision(back.replica_id, cleanness, gives_back=True)
    for one in ranked if may_choose and not may_lose else ():
        if one.promotable and (instead := cleanness_of(group, promises, one.replica_id)).clean:
            return Decision(one.replica_id, instead)
    return _best_of_all(group, promises, ranked, wanted_id, may_choose=may_choose) or Decision(None, cleanness)


def _best_of_all(
    group: Group, promises: Mapping[int, Standing], ranked: Sequence[Standing], wanted_id: int, *, may_choose: bool
) -> Decision | None:
    """Return that the replica which holds most leads, where a disk may have lost what counted and every replica promised.

    Nothing that anyone waits for could bring more back, as in an election of all voters (brokerd/replica/voters.py). So it is
    where who led last lacks what it had reported, and the best holds that. A disk that is new is no promise here either: the one
    before it may hold more, and whether that is gone only an operator knows.
    """
    everyone = set(group.replica_ids) == {key for key, one in promises.items() if not one.disk_is_new}
    best = next((one for one in ranked if one.promotable), None)
    if best is None or not everyone:
        return None
    tail_lost = any(_lost_tail(group, one) for one in promises.values()) and _holds_what_was_reported(group, best)
    if not tail_lost and not any(one.log_may_be_incomplete for one in promises.values()):
        return None
    is_former = group.former is not None and group.former.replica_id == best.replica_id
    if not (may_choose or is_former) or any(one.position > best.position for one in promises.values()):
        return None
    # Past the damage of one that can't lead there may be records that were acknowledged: their loss is an operator's to agree to.
    if any((one.log_epoch, one.end_offset) > (best.log_epoch, best.end_offset) for one in promises.values()):
        return None
    because = say(
        "every replica answers, and none holds more than %(name)s; what a failed disk or a power cut has taken from all of them"
        " can't be known.",
        name=_names([best.replica_id]),
    )
    gives_back = is_former and best.replica_id != wanted_id
    return Decision(best.replica_id, Cleanness(False, because), gives_back=gives_back, may_lack=True)


def lacks_an_epoch(group: Group, candidate: Standing, fence: int) -> bool:
    """Whether someone may have led in an epoch below the fence of which the candidate's log has nothing.

    Where that one's log had left the candidate's no one knows: consumers may have read others in the place of any of its messages.
    """
    led = (0 if group.former is None else group.former.epoch or 0, *group.may_have_led.values())
    return any(candidate.log_epoch < epoch < fence for epoch in led)


def ranked_by_position(standings: Iterable[Standing], former_id: int | None) -> list[Standing]:
    """Return the best candidate first: by (last epoch, held offset), then who led last, then by replica id."""
    return sorted(
        standings,
        key=lambda one: (-one.log_epoch, -one.held_offset, one.replica_id != former_id, one.replica_id),
    )


def election_may_be_won(voters: int, may_elect: int) -> bool:
    """Return whether those of the voters that may still elect could be a majority of them.

    A vote and a promotion could then make two leaders of one epoch: no one is promoted, whatever loss is confirmed.
    """
    return may_elect >= voters // 2 + 1


def electors_in_doubt(statuses: Collection[ReplicaStatus]) -> tuple[int, ...]:
    """Return who may still elect a leader, by what those that answer say, where that could be a majority; else nothing.

    For one who has no rows: a voter of the group's past that does not answer may not have heard that the mode has changed.
    """
    not_electing = {one.replica_id for one in statuses if one.quorum is None}
    electorates = {frozenset(one.voters if one.quorum is None else one.quorum.voters) for one in statuses}
    for voters in sorted((one for one in electorates if one), key=lambda one: (-len(one), sorted(one))):
        if election_may_be_won(len(voters), len(voters - not_electing)):
            return tuple(sorted(voters - not_electing))
    return ()


def _lost_tail(group: Group, one: Standing) -> bool:
    """Whether it led last, and lacks of its own log what it had reported: its machine had not flushed it."""
    former = group.former
    if former is None or former.replica_id != one.replica_id or former.end_offset is None or former.epoch is None:
        return False
    return one.log_epoch <= former.epoch and one.end_offset < former.end_offset


def _holds_what_was_reported(group: Group, one: Standing) -> bool:
    """Whether it holds the log of who led last as far as that is known."""
    former = group.former
    return former is not None and one.position >= (former.epoch or 0, former.end_offset or 0)


def _no_one_led_after(
    former: FormerLeader | None, answers: Mapping[int, Standing], counted: Mapping[int, Standing]
) -> bool:
    """Whether who led last is among these, and the log of no replica says otherwise: not even one that does not count, for what
    it took as leader may have been acknowledged.
    """
    own = None if former is None or not former.no_one_since else counted.get(former.replica_id)
    if own is None or former is None or own.log_epoch > (own.log_epoch if former.epoch is None else former.epoch):
        return False  # a log of a later epoch than the one that it led in: it has followed another since
    return all(one.log_epoch <= own.log_epoch for one in answers.values())


def _may_have_shown(group: Group, answers: Mapping[int, Standing], counted: Mapping[int, Standing]) -> bool:
    """Whether readers may have seen what none of these holds: by a leader that showed what too few held."""
    former = group.former
    known_epoch = 0 if former is None else former.epoch or 0
    led_later = any(max(one.log_epoch, one.in_sync_epoch or 0) > known_epoch for one in counted.values()) or any(
        epoch > known_epoch for replica_id, epoch in group.may_have_led.items() if replica_id not in counted
    )
    leader_answers = former is not None and former.replica_id in counted and not led_later
    if not any(one.shows_below for one in counted.values()) or leader_answers or len(counted) == len(group.replica_ids):
        return False
    if _newest_leader_counts(group, answers, counted):
        return False
    if former is None or former.ended_at_s is None:
        return True
    if led_later:
        return True  # it was restarted and led again unseen, or another one did: what was promised for the older epoch says nothing
    if _hold_all_that_it_said(group, former, counted):
        return False
    return not any(
        one.in_sync_epoch is not None
        and one.in_sync_until_s is not None
        and one.in_sync_epoch == former.epoch
        and one.in_sync_until_s > former.ended_at_s
        for one in counted.values()
    )


def _newest_leader_counts(group: Group, answers: Mapping[int, Standing], counted: Mapping[int, Standing]) -> bool:
    """Whether who led in the newest epoch is among these, by its own word. Every replica answers: no one has led in a newer one."""
    if not answers.keys() >= {*group.replica_ids}:
        return False
    newest = max(max(one.log_epoch, one.in_sync_epoch or 0) for one in answers.values())
    # With a disk that was replaced since, a replica may have led in one of which no log has anything.
    known = max((0 if group.former is None else group.former.epoch or 0, *group.may_have_led.values()))
    return known <= newest and any(one.led_last_epoch and one.log_epoch == newest for one in counted.values())


def _hold_all_that_it_said(group: Group, former: FormerLeader, counted: Mapping[int, Standing]) -> bool:
    """Whether one of these holds all of the log that who led last had when it led no more, and no one else can have led."""
    word = former.last_word
    if (
        word is None
        or not counting(group, {word.replica_id: word})
        or {*counted, word.replica_id} != {*group.replica_ids}
    ):
        return False
    return (word.log_epoch, word.end_offset) <= max((one.position for one in counted.values()), default=(0, 0))


def _shown_words(at_risk: tuple[int | None, int | None]) -> Sentence:
    """How many of them are known of: what the old master had past the candidate's end when it was last asked."""
    known_bytes, messages = at_risk
    if not known_bytes:
        return say("None is known of from when it was last asked; no one knows how many came after that.")
    if messages is None:
        return say(
            "When it was last asked there were %(number)s bytes; consumers may have read all of them.",
            number=known_bytes,
        )
    return say_count(
        "When it was last asked there was %(count)s message; consumers may have read it.",
        "When it was last asked there were %(count)s messages; consumers may have read all of them.",
        messages,
    )


def _why_not_counted(group: Group, one: Standing) -> Sentence:
    name, former = _names([one.replica_id]), group.former
    if one.disk_is_new:
        return say(
            "the disk of %(name)s is new, and has not held what the group had confirmed: what it lacks no one knows.",
            name=name,
        )
    if one.log_may_be_incomplete:
        return say(
            "%(name)s may have lost the end of its log: its disk failed, or its machine went down, and it has not caught up.",
            name=name,
        )
    if former is not None and former.end_offset is not None and _lost_tail(group, one):
        return say(
            "%(name)s reported a log up to %(before)s when it led, and holds it up to %(now)s only: what its machine had not"
            " flushed is gone from it.",
            name=name,
            before=former.end_offset,
            now=one.end_offset,
        )
    return say("%(name)s is not one of the group's replicas.", name=name)


def _with_new_disks(why: Sentence, answers: Mapping[int, Standing], candidate: Standing) -> Sentence:
    """Say whose disk may hold what the candidate's lost."""
    new = sorted(key for key, one in answers.items() if one.disk_is_new)
    if candidate.disk_is_new or not new:
        return why
    return say_count(
        "%(why)s The disk of %(names)s is new: the one before may hold more. Put that back if it can still be read.",
        "%(why)s The disks of %(names)s are new: those before may hold more. Put them back if they can still be read.",
        len(new),
        why=why,
        names=_names(new),
    )


def _more(group: Group, one: Standing, at_risk: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    if group.former is not None and _lost_tail(group, one):
        return (group.former.end_offset or 0) - one.end_offset, None
    return at_risk


def _place(one: Standing) -> Sentence:
    return say("offset %(offset)s of epoch %(epoch)s", offset=one.held_offset, epoch=one.log_epoch)


def _names(replica_ids: Sequence[int]) -> Sentence:
    ids = _listed(replica_ids)
    return say("replica %(ids)s", ids=ids) if len(replica_ids) == 1 else say("replicas %(ids)s", ids=ids)


def _capital_names(replica_ids: Sequence[int]) -> Sentence:
    ids = _listed(replica_ids)
    return say("Replica %(ids)s", ids=ids) if len(replica_ids) == 1 else say("Replicas %(ids)s", ids=ids)


def _listed(replica_ids: Sequence[int]) -> str:
    text = str(replica_ids[-1]) if replica_ids else ""
    for replica_id in reversed(replica_ids[:-1]):
        text = say("%(first)s and %(second)s", first=replica_id, second=text)
    return text
