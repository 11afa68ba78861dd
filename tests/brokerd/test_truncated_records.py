"""After a power cut a record with zeros in it and whole ones after it is either a write that was torn, or one that was durable,
counted, and is damaged since. That disk does not show which, so it does not decide for the group. Any other damage was whole."""

from __future__ import annotations

import pytest

from brokerd.replica.in_sync import SendVerdict
from brokerd.store import LogRange, TailDoubt
from tests.brokerd.quorum_group import LONG_S, TIMES, Node, QuorumGroup
from tests.sim.memory_disk import BLOCK_BYTES, MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, bodies, fill, message, new_store, open_store

ACKNOWLEDGED = [b"acknowledged %d" % number for number in range(4)]


def file_of(offset: int) -> str:
    return f"{COMMIT_LOG}/{offset - offset % FILE_BYTES:020d}"


def damage(disk: MemoryDisk, offset: int) -> None:
    """A block there is as if it had never been written."""
    begin = offset % FILE_BYTES - offset % BLOCK_BYTES
    inode = disk.names[file_of(offset)]
    inode.data[begin : begin + BLOCK_BYTES] = inode.synced[begin : begin + BLOCK_BYTES] = bytes(BLOCK_BYTES)


def lose_power_with_damage(node: Node, offset: int) -> None:
    """Everything was synced, so that the cut itself takes nothing."""
    node.boots += 1
    node.disk = node.disk.after_losing_all_unsynced(node.boots)
    damage(node.disk, offset)
    node.open()


def group_with_damage(count: int = 3) -> QuorumGroup:
    """The last replica is away; the others have acknowledged messages; replica 1 lost power, and the second is damaged there."""
    group = QuorumGroup.led(count)
    group.isolate(count - 1)
    begins = []
    for body in ACKNOWLEDGED:
        begins.append(group[0].store.end_offset)
        end = group[0].append(body)
        group[0].flush()
        for _ in range(2):
            for number in range(1, count - 1):
                group[number].pull()
        assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    lose_power_with_damage(group[1], begins[1] + 60)
    assert group[1].store.end_offset == begins[1]
    return group


def test_recovery_reports_that_it_truncated_whole_records() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 4)
    store.flush()
    disk = disk.after_losing_all_unsynced()
    damage(disk, results[1].physical_offset + 60)
    store = new_store(disk)
    report = store.open()
    assert report.truncated == LogRange(results[1].physical_offset, FILE_BYTES)
    assert TailDoubt.RECORDS_TRUNCATED in store.doubts


def test_after_a_power_cut_a_record_with_a_wrong_bit_is_damage_and_what_follows_stays() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 4)
    store.flush()
    disk = disk.after_losing_all_unsynced()
    begin, end = results[1].physical_offset, results[2].physical_offset
    disk.flip_bit(file_of(begin), begin + 60)
    store = new_store(disk)
    report = store.open()
    assert report.damage == [LogRange(begin, end)]
    assert store.end_offset == results[-1].physical_offset + results[-1].size_bytes
    assert TailDoubt.RECORDS_TRUNCATED not in store.doubts


def with_a_record_three_bytes_before_a_block(body_bytes: int) -> tuple[MemoryDisk, int, int]:
    """A disk that has lost its power with everything synced; where that record begins and ends. One more follows it."""
    disk = MemoryDisk()
    store = open_store(disk)
    (first,) = store.append([message(b".", topic="filler")])
    longer_by = (BLOCK_BYTES - 3 - 2 * first.size_bytes) % BLOCK_BYTES
    (filler,) = store.append([message(b"." * (1 + longer_by), topic="filler")])
    begin = filler.physical_offset + filler.size_bytes
    (result,) = store.append([message(b"." * body_bytes)])
    store.append([message(b"the next one")])
    store.flush()
    assert result.physical_offset == begin
    return disk.after_losing_all_unsynced(), begin, begin + result.size_bytes


def test_a_wrong_bit_of_a_record_whose_size_has_three_zeros_in_a_block_of_their_own_is_damage() -> None:
    disk, begin, end = with_a_record_three_bytes_before_a_block(body_bytes=20)
    assert begin % BLOCK_BYTES == BLOCK_BYTES - 3
    assert end - begin < 256
    disk.flip_bit(file_of(begin), begin + 60)
    report = new_store(disk).open()
    assert report.damage == [LogRange(begin, end)]
    assert not report.truncated


def test_three_bytes_of_a_longer_record_that_a_power_cut_took_are_no_damage() -> None:
    disk, begin, end = with_a_record_three_bytes_before_a_block(body_bytes=300)
    assert begin % BLOCK_BYTES == BLOCK_BYTES - 3
    assert end - begin >= 256
    inode = disk.names[file_of(begin)]
    inode.data[begin : begin + 3] = inode.synced[begin : begin + 3] = bytes(3)
    report = new_store(disk).open()
    assert not report.damage
    assert report.truncated == LogRange(begin, FILE_BYTES)


def test_a_process_that_is_killed_right_after_it_truncated_remembers_it() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 4)
    store.flush()
    disk = disk.after_losing_all_unsynced()
    damage(disk, results[1].physical_offset + 60)
    new_store(disk).open()
    for _ in range(2):
        disk = disk.after_kill()
        assert TailDoubt.RECORDS_TRUNCATED in open_store(disk).doubts


def test_a_torn_tail_without_whole_records_is_no_reason_for_doubt() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 4)
    store.flush()
    disk = disk.after_losing_all_unsynced()
    damage(disk, results[3].physical_offset + 60)
    store = open_store(disk)
    assert len(bodies(store)) == 3
    assert TailDoubt.RECORDS_TRUNCATED not in store.doubts


def test_it_elects_no_one_who_lacks_the_acknowledged_messages() -> None:
    """Not even after it has waited for long: what is missing may be on the disk of the one that is away."""
    group = group_with_damage()
    group[0].up = False
    group.rejoin(2)
    group.live(TIMES.doubt + 4 * LONG_S)
    assert group.leaders == []
    group[0].restart()
    group.live(4 * LONG_S)
    assert group.leaders == [0]
    group.level()
    for node in group.nodes.values():
        assert [body for body in bodies(node.store) if body in ACKNOWLEDGED] == ACKNOWLEDGED


def test_a_last_record_that_is_spoiled_while_its_process_is_down_is_lost_by_no_election() -> None:
    group = QuorumGroup.led(3)
    group.isolate(2)
    for body in ACKNOWLEDGED:
        begin = group[0].store.end_offset
        end = group[0].append(body)
        group[0].flush()
        group[1].pull()
        group[1].pull()
        assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    node = group[1]
    node.disk = node.disk.after_kill()
    node.disk.flip_bit(file_of(begin), begin % FILE_BYTES + 60)
    node.open(damaged=True)
    assert node.store.damaged_from == begin
    group[0].up = False
    group.rejoin(2)
    group.live(TIMES.doubt + 4 * LONG_S)
    assert group.leaders == []
    group[1].up = False
    group[0].restart()
    group.live(4 * LONG_S)
    assert group.leaders == [0]
    assert [body for body in bodies(group[0].store) if body in ACKNOWLEDGED] == ACKNOWLEDGED


def test_it_votes_again_once_it_has_caught_up() -> None:
    group = group_with_damage()
    group[1].replica.saw_epoch(1, "r0")
    group[1].pull()
    group[1].pull()
    assert not group[1].replica.saved.log_may_be_incomplete
    assert not group[1].replica.saved.may_lack_durable
    group[0].up = False
    group.rejoin(2)
    group.elect(1)


def test_with_votes_of_all_the_longest_log_leads() -> None:
    """A power cut of all may leave each in that state: together they still know who has the most."""
    group = group_with_damage()
    group.rejoin(2)
    second = group[0].store.end_offset - 10
    for number in (0, 2):
        group[number].boots += 1
        group[number].disk = group[number].disk.after_losing_all_unsynced(group[number].boots)
    damage(group[0].disk, second)
    for number in (0, 2):
        group[number].open()
    group.live(4 * LONG_S)
    assert group.leaders == [0]


@pytest.mark.parametrize("others", [2, 3])
def test_of_five_three_others_elect_without_it_and_two_do_not_elect_with_it(others: int) -> None:
    group = group_with_damage(5)
    group[0].up = False
    if others == 3:
        group.rejoin(4)
    group.live(3 * LONG_S)
    assert bool(group.leaders) is (others == 3)
