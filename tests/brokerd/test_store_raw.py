"""Bytes from one log to its copy: the copy is the same, queues included."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from brokerd.store.config import CONSUME_QUEUE_ENTRY_BYTES
from brokerd.store.consume_queue_store import ConsumeQueueStore
from brokerd.store.errors import LogDamagedError, RecordWithoutCrcError
from mqwire.codes import MessageSysFlag
from mqwire.message import CRC32_PROPERTY_BYTES
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, ROOT, ManualClock, fill, message, open_store, read_all, read_queue


@pytest.mark.parametrize("max_bytes", [1, 700, 5000, 1_000_000])
def test_a_follower_ends_with_the_same_bytes(max_bytes: int) -> None:
    leader_disk, follower_disk = MemoryDisk(), MemoryDisk()
    leader, follower = open_store(leader_disk), open_store(follower_disk)
    fill(leader, 50)
    leader.append([message(sys_flag=MessageSysFlag.TRANSACTION_PREPARED_TYPE), message(bytes(3000)), message(b"")])
    while follower.end_offset < leader.end_offset:
        data = leader.read_raw(follower.end_offset, max_bytes)
        assert data
        assert follower.append_raw(data, follower.end_offset) == follower.end_offset
    assert read_all(follower) == read_all(leader)
    leader.close()
    follower.close()
    assert follower_disk.content(COMMIT_LOG) == leader_disk.content(COMMIT_LOG)
    assert follower_disk.content(f"{ROOT}/consumequeue") == leader_disk.content(f"{ROOT}/consumequeue")
    follower = open_store(follower_disk)
    assert follower.end_offset == leader.end_offset
    assert follower.append([message()]) == open_store(leader_disk).append([message()])


def test_a_blank_never_travels_without_the_record_for_which_it_was_written() -> None:
    leader = open_store(MemoryDisk())
    leader.append([message(bytes(3000))])
    begin = leader.end_offset
    leader.append(
        [message(bytes(3000))]
    )  # of another epoch, perhaps: a follower that ended between both would cut for ever
    follower = open_store(MemoryDisk())
    follower.append_raw(leader.read_raw(0, 1), 0)
    assert follower.end_offset == begin
    follower.append_raw(leader.read_raw(begin, 1), begin)
    assert follower.end_offset == leader.end_offset


def test_a_follower_reads_no_entry_of_a_queue_that_goes_on_as_ever() -> None:
    """One for each queue of each batch, on every follower."""
    leader, follower = open_store(MemoryDisk()), open_store(MemoryDisk())
    fill(leader, 10)
    follower.append_raw(leader.read_raw(0, 100_000), 0)
    follower.flush_consume_queues()
    end = follower.end_offset
    fill(leader, 10, first=10)
    data = leader.read_raw(end, 100_000)
    with patch.object(ConsumeQueueStore, "read", side_effect=AssertionError("an entry was read")):
        follower.append_raw(data, end)
    assert follower.end_offset == leader.end_offset


def test_followers_get_records_that_readers_do_not_see_yet() -> None:
    leader = open_store(MemoryDisk())
    results = fill(leader, 10)
    leader.confirm_offset = results[3].physical_offset
    assert len(leader.read_raw(0, 100_000)) == leader.end_offset


def test_bytes_for_another_place_are_refused() -> None:
    leader, follower = open_store(MemoryDisk()), open_store(MemoryDisk())
    fill(leader, 3)
    data = leader.read_raw(0, 100_000)
    with pytest.raises(ValueError, match="can't be appended"):
        follower.append_raw(data, 5)
    follower.append_raw(data, 0)
    with pytest.raises(ValueError, match="no record"):
        follower.append_raw(data, follower.end_offset)


@pytest.mark.parametrize("position", [0, 5, 30, 90, 120, 300])
def test_a_record_that_is_not_whole_is_refused_with_all_that_came_with_it(position: int) -> None:
    leader, follower = open_store(MemoryDisk()), open_store(MemoryDisk())
    fill(leader, 3)
    data = bytearray(leader.read_raw(0, 100_000))
    data[position] ^= 1
    with pytest.raises(ValueError, match="no record"):
        follower.append_raw(bytes(data), 0)
    with pytest.raises(ValueError, match="no record"):
        follower.append_raw(leader.read_raw(0, 100_000)[:-1], 0)
    assert follower.end_offset == 0


def test_a_follower_takes_no_record_in_which_the_name_of_its_own_crc_is_spoiled() -> None:
    """It looked like one that has none, and the spoiled byte was the same on both disks then."""
    leader, follower = open_store(MemoryDisk()), open_store(MemoryDisk())
    fill(leader, 1)
    data = bytearray(leader.read_raw(0, 100_000))
    data[len(data) - CRC32_PROPERTY_BYTES] ^= 1
    with pytest.raises(RecordWithoutCrcError):
        follower.append_raw(bytes(data), 0)
    assert follower.end_offset == 0


def test_a_leader_that_looks_at_its_records_gives_none_in_which_the_name_of_its_own_crc_is_spoiled() -> None:
    disk = MemoryDisk()
    leader = open_store(disk)
    fill(leader, 1)
    leader.flush()
    disk.flip_bit(f"{COMMIT_LOG}/{0:020d}", leader.end_offset - CRC32_PROPERTY_BYTES)
    with pytest.raises(LogDamagedError):
        leader.read_raw(0, 100_000, check=True)


def test_a_follower_takes_records_without_a_crc_of_themselves_from_a_leader_that_has_looked_at_them() -> None:
    """Another program wrote them, before its log became the leader's."""
    disk = MemoryDisk()
    leader, follower = open_store(MemoryDisk(), append_record_crc=False), open_store(disk)
    fill(leader, 3)
    data = leader.read_raw(0, 100_000, check=True)
    assert follower.append_raw(data, 0, checked=True) == leader.end_offset
    follower.flush()
    assert read_all(open_store(disk.after_kill())) == read_all(leader)


@pytest.mark.parametrize("deleted", [0, 3])
def test_a_follower_whose_queues_last_file_alone_outlived_a_power_cut_takes_the_records_again(deleted: int) -> None:
    """It asked for another number than the first that its leader has, and was stuck for ever."""
    clock = ManualClock()
    leader, disk = open_store(MemoryDisk(), clock, file_reserved_hours=1, delete_when=tuple(range(24))), MemoryDisk()
    fill(leader, deleted, queues=1)
    if deleted:  # the first that it still has does not begin a file of its queue
        leader.append([message(bytes(3500), topic="other")])
        leader.flush_consume_queues()
        clock.time_ms += 2 * 3_600_000
    fill(leader, 3, queues=1)
    leader.delete_expired(clock.now_ms())
    data = leader.read_raw(leader.min_physical_offset, 1 << 20)
    follower = open_store(disk, mapped_file_size_consume_queue_bytes=2 * CONSUME_QUEUE_ENTRY_BYTES)
    if deleted:
        follower.start_over(leader.min_physical_offset)
    follower.append_raw(data, follower.end_offset)
    follower.write_consume_queues()
    folder = f"{ROOT}/consumequeue/orders/0"
    last_file = f"{folder}/{2 * CONSUME_QUEUE_ENTRY_BYTES:020d}"
    if deleted:
        disk.names[last_file].synced.extend(bytes(2 * CONSUME_QUEUE_ENTRY_BYTES))  # its name and size alone
    else:
        disk.names[last_file].sync()
    disk.synced_names[last_file] = disk.names[last_file]
    follower = open_store(
        disk.after_losing_all_unsynced(), mapped_file_size_consume_queue_bytes=2 * CONSUME_QUEUE_ENTRY_BYTES
    )
    assert follower.end_offset == leader.min_physical_offset
    follower.append_raw(data, follower.end_offset)
    assert read_queue(follower, "orders", 0) == read_queue(leader, "orders", 0)
