"""What the simulated disk may leave after a power cut: nothing that no file system leaves."""

from __future__ import annotations

import errno
import os

import pytest

from tests.sim.memory_disk import BLOCK_BYTES, MemoryDisk

DIRECTORY = "/store/consumequeue/orders/0"
PATH = f"{DIRECTORY}/00000000000000000000"
SEEDS = 20  # by far enough for one that brings the file back, and one that does not


def removed_without_a_sync() -> MemoryDisk:
    """A disk with a durable file that was removed, and its directory after it; neither removal was synced."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    disk.close(disk.open(PATH, os.O_RDWR | os.O_CREAT))
    disk.sync_directory(DIRECTORY)
    disk.unlink(PATH)
    disk.remove_directory(DIRECTORY)
    return disk


@pytest.fixture(params=["by chance", "all unsynced"])
def left(request: pytest.FixtureRequest) -> MemoryDisk:
    """What a power cut left, with the file."""
    disk = removed_without_a_sync()
    if request.param == "all unsynced":
        return disk.after_losing_all_unsynced()
    cuts = [disk.after_power_cut(seed) for seed in range(SEEDS)]
    return next(cut for cut in cuts if cut.exists(PATH))


def test_a_file_that_a_power_cut_brings_back_is_in_its_directory(left: MemoryDisk) -> None:
    assert left.exists(DIRECTORY)


def test_another_file_can_be_made_beside_one_that_a_power_cut_brings_back(left: MemoryDisk) -> None:
    left.close(left.open(f"{DIRECTORY}/00000000000000001000", os.O_RDWR | os.O_CREAT))


def test_a_directory_whose_files_a_power_cut_does_not_bring_back_is_gone() -> None:
    cuts = [removed_without_a_sync().after_power_cut(seed) for seed in range(SEEDS)]
    assert any(not cut.exists(PATH) and not cut.exists(DIRECTORY) for cut in cuts)


def test_the_directories_above_are_back_as_well() -> None:
    disk = removed_without_a_sync()
    disk.remove_directory(os.path.dirname(DIRECTORY))
    assert os.path.dirname(DIRECTORY) in disk.after_losing_all_unsynced().directories


def test_nothing_is_back_of_a_directory_whose_removal_was_synced() -> None:
    disk = removed_without_a_sync()
    disk.sync_directory(os.path.dirname(DIRECTORY))
    assert not disk.after_losing_all_unsynced().exists(PATH)


def with_a_failed_sync() -> MemoryDisk:
    """A disk with a durable block, and two more that a failed sync was to write; the kernel calls them clean."""
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    fd = disk.open(PATH, os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, b"1" * BLOCK_BYTES, 0)
    disk.fsync(fd)
    disk.fail = lambda number, name: errno.EIO if name == "sync" else None
    disk.pwrite(fd, b"2" * 2 * BLOCK_BYTES, BLOCK_BYTES)
    with pytest.raises(OSError, match="Input/output error"):
        disk.fsync(fd)
    disk.fail = lambda number, name: None
    return disk


def test_what_a_failed_sync_did_not_write_is_read_as_zeros_once_its_pages_are_dropped() -> None:
    disk = with_a_failed_sync()
    assert disk.content()[PATH] == b"1" * BLOCK_BYTES + b"2" * 2 * BLOCK_BYTES
    assert disk.names[PATH].drop_clean_pages()
    assert disk.content()[PATH] == b"1" * BLOCK_BYTES + bytes(2 * BLOCK_BYTES)


def test_what_was_written_again_after_a_failed_sync_is_not_dropped() -> None:
    disk = with_a_failed_sync()
    disk.pwrite(disk.open(PATH, os.O_RDWR), b"2" * 2 * BLOCK_BYTES, BLOCK_BYTES)
    assert not disk.names[PATH].drop_clean_pages()


def test_without_a_failed_sync_nothing_differs_when_pages_are_dropped() -> None:
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    disk.pwrite(disk.open(PATH, os.O_RDWR | os.O_CREAT), b"1", 0)
    assert not disk.names[PATH].drop_clean_pages()
