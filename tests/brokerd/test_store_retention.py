"""What retention deletes, and what it never does."""

from __future__ import annotations

import datetime
import errno
import json
from typing import Any

import pytest

from brokerd.store import (
    CONSUME_QUEUE_ENTRY_BYTES,
    AppendResult,
    GetMessageStatus,
    LogDamagedError,
    MessageStore,
    TailDoubt,
)
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import (
    COMMIT_LOG,
    FILE_BYTES,
    ROOT,
    ManualClock,
    bodies,
    eio_at,
    fill,
    message,
    new_store,
    open_store,
    read_all,
)

HOUR_MS = 3_600_000
FOUR_IN_THE_MORNING = int(datetime.datetime(2026, 3, 10, 4, 30).timestamp() * 1000)  # local time, as deleteWhen
NOON = FOUR_IN_THE_MORNING + 8 * HOUR_MS


def aged(
    disk: MemoryDisk, *, now_ms: int, age_hours: int, **changes: object
) -> tuple[MessageStore, ManualClock, list[AppendResult]]:
    """A store of six files or so that were written `age_hours` ago."""
    clock = ManualClock(now_ms - age_hours * HOUR_MS)
    store = open_store(disk, clock, **changes)  # type: ignore[arg-type]  # passed on as they are
    results = fill(store, 60, queues=2)
    store.flush_consume_queues()
    clock.time_ms = now_ms
    return store, clock, results


def test_files_older_than_file_reserved_time_go_at_the_hour_of_delete_when() -> None:
    disk = MemoryDisk()
    store, clock, results = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    files = len(disk.listdir(COMMIT_LOG))
    report = store.delete_expired(clock.time_ms)
    assert report.deleted_commit_log_files == tuple(range(0, (files - 1) * FILE_BYTES, FILE_BYTES))
    assert store.min_physical_offset == report.min_offset == (files - 1) * FILE_BYTES
    kept = [each for each in results if each.physical_offset >= store.min_physical_offset]
    assert bodies(store) == [b"%06d" % number + b"." * 194 for number in range(60 - len(kept), 60)]
    assert store.earliest_store_time_ms == FOUR_IN_THE_MORNING - 73 * HOUR_MS


def test_what_retention_deleted_is_not_taken_for_damage() -> None:
    disk = MemoryDisk()
    store, clock, results = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.delete_expired(clock.time_ms)
    with pytest.raises(LogDamagedError):
        store.read_raw(results[0].physical_offset, 1000)
    assert store.damage_seen is None
    assert store.locate_damage(results[0].physical_offset) is None, "a reader met it before it was deleted"


@pytest.mark.parametrize(
    ("now_ms", "age_hours", "used_ratio", "deletes"),
    [
        (NOON, 73, 0.5, False),  # not the hour
        (NOON, 73, 0.8, True),  # but the disk is fuller than diskMaxUsedSpaceRatio
        (FOUR_IN_THE_MORNING, 71, 0.5, False),  # not old enough
        (NOON, 71, 0.89, False),  # nor by need: unexpired messages are no one's to delete
        (FOUR_IN_THE_MORNING, 73, 0.99, True),
    ],
)
def test_hour_age_and_usage_decide(now_ms: int, age_hours: int, used_ratio: float, deletes: bool) -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=now_ms, age_hours=age_hours)
    disk.used_ratio = used_ratio
    assert bool(store.delete_expired(clock.time_ms).deleted_commit_log_files) == deletes


def test_forced_cleaning_deletes_one_unexpired_file_at_a_time_and_nothing_that_is_still_wanted() -> None:
    disk = MemoryDisk()
    store, clock, results = aged(disk, now_ms=NOON, age_hours=1, clean_file_forcibly=True)
    disk.used_ratio = 0.86
    wanted = next(each.physical_offset for each in results if each.physical_offset > FILE_BYTES)
    deleted = [store.delete_expired(clock.time_ms, keep_from_offset=wanted).deleted_commit_log_files for _ in range(3)]
    assert deleted == [(0,), (), ()]
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files == (FILE_BYTES,)


def test_what_waits_for_its_time_does_not_expire_and_yields_to_forced_cleaning_alone() -> None:
    disk = MemoryDisk()
    store, clock, results = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73, clean_file_forcibly=True)
    waiting = next(each.physical_offset for each in results if each.physical_offset > FILE_BYTES)
    deleted = [store.delete_expired(clock.time_ms, waiting_from=waiting).deleted_commit_log_files for _ in range(2)]
    assert deleted == [(0,), ()]
    disk.used_ratio = 0.86
    assert store.delete_expired(clock.time_ms, waiting_from=waiting).deleted_commit_log_files == (FILE_BYTES,)


@pytest.mark.parametrize("power_cut", [False, True])
def test_whatever_of_a_round_fails_leaves_no_hole_in_the_log(power_cut: bool) -> None:
    for failing in range(100):
        disk = MemoryDisk()
        store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
        disk.fail = eio_at(disk.calls + failing)
        try:
            store.delete_expired(clock.time_ms)
        except OSError:
            disk.fail = lambda number, name: None
        else:
            assert failing > 5, "nothing failed"
            return
        store.delete_expired(clock.time_ms)
        left = bodies(store)
        store = open_store(disk.after_power_cut(failing) if power_cut else disk.after_kill(), clock)
        assert bodies(store)[-len(left) :] == left
    pytest.fail("the round had no end")


def test_a_file_that_someone_else_removed_holds_nothing_up() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    files = disk.listdir(COMMIT_LOG)
    disk.unlink(f"{COMMIT_LOG}/{files[0]}")
    store.delete_expired(clock.time_ms)
    assert disk.listdir(COMMIT_LOG) == files[-1:]


def test_the_active_file_stays_whatever_happens() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=1000)
    disk.used_ratio = 1.0
    for _ in range(3):
        store.delete_expired(clock.time_ms)
    assert len(disk.listdir(COMMIT_LOG)) == 1
    assert bodies(store)


def test_files_that_are_not_synced_stay() -> None:
    disk = MemoryDisk()
    clock = ManualClock(FOUR_IN_THE_MORNING - 100 * HOUR_MS)
    store = open_store(disk, clock)
    fill(store, 60)
    assert not store.delete_expired(FOUR_IN_THE_MORNING).deleted_commit_log_files


def test_files_that_are_not_confirmed_to_their_end_stay() -> None:
    """A leader must be able to give its followers what becomes confirmed while it leads."""
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.confirm_offset = 2 * FILE_BYTES - 1
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files == (0,)
    store.confirm_offset = 2 * FILE_BYTES
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files == (FILE_BYTES,)


def test_at_most_a_batch_of_files_goes_with_one_call() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73, delete_file_batch_max=2)
    assert len(store.delete_expired(clock.time_ms).deleted_commit_log_files) == 2


def test_queues_move_their_min_offsets_and_keep_their_numbers() -> None:
    disk = MemoryDisk()
    store, clock, results = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.delete_expired(clock.time_ms)
    first: dict[int, int] = {}
    for number, each in enumerate(results):
        if each.physical_offset >= store.min_physical_offset:
            first.setdefault(number % 2, each.queue_offset)
    for queue_id in (0, 1):
        assert store.min_offset("orders", queue_id) == first[queue_id]
        too_small = store.get_messages("orders", queue_id, 0, 32, 100_000)
        assert (too_small.status, too_small.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, first[queue_id])
    assert store.max_offset("orders", 0) == 30
    store.close()
    store = open_store(disk)
    assert store.min_offset("orders", 0) == first[0]
    assert store.max_offset("orders", 0) == 30


def test_consume_queue_files_go_when_all_their_messages_are_gone_but_the_last_stays() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    later_ms = FOUR_IN_THE_MORNING + 96 * HOUR_MS
    store.append([message(bytes(1000), topic="other") for _ in range(10)])
    clock.time_ms = later_ms
    store.append([message(bytes(1000), topic="other") for _ in range(10)])
    store.flush_consume_queues()
    assert len(disk.content(f"{ROOT}/consumequeue/orders/1")) == 2
    report = store.delete_expired(later_ms)
    assert report.deleted_consume_queue_files == 2  # one of each queue of orders
    assert list(disk.content(f"{ROOT}/consumequeue/orders/1")) == [f"{ROOT}/consumequeue/orders/1/{320:020d}"]
    store.close(clean=False)
    store = open_store(disk)
    assert (store.min_offset("orders", 1), store.max_offset("orders", 1)) == (30, 30)
    (result,) = store.append([message(queue_id=1)])
    assert result.queue_offset == 30


def test_rebuilding_queues_after_retention_gives_the_same_messages() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.delete_expired(clock.time_ms)
    store.close()
    before = read_all(open_store(disk))
    disk = disk.after_kill()
    disk.remove_tree(f"{ROOT}/consumequeue")
    store = open_store(disk)
    assert read_all(store) == before
    store.close()
    assert read_all(open_store(disk)) == before


def test_tombstones_are_forgotten_when_their_records_are_gone() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.delete_topic("orders")
    store.append([message(bytes(1000), topic="other") for _ in range(10)])
    clock.time_ms += 96 * HOUR_MS
    store.append([message(bytes(1000), topic="other") for _ in range(10)])
    store.flush_consume_queues()
    store.delete_expired(clock.time_ms)
    assert json.loads(disk.content()[f"{ROOT}/topicTombstones.json"]) == {}
    assert store.topics() == {"other": [0]}


def test_a_queue_keeps_its_number_when_its_last_message_is_old_soon_after_it_came() -> None:
    """Its entry was in the broker's memory only; a restarted leader would give that number to another message."""
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store.append([message(bytes(1000), topic="rare")])
    store.append([message(bytes(1000), topic="other") for _ in range(10)])
    store.flush()
    clock.time_ms += 96 * HOUR_MS
    store.append([message(bytes(1000), topic="other") for _ in range(5)])
    store.flush()
    for _ in range(10):
        store.delete_expired(clock.time_ms)
    store = open_store(disk.after_kill(), clock)
    assert store.append([message(b"next", topic="rare")])[0].queue_offset == 1


def test_a_full_disk_gets_room_after_a_restart_though_nothing_more_can_be_written() -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    store = open_store(disk.after_kill(), clock)
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_store_opens_on_a_disk_without_a_free_byte_so_that_retention_makes_room(power_cut: bool) -> None:
    disk = MemoryDisk()
    store, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    fill(store, 3, first=60)
    store.flush()
    kept = bodies(store)
    disk = disk.after_power_cut(1) if power_cut else disk.after_kill()
    disk.capacity_bytes = 0
    store = open_store(disk, clock)
    assert bodies(store) == kept
    assert (TailDoubt.LOST_PAGE_CACHE in store.doubts) is power_cut
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files
    disk.capacity_bytes = None
    store.flush_consume_queues()
    kept = bodies(store)
    assert bodies(open_store(disk.after_kill(), clock)) == kept


def test_a_doubt_that_a_full_disk_has_no_room_for_comes_again_with_the_next_start() -> None:
    disk = MemoryDisk()
    _, clock, _ = aged(disk, now_ms=FOUR_IN_THE_MORNING, age_hours=73)
    disk = disk.after_power_cut(1)
    disk.fail = lambda number, name: errno.ENOSPC if "log.uncertain" in disk.log[-1] else None
    open_store(disk, clock)
    assert TailDoubt.LOST_PAGE_CACHE in open_store(disk.after_kill(), clock).doubts


def test_no_record_without_a_checksum_is_taken_before_the_checkpoint_says_so() -> None:
    """A start after that would call it damaged."""
    disk = MemoryDisk()
    fill(open_store(disk), 3)
    disk = disk.after_kill()
    disk.capacity_bytes = 0
    store = new_store(disk, append_record_crc=False)
    with pytest.raises(OSError, match="No space"):
        store.open()


def test_an_emptied_queue_keeps_its_number_though_its_next_file_was_not_synced() -> None:
    """The file in front of it is the last one that a power cut is sure to leave."""
    changes: dict[str, Any] = {"mapped_file_size_consume_queue_bytes": 2 * CONSUME_QUEUE_ENTRY_BYTES}
    for seed in range(20):
        disk, clock = MemoryDisk(), ManualClock(FOUR_IN_THE_MORNING - 73 * HOUR_MS)
        store = new_store(disk, clock, **changes)
        store.open()
        fill(store, 2, queues=1)
        store.append([message(b"." * 3500, queue_id=1), message(b"." * 3500, queue_id=1)])
        store.flush_consume_queues()
        store.append([message(b"lost")])
        store.write_consume_queues()
        clock.time_ms += 73 * HOUR_MS
        store.delete_expired(clock.now_ms())
        assert store.min_offset("orders", 0) == 2
        store = new_store(disk.after_power_cut(seed), clock, **changes)
        store.open()
        assert store.max_offset("orders", 0) >= 2, seed
