"""The operator of a quorum-led group: changes its voters, hands the leadership over, prefers a leader; sometimes in a hurry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.sim_requests import Change

if TYPE_CHECKING:
    from tests.sim.quorum_machine import QuorumMachine
    from tests.sim.quorum_world import QuorumWorld

_TIMEOUT_S = 1.0
_ON_ITS_WAY_S = 5.0  # a request may arrive long after the operator has given up on it


class Operator:
    """Asks the present leader, as far as can be seen."""

    name = "operator"

    def __init__(self, world: QuorumWorld) -> None:
        self._world = world
        self._loop = world.loop
        self._changed_members_s = -_ON_ITS_WAY_S
        world.network.join(self)

    @property
    def may_change_members(self) -> bool:
        """Whether a leader may be asked yet for a voter more or less: no disk can be lost that this one would miss."""
        return self._loop.now_s < self._changed_members_s + _ON_ITS_WAY_S

    def change_members(self) -> None:
        """Add or remove a voter, or, in a hurry, several at once: the group must take one after the other."""
        leader = self._leader()
        if leader is None or any(machine.blank for machine in self._world.machines):
            return  # while a disk is empty, no voter more or less
        random = self._loop.random
        voters = leader.members.voters
        ids = [machine.settings.replica_id for machine in self._world.machines]
        changes = [Change("add", replica_id) for replica_id in ids if replica_id not in voters]
        if len(voters) > 2:
            changes += [Change("remove", voter) for voter in voters if voter != leader.settings.replica_id]
        random.shuffle(changes)
        self._changed_members_s = self._loop.now_s
        for change in changes[: random.choice((1, 1, 2, 3))]:
            self._ask(leader, change)

    def transfer(self) -> None:
        """Hand the leadership to another voter."""
        leader = self._leader()
        if leader is not None and leader.members.voters:
            self._ask(leader, Change("transfer", self._loop.random.choice(leader.members.voters)))

    def prefer(self) -> None:
        """Want another leader, or none in particular."""
        leader = self._leader()
        if leader is not None:
            self._ask(leader, Change("prefer", self._loop.random.choice((None, *leader.members.voters))))

    def stop(self, machine: QuorumMachine) -> None:
        """Stop a process as `shutdown` does: a leader resigns first."""
        machine.stop()

    def _leader(self) -> QuorumMachine | None:
        leaders = [machine for machine in self._world.machines if machine.process and machine.process.replica.leads]
        return self._loop.random.choice(leaders) if leaders else None

    def _ask(self, machine: QuorumMachine, change: Change) -> None:
        def answered(refusal: Any) -> None:
            if refusal is not None:
                self._loop.note(f"{machine.name} refuses {change.kind} {change.replica_id}: {refusal}")

        self._world.network.call(self, machine.name, change, answered, timeout_s=_TIMEOUT_S, may_double=False)
