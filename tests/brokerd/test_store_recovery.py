"""Recovery: a prefix of what was written, whatever happened to the files; and nothing acknowledged is cut silently."""

from __future__ import annotations

from random import Random

import pytest

from brokerd.store import (
    CONSUME_QUEUE_ENTRY_BYTES,
    AppendResult,
    MessageStore,
    RecordDamagedError,
    RecoveryReport,
    StoreDamagedError,
    StoreFormatError,
    StoreState,
)
from mqwire.codes import MessageSysFlag
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.memory_disk import Inode, MemoryDisk
from tests.sim.store_harness import (
    COMMIT_LOG,
    FILE_BYTES,
    ROOT,
    bodies,
    fill,
    message,
    new_store,
    open_store,
    read_all,
    read_queue,
)

CONSUME_QUEUE = f"{ROOT}/consumequeue"
FIRST_FILE = f"{COMMIT_LOG}/{0:020d}"


def mixed(store: MessageStore, rounds: int = 6) -> list[AppendResult]:
    """A bit of everything that dispatch treats in its own way."""
    results: list[AppendResult] = []
    for number in range(rounds):
        results += store.append(
            [
                message(b"plain %d" % number, queue_id=number % 3, tag="red"),
                message(b"half %d" % number, sys_flag=MessageSysFlag.TRANSACTION_PREPARED_TYPE),
                message(bytes(300 + number), topic="t" * 130, queue_id=1),
                message(b"later", topic=RMQ_SYS_SCHEDULE_TOPIC, properties=b"DELAY\x012\x02"),
            ]
        )
    return results


def reopened(disk: MemoryDisk, **changes: object) -> tuple[MessageStore, RecoveryReport]:
    store = new_store(disk, **changes)  # type: ignore[arg-type]  # passed on as they are
    return store, store.open()


def crashed(
    count: int = 12, *, marked: int = 0, flushed: bool = True, size_bytes: int = 200
) -> tuple[MemoryDisk, list[AppendResult]]:
    """A disk after a kill; the checkpoint knows the first `marked` messages to be durable."""
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, marked, size_bytes)
    store.flush_consume_queues()
    results += fill(store, count - marked, size_bytes, first=marked)
    if flushed:
        store.flush()
    return disk.after_kill(), results


def test_a_kill_loses_nothing_that_was_appended() -> None:
    disk, results = crashed(50)
    store, report = reopened(disk)
    assert not report.clean_shutdown
    assert report.end_offset == store.durable_offset == results[-1].physical_offset + results[-1].size_bytes
    assert len(bodies(store)) == 50
    fill(store, 10, first=50)
    assert len(bodies(store)) == 60


def test_recovery_begins_at_the_checkpoint_not_at_the_first_record() -> None:
    disk, results = crashed(60, marked=50)
    store, report = reopened(disk)
    assert report.scanned_from == results[49].physical_offset
    assert report.records_scanned == 11
    assert not report.consume_queue_rebuilt
    assert len(bodies(store)) == 60


def test_a_clean_and_an_unclean_stop_recover_to_the_same_store() -> None:
    left = []
    for clean in (True, False):
        disk = MemoryDisk()
        store = open_store(disk)
        mixed(store, 20)
        store.flush()
        store.close(clean=clean)
        store = open_store(disk)
        messages = read_all(store)
        store.close()
        left.append((disk.content(COMMIT_LOG), disk.content(CONSUME_QUEUE), messages))
    assert left[0] == left[1]


def test_recovering_twice_changes_nothing() -> None:
    disk, _ = crashed(40, marked=20)
    path = sorted(disk.content(COMMIT_LOG))[-1]
    disk.names[path].data[3000:3100] = b"torn" * 25
    contents = []
    for _ in range(3):
        disk = disk.after_kill()
        store, report = reopened(disk)
        assert not report.damage
        store.close(clean=False)
        contents.append({name: data for name, data in disk.content().items() if not name.endswith("/checkpoint")})
    assert contents[0] == contents[1] == contents[2]
    assert report.truncated is None


@pytest.mark.parametrize("what", ["directory", "queue", "file", "zeros", "directory and checkpoint"])
def test_consume_queues_that_are_lost_come_back_byte_for_byte(what: str) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    mixed(store, 60)
    store.close()
    before = disk.content(CONSUME_QUEUE)
    a_queue = f"{CONSUME_QUEUE}/{'t' * 130}/1"
    if what.startswith("directory"):
        disk.remove_tree(CONSUME_QUEUE)
    elif what == "queue":
        disk.remove_tree(a_queue)
    elif what == "file":
        del disk.names[f"{a_queue}/{320:020d}"]
    else:
        disk.names[f"{a_queue}/{960:020d}"].data[:] = bytes(320)
    if what.endswith("checkpoint"):
        del disk.names[f"{ROOT}/checkpoint"]
    _, report = reopened(disk)
    assert report.consume_queue_rebuilt
    assert disk.content(CONSUME_QUEUE) == before


def test_queues_that_end_before_the_log_begins_go_on_with_its_first_record() -> None:
    """As when a power cut brings back the ConsumeQueues of a log that began again further on."""
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 10, queues=1)
    store.flush_consume_queues()
    old = {path: bytes(data) for path, data in disk.content(CONSUME_QUEUE).items()}
    results += fill(store, 50, queues=1, first=10)
    store.close()
    for path in sorted(disk.content(COMMIT_LOG))[:2]:
        del disk.names[path]
    del disk.names[f"{ROOT}/checkpoint"]
    for path in disk.content(CONSUME_QUEUE):
        if path not in old:
            del disk.names[path]
        else:
            disk.names[path].data[:] = old[path]
    store, report = reopened(disk)
    first = next(place for place, result in enumerate(results) if result.physical_offset >= 2 * FILE_BYTES)
    assert first > 11, "records that neither the old queues nor the log know"
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, 60)
    assert not report.anomalies
    assert [one.queue_offset for one in read_queue(store, "orders", 0)] == list(range(first, 60))


def test_a_queue_of_which_a_power_cut_left_an_empty_file_begins_with_the_logs_first_record() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 60, queues=1)
    store.close()
    for path in sorted(disk.content(COMMIT_LOG))[:2]:
        del disk.names[path]
    del disk.names[f"{ROOT}/checkpoint"]
    first = next(place for place, result in enumerate(results) if result.physical_offset >= 2 * FILE_BYTES)
    base = first * 20 // 320 * 320
    assert base < first * 20, "the file begins in front of the first record's entry"
    for path in disk.content(CONSUME_QUEUE):
        if path != f"{CONSUME_QUEUE}/orders/0/{base:020d}":
            del disk.names[path]
        else:
            disk.names[path].data[:] = bytes(320)
    store, report = reopened(disk)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (first, 60)
    assert not report.anomalies
    assert [one.queue_offset for one in read_queue(store, "orders", 0)] == list(range(first, 60))


def test_entries_past_the_logs_end_are_removed() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 40, queues=1)
    store._queues.write(0, 0, 0)  # entries reach their files before the log is synced, then the power fails
    disk = disk.after_kill()
    disk.truncate(f"{COMMIT_LOG}/{2 * FILE_BYTES:020d}", 0)
    for path in sorted(disk.content(COMMIT_LOG))[3:]:
        del disk.names[path]
    store, report = reopened(disk)
    kept = sum(result.physical_offset < 2 * FILE_BYTES for result in results)
    last = results[kept - 1]
    assert report.end_offset == last.physical_offset + last.size_bytes  # the BLANK after it is gone as well
    assert store.max_offset("orders", 0) == kept
    store.close()
    entries = b"".join(disk.content(CONSUME_QUEUE).values())
    assert len(entries.rstrip(b"\0")) <= kept * 20


def test_a_log_cut_at_any_byte_recovers_to_the_records_in_front() -> None:
    disk, results = crashed(5, size_bytes=10)
    image = bytes(disk.names[FIRST_FILE].data)
    ends = [0, *(result.physical_offset + result.size_bytes for result in results)]
    for size in range(1, ends[-1]):
        disk.names[FIRST_FILE] = Inode()
        disk.names[FIRST_FILE].data[:] = image[:size]
        # without a durable mark above it: the checkpoint is the one of the empty store
        store, report = reopened(disk.after_kill())
        expected = max(end for end in ends if end <= size)
        assert (report.damage, report.end_offset) == ([], expected), size
        assert len(bodies(store)) == ends.index(expected)
        assert len(disk.names[FIRST_FILE].data) == FILE_BYTES
        assert bytes(disk.names[FIRST_FILE].data) == image[:expected].ljust(FILE_BYTES, b"\0")
        store.close(clean=False)
        disk.remove_tree(CONSUME_QUEUE)
        restore_first_checkpoint(disk)


def restore_first_checkpoint(disk: MemoryDisk) -> None:
    """The checkpoint as it is before the first message."""
    fresh = MemoryDisk()
    open_store(fresh).close(clean=False)
    disk.names[f"{ROOT}/checkpoint"] = fresh.names[f"{ROOT}/checkpoint"]


def test_a_log_that_was_durable_and_is_cut_anywhere_is_damaged_not_cut_further() -> None:
    disk, results = crashed(9, marked=9)
    inode = disk.names[FIRST_FILE]
    image = bytes(inode.data)
    for size in range(1, results[-1].physical_offset + results[-1].size_bytes, 13):
        inode.data[:] = image[:size]
        store, report = reopened(disk.after_kill())
        assert report.damage, size
        assert store.state is StoreState.READ_ONLY
        assert bytes(inode.data) == image[:size]
        store.close()
        assert bytes(inode.data) == image[:size]


def test_any_flipped_bit_in_a_synced_record_is_found_and_never_served() -> None:
    disk, results = crashed(6, size_bytes=30)
    random = Random(1)
    image = bytes(disk.names[FIRST_FILE].data)
    end = results[-1].physical_offset + results[-1].size_bytes
    whole = [image[each.physical_offset : each.physical_offset + each.size_bytes] for each in results]
    for position in range(end):
        disk.names[FIRST_FILE].data[:] = image
        disk.flip_bit(FIRST_FILE, position, random.randrange(8))
        store, report = reopened(disk.after_kill())
        hit = next(i for i, each in enumerate(results) if position < each.physical_offset + each.size_bytes)
        served = [store.message_at(each.physical_offset) for each in results]
        if disk.names[FIRST_FILE].data[end - 1]:
            begin, size_bytes = results[hit].physical_offset, results[hit].size_bytes
            assert [(each.begin_offset, each.end_offset) for each in report.damage] == [(begin, begin + size_bytes)]
        else:  # the last byte is gone: it can't be distinguished from a write that ended early, and was never synced
            assert report.truncated is not None
        assert served == [*whole[:hit], None, *whole[hit + 1 :]]
        store.close(clean=False)
        disk.remove_tree(CONSUME_QUEUE)
        restore_first_checkpoint(disk)


def test_a_flipped_bit_below_the_checkpoint_is_found_when_it_is_read() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 6, queues=1)
    store.close()
    for position in range(results[2].physical_offset, results[3].physical_offset):
        disk.flip_bit(FIRST_FILE, position)
        store, report = reopened(disk)
        assert report.records_scanned == 1
        assert store.get_messages("orders", 0, 0, 32, 10_000).count == 2
        with pytest.raises(RecordDamagedError) as caught:
            store.get_messages("orders", 0, 2, 32, 10_000)
        assert (caught.value.queue_offset, caught.value.physical_offset) == (2, results[2].physical_offset)
        assert store.get_messages("orders", 0, 3, 32, 10_000).count == 3
        store.close()
        disk.flip_bit(FIRST_FILE, position)


def test_a_damaged_store_serves_what_is_whole_and_takes_nothing() -> None:
    disk, results = crashed(60, marked=60)
    disk.flip_bit(FIRST_FILE, results[4].physical_offset + 100)
    disk.remove_tree(CONSUME_QUEUE)  # so that everything is read again
    before = disk.content(COMMIT_LOG)
    store, report = reopened(disk)
    assert [(each.begin_offset, each.end_offset) for each in report.damage] == [
        (results[4].physical_offset, results[5].physical_offset)
    ]
    with pytest.raises(StoreDamagedError):
        store.append([message()])
    with pytest.raises(StoreDamagedError):
        store.delete_topic("orders")
    assert isinstance(store.refusal, StoreDamagedError)
    assert len(store.get_messages("orders", 0, 2, 32, 100_000).chunks) > 0
    with pytest.raises(RecordDamagedError):
        store.get_messages("orders", 1, 1, 32, 100_000)  # the damaged one
    store.close()
    assert disk.content(COMMIT_LOG) == before
    assert reopened(disk)[1].damage


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_flipped_bit_anywhere_in_the_last_record_is_damage_and_never_cut_off(*, power_fails: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.append([message(bytes(range(1, 256)), queue_id=0)])
    store.flush_consume_queues()  # so that there is a checkpoint
    (last,) = store.append([message(bytes(range(1, 256)), queue_id=0)])
    store.flush()
    begin, end = last.physical_offset, last.physical_offset + last.size_bytes
    image = bytes(disk.names[FIRST_FILE].data)
    for offset in range(begin, end - 1):
        left = disk.after_losing_all_unsynced() if power_fails else disk.after_kill()
        left.names[FIRST_FILE].data[:] = image
        left.flip_bit(FIRST_FILE, offset)
        store, report = reopened(left)
        assert [one.begin_offset for one in report.damage] == [begin], f"byte {offset - begin}"
        assert report.truncated is None


def test_a_write_that_a_kill_ended_early_is_a_torn_tail_wherever_it_ended() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 1)
    store.flush_consume_queues()
    (last,) = store.append([message(bytes(range(1, 256)), queue_id=0)])
    begin, end = last.physical_offset, last.physical_offset + last.size_bytes
    image = bytes(disk.names[FIRST_FILE].data)
    for written_end in range(begin + 1, end):
        left = disk.after_kill()
        left.names[FIRST_FILE].data[:] = image[:written_end] + bytes(len(image) - written_end)
        store, report = reopened(left)
        assert not report.damage, f"{written_end - begin} bytes were written"
        assert store.end_offset == begin


def test_a_missing_file_in_the_middle_is_damage() -> None:
    disk, _ = crashed(60, marked=30)
    del disk.names[f"{COMMIT_LOG}/{FILE_BYTES:020d}"]
    store, report = reopened(disk)
    assert report.damage[0].begin_offset == FILE_BYTES
    assert store.state is StoreState.READ_ONLY


def test_a_log_whose_files_are_gone_is_damage_not_an_empty_store() -> None:
    disk, _ = crashed(5, marked=5)
    disk.remove_tree(COMMIT_LOG)
    assert reopened(disk)[1].damage


def hole(disk: MemoryDisk, results: list[AppendResult], at: int) -> None:
    """Zero one record, as when its block was never written while later ones were."""
    begin = results[at].physical_offset
    disk.names[FIRST_FILE].data[begin : begin + results[at].size_bytes] = bytes(results[at].size_bytes)


def test_after_a_power_cut_a_tail_with_holes_is_cut_and_what_was_whole_in_it_saved() -> None:
    disk, results = crashed(12, marked=4, flushed=False)
    hole(disk, results, 8)
    tail = bytes(disk.names[FIRST_FILE].data[results[8].physical_offset : FILE_BYTES]).rstrip(b"\0")
    disk._boot += 1
    store, report = reopened(disk)
    assert not report.damage
    assert report.truncated is not None
    assert report.truncated.begin_offset == report.end_offset == results[8].physical_offset
    assert len(bodies(store)) == 8
    assert disk.content(f"{ROOT}/diverged") == {report.truncated_saved_as: tail}
    assert bytes(disk.names[FIRST_FILE].data[results[8].physical_offset :]).strip(b"\0") == b""


def test_without_a_power_cut_a_hole_is_damage() -> None:
    disk, results = crashed(12, marked=4)
    hole(disk, results, 8)
    assert reopened(disk)[1].damage


def test_two_boots_whose_names_no_one_can_read_may_have_a_power_cut_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryDisk, "boot_id", lambda self: "")
    disk, results = crashed(12, marked=4)
    hole(disk, results, 8)
    _, report = reopened(disk)
    assert not report.damage
    assert report.truncated is not None


def test_below_the_durable_mark_a_hole_is_damage_even_after_a_power_cut() -> None:
    disk, results = crashed(12, marked=12)
    hole(disk, results, 8)
    disk.remove_tree(CONSUME_QUEUE)
    disk._boot += 1
    assert reopened(disk)[1].damage


@pytest.mark.parametrize(("policy", "cut"), [("always", True), ("never", False)])
def test_the_operator_can_decide_about_holes(policy: str, cut: bool) -> None:
    disk, results = crashed(12, marked=4)
    hole(disk, results, 8)
    disk._boot += policy == "never"
    _, report = reopened(disk, truncate_unproven_tail=policy)
    assert (report.truncated is not None) == cut
    assert bool(report.damage) != cut


def test_bytes_past_the_end_never_come_back_into_a_later_log() -> None:
    # An old record stands exactly where a later append will end.
    disk, results = crashed(12, marked=4, flushed=False)
    hole(disk, results, 8)
    disk._boot += 1
    store, _ = reopened(disk)
    fill(store, 1, first=100)
    disk = disk.after_kill()
    store, report = reopened(disk)
    assert len(bodies(store)) == 9
    assert report.truncated is None


def test_a_file_created_ahead_is_no_end_of_the_log() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 12)
    store.flush()  # the active file is nearly full: the next is made
    assert len(disk.content(COMMIT_LOG)) == 2
    store, report = reopened(disk.after_kill())
    assert not report.damage
    fill(store, 40, first=12)
    assert len(bodies(store)) == 52


def test_a_wrong_consume_queue_entry_is_found_and_put_right() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 40)
    store.close()
    path = f"{CONSUME_QUEUE}/orders/1/{0:020d}"
    image = bytes(disk.names[path].data)
    for position in range(12 * 20):
        if position % 20 >= 12:
            continue  # the tags code says nothing of the record
        disk.flip_bit(path, position, position % 8)
        store = open_store(disk)
        assert len(read_all(store)["orders", 1]) == 13, position
        store.close()
        assert bytes(disk.names[path].data) == image, position


def test_deleted_topics_stay_deleted_and_their_numbers_are_not_given_again() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30)
    store.append([message(topic="other")])
    store.delete_topic("orders")
    assert store.topics() == {"other": [0]}
    disk.remove_tree(CONSUME_QUEUE)
    store.close(clean=False)
    store = open_store(disk)
    assert store.topics() == {"other": [0]}
    fill(store, 3, first=30)
    assert [each.queue_offset for each in read_all(store)["orders", 0]] == [10]
    assert store.min_offset("orders", 0) == 10
    store.delete_topic("orders")
    (result,) = store.append([message(queue_id=0)])
    assert result.queue_offset == 11
    store.close(clean=False)
    disk.remove_tree(CONSUME_QUEUE)
    assert len(read_all(open_store(disk))["orders", 0]) == 1


def test_an_interrupted_deletion_of_a_topic_is_finished() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30)
    store.flush_consume_queues()
    disk.die_at = disk.calls + 6  # the tombstone is written, the files are not removed
    with pytest.raises(BaseException):  # noqa: B017, PT011  # Died is one on purpose
        store.delete_topic("orders")
    disk = disk.after_kill()
    assert disk.content(CONSUME_QUEUE)
    store = open_store(disk)
    assert store.topics() == {}
    assert not disk.content(CONSUME_QUEUE)


def test_unreadable_tombstones_refuse_to_start() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 3)
    store.delete_topic("orders")
    store.close()
    disk.names[f"{ROOT}/topicTombstones.json"].data[:] = b"{"
    with pytest.raises(StoreFormatError, match="topicTombstones"):
        new_store(disk).open()


def test_a_topic_that_apache_created_again_keeps_its_later_messages() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 10, queues=1)
    queue = store._queues.queues["orders", 0]
    queue.next_offset = queue.tail_offset = 0  # as after Apache's deletion
    queue.tail.clear()
    fill(store, 4, queues=1, first=10)
    disk = disk.after_kill()
    disk.remove_tree(CONSUME_QUEUE)
    store, report = reopened(disk)
    assert report.anomalies
    assert [each.body[:6] for each in read_all(store)["orders", 0]] == [b"%06d" % number for number in range(10, 14)]


def test_no_file_of_a_queue_outlives_the_numbers_that_a_truncation_took_back() -> None:
    """A later truncation found it, and took the queue for one that begins there: its messages were hidden."""
    store = open_store(
        MemoryDisk(), mapped_file_size_consume_queue_bytes=CONSUME_QUEUE_ENTRY_BYTES, unwritten_entries_max=2
    )
    sent = [b"0", b"1", b"2"]
    store.append([message(body, topic="early") for body in sent])
    first_end = fill(store, 16)[-1].physical_offset
    assert first_end > FILE_BYTES
    (last,) = store.append([message(b"3", topic="early")])
    store.append([message(b"gone", topic="early"), message(b"gone", topic="early")])
    store.delete_topic("early")
    store.append([message(b"gone", topic="early")])  # its file is named by number 6
    store.truncate(last.physical_offset + last.size_bytes)  # so it was not deleted
    assert [each.body for each in read_queue(store, "early", 0)] == [*sent, b"3"]
    store.truncate(last.physical_offset)
    assert [each.body for each in read_queue(store, "early", 0)] == sent
