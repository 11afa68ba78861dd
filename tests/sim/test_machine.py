"""A simulated machine's disk, as the faults see it."""

from __future__ import annotations

import os

import pytest

from brokerd.replica.epoch_map import EpochMap
from tests.sim.history import Copy
from tests.sim.machine import is_there, place_in_log
from tests.sim.memory_disk import BLOCK_BYTES
from tests.sim.quorum_machine import QuorumMachine
from tests.sim.quorum_world import QuorumWorld
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_environment import FILE_BYTES
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


RECORDS = [len(body).to_bytes(4, "big") + body[4:] for body in (b"1" * BLOCK_BYTES, b"2" * BLOCK_BYTES)]


def with_two_unsynced_records(seed: int) -> QuorumMachine:
    machine = QuorumWorld("sync", seed).machines[0]
    path, _ = place_in_log(0)
    machine.disk.make_directory(os.path.dirname(path))
    fd = machine.disk.open(path, os.O_RDWR | os.O_CREAT)
    machine.disk.pwrite(fd, bytes(FILE_BYTES), 0)  # as long as a CommitLog file is from its beginning
    machine.disk.fsync(fd)
    machine.disk.sync_directory(os.path.dirname(path))
    for number, record in enumerate(RECORDS):
        machine.disk.pwrite(fd, record, number * BLOCK_BYTES)
    return machine


def test_a_power_cut_that_leaves_a_later_record_whole_and_an_earlier_one_not_leaves_a_log_in_doubt() -> None:
    """Recovery truncates both, and can't know that neither counted: the replica has no full vote then."""
    found = set()
    for seed in range(40):
        machine = with_two_unsynced_records(seed)
        machine.power_cut()
        first, second = (
            is_there(record, at, machine.disk.page_cache) for record, at in zip(RECORDS, (0, BLOCK_BYTES), strict=True)
        )
        assert machine.in_doubt is (second and not first), seed
        found.add((first, second))
    assert {(False, True), (True, False)} <= found


def test_a_power_cut_beside_an_empty_disk_leaves_no_log_in_doubt() -> None:
    """Neither would have a full vote, and of three voters two are a majority."""
    for seed in range(40):
        machine = with_two_unsynced_records(seed)
        machine.others[0].blank = True
        machine.power_cut()
        assert not machine.in_doubt, seed


def test_a_blank_disk_stands_for_what_the_lost_one_had_and_for_nothing_that_was_appended_later() -> None:
    """The observer took it for a holder of every record, until the group had adopted it."""
    machine = QuorumWorld("sync", 1).machines[0]
    machine._left = (EpochMap([(1, 0)]), 500, 500)
    machine.replace_disk()
    assert machine.had(Copy("r1", 1, 400, 500, 0))
    assert not machine.had(Copy("r1", 1, 450, 550, 0))
    assert not machine.had(Copy("r1", 2, 400, 500, 0))


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_what_a_failed_sync_left_in_memory_may_be_lost_with_async_flush_once_its_pages_are_dropped(flush: str) -> None:
    machine = World("single", flush, 1).machines[0]
    path, _ = place_in_log(0)
    machine.disk.make_directory(os.path.dirname(path))
    fd = machine.disk.open(path, os.O_RDWR | os.O_CREAT)
    machine.disk.pwrite(fd, RECORD, 0)
    machine.disk.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output error"):
        machine.disk.fsync(fd)
    machine._left = EpochMap([(1, 0)]), len(RECORD), 0
    machine.drop_clean_pages()
    assert machine.disk.page_cache(path, 0, len(RECORD)) == bytes(len(RECORD))
    assert machine.history.may_be_lost(Copy(machine.name, 1, 0, len(RECORD), 0)) is (flush == "async")
