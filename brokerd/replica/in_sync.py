"""What followers hold, which of them are in sync, and up to where the group's records are safe.

Pure: time, the leader's own offsets and the followers' reports are passed in. Source: replication.md, "confirmOffset and
the answer to a send"; the in-sync set is Kafka's and RocketMQ's SyncStateSet, kept by the leader alone.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from brokerd.replica.voters import Members, majority_offset
from mqwire.mode import Mode


def copies_needed(in_sync_replicas: int, min_in_sync_replicas: int, *, auto: bool, in_sync: int = 0) -> int:
    """On how many replicas a record must be for SEND_OK while `in_sync` of them are: RocketMQ's calcNeedAckNums.

    Without `in_sync`: on how many an acknowledged record is for certain, whatever happened meanwhile.
    """
    return max(min_in_sync_replicas, min(in_sync_replicas, in_sync)) if auto else in_sync_replicas


class SendVerdict(enum.Enum):
    """What may be said of a record that ends at some offset."""

    WAIT = "wait"
    SEND_OK = "ok"
    SLAVE_NOT_AVAILABLE = "slave not available"  # too few replicas are in sync for SEND_OK


@dataclass(slots=True)
class FollowerState:
    """A follower as the leader knows it from pulls that passed the divergence check in the current epoch.

    Invariant: durable_offset <= end_offset <= the leader's end when it was reported.
    """

    replica_id: int
    end_offset: int
    durable_offset: int
    last_pull_s: float
    # When it last held all that the leader had then: under a steady load it is never level with what came a moment ago.
    last_level_s: float = float("-inf")
    in_sync: bool = False
    leader_held_offset: int = 0  # what the leader held when it pulled before, and when that was
    leader_held_s: float = float("-inf")
    joined: bool = True  # whether a quorum counts it
    mode: str = ""  # by which it acts, as it says
    syncs: bool = False  # it holds what is durable, and nothing else, whatever the leader's own flush type is
    leased_until_s: float = float("-inf")  # until then nothing is shown that it does not hold: its lease, as sent to it
    incarnation: str = ""  # which disk it has; one that took another's place does not count before the group adopts it


class InSyncSet:
    """The leader's view of its followers in one epoch.

    Invariants: `confirm_offset` never falls; a follower counts once, however many connections it has; what a report of
    another epoch says never gets here (the pull protocol fences it).
    """

    def __init__(
        self,
        *,
        mode: Mode,
        own_durable_counts: bool,
        in_sync_replicas: int,
        min_in_sync_replicas: int,
        auto_in_sync_replicas: bool = False,
        max_time_not_level_s: float,
        follower_timeout_s: float,
        confirm_offset: int,
        max_gap_bytes: int = 256 * 1024 * 1024,
        own_id: int = 0,
        members: Members | None = None,
        epoch_record_end: int = 0,
    ) -> None:
        """`own_durable_counts` says that held means durable (SYNC_FLUSH); otherwise it means appended.

        `auto_in_sync_replicas` (enableAutoInSyncReplicas): with fewer in sync than inSyncReplicas these are enough, down to
        minInSyncReplicas.

        The last three count in mode DLEDGER: the voters, and where the record ends that began this epoch.
        """
        self._mode = mode
        self._durable_counts = own_durable_counts
        self._in_sync_replicas = in_sync_replicas
        self._min_in_sync_replicas = min_in_sync_replicas
        self._auto_in_sync_replicas = auto_in_sync_replicas
        self._max_time_not_level_s = max_time_not_level_s
        self._follower_timeout_s = follower_timeout_s
        self._max_gap_bytes = max_gap_bytes  # haMaxGapNotInSync
        self._followers: dict[int, FollowerState] = {}
        self._confirm_offset = confirm_offset
        self._own_held = confirm_offset
        self._own_id = own_id
        self._members = members or Members((own_id,))
        self._epoch_record_end = epoch_record_end
        self._held_back: tuple[int, int, Members | None] | None = None
        self._awaited: set[int] = set()  # in sync with the leader before this one, and not heard of yet
        self._awaited_until_s = float("-inf")

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """By replica id; a view."""
        return MappingProxyType(self._followers)

    @property
    def confirm_offset(self) -> int:
        """Readers see up to here."""
        return self._confirm_offset

    @property
    def size(self) -> int:
        """How many replicas are in sync, the leader included."""
        return 1 + sum(follower.in_sync for follower in self._followers.values())

    @property
    def refuses_sends(self) -> bool:
        """Whether a send must be refused before it is appended: fewer than minInSyncReplicas are available."""
        return self._mode is Mode.SYNC and self._available < self._min_in_sync_replicas

    def await_in_sync(self, replica_ids: Collection[int], now_s: float) -> None:
        """Inherit the in-sync set: show nothing more before these have reported, or have not for as long as any may be silent."""
        self._awaited = set(replica_ids) - {self._own_id}
        self._awaited_until_s = now_s + self._follower_timeout_s

    def lease_s(self, replica_id: int) -> float:
        """How long, from its last pull on, this leader shows nothing that the follower does not hold; what is promised is kept.

        A follower that is promoted within that time has all that readers saw, also where they are shown more while too few
        are in sync.
        """
        follower = self._followers.get(replica_id)
        if follower is None or self._mode is not Mode.SYNC or not follower.in_sync:
            return 0.0
        until_s = min(
            follower.last_level_s + self._max_time_not_level_s, follower.last_pull_s + self._follower_timeout_s
        )
        follower.leased_until_s = max(follower.leased_until_s, until_s)
        return max(0.0, until_s - follower.last_pull_s)

    def held_by(self, follower: FollowerState) -> int:
        """What a follower's report is worth under the stricter one of both flush types.

        They differ while flushDiskType is changed, one replica after the other. One that syncs does not doubt its log after a
        power cut, though what was in memory only is gone: had that counted here, it would elect past it.
        """
        return follower.durable_offset if self._durable_counts or follower.syncs else follower.end_offset

    def own_held(self, held_offset: int, now_s: float) -> bool:
        """The leader holds up to `held_offset`; returns whether confirm_offset moved."""
        self._own_held = max(self._own_held, held_offset)
        return self._advance(now_s)

    def report(
        self,
        replica_id: int,
        *,
        end_offset: int,
        durable_offset: int,
        leader_end_offset: int,
        now_s: float,
        joined: bool = True,
        mode: str = "",
        incarnation: str = "",
        syncs: bool = False,
    ) -> bool:
        """A pull reported what a follower holds; returns whether confirm_offset moved.

        The caller has checked signature, epoch and divergence. Reports may come late and out of order: the newest pull
        of a replica is the one that arrives last on its current connection, and what it holds may have become less only
        by a truncation, which confirm_offset, never above what it reported then, outlives.
        """
        self._awaited.discard(replica_id)
        follower = self._followers.get(replica_id)
        if follower is None:
            follower = FollowerState(replica_id, end_offset, durable_offset, now_s)
            self._followers[replica_id] = follower
        follower.joined = joined
        follower.mode, follower.incarnation, follower.syncs = mode, incarnation, syncs
        follower.end_offset = end_offset
        follower.durable_offset = min(durable_offset, end_offset)
        follower.last_pull_s = now_s
        # Level is measured in what counts: a follower that fetches fast and never flushes is not in sync.
        held = self.held_by(follower)
        leader_held = min(leader_end_offset, self._own_held)
        if held >= leader_held:
            follower.last_level_s = now_s
        elif held >= follower.leader_held_offset:
            follower.last_level_s = max(follower.last_level_s, follower.leader_held_s)
        follower.leader_held_offset, follower.leader_held_s = leader_held, now_s
        # Less than what is confirmed: its disk has lost something, or it is a new one. It counts again when it has caught up.
        follower.in_sync = held >= self._confirm_offset and self._keeps_up(follower, now_s)
        return self._advance(now_s)

    def forget(self, replica_id: int, now_s: float) -> bool:
        """A follower is gone for good (removed from the group); returns whether confirm_offset moved."""
        self._followers.pop(replica_id, None)
        self._awaited.discard(replica_id)
        return self._advance(now_s)

    def count(self, members: Members, now_s: float) -> bool:
        """Others count from now on (mode DLEDGER); returns whether confirm_offset moved."""
        self._members = members
        return self._advance(now_s)

    def hold_back(self, begin_offset: int, end_offset: int, members: Members | None, now_s: float) -> None:
        """Confirm nothing after `end_offset`, where the record of a change ends: what follows it is the new mode's.

        With `members` nothing from `begin_offset` on either, before a majority of them hold the record.
        """
        self._held_back = (begin_offset, end_offset, members)
        self._advance(now_s)

    def change_mode(
        self, mode: Mode, *, in_sync_replicas: int, min_in_sync_replicas: int, members: Members, now_s: float
    ) -> None:
        """Count in another way from now on; what is confirmed stays so. What is held back stays so until `release`."""
        self._mode = mode
        self._in_sync_replicas = in_sync_replicas
        self._min_in_sync_replicas = min_in_sync_replicas
        self._members = members
        self._advance(now_s)

    def release(self, now_s: float) -> None:
        """No change is under way any more."""
        self._held_back = None
        self._advance(now_s)

    def tick(self, now_s: float) -> bool:
        """Time passed; returns whether confirm_offset moved because a laggard left the set."""
        return self._advance(now_s)

    def verdict(self, record_end_offset: int) -> SendVerdict:
        """What may be answered to the sender of a record that ends there."""
        if self._mode.leader_is_enough:
            return SendVerdict.SEND_OK if record_end_offset <= self._confirm_offset else SendVerdict.WAIT
        if self._mode is Mode.SYNC and self._available < self._needed:
            return SendVerdict.SLAVE_NOT_AVAILABLE
        return SendVerdict.SEND_OK if record_end_offset <= self._confirm_offset else SendVerdict.WAIT

    @property
    def _available(self) -> int:
        """How many replicas a send may wait for: one whose lease keeps it in sync may be too far behind for that."""
        return 1 + sum(follower.in_sync and self._is_near(follower) for follower in self._followers.values())

    @property
    def _needed(self) -> int:
        """How many replicas must be in sync for SEND_OK."""
        return copies_needed(
            self._in_sync_replicas, self._min_in_sync_replicas, auto=self._auto_in_sync_replicas, in_sync=self.size
        )

    def _keeps_up(self, follower: FollowerState, now_s: float) -> bool:
        return (
            now_s - follower.last_level_s <= self._max_time_not_level_s
            and now_s - follower.last_pull_s <= self._follower_timeout_s
            and (now_s < follower.leased_until_s or self._is_near(follower))
        )

    def _is_near(self, follower: FollowerState) -> bool:
        return self._own_held - self.held_by(follower) <= self._max_gap_bytes

    def _advance(self, now_s: float) -> bool:
        confirmed = self._own_held
        for follower in self._followers.values():
            keeps_up = self._keeps_up(follower, now_s)
            follower.in_sync = follower.in_sync and keeps_up
            # One that keeps up and is not in sync yet is waited for: else what it must reach would run away from it.
            if keeps_up and self._mode is Mode.SYNC:
                confirmed = min(confirmed, self.held_by(follower))
        if self._mode is Mode.SYNC and self._stands_still(now_s):
            return False
        if self._mode is Mode.DLEDGER:
            confirmed = self._held_by_majority()
        if self._held_back is not None:
            begin_offset, end_offset, members = self._held_back
            confirmed = min(confirmed, end_offset)
            if members is not None and majority_offset(members, self._held(members)) < end_offset:
                confirmed = min(confirmed, begin_offset)
        if confirmed <= self._confirm_offset:
            return False
        self._confirm_offset = confirmed
        return True

    def _stands_still(self, now_s: float) -> bool:
        """Whether readers are shown nothing new: as in KIP-966 while too few are in sync, unless minInSyncReplicas allows it."""
        if self._awaited and now_s < self._awaited_until_s:
            return True
        sure = copies_needed(self._in_sync_replicas, self._min_in_sync_replicas, auto=self._auto_in_sync_replicas)
        return self.size < sure and self._min_in_sync_replicas >= sure

    def _held_by_majority(self) -> int:
        """The Raft paper, section 5.4.2: older epochs' records are committed by one of the own epoch after them only."""
        confirmed = majority_offset(self._members, self._held(self._members))
        return confirmed if confirmed >= self._epoch_record_end else self._confirm_offset

    def _held(self, members: Members) -> dict[int, int]:
        held = {
            follower.replica_id: self.held_by(follower)
            for follower in self._followers.values()
            if follower.joined and members.knows(follower.replica_id, follower.incarnation)
        }
        held[self._own_id] = self._own_held
        return held
