"""Replicas without a broker around them: the pure core over a store and an epoch file in memory."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace

from brokerd.replica.epoch_file import EpochFile
from brokerd.replica.pull_protocol import Diverged, Halt, PullDecision, SendBytes
from brokerd.replica.replica import Replica, ReplicaSettings, RoleRefused
from brokerd.store import AppendFailedError, MessageStore
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, ROOT, message, open_store


class Member:
    """A replica that can be restarted."""

    def __init__(self, replica_id: int, *, total: int = 2, leader: bool = False, mode: Mode = Mode.ASYNC) -> None:
        self.disk = MemoryDisk()
        self._settings = ReplicaSettings(
            group="group-a",
            replica_id=replica_id,
            address=f"r{replica_id}",
            store_host=pack_host("192.0.2.1", 10911),
            mode=mode,
            durable_counts=True,
            starts_as_leader=leader,
            total_replicas=total,
            in_sync_replicas=1 if mode.leader_is_enough else 2,
        )
        self._open()

    def _open(self) -> None:
        self.store: MessageStore = open_store(self.disk)
        self.replica = Replica(self._settings, self.store, EpochFile(self.disk, ROOT))
        self.replica.start(0.0, 1_700_000_000_000)

    def restart(self) -> None:
        self.disk = self.disk.after_kill()
        self._open()

    def move_to(self, address: str) -> None:
        """Restarted where it has another address."""
        self._settings = replace(self._settings, address=address)
        self.restart()

    def lose_power(self) -> None:
        """Restarted with what was synced, and nothing else."""
        self.disk = self.disk.after_losing_all_unsynced()
        self._open()

    def break_disk(self) -> None:
        """From now on its log takes nothing more."""
        self.disk.fail = lambda number, name: (
            errno.EIO if name == "pwrite" and COMMIT_LOG in self.disk.log[-1] else None
        )
        with contextlib.suppress(AppendFailedError):
            self.store.append([message(b"does not arrive")])
        self.disk.fail = lambda number, name: None

    def send(self, count: int = 1, size_bytes: int = 200) -> None:
        self.store.append([message(b"." * size_bytes)] * count)
        self.store.flush()
        self.replica.held_changed(0.0)

    def pull_from(self, leader: Member) -> PullDecision:
        """One pull, and what its answer brings."""
        self.replica.saw_epoch(leader.replica.epoch)
        pull = self.replica.next_pull(max_bytes=1 << 20, max_wait_ms=0)
        decision = leader.replica.pulled(pull, self._settings.address, 0.0)
        if isinstance(decision, SendBytes):
            data = leader.store.read_raw(decision.from_offset, 1 << 20)
            self.replica.received(data, pull.end_offset, leader.replica.epoch, leader.replica.confirm_offset)
            self.store.flush()
        return decision

    def cut_for(self, decision: PullDecision) -> None:
        assert isinstance(decision, Diverged)
        cut = self.replica.diverged(decision.divergence)
        assert not isinstance(cut, Halt), cut
        self.replica.cut(cut.to_offset, self._truncate)

    def _truncate(self, offset: int) -> None:
        self.store.truncate(offset)

    def claim_from(self, *others: Member, answers_lost_from: Member | None = None) -> bool:
        """One claim to lead again, as services/replica_claim.py makes it; tells whether this one leads then."""
        for other in others:
            self.replica.add_known_replica(other._settings.replica_id, other._settings.address)
        epoch = self.replica.begin_claim(max(other.replica.epoch for other in others))
        try:
            for other in sorted(others, key=Member.log, reverse=True):
                other.replica.grant_claim(
                    replica_id=self._settings.replica_id,
                    epoch=epoch,
                    last_epoch=self.log()[0],
                    end_offset=self.log()[1],
                    address=self._settings.address,
                )
                if other is answers_lost_from:
                    return False
        except RoleRefused:
            self.replica.end_claim()
            self.replica.saw_epoch(other.replica.epoch)
            return False
        finally:
            self.replica.end_claim()
        self.replica.claimed(epoch, 0.0, 0)
        return True

    def log(self) -> tuple[int, int]:
        return self.replica.epochs.last_epoch, self.store.end_offset


def group() -> tuple[Member, Member]:
    """A leader in epoch 1 and its level follower."""
    leader, follower = Member(0, leader=True), Member(1)
    leader.replica.promote(0, 1, 0.0, 0)
    leader.send(3)
    follower.pull_from(leader)
    follower.pull_from(leader)
    return leader, follower
