"""What goes wrong around a group whose mode changes: the faults of both kinds of groups, and change after change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqwire.mode import Mode
from tests.sim.quorum_faults import QuorumFaults

if TYPE_CHECKING:
    from tests.sim.changing_world import ChangingWorld
    from tests.sim.machine import Machine


_COMPOSED_S = 9.0  # as long as a fault with several parts takes at most
_LOOK_S = 0.005


class ChangingFaults(QuorumFaults):
    """A world without `power_cuts` has none; one with ASYNC_FLUSH and them changes no voters but with the mode."""

    _world: ChangingWorld

    def __init__(self, world: ChangingWorld) -> None:
        self._world = world
        self._loop = world.loop
        self.stopped = False
        random = world.loop.random
        self._power_cuts = world.power_cuts
        self._composed_until_s = 0.0
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
            *self._of_disks(),
            (self._rot, 0.7),
            (self._rot_of_the_last_record, 0.5),
            (self._clock_jump, 0.5),
            (self._name_server_restart, 0.3),
            (world.operator.transfer, 1.0),
            (self._change_members, 1.0),
            (self._failover, 1.0),
            (self._switchover, 1.0),
            (self._mistake, 0.5),
            (self._unclean, 0.3),
            (self._by_hand, 0.3),
            (self._change_and_cut_off, 1.0),
        ]
        if self._power_cuts:
            if world.flush == "async":
                kinds.remove((self._change_members, 1.0))
            kinds += [(self._power_cut, 2.0), (self._power_cut_of_all, 0.5), (self._power_cut_of_a_majority, 0.5)]
        self._kinds = [(kind, weight) for kind, weight in kinds if random.random() < 0.5] or kinds
        self._kinds.append((self._change_mode, random.choice((2.0, 4.0, 8.0))))
        weather = {"change and leave": self._change_and_leave, "change and restart": self._change_and_restart}
        self._kinds += self._plenty_of(weather[world.weather]) if world.weather else self._planned(world.seed)
        self._mean_s = random.choice((0.4, 0.8, 1.5))
        self.dies_after_answer = random.choice((0.0, 0.0, 0.02, 0.1)) if self._power_cuts else 0.0
        world.network.loss = random.choice((0.0, 0.0, 0.01, 0.05))
        world.network.doubling = random.choice((0.0, 0.01, 0.05))
        world.network.slow = random.choice((0.0, 0.01, 0.05, 0.2))
        world.mode_operator.failovers = random.choice((0.2, 0.7, 1.0))
        world.mode_operator.unclean = random.choice((0.0, 0.0, 0.3))

    def _plans(self) -> dict[int, Callable[[], None]]:
        return {
            0: self._rot_of_two,
            2: self._rot_of_own_records,
            4: self._new_disk_while_the_mode_changes,
            6: self._change_and_leave,
            7: self._remove_a_replica,
            9: self._by_hand,
        }

    def _machine(self) -> Machine:
        """One that the group has."""
        return self._loop.random.choice([one for one in self._world.machines if not one.out_of_service])

    def _stop(self) -> None:
        machine = self._leader() if self._loop.random.random() < 0.7 else self._machine()
        if machine.process is not None:
            self._world.operator.stop(machine)  # type: ignore[arg-type] # its machines are of this kind
            self._later(0.7, machine.start)

    def _is_spare(self, machine: Machine) -> bool:
        """With two replicas or two voters no disk is, where both must vote for each other."""
        voters = [each.members.voters for each in self._machines]
        return all(each.has_full_vote for each in self._machines) and all(len(ids) != 2 for ids in voters)

    def _change_members(self) -> None:
        """One operation at a time, as in the platform."""
        if self._world.mode_operator.settled:
            self._world.operator.change_members()

    def _change_and_cut_off(self) -> None:
        """In the middle of a change the leader reaches no one any more, and soon is not reached by the control plane."""
        random, leader, plane = self._loop.random, self._leader(), self._world.mode_operator.name
        others = [machine.name for machine in self._machines if machine is not leader]
        deaf_too = random.random() < 0.5
        pairs = [(leader.name, other) for other in others] + [(other, leader.name) for other in others if deaf_too]
        lasts_s = random.expovariate(1 / 6)
        self._change_mode()
        self._cut_off_within(random.choice((0.0, 0.02)), pairs, lasts_s)
        self._cut_off_within(0.5, [(leader.name, plane), (plane, leader.name)], lasts_s)

    def _change_and_leave(self) -> None:
        """A leader acts by async, which the row does not know, and acknowledges alone; once the change has failed it is gone."""
        loop, mode_operator, leader = self._loop, self._world.mode_operator, self._leader()
        if not mode_operator.settled or loop.now_s < self._composed_until_s:
            return
        if mode_operator.row_mode != Mode.SYNC:
            mode_operator.change_mode(Mode.SYNC)
            return
        self._composed_until_s = loop.now_s + _COMPOSED_S
        mode_operator.change_mode(Mode.ASYNC)

        def look() -> None:
            process = leader.process
            if self.stopped or process is None or not process.replica.leads or mode_operator.operation is None:
                return
            if process.replica.settings.mode is not Mode.ASYNC:
                loop.after(_LOOK_S, look)
                return
            others = [(leader.name, one.name) for one in self._machines if one is not leader]
            self._block_for(_COMPOSED_S, [*others, (leader.name, mode_operator.name)])
            loop.after(_LOOK_S, leave)

        def leave() -> None:
            if self.stopped:
                return
            if mode_operator.operation is not None:
                loop.after(_LOOK_S, leave)
                return
            leader.kill()
            self._failover()
            self._later(4.0, leader.start)

        loop.after(_LOOK_S, look)

    def _change_and_restart(self) -> None:
        """A follower starts again that holds the record of a change, and does not know that it is confirmed. No seed has it by its
        number: some planted bugs are looked for in it.
        """
        loop, mode_operator, leader = self._loop, self._world.mode_operator, self._leader()
        machine = loop.random.choice([one for one in self._machines if one is not leader])
        if not mode_operator.settled or loop.now_s < self._composed_until_s or machine.out_of_service:
            return
        self._composed_until_s = loop.now_s + _COMPOSED_S
        self._change_mode()

        def look() -> None:
            process = machine.process
            if self.stopped or process is None or mode_operator.operation is None:
                return
            if process.replica.modes.pending is None:
                loop.after(_LOOK_S / 10, look)
                return
            machine.kill()
            self._later(0.5, machine.start)

        loop.after(_LOOK_S / 10, look)

    def _new_disk_while_the_mode_changes(self) -> None:
        """As the runbook says, whatever is asked meanwhile: a follower only, stopped until its leader has left it out."""
        world, control, machine = self._world, self._world.mode_operator, self._machine()
        leaders = [one.name for one in self._machines if one.process and one.process.replica.leads]
        may_lose = not self._rots() and world.can_lose(machine, besides=[])  # type: ignore[arg-type] # it is of this kind
        if leaders != [control.leader] or machine.name in leaders or control.replaced or not may_lose:
            return
        control.replaces(machine.name)
        machine.kill()
        machine.out_of_service = True
        away_s = world.max_time_not_level_s + 1.0

        def replaced() -> None:
            machine.out_of_service = False
            if world.can_lose(machine, besides=[]):  # type: ignore[arg-type] # it is of this kind
                machine.replace_disk()
            else:  # others count by now, and cannot do without it
                control.replaced.pop(machine.name, None)
            machine.start()

        self._loop.after(away_s, replaced)
        for _ in range(2):
            self._loop.after(self._loop.random.uniform(0.0, 2 * away_s), self._change_mode_unless_stopped)

    def _remove_a_replica(self) -> None:
        """While nothing on any disk is missing: with it goes a copy."""
        if not self._world.waiting and not self._rots() and all(one.has_full_vote for one in self._machines):
            self._world.mode_operator.begin_removal()

    def _change_mode_unless_stopped(self) -> None:
        if not self.stopped:
            self._change_mode()

    def _cut_off_within(self, within_s: float, pairs: list[tuple[str, str]], lasts_s: float) -> None:
        def cut_off() -> None:
            if not self.stopped:
                self._loop.note(f"cut off: {sorted(pairs)}")
                self._world.network.blocked.update(pairs)

        self._loop.after(self._loop.random.random() * within_s, cut_off)
        self._connect_after(within_s + lasts_s, pairs)

    def _change_mode(self) -> None:
        self._world.mode_operator.change_mode()
