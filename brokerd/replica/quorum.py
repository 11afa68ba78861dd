"""The election core of a quorum-led (DLedger) group: Raft in pull form, without sockets, disks, clocks or tasks.

    unattached ──no leader in time──► pre-candidate ──a majority would──► candidate ──a majority did──► leader
        ▲  ▲                            │   ▲                               │                             │
        │  └──────── a leader ◄─────────┘   └── no leader in time ── follower ◄── "epoch begun" ──────────┘
        └────────────── a higher epoch, lost, or resigned: from everywhere ───────────────────────────────┘

How to drive it. Every call takes the time and returns a `Ready`, whose parts are to be done in the order of its fields:
persist `vote`, become or cease to be leader, answer, send. `brokerd.replica.elections.Elections` does the first two with
a real log and epoch file, and is what a shell or a simulator drives:

    outcome = replica.elections.tick(now_s, now_ms)            # each 50 ms or so
    outcome = replica.elections.step(message, now_s, now_ms)   # each request and each answer of quorum_messages.py
    outcome.reply       the answer to a request, for its sender
    outcome.messages    [(replica id, request)], each to be sent once; its answer comes back through step()
    outcome.role_changed   this replica began or ceased to lead

Records travel by the pull protocol: `replica.pulled()` on the leader counts pulls (they are the heartbeat), and
`replica.heard_leader(epoch, now_s)` on a follower says that a pull of its was answered. `leader_lost(now_s)` says that
the connection to the leader broke, which is no proof, but a reason to ask around at once. What the log holds is reported by
`replica.held_changed(now_s)` after an append (`appended`) or a flush (`flushed`); the commit rule is in in_sync.py.

Sources: the Raft paper (sections 5.2, 5.4.1, 6), Ongaro's dissertation (3.10 transfer, 4.1 single changes, 6.2 CheckQuorum,
9.6 PreVote), KIP-595 and KIP-996 for the pull form; replication.md, "Elected leadership".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import assert_never

from brokerd.replica.quorum_messages import (
    BeginEpoch,
    Campaign,
    EndEpoch,
    Message,
    Noted,
    VoteAnswer,
    VoteRequest,
)
from brokerd.replica.quorum_state import NEVER, Log, QuorumTimes, Ready, State, Vote
from brokerd.replica.voters import Members, Tally


@dataclass(slots=True)
class Puller:
    """What a leader knows of one follower from its pulls; or of a voter that has not pulled in this epoch yet."""

    seen_s: float
    end_offset: int
    pulled: bool = True  # in this epoch; else it only voted
    joined: bool = True  # else it does not count: what it knew of votes and records is lost
    full: bool = False  # its disk is
    # When a pull of it was answered on a connection that it has pulled on since: it followed then, as late as its pulls arrive.
    followed_s: float = NEVER

    def there(self, now_s: float, within_s: float) -> bool:
        """Whether it counts, and was heard of so lately."""
        return self.joined and now_s - self.seen_s <= within_s

    def followed(self, now_s: float, within_s: float) -> bool:
        """Whether it counts, and has followed this leader for certain so lately."""
        return self.joined and now_s - self.followed_s <= within_s


class _Stretch:
    """A time in which something is seen again and again, never longer than `gap_s` apart: a suspension longer than that ends it."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self.end()

    def end(self) -> None:
        self._from_s = self._last_s = NEVER

    def note(self, now_s: float) -> None:
        """It is seen."""
        if now_s - self._last_s > self._gap_s:
            self._from_s = now_s
        self._last_s = now_s

    def lasted_s(self, now_s: float) -> float:
        """How long, until now; 0 when it is over."""
        return now_s - self._from_s if now_s - self._last_s <= self._gap_s else 0.0


class Quorum:
    """See the module. Times are seconds of one monotonic clock, offsets bytes of the CommitLog.

    Invariants: `epoch` never falls; at most one vote per epoch; no voice without `joined`, but for the founding of a
    group, which needs all its voters; `state` LEADER only after a majority's votes in this epoch.
    """

    def __init__(
        self,
        *,
        group: str,
        replica_id: int,
        address: str,
        vote: Vote,
        log: Log,
        random: Random,
        now_s: float,
        times: QuorumTimes | None = None,
    ) -> None:
        """Begins unattached, or as the follower of the leader that was known last."""
        self._group = group
        self._id = replica_id
        self._address = address
        self._log = log
        self._random = random
        self.times = times or QuorumTimes()
        self.epoch = vote.epoch
        self.voted_for = vote.voted_for
        self.leader: int | None = None
        self.leader_address = vote.leader_address
        self.state = State.UNATTACHED if vote.leader_address is None else State.FOLLOWER
        self._heard_s = NEVER
        self._deadline_s = now_s + self._draw(self.times.start)
        self._tally = Tally()
        self._request: VoteRequest | None = None  # of the round that the tally counts
        self._asked_all = False  # the replicas that are no voters, too
        self._alone_from_s = now_s  # since when no leader was heard of
        # In which all voters grant, and others are waited for.
        self._granted_for = _Stretch(2 * self.times.pull_timeout[1])
        self._pullers: dict[int, Puller] = {}
        self._led_from_s = NEVER
        self._announced_s: dict[int, float] = {}
        self._target: int | None = None  # whom the role is being handed to, until when
        self._target_until_s = NEVER
        self._offered_s = NEVER
        self._made_room_s = NEVER
        self._ticked_s = now_s
        self._awake_from_s = NEVER  # when this process went on after it had been suspended
        self._yielded = False  # its disk is full, and one that has room was let go first
        self.left_in_order = False  # the leader before said that it leaves
        self._halted: str | None = None

    # --- what it is

    @property
    def is_voter(self) -> bool:
        return self._id in self._log.members.voters

    @property
    def granted(self) -> Mapping[int, str]:
        """The replicas that voted for it in its last round, each with its disk."""
        return self._tally.granted

    @property
    def may_lack_shown(self) -> bool:
        """Whether consumers may have read what none of those has any more that voted for it."""
        return self._tally.may_lack_shown(self._log.members, others=self._others())

    @property
    def transferring_to(self) -> int | None:
        """While it is set no sends are taken."""
        return self._target

    def recent_majority(self, now_s: float) -> bool:
        """Whether a majority pulled, or voted for this leader, a moment ago."""
        return self._in_touch(now_s, self.times.recent) >= self._log.members.majority

    def majority_followed(self, now_s: float) -> bool:
        """Whether a majority followed this leader a moment ago for certain: what sent a pull that was long on its way may follow
        another one since.
        """
        members = self._log.members
        others = (self._pullers.get(voter) for voter in members.voters if voter != self._id)
        count = sum(puller is not None and puller.followed(now_s, self.times.recent) for puller in others)
        return count + (self._id in members.voters) >= members.majority

    def majority_has_room(self, now_s: float) -> bool:
        """Whether a majority can store what is sent; the leader's own disk is asked when it comes to that."""
        if not any(puller.full for puller in self._pullers.values()):
            return True
        members = self._log.members
        return in_touch(self._pullers, members, self._id, now_s, self.times.recent, with_room=True) >= members.majority

    def why_not_electable(self) -> str | None:
        """Why this replica neither campaigns nor votes; None when it does."""
        if self._halted is not None:
            return self._halted
        if self._log.unfit is not None:
            return self._log.unfit
        if self._log.disk_is_new:
            return "its disk took the place of another one, and the group has not adopted it yet"
        if not self._log.joined and self._log.last_epoch:
            return "it has not caught up with the group yet"
        return None

    # --- inputs

    def tick(self, now_s: float) -> Ready:
        """Time passed."""
        self._notice_suspension(now_s)
        ready = Ready()
        if self.state is State.LEADER:
            self._lead_on(now_s, ready)
        elif now_s >= self._deadline_s:
            self._no_leader_in_time(now_s, ready)
        return ready

    def step(self, message: Message, now_s: float) -> Ready:
        """A request or an answer arrived; its signature was checked by the caller."""
        ready = Ready()
        if self._halted is not None:
            return ready
        match message:
            case VoteAnswer():
                self._answered(message, now_s, ready)
            case Noted():
                if message.epoch > self.epoch:
                    self._unattached(message.epoch, now_s, ready)
            case VoteRequest():
                self._asked(message, now_s, ready)
            case BeginEpoch() | EndEpoch() | Campaign():
                if message.group == self._group:
                    self._announced(message, now_s, ready)
                # Another group has epochs of its own.
                ready.reply = Noted(replica=self._id, epoch=self.epoch if message.group == self._group else 0)
            case _:
                assert_never(message)
        return ready

    def saw_epoch(self, epoch: int, leader_address: str | None, now_s: float) -> Ready:
        """A peer named an epoch, and perhaps its leader: a pull, its answer, or a name server's refusal."""
        ready = Ready()
        if epoch > self.epoch:
            self._unattached(epoch, now_s, ready)
        known = leader_address not in (None, self._address)
        if epoch == self.epoch and known and self.leader_address is None and self.state is not State.LEADER:
            self._follow(None, leader_address, now_s, ready)
        return ready

    def heard_leader(self, epoch: int, now_s: float) -> None:
        """The leader of `epoch` answered a pull of this replica."""
        if epoch == self.epoch and self.leader_address is not None and self.state is not State.LEADER:
            self.state = State.FOLLOWER
            self._heard_s = self._alone_from_s = now_s
            self._granted_for.end()
            self._deadline_s = now_s + self._draw(self.times.pull_timeout)
            self._yielded = False

    def alone_s(self, now_s: float) -> float:
        """How long no leader was heard of."""
        return 0.0 if self.state is State.LEADER else now_s - self._alone_from_s

    def leader_lost(self, now_s: float) -> None:
        """The connection to the leader was refused or broke: ask the others soon, and let them campaign."""
        if self.state is State.FOLLOWER:
            self._heard_s = NEVER
            self._deadline_s = min(self._deadline_s, now_s + self._draw(self.times.leader_lost))

    def pulled(
        self, replica_id: int, end_offset: int, now_s: float, *, joined: bool, full: bool, answered_s: float = math.inf
    ) -> None:
        """A follower pulled in this leader's epoch: the heartbeat.

        `answered_s`: when the pull before it was answered on the same connection. What has waited in the socket of a leader that
        was suspended says nothing of now: the follower counts again when it has had an answer since.
        """
        self._notice_suspension(now_s)
        if self.state is State.LEADER and answered_s >= self._awake_from_s:
            before = self._pullers.get(replica_id)
            # Not of a new disk that pulled meanwhile: it knows of no other leader.
            known_s = before.followed_s if before is not None and before.joined else NEVER
            followed_s = max(min(answered_s, now_s), known_s)
            self._pullers[replica_id] = Puller(now_s, end_offset, joined=joined, full=full, followed_s=followed_s)

    def transfer(self, target: int, now_s: float) -> str | None:
        """Hand the role to `target` once it has caught up; why not, or None. Until then, or for a while, no sends are taken."""
        if self.state is not State.LEADER:
            return "this replica does not lead"
        if target == self._id:
            return f"replica {target} leads already"
        if target not in self._log.members.voters:
            return f"replica {target} is not a voter"
        puller = self._pullers.get(target)
        if puller is None or now_s - puller.seen_s > self.times.recent:
            return f"replica {target} does not pull"
        if not puller.joined:
            return f"replica {target} is new and has not caught up yet"
        if puller.full:
            return f"the disk of replica {target} is full"
        if self._target is not None:
            return f"the role is being handed to replica {self._target}"
        self._target, self._target_until_s = target, now_s + self.times.transfer
        self._announced_s.pop(target, None)
        return None

    def take_over_as_assigned(self, pulls: Mapping[int, tuple[float, int]], now_s: float) -> None:
        """This replica leads its epoch already, assigned: from now on it needs a majority. `pulls`: id -> (when, end)."""
        self.state = State.LEADER
        self.leader, self.leader_address = self._id, self._address
        self._led_from_s = now_s
        self._pullers = {key: Puller(*pull, followed_s=pull[0]) for key, pull in pulls.items()}

    def why_not_give_up(self, now_s: float) -> str | None:
        """Why a majority of the voters can't be gone, by what this replica hears; None when it may be."""
        if self.state is State.LEADER and self.recent_majority(now_s):
            return f"this replica leads in epoch {self.epoch}, and a majority follows it: there is nothing to recover"
        if self.state is State.FOLLOWER and now_s - self._heard_s < self.times.pull_timeout[0]:
            return f"the leader of epoch {self.epoch} answers here: there is nothing to recover"
        return None

    def why_not_recover(self, now_s: float) -> str | None:
        """Why this replica must not lead by an operator's word alone; None when it may."""
        if (refusal := self.why_not_give_up(now_s)) is not None:
            return refusal
        if not self._log.joined:
            return "its disk is new: it has not held what the group confirmed"
        return self.why_not_electable()

    def why_not_promise(self, epoch: int, leader_address: str | None) -> str | None:
        """Why this replica does not promise an epoch to who is to lead after it; None when it does."""
        if self._halted is not None:
            return self._halted
        named = None if leader_address == self._address else leader_address
        agreed = self.leader_address == named and self.voted_for is None and self.state is not State.LEADER
        if epoch > self.epoch or (epoch == self.epoch and agreed):
            return None
        return f"epoch {epoch} is not above {self.epoch}, which this replica has seen"

    def promise(self, epoch: int, leader_address: str | None, now_s: float) -> Ready:
        """Promise `epoch`, durably: the replica at `leader_address` is to lead after it. It leads in none yet, and is not heard."""
        ready = Ready()
        if epoch > self.epoch:
            self._unattached(epoch, now_s, ready)
            self.leader_address = None if leader_address == self._address else leader_address
            ready.vote = self._vote()
        return ready

    def recover(self, epoch: int, survivors: Iterable[int], now_s: float) -> Ready:
        """Lead in `epoch` with `survivors` as the only voters: an operator says that all others are lost for good."""
        ready = Ready()
        if self.state is State.LEADER:
            self._stop_leading("an operator began an epoch of the voters that are left", now_s, ready)
        self.epoch, self.voted_for, self.leader, self.leader_address = epoch, self._id, None, None
        ready.vote = self._vote()
        self._tally = Tally()
        self._begin_to_lead(now_s, ready)
        self._pullers = {voter: Puller(now_s, 0, pulled=False, followed_s=now_s) for voter in survivors}
        return ready

    def resign(self, why: str, now_s: float) -> Ready:
        """Stop leading: an operator asks it to, or it cannot lead any more. Names the next leader."""
        ready = Ready()
        if self.state is State.LEADER:
            self._resign(why, now_s, ready)
        return ready

    @property
    def halted(self) -> bool:
        """Whether it promises nothing to any peer, as what it last promised itself is not sure to be remembered."""
        return self._halted is not None

    @property
    def vote(self) -> Vote:
        """What must be durable before it promises anything."""
        return self._vote()

    def resume(self, now_s: float) -> None:
        """`vote` is durable, and no other one was given in its epoch."""
        self._halted = None
        self._deadline_s = min(self._deadline_s, now_s + self._draw(self.times.pull_timeout))

    def halt(self, why: str) -> None:
        """The epoch file cannot be written: until it can (`resume`) this replica promises nothing to any peer."""
        self._halted = why
        self.state = State.UNATTACHED
        self.leader = self.leader_address = None
        self._deadline_s = float("inf")

    # --- campaigns

    def _no_leader_in_time(self, now_s: float, ready: Ready) -> None:
        if not self._log.may_decide or self.why_not_electable() is not None:
            self.state = State.UNATTACHED
            self.leader = self.leader_address = None  # ask around for the leader
            self._deadline_s = now_s + self._draw(self.times.pull_timeout)
            return
        self._yielded = self._log.full and not self._yielded
        if self._yielded:  # one with room goes first; where none has any, one must lead all the same
            self.state = State.UNATTACHED
            self.leader = self.leader_address = None
            self._deadline_s = now_s + self.times.pull_timeout[1]
            return
        waited = now_s - self._alone_from_s >= self.times.doubt
        ready.trust = self._log.log_may_be_incomplete and waited and not self._log.may_lack_durable
        self.state = State.PRE_CANDIDATE
        self._ask(now_s, ready, self.epoch + 1, pre=True)

    def _campaign(self, now_s: float, ready: Ready) -> None:
        self.state = State.CANDIDATE
        self.epoch += 1
        self.voted_for, self.leader, self.leader_address = self._id, None, None
        ready.vote = self._vote()
        self._ask(now_s, ready, self.epoch, pre=False)

    def _ask(self, now_s: float, ready: Ready, epoch: int, *, pre: bool) -> None:
        log = self._log
        self._tally = Tally()
        self._tally.add(self._id, log.incarnation, log_may_be_incomplete=log.log_may_be_incomplete and not ready.trust)
        self._deadline_s = now_s + self._draw(self.times.vote_round)
        self._request = VoteRequest(
            group=self._group,
            candidate=self._id,
            epoch=epoch,
            last_epoch=log.last_epoch,
            end_offset=log.end_offset,
            pre=pre,
        )
        self._asked_all = False
        ready.messages = [(voter, self._request) for voter in log.members.voters if voter != self._id]
        self._count(now_s, ready)

    def _answered(self, answer: VoteAnswer, now_s: float, ready: Ready) -> None:
        if answer.epoch > self.epoch:
            self._unattached(answer.epoch, now_s, ready)
        if not answer.granted:
            known = answer.epoch == self.epoch and answer.leader_address not in (None, self._address)
            if known and self.leader_address is None and self.state is not State.LEADER:
                self._follow(answer.leader, answer.leader_address, now_s, ready)
                return
            if answer.joined:
                return
        asked = {State.PRE_CANDIDATE: self.epoch + 1, State.CANDIDATE: self.epoch}.get(self.state)
        if answer.asked_epoch != asked or answer.pre is not (self.state is State.PRE_CANDIDATE):
            return  # of a round that is over
        if answer.granted:
            self._tally.add(
                answer.voter,
                answer.incarnation,
                log_may_be_incomplete=answer.log_may_be_incomplete,
                trusts_own_end=answer.trusts_own_end,
            )
            self._tally.add_others(answer.known)
        else:
            self._tally.add_new(answer.voter, answer.incarnation)
        self._count(now_s, ready)

    def _others(self) -> set[int]:
        """Replicas that are known, and are no voters."""
        members = self._log.members
        return {*self._log.known, *members.replacing} - {*members.voters, self._id}

    def _count(self, now_s: float, ready: Ready) -> None:
        members, others = self._log.members, self._others()
        if self._tally.in_doubt and self._tally.all_granted(members):
            self._granted_for.note(now_s)
        waited_long = self._granted_for.lasted_s(now_s) >= self.times.doubt
        if not self._tally.wins(members, founding=not self._log.last_epoch, others=others, waited_long=waited_long):
            if self._request is not None and self._tally.in_doubt and not self._asked_all:
                self._asked_all = True
                ready.messages += [(other, self._request) for other in sorted(others)]
            return
        if self.state is State.PRE_CANDIDATE:
            self._campaign(now_s, ready)
        else:
            self._begin_to_lead(now_s, ready)

    # --- voting

    def _asked(self, request: VoteRequest, now_s: float, ready: Ready) -> None:
        if request.group == self._group and not request.pre and request.epoch > self.epoch:
            self._unattached(request.epoch, now_s, ready)
        reason = self._why_not_vote(request, now_s)
        if reason is None and not request.pre and self.voted_for is None:
            self.voted_for = request.candidate
            ready.vote = self._vote()
            self._deadline_s = now_s + self._draw(self.times.pull_timeout)
        is_ours = request.group == self._group  # another group has epochs and leaders of its own
        ready.reply = VoteAnswer(
            voter=self._id,
            asked_epoch=request.epoch,
            pre=request.pre,
            granted=reason is None,
            epoch=self.epoch if is_ours else 0,
            incarnation=self._log.incarnation,
            log_may_be_incomplete=self._log.log_may_be_incomplete,
            trusts_own_end=self._log.trusts_own_end,
            joined=self._log.joined or not is_ours,
            known=tuple(sorted({*self._log.known, *self._log.members.replacing})),
            leader=self.leader if is_ours else None,
            leader_address=self.leader_address if is_ours else None,
            reason=reason or "",
        )

    def _why_not_vote(self, request: VoteRequest, now_s: float) -> str | None:
        log = self._log
        if request.group != self._group:
            return f"this replica belongs to group {self._group}"
        if self.why_not_electable() is not None:
            return self.why_not_electable()
        if not log.joined and request.last_epoch:
            return "this replica is new and has not caught up with the group yet"
        if request.pre:
            if request.epoch <= self.epoch:
                return f"this replica is in epoch {self.epoch} already"
            if self.state is State.LEADER:
                return f"this replica leads in epoch {self.epoch}"
            if now_s - self._heard_s < self.times.pull_timeout[0]:
                return f"the leader of epoch {self.epoch} answers here"
        elif request.epoch < self.epoch:
            return f"this replica is in epoch {self.epoch} already"
        elif self.voted_for not in (None, request.candidate):
            return f"this replica voted for replica {self.voted_for} in epoch {self.epoch}"
        elif self.leader_address is not None:
            return f"epoch {self.epoch} has its leader"
        if (request.last_epoch, request.end_offset) < (log.last_epoch, log.end_offset):
            return f"this replica's log goes on to {log.end_offset} in epoch {log.last_epoch}"
        return None

    # --- following

    def _announced(self, message: BeginEpoch | EndEpoch | Campaign, now_s: float, ready: Ready) -> None:
        if message.epoch < self.epoch:
            return
        if message.epoch > self.epoch:
            self._unattached(message.epoch, now_s, ready)
        if self.state is State.LEADER or self.leader not in (None, message.leader):
            return  # of this epoch the leader is known, and it is another one: not believed
        match message:
            case BeginEpoch():
                self._follow(message.leader, message.address, now_s, ready)
            case EndEpoch():
                self._leader_ended(message.successors, now_s, ready)
            case Campaign():
                if self._may_be_named and not self._log.full:
                    self._campaign(now_s, ready)
            case _:
                assert_never(message)

    @property
    def _may_be_named(self) -> bool:
        """A leader names successors by what they held: not one whose disk was lost since, which only a founding needs."""
        return self._log.may_decide and self._log.joined and self.why_not_electable() is None

    def _leader_ended(self, named: tuple[int, ...], now_s: float, ready: Ready) -> None:
        self.left_in_order = True
        self.state = State.UNATTACHED
        self.leader = self.leader_address = None
        self._heard_s = NEVER
        if not self._may_be_named:
            return
        full = self._log.full
        if named[:1] == (self._id,) and not full:
            self._campaign(now_s, ready)
            return
        # The best one tries first; the others in their order, should it fail.
        rank = named.index(self._id) if self._id in named and not full else len(named)
        self._deadline_s = now_s + rank * self.times.vote_round[1] + self._draw(self.times.vote_round)

    def _follow(self, leader: int | None, address: str | None, now_s: float, ready: Ready) -> None:
        self.left_in_order = False
        if self.leader_address != address:
            self.leader_address = address
            ready.vote = self._vote()
        self.leader = leader if leader is not None else self.leader
        self.state = State.FOLLOWER
        self._heard_s = now_s
        self._deadline_s = now_s + self._draw(self.times.pull_timeout)

    def _unattached(self, epoch: int, now_s: float, ready: Ready) -> None:
        """A higher epoch: whatever this was before, it is nothing in that one yet."""
        if self.state is State.LEADER:
            self._stop_leading(f"epoch {epoch} has begun elsewhere", now_s, ready)
        self.state = State.UNATTACHED
        self.epoch = epoch
        self.voted_for = self.leader = self.leader_address = None
        self._heard_s = NEVER
        ready.vote = self._vote()

    # --- leading

    def _begin_to_lead(self, now_s: float, ready: Ready) -> None:
        self.state = State.LEADER
        self.leader, self.leader_address = self._id, self._address
        self._led_from_s, self._offered_s = now_s, NEVER
        # The ones that voted were there a moment ago; what each holds is known with its first pull only.
        self._pullers = {voter: Puller(now_s, 0, pulled=False, followed_s=now_s) for voter in self._tally.granted}
        self._announced_s = {}
        self._target = None
        ready.lead = True
        self._announce(self._log.members.voters, now_s, ready, silent_s=0.0)

    def _lead_on(self, now_s: float, ready: Ready) -> None:
        unfit = self._log.unfit
        if unfit is not None:
            self._resign(unfit, now_s, ready)
            return
        members = self._log.members
        if self._in_touch(now_s, self.times.check_quorum) < members.majority:
            self._resign("a majority of the voters does not pull", now_s, ready)
            return
        if not self._log.may_decide:  # it led to confirm its own removal only
            self._resign("it is no voter any more", now_s, ready)
            return
        self._announce({*members.voters, *self._log.known}, now_s, ready, silent_s=self.times.announce)
        self._hand_over(now_s, ready)
        if self._target is None and now_s >= self._made_room_s + self.times.room_again and self._log.full:
            self._made_room_s = now_s
            roomy = best_with_room(self._pullers, members, self._id, now_s, self.times.recent)
            if roomy is not None:
                self.transfer(roomy, now_s)
        due = max(self._led_from_s + self.times.preferred_after, self._offered_s + self.times.preferred_again)
        if members.preferred not in (None, self._id) and self._target is None and now_s >= due:
            assert members.preferred is not None, "just checked"
            puller = self._pullers.get(members.preferred)
            if puller is not None and puller.end_offset >= self._log.end_offset and not puller.full:
                self._offered_s = now_s
                self.transfer(members.preferred, now_s)

    def _hand_over(self, now_s: float, ready: Ready) -> None:
        target = self._target
        if target is None:
            return
        if now_s >= self._target_until_s or target not in self._log.members.voters:
            self._target = None
            return
        puller = self._pullers[target]
        if puller.full:  # it does not stand then; another may
            self._target, self._made_room_s = None, NEVER
            return
        due = now_s - self._announced_s.get(target, NEVER) >= self.times.announce
        if puller.end_offset >= self._log.end_offset and due:
            self._announced_s[target] = now_s
            ready.messages.append((target, Campaign(group=self._group, leader=self._id, epoch=self.epoch)))

    def _announce(self, replicas: Iterable[int], now_s: float, ready: Ready, *, silent_s: float) -> None:
        begin = BeginEpoch(group=self._group, leader=self._id, epoch=self.epoch, address=self._address)
        for replica_id in sorted(replicas):
            puller = self._pullers.get(replica_id)
            silent = puller is None or not puller.pulled or now_s - puller.seen_s > 2 * silent_s
            # An observer finds its leader by itself too; one that is gone for good is not asked all the time.
            period_s = silent_s if replica_id in self._log.members.voters else 5 * silent_s
            due = now_s - self._announced_s.get(replica_id, NEVER) >= period_s
            if replica_id != self._id and silent and due and replica_id != self._target:
                self._announced_s[replica_id] = now_s
                ready.messages.append((replica_id, begin))

    def _resign(self, why: str, now_s: float, ready: Ready) -> None:
        voters = self._log.members.voters
        named = successors(self._pullers, self._log.members, self._id)
        self._stop_leading(why, now_s, ready)
        end = EndEpoch(group=self._group, leader=self._id, epoch=self.epoch, successors=named)
        ready.messages = [(voter, end) for voter in voters if voter != self._id]

    def _stop_leading(self, why: str, now_s: float, ready: Ready) -> None:
        ready.stopped = why
        self.state = State.UNATTACHED
        self._alone_from_s = now_s
        self._granted_for.end()
        self.leader = self.leader_address = None
        self._pullers = {}
        self._target = None
        # Those that it has named go first.
        self._deadline_s = now_s + self.times.pull_timeout[1] + self._draw(self.times.vote_round)

    def _notice_suspension(self, now_s: float) -> None:
        """Ticks come each 50 ms: a process that had none for long was stopped, or its machine slept."""
        if now_s - self._ticked_s > self.times.recent / 3:
            self._awake_from_s = now_s
            asleep_s = now_s - self._ticked_s  # no one could answer meanwhile
            self._alone_from_s = min(now_s, self._alone_from_s + asleep_s)
        self._ticked_s = max(now_s, self._ticked_s)

    def _in_touch(self, now_s: float, within_s: float) -> int:
        return in_touch(self._pullers, self._log.members, self._id, now_s, within_s)

    def _vote(self) -> Vote:
        return Vote(self.epoch, self.voted_for, self.leader_address)

    def _draw(self, limits: tuple[float, float]) -> float:
        return self._random.uniform(*limits)


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
    """Which replicas should lead next: by how much they hold, and those with full disks after the others."""
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
