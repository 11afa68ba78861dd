"""A quorum-led group without brokers: real replicas over stores in memory, one clock each, and a network of letters.

Nothing happens by itself: a test moves clocks, delivers letters and lets followers pull, and may do each in any order.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from brokerd.replica.elections import Elections, Outcome
from brokerd.replica.epoch_file import EpochFile, EpochState
from brokerd.replica.epoch_record import EPOCH, EpochRecord, epoch_message
from brokerd.replica.pull_protocol import Diverged, Fenced, PullDecision, SendBytes, Truncate
from brokerd.replica.quorum_messages import BeginEpoch, Campaign, EndEpoch, Message, Noted, VoteAnswer, VoteRequest
from brokerd.replica.quorum_state import QuorumTimes, State
from brokerd.replica.replica import Replica, ReplicaSettings
from brokerd.replica.voters import Members
from brokerd.store import DiskFullError, MessageStore
from mqwire.message import pack_host
from mqwire.mode import Mode
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, ROOT, ManualClock, message, new_store, open_store

FIRST_MS = 1_700_000_000_000
STORE_HOST = pack_host("192.0.2.1", 10911)
TIMES = QuorumTimes()
LONG_S = TIMES.pull_timeout[1] + 0.1  # no one waits longer for a leader


@dataclass
class Letter:
    sender: int
    to: int
    message: Message


class Node:
    """One replica with its disk and its clock; restartable."""

    def __init__(self, group: QuorumGroup, replica_id: int, voters: Sequence[int], *, durable_counts: bool) -> None:
        self.group = group
        self.id = replica_id
        self.now_s = 100.0
        self.disk = MemoryDisk()
        self.clock = ManualClock()
        self.boots = 0
        self.disks = 0  # that it had before
        self.up = True
        self.settings = ReplicaSettings(
            group="group-a",
            replica_id=replica_id,
            address=f"r{replica_id}",
            store_host=STORE_HOST,
            mode=Mode.DLEDGER,
            durable_counts=durable_counts,
            starts_as_leader=False,
            members=Members(tuple(voters)),
            quorum_times=TIMES,
        )
        self.open()

    def open(self, *, damaged: bool = False) -> None:
        self.store: MessageStore = new_store(self.disk, self.clock)
        report = self.store.open()
        assert bool(report.damage) is damaged, report
        self.replica = Replica(
            self.settings, self.store, EpochFile(self.disk, ROOT), Random(self.id + 100 * self.disks)
        )
        self.replica.start(self.now_s, FIRST_MS)
        self.store.confirm_offset = self.replica.confirm_offset

    @property
    def elections(self) -> Elections:
        assert self.replica.elections is not None, "in mode QUORUM it has them"
        return self.replica.elections

    @property
    def state(self) -> State:
        return self.elections.state

    @property
    def log(self) -> tuple[int, int]:
        """(epoch of the last record, end offset)."""
        return self.replica.epochs.last_epoch, self.store.end_offset

    def restart(self) -> None:
        """As after kill -9."""
        self.disk = self.disk.after_kill()
        self.up = True
        self.open()

    def lose_power(self) -> None:
        """What was not synced is gone."""
        self.boots += 1
        self.disk = self.disk.after_losing_all_unsynced(self.boots)
        self.open()

    def restart_with_rot(self, offset: int) -> None:
        """Restarted, and one byte of its log is another one."""
        self.disk = self.disk.after_kill()
        path = f"{COMMIT_LOG}/{offset - offset % FILE_BYTES:020d}"
        for data in (self.disk.names[path].data, self.disk.names[path].synced):
            data[offset % FILE_BYTES] ^= 0xFF
        self.up = True
        self.open(damaged=True)

    def repair(self) -> None:
        """What a broker does once a leader answers its pulls."""
        self.replica.truncate_damaged()
        self.store.confirm_offset = self.replica.confirm_offset

    def replace_disk(self) -> None:
        self.disk = MemoryDisk()
        self.disks += 1
        self.open()

    def fail_log_writes(self, *, once: bool) -> None:
        """Its disk takes nothing for the CommitLog: not the next time, or never again."""

        def fail(number: int, name: str) -> int | None:
            if name != "pwrite" or COMMIT_LOG not in self.disk.log[-1]:
                return None
            if once:
                self.disk.fail = lambda number, name: None
            return errno.EIO

        self.disk.fail = fail

    def write_log(self, epochs: Iterable[int], *, epoch: int | None = None) -> None:
        """Give it a log whose entries are of these epochs, as in the Raft paper's figures, and restart it."""
        self.disk = MemoryDisk()
        store = open_store(self.disk)
        last = 0
        for index, entry_epoch in enumerate(epochs, 1):
            if entry_epoch > last:
                last = entry_epoch
                record = EpochRecord(
                    type=EPOCH,
                    epoch=last,
                    leader=0,
                    voters=list(self.settings.members.voters),
                    mode=Mode.DLEDGER,
                    timestamp_ms=FIRST_MS,
                    start_offset=store.end_offset,
                )
                store.append([epoch_message(record, STORE_HOST)])
            else:
                store.append([message(b"entry %d of epoch %d" % (index, entry_epoch))])
        store.flush()
        EpochFile(self.disk, ROOT).save(EpochState(epoch=max(epoch or 0, last), joined=True))
        store.close()
        self.open()

    # --- one step each

    def tick(self) -> Outcome:
        return self.group.sent(self, self.elections.tick(self.now_s, FIRST_MS))

    def step(self, received: Message) -> Outcome:
        return self.group.sent(self, self.elections.step(received, self.now_s, FIRST_MS))

    def time_out(self) -> Outcome:
        """Let it wait longer than it does for a leader."""
        self.now_s += LONG_S
        return self.tick()

    def append(self, *bodies: bytes) -> int:
        """Store messages as the leader; returns the log's end."""
        assert self.replica.leads, "only a leader appends"
        self.store.append([message(body) for body in bodies])
        self.held_changed()
        return self.store.end_offset

    def flush(self) -> None:
        self.store.flush()
        self.held_changed()

    def held_changed(self) -> None:
        self.replica.held_changed(self.now_s)
        self.store.confirm_offset = self.replica.confirm_offset

    def pull(self, *, flush: bool = True) -> PullDecision | None:
        """One pull from the leader that it knows, and what the answer brings; None when there is none to ask."""
        address = self.replica.leader_address
        leader = None if address is None else self.group.nodes[int(address[1:])]
        if leader is None or leader is self or not leader.up or self.group.is_cut(self.id, leader.id):
            return None
        replica = self.replica
        pull = replica.next_pull(max_bytes=1 << 20, max_wait_ms=0)
        decision = leader.replica.pulled(pull, self.settings.address, leader.now_s)
        leader.held_changed()
        if isinstance(decision, Fenced):
            replica.saw_epoch(decision.epoch, decision.leader_address)
            return decision
        if replica.elections is not None:
            replica.elections.heard_leader(pull.leader_epoch, self.now_s)
        if isinstance(decision, SendBytes):
            data = leader.store.read_raw(decision.from_offset, 1 << 20)
            replica.received(data, pull.end_offset, leader.replica.epoch, leader.replica.confirm_offset)
            if flush:
                self.store.flush()
        elif isinstance(decision, Diverged):
            cut = replica.diverged(decision.divergence)
            assert isinstance(cut, Truncate), f"replica {self.id} does not cut: {cut}"
            replica.truncate(cut.to_offset, self._truncate)
        self.store.confirm_offset = replica.confirm_offset
        return decision

    def _truncate(self, offset: int) -> None:
        self.store.truncate(offset)


@dataclass
class QuorumGroup:
    """Nodes 0 … and the letters between them that no one has read yet."""

    nodes: dict[int, Node] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    cuts: set[frozenset[int]] = field(default_factory=set)
    note: Callable[[str], object] = lambda text: None

    @classmethod
    def of(cls, count: int, *, observers: int = 0, durable_counts: bool = True) -> QuorumGroup:
        group = cls()
        for replica_id in range(count + observers):
            group.nodes[replica_id] = Node(group, replica_id, range(count), durable_counts=durable_counts)
        return group

    @classmethod
    def led(cls, count: int = 3, *, observers: int = 0, durable_counts: bool = True) -> QuorumGroup:
        """Replica 0 leads in epoch 1, all are level, and its record is confirmed everywhere."""
        group = cls.of(count, observers=observers, durable_counts=durable_counts)
        group.elect(0)
        for observer in range(count, count + observers):
            group[observer].replica.saw_epoch(1, "r0")
        group.level()
        return group

    def __getitem__(self, replica_id: int) -> Node:
        return self.nodes[replica_id]

    @property
    def leaders(self) -> list[int]:
        return [node.id for node in self.nodes.values() if node.up and node.replica.leads]

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self.cuts

    def isolate(self, replica_id: int) -> None:
        self.cuts |= {frozenset((replica_id, other)) for other in self.nodes if other != replica_id}

    def rejoin(self, replica_id: int) -> None:
        self.cuts = {cut for cut in self.cuts if replica_id not in cut}

    def wait(self, seconds: float) -> None:
        """All clocks go on; no one has looked at them yet."""
        for node in self.nodes.values():
            node.now_s += seconds

    def sent(self, sender: Node, outcome: Outcome) -> Outcome:
        for to, request in outcome.messages:
            self.letters.append(Letter(sender.id, to, request))
        return outcome

    def deliver(self, wanted: Callable[[Letter], bool] = lambda letter: True) -> int:
        """Read letters until none is left that is wanted; what is cut off or down never arrives. Returns how many came."""
        arrived = 0
        while True:
            letter = next((one for one in self.letters if wanted(one)), None)
            if letter is None:
                return arrived
            self.letters.remove(letter)
            target = self.nodes.get(letter.to)
            if target is None or not target.up or self.is_cut(letter.sender, letter.to):
                self.note(f"{letter.sender} -> {letter.to}  lost: {words(letter.message)}")
                continue
            arrived += 1
            self.note(f"{letter.sender} -> {letter.to}  {words(letter.message)}")
            outcome = target.step(letter.message)
            if outcome.reply is not None:
                self.letters.append(Letter(letter.to, letter.sender, outcome.reply))

    def lose_letters(self) -> None:
        self.letters.clear()

    def elect(self, replica_id: int) -> None:
        """Let a replica time out, and everyone answer; it must win."""
        self.wait(LONG_S)  # what they heard of a leader before is long ago
        self.nodes[replica_id].time_out()
        self.deliver()
        assert self.nodes[replica_id].replica.leads, f"replica {replica_id} was not elected"
        self.nodes[replica_id].flush()

    def live(self, seconds: float, *, flush: bool = True) -> None:
        """Time passes: each tenth of a second everyone pulls, looks at its clock, and reads its letters."""
        for _ in range(round(seconds * 10)):
            self.wait(0.1)
            for node in self.nodes.values():
                if not node.up:
                    continue
                if not node.replica.leads:
                    with suppress(DiskFullError):  # as a follower's loop: it tries again
                        node.pull(flush=flush)
                node.tick()
            self.deliver()
            for leader in self.leaders:
                if flush:
                    self.nodes[leader].flush()
                else:
                    self.nodes[leader].held_changed()

    def level(self) -> None:
        """Everyone who can pulls until all hold, and know to be confirmed, what the leader has."""
        for node in self.nodes.values():
            if node.up and node.replica.leads:
                node.flush()
        for _ in range(6):
            for node in self.nodes.values():
                if node.up and not node.replica.leads:
                    node.pull()


def words(letter: Message) -> str:
    """A message as a line of a transcript."""
    match letter:
        case VoteRequest():
            kind = "pre-vote" if letter.pre else "vote"
            return f"{kind} for epoch {letter.epoch}? log ends at {letter.end_offset} in epoch {letter.last_epoch}"
        case VoteAnswer():
            kind = "pre-vote" if letter.pre else "vote"
            answer = "yes" if letter.granted else f"no, {letter.reason}"
            return f"{kind} for epoch {letter.asked_epoch}: {answer}"
        case BeginEpoch():
            return f"epoch {letter.epoch} has begun, {letter.leader} leads"
        case EndEpoch():
            return f"epoch {letter.epoch} ends, next is {' or '.join(map(str, letter.successors)) or 'anyone'}"
        case Campaign():
            return f"campaign now, after epoch {letter.epoch}"
        case Noted():
            return f"noted, in epoch {letter.epoch}"
