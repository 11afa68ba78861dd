"""What goes wrong around a group whose mode changes: the faults of both kinds of groups, and change after change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.sim.quorum_faults import QuorumFaults

if TYPE_CHECKING:
    from tests.sim.changing_world import ChangingWorld


class ChangingFaults(QuorumFaults):
    """With ASYNC_FLUSH no power cuts, as in groups that elect. Disks are not replaced."""

    _world: ChangingWorld

    def __init__(self, world: ChangingWorld) -> None:
        self._world = world
        self._loop = world.loop
        self.stopped = False
        random = world.loop.random
        self._power_cuts = world.flush == "sync"
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 2.0),
            (self._stop, 1.0),
            (self._die_in_the_middle, 2.0),
            (self._pause, 2.0),
            (self._partition, 2.0),
            (self._one_way, 2.0),
            (self._ring, 1.0),
            (self._split, 1.5),
            (self._kill_the_leader, 1.5),
            (self._slow_disk, 1.0),
            (self._sync_error, 0.5),
            (self._clock_jump, 0.5),
            (self._name_server_restart, 0.3),
            (world.operator.transfer, 1.0),
            (self._change_members, 1.0),
            (self._failover, 1.0),
            (self._switchover, 1.0),
            (self._mistake, 0.5),
            (self._unclean, 0.3),
        ]
        if self._power_cuts:
            kinds += [(self._power_cut, 2.0), (self._power_cut_of_all, 0.5), (self._power_cut_of_a_majority, 0.5)]
        self._kinds = [(kind, weight) for kind, weight in kinds if random.random() < 0.5] or kinds
        self._kinds.append((self._change_mode, random.choice((2.0, 4.0, 8.0))))
        self._mean_s = random.choice((0.4, 0.8, 1.5))
        world.network.loss = random.choice((0.0, 0.0, 0.01, 0.05))
        world.network.doubling = random.choice((0.0, 0.01, 0.05))
        world.network.slow = random.choice((0.0, 0.01, 0.05, 0.2))
        world.decrees.failovers = random.choice((0.2, 0.7, 1.0))
        world.decrees.unclean = random.choice((0.0, 0.0, 0.3))

    def _stop(self) -> None:
        machine = self._leader() if self._loop.random.random() < 0.7 else self._machine()
        if machine.process is not None:
            self._world.operator.stop(machine)  # type: ignore[arg-type] # its machines are of this kind
            self._later(0.7, machine.start)

    def _change_members(self) -> None:
        """One operation at a time, as in the platform."""
        if self._world.decrees.settled:
            self._world.operator.change_members()

    def _change_mode(self) -> None:
        self._world.decrees.change_mode()
