"""The bytes on disk are RocketMQ's: what an Apache broker opens, and what of its we refuse."""

from __future__ import annotations

import struct

import pytest

import brokerd.store
from brokerd.store import MessageStore, StoreFormatError, StoreLockedError
from brokerd.store.record import DispatchTagsCode
from mqwire.message import decode_record, tags_code
from tests.sim.memory_disk import Inode, MemoryDisk
from tests.sim.store_harness import (
    COMMIT_LOG,
    FILE_BYTES,
    ROOT,
    ManualClock,
    config,
    fill,
    message,
    new_store,
    open_store,
    read_all,
)


def test_the_package_exports_exactly_what_its_map_names() -> None:
    public = {
        name
        for name, value in vars(brokerd.store).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("brokerd.store.")
    }
    constants = {name for name in brokerd.store.__all__ if name.isupper()}  # these know no module
    assert public | constants == set(brokerd.store.__all__)


def test_commit_log_files_are_named_by_offset_and_have_their_full_size_at_once() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 60)
    files = disk.content(COMMIT_LOG)
    assert list(files) == [f"{COMMIT_LOG}/{base:020d}" for base in range(0, len(files) * FILE_BYTES, FILE_BYTES)]
    assert {len(data) for data in files.values()} == {FILE_BYTES}


def test_new_files_and_their_names_are_durable_before_anything_is_written_to_them() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 60)
    path = f"{COMMIT_LOG}/{FILE_BYTES:020d}"
    calls = [call for call in disk.log if path in call or call == f"sync_directory {COMMIT_LOG}"]
    created = calls.index(f"create {path}")
    first_write = next(i for i, call in enumerate(calls) if call.startswith(f"pwrite {path}"))
    between = calls[created:first_write]
    assert f"sync {path}" in between
    assert f"sync_directory {COMMIT_LOG}" in between


def test_a_record_fills_a_file_but_for_a_blank_of_eight_bytes_at_least() -> None:
    disk = MemoryDisk()
    store = open_store(disk, append_record_crc=False)
    around = 88 + 1 + len("orders") + 2
    exact = FILE_BYTES - 8 - around
    store.append([message(bytes(exact)), message(b"next")])
    log = disk.content(COMMIT_LOG)
    first = log[f"{COMMIT_LOG}/{0:020d}"]
    assert first[-8:] == struct.pack(">II", 8, 0xCBD43194)
    assert decode_record(log[f"{COMMIT_LOG}/{FILE_BYTES:020d}"]).body == b"next"


def test_a_record_that_leaves_less_than_a_blank_goes_to_the_next_file() -> None:
    disk = MemoryDisk()
    store = open_store(disk, append_record_crc=False)
    around = 88 + 1 + len("orders") + 2
    store.append([message(b"small")])
    used = store.end_offset
    store.append([message(bytes(FILE_BYTES - 8 - around - used + 1))])
    first = disk.content(COMMIT_LOG)[f"{COMMIT_LOG}/{0:020d}"]
    assert first[used : used + 8] == struct.pack(">II", FILE_BYTES - used, 0xCBD43194)
    assert first[used + 8 :].strip(b"\0") == b""
    assert store.message_at(FILE_BYTES) is not None


def test_consume_queue_entries_are_offset_size_and_tags_code() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = store.append([message(queue_id=3, tag="red"), message(queue_id=3)])
    store.flush_consume_queues()
    ((path, data),) = disk.content(f"{ROOT}/consumequeue").items()
    assert path == f"{ROOT}/consumequeue/orders/3/{0:020d}"
    assert len(data) == 20 * 16
    expected = b"".join(
        struct.pack(">qiq", result.physical_offset, result.size_bytes, code)
        for result, code in zip(results, (tags_code("red"), 0), strict=True)
    )
    assert data == expected.ljust(20 * 16, b"\0")


def test_codes_of_long_tags_are_not_remembered() -> None:
    codes = DispatchTagsCode((1000,))
    for tag in (b"t" * 128, b"t" * 129):
        assert codes.of(b"orders", b"TAGS\x01%b\x02" % tag, 0) == tags_code(tag.decode())
    assert b"t" * 128 in codes._codes
    assert b"t" * 129 not in codes._codes


def test_the_checkpoint_holds_rocketmqs_numbers_first() -> None:
    disk = MemoryDisk()
    clock = ManualClock(1234)
    store = open_store(disk, clock)
    fill(store, 5)
    store.close()
    data = disk.content()[f"{ROOT}/checkpoint"]
    assert len(data) == 4096
    physic, logics, index, _master_flushed, confirm = struct.unpack_from(">qqqqq", data)
    # There is no index on disk yet: an Apache broker would read the whole log again.
    assert (physic, logics, index, confirm) == (1234, 0, 0, store.end_offset)


def test_the_abort_file_is_there_while_the_store_is_open() -> None:
    disk = MemoryDisk()
    store = new_store(disk)
    assert store.open().clean_shutdown
    assert f"{ROOT}/abort" in disk.content()
    store.close()
    assert f"{ROOT}/abort" not in disk.content()
    crashed = new_store(disk)
    crashed.open()
    crashed.close(clean=False)
    assert not new_store(disk).open().clean_shutdown


def test_a_directory_is_served_by_one_store_at_a_time() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    with pytest.raises(StoreLockedError):
        new_store(disk).open()
    with pytest.raises(StoreLockedError):
        store.open()
    store.close()
    open_store(disk)


def test_files_of_another_size_are_refused_by_the_name_of_the_key() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 60)
    store.close()
    before = disk.content()
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        new_store(disk, mapped_file_size_commit_log_bytes=2 * FILE_BYTES).open()
    with pytest.raises(StoreFormatError, match="mappedFileSizeConsumeQueue"):
        new_store(disk, mapped_file_size_consume_queue_bytes=400).open()
    assert disk.content() == before
    open_store(disk)


@pytest.mark.parametrize(
    "path", ["batchconsumequeue/t/0/x", "consumequeue_r/CURRENT", "consumequeue/%LMQ%a/0/x", "dledger-n0/data/x"]
)
def test_kinds_of_stores_that_we_do_not_have_are_refused_clearly(path: str) -> None:
    disk = MemoryDisk()
    disk.make_directory(f"{ROOT}/{path.rsplit('/', 1)[0]}")
    disk.names[f"{ROOT}/{path}"] = Inode()
    with pytest.raises(StoreFormatError, match=r"not supported|another format"):
        new_store(disk).open()


def apache_like(disk: MemoryDisk, count: int, queue_offset_from: int = 0) -> MessageStore:
    """A store as Apache leaves it: no CRC property, a checkpoint of its own, queues that may have begun earlier."""
    store = new_store(disk, append_record_crc=False)
    store.open()
    if queue_offset_from:
        queue = store._queues.create("orders", 0)
        queue.next_offset = queue.tail_offset = queue_offset_from
    fill(store, count, queues=1)
    store.close()
    checkpoint = disk.names[f"{ROOT}/checkpoint"]
    checkpoint.data[40:] = bytes(4096 - 40)
    checkpoint.sync()
    return store


def test_a_store_of_apaches_opens_and_goes_on() -> None:
    disk = MemoryDisk()
    apache_like(disk, 40)
    store = open_store(disk)
    fill(store, 10, queues=1, first=40)
    messages = read_all(store)["orders", 0]
    assert [each.body[:6] for each in messages] == [b"%06d" % number for number in range(50)]
    assert "__CRC32#" not in messages[39].properties
    assert "__CRC32#" in messages[40].properties


def test_a_queue_that_does_not_begin_with_its_file_has_blanks_in_front() -> None:
    disk = MemoryDisk()
    apache_like(disk, 5, queue_offset_from=19)
    data = disk.content(f"{ROOT}/consumequeue")[f"{ROOT}/consumequeue/orders/0/{320:020d}"]
    assert data[:60] == struct.pack(">qiq", 0, 2**31 - 1, 0) * 3
    store = open_store(disk)
    assert (store.min_offset("orders", 0), store.max_offset("orders", 0)) == (19, 24)
    assert len(read_all(store)["orders", 0]) == 5


def test_a_checkpoint_that_apache_rewrote_is_ours_no_more() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 5)
    store.close()
    disk.flip_bit(f"{ROOT}/checkpoint", 7)
    report = new_store(disk).open()
    assert report.durable_mark == -1
    assert report.records_scanned == 5


def test_an_empty_last_file_is_a_leftover() -> None:
    disk = MemoryDisk()
    fill(open_store(disk), 5)
    disk = disk.after_kill()
    disk.names[f"{COMMIT_LOG}/{FILE_BYTES:020d}"] = Inode()
    store = open_store(disk)
    assert len(read_all(store)["orders", 0]) == 2
    assert list(disk.content(COMMIT_LOG)) == [f"{COMMIT_LOG}/{0:020d}"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"mapped_file_size_commit_log_bytes": 100}, "mappedFileSizeCommitLog"),
        ({"mapped_file_size_consume_queue_bytes": 30}, "mappedFileSizeConsumeQueue"),
        ({"max_message_size_bytes": 0}, "maxMessageSize"),
        ({"commit_log_dir": "/a,/b"}, "storePathCommitLog"),
    ],
)
def test_values_that_cannot_work_are_named_by_rocketmqs_key(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        config(**changes)
