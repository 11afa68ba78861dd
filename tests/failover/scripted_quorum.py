"""Replicas in memory that obey the rules of brokerd's elected groups: who leads, who counts, refusals, one change at a time.
For tests of which the process is not the point: what a worker that dies, repeats or races leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.replica_remoting import Answer, ProbeAnswer
from mqwire.bodies import FollowerStatus, QuorumStatus, ReplicaStatus
from mqwire.message import StoredMessage
from mqwire.names import RMQ_SYS_EPOCH


@dataclass
class ScriptedVoter:
    """One replica; `pulls` says whether it follows the leader."""

    replica_id: int
    address: str
    epoch: int = 1
    end_offset: int = 5_000_000
    answers: bool = True
    pulls: bool = True
    voted_for: int | None = 0
    incarnation: str = "its first disk"


@dataclass
class ScriptedQuorum:
    """A group that elects. `calls` are the requests that changed something, in order; `pending` is a change that a majority
    confirms at the next look.
    """

    cluster: Cluster
    name: str
    replicas: list[ScriptedVoter]
    voters: list[int]
    leader: int | None = 0
    preferred: int | None = None
    refusal: str | None = None
    pending: bool = False
    stuck: bool = False  # a transfer is taken, and does not happen
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    records: dict[int, StoredMessage] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    forgotten: list[tuple[int, int]] = field(default_factory=list)  # (who was asked, whom it forgets)
    before_call: Callable[[str], None] | None = None

    @classmethod
    def of(cls, cluster: Cluster, name: str = "broker-a") -> ScriptedQuorum:
        """Replica 0 leads, the others are level with it; all of them count."""
        rows = Replica.objects.filter(group__cluster=cluster, group__name=name).order_by("broker_id")
        replicas = [ScriptedVoter(row.broker_id, row.address) for row in rows]
        return cls(cluster, name, replicas, [replica.replica_id for replica in replicas])

    def __getitem__(self, replica_id: int) -> ScriptedVoter:
        return next(replica for replica in self.replicas if replica.replica_id == replica_id)

    @contextmanager
    def answering(self) -> Iterator[ScriptedQuorum]:
        """Stand in for the brokers and name servers."""
        with (
            patch.object(replica_remoting, "replica_statuses", self._statuses),
            patch.object(replica_remoting, "replica_transfer", self._transfer),
            patch.object(replica_remoting, "replica_members", self._members),
            patch.object(replica_remoting, "replica_recovery_promise", self._promise),
            patch.object(replica_remoting, "replica_promote", self._recover),
            patch.object(replica_remoting, "group_masters", self._masters),
            patch.object(replica_remoting, "probe_send", self._probe),
            patch.object(replica_remoting, "record_at", self._record_at),
        ):
            yield self

    def elect(self, replica_id: int, stored_at_ms: int = 0) -> None:
        """The group has a new leader, whose epoch's record says that time; 0: it can't be read."""
        epoch = self.epochs[-1][0] + 1
        start = max(replica.end_offset for replica in self.replicas if replica.answers)
        self.leader = replica_id
        self.epochs.append((epoch, start))
        for replica in self.replicas:
            if replica.answers:
                replica.epoch, replica.end_offset, replica.voted_for = epoch, start + 100, replica_id
        if stored_at_ms:
            self.store(start, RMQ_SYS_EPOCH, stored_at_ms)

    def store(self, offset: int, topic: str, stored_at_ms: int) -> None:
        """A record of 100 bytes that can be read."""
        self.records[offset] = StoredMessage(
            topic=topic,
            queue_id=0,
            queue_offset=0,
            physical_offset=offset,
            size_bytes=100,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=stored_at_ms,
            born_host=("127.0.0.1", 1),
            store_timestamp_ms=stored_at_ms,
            store_host=("127.0.0.1", 1),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0,
            body=b"",
        )

    def _at(self, address: str) -> ScriptedVoter:
        """The replica there; a row that was made since then is an empty one that runs."""
        found = next((replica for replica in self.replicas if replica.address == address), None)
        if found is None:
            row = next(
                row
                for row in Replica.objects.filter(group__cluster=self.cluster, port__isnull=False)
                if row.address == address
            )
            found = ScriptedVoter(row.broker_id, address, end_offset=0, pulls=False, voted_for=None)
            self.replicas.append(found)
        return found

    @property
    def majority_is_there(self) -> bool:
        there = sum(replica.replica_id in self.voters and replica.answers for replica in self.replicas)
        return there >= len(self.voters) // 2 + 1

    def _statuses(self, cluster: Cluster, addresses: Sequence[str], *, timeouts_s: object = None) -> dict[str, Answer]:
        answers = {address: self._answer(self._at(address)) for address in addresses}
        self.pending = False
        return answers

    def _answer(self, replica: ScriptedVoter) -> Answer:
        if not replica.answers:
            return Answer(error="connection refused")
        leads = replica.replica_id == self.leader
        leader = None if self.leader is None else self[self.leader]
        followers = [
            other for other in self.replicas if leads and other is not replica and other.answers and other.pulls
        ]
        refusal = self.refusal if leads else "this replica is a slave"
        if leads and refusal is None and not self.majority_is_there:
            refusal = "fewer than a majority are reachable"
        return Answer(
            status=ReplicaStatus(
                cluster="c",
                group=self.name,
                replica_id=replica.replica_id,
                advertised_broker_id=0 if leads else replica.replica_id,
                address=replica.address,
                role="master" if leads else "slave",
                mode="dledger",
                epoch=replica.epoch,
                log_epoch=replica.epoch,
                epoch_map=list(self.epochs),
                min_offset=0,
                end_offset=replica.end_offset,
                durable_offset=replica.end_offset,
                held_offset=replica.end_offset,
                confirm_offset=replica.end_offset,
                flush_disk_type="SYNC_FLUSH",
                in_sync_replicas=1,
                min_in_sync_replicas=1,
                in_sync=[],
                accepts_sends=leads and refusal is None,
                refusal=refusal,
                promotable=True,
                incarnation=replica.incarnation,
                followers=[
                    FollowerStatus(
                        replica_id=other.replica_id,
                        address=other.address,
                        end_offset=other.end_offset,
                        durable_offset=other.end_offset,
                        gap_bytes=max(0, replica.end_offset - other.end_offset),
                        gap_messages=max(0, replica.end_offset - other.end_offset) // 100,
                        in_sync=other.end_offset >= replica.end_offset,
                        last_pull_ms_ago=40,
                    )
                    for other in followers
                ],
                quorum=QuorumStatus(
                    state="leader" if leads else "follower" if leader is not None else "unattached",
                    voted_for=replica.voted_for,
                    leader_id=self.leader,
                    voters=list(self.voters),
                    preferred_leader=self.preferred,
                    change_pending=leads and self.pending,
                ),
            )
        )

    def _transfer(self, cluster: Cluster, address: str, *, group: str, target: int) -> Answer:
        self._called(f"transfer {target}")
        if self._at(address).replica_id != self.leader:
            return Answer(error="this replica does not lead", refused=True)
        if target not in self.voters or not self[target].answers:
            return Answer(error=f"replica {target} does not pull", refused=True)
        if not self.stuck:
            self.elect(target)
        return self._answer(self._at(address))

    def _promise(
        self, cluster: Cluster, address: str, *, group: str, epoch: int, leader_address: str | None, lost: Sequence[int]
    ) -> Answer:
        replica = self._at(address)
        if not replica.answers:
            return Answer(error="connection refused")
        self._called(f"promise {replica.replica_id}")
        if replica.epoch >= epoch or self.majority_is_there:
            return Answer(error="there is nothing to recover", refused=True)
        replica.epoch = epoch
        return self._answer(replica)

    def _recover(
        self,
        cluster: Cluster,
        address: str,
        *,
        group: str,
        replica_id: int,
        expected_epoch: int,
        new_epoch: int,
        lost: Sequence[int],
    ) -> Answer:
        self._called(f"recover {replica_id} without {list(lost)}")
        replica = self._at(address)
        if replica.epoch != expected_epoch or self.majority_is_there:
            return Answer(error="there is nothing to recover", refused=True)
        self.voters = [voter for voter in self.voters if voter not in lost]
        self.leader, replica.epoch = replica_id, new_epoch
        self.epochs.append((new_epoch, replica.end_offset))
        return self._answer(replica)

    def _members(
        self,
        cluster: Cluster,
        address: str,
        *,
        group: str,
        change: str,
        replica_id: int | None,
        replica_address: str | None = None,
    ) -> Answer:
        if change == "forget":
            if not self._at(address).answers:
                return Answer(error="connection refused")
            self.forgotten.append((self._at(address).replica_id, replica_id or 0))
            return self._answer(self._at(address))
        self._called(f"{change} {replica_id}")
        if self._at(address).replica_id != self.leader:
            return Answer(error="this replica does not lead", refused=True)
        if self.pending:
            return Answer(error="the change before this one is not confirmed yet", refused=True)
        match change:
            case "prefer":
                self.preferred = replica_id
            case "addObserver":
                assert replica_address is not None
                added = self._at(replica_address)
                added.pulls = True
            case "addVoter":
                assert replica_id is not None
                if self[replica_id].end_offset < self._at(address).end_offset:
                    return Answer(error=f"replica {replica_id} has not caught up", refused=True)
                self.voters = sorted({*self.voters, replica_id})
            case "removeVoter":
                self.voters = [voter for voter in self.voters if voter != replica_id]
        self.pending = change != "addObserver"
        return self._answer(self._at(address))

    def catch_up(self) -> None:
        """Every replica that answers holds what the leader holds."""
        assert self.leader is not None
        for replica in self.replicas:
            if replica.answers:
                replica.epoch, replica.end_offset = self[self.leader].epoch, self[self.leader].end_offset

    def _probe(self, cluster: Cluster, address: str) -> ProbeAnswer:
        replica = self._at(address)
        if replica.replica_id != self.leader or not replica.answers or not self.majority_is_there:
            return ProbeAnswer("no majority")
        return ProbeAnswer("SEND_OK", stored=True)

    def _masters(self, cluster: Cluster, group: str, leader_addresses: Collection[str]) -> dict[str, str | None]:
        address = None if self.leader is None else self[self.leader].address
        return dict.fromkeys(cluster.name_server_addresses, address)

    def _record_at(self, cluster: Cluster, address: str, offset: int) -> StoredMessage | None:
        return self.records.get(offset)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        if self.before_call is not None:
            self.before_call(call)


def lose_majority(group: ScriptedQuorum) -> None:
    """Of three, replica 1 is left."""
    group[0].answers = group[2].answers = False
    group.leader = None
