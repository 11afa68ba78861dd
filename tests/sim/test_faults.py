"""Each fault does what its name says: one that does nothing is counted as if it had."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim.changing_world import ChangingWorld
from tests.sim.quorum_world import QuorumWorld
from tests.sim.sim_disk import SimDisk
from tests.sim.trio_process import simulated_locks
from tests.sim.world import World

RINGS = 10  # by far enough for one of each kind
PATH = "/store/file"


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


@pytest.fixture
def disk() -> SimDisk:
    """With a file in a directory."""
    disk = SimDisk()
    disk.make_directory("/store")
    disk.close(disk.open(PATH, os.O_RDWR | os.O_CREAT))
    return disk


READS: dict[str, Callable[[SimDisk, int], Any]] = {
    "open": lambda disk, fd: disk.open(PATH, os.O_RDONLY),
    "listdir": lambda disk, fd: disk.listdir("/store"),
    "sync_directory": lambda disk, fd: disk.sync_directory("/store"),
    "exists": lambda disk, fd: disk.exists(PATH),
    "permissions": lambda disk, fd: disk.permissions(PATH),
    "size": lambda disk, fd: disk.size(fd),
    "next_data": lambda disk, fd: disk.next_data(fd, 0),
    "pread": lambda disk, fd: disk.pread(fd, 1, 0),
}


@pytest.mark.parametrize("name", READS)
def test_each_call_that_reads_can_fail(disk: SimDisk, name: str) -> None:
    fd, read = disk.open(PATH, os.O_RDONLY), READS[name]
    disk.fail_reads_in(1, 2, errno.EIO)
    read(disk, fd)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            read(disk, fd)
    read(disk, fd)


@pytest.mark.parametrize("name", READS)
def test_want_of_descriptors_fails_no_call_that_takes_none(disk: SimDisk, name: str) -> None:
    fd, read = disk.open(PATH, os.O_RDONLY), READS[name]
    disk.fail_reads_in(0, 1, errno.EMFILE)
    if name in ("open", "listdir", "sync_directory"):
        with pytest.raises(OSError, match="Too many open files"):
            read(disk, fd)
    else:
        read(disk, fd)
        assert disk.reads_fail


def test_the_next_process_meets_the_failing_reads_that_are_left(disk: SimDisk) -> None:
    disk.fail_reads_in(0, 1, errno.EIO)
    disk.stop()
    disk = SimDisk.of(disk.after_kill(), disk)
    with pytest.raises(OSError, match="Input/output error"):
        disk.exists(PATH)


def test_no_observer_meets_a_failing_read(disk: SimDisk) -> None:
    disk.fail_reads_in(0, 1, errno.EIO)
    with disk.observed():
        assert disk.exists(PATH)
    assert disk.reads_fail


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE])
def test_a_broker_that_can_not_read_at_its_start_is_started_again(error: int) -> None:
    world = World("single", "sync", 1)
    (machine,) = world.machines
    with simulated_locks():
        machine.start()
        world.loop.run_until(1.0)
        machine.kill()
        world.faults.fail_reads(machine, 0, 2, error, 3.0)
        machine.start()
        world.loop.run_until(1.1)
        assert not machine.runs_now
        world.loop.run_until(4.0)
        assert machine.process is not None
        assert world.history.counts["calls of disks that failed"] == 2
        machine.shut()


def test_a_broker_that_fails_to_read_for_long_is_well_after_that() -> None:
    world = World("single", "sync", 1)
    (machine,) = world.machines
    with simulated_locks():
        machine.start()
        world.faults.fail_reads(machine, 0, 1_000, errno.EIO, 2.0)
        world.loop.run_until(4.0)
        assert machine.process is not None
        assert not machine.disk.reads_fail
        machine.shut()
