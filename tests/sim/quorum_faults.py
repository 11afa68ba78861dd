"""What goes wrong around a quorum-led group: each seed has its own selection of kinds and its own pace (swarm testing)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults import Faults
from tests.sim.quorum_machine import QuorumMachine

if TYPE_CHECKING:
    from tests.sim.machine import Machine
    from tests.sim.quorum_world import QuorumWorld


class QuorumFaults(Faults):
    """See the module. A world without `power_cuts` has none; one with ASYNC_FLUSH and them changes no voters."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world: QuorumWorld = world  # type: ignore[assignment] # a world with what the inherited kinds use
        self._loop = world.loop
        self.stopped = False
        random = world.loop.random
        self._power_cuts = world.power_cuts
        kinds: list[tuple[Callable[[], None], float]] = [
            (self._kill, 3.0),
            (self._stop, 1.5),
            (self._die_in_the_middle, 3.0),
            (self._pause, 2.0),
            (self._partition, 2.0),
            (self._one_way, 2.0),
            (self._ring, 1.0),
            (self._split, 1.5),
            (self._kill_the_leader, 1.5),
            *self._of_disks(),
            (self._rot, 0.7),
            (self._vote_error, 0.5),
            (self._replace_disk, 0.7),
            (self._clock_jump, 0.7),
            (self._name_server_restart, 0.3),
            (world.control_plane.change_members, 3.0),
            (world.control_plane.transfer, 1.5),
            (world.control_plane.prefer, 0.3),
        ]
        if self._power_cuts:
            if world.flush == "async":
                kinds.remove((world.control_plane.change_members, 3.0))
            kinds += [(self._power_cut, 2.5), (self._power_cut_of_all, 0.7), (self._power_cut_of_a_majority, 0.7)]
        self._kinds = [(kind, weight) for kind, weight in kinds if random.random() < 0.6] or kinds
        self._mean_s = random.choice((0.3, 0.6, 1.2))
        self.dies_after_answer = random.choice((0.0, 0.0, 0.02, 0.1)) if self._power_cuts else 0.0
        world.network.loss = random.choice((0.0, 0.0, 0.01, 0.05))
        world.network.doubling = random.choice((0.0, 0.01, 0.05))
        world.network.slow = random.choice((0.0, 0.01, 0.05, 0.2))

    @property
    def _machines(self) -> list[QuorumMachine]:
        return self._world.machines

    def _leader(self) -> QuorumMachine:
        leaders = [machine for machine in self._machines if machine.process and machine.process.replica.leads]
        return self._loop.random.choice(leaders or self._machines)

    # --- processes and disks

    def _stop(self) -> None:
        machine = self._leader() if self._loop.random.random() < 0.7 else self._machine()
        if machine.process is not None:
            self._world.control_plane.stop(machine)  # type: ignore[arg-type] # its machines are of this kind
            self._later(0.7, machine.start)

    def _kill_the_leader(self) -> None:
        machine = self._leader()
        machine.kill()
        self._later(1.5, machine.start)

    def _power_cut_of_a_majority(self) -> None:
        machines = list(self._machines)
        self._loop.random.shuffle(machines)
        for machine in machines[: len(machines) // 2 + 1]:
            machine.power_cut()
            self._later(1.0, machine.start)

    def _die_in_the_middle(self) -> None:
        machine = self._machine()
        if machine.process is None:
            machine.start()
        random = self._loop.random
        machine.die_within(random.randrange(12), power_cut=self._power_cuts and random.random() < 0.5)
        self._later(2.0, machine.start)

    def _vote_error(self) -> None:
        machine = self._machine()
        machine.disk.failing = "/epoch.json"
        machine.disk.fail_syncs = 1
        self._later(3.0, partial(self._restart_with_well_disk, machine))

    def _replace_disk(self) -> None:
        """Never more empty disks than the group can lose, whichever voters count, or will count in a moment."""
        machine = self._machine()
        if self._world.control_plane.may_change_members:
            return
        if not self._world.can_lose(machine):  # type: ignore[arg-type] # its machines are of this kind
            return
        machine.kill()
        machine.replace_disk()
        self._later(1.5, machine.start)

    def _is_spare(self, machine: Machine) -> bool:
        return self._world.can_lose(machine)  # type: ignore[arg-type] # its machines are of this kind

    def _sync_error(self) -> None:
        """Not beside an empty disk: neither has a full vote then, and the two could be a majority."""
        if not any(machine.blank for machine in self._machines):
            super()._sync_error()

    def _call_error(self) -> None:
        if not any(machine.blank for machine in self._machines):
            super()._call_error()
