"""A simulated machine: a disk, a name on the network, and a broker process that comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, NoReturn

from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.replica import ReplicaSettings
from brokerd.store import StoreError
from tests.sim.broker_process import BrokerProcess
from tests.sim.event_loop import EventLoop
from tests.sim.history import Copy, History, Violation
from tests.sim.memory_disk import Died
from tests.sim.network import Answer, Network
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_name_server import NameServer
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES

FIRST_MS = 1_700_000_000_000


class Machine:
    """Name and address are one: "r0", "r1", "r2"."""

    process_type = BrokerProcess

    def __init__(
        self,
        loop: EventLoop,
        network: Network,
        history: History,
        settings: ReplicaSettings,
        name_servers: list[NameServer],
    ) -> None:
        self.loop = loop
        self.network = network
        self.history = history
        self.settings = settings
        self.name = settings.address
        self.name_servers = [server.name for server in name_servers]
        self._servers = name_servers
        self.disk = SimDisk()
        self.process: BrokerProcess | None = None
        self.paused = False
        self.runs = 0
        self.out_of_service = False
        self._backlog: list[Callable[[], None]] = []
        self.sync_mean_s = 0.003
        self._power_cut_when_it_dies = False
        # Of the last process that ran: its epochs, end and durable offset. What it did not sync is in the page cache still.
        self._left: tuple[EpochMap, int, int] | None = None
        network.join(self)

    # --- what the store and the process see

    def now_ms(self) -> int:
        """The machine's wall clock."""
        return FIRST_MS + int(self.loop.now_s * 1000)

    def sync_s(self) -> float:
        """How long the next sync takes."""
        random = self.loop.random
        return self.sync_mean_s * (random.uniform(0.3, 2.0) if random.random() < 0.97 else 30.0)

    def chance(self) -> Random | None:
        """What the next process draws from."""
        return Random(self.loop.random.getrandbits(32))

    def violation(self, text: str) -> NoReturn:
        raise Violation(text)

    def holds(self, copy: Copy) -> bool:
        """Whether this machine's disk has the record, by what the flush type calls held; also while no process runs."""
        process = self.process
        if process is not None:
            store = process.store
            left = (process.replica.epochs, store.end_offset, store.durable_offset)
        elif self._left is not None:
            left = self._left
        else:
            return False
        epochs, end_offset, durable_offset = left
        held_offset = durable_offset if self.settings.durable_counts else end_offset
        if not epochs.contains(copy.epoch) or copy.end_offset > min(held_offset, epochs.end_of(copy.epoch, end_offset)):
            return False
        return not self.settings.durable_counts or self._on_platter(copy)

    def _on_platter(self, copy: Copy) -> bool:
        """Whether a power cut would leave the record: what the process believes is no proof."""
        base = copy.physical_offset - copy.physical_offset % FILE_BYTES
        path = f"{COMMIT_LOG}/{base:020d}"
        begin, end = copy.physical_offset - base, copy.end_offset - base
        record = self.disk.on_platter(path, begin, end)
        is_record = record[:4] == (end - begin).to_bytes(4, "big") and record[28:36] == copy.physical_offset.to_bytes(
            8, "big"
        )
        return is_record and record == self.disk.names[path].data[begin:end]

    # --- running

    def arrive(self, action: Callable[[], None]) -> None:
        """A packet: kept while the process is paused, lost when there is none."""
        process = self.process
        if process is not None:
            self.run(process, action)

    def handle(self, request: Any, answer: Answer) -> None:
        assert self.process is not None, "arrive() sees to it"
        self.process.handle(request, answer)

    def run(self, process: BrokerProcess, action: Callable[[], None]) -> None:
        """One step of a process, if it is still this machine's."""
        if process.ended:
            return
        if self.paused:
            self._backlog.append(lambda: self.run(process, action))
            return
        try:
            action()
        except Died:
            self._died(process)
        except OSError as error:
            # The epoch file cannot be written: the real broker's task ends with the error, and so does the broker.
            self.loop.note(f"{self.name} ends: {error}")
            self._died(process)
        else:
            if not process.ended:
                process.observe()

    # --- faults

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.process is not None or self.out_of_service:
            return
        self.runs += 1
        self.paused = False
        try:
            process = self.process_type(self, self.settings)
            self.process = process
            process.start()
            process.observe()
        except Died:
            self._died(self.process)
        except (OSError, StoreError) as error:
            self.loop.note(f"{self.name} cannot start: {error}")
            self._died(self.process)
        else:
            self.loop.note(
                f"{self.name} starts run {self.runs}: end {process.store.end_offset} epoch {process.replica.epoch}"
                f" leads {process.replica.leads}"
            )

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None and not self.paused:
            self.loop.note(f"{self.name} pauses")
            self.paused = True

    def resume(self) -> None:
        """SIGCONT: what came in meanwhile is served now."""
        if self.paused:
            self.loop.note(f"{self.name} resumes")
            self.paused = False
            backlog, self._backlog = self._backlog, []
            for action in backlog:
                action()

    def kill(self) -> None:
        """SIGKILL: what was written stays in the page cache."""
        if self.process is not None:
            self.loop.note(f"{self.name} is killed at {self.process.store.end_offset}")
            self._end(self.process)
            self.disk = SimDisk.of(self.disk.after_kill())

    def power_cut(self) -> None:
        """Everything unsynced may be gone, or torn."""
        self.loop.note(f"{self.name} loses power")
        if self.process is not None:
            self._end(self.process)
        if self._left is not None and not self.settings.durable_counts:
            self.history.power_cut(self.name, *self._left)
        self.disk = SimDisk.of(self.disk.after_power_cut(self.loop.random.getrandbits(32)))

    def replace_disk(self) -> None:
        """An operator gives the stopped machine a new, empty disk."""
        self.loop.note(f"{self.name} gets a new disk")
        self.kill()
        self.disk = SimDisk()
        self._left = None
        self.history.disk_replaced(self.name)

    def die_within(self, calls: int, *, power_cut: bool) -> None:
        """Die in the middle of something: at one of the next calls of the disk."""
        self._power_cut_when_it_dies = power_cut
        self.disk.die_at = self.disk.calls + calls

    def _died(self, process: BrokerProcess | None) -> None:
        if self._power_cut_when_it_dies:
            self._power_cut_when_it_dies = False
            self.power_cut()
        elif process is not None:
            self.kill()
        else:
            self.disk = SimDisk.of(self.disk.after_kill())

    def _end(self, process: BrokerProcess) -> None:
        process.ended = True
        store = process.store
        self._left = (EpochMap(process.replica.epochs.entries), store.end_offset, store.durable_offset)
        self.process = None
        self.paused = False
        self._backlog.clear()
        for server in self._servers:
            self.loop.after(0.01, partial(self._connection_lost, server, self.runs))

    def _connection_lost(self, server: NameServer, runs: int) -> None:
        if self.runs == runs:
            server.connection_lost(self.name)
