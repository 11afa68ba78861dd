"""A simulated machine's disk, as the faults see it."""

from __future__ import annotations

import os

from tests.sim.history import Copy
from tests.sim.machine import place_in_log
from tests.sim.sim_disk import SimDisk
from tests.sim.world import World

RECORD = b"a record that its leader appended"


def test_what_was_put_right_and_not_synced_is_spoiled_again_by_a_power_cut() -> None:
    """The faults took such a disk for whole, and replaced the only other one."""
    machine = World("async", "async", 1).machines[0]
    path, _ = place_in_log(0)
    machine.disk.make_directory(os.path.dirname(path))
    fd = machine.disk.open(path, os.O_RDWR | os.O_CREAT)
    machine.disk.pwrite(fd, RECORD, 0)
    machine.disk.fsync(fd)
    machine.disk.sync_directory(os.path.dirname(path))
    copy = Copy(machine.name, 1, 0, len(RECORD), 0)
    machine.contents[1, 0] = RECORD
    machine.spoil(copy, 0)
    machine.disk.pwrite(fd, RECORD, 0)
    assert machine.rot is None
    assert machine.may_rot
    machine.disk = SimDisk.of(machine.disk.after_losing_all_unsynced(), machine.disk)
    assert machine.rot is not None
