"""A sync fails once, as Linux reports it: once, and the pages are clean from then on, readable, and not on the disk.

Judged by the platter: what counts as durable must be there.
"""

from __future__ import annotations

import errno

import pytest

from brokerd.replica.in_sync import SendVerdict
from brokerd.store import DiskFullError, FlushFailedError, TailDoubt
from tests.brokerd.quorum_group import LONG_S, TIMES, Node, QuorumGroup
from tests.brokerd.replica_members import group as leader_and_follower
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, ROOT, bodies, fill, message, new_store, open_store, read_all

ACKNOWLEDGED = b"acknowledged " + b"." * 700


def fail_one_sync(disk: MemoryDisk, below: str = COMMIT_LOG) -> None:
    """Of a file in that directory."""

    def fail(number: int, name: str) -> int | None:
        if name != "sync" or below not in disk.log[-1]:
            return None
        disk.fail = lambda number, name: None
        return errno.EIO

    disk.fail = fail


def log_bytes(disk: MemoryDisk, end: int, *, platter: bool) -> bytes:
    data = b""
    for base in range(0, end, FILE_BYTES):
        path = f"{COMMIT_LOG}/{base:020d}"
        size = min(FILE_BYTES, end - base)
        data += disk.on_platter(path, 0, size) if platter else bytes(disk.names[path].data[:size])
    return data


def group_with_a_failed_sync() -> QuorumGroup:
    """Replica 2 is away; replica 1 has fetched a message, and could not sync it."""
    group = QuorumGroup.led()
    group.isolate(2)
    group[0].append(ACKNOWLEDGED)
    group[0].flush()
    fail_one_sync(group[1].disk)
    with pytest.raises(FlushFailedError):
        group[1].pull()
    return group


def acknowledged_by(group: QuorumGroup, node: Node) -> None:
    node.pull()
    node.pull()
    assert group[0].replica.verdict(group[0].store.end_offset) is SendVerdict.SEND_OK


def test_what_a_restarted_store_calls_durable_is_on_the_platter() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30)
    fail_one_sync(disk)
    with pytest.raises(FlushFailedError):
        store.flush()
    disk = disk.after_kill()
    restarted = open_store(disk)
    assert restarted.durable_offset == restarted.end_offset
    assert log_bytes(disk, restarted.end_offset, platter=True) == log_bytes(disk, restarted.end_offset, platter=False)
    found = bodies(restarted)
    assert len(found) == 30
    assert bodies(open_store(disk.after_losing_all_unsynced())) == found


def test_a_store_that_cannot_be_synced_when_it_opens_does_not_open() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    disk = disk.after_kill()
    fail_one_sync(disk)
    with pytest.raises(FlushFailedError):
        new_store(disk).open()
    assert open_store(disk.after_kill()).doubts == {TailDoubt.SYNC_FAILED}


def test_a_log_that_is_begun_again_is_in_no_doubt_for_that() -> None:
    """It was taken for one whose machine had gone down: after the next start its replica, level by then, had no full vote."""
    store = open_store(MemoryDisk())
    fill(store, 4)
    store.start_over(8 * FILE_BYTES)
    assert store.doubts == frozenset()


@pytest.mark.parametrize(("where", "doubts"), [("checkpoint", set()), (COMMIT_LOG, {TailDoubt.SYNC_FAILED})])
def test_a_truncation_leaves_the_log_in_doubt_only_if_it_failed_when_it_had_reached_the_log(
    where: str, doubts: set[TailDoubt]
) -> None:
    """A replica in doubt has no full vote: with another one that had a new disk two of three elected no one."""
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    store.flush_consume_queues()

    def fail(number: int, name: str) -> int | None:
        return errno.EIO if name in ("pwrite", "ftruncate", "unlink") and where in disk.log[-1] else None

    disk.fail = fail
    with pytest.raises(FlushFailedError):
        store._truncate(store.min_physical_offset)
    disk = disk.after_kill()
    assert open_store(disk).doubts == doubts
    assert len(bodies(open_store(disk.after_kill()))) == 4


def test_pages_that_were_dropped_are_missed_by_recovery_and_nothing_else_is() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    store.flush()
    durable = bodies(store)
    fill(store, 4, first=4)
    fail_one_sync(disk)
    with pytest.raises(FlushFailedError):
        store.flush()
    disk = disk.after_kill()
    for inode in disk.names.values():
        inode.drop_clean_pages()
    store = open_store(disk)
    assert bodies(store)[:4] == durable
    assert TailDoubt.SYNC_FAILED in store.doubts


def test_an_acknowledged_message_outlives_a_failed_sync_a_restart_and_a_power_cut() -> None:
    group = group_with_a_failed_sync()
    group[1].restart()
    acknowledged_by(group, group[1])
    for number in range(3):  # a second of traffic, and its checkpoint
        group[0].append(b"later %d" % number)
        group[0].flush()
        group[1].pull()
        group[1].pull()
    group[1].store.flush_consume_queues()
    group[0].up = False
    group[1].lose_power()
    group.rejoin(2)
    group.elect(1)
    group.level()
    for node in (group[1], group[2]):
        assert ACKNOWLEDGED in bodies(node.store)


def test_after_a_failed_sync_a_replica_votes_as_one_that_may_have_lost_its_tail_until_it_has_caught_up() -> None:
    group = group_with_a_failed_sync()
    group[1].restart()
    assert group[1].replica.saved.log_may_be_incomplete
    group[1].restart()
    assert group[1].replica.saved.log_may_be_incomplete
    acknowledged_by(group, group[1])
    assert not group[1].replica.saved.log_may_be_incomplete


def test_two_of_three_of_which_one_failed_to_sync_elect_no_one_at_first() -> None:
    group = group_with_a_failed_sync()
    group[0].up = False
    group[1].restart()
    group.rejoin(2)
    group.live(3 * LONG_S)
    assert group.leaders == []


def test_with_sync_flush_trusting_the_log_after_a_while_loses_nothing_that_counted() -> None:
    """What the failed sync did not cover was never acknowledged here (docs/guarantees.md, "An uncertain log")."""
    group = QuorumGroup.led()
    group.isolate(2)
    group[0].append(ACKNOWLEDGED)
    group[0].flush()
    acknowledged_by(group, group[1])
    group[0].append(b"fetched, and not synced")
    group[0].flush()
    fail_one_sync(group[1].disk)
    with pytest.raises(FlushFailedError):
        group[1].pull()
    group[0].up = False
    group[1].restart()
    group[1].lose_power()
    group.rejoin(2)
    group.live(TIMES.doubt + 4 * LONG_S)
    assert group.leaders == [1]
    group.level()
    assert all(ACKNOWLEDGED in bodies(group[number].store) for number in (1, 2))


def test_the_store_forgets_what_the_epoch_file_has_noted() -> None:
    group = group_with_a_failed_sync()
    assert f"{ROOT}/log.uncertain" in group[1].disk.names
    group[1].restart()
    assert group[1].store.doubts == frozenset()
    assert f"{ROOT}/log.uncertain" not in group[1].disk.names


def test_where_leaders_are_assigned_a_failed_sync_is_noted_until_the_replica_has_caught_up() -> None:
    leader, follower = leader_and_follower()
    leader.send()
    fail_one_sync(follower.disk)
    with pytest.raises(FlushFailedError):
        follower.pull_from(leader)
    follower.restart()
    assert follower.replica.saved.log_may_be_incomplete
    follower.pull_from(leader)
    follower.pull_from(leader)
    assert not follower.replica.saved.log_may_be_incomplete


def test_entries_whose_sync_failed_are_written_again_with_the_next() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 20)
    fail_one_sync(disk, f"{ROOT}/consumequeue")
    with pytest.raises(OSError, match="Input/output"):
        store.flush_consume_queues()
    store.append([message(b"one more")])
    store.flush_consume_queues()
    expected, written = read_all(store), disk.content(f"{ROOT}/consumequeue")
    left = disk.after_losing_all_unsynced()
    assert left.content(f"{ROOT}/consumequeue") == written
    assert read_all(open_store(left)) == expected


def test_a_vote_that_a_killed_process_had_not_made_durable_is_so_once_it_is_read() -> None:
    """Killed between the rename and the sync of the directory, it would else see a vote that a power cut takes back."""
    group = QuorumGroup.of(3)
    node = group[1]
    disk = node.disk
    synced = dict(disk.synced_names)
    node.replica.saw_epoch(7, None)
    disk.synced_names.clear()
    disk.synced_names.update(synced)  # as if it had died there
    node.restart()
    assert node.replica.epoch == 7
    node.disk = node.disk.after_losing_all_unsynced()
    node.open()
    assert node.replica.epoch == 7


def test_a_replica_that_lacks_descriptors_while_it_truncates_goes_on_without_a_restart_and_keeps_its_vote() -> None:
    group = QuorumGroup.led()
    old = group[0]
    group.isolate(0)
    for number in range(40):
        old.append(b"%d: no one has it" % number + b"." * 300)
    old.flush()
    before = old.log
    group.elect(1)
    group.rejoin(0)
    old.replica.saw_epoch(2, "r1")
    assert old.store.end_offset > 2 * FILE_BYTES
    old.disk.fail = lambda number, name: (
        errno.EMFILE if name == "sync_directory" and COMMIT_LOG in old.disk.log[-1] else None
    )
    with pytest.raises(DiskFullError):
        old.pull()
    assert old.store.wants_reopening
    old.disk.fail = lambda number, name: None
    old.replica.reopen_store()
    assert old.store.end_offset < before[1]
    assert old.replica.epochs.last_epoch == 1
    group.level()
    assert old.log == group[1].log
    assert old.store.doubts == frozenset()
    assert old.replica.saved.joined
