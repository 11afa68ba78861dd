"""What a replica keeps of what was cut from its log: counted, read by parts, deleted; and nothing is lost by looking."""

from __future__ import annotations

import errno
import os

import pytest

from brokerd.replica import diverged
from brokerd.replica.diverged import DivergedMessages
from brokerd.store import DiskFullError, log_copy
from brokerd.store.record import HEAD
from mqwire.codes import MessageSysFlag
from mqwire.message import MESSAGE_MAGIC, decode_records
from tests.brokerd.test_store_recovery import crashed, hole, reopened
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import FILE_BYTES, ROOT, fill, message, open_store

NOW_MS = 1_700_000_000_000


def saved(count: int = 30, size_bytes: int = 200) -> tuple[MemoryDisk, DivergedMessages, str]:
    """A cut of all but the first four of `count` messages, over several files of the log."""
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, count, size_bytes)
    kept = DivergedMessages(disk, ROOT)
    return disk, kept, kept.save(store, results[4].physical_offset, 3, NOW_MS)


def bodies_of(kept: DivergedMessages, name: str) -> list[bytes]:
    return [record.body[:6] for record in decode_records(kept.read(name, 0, 99).data)]


def test_a_cut_says_when_why_and_how_many_messages_of_which_topics() -> None:
    _, kept, name = saved()
    (file,) = kept.files()
    assert (file.name, file.reason, file.epoch, file.cut_at_ms) == (name, "diverged", 3, NOW_MS)
    assert (file.messages, file.topics) == (26, {"orders": 26})
    assert file.counted_bytes == file.size_bytes


@pytest.mark.parametrize(
    "within_bytes", [12, 100]
)  # a size of 0, the queue's number, or of the body's dots, 0x2e2e2e2e
def test_a_cut_that_begins_within_a_record_keeps_the_bytes_that_follow(within_bytes: int) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 3, 200)
    begin = results[0].physical_offset + within_bytes
    kept = DivergedMessages(disk, ROOT)
    kept.save(store, begin, 3, NOW_MS)
    (file,) = kept.files()
    assert file.size_bytes == store.end_offset - begin


@pytest.mark.parametrize("within_bytes", [12, 100])
def test_a_cut_that_begins_within_a_record_lists_the_whole_ones_of_all_files_behind_it(
    within_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_copy, "WINDOW_BYTES", 700)
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 30, 200)
    assert store.end_offset > 2 * FILE_BYTES
    kept = DivergedMessages(disk, ROOT)
    counts = bytes_read(disk, monkeypatch)
    name = kept.save(store, results[0].physical_offset + within_bytes, 3, NOW_MS)
    assert max(counts) <= 700, "no more is in memory at a time"
    assert bodies_of(kept, name) == [b"%06d" % number for number in range(1, 30)]


def test_a_damaged_record_in_a_cut_costs_no_other_one() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 30, 200)
    fd = disk.open(f"{ROOT}/commitlog/{0:020d}", os.O_RDWR)
    disk.pwrite(fd, b"rot", results[2].physical_offset + 120)
    disk.close(fd)
    kept = DivergedMessages(disk, ROOT)
    assert bodies_of(kept, kept.save(store, 0, 3, NOW_MS)) == [b"%06d" % n for n in range(30) if n != 2]
    assert store.damaged_from is None, "what is about to be truncated is not to be repaired"


def test_of_a_very_long_cut_the_beginning_is_kept_and_what_was_left_out_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diverged, "KEPT_MAX_BYTES", FILE_BYTES + 500)
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 30, 200)
    kept = DivergedMessages(disk, ROOT)
    name = kept.save(store, 0, 3, NOW_MS)
    (file,) = kept.files()
    assert (file.size_bytes, file.left_out_bytes) == (FILE_BYTES + 500, store.end_offset - FILE_BYTES - 500)
    whole = [one for one in results if one.physical_offset + one.size_bytes <= FILE_BYTES + 500]
    assert bodies_of(kept, name) == [b"%06d" % number for number in range(len(whole))]


@pytest.mark.parametrize("fails", ["at once", "half way"])
def test_where_a_disk_has_no_room_for_a_cut_no_part_of_it_stays(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30, 200)
    if fails == "at once":
        disk.used_ratio = 1.0
    else:
        monkeypatch.setattr(log_copy, "WINDOW_BYTES", 700)
        calls = disk.calls
        disk.fail = lambda number, name: errno.ENOSPC if name == "pwrite" and number > calls + 6 else None
    with pytest.raises(DiskFullError):
        DivergedMessages(disk, ROOT).save(store, 0, 3, NOW_MS)
    assert disk.content(f"{ROOT}/diverged") == {}


def test_a_cut_that_an_earlier_version_kept_without_the_rest_of_each_file_is_read() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30, 200)
    disk.make_directory(f"{ROOT}/diverged")
    name = f"3-{0:020d}-{store.end_offset:020d}-{NOW_MS}.log"
    fd = disk.open(f"{ROOT}/diverged/{name}", os.O_WRONLY | os.O_CREAT)
    disk.pwrite(fd, store.read_raw(0, 1 << 20), 0)
    disk.close(fd)
    kept = DivergedMessages(disk, ROOT)
    assert bodies_of(kept, name) == [b"%06d" % number for number in range(30)]
    assert kept.files()[0].left_out_bytes == 0


def test_a_cut_is_read_by_parts_each_message_once() -> None:
    _, kept, name = saved()
    bodies, position, size = [], 0, 1
    while position < size:
        found = kept.read(name, position, 7)
        records = decode_records(found.data)
        assert len(records) == len(found.positions) <= 7
        bodies += [record.body[:6] for record in records]
        position, size = found.next_position, found.size
    assert bodies == [b"%06d" % number for number in range(4, 30)]


def test_a_message_is_read_by_its_position_alone() -> None:
    _, kept, name = saved()
    third = kept.read(name, 0, 3).positions[2]
    found = kept.read(name, third, 1)
    assert found.positions == (third,)
    assert decode_records(found.data)[0].body.startswith(b"000006")


def test_a_large_cut_is_counted_a_part_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diverged, "_SCAN_RECORDS", 10)
    monkeypatch.setattr(diverged._Budget.__init__, "__defaults__", (diverged._SCAN_BYTES, 10))
    _, kept, _ = saved()
    counts = [kept.files()[0] for _ in range(3)]
    assert [file.messages for file in counts] == [10, 20, 26]
    assert [file.counted_bytes == file.size_bytes for file in counts] == [False, False, True]


def test_where_it_was_not_looked_through_yet_a_reader_is_told_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diverged._Budget.__init__, "__defaults__", (diverged._SCAN_BYTES, 10))
    _, kept, name = saved()
    last = DivergedMessages(kept._disk, ROOT)
    for _ in range(3):
        whole = last.read(name, 10**6, 1)
    answers = [kept.read(name, whole.size - 1, 1) for _ in range(3)]
    assert [answer.data for answer in answers] == [b""] * 3
    assert [answer.next_position == answer.size for answer in answers] == [False, False, True]


def many_saved(files: int) -> tuple[MemoryDisk, DivergedMessages, list[str]]:
    """Cuts of three messages each."""
    disk = MemoryDisk()
    store = open_store(disk)
    begin = fill(store, 3, 200)[0].physical_offset
    kept = DivergedMessages(disk, ROOT)
    return disk, kept, [kept.save(store, begin, epoch, NOW_MS + epoch) for epoch in range(files)]


def test_all_of_many_cuts_are_counted_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diverged._Budget.__init__, "__defaults__", (diverged._SCAN_BYTES, 10))
    _, kept, _ = many_saved(40)
    for _ in range(40 * 3 // 10):
        files = kept.files()
    assert [file.messages for file in files] == [3] * 40


def test_a_listing_of_many_cuts_does_not_make_a_reader_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept, names = many_saved(40)
    third = kept.read(names[0], 0, 3).positions[2]
    reads: list[int] = []
    pread = disk.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        reads.append(offset)
        return pread(fd, size, offset)

    kept.files()
    monkeypatch.setattr(disk, "pread", counted)
    kept.read(names[0], third, 1)
    assert set(reads) == {third}


def test_a_file_that_was_removed_by_hand_is_listed_no_more() -> None:
    disk, kept, names = many_saved(2)
    kept.files()
    disk.unlink(f"{ROOT}/diverged/{names[0]}")
    assert [file.name for file in kept.files()] == names[1:]


def test_what_a_transaction_never_committed_is_counted_apart() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.append([message(b"plain"), message(b"half", sys_flag=MessageSysFlag.TRANSACTION_PREPARED_TYPE)])
    kept = DivergedMessages(disk, ROOT)
    kept.save(store, 0, 1, NOW_MS)
    (file,) = kept.files()
    assert (file.messages, file.not_consumable) == (2, 1)


def test_looking_changes_nothing_on_the_disk() -> None:
    disk, kept, name = saved()
    before, calls = disk.content(f"{ROOT}/diverged"), disk.calls
    kept.files()
    kept.read(name, 0, 100)
    assert (disk.content(f"{ROOT}/diverged"), disk.calls) == (before, calls)


def test_a_deleted_cut_is_gone_and_no_other() -> None:
    disk, kept, name = saved()
    other = kept.save(open_store(disk.after_kill()), 0, 4, NOW_MS + 1)
    kept.delete(name)
    assert [file.name for file in kept.files()] == [other]
    with pytest.raises(FileNotFoundError):
        kept.read(name, 0, 1)


@pytest.mark.parametrize("name", ["../../commitlog/00000000000000000000", "cut-1", "", "1-2-3-4.log"])
def test_only_saved_cuts_are_read_and_deleted(name: str) -> None:
    _, kept, _ = saved()
    with pytest.raises(FileNotFoundError):
        kept.read(name, 0, 1)
    with pytest.raises(FileNotFoundError):
        kept.delete(name)


def power_cut(holes: tuple[int, ...]) -> tuple[MemoryDisk, DivergedMessages]:
    """What recovery set aside of twelve messages, with holes in the place of some."""
    disk, results = crashed(12, marked=4, flushed=False)
    for at in holes:
        hole(disk, results, at)
    disk._boot += 1
    reopened(disk)
    return disk, DivergedMessages(disk, ROOT)


def test_what_recovery_set_aside_after_a_power_cut_is_listed_too() -> None:
    _, kept = power_cut((6, 9))
    (file,) = kept.files()
    assert (file.reason, file.epoch, file.cut_at_ms, file.messages) == ("power_cut", None, None, 4)


def test_whole_messages_between_holes_are_read() -> None:
    _, kept = power_cut((6, 9))
    found = kept.read(kept.files()[0].name, 0, 10)
    assert [record.body[:6] for record in decode_records(found.data)] == [b"000007", b"000008", b"000010", b"000011"]


def bytes_read(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read asked for from now on."""
    counts: list[int] = []
    pread = disk.pread

    def counted(fd: int, count: int, offset: int) -> bytes:
        counts.append(count)
        return pread(fd, count, offset)

    monkeypatch.setattr(disk, "pread", counted)
    return counts


def test_holes_do_not_make_a_file_be_read_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, kept = power_cut((5, 7, 9))
    counts = bytes_read(disk, monkeypatch)
    (file,) = kept.files()
    assert file.counted_bytes == file.size_bytes
    assert sum(counts) == file.size_bytes


def test_a_record_that_is_read_whole_is_paid_for_though_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diverged, "_CHUNK_BYTES", 1024)
    monkeypatch.setattr(diverged._Budget.__init__, "__defaults__", (40 * 1024, 10))
    disk = MemoryDisk()
    disk.make_directory(f"{ROOT}/diverged")
    size = 64 * 1024
    fake = bytearray(b"\0" * size)
    HEAD.pack_into(fake, 0, size // 2, MESSAGE_MAGIC, *[0] * 7)
    fd = disk.open(f"{ROOT}/diverged/cut-{0:020d}", os.O_WRONLY | os.O_CREAT)
    disk.pwrite(fd, bytes(fake), 0)
    disk.close(fd)
    counts = bytes_read(disk, monkeypatch)
    (file,) = DivergedMessages(disk, ROOT).files()
    assert file.counted_bytes <= size // 2, "no more than it is looked through for this request"
    assert sum(counts) < 2048 + size // 2


def test_a_second_power_cut_at_the_same_place_keeps_what_the_first_one_left() -> None:
    disk = power_cut((6,))[0].after_kill()
    store, _ = reopened(disk)
    results = fill(store, 6, first=100)
    disk = disk.after_kill()
    hole(disk, results, 0)
    disk._boot += 1
    reopened(disk)
    kept = DivergedMessages(disk, ROOT)
    bodies = {record.body[:6] for file in kept.files() for record in decode_records(kept.read(file.name, 0, 99).data)}
    assert {b"000007", b"000011", b"000101", b"000105"} <= bodies
