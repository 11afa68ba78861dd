"""Replicas without a broker around them: the pure core over a store and an epoch file in memory."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import trio

from brokerd.config import BrokerConfig
from brokerd.processors import replica_admin
from brokerd.replica.epoch_file import EpochFile
from brokerd.replica.pull_protocol import Diverged, PullDecision, SendBytes, Truncate
from brokerd.replica.replica import Replica, ReplicaSettings, RoleRefused
from brokerd.services.remoting_client import RequestFailed
from brokerd.services.replica_reclaim import LeaderReclaim
from brokerd.store import AppendFailedError, MessageStore
from mqwire.bodies import BrokerData, ClusterInfo, ConsumerOffsetSerializeWrapper
from mqwire.codes import HighwaterRequestCode
from mqwire.command import RemotingCommand
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, ROOT, message, new_store, open_store

NAME_SERVER = "names"


class Member:
    """A replica that can be restarted."""

    def __init__(
        self,
        replica_id: int,
        *,
        total: int = 2,
        leader: bool = False,
        mode: Mode = Mode.ASYNC,
        durable_counts: bool = True,
    ) -> None:
        self.disk = MemoryDisk()
        self._settings = ReplicaSettings(
            group="group-a",
            replica_id=replica_id,
            address=f"r{replica_id}",
            store_host=pack_host("192.0.2.1", 10911),
            mode=mode,
            durable_counts=durable_counts,
            starts_as_leader=leader,
            total_replicas=total,
            in_sync_replicas=1 if mode.leader_is_enough else 2,
        )
        self._open()

    def _open(self, *, damaged: bool = False) -> None:
        self.store: MessageStore = new_store(self.disk) if damaged else open_store(self.disk)
        if damaged:
            self.store.open()
        self.replica = Replica(self._settings, self.store, EpochFile(self.disk, ROOT))
        self.replica.start(0.0, 1_700_000_000_000)

    def restart(self) -> None:
        self.disk = self.disk.after_kill()
        self._open()

    def restart_with_rot(self, offset: int) -> None:
        """Restarted, and a bit of the record that begins there is another one."""
        self.disk.flip_bit(f"{COMMIT_LOG}/{offset - offset % FILE_BYTES:020d}", offset % FILE_BYTES + 100)
        self.disk = self.disk.after_kill()
        self._open(damaged=True)

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
        assert isinstance(cut, Truncate), cut
        self.replica.truncate(cut.to_offset, self._truncate)

    def _truncate(self, offset: int) -> None:
        self.store.truncate(offset)

    def reclaim_from(
        self, *others: Member, answers_lost_from: Member | None = None, offsets: object | None = None
    ) -> bool:
        """One attempt to lead again, by the service that the broker runs; returns whether it was granted.

        Raises StoreError when this replica's log can't be written.
        """
        around = Around(self, others, answers_lost_from)
        reclaim = LeaderReclaim(cast("Any", around), cast("Any", offsets or NoOffsets()))
        try:
            trio.run(reclaim.attempt)
        except (RequestFailed, RoleRefused):
            return False
        return True

    def log(self) -> tuple[int, int]:
        return self.replica.epochs.last_epoch, self.store.end_offset


class Around:
    """What a member's reclaim, and its answer to another's, use of a broker: the others are reached without sockets."""

    def __init__(self, member: Member, others: Sequence[Member] = (), answers_lost_from: Member | None = None) -> None:
        self.store = member.store
        self.replica = member.replica
        self.advertised_address = member.replica.settings.address
        self.advertised_id = None
        self.config = BrokerConfig(namesrv_addr=(NAME_SERVER,))
        self.clock = SimpleNamespace(monotonic=lambda: 0.0, time_ms=lambda: 0)
        self.follower = SimpleNamespace(halted=None)
        self.diverged = SimpleNamespace(count=lambda: 0)
        self._others = others
        self._answers_lost_from = answers_lost_from

    def client_of(self, address: str, *, takes_records: bool = False) -> ClientWithoutSockets:
        return ClientWithoutSockets(address, self._others, self._answers_lost_from)

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None:
        self.replica.saw_epoch(epoch, leader_address)

    def role_changed(self) -> None:
        """No loop follows here."""

    leader_changed = role_changed

    def messages_behind(self, offset: int) -> int | None:
        return None

    def refuses_sends(self) -> str | None:
        return self.replica.refuses_sends(0.0)


class ClientWithoutSockets:
    """Brings a request to the processor of the replica that it is for, or to a name server that lists all of them."""

    def __init__(self, address: str, others: Sequence[Member], answers_lost_from: Member | None) -> None:
        self._address = address
        self._others = others
        self._answers_lost_from = answers_lost_from

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        if self._address == NAME_SERVER:
            return command.reply(body=self._listed().to_json())
        found = [other for other in self._others if other.replica.settings.address == self._address]
        if not found:
            raise RequestFailed(f"no replica is at {self._address}")
        answer = replica_admin.HANDLERS[command.code](cast("Any", Around(found[0])), cast("Any", None), command)
        if found[0] is self._answers_lost_from and command.code == HighwaterRequestCode.REPLICA_RECLAIM:
            raise RequestFailed("the answer was lost")
        assert isinstance(answer, RemotingCommand)
        return answer

    def close(self) -> None:
        """There is no connection."""

    def _listed(self) -> ClusterInfo:
        addresses = {other.replica.settings.replica_id: other.replica.settings.address for other in self._others}
        group = self._others[0].replica.settings.group
        return ClusterInfo(
            broker_addr_table={group: BrokerData(cluster="c", broker_name=group, broker_addrs=addresses)}
        )


class NoOffsets:
    """Consumer offsets are not what these replicas are about."""

    async def offsets_at(self, address: str) -> ConsumerOffsetSerializeWrapper:
        await trio.lowlevel.checkpoint()
        return ConsumerOffsetSerializeWrapper()

    def merge(self, offsets: ConsumerOffsetSerializeWrapper) -> None:
        """There are none."""


def group(mode: Mode = Mode.ASYNC) -> tuple[Member, Member]:
    """A leader in epoch 1 and its level follower."""
    leader, follower = Member(0, leader=True, mode=mode), Member(1, mode=mode)
    leader.replica.promote(0, 1, 0.0, 0)
    leader.send(3)
    follower.pull_from(leader)
    follower.pull_from(leader)
    return leader, follower
