"""The operator of a quorum-led group: changes its voters, hands the leadership over, prefers a leader; sometimes in a hurry."""

from __future__ import annotations

from collections.abc import Iterable
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
        self._asked: list[tuple[float, Change]] = []
        world.network.join(self)

    @property
    def may_change_members(self) -> bool:
        """Whether a leader may be asked yet for a voter more or less: no disk can be lost that this one would miss."""
        return bool(self._asked) and self._loop.now_s < self._asked[-1][0] + _ON_ITS_WAY_S

    def voters_on_their_way(
        self, voters: Iterable[tuple[int, ...]], besides: Iterable[Change] = ()
    ) -> set[tuple[int, ...]]:
        """These sets of voters, and what they become by any of the requests that may not have arrived yet, or by `besides`."""
        found = set(voters)
        on_their_way = [change for asked_s, change in self._asked if self._loop.now_s < asked_s + _ON_ITS_WAY_S]
        for change in (*on_their_way, *besides):
            found |= {_changed(one, change) for one in found}
        return found

    def change_members(self, *, beside_new_disks: bool = False) -> None:
        """Add or remove a voter, or, in a hurry, several at once: the group must take one after the other.

        `beside_new_disks`: also while a disk is empty, where the voters that remain can do without it.
        """
        leader = self._leader()
        blank = any(machine.blank for machine in self._world.machines)
        if leader is None or (blank and not beside_new_disks):
            return  # while a disk is empty, no voter more or less
        random = self._loop.random
        voters = leader.members.voters
        ids = [machine.settings.replica_id for machine in self._world.machines if not machine.out_of_service]
        changes = [Change("add", replica_id) for replica_id in ids if replica_id not in voters]
        if len(voters) > 2:
            changes += [Change("remove", voter) for voter in voters if voter != leader.settings.replica_id]
        random.shuffle(changes)
        for change in changes[: random.choice((1, 1, 2, 3))]:
            if not blank or self._world.can_lose(None, besides=[change]):
                self._asked.append((self._loop.now_s, change))
                self._ask(leader, change)

    def note_change(self, change: str, replica_id: int) -> None:
        """Another one than this operator asks just now for "addVoter" or "removeVoter"."""
        self._asked.append((self._loop.now_s, Change("add" if change == "addVoter" else "remove", replica_id)))

    def transfer(self) -> None:
        """Hand the leadership to another voter."""
        leader = self._leader()
        if leader is not None and leader.members.voters:
            self._ask(leader, Change("transfer", self._loop.random.choice(leader.members.voters)))

    def transfer_to(self, replica_id: int) -> None:
        """Hand it to this one."""
        leader = self._leader()
        if leader is not None:
            self._ask(leader, Change("transfer", replica_id))

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


def _changed(voters: tuple[int, ...], change: Change) -> tuple[int, ...]:
    others = {voter for voter in voters if voter != change.replica_id}
    if change.kind == "add" and change.replica_id is not None:
        others.add(change.replica_id)
    return tuple(sorted(others))
