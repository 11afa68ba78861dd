"""What goes wrong around a quorum-led group: each seed has its own selection of kinds and its own pace (swarm testing)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults import PLAN_EVERY, Faults
from tests.sim.quorum_machine import QuorumMachine

if TYPE_CHECKING:
    from tests.sim.machine import Machine
    from tests.sim.quorum_world import QuorumWorld


_COMPOSED_S = 6.0  # as long as a fault with several parts takes at most
_LOOK_S = 0.01
_GLANCE_S = 0.001  # less than a record takes to reach another replica
_CALM_S = 1.2  # between faults, lest others spoil such a one


class QuorumFaults(Faults):
    """See the module. A world without `power_cuts` has none; one with ASYNC_FLUSH and them changes no voters."""

    def __init__(self, world: QuorumWorld) -> None:
        self._world: QuorumWorld = world  # type: ignore[assignment] # a world with what the inherited kinds use
        self._loop = world.loop
        self.stopped = False
        random = world.loop.random
        self._power_cuts = world.power_cuts
        self._composed_until_s = 0.0
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
            (self._rot_of_the_last_record, 0.5),
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
        planned = self._planned(world.seed)
        self._kinds += planned
        self._mean_s = random.choice((0.3, 0.6, 1.2)) if not planned else _CALM_S
        self.dies_after_answer = random.choice((0.0, 0.0, 0.02, 0.1)) if self._power_cuts else 0.0
        world.network.loss = random.choice((0.0, 0.0, 0.01, 0.05))
        world.network.doubling = random.choice((0.0, 0.01, 0.05))
        world.network.slow = random.choice((0.0, 0.01, 0.05, 0.2))

    def _plans(self) -> dict[int, Callable[[], None]]:
        plans: dict[int, Callable[[], None]] = {
            2: self._suspend_the_leader,
            5: self._disk_in_the_past,
            6: self._rot_of_two,
            8: self._rot_of_own_records,
            9: self._older_but_longer,
        }
        voters_change = self._world.flush == "sync" or not self._power_cuts
        return plans | {4: self._new_disk_beside_other_voters} if voters_change else plans

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

    def _suspend_the_leader(self) -> None:
        """For so long that another one leads by then; perhaps it hears nothing of that, and clients reach it when it goes on."""
        leader, lasts_s = self._leader(), self._loop.random.uniform(2.0, 6.0)
        self._suspend_for(lasts_s, [leader])
        if self._loop.random.random() < 0.5:
            others = [*self._world.name_server_names, *(one.name for one in self._machines if one is not leader)]
            self._block_for(lasts_s + 2.5, [(leader.name, other) for other in others])

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
        machine = self._loop.random.choice(self._machines)
        if not self._may_lose(machine):
            return
        machine.kill()
        machine.replace_disk()
        self._later(1.5, machine.start)

    def _new_disk_beside_other_voters(self) -> None:
        """Requests for more or fewer voters are on their way when a disk is lost, or come just afterwards."""
        operator, random = self._world.operator, self._loop.random
        machine = random.choice(self._machines)
        operator.change_members(beside_new_disks=True)

        def lose() -> None:
            if not self.stopped and self._world.can_lose(machine, besides=[]):
                machine.kill()
                machine.replace_disk()
                self._later(1.0, machine.start)
                if random.random() < 0.5:
                    self._later(0.3, partial(operator.change_members, beside_new_disks=True))

        self._later(0.5, lose)

    def _disk_in_the_past(self) -> None:
        """A leader was replaced and has not noticed yet: it is the only one that a voter with a new disk reaches."""
        loop, network, leader = self._loop, self._world.network, self._leader()
        others = [machine for machine in self._machines if machine is not leader]
        leads = leader.process is not None and leader.process.replica.has_confirmed_epoch
        if loop.now_s < self._composed_until_s or not leads or len(others) != 2:
            return
        self._composed_until_s = loop.now_s + _COMPOSED_S
        names = [*(other.name for other in others), *self._world.name_server_names]
        self._block_for(_COMPOSED_S, [(leader.name, name) for name in names])
        if self._world.seed // PLAN_EVERY % 2:  # as by a switch that restarts: then the others elect at once
            network.reset([other.name for other in others], leader.name)

        def look() -> None:
            newer = [one for one in others if one.process and one.process.replica.has_confirmed_epoch]
            if self.stopped or leader.process is None or not leader.process.replica.leads:
                return
            if not newer or not self._may_lose(fresh := next(one for one in others if one is not newer[0])):
                loop.after(_LOOK_S, look)
                return
            fresh.replace_disk()
            self._block_for(_COMPOSED_S, [(fresh.name, newer[0].name)])
            network.blocked -= {(leader.name, fresh.name), (fresh.name, leader.name)}
            fresh.start()

        loop.after(_LOOK_S, look)

    def _older_but_longer(self) -> None:
        """A leader is cut off as soon as it is elected, with its first records and some sends. When it comes back, the one elected
        after it is gone, and the third replica has less than it has, but of a later epoch.
        """
        loop, network, before = self._loop, self._world.network, self._leader()
        if loop.now_s < self._composed_until_s or len(self._machines) != 3:
            return
        self._composed_until_s = loop.now_s + _COMPOSED_S
        before.kill()
        self._later(0.5, before.start)
        cut: list[tuple[str, str]] = []
        elected: list[QuorumMachine] = []

        def look() -> None:
            if self.stopped or loop.now_s > self._composed_until_s:
                return
            leading = [
                one for one in self._machines if one.process and one.process.replica.leads and one not in elected
            ]
            if leading and not elected:
                elected.append(leading[0])
                cut.extend((leading[0].name, one.name) for one in self._machines if one is not leading[0])
                self._block_for(_COMPOSED_S, cut)
            elif leading and leading[0].process and leading[0].process.replica.has_confirmed_epoch:
                leading[0].kill()
                network.blocked.difference_update({*cut, *((other, one) for one, other in cut)})
                loop.after(_COMPOSED_S, leading[0].start)
                return
            loop.after(_GLANCE_S, look)

        loop.after(_GLANCE_S, look)

    def _may_lose(self, machine: QuorumMachine) -> bool:
        """Whether its disk may be replaced, whichever voters count, or will count in a moment."""
        return not self._world.control_plane.may_change_members and self._world.can_lose(machine)

    def _is_spare(self, machine: Machine) -> bool:
        return self._world.can_lose(machine)  # type: ignore[arg-type] # its machines are of this kind

    def _sync_error(self) -> None:
        """Not beside an empty disk: neither has a full vote then, and the two could be a majority."""
        if not any(machine.blank for machine in self._machines):
            super()._sync_error()

    def _call_error(self) -> None:
        if not any(machine.blank for machine in self._machines):
            super()._call_error()

    def _read_errors(self) -> None:
        """Nor this: recovery that can't read what it is to make durable takes the log for uncertain."""
        if not any(machine.blank for machine in self._machines):
            super()._read_errors()
