"""A simulated machine: a disk, a name and an address on the network, clocks, and a broker process that comes and goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from brokerd.config_file import UnreadableConfigFile
from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.replica import ReplicaSettings
from brokerd.store import StoreDamagedError, StoreError
from mqwire.command import RemotingCommand
from tests.sim.broker_process import BrokerProcess
from tests.sim.event_loop import EventLoop
from tests.sim.history import Copy, History, Violation
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.network import Network
from tests.sim.sim_disk import COMMIT_LOG, SimDisk
from tests.sim.sim_environment import FILE_BYTES, FIRST_MS, HAND_OVER_S, PORT, ROOT
from tests.sim.sim_name_server import NameServer
from tests.sim.trio_process import Killed

USUAL_SYNC_S = 0.003  # the mean
DROP_SHARE = 0.5  # of the ends of processes after a failed sync: there the kernel drops clean pages
SUPERVISOR_S = 0.5  # until it starts a process again that has ended


def address_of(replica_id: int) -> str:
    """Where a replica serves."""
    return f"10.0.0.{replica_id + 1}:{PORT}"


@dataclass(frozen=True, slots=True)
class Rot:
    """One byte of an acknowledged record that this disk has other than it was written."""

    copy: Copy
    queue: int
    physical_offset: int
    was: int
    is_now: int


def place_in_log(physical_offset: int) -> tuple[str, int]:
    """The path of the CommitLog file, and the place in it."""
    position = physical_offset % FILE_BYTES
    return f"{ROOT}/commitlog/{physical_offset - position:020d}", position


def is_there(record: bytes, physical_offset: int, read: Callable[[str, int, int], bytes]) -> bool:
    path, begin = place_in_log(physical_offset)
    return read(path, begin, begin + len(record)) == record


class Machine:
    """Its name is "r0", "r1", "r2"; `rate` is how fast its monotonic clock runs, `wall_skew_ms` how far its wall clock is off."""

    process_type = BrokerProcess

    def __init__(
        self,
        loop: EventLoop,
        network: Network,
        history: History,
        settings: ReplicaSettings,
        name_servers: list[NameServer],
    ) -> None:
        random = loop.random
        self.loop = loop
        self.network = network
        self.history = history
        self.settings = settings
        self.name = f"r{settings.replica_id}"
        self.ip = settings.address.rpartition(":")[0]
        self.name_servers = [server.address for server in name_servers]
        self.disk = SimDisk()
        self.runs = 0
        self.out_of_service = False
        self.has_left = False  # its group, for good
        self.sync_mean_s = USUAL_SYNC_S
        self.reserved_hours = 72
        self.indexes = False  # messageIndexEnable
        self.gives_up_damage = (
            False  # truncateDamagedTail, which the operator of a group of one sets for the next start
        )
        self.spoiled: set[int] = (
            set()
        )  # the physical offsets of records that its disks have ever had other than written
        self.rate = random.choice((1.0, 1.0, random.uniform(0.9, 1.1)))
        self._boot_chance = loop.chance(f"boots of {self.name}")
        # The share of starts at which the boot has no name: in most seeds none, in some all, as in certain containers.
        self.boots_unknown = self._boot_chance.choice((0.0, 0.0, 0.0, 0.3, 1.0))
        self._memory_chance = loop.chance(f"memory of {self.name}")
        self.began_s = random.uniform(0.0, 1000.0)
        self.wall_skew_ms = random.choice((0, 0, random.randrange(-3_600_000, 3_600_000)))
        # (epoch, offset) -> the record that a leader appended there; one for the whole group.
        self.contents: dict[tuple[int, int], bytes] = history.contents
        self._process: BrokerProcess | None = None
        # It began while calls of its disk failed: its supervisor replaces it where it ends after that.
        self._doomed: BrokerProcess | None = None
        self.began_at_s: float | None = None  # the last process
        self.ended_at_s: float | None = None
        self._power_cut_when_it_dies = False
        self._failed_in = 0  # the last run in which a call of the disk failed
        self._rot: Rot | None = None
        self.spoiled_at: int | None = None  # where the last such record begins, be it put right or not
        # Of the last process that ran: its epochs, end and durable offset. What it did not sync is in the page cache still.
        self._left: tuple[EpochMap, int, int] | None = None
        network.add_host(self.name, self.ip)
        network.replicas[self.name] = (settings.replica_id, settings.address)
        network.addresses[self.name] = settings.address

    # --- what the process sees

    def now_ms(self) -> int:
        """The machine's wall clock."""
        now_ms = FIRST_MS + int(self.loop.now_s * 1000) + self.wall_skew_ms
        self.history.latest_ms = max(now_ms, self.history.latest_ms)
        return now_ms

    def hand_over_s(self) -> float:
        """How long a thread's call waits before it begins."""
        return HAND_OVER_S * self.loop.random.uniform(0.5, 3.0)

    def _sync_s(self) -> float:
        random = self.loop.random
        return self.sync_mean_s * (random.uniform(0.3, 2.0) if random.random() < 0.97 else 30.0)

    # --- what others see

    @property
    def syncs_slowly(self) -> bool:
        """One flush syncs several files: of a slow disk none of these syncs need take long, and all of them do."""
        return self.sync_mean_s > USUAL_SYNC_S or self.disk.is_slow

    @property
    def process(self) -> BrokerProcess | None:
        """The one that runs, once its store is open."""
        process = self._process
        return process if process is not None and process.is_open else None

    @property
    def leads(self) -> bool:
        return self.process is not None and self.process.replica.leads

    @property
    def runs_now(self) -> bool:
        """Whether there is a process, be it at its start only."""
        return self._process is not None

    @property
    def paused(self) -> bool:
        return self._process is not None and self._process.trio.paused

    def violation(self, text: str) -> NoReturn:
        raise Violation(text)

    @property
    def log(self) -> tuple[EpochMap, int]:
        """Its epochs and where it ends, with what is in the page cache only; after a power cut what is on the platter."""
        if self.process is not None:
            return self.process.replica.epochs, self.process.store.end_offset
        return (EpochMap(), 0) if self._left is None else self._left[:2]

    def holds(self, copy: Copy) -> bool:
        """Whether this machine's disk has the record, as the flush type wants it: on the platter, or in the page cache."""
        read = self.disk.on_platter if self.settings.durable_counts else self.disk.page_cache
        return self._has(copy, read)

    def has_synced(self, copy: Copy) -> bool:
        """Whether its disk has the record whatever happens to its memory."""
        return self._has(copy, self.disk.on_platter)

    def _has(self, copy: Copy, read: Callable[[str, int, int], bytes]) -> bool:
        return is_there(self.contents[copy.epoch, copy.physical_offset], copy.physical_offset, read)

    def holds_bytes(self, physical_offset: int, record: bytes) -> bool:
        """The same of any record."""
        read = self.disk.on_platter if self.settings.durable_counts else self.disk.page_cache
        return is_there(record, physical_offset, read)

    @property
    def rot(self) -> Rot | None:
        """What its disk has spoiled, and what is neither repaired nor truncated yet."""
        rot = self._rot
        if rot is not None:
            path, begin = place_in_log(rot.copy.physical_offset)
            written = self.contents[rot.copy.epoch, rot.copy.physical_offset]
            whole = bytearray(written)
            whole[rot.physical_offset - rot.copy.physical_offset] = rot.is_now
            stored = self.disk.page_cache(path, begin, begin + len(whole))
            if stored == written and self.disk.on_platter(path, begin, begin + len(whole)) == whole:
                return None  # its process was killed before it had synced what it put right
            if stored != whole:
                self._rot = rot = None
                self.history.counts["rot put right"] += 1
                if stored != written:
                    self.rot_truncated()
        return rot

    @property
    def may_rot(self) -> bool:
        """Whether its disk has spoiled something, or will have again after a power cut."""
        return self.rot is not None or self._rot is not None

    def rot_truncated(self) -> None:
        """The record that its disk had spoiled is gone, and what came after it, before another replica put it right."""

    def log_as_written(self, begin: int) -> bytes:
        """The log's bytes from there to the end of their file, without what the disk has spoiled since."""
        path, position = place_in_log(begin)
        data = bytearray(self.disk.page_cache(path, position, FILE_BYTES))
        rot = self._rot
        at = -1 if rot is None else rot.physical_offset - begin
        if rot is not None and 0 <= at < len(data) and data[at] == rot.is_now:
            data[at] = rot.was
        return bytes(data)

    def answer_leaves(self, request: Any, reply: RemotingCommand) -> None:
        """An answer is being written by this machine's process."""
        if self.process is not None:
            self.process.answer_leaves(request, reply)

    # --- faults

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self._process is not None or self.out_of_service or self.has_left:
            return
        self.runs += 1
        self.began_at_s = self.loop.now_s
        disk = self.disk
        process = self._process = self.process_type(self, self.settings)
        self.gives_up_damage = False
        disk.sync_s = self._sync_s
        disk.boot_is_unknown = self._boot_chance.random() < self.boots_unknown
        disk.on_failed_call = self._call_failed
        disk.on_death = partial(self._disk_died, process)

    def stop(self) -> None:
        """SIGTERM."""
        if self._process is not None:
            self._process.orders.order()

    def finish_stop(self) -> None:
        """Kill a process that was asked to stop and has not ended: it is to be started again."""
        if self._process is not None and self._process.orders.given:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None and not self.paused:
            self.loop.note(f"{self.name} pauses")
            self._process.trio.pause()

    def resume(self) -> None:
        """SIGCONT: what came in meanwhile is served now."""
        if self._process is not None and self.paused:
            self.loop.note(f"{self.name} resumes")
            self._process.trio.resume()

    def kill(self) -> None:
        """SIGKILL: what was written stays in the page cache."""
        if self._process is not None:
            self.loop.note(f"{self.name} is killed at {self.process.store.end_offset if self.process else 'its start'}")
            self._end(self._process)
            self.disk = SimDisk.of(self.disk.after_kill(), self.disk)
            if self._memory_chance.random() < DROP_SHARE:
                self.drop_clean_pages()

    def drop_clean_pages(self) -> None:
        """Linux calls clean what a failed sync did not write, and may drop it: what no process has in its memory is gone then."""
        changed = self.disk.drop_clean_pages()
        if changed:
            self.loop.note(f"{self.name} drops what a failed sync left unwritten: {changed}")
            self.history.counts["pages dropped after a failed sync"] += 1
        if any(COMMIT_LOG in path for path in changed):
            self._lose_memory()

    def shut(self) -> None:
        """The run is over and judged."""
        if self._process is not None:
            self._end(self._process)

    def power_cut(self) -> None:
        """Everything unsynced may be gone, or torn."""
        self.loop.note(f"{self.name} loses power")
        if self._process is not None:
            self._end(self._process, power_cut=True)
        self._lose_memory()
        self.disk = SimDisk.of(self._after_power_cut(self.loop.random.getrandbits(32)), self.disk)

    def _lose_memory(self) -> None:
        """What its log had in the page cache only may be gone."""
        if self._left is not None and not self.settings.durable_counts:
            epochs, _, durable_offset = left = self._left
            self.history.power_cut(self.name, *left)
            self._left = (epochs, durable_offset, durable_offset)

    def _after_power_cut(self, seed: int) -> MemoryDisk:
        return self.disk.after_power_cut(seed)

    @property
    def durable_log(self) -> tuple[EpochMap, int]:
        """Its epochs, and up to where it is on the platter for sure."""
        if self.process is not None:
            return self.process.replica.epochs, self.process.store.durable_offset
        return (EpochMap(), 0) if self._left is None else (self._left[0], self._left[2])

    def disk_lost(self, *, leads: bool, others: Iterable[Machine]) -> None:
        """The stopped machine's disk is gone; with a leader's may be lost what no other one has."""
        if self._left is None:
            return
        epochs, end_offset, durable_offset = self._left
        durable_counts = self.settings.durable_counts
        logs = {other.name: other.durable_log if durable_counts else other.log for other in others}
        self.history.disk_lost(
            self.name,
            epochs,
            durable_offset if durable_counts else end_offset,
            logs,
            led=leads,
            memory_counts=not durable_counts,
        )
        self._left = None

    def replace_disk(self) -> None:
        """An operator gives the stopped machine a new, empty disk."""
        self.loop.note(f"{self.name} gets a new disk")
        self.kill()
        self.disk = SimDisk()
        self._left = self._rot = None
        self.history.disk_replaced(self.name)

    def spoil(self, copy: Copy, queue: int, *, is_last: bool = False) -> None:
        """One byte of a record is other than it was written, wherever it is read from.

        The very last byte of the log does not become zero: so a write looks that ended in front of it.
        """
        self.spoiled.add(copy.physical_offset)
        record, random = self.contents[copy.epoch, copy.physical_offset], self.loop.random
        self.spoiled_at = copy.physical_offset
        while True:
            at, bit = random.randrange(len(record)), random.randrange(8)
            if not is_last or at < len(record) - 1 or record[at] != 1 << bit:
                break
        rot = self._rot = Rot(copy, queue, copy.physical_offset + at, record[at], record[at] ^ (1 << bit))
        self.loop.note(f"{self.name} has byte {at} of the record at {copy.physical_offset} rot")
        self._flip(rot)

    def undo_rot(self) -> None:
        """The disk has the record as it was written: whoever judges reads all of the log."""
        rot, self._rot = self.rot, None
        if rot is not None:
            self._flip(rot)

    def _flip(self, rot: Rot) -> None:
        path, position = place_in_log(rot.physical_offset)
        self.disk.flip_bit(path, position, (rot.was ^ rot.is_now).bit_length() - 1)

    def die_within(self, calls: int, *, power_cut: bool) -> None:
        """Die in the middle of something: at one of the next calls of the disk."""
        self._power_cut_when_it_dies = power_cut
        self.disk.die_at = self.disk.calls + calls

    def repair(self) -> None:
        """Nothing goes wrong any more; a process that asks for a restart is killed, as the runbook says."""
        self.sync_mean_s = USUAL_SYNC_S
        self.disk.heal()
        self._power_cut_when_it_dies = False
        self.resume()
        self.finish_stop()
        if self.process is not None and self.wants_restart(self.process):
            self.kill()
        self._doomed = self._process if self.process is None else None

    def wants_restart(self, process: BrokerProcess) -> bool:
        """Whether it says so of itself."""
        return process.store.refusal is not None or process.flush_failed

    def ended_by_itself(self, process: BrokerProcess, error: BaseException | None) -> None:
        """The program came to its end: it was asked to stop, or something that it cannot go on with happened."""
        if process is not self._process:
            return
        for one in _leaves(error):
            if not isinstance(one, (Exception, *_FORESEEN)):
                raise one  # a violation, or what a test's time-out raises, wherever the broker is: no crash of its own
        unforeseen = [one for one in _leaves(error) if not isinstance(one, _FORESEEN)]
        if unforeseen:
            raise Violation(f"{self.name} crashed: {unforeseen[0]!r}") from unforeseen[0]
        self.loop.note(f"{self.name} ends: {_leaves(error) or 'stopped'}")
        if self.settings.total_replicas == 1 and any(isinstance(one, StoreDamagedError) for one in _leaves(error)):
            # As docs/operations.md says: there is no other copy, and what was dropped is past the checkpoint.
            self.gives_up_damage = True
            self.history.counts["damaged tails given up"] += 1
        self._gone(process)

    def _call_failed(self, name: str, detail: str) -> None:
        self.loop.note(f"{self.name} fails to {detail if name == 'sync' else f'{name} {detail}'}")
        self.history.counts["calls of disks that failed"] += 1
        self._failed_in = self.runs

    def _disk_died(self, process: BrokerProcess) -> None:
        process.trio.dead = True  # in the middle of a step, or of a thread's call: nothing more reaches anything
        self.loop.after(0.0, partial(self._gone, process))

    def _gone(self, process: BrokerProcess) -> None:
        if process is not self._process:
            return
        if self._power_cut_when_it_dies:
            self._power_cut_when_it_dies = False
            self.power_cut()
        else:
            self.kill()
        if process is self._doomed or self.gives_up_damage:
            self.loop.after(SUPERVISOR_S, self.start)

    def _end(self, process: BrokerProcess, *, power_cut: bool = False) -> None:
        if process.is_open:
            self._left = (EpochMap(process.replica.epochs.entries), *process.log_bounds)
            process.died()
        self.disk.stop()
        self._process, self.ended_at_s = None, self.loop.now_s
        self.network.process_ended(self.name, power_cut=power_cut)
        process.trio.kill()


_FORESEEN = (OSError, StoreError, UnreadableConfigFile, Died, Killed)


def _leaves(error: BaseException | None) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [] if error is None else [error]
