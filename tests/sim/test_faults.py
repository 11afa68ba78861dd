"""Each fault does what its name says: one that does nothing is counted as if it had."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.changing_world import ChangingWorld
from tests.sim.quorum_world import QuorumWorld
from tests.sim.world import World

RINGS = 10  # by far enough for one of each kind


@pytest.mark.parametrize("replicas", [3, 4, 5])
def test_in_a_ring_each_replica_hears_some_of_the_others_and_not_all(replicas: int) -> None:
    world = QuorumWorld("sync", 1, replicas=replicas)
    names = {machine.name for machine in world.machines}
    counts = set()
    for _ in range(RINGS):
        world.network.blocked.clear()
        world.faults._ring()
        for name in names:
            heard = {other for other in names - {name} if (other, name) not in world.network.blocked}
            hears_it = {other for other in names - {name} if (name, other) not in world.network.blocked}
            assert 0 < len(heard) == len(hears_it) < replicas - 1
            counts.add(len(heard))
    assert counts == ({1} if replicas == 3 else {1, 2})


@pytest.mark.parametrize(
    "make_world",
    [
        lambda: World("async", "sync", 1, replicas=2),
        lambda: QuorumWorld("sync", 1, replicas=2),
        lambda: ChangingWorld("sync", 1, replicas=2),
    ],
    ids=["async", "dledger", "changing"],
)
def test_no_ring_of_two_is_a_fault(make_world: Callable[[], World | QuorumWorld]) -> None:
    world = make_world()
    world.faults._kinds = [(world.faults._ring, 1.0)]
    world.faults._strike()
    assert world.history.counts["fault: ring"] == 0
    assert world.history.counts["fault: partition"] == 1
    world.faults._kinds.append((world.faults._pause, 1.0))
    world.faults._strike()
    assert world.history.counts["fault: pause"] == 1


def test_a_replica_that_is_not_in_service_yet_makes_no_ring() -> None:
    world = QuorumWorld("sync", 1, replicas=3)
    world.faults._kinds = [(world.faults._ring, 1.0)]
    world.machines[2].out_of_service = True
    world.faults._strike()
    assert world.history.counts["fault: ring"] == 0
    world.machines[2].out_of_service = False
    world.faults._strike()
    assert world.history.counts["fault: ring"] == 1
