"""A machine of a quorum-led group: its clocks run as they like, and whoever was connected to a killed process notices."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from brokerd.replica.voters import Members
from tests.sim.broker_process import BrokerProcess
from tests.sim.machine import FIRST_MS, Machine
from tests.sim.quorum_process import QuorumProcess

_RESET_S = 0.001  # until a broken connection is noticed


class QuorumMachine(Machine):
    """`rate` is how fast its monotonic clock runs, `wall_skew_ms` how far its wall clock is off."""

    process_type = QuorumProcess

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        random = self.loop.random
        self.rate = random.choice((1.0, 1.0, random.uniform(0.9, 1.1)))
        self.began_s = random.uniform(0.0, 1000.0)
        self.wall_skew_ms = random.choice((0, 0, random.randrange(-3_600_000, 3_600_000)))
        self.others: list[QuorumMachine] = []
        self.pull_bytes = random.choice((1, 400, 3000))
        self.members: Members = self.settings.members  # as its log had them when it was looked at last
        self.joined = False
        self.blank = False  # its disk was replaced, and the group has not adopted the new one since

    def monotonic_s(self) -> float:
        """The clock of timeouts."""
        return self.began_s + self.loop.now_s * self.rate

    def now_ms(self) -> int:
        return FIRST_MS + int(self.loop.now_s * 1000) + self.wall_skew_ms

    def chance(self) -> Random:
        return Random(self.loop.random.getrandbits(64))

    def kill(self) -> None:
        running = self.process is not None
        super().kill()
        if running:
            for other in self.others:
                self.loop.after(_RESET_S, partial(self._reset, other))

    def _reset(self, other: QuorumMachine) -> None:
        process = other.process
        if isinstance(process, QuorumProcess) and (self.name, other.name) not in self.network.blocked:
            other.arrive(lambda: process.connection_broke(self.name))

    def replace_disk(self) -> None:
        super().replace_disk()
        self.members, self.joined, self.blank = self.settings.members, False, True

    def _end(self, process: BrokerProcess) -> None:
        super()._end(process)
        self.disk.failing = "/commitlog/"
