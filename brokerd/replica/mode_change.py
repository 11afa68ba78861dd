"""Another mode for a running group: asynchronous, synchronous or DLedger, without moving data or stopping a replica.

The leader writes a record of type "mode". It is confirmed under the policy that is in force, and each replica adopts the new
one when it knows that: the leader first, for it is the first to know, and before it confirms anything after the record. Into
DLedger a majority of the new voters must hold the record too, and enough of them must act by it before the leader does, so
that a majority can elect.

The steps are single <-> async <-> sync <-> DLedger: between the last two a record that was acknowledged is on a majority
before anyone elects. A group of one gets slaves before it changes to async, and is rid of them before it changes back.
Source: replication.md, "Mode change".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from brokerd.replica.epoch_file import EpochState
from brokerd.replica.epoch_record import MODE, EpochRecord, Policy, modes_in, pending_modes
from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from brokerd.store import MessageStore, RecordDamagedError, StoreError
from mqwire.mode import Mode

logger = logging.getLogger(__name__)

_LEAST_VOTERS: Final = 3
_STEPS: Final = {
    (Mode.SINGLE, Mode.ASYNC),
    (Mode.SINGLE, Mode.SYNC),
    (Mode.ASYNC, Mode.SINGLE),
    (Mode.ASYNC, Mode.SYNC),
    (Mode.SYNC, Mode.ASYNC),
    (Mode.SYNC, Mode.DLEDGER),
    (Mode.DLEDGER, Mode.SYNC),
}


@dataclass(frozen=True, slots=True)
class PendingMode:
    """A mode record that is in the log and not known to be confirmed."""

    begin_offset: int
    end_offset: int
    policy: Policy
    members: Members | None  # the voters from then on; None where the leader is assigned


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """What a request for another mode goes by: the leader's epoch, and where its log ended then, in bytes."""

    epoch: int
    end_offset: int


class _Elections(Protocol):
    @property
    def change_pending(self) -> bool: ...


class _Replica(Protocol):
    """What a change of the mode uses of its replica."""

    @property
    def settings(self) -> ReplicaSettings: ...
    @property
    def epoch(self) -> int: ...
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
    def must_reclaim(self) -> bool: ...
    @property
    def known_replicas(self) -> dict[int, str]: ...
    @property
    def elections(self) -> _Elections | None: ...

    def append_record(
        self, kind: str, epoch: int, members: Members, now_ms: int, policy: Policy | None = None
    ) -> int: ...

    def adopt_mode(self, change: PendingMode, now_s: float) -> None: ...


class ModeChange:
    """Of one replica."""

    def __init__(self, replica: _Replica, store: MessageStore) -> None:
        self._replica = replica
        self._store = store
        self._pending: list[PendingMode] = []
        # The others that act by dledger, as a restarted leader heard: replica id -> the incarnation of its disk.
        self._electors: dict[int, str] = {}
        self._in_force_until: int | None = None  # where the record of the policy in force ends; None: the log has none
        self._save_failed = False  # the epoch file was not written when a change was to be adopted

    @property
    def pending(self) -> PendingMode | None:
        """The change that is under way."""
        return self._pending[0] if self._pending else None

    def load(self) -> None:
        """After a start: what the log holds beyond what is known to be confirmed, and what was confirmed and not adopted yet.

        A leader waits with a change into DLedger for a majority that would elect: stopped meanwhile, it must not forget it. Where
        the log lacks the record of the policy in force by damage, nothing is known to follow that; where retention has deleted it,
        all that is left follows it.
        """
        every = [_pending(*found) for found in pending_modes(self._store)]
        in_force = self._replica.saved.policy
        known = [one for one in every if one.end_offset <= self._replica.confirm_offset]
        self._in_force_until = max((one.end_offset for one in known if one.policy == in_force), default=None)
        confirmed = [one.policy for one in known]
        adopted = len(confirmed)
        if self._store.damaged_from is None and self._replica.saved.joined:
            if in_force is None:
                adopted = 0
            elif in_force in confirmed:
                adopted -= confirmed[::-1].index(in_force)
            elif 0 < self._replica.saved.policy_until <= self._store.min_physical_offset:
                adopted = 0
        self._pending = every[adopted:]

    def received(self, data: bytes) -> None:
        """A leader's records were appended."""
        self._pending += [_pending(*found) for found in modes_in(data)]

    def without_record(self) -> Policy | None:
        """The policy in force if the group has changed to it and the log has no record of any change: retention deleted that.

        Also where the log cannot tell for damage, which the store notes for a closer look: a follower that learns the policy
        in force is right in any case, and one with a new disk waits for it.
        """
        try:
            found = pending_modes(self._store)
        except RecordDamagedError:
            found = []
        return None if found else self._replica.saved.policy

    def learn(self, policy: Policy) -> None:
        """The leader's log begins after the change to this policy, which is in force there: `adopt` takes it now."""
        if self._replica.settings.with_policy(policy) != self._replica.settings:
            self._pending = [PendingMode(0, 0, policy, None)]

    def truncate(self, end_offset: int) -> None:
        """The log was truncated."""
        self._pending = [one for one in self._pending if one.end_offset <= end_offset]
        if self._in_force_until is not None and self._in_force_until > end_offset:
            self._in_force_until = None

    def request(self, policy: Policy, now_s: float, now_ms: int, seen: LeaderSeen | None = None) -> None:
        """As the leader, write the change; raises RoleRefused. In force once confirmed, see `adopt`.

        `seen` is what the one who asks has seen of this leader. A request may come late, when others have been asked for and
        carried out: it is refused if a record of a mode was written since, or the leader has another epoch.
        """
        replica = self._replica
        members = self._checked(policy, seen)
        begin_offset = self._store.end_offset
        try:
            end_offset = replica.append_record(MODE, replica.epoch, members or Members(()), now_ms, policy)
        except StoreError as error:
            raise RoleRefused(f"the change cannot be written: {error}") from error
        self._pending.append(PendingMode(begin_offset, end_offset, policy, members))
        self.hold_back(now_s)

    def write_again(self, members: Members, now_ms: int) -> None:
        """As the leader of a new epoch, write the record of the policy in force where the log has lost it.

        With ASYNC_FLUSH a power cut of every replica takes a record that was confirmed and adopted. Those that had not adopted it
        would never hear of it, and a change of the mode waits for all of them.
        """
        replica = self._replica
        policy = replica.saved.policy
        if policy is None or self._pending or self._in_force_until is not None or self._store.damaged_from is not None:
            return
        try:
            self._in_force_until = replica.append_record(MODE, replica.epoch, members, now_ms, policy)
        except StoreError as error:
            logger.warning("the mode %s is not written to the log again until the next epoch: %s", policy.mode, error)

    def hold_back(self, now_s: float) -> None:
        """A leader confirms nothing after a change before it acts by it; one into DLedger only when its majority holds it."""
        pending, in_sync = self.pending, self._replica.in_sync
        if in_sync is None:
            return
        if pending is None:
            in_sync.release(now_s)
        else:
            in_sync.hold_back(pending.begin_offset, pending.end_offset, pending.members, now_s)

    def heard_electors(self, incarnations: Mapping[int, str]) -> None:
        """Which of the others elect by now, and by which disk: what a leader that was restarted goes by, see `adopt`."""
        self._electors = dict(incarnations)

    def adopt(self, now_s: float) -> bool:
        """Take what is confirmed by now; returns whether the mode is another one. Call it whenever confirmOffset may have moved.

        While the epoch file can't be written the old mode goes on, and a leader confirms nothing after the change.
        """
        changed = False
        while self._may_adopt():
            change = self._pending[0]
            if not self._acts_by(change.policy):  # else it was written again
                try:
                    self._replica.adopt_mode(change, now_s)
                except OSError as error:
                    if not self._save_failed:  # it is called often
                        logger.error("the mode stays, for the epoch file cannot be written, trying again: %s", error)
                    self._save_failed = True
                    break
                changed, self._save_failed = True, False
            del self._pending[0]
            self._in_force_until = change.end_offset or None
            self.hold_back(now_s)
        return changed

    def _acts_by(self, policy: Policy) -> bool:
        settings = self._replica.settings
        return self._replica.saved.policy == policy and settings == settings.with_policy(policy)

    def _may_adopt(self) -> bool:
        pending, replica = self.pending, self._replica
        if pending is None or pending.end_offset > replica.confirm_offset:
            return False
        in_sync, members = replica.in_sync, pending.members
        if in_sync is None:
            return members is None or self._may_elect(members)
        if replica.elections is not None:
            # Out of DLedger a leader goes when those that it has not informed could not elect another one: what it showed
            # meanwhile by the new mode alone, that one would lack.
            informed = {key for key, follower in in_sync.followers.items() if follower.mode not in ("", Mode.DLEDGER)}
            may_elect = set(replica.members.voters) - {replica.settings.replica_id} - informed
            return pending.policy.mode == Mode.DLEDGER or len(may_elect) < replica.members.majority
        if members is None:
            return True
        # Into DLedger a leader goes when a majority would elect another one, itself included. Had it gone first, and died,
        # those it had not informed would wait for a promotion, which it refuses; it needs their votes, which they do not give.
        followers = in_sync.followers.items()
        return self._would_elect({key: one.incarnation for key, one in followers if one.mode == Mode.DLEDGER}, members)

    def _may_elect(self, members: Members) -> bool:
        """Whether a replica that does not lead acts by a confirmed change into DLedger.

        One that follows a leader does. Who led when it stopped goes by the same rule as a leader: too few to elect anyone, it and
        those that have adopted the change would wait for ever, and alone hold what was acknowledged last. It leads again, by
        everyone's agreement or a promotion, and informs the others. One that has promised an epoch and knows no leader of it does
        not either: a promotion counts on how many elect.
        """
        if self._replica.must_reclaim:
            return self._would_elect(self._electors, members)
        return self._replica.leader_address is not None

    def _would_elect(self, others: Mapping[int, str], members: Members) -> bool:
        """Whether this replica and those others are a majority of the voters. A disk that took a voter's place has no vote."""
        electing = {key for key, incarnation in others.items() if members.knows(key, incarnation)}
        return len({*electing, self._replica.settings.replica_id}.intersection(members.voters)) >= members.majority

    def _checked(self, policy: Policy, seen: LeaderSeen | None) -> Members | None:
        replica = self._replica
        in_sync = replica.in_sync
        if in_sync is None:
            raise RoleRefused(f"this replica does not lead; the leader is {replica.leader_address or 'not known here'}")
        if self._pending or (replica.elections is not None and replica.elections.change_pending):
            raise RoleRefused("the change before this one is not confirmed yet; ask again in a moment")
        now = replica.settings.mode
        if seen is not None and (seen.epoch != replica.epoch or seen.end_offset < (self._in_force_until or 0)):
            raise RoleRefused(
                f"the group has been changed to mode {now}, or its leader, since this was asked for; look at haStatus, and"
                " ask again"
            )
        if (now, policy.mode) not in _STEPS:
            raise RoleRefused(
                f"a group goes from {now} to {policy.mode} by single, async, sync, dledger, one step at a time",
                for_good=True,
            )
        if policy.mode == Mode.SINGLE and replica.known_replicas:
            raise RoleRefused(
                f"replicas {sorted(replica.known_replicas)} belong to the group: stop each, and have it forgotten first"
            )
        caught_up = {key for key, follower in in_sync.followers.items() if follower.in_sync and follower.joined}
        if policy.mode == Mode.SYNC and not 2 <= policy.in_sync_replicas <= 1 + len(caught_up):
            raise RoleRefused(
                f"inSyncReplicas {policy.in_sync_replicas} does not fit: {1 + len(caught_up)} replicas are in sync, and 2 or"
                " more must be asked for"
            )
        if now == Mode.SYNC and policy.mode == Mode.ASYNC:
            self._check_that_no_replica_elects()
        wanted = replica.settings.with_policy(policy)
        if now == Mode.DLEDGER and wanted.surely_held_by < replica.members.majority:
            name = "minInSyncReplicas" if wanted.auto_in_sync_replicas else "inSyncReplicas"
            auto = " (enableAutoInSyncReplicas goes down to it)" if wanted.auto_in_sync_replicas else ""
            raise RoleRefused(
                f"{name} {wanted.surely_held_by}{auto} is too small after DLedger, {replica.members.majority} are needed:"
                " replicas that have not heard of the change yet may elect another leader, and each acknowledgement must"
                " meet one of those that would vote"
            )
        if policy.mode != Mode.DLEDGER:
            return None
        known = set(replica.known_replicas)
        if len(known) + 1 < _LEAST_VOTERS:
            raise RoleRefused(
                f"{len(known) + 1} replicas cannot outvote a dead one: DLedger needs {_LEAST_VOTERS} or more"
            )
        if known != caught_up:
            raise RoleRefused(
                f"replicas {sorted(known - caught_up)} are not in sync: every voter must have caught up first"
            )
        disks = {key: follower.incarnation for key, follower in in_sync.followers.items() if key in known}
        disks[replica.settings.replica_id] = replica.saved.incarnation
        return Members(tuple(sorted({replica.settings.replica_id, *known}))).having(disks)

    def _check_that_no_replica_elects(self) -> None:
        """Old voters that have not adopted the way back from DLedger may still elect one of theirs, and follow it.

        Under the synchronous mode each acknowledgement is on one of those that would vote; under the asynchronous one it
        may be here alone. A replica that has adopted the change does so for ever: hearing it once is enough.
        """
        replica = self._replica
        in_sync = replica.in_sync
        assert in_sync is not None, "only a leader checks"
        others = [voter for voter in replica.members.voters if voter != replica.settings.replica_id]
        heard = {key for key, follower in in_sync.followers.items() if follower.mode not in ("", Mode.DLEDGER)}
        # One that left the group for good is known no more.
        missing = [voter for voter in others if voter not in heard and voter in replica.known_replicas]
        if missing:
            raise RoleRefused(
                f"replicas {missing} have not adopted the change from DLedger yet, and may still elect a leader of their own:"
                " ask again when they act by sync (haStatus shows it); forget those that are gone for good"
            )


def _pending(begin_offset: int, end_offset: int, record: EpochRecord) -> PendingMode:
    return PendingMode(begin_offset, end_offset, record.policy, record.members)
