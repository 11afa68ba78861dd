"""Replicas in memory that obey the rules of brokerd's: epochs, expected epochs, refusals. For tests of which the process is
not the point: what a worker that dies, repeats or races leaves behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.replica_remoting import Answer, ProbeAnswer
from mqwire.bodies import FollowerStatus, QuorumStatus, ReplicaStatus


@dataclass
class ScriptedReplica:
    """One replica's promises and log."""

    replica_id: int
    address: str
    leads: bool = False
    epoch: int = 1
    log_epoch: int = 1
    end_offset: int = 1000
    answers: bool = True
    frozen: bool = False
    claims: bool = False
    disk: str = "first"
    in_sync_epoch: int | None = 1
    in_sync_for_ms: int | None = 12_000
    has_caught_up: bool = True
    damage: str | None = None  # for which it takes no messages, and must not lead
    incomplete: bool = False  # its log may lack records at its end
    led_in: list[int] = field(default_factory=list)
    epoch_starts: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])


@dataclass
class ScriptedGroup:
    """A group whose brokers answer from here. `calls` are the requests that changed something, in order."""

    name: str
    mode: str
    replicas: list[ScriptedReplica]
    calls: list[str] = field(default_factory=list)
    told_to_lack: list[int] = field(default_factory=list)  # who was promoted as one whose log may lack an epoch
    before_call: Callable[[str], None] | None = None
    min_in_sync_replicas: int = 1
    electing: set[int] = field(default_factory=set)  # who still votes, or votes already, in the middle of a change
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, cluster: Cluster, name: str = "broker-a") -> ScriptedGroup:
        """The first replica leads, the others are level with it."""
        rows = Replica.objects.filter(group__cluster=cluster, group__name=name).order_by("broker_id")
        replicas = [ScriptedReplica(row.broker_id, row.address) for row in rows]
        replicas[0].leads = True
        replicas[0].led_in.append(1)
        return cls(name, cluster.mode, replicas)

    def __getitem__(self, replica_id: int) -> ScriptedReplica:
        return next(replica for replica in self.replicas if replica.replica_id == replica_id)

    @property
    def master(self) -> ScriptedReplica | None:
        return next((replica for replica in self.replicas if replica.leads and replica.answers), None)

    @property
    def promotions(self) -> list[tuple[int, int]]:
        """Every (epoch, replica id) that led after the start."""
        return sorted((epoch, replica.replica_id) for replica in self.replicas for epoch in replica.led_in if epoch > 1)

    @contextmanager
    def answering(self) -> Iterator[ScriptedGroup]:
        """Stand in for the brokers and name servers."""
        with (
            patch.object(replica_remoting, "replica_statuses", self._statuses),
            patch.object(replica_remoting, "replica_promote", self._promote),
            patch.object(replica_remoting, "replica_fences", self._fences),
            patch.object(replica_remoting, "replica_freeze_sends", self._freeze),
            patch.object(replica_remoting, "network_cut", self._cut),
            patch.object(replica_remoting, "group_masters", self._masters),
            patch.object(replica_remoting, "probe_send", self._probe),
        ):
            yield self

    def _cut(self, cluster: Cluster, address: str, *, group: str, replica_id: int, for_ms: int) -> Answer:
        self._called(f"cut {replica_id}")
        replica = self._at(address)
        answer = self._answer(replica)
        replica.answers = False
        return answer

    def _at(self, address: str) -> ScriptedReplica:
        return next(replica for replica in self.replicas if replica.address == address)

    def _statuses(self, cluster: Cluster, addresses: Sequence[str], *, timeouts_s: object = None) -> dict[str, Answer]:
        return {address: self._answer(self._at(address)) for address in addresses}

    def _answer(self, replica: ScriptedReplica) -> Answer:
        if not replica.answers:
            return Answer(error="connection refused")
        others = [other for other in self.replicas if other is not replica and other.answers and not other.leads]
        in_sync = [other for other in others if other.end_offset >= replica.end_offset]
        status = ReplicaStatus(
            cluster="c",
            group=self.name,
            replica_id=replica.replica_id,
            advertised_broker_id=0 if replica.leads else replica.replica_id,
            address=replica.address,
            role="master" if replica.leads else "slave",
            mode=self.mode,
            epoch=replica.epoch,
            log_epoch=replica.log_epoch,
            epoch_map=replica.epoch_starts,
            min_offset=0,
            end_offset=replica.end_offset,
            durable_offset=replica.end_offset,
            held_offset=replica.end_offset,
            confirm_offset=replica.end_offset,
            flush_disk_type="ASYNC_FLUSH",
            in_sync_replicas=2 if self.mode == "sync" else 1,
            min_in_sync_replicas=self.min_in_sync_replicas,
            in_sync=[replica.replica_id, *(other.replica_id for other in in_sync)] if replica.leads else [],
            accepts_sends=replica.leads and not replica.frozen and replica.damage is None,
            refusal=replica.damage if replica.leads else "this replica is a slave",
            claims=replica.claims and not replica.leads,
            promotable=replica.replica_id not in self.electing and replica.damage is None,
            not_promotable_because=replica.damage,
            log_may_be_incomplete=replica.incomplete or replica.damage is not None,
            shows_below=self.mode == "sync" and self.min_in_sync_replicas < 2,
            led_last_epoch=replica.led_in[-1:] == [replica.log_epoch],
            in_sync_epoch=None if replica.leads else replica.in_sync_epoch,
            in_sync_for_ms=None if replica.leads else replica.in_sync_for_ms,
            incarnation=replica.disk,
            has_caught_up=replica.has_caught_up,
            quorum=QuorumStatus(state="follower", voters=[other.replica_id for other in self.replicas])
            if replica.replica_id in self.electing
            else None,
            followers=[
                FollowerStatus(
                    replica_id=other.replica_id,
                    address=other.address,
                    end_offset=other.end_offset,
                    durable_offset=other.end_offset,
                    gap_bytes=max(0, replica.end_offset - other.end_offset),
                    gap_messages=max(0, replica.end_offset - other.end_offset) // 100,
                    in_sync=other in in_sync,
                    last_pull_ms_ago=5,
                    incarnation=other.disk,
                )
                for other in others
            ]
            if replica.leads
            else [],
        )
        return Answer(status=status)

    def _promote(
        self,
        cluster: Cluster,
        address: str,
        *,
        group: str,
        replica_id: int,
        expected_epoch: int,
        new_epoch: int,
        in_sync: Sequence[int] = (),
        with_incomplete_log: bool = False,
        lacks_an_epoch: bool = False,
    ) -> Answer:
        assert replica_id not in self.electing, "a promotion of one that elects"
        self._called(f"promote {replica_id}")
        replica = self._at(address)
        with self._lock:
            if not replica.answers:
                return Answer(error="connection refused")
            if replica.leads and replica.epoch == new_epoch:
                return self._answer(replica)
            if replica.epoch != expected_epoch or new_epoch <= expected_epoch:
                return Answer(error=f"this replica is in epoch {replica.epoch}", refused=True)
            if replica.incomplete and not with_incomplete_log:
                return Answer(error="its log may have lost its end since it promised", refused=True)
            replica.leads, replica.epoch, replica.log_epoch = True, new_epoch, new_epoch
            replica.epoch_starts = [*replica.epoch_starts, (new_epoch, replica.end_offset)]
            replica.end_offset += 100
            replica.led_in.append(new_epoch)
            if lacks_an_epoch:
                self.told_to_lack.append(replica_id)
            self.calls.append(f"promoted {replica_id} {new_epoch}")
            for other in self.replicas:
                self._follow(other, replica)
            return self._answer(replica)

    def _follow(self, follower: ScriptedReplica, leader: ScriptedReplica) -> None:
        if follower is not leader and follower.answers and not follower.leads:
            follower.epoch, follower.log_epoch = leader.epoch, leader.log_epoch
            follower.in_sync_epoch = leader.epoch
            follower.end_offset, follower.epoch_starts = leader.end_offset, leader.epoch_starts

    def restart(self, replica_id: int) -> None:
        """A replica is restarted; if it led, it waits until it may lead again."""
        replica = self[replica_id]
        replica.claims, replica.leads = replica.leads, False

    def back(self, replica_id: int) -> None:
        """A replica that was away answers again, as a slave of who leads."""
        replica = self[replica_id]
        replica.answers, replica.leads = True, False
        if self.master is not None:
            self._follow(replica, self.master)

    def _fences(
        self, cluster: Cluster, addresses: Sequence[str], *, group: str, epoch: int, timeouts_s: object = None
    ) -> dict[str, Answer]:
        return {address: self._demote(address, epoch) for address in addresses}

    def _demote(self, address: str, epoch: int) -> Answer:
        replica = self._at(address)
        self._called(f"demote {replica.replica_id}")
        if not replica.answers:
            return Answer(error="connection refused")
        if epoch < replica.epoch or replica.replica_id in self.electing:
            return Answer(error=f"epoch {epoch} is below {replica.epoch}", refused=True)
        replica.leads, replica.claims, replica.epoch = False, False, epoch
        return self._answer(replica)

    def _freeze(self, cluster: Cluster, address: str, *, group: str, epoch: int, for_ms: int) -> Answer:
        self._called(f"freeze {for_ms}")
        self._at(address).frozen = for_ms > 0
        return self._answer(self._at(address))

    def _probe(self, cluster: Cluster, address: str) -> ProbeAnswer:
        replica = self._at(address)
        if not replica.answers:
            return ProbeAnswer("connection refused")
        if not replica.leads:
            return ProbeAnswer("this replica is a slave")
        replica.end_offset += 10
        in_sync = sum(other.answers and not other.leads for other in self.replicas)
        short = self.mode == "sync" and in_sync == 0
        return ProbeAnswer("SLAVE_NOT_AVAILABLE" if short else "SEND_OK", stored=True)

    def _masters(self, cluster: Cluster, group: str, leader_addresses: Collection[str]) -> dict[str, str | None]:
        master = self.master
        return dict.fromkeys(cluster.name_server_addresses, None if master is None else master.address)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.before_call is not None:
            self.before_call(call)
