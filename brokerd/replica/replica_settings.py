"""What the configuration says of one replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from brokerd.replica.epoch_record import Policy
from brokerd.replica.in_sync import InSyncSet, copies_needed
from brokerd.replica.quorum_state import QuorumTimes
from brokerd.replica.voters import Members
from mqwire.mode import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """What the configuration says of this replica."""

    group: str
    replica_id: int
    address: str
    store_host: bytes
    mode: Mode
    durable_counts: bool  # flushDiskType is SYNC_FLUSH: held means durable
    starts_as_leader: bool  # brokerRole at the very first start
    total_replicas: int = 1  # of the group, as configured: a reclaim needs the agreement of all others
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    auto_in_sync_replicas: bool = False
    max_time_not_level_s: float = 15.0
    follower_timeout_s: float = 15.0
    max_gap_bytes: int = 256 * 1024 * 1024
    # Of a quorum-led group, as configured: in force until the log says otherwise.
    members: Members = field(default_factory=lambda: Members(()))
    peers: Mapping[int, str] = field(default_factory=dict)  # replica id -> where it is asked for its vote
    quorum_times: QuorumTimes = field(default_factory=QuorumTimes)

    @property
    def surely_held_by(self) -> int:
        """How many replicas hold a record for certain once its sender has SEND_OK: what a clean promotion builds on."""
        return copies_needed(self.in_sync_replicas, self.min_in_sync_replicas, auto=self.auto_in_sync_replicas)

    @property
    def shows_below(self) -> bool:
        """Whether, as a leader, it shows readers what fewer replicas hold than SEND_OK asks for: while too few are in sync."""
        return self.mode is Mode.SYNC and self.min_in_sync_replicas < self.surely_held_by

    def with_policy(self, policy: Policy) -> ReplicaSettings:
        """The same replica in another mode."""
        return replace(
            self,
            mode=policy.mode,
            # Alone by the log: no one is to be found before it leads again, whatever its file still says.
            total_replicas=1 if policy.mode is Mode.SINGLE else self.total_replicas,
            in_sync_replicas=policy.in_sync_replicas,
            min_in_sync_replicas=policy.min_in_sync_replicas,
        )

    def in_sync_set(self, confirm_offset: int, members: Members, epoch_record_end: int) -> InSyncSet:
        """For a leader that begins: what is confirmed already, the voters, and where its epoch's record ends."""
        return InSyncSet(
            mode=self.mode,
            own_durable_counts=self.durable_counts,
            in_sync_replicas=self.in_sync_replicas,
            min_in_sync_replicas=self.min_in_sync_replicas,
            auto_in_sync_replicas=self.auto_in_sync_replicas,
            max_time_not_level_s=self.max_time_not_level_s,
            follower_timeout_s=self.follower_timeout_s,
            max_gap_bytes=self.max_gap_bytes,
            confirm_offset=confirm_offset,
            own_id=self.replica_id,
            members=members,
            epoch_record_end=epoch_record_end,
        )
