"""Elections joined to one replica: its log, its epoch file and its in-sync set. How to drive it: see quorum.py.

The order is the point: stop acknowledging, make the vote durable, append the epoch's record, and only then speak.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from brokerd.replica.adoption import next_members
from brokerd.replica.epoch_file import EpochState
from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.epoch_record import VOTERS
from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.mode_change import ModeChange
from brokerd.replica.pull_protocol import ReplicaPull
from brokerd.replica.quorum import Quorum
from brokerd.replica.quorum_messages import Answer, Message, Request, VoteAnswer, VoteRequest
from brokerd.replica.quorum_state import Ready, State, Vote
from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from brokerd.store import MessageStore, StoreError

logger = logging.getLogger(__name__)

# After it even a majority that is left may need an operator: what one of them may lack no one who is left can answer for.
_STRANDED_S: Final = 60.0


class _Replica(Protocol):
    """What elections use of their replica."""

    modes: ModeChange

    @property
    def settings(self) -> ReplicaSettings: ...
    @property
    def epoch(self) -> int: ...
    @property
    def epochs(self) -> EpochMap: ...
    @property
    def leads(self) -> bool: ...
    @property
    def members(self) -> Members: ...
    @property
    def saved(self) -> EpochState: ...
    @property
    def in_sync(self) -> InSyncSet | None: ...
    @property
    def confirm_offset(self) -> int: ...
    @property
    def leader_address(self) -> str | None: ...
    @property
    def may_decide(self) -> bool: ...
    @property
    def disk_is_new(self) -> bool: ...

    def append_record(self, kind: str, epoch: int, members: Members, now_ms: int) -> int: ...

    def lead_elected(
        self,
        granted: Mapping[int, str],
        now_s: float,
        now_ms: int,
        members: Members | None = None,
        *,
        may_lack_shown: bool,
    ) -> None: ...
    @property
    def trusts_own_end(self) -> bool: ...

    def remember_vote(self, vote: Vote, *, joined: bool = False) -> None: ...

    def stop_leading(self) -> None: ...

    def trust_own_end(self) -> None: ...


@dataclass(slots=True)
class Outcome:
    """What is left to do: all that had to be durable is."""

    role_changed: bool = False  # it began or ceased to lead
    log_grew: bool = False  # a record was appended: flush it, hand it out
    leader_changed: bool = False  # it follows another one, or no one
    why: str | None = None  # it ceased to lead
    failure: str | None = None  # it promises nothing until its vote can be written
    trusts: bool = False  # it gave up waiting for a replica that knows what its log may lack
    reply: Answer | None = None  # for the sender of the request
    messages: list[tuple[int, Request]] = field(default_factory=list)


class Elections:
    """Of one replica of a quorum-led group. Times are seconds of one monotonic clock."""

    def __init__(self, replica: _Replica, store: MessageStore, vote: Vote, random: Random, now_s: float) -> None:
        self._replica = replica
        self._store = store
        self._now_s = now_s
        self._followed: tuple[int, str | None] = (vote.epoch, vote.leader_address)
        self._change_end = 0  # where the last record ends that changed the voters
        self._promised_to_lead: int | None = None  # in a recovery, since this process began
        self._write_again_s = float("-inf")  # when a vote is written again that could not be written
        settings = replica.settings
        self._quorum = Quorum(
            group=settings.group,
            replica_id=settings.replica_id,
            address=settings.address,
            vote=vote,
            log=_ReplicaLog(replica, store),
            random=random,
            now_s=now_s,
            times=settings.quorum_times,
        )

    def take_over_as_assigned(self, change_end: int, now_s: float) -> None:
        """This replica leads, assigned until now; `change_end` is where the record ends that changed that."""
        in_sync = self._replica.in_sync
        assert in_sync is not None, "only a leader takes over"
        pulls = {key: (follower.last_pull_s, follower.end_offset) for key, follower in in_sync.followers.items()}
        self._quorum.take_over_as_assigned(pulls, now_s)
        self._change_end = change_end

    # --- what it is

    @property
    def state(self) -> State:
        return self._quorum.state

    @property
    def is_voter(self) -> bool:
        return self._quorum.is_voter

    @property
    def leader_id(self) -> int | None:
        """The leader, as far as it is known; None does not mean that there is none."""
        return self._quorum.leader

    @property
    def leader_address(self) -> str | None:
        return self._quorum.leader_address

    @property
    def transferring_to(self) -> int | None:
        """To whom this leader hands its role over just now."""
        return self._quorum.transferring_to

    @property
    def left_in_order(self) -> bool:
        """Whether the leader before this one said that it leaves: no one waits for its answers."""
        return self._quorum.left_in_order

    @property
    def change_pending(self) -> bool:
        """Whether the last change of the voters is unconfirmed; on the leader."""
        return self._replica.leads and self._replica.confirm_offset < self._change_end

    def why_not_electable(self) -> str | None:
        """Why it neither campaigns nor votes; None when it does."""
        return self._quorum.why_not_electable()

    def has_recent_majority(self, now_s: float) -> bool:
        """Whether a majority of the voters has followed this leader, or voted for it, a moment ago, for certain."""
        return self._quorum.majority_followed(now_s)

    def refuses_sends(self, now_s: float) -> str | None:
        """Why no send is taken, as a remark; None when they are."""
        quorum = self._quorum
        if not self._replica.leads:
            where = self._replica.leader_address
            if where is None:
                return "this replica does not lead, and no leader is known here: an election may be under way"
            return f"this replica is a slave; the master is {where}"
        if quorum.transferring_to is not None:
            return "the master role is moving to another replica; send again in a moment"
        if not quorum.recent_majority(now_s):
            return (
                f"fewer than {self._replica.members.majority} of {len(self._replica.members.voters)} replicas are"
                " reachable: nothing can be confirmed; sends are taken again when a majority is there"
            )
        if not quorum.majority_has_room(now_s):
            return (
                "the disks of so many replicas are full that no majority could store anything:"
                " sends are taken again when there is room"
            )
        return None

    # --- inputs

    def tick(self, now_s: float, now_ms: int) -> Outcome:
        """Time passed; each 50 ms or so."""
        self._now_s = now_s
        if self._quorum.halted and now_s >= self._write_again_s:
            self._write_vote_again()
        outcome = self._do(self._quorum.tick(now_s), now_ms)
        self._adopt_disks(outcome, now_ms)
        return outcome

    def step(self, message: Message, now_s: float, now_ms: int) -> Outcome:
        """A request or an answer of quorum_messages.py arrived; its signature was checked."""
        self._now_s = now_s
        return self._do(self._quorum.step(message, now_s), now_ms)

    def saw_epoch(self, epoch: int, leader_address: str | None) -> bool:
        """A peer named an epoch; returns whether this replica led until now."""
        return self._do(self._quorum.saw_epoch(epoch, leader_address, self._now_s), 0).role_changed

    def grant_reclaim(self, replica_id: int, epoch: int, last_epoch: int, end_offset: int) -> None:
        """A vote for a restarted leader of a group whose leader is assigned again; raises RoleRefused.

        This replica has slept through the way back from DLedger, and a restarted leader needs everyone. One that hears a living
        leader refuses, and keeps its epoch, as before any campaign.
        """
        settings = self._replica.settings
        asked = partial(VoteRequest, candidate=replica_id, epoch=epoch, last_epoch=last_epoch, end_offset=end_offset)
        for pre in (True, False):
            if pre and epoch == self._quorum.epoch and self._quorum.voted_for == replica_id:
                continue  # asked again
            reply = self.step(asked(group=settings.group, pre=pre), self._now_s, 0).reply
            if not isinstance(reply, VoteAnswer) or not reply.granted:
                why = reply.reason if isinstance(reply, VoteAnswer) else self.why_not_electable()
                raise RoleRefused(f"this replica elects its leader, and does not vote for the restarted leader: {why}")

    def heard_leader(self, epoch: int, now_s: float) -> None:
        """The leader of `epoch` answered a pull of this replica with anything but "fenced"."""
        self._quorum.heard_leader(epoch, now_s)

    def leader_lost(self, now_s: float) -> None:
        """The connection to the leader broke, was refused, or it says that it does not lead."""
        self._quorum.leader_lost(now_s)

    def pulled(self, pull: ReplicaPull, now_s: float, answered_s: float) -> None:
        """A follower of this leader pulled; see `Quorum.pulled`."""
        counts = pull.joined and self._replica.members.knows(pull.replica_id, pull.incarnation)
        self._quorum.pulled(
            pull.replica_id, pull.end_offset, now_s, joined=counts, full=pull.disk_full, answered_s=answered_s
        )

    def resign(self, why: str, now_s: float) -> Outcome:
        """Stop leading, and name the next leader: before a stop."""
        self._now_s = now_s
        return self._do(self._quorum.resign(why, now_s), 0)

    # --- what an operator may ask the leader for; each raises RoleRefused

    def transfer(self, target: int, now_s: float) -> None:
        """Hand the leadership to `target` once it has caught up. Begun when this returns; its epoch is above this one."""
        refusal = self._quorum.transfer(target, now_s)
        if refusal is not None:
            raise RoleRefused(refusal)

    def promise_recovery(self, lost: Collection[int], epoch: int, leader_address: str | None, now_s: float) -> Outcome:
        """Promise `epoch` to a recovery without the voters that are `lost`: this replica takes nothing older, votes for no one in
        it, and promises it to no other one, since the replica at `leader_address` (None: this one) is to lead in the next. Safe to
        repeat.
        """
        self._survivors(lost, now_s)
        quorum = self._quorum
        refusal = quorum.why_not_give_up(now_s) or quorum.why_not_promise(epoch, leader_address)
        if refusal is not None:
            raise RoleRefused(refusal)
        self._now_s = now_s
        outcome = self._do(quorum.promise(epoch, leader_address, now_s), 0)
        if outcome.failure is None and leader_address in (None, self._replica.settings.address):
            self._promised_to_lead = epoch
        return outcome

    def recover(self, lost: Collection[int], expected_epoch: int, new_epoch: int, now_s: float, now_ms: int) -> Outcome:
        """Lead in `new_epoch`, with the voters that are not `lost` as the only ones.

        The way out when a majority of the voters' disks is gone for good: no election can be won any more. What only the lost
        ones held is lost; should one of them come back with its disk, it may lead a group of its own. `expected_epoch` is one
        that all that are left have promised (highwater/recovery_order.py).
        """
        replica, quorum = self._replica, self._quorum
        if replica.leads and replica.epoch == new_epoch:
            return Outcome()  # the same request, repeated
        if new_epoch <= expected_epoch or replica.epoch != expected_epoch:
            raise RoleRefused(f"this replica is in epoch {replica.epoch}, not {expected_epoch}: read haStatus again")
        survivors = self._survivors(lost, now_s)
        if (refusal := quorum.why_not_recover(now_s)) is not None:
            raise RoleRefused(refusal)
        if self._promised_to_lead != expected_epoch:
            raise RoleRefused(f"this replica has promised epoch {expected_epoch} to no recovery by which it is to lead")
        self._now_s = now_s
        known = replica.members
        for voter in lost:
            known = known.without(voter)
        logger.error(
            "group %s: an operator says that voters %s are lost for good", replica.settings.group, sorted(lost)
        )
        return self._do(quorum.recover(new_epoch, survivors, now_s), now_ms, known)

    def _survivors(self, lost: Collection[int], now_s: float) -> tuple[int, ...]:
        """The voters that are not lost; raises RoleRefused where they elect by themselves, or this replica is none of them."""
        own_id, members = self._replica.settings.replica_id, self._replica.members
        survivors = tuple(voter for voter in members.voters if voter not in lost)
        if own_id not in survivors:
            raise RoleRefused(f"replica {own_id} is no voter, or is called lost itself")
        if len(survivors) >= members.majority and self._quorum.alone_s(now_s) < _STRANDED_S:
            raise RoleRefused(
                f"replicas {survivors} are a majority of the voters: they elect a leader by themselves, if not at once, then"
                f" within {_STRANDED_S:g} s"
            )
        return survivors

    def add_voter(self, replica_id: int, now_s: float, now_ms: int) -> None:
        """Make an observer count, one that keeps up: a group that waits for it confirms nothing meanwhile."""
        in_sync = self._replica.in_sync
        follower = None if in_sync is None else in_sync.followers.get(replica_id)
        if in_sync is not None and (follower is None or not follower.in_sync or not follower.joined):
            raise RoleRefused(
                f"replica {replica_id} has not caught up; it can become a voter when haStatus calls it in sync"
            )
        members = self._replica.members
        incarnation = "" if follower is None else follower.incarnation
        if members.counts(replica_id) and not members.knows(replica_id, incarnation):
            raise RoleRefused(
                f"the disk of replica {replica_id} is a new one: it counts again a moment after it caught up"
            )
        self._change(members.with_voter(replica_id, incarnation), now_s, now_ms)

    def remove_voter(self, replica_id: int, now_s: float, now_ms: int) -> None:
        """Make a voter an observer, or one that was to count again by its new disk; it need not be alive.

        A majority of those that remain must be in sync, the leader included: else the change could not be confirmed, and what
        the one that goes holds would be on too few disks.
        """
        own_id = self._replica.settings.replica_id
        if replica_id == own_id:
            raise RoleRefused(f"replica {replica_id} leads: transfer the leadership first")
        if replica_id not in {*self._replica.members.voters, *self._replica.members.replacing}:
            raise RoleRefused(f"replica {replica_id} is not a voter")
        remaining = self._replica.members.without(replica_id)
        if self._replica.leads and not self.change_pending:
            in_sync = self._in_sync_among(remaining, now_s)
            if in_sync < remaining.majority:
                raise RoleRefused(
                    f"without replica {replica_id}, {len(remaining.voters)} voters remain, of which {in_sync} are in sync; there"
                    f" must be {remaining.majority}: wait until haStatus calls more of them in sync, or remove one that is not"
                )
        self._change(remaining, now_s, now_ms)

    def _in_sync_among(self, members: Members, now_s: float) -> int:
        """How many of these voters hold what this leader holds, on the disks that count; itself included."""
        in_sync, recent_s = self._replica.in_sync, self._quorum.times.recent
        return 1 + sum(
            one.in_sync and one.joined and now_s - one.last_pull_s <= recent_s and members.knows(voter, one.incarnation)
            for voter, one in ({} if in_sync is None else in_sync.followers).items()
            if members.counts(voter)
        )

    def prefer(self, replica_id: int | None, now_s: float, now_ms: int) -> None:
        """Whom the group wants as leader; None for no one in particular."""
        if replica_id is not None and replica_id not in self._replica.members.voters:
            raise RoleRefused(f"replica {replica_id} is not a voter")
        self._change(self._replica.members.preferring(replica_id), now_s, now_ms)

    def _change(self, members: Members, now_s: float, now_ms: int) -> None:
        replica = self._replica
        in_sync = replica.in_sync
        if in_sync is None:
            raise RoleRefused(f"this replica does not lead; the leader is {replica.leader_address or 'not known here'}")
        if members == replica.members:
            return
        # The second needs the first, and the first needs a record of this epoch (Ongaro on raft-dev, 2015).
        if replica.confirm_offset < self._change_end:
            raise RoleRefused("the change before this one is not confirmed yet; ask again in a moment")
        try:
            self._change_end = replica.append_record(VOTERS, replica.epoch, members, now_ms)
        except StoreError as error:
            raise RoleRefused(f"the change cannot be written: {error}") from error
        in_sync.count(members, now_s)

    # --- doing

    def _adopt_disks(self, outcome: Outcome, now_ms: int) -> None:
        replica = self._replica
        in_sync, quorum = replica.in_sync, self._quorum
        if (
            in_sync is None
            or self.change_pending
            or quorum.transferring_to is not None
            or replica.modes.pending is not None
        ):
            return
        members = next_members(
            replica.members,
            replica.settings.replica_id,
            replica.saved.incarnation,
            in_sync.followers,
            now_s=self._now_s,
            recent_s=quorum.times.recent,
        )
        if members is None:
            return
        try:
            self._change(members, self._now_s, now_ms)
        except RoleRefused as refused:  # a full disk, say: it is tried again, and no one waits for it
            logger.info("new disks cannot be adopted yet: %s", refused)
        else:
            outcome.log_grew = True

    def _do(self, ready: Ready, now_ms: int, members: Members | None = None) -> Outcome:
        """`members`: the voters from the epoch's record on, where they are not those that voted."""
        replica = self._replica
        outcome = Outcome(why=ready.stopped)
        if ready.stopped is not None:
            replica.stop_leading()
            outcome.role_changed = True
        if ready.trust:
            try:
                replica.trust_own_end()
            except OSError as error:
                return self._halt(outcome, error)
            outcome.trusts = True
        if ready.vote is not None:
            try:
                replica.remember_vote(ready.vote, joined=ready.vote.voted_for is not None)
            except OSError as error:
                # It may be on the disk or not: what is not sure to be remembered must not be said.
                return self._halt(outcome, error)
        if ready.lead:
            try:
                quorum = self._quorum
                granted, may_lack_shown = quorum.granted, quorum.may_lack_shown
                replica.lead_elected(granted, self._now_s, now_ms, members, may_lack_shown=may_lack_shown)
            except OSError as error:
                return self._halt(outcome, error)
            except StoreError as error:
                ready = self._quorum.resign(f"the epoch record cannot be written: {error}", self._now_s)
            else:
                self._change_end = self._store.end_offset
                outcome.role_changed = True
        outcome.reply, outcome.messages = ready.reply, ready.messages
        followed, self._followed = self._followed, (replica.epoch, replica.leader_address)
        outcome.leader_changed = self._followed != followed
        return outcome

    def _write_vote_again(self) -> None:
        """Nothing was said of it: once it is written, as the last word of its epoch, this replica may vote and lead again."""
        try:
            self._replica.remember_vote(self._quorum.vote)
        except OSError:
            self._write_again_s = self._now_s + self._quorum.times.room_again
        else:
            self._quorum.resume(self._now_s)
            logger.warning("group %s: the epoch file is written again: voting as before", self._replica.settings.group)

    def _halt(self, outcome: Outcome, error: OSError) -> Outcome:
        self._write_again_s = self._now_s + self._quorum.times.room_again
        outcome.failure = f"the epoch file cannot be written: {error.strerror or error}"
        self._quorum.halt(outcome.failure)
        outcome.leader_changed = True
        return outcome


class _ReplicaLog:
    """quorum.Log of a replica."""

    def __init__(self, replica: _Replica, store: MessageStore) -> None:
        self._replica = replica
        self._store = store

    @property
    def last_epoch(self) -> int:
        return self._replica.epochs.last_epoch

    @property
    def end_offset(self) -> int:
        return self._store.end_offset

    @property
    def members(self) -> Members:
        return self._replica.members

    @property
    def known(self) -> Iterable[int]:
        return self._replica.saved.replicas

    @property
    def joined(self) -> bool:
        return self._replica.saved.joined

    @property
    def may_decide(self) -> bool:
        return self._replica.may_decide

    @property
    def unfit(self) -> str | None:
        refusal = self._store.refusal
        return None if refusal is None else str(refusal)

    @property
    def incarnation(self) -> str:
        return self._replica.saved.incarnation

    @property
    def disk_is_new(self) -> bool:
        replica = self._replica
        return replica.disk_is_new and replica.members.counts(replica.settings.replica_id)

    @property
    def log_may_be_incomplete(self) -> bool:
        return self._replica.saved.log_may_be_incomplete

    @property
    def trusts_own_end(self) -> bool:
        return self._replica.trusts_own_end

    @property
    def may_lack_durable(self) -> bool:
        return self._replica.saved.may_lack_durable

    @property
    def full(self) -> bool:
        return self._store.lacks_room()
