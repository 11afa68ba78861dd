"""One replica of a broker group: its log, its epoch, its role, and what may be promised.

The leader is assigned, or, in mode DLEDGER, elected (`elections`); all else is the same.

Pure but for the store and the epoch file that it is given: no sockets, no clock, no tasks; the broker's shell and the
simulator drive the same object. Source: replication.md, "Assigned leadership" and "confirmOffset and the answer to a
send". The order in each method is the point: what must be durable is saved before anything is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from random import Random

import msgspec

from brokerd.replica.elections import Elections
from brokerd.replica.epoch_file import (
    EpochState,
    EpochStorage,
    Role,
    SavedIncarnations,
    SavedMembers,
    changes_by_own_disk,
)
from brokerd.replica.epoch_map import Divergence, EpochMap
from brokerd.replica.epoch_record import (
    EPOCH,
    LACKS_NOTHING,
    Lacks,
    Policy,
    epoch_message,
    epoch_record,
    epochs_in,
    losses_in,
    members_in,
    read_epoch_map,
    read_members,
)
from brokerd.replica.errors import RoleRefused as RoleRefused
from brokerd.replica.in_sync import InSyncSet, SendVerdict
from brokerd.replica.mode_change import ModeChange, PendingMode
from brokerd.replica.pull_protocol import (
    CLOCK_MARGIN,
    Empty,
    Fenced,
    Halt,
    LeaderLog,
    PullDecision,
    ReplicaPull,
    SendBytes,
    Truncate,
    decide_pull,
    decide_truncation,
)
from brokerd.replica.quorum_state import Vote
from brokerd.replica.replica_settings import ReplicaSettings as ReplicaSettings
from brokerd.replica.voters import MemberHistory, Members
from brokerd.store import MessageStore, RecordDamagedError, StoreError, TailDoubt
from mqwire.mode import Mode

_EPOCHS_KEPT = 1000
_COMPLETE = {"log_may_be_incomplete": False, "may_lack_durable": False}
NO_ONE = -1  # a vote that is no one's, and spent


class Replica:
    """See the module. Offsets are of the CommitLog, in bytes; times are seconds of one monotonic clock.

    Invariants: `epoch` never falls and is durable before it is reported; a leader's first record in an epoch is its epoch
    record; a replica that is not a confirmed leader takes no sends.
    """

    def __init__(
        self, settings: ReplicaSettings, store: MessageStore, storage: EpochStorage, random: Random | None = None
    ) -> None:
        """`random` draws the waits of elections; a simulation passes its own."""
        self._settings = settings
        self._random = random or Random()
        self.elections: Elections | None = None  # of a quorum-led group, from start() on
        self._members = MemberHistory(settings.members)
        self.modes = ModeChange(self, store)
        self._store = store
        self._storage = storage
        self._state = EpochState()
        self._epochs = EpochMap()
        self._in_sync: InSyncSet | None = None
        self._leader_confirm_offset = 0  # the leader's, of the bytes that are held here
        self._frozen_until_s = float("-inf")
        self._reclaiming: int | None = None
        self._lease: tuple[int, float] | None = None
        self._joins_at: int | None = None  # held up to there it has a vote

    # --- what it is

    @property
    def settings(self) -> ReplicaSettings:
        return self._settings

    @property
    def epoch(self) -> int:
        """The highest epoch that this replica has seen or promised."""
        return self._state.epoch

    @property
    def epochs(self) -> EpochMap:
        return self._epochs

    @property
    def leads(self) -> bool:
        """Whether this replica is the leader of its epoch, with the right to acknowledge."""
        return self._in_sync is not None

    @property
    def has_confirmed_epoch(self) -> bool:
        """Whether it leads and its epoch's first record is confirmed: only then does it know where the group's log ends."""
        return (
            self._in_sync is not None
            and self._epochs.last_epoch == self.epoch
            and self._in_sync.confirm_offset > self._epochs.entries[-1].start_offset
        )

    def knows_group_end(self, now_s: float) -> bool:
        """Whether it may answer consumers where queues end and what they have committed: no other leader knows better.

        An elected leader that no majority has pulled from lately may have been replaced without knowing it.
        """
        return self.has_confirmed_epoch and (self.elections is None or self.elections.has_recent_majority(now_s))

    @property
    def must_reclaim(self) -> bool:
        """Whether it led when it stopped: it may lead again once every other replica has agreed (`reclaimed`)."""
        return self._in_sync is None and self._state.role is Role.LEADER and self.elections is None

    @property
    def leader_address(self) -> str | None:
        """Where the group's leader serves, as far as known; its own address while it leads."""
        if self.leads:
            return self._settings.address
        return self._state.leader_address if self.elections is None else self.elections.leader_address

    @property
    def known_replicas(self) -> dict[int, str]:
        """Every other replica of the group that was ever seen: id -> address."""
        return dict(self._state.replicas)

    def address_of(self, replica_id: int) -> str | None:
        """Where another replica of the group is asked; None when no one has said so."""
        return self._settings.peers.get(replica_id) or self._state.replicas.get(replica_id)

    @property
    def unknown_replicas(self) -> int:
        """How many of the group's replicas were never seen: they must be found before this one can lead again."""
        return max(0, self._settings.total_replicas - 1 - len(self._state.replicas))

    @property
    def in_sync(self) -> InSyncSet | None:
        """The followers' reports while it leads."""
        return self._in_sync

    @property
    def members(self) -> Members:
        """The voters of a quorum-led group, by the log."""
        return self._members.current

    @property
    def may_decide(self) -> bool:
        """Whether a majority may need this replica: a voter, or one whose removal is not known to be confirmed."""
        return self._members.may_decide(self._settings.replica_id, self.confirm_offset)

    @property
    def disk_is_new(self) -> bool:
        """Whether its disk took the place of another that the group knows, and was not adopted yet (adoption.py)."""
        own_id, incarnation = self._settings.replica_id, self._state.incarnation
        return not self.members.knows(own_id, incarnation) or own_id in self.members.replacing

    @property
    def led_last_epoch(self) -> bool:
        """Whether it led in its log's last epoch, and has all that its log had then: so all that its readers were shown."""
        return self._state.led_epoch == self._epochs.last_epoch > 0

    @property
    def saved(self) -> EpochState:
        """What the epoch file says."""
        return self._state

    @property
    def held_offset(self) -> int:
        """Up to where this replica holds the log as its flush type promises."""
        store = self._store
        held = store.durable_offset if self._settings.durable_counts else store.end_offset
        return held if store.damaged_from is None else min(held, store.damaged_from)

    @property
    def confirm_offset(self) -> int:
        """Readers here see up to this offset."""
        if self._in_sync is not None:
            return self._in_sync.confirm_offset
        return min(self._leader_confirm_offset, self._store.end_offset)

    def refuses_sends(self, now_s: float) -> str | None:
        """Why no send is taken, as a remark; None when they are."""
        if self.elections is not None:
            return self.elections.refuses_sends(now_s)
        if self._in_sync is None:
            if self.must_reclaim:
                return "this replica was the master and waits for the other replicas' agreement to lead again"
            return f"this replica is a slave; the master is {self.leader_address or 'not known here yet'}"
        if now_s < self._frozen_until_s:
            return "the master role is moving to another replica; send again in a moment"
        if self._in_sync.refuses_sends:
            return (
                f"only {self._in_sync.size} of {self._settings.min_in_sync_replicas} replicas are in sync"
                " (minInSyncReplicas); sends are taken again when a slave has caught up"
            )
        return None

    # --- starting

    def start(self, now_s: float, now_ms: int) -> None:
        """Find out what this replica is, after the store was opened.

        The only replica of its group leads at once if it led before, or if it is fresh and configured so. With others, it
        waits for `reclaimed`: one of them may have been promoted since, or this directory may be a new one in the place of
        one that was lost. Everyone else follows.
        """
        state = self._storage.load()
        self._state = state or EpochState(role=Role.LEADER if self._settings.starts_as_leader else Role.FOLLOWER)
        self._read_log()
        if self._state.policy is not None:
            self._settings = self._settings.with_policy(self._state.policy)
        if self._epochs.last_epoch > self._state.epoch:
            self._save(epoch=self._epochs.last_epoch)
        # What comes after may be truncated yet, and readers shall not have seen it then.
        self._leader_confirm_offset = min(self._state.confirm_offset, self._store.end_offset)
        self.modes.load()
        self._note_own_disk(self._store.doubts)
        self._store.forget_doubts()
        if self._settings.mode is Mode.DLEDGER:
            if self._state.role is Role.LEADER:
                self._save(role=Role.FOLLOWER, leader_address=None)
            vote = Vote(self.epoch, self._state.voted_for, self._state.leader_address)
            self.elections = Elections(self, self._store, vote, self._random, now_s)
            return
        if self._state.role is Role.LEADER and not self._state.replicas and self._settings.total_replicas == 1:
            self._lead(self._state.epoch + 1, now_s, now_ms)

    def _read_log(self) -> None:
        """Where a record of epochs is damaged another replica puts it right: until then, what the epoch file remembers."""
        try:
            self._read_epochs()
        except RecordDamagedError as error:
            damaged_from = self._store.locate_damage(error.physical_offset)
            has_others = bool(self._state.replicas) or len(self._settings.members.voters) > 1
            if damaged_from is None or not has_others:
                raise
            self._store.declare_damaged(damaged_from)
            self._read_epochs()

    def _read_epochs(self) -> None:
        self._epochs = read_epoch_map(self._store, self._state.epoch_map)
        self._members = read_members(self._store, self._settings.members, self._state.member_history)

    def _note_own_disk(self, doubts: Collection[TailDoubt]) -> None:
        if changes := changes_by_own_disk(self._state, doubts, self._settings.durable_counts, self._random):
            self._save(**changes)

    def trust_own_end(self) -> None:
        """No replica that could know better was found for long: durable on return; raises OSError. Consumers may know better."""
        self._save(**_COMPLETE, trusts_own_end=True)

    def add_known_replica(self, replica_id: int, address: str) -> None:
        """Remember a replica of the group, durably: its agreement is asked for before this one leads again."""
        if replica_id != self._settings.replica_id and self._state.replicas.get(replica_id) != address:
            self._save(replicas={**self._state.replicas, replica_id: address})

    def forget_known_replica(self, replica_id: int, now_s: float) -> None:
        """A replica has left the group for good."""
        if replica_id in self._state.replicas:
            self._save(replicas={key: value for key, value in self._state.replicas.items() if key != replica_id})
        if self._in_sync is not None:
            self._in_sync.forget(replica_id, now_s)

    def consumers_sent_back(self) -> None:
        """That they are is in the log, durably. Raises OSError."""
        self._save(lacks_shown_from=None)

    # --- becoming and ceasing to be leader

    def promote(
        self,
        expected_epoch: int,
        new_epoch: int,
        now_s: float,
        now_ms: int,
        in_sync: Collection[int] = (),
        *,
        with_incomplete_log: bool = False,
        lacks_an_epoch: bool = False,
    ) -> None:
        """Lead in `new_epoch`, as assigned; raises RoleRefused. Done when the epoch record is appended; flush it.

        `in_sync` are the replicas that promised, and are alive: readers wait for them as for those that are in sync.
        `with_incomplete_log`: who decided it knew that this log may lack records at its end. Else a power cut may have taken them
        since this replica promised, and said what it held; another promise may show who holds them. `lacks_an_epoch`: someone may
        have led in one of which this log has nothing.
        """
        self._refuse_assignment()
        if self.leads and self.epoch == new_epoch:
            return  # the same promotion, repeated
        if new_epoch <= expected_epoch:
            raise RoleRefused(f"the new epoch {new_epoch} is not above the expected one, {expected_epoch}")
        if self.epoch != expected_epoch:
            raise RoleRefused(f"this replica is in epoch {self.epoch}, not {expected_epoch}: read haStatus again")
        refusal = self._store.refusal
        if refusal is not None:
            raise RoleRefused(f"this replica cannot lead: {refusal}")
        if self._state.log_may_be_incomplete and not with_incomplete_log:
            raise RoleRefused("this replica's log may have lost its end since it promised: ask the group again")
        lacks = Lacks(shown=with_incomplete_log or lacks_an_epoch, an_epoch=lacks_an_epoch)
        self._lead(new_epoch, now_s, now_ms, in_sync=in_sync, lacks=lacks)

    def begin_reclaim(self, highest_seen: int = 0) -> int:
        """The epoch to ask the other replicas for, above all that anyone has seen. Then end_reclaim().

        A replica that has agreed may name it before all have.
        """
        highest = max(self.epoch, highest_seen)
        # A fence has an even number, and the next one is its ballot's: one who promised it may not know that someone led in that.
        self._reclaiming = highest + (1 if highest % 2 or not highest else 2)
        return self._reclaiming

    def end_reclaim(self) -> None:
        """All have answered, or one has not: from now on that epoch may be another replica's, like any other."""
        self._reclaiming = None

    def lacks_of_leader(self, last_epoch: int) -> Lacks:
        """What this disk, or the one before it, may have held as the leader's that a log lacks which ends in `last_epoch` and is
        not shorter than its own."""
        state = self._state
        is_new = not state.joined  # what the one before it held, no one knows
        incomplete = state.log_may_be_incomplete
        return Lacks(shown=is_new or incomplete, an_epoch=is_new or (incomplete and state.led_epoch > last_epoch))

    def reclaimed(self, epoch: int, now_s: float, now_ms: int, *, lacks: Lacks = LACKS_NOTHING) -> None:
        """Every known replica has agreed to `epoch`, and said what this one may lack: lead again."""
        if not self.must_reclaim or epoch <= self.epoch:
            raise RoleRefused(f"epoch {epoch} is not to be reclaimed any more: this replica is in epoch {self.epoch}")
        if self.unknown_replicas:
            raise RoleRefused(f"{self.unknown_replicas} of the group's replicas (totalReplicas) were not found yet")
        refusal = self._store.refusal
        if refusal is not None:
            raise RoleRefused(f"this replica cannot lead: {refusal}")
        self._lead(epoch, now_s, now_ms, in_sync=self._state.replicas, lacks=lacks)

    def grant_reclaim(self, *, replica_id: int, epoch: int, last_epoch: int, end_offset: int, address: str) -> None:
        """Agree, durably, that a restarted leader leads in `epoch`; raises RoleRefused.

        The Raft paper's voting rule (sections 5.2 and 5.4.1): never two in one epoch, never one with a shorter log. A
        restarted leader that cannot lead for that reason would wait for ever, and the group with it: the replica with the
        longer log reclaims leadership in its place, and needs every other's agreement, too.
        """
        if self.elections is not None:
            self.elections.grant_reclaim(replica_id, epoch, last_epoch, end_offset)
            self.add_known_replica(replica_id, address)
            return
        if self.leads:
            led = self.epoch
            self.saw_epoch(epoch)
            raise RoleRefused(f"this replica leads in epoch {led}")
        # Asked again by the same replica: its first answer was lost, or another replica did not answer it.
        agreed_before = epoch == self.epoch and self._state.leader_address == address and not self.must_reclaim
        if epoch <= self.epoch and not agreed_before:
            raise RoleRefused(f"epoch {epoch} is not above {self.epoch}, which this replica has seen")
        own = (self._epochs.last_epoch, self._store.end_offset)
        if (last_epoch, end_offset) < own:
            if not self.must_reclaim and self._store.refusal is None:
                self._save(role=Role.LEADER, leader_address=None)
            raise RoleRefused(
                f"this replica's log goes on to {own[1]} in epoch {own[0]}, the other's only to {end_offset}"
                f" in epoch {last_epoch}: this one is to lead"
            )
        if (last_epoch, end_offset) == own and self.must_reclaim and self._settings.replica_id < replica_id:
            raise RoleRefused("this replica is to lead again, too, with the same log, and comes first by its id")
        # The leader of this epoch shows what it likes. Said so, for who remembers what the one before it had promised.
        self._lease = (epoch, 0.0)
        self._save(
            epoch=epoch,
            role=Role.FOLLOWER,
            leader_address=address,
            replicas={**self._state.replicas, replica_id: address},
        )

    def step_down(self, epoch: int, leader_address: str | None) -> None:
        """Stop leading: someone leads, or is about to lead, in `epoch`. Harmless to repeat; an old epoch is refused.

        Without `leader_address` a higher epoch is a promise to the one that asks for it: this replica takes nothing older, and
        follows no one until it hears of a leader of that epoch or a newer one. So an epoch that it follows a leader in is none
        that it can promise: it may be a restarted leader's, to which it agreed.
        """
        if self.elections is not None and not self.leads and (epoch, leader_address is not None) > (self.epoch, False):
            self.elections.saw_epoch(epoch, leader_address)  # of a group whose leader is assigned again
            return
        self._refuse_assignment()
        if epoch < self.epoch:
            raise RoleRefused(f"epoch {epoch} is below {self.epoch}, which this replica has seen")
        known = self._state.leader_address if epoch == self.epoch else None
        if leader_address is None and known is not None:
            raise RoleRefused(f"epoch {epoch} has its leader, {known}: ask for a higher one")
        self.stop_leading()
        if leader_address == self._settings.address:
            leader_address = None
        if epoch > self.epoch or self._state.role is Role.LEADER or leader_address is not None:
            self._save(epoch=epoch, role=Role.FOLLOWER, leader_address=leader_address or known)

    def saw_epoch(self, epoch: int, leader_address: str | None = None) -> bool:
        """Anyone named a higher epoch: a leader stops before it acknowledges anything more; returns whether it did so.

        A higher epoch alone says that a replica was to lead, not that one does: it may be the one of this replica's own
        reclaim, whose last answers were lost. So a leader that no other is named to waits to lead again (`must_reclaim`), and
        learns of the leader, if there is one, when it asks.
        """
        if self.elections is not None:
            return self.elections.saw_epoch(epoch, leader_address)
        if epoch < self.epoch or (epoch == self._reclaiming and self.must_reclaim):
            return False
        if epoch == self.epoch:
            known = (None, self._settings.address, self._state.leader_address)
            if not self.leads and leader_address not in known:
                self._save(leader_address=leader_address)
            return False
        led = self.leads
        if leader_address not in (None, self._settings.address):
            self.step_down(epoch, leader_address)
        else:
            self.stop_leading()
            self._save(epoch=epoch, leader_address=None)  # of the epoch before
        return led

    def stop_leading(self) -> None:
        """Acknowledge nothing more."""
        if self._in_sync is not None:  # what readers have seen they go on seeing
            self._leader_confirm_offset = self._in_sync.confirm_offset
            self._in_sync = None

    def freeze_sends(self, epoch: int, until_s: float) -> None:
        """Refuse sends until then: the drain of a planned switchover, which thaws by itself if no one goes on."""
        self._refuse_assignment()
        if not self.leads or epoch != self.epoch:
            raise RoleRefused(f"this replica does not lead in epoch {epoch}")
        self._frozen_until_s = until_s

    def _refuse_assignment(self) -> None:
        if self.elections is not None:
            raise RoleRefused("this group elects its leader: ask for a transfer of the leadership instead")

    def remember_vote(self, vote: Vote, *, joined: bool = False) -> None:
        """Of an election: durable on return; raises OSError. `joined` says that it has a vote from now on."""
        self._save(role=Role.FOLLOWER, joined=joined or self._state.joined, **asdict(vote))

    @property
    def trusts_own_end(self) -> bool:
        """Whether its log may lack what it once held, and readers saw, and it waits for no one who could know better. So it is
        where it was to lead with such a log, too, and its epoch's record was not written: on a full disk, or before it was killed.
        """
        return self._state.trusts_own_end or self._has_unwritten_loss

    @property
    def _has_unwritten_loss(self) -> bool:
        """Whether the loss that its epoch file names is of an epoch that never began."""
        loss = self._state.lacks_shown_from
        return loss is not None and loss >= self._store.end_offset

    def lead_elected(
        self,
        granted: Mapping[int, str],
        now_s: float,
        now_ms: int,
        members: Members | None = None,
        *,
        may_lack_shown: bool = False,
    ) -> None:
        """A majority voted for this replica in its epoch; raises StoreError when the epoch record cannot be written.

        `granted`: the replicas that voted, each with its disk. Where the group knows none of a voter's yet, that one is it.
        With `members` an operator has said which are left. `may_lack_shown`: none of those that voted may have what readers saw.
        """
        disks = {voter: one for voter, one in granted.items() if self.members.counts(voter)}
        named = members or self.members.having(disks)
        self._lead(self.epoch, now_s, now_ms, named, lacks=Lacks(shown=may_lack_shown or members is not None))

    def append_record(
        self,
        kind: str,
        epoch: int,
        members: Members,
        now_ms: int,
        policy: Policy | None = None,
        *,
        lacks: Lacks = LACKS_NOTHING,
    ) -> int:
        """As the leader, write which replicas count, in force at once; returns where the record ends. Raises StoreError."""
        settings = self._settings
        mode = settings.mode if policy is None else policy.mode
        elected = mode is Mode.DLEDGER
        listed = members if elected else Members(tuple(sorted({settings.replica_id, *self._state.replicas})))
        start_offset = self._store.end_offset if kind == EPOCH else None
        record = epoch_record(
            *(kind, epoch, settings.replica_id, listed, mode, policy, start_offset, now_ms),
            lacks=lacks,
        )
        result = self._store.append_needed(epoch_message(record, settings.store_host))
        if elected:
            self._members.note(result.physical_offset, members)
        return result.physical_offset + result.size_bytes

    def _lead(
        self,
        epoch: int,
        now_s: float,
        now_ms: int,
        members: Members | None = None,
        in_sync: Collection[int] = (),
        *,
        lacks: Lacks = LACKS_NOTHING,
    ) -> None:
        self._lease = None
        self.stop_leading()  # a new epoch is not led before its record is there: the append may fail
        start_offset = self._store.end_offset
        # Its own epoch, too: once the record that says so is damaged, nothing else would tell of which epoch the log's end is.
        begun = (*self._epoch_map_to_save(), (epoch, start_offset))
        led = {"epoch": epoch, "led_epoch": epoch, "role": Role.LEADER, "leader_address": None}
        if self._state.log_may_be_incomplete or self.trusts_own_end:
            an_epoch = self._has_unwritten_loss and self._state.lacks_an_epoch
            lacks = Lacks(shown=True, an_epoch=lacks.an_epoch or an_epoch)
        noted = self._noted_loss((start_offset, lacks) if lacks.shown else None)
        self._save(**led, joined=True, **_COMPLETE, trusts_own_end=False, **noted, epoch_map=begun)
        record_end = self.append_record(EPOCH, epoch, members or self.members, now_ms, lacks=lacks)
        self._epochs.begin(epoch, start_offset)
        self._frozen_until_s = float("-inf")
        confirmed = min(self._leader_confirm_offset, start_offset)
        self._in_sync = self._settings.in_sync_set(confirmed, self.members, record_end)
        self._in_sync.await_in_sync(in_sync, now_s)
        self.modes.write_again(members or self.members, now_ms)
        self.modes.hold_back(now_s)
        self._in_sync.own_held(self.held_offset, now_s)

    def _noted_loss(self, newest: tuple[int, Lacks] | None, *, forgets: bool = False) -> dict[str, object]:
        """What the epoch file says of losses, with the newest one, if there is one: where its epoch begins, what its log lacks.
        `forgets`: that it says now is none.
        """
        if newest is None:
            return {"lacks_shown_from": None} if forgets else {}
        start_offset, lacks = newest
        pending = self._state.lacks_shown_from is not None and self._state.lacks_an_epoch and not forgets
        return {"lacks_shown_from": start_offset, "lacks_an_epoch": lacks.an_epoch or pending}

    def adopt_mode(self, change: PendingMode, now_s: float) -> None:
        """A change of the mode is confirmed: this replica acts by it from now on. Raises OSError, and nothing has changed then."""
        led = self.leads
        settings = self._settings.with_policy(change.policy)
        elected = settings.mode is Mode.DLEDGER
        leader_id = settings.replica_id if led else self._id_at(self.leader_address)
        self._save(
            policy=change.policy,
            policy_until=change.end_offset or self._state.policy_until,
            role=Role.LEADER if led and not elected else Role.FOLLOWER,
            leader_address=None if led else self.leader_address,
            # This epoch has its leader. A replica that does not know which one votes for no one in it.
            voted_for=leader_id if elected else None,
        )
        self._settings = settings
        if self._in_sync is not None:
            self._in_sync.change_mode(
                settings.mode,
                in_sync_replicas=settings.in_sync_replicas,
                min_in_sync_replicas=settings.min_in_sync_replicas,
                members=self.members,
                now_s=now_s,
            )
        self.elections = None
        if elected:
            vote = Vote(self.epoch, self._state.voted_for, self._state.leader_address)
            self.elections = Elections(self, self._store, vote, self._random, now_s)
            if led:
                self.elections.take_over_as_assigned(change.end_offset, now_s)

    def _id_at(self, address: str | None) -> int:
        return next((key for key, known in self._state.replicas.items() if known == address), NO_ONE)

    def _save(self, **changes: object) -> None:
        if changes.get("epoch", self.epoch) != self.epoch:
            changes.setdefault("voted_for", None)  # a vote is of one epoch
        changes.setdefault("epoch_map", self._epoch_map_to_save())
        members, incarnations = self._members_to_save()
        state = msgspec.structs.replace(
            self._state,
            **changes,
            confirm_offset=self.confirm_offset,
            members=members,
            incarnations=incarnations,
        )
        self._storage.save(state)
        self._state = state

    def _epoch_map_to_save(self) -> tuple[tuple[int, int], ...]:
        return tuple((entry.epoch, entry.start_offset) for entry in self._epochs.entries)

    def _members_to_save(self) -> tuple[tuple[SavedMembers, ...], tuple[SavedIncarnations, ...]]:
        entries = self._members.entries
        return (
            tuple((offset, one.voters, one.preferred) for offset, one in entries),
            tuple(one.incarnations for _, one in entries),
        )

    def remember_confirm_offset(self) -> None:
        """Save it if it has moved: what a follower that restarts without a leader can show. Each few seconds, and at a stop."""
        if self.confirm_offset != self._state.confirm_offset:
            self._save()

    def remember_epochs(self) -> None:
        """Save what the log's own records say of epochs and members, before retention deletes such records; raises OSError.

        Of epochs that are not in the log any more the last thousand: for ever they would make a file that no full disk has room
        for, and only a replica that was away for all of these begins again without them where it could have gone on. The file
        is rid of the others when it is next written: retention on a full disk need not wait for that.
        """
        self._epochs.drop_before(self._store.min_physical_offset, kept=_EPOCHS_KEPT)
        epochs, saved = self._epoch_map_to_save(), self._state.epoch_map
        remembered = (saved[max(0, len(saved) - len(epochs)) :], self._state.members, self._state.incarnations)
        if remembered != (epochs, *self._members_to_save()):
            self._save()

    def keep_reserve(self) -> None:
        """See EpochStorage. At the start, and each few seconds."""
        self._storage.keep_reserve()

    # --- leading

    def held_changed(self, now_s: float) -> bool:
        """The own log grew or became durable, or time passed; returns whether confirm_offset moved."""
        return self._in_sync is not None and self._in_sync.own_held(self.held_offset, now_s)

    def verdict(self, record_end_offset: int) -> SendVerdict:
        """What may be answered to the sender of a record that ends there; WAIT for ever once it stopped leading."""
        return SendVerdict.WAIT if self._in_sync is None else self._in_sync.verdict(record_end_offset)

    def pulled(self, request: ReplicaPull, address: str, now_s: float, answered_s: float = math.inf) -> PullDecision:
        """Answer a follower and believe its report if it is one of ours. Its signature was checked by the caller.

        `answered_s`: when the pull before it was answered on the same connection; -inf for the first one.
        """
        if request.group == self._settings.group and request.leader_epoch > self.epoch:
            self.saw_epoch(request.leader_epoch)
        store = self._store
        decision = decide_pull(
            request,
            group=self._settings.group,
            own_epoch=self.epoch,
            is_leader=self.leads,
            leader_address=self.leader_address,
            log=LeaderLog(store.min_physical_offset, store.end_offset, self._epochs),
        )
        if isinstance(decision, Fenced) or self._in_sync is None:
            return decision
        if request.replica_id == self._settings.replica_id:
            return Fenced(
                self.epoch, None, f"replica id {request.replica_id} is the leader's own: give each replica another"
            )
        # Durable before its report counts: from now on this replica does not lead again without asking it.
        self.add_known_replica(request.replica_id, address)
        if self.elections is not None:
            self.elections.pulled(request, now_s, answered_s)
        if isinstance(decision, SendBytes):
            self._in_sync.report(
                request.replica_id,
                end_offset=request.end_offset,
                durable_offset=request.durable_offset,
                leader_end_offset=store.end_offset,
                now_s=now_s,
                joined=request.joined,
                mode=request.mode,
                incarnation=request.incarnation,
                syncs=request.syncs,
            )
        return decision

    # --- following

    def next_pull(self, *, max_bytes: int, max_wait_ms: int) -> ReplicaPull:
        """What to ask the leader next; the report in it is what is true now."""
        damaged_from = self._store.damaged_from
        end_offset = self._store.end_offset if damaged_from is None else damaged_from  # what comes after is not held
        return ReplicaPull(
            group=self._settings.group,
            replica_id=self._settings.replica_id,
            leader_epoch=self.epoch,
            end_offset=end_offset,
            last_epoch=self._epochs.last_epoch if damaged_from is None else self._epochs.epoch_at(end_offset - 1),
            durable_offset=min(self._store.durable_offset, end_offset),
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            joined=self._state.joined,
            incarnation=self._state.incarnation,
            disk_full=self._store.lacks_room(),
            mode=self._settings.mode,
            syncs=self._settings.durable_counts,
        )

    def learn_replicas(self, replicas: Mapping[int, str]) -> None:
        """The leader named the group's replicas, itself included: this one asks them, should it lead and be restarted."""
        own_id = self._settings.replica_id
        known = {**self._state.replicas, **{key: value for key, value in replicas.items() if key != own_id}}
        if known != self._state.replicas:
            self._save(replicas=known)

    def received(
        self, data: bytes, at_offset: int, epoch: int, leader_confirm_offset: int, *, checked: bool = False
    ) -> None:
        """The leader of `epoch` answered with records, which it has looked at where they are `checked`; raises ValueError
        when they do not fit, RoleRefused when it is old.
        """
        if self.leads or epoch != self.epoch:
            raise RoleRefused(f"records of epoch {epoch} come too late: this replica is in epoch {self.epoch}")
        if data:
            # A log that started over after retention knows already in which epoch it begins.
            begun = [entry for entry in epochs_in(data) if entry[0] != self._epochs.last_epoch]
            epochs = EpochMap([*self._epochs.entries, *begun])  # raises before anything is stored
            was_to_lead = self._has_unwritten_loss  # another one leads: what that lacks, its own record says
            self._store.append_raw(data, at_offset, checked=checked)
            self.modes.received(data)
            named = members_in(data)
            for offset, members in named:
                self._members.note(offset, members)
            if begun or named:
                self._epochs = epochs
                self._save(**self._noted_loss(max(losses_in(data), default=None), forgets=was_to_lead))
            elif was_to_lead:
                self._save(lacks_shown_from=None)
        # Only of what is held: the offset is this leader's, and what another one sends there later is not confirmed by it.
        confirmed = min(leader_confirm_offset, self._store.end_offset)
        self._leader_confirm_offset = max(self._leader_confirm_offset, confirmed)
        # What was confirmed before this epoch lies in front of what is confirmed in it.
        in_epoch = self._epochs.last_epoch == epoch and leader_confirm_offset > self._epochs.entries[-1].start_offset
        if in_epoch and self._state.trusts_own_end:
            self._save(trusts_own_end=False)
        if in_epoch and (self._state.log_may_be_incomplete or not self._state.joined):
            # What it knew before its disk was lost lies in front of that, too; what follows is confirmed without it.
            self._joins_at = leader_confirm_offset if self._joins_at is None else self._joins_at
            if self.held_offset >= self._joins_at:
                self._save(joined=True, **_COMPLETE)

    def repair(self, data: bytes, *, of_leader: bool) -> None:
        """Another replica's records from where the log is damaged: write them there. Raises ValueError where they do not fit.

        Of a replica that does not lead they are taken only with a record after them that is here, too: it may itself hold what
        the leader's log has not.
        """
        if self.leads:
            raise RoleRefused("a leading replica's store is not reopened")
        self._store.repair(data, needs_proof=not of_leader)
        self._read_repaired_log()

    def delete_damaged(self, below_offset: int, queues: Sequence[tuple[str, int, int]]) -> None:
        """Delete the damage with all in front of `below_offset`, as the leader's retention has. Raises what the store's does."""
        damaged_from = self._store.damaged_from
        try:
            self._store.delete_damaged(below_offset, queues)
        finally:  # also where the queues' ends could not be written
            if self._store.damaged_from != damaged_from and not self._store.wants_reopening:
                self._read_repaired_log()

    def _read_repaired_log(self) -> None:
        self._store.confirm_offset = None  # an epoch's record may have been damaged, and may not be confirmed yet
        try:
            self._read_log()
            self.modes.load()
        finally:
            self._store.confirm_offset = self.confirm_offset
        self._save()

    def truncate_damaged(self) -> None:
        """Truncate the log where its damage begins; the rest is to be fetched again. Raises ValueError when it stays damaged."""
        begin_offset = self._store.damaged_from
        if begin_offset is None:
            raise ValueError("the log is not damaged")

        def truncate_store(to_offset: int) -> None:
            report = self._store.truncate_damaged()
            if report.damage:
                raise ValueError(f"the log is still damaged, from {report.damage[0].begin_offset} on")

        self.truncate(begin_offset, truncate_store, confirmed=True)

    def reopen_store(self) -> None:
        """Open the store that a truncation left closed, wherever its log ends now. Raises what its reopen() raises."""
        end_offset = self._store.reopen().end_offset
        self.truncate(end_offset, lambda _: None)

    def is_repairable(self, damaged_from: int) -> bool:
        """Whether the log is damaged there and another replica can put that right, once this one leads no more."""
        if not self.leads:
            return bool(self._state.replicas)
        if self.elections is not None:
            return len(self.members.voters) > 1
        followers = () if self._in_sync is None else self._in_sync.followers.values()
        return any(follower.in_sync and follower.end_offset > damaged_from for follower in followers)

    def diverged(self, divergence: Divergence) -> Truncate | Empty | Halt:
        """What to do about a log that parts from the leader's; `cut` or `start_over` when the bytes after it are saved."""
        return decide_truncation(
            divergence,
            own=self._epochs,
            own_min_offset=self._store.min_physical_offset,
            own_end_offset=self._store.end_offset,
            own_confirm_offset=self._leader_confirm_offset,
            # Where leaders are assigned the operator has decided, and was warned of what is lost. An elected leader has it all,
            # unless what counted was in memory only, and a majority has lost it and has gone on: who held it would never follow.
            may_truncate_confirmed=self.elections is None or not self._settings.durable_counts,
        )

    def take_lease(self, epoch: int, asked_at_s: float, lease_s: float) -> None:
        """The leader of `epoch` answered a pull of then: so long it shows nothing that this replica does not hold; 0: unknown."""
        if lease_s > 0 and not self.leads:
            until_s = asked_at_s + lease_s * CLOCK_MARGIN
            if self._lease is not None and self._lease[0] == epoch:
                until_s = max(until_s, self._lease[1])
            self._lease = (epoch, until_s)

    @property
    def lease(self) -> tuple[int, float] | None:
        """(epoch of the leader, until when) it has shown nothing that is not held here; None: no one has said so."""
        return self._lease

    def start_over(
        self,
        min_offset: int,
        epoch: int,
        empty: Callable[[], object],
        members: Members | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Go on with an empty log at `min_offset`, in front of which is `epoch`: the leader's first byte, or the group's, 0.

        Either the leader's retention has deleted what this follower lacks, or its own the record where the logs part.

        `empty` makes the store an empty one that begins there, durably. Killed in between, it is simply done again.
        `policy` is in force where the leader's log has no record that says so.
        """
        if self.leads:
            raise RoleRefused("a leader's log is never emptied")
        log = self._store.min_physical_offset, self._store.end_offset
        epochs, state, leader_confirm_offset = self._epochs, self._state, self._leader_confirm_offset
        member_entries = self._members.entries
        try:
            self._begin_log_at(min_offset, epoch, members, policy)
            empty()
        except (StoreError, OSError):
            if not self._store.wants_reopening and log == (self._store.min_physical_offset, self._store.end_offset):
                # Nothing is gone: the log is of the epochs that it was of, and the leader is to say again where they part.
                self._epochs, self._members = epochs, MemberHistory(self._settings.members, member_entries)
                self._state, self._leader_confirm_offset = state, leader_confirm_offset
                with suppress(StoreError, OSError):
                    self._save()
                    self.modes.load()
            raise

    def _begin_log_at(self, min_offset: int, epoch: int, members: Members | None, policy: Policy | None) -> None:
        # The byte in front of the log stands for all of its epoch that is not here any more.
        self._epochs = EpochMap([(epoch, min_offset - 1)] if epoch and min_offset else [])
        self._members.truncate(0)
        if members is not None and members.voters:  # as the leader has them: the record that says so may be deleted too
            self._members = MemberHistory(self._settings.members, [(max(0, min_offset - 1), members)])
        self.modes.truncate(0)
        if policy is not None:
            self._save(policy=policy, policy_until=min_offset)  # or in front of that
            self.modes.learn(policy)
        self._leader_confirm_offset = min(self._leader_confirm_offset, min_offset)
        self._save(led_epoch=0, lacks_shown_from=None)  # what comes is the leader's, which sends consumers back itself

    def truncate(self, to_offset: int, truncate_store: Callable[[int], None], *, confirmed: bool = False) -> None:
        """Truncate the log; `truncate_store` makes the store's end `to_offset`, durably.

        `confirmed`: what goes had been confirmed, and is damaged. The replica has no vote until it has caught up again.
        """
        if self.leads:
            raise RoleRefused("a leader's log is never truncated")
        changes = {"led_epoch": 0} if self._state.led_epoch else {}
        if confirmed:
            self._joins_at = None
            changes["joined"] = False
        if changes:
            self._save(**changes)
        truncate_store(to_offset)
        self._epochs.truncate(to_offset)
        self._members.truncate(to_offset)
        self.modes.truncate(to_offset)
        self._leader_confirm_offset = min(self._leader_confirm_offset, to_offset)
        loss = self._state.lacks_shown_from
        self._save(lacks_shown_from=None if loss is not None and loss >= to_offset else loss)
