"""A body is a sender's, who knows where the log ends: it may hold whole records for just this place, and what records end with.

Such a message must be to recovery, readers and repairs what any other one is.
"""

from __future__ import annotations

from random import Random

import pytest

from brokerd.replica.diverged import DivergedMessages
from brokerd.store import AppendResult, LogRange, MessageStore, TailDoubt
from mqwire.message import CRC32_PROPERTY_BYTES, decode_records, encode_record
from tests.brokerd.quorum_group import QuorumGroup
from tests.brokerd.test_store_recovery import restore_first_checkpoint
from tests.sim.memory_disk import BLOCK_BYTES, MemoryDisk
from tests.sim.store_harness import (
    CLIENT,
    COMMIT_LOG,
    FILE_BYTES,
    HOST,
    ROOT,
    bodies,
    fill,
    message,
    new_store,
    open_store,
)

FIRST_FILE = f"{COMMIT_LOG}/{0:020d}"
HEAD_BYTES = 88  # of a record, in front of its body
BLOCKS = 9
FOREIGN = "foreign"


def record_at(offset: int, size_bytes: int, topic: str = FOREIGN) -> bytes:
    """A whole record of the right size for that place."""

    def of(body: bytes) -> bytes:
        return encode_record(
            topic=topic, queue_id=0, queue_offset=0, physical_offset=offset, body=body, properties=b"",
            born_host=CLIENT, store_host=HOST, born_timestamp_ms=1, store_timestamp_ms=1_700_000_000_000,
        )  # fmt: skip

    return of(b"!" * (size_bytes - len(of(b""))))


def hostile_body(record_offset: int) -> bytes:
    """The body for a record that lies there: records one after the other, of which one ends with each second block. So wherever
    its write is torn, the log ends with a whole record and with the checksum of one.
    """
    begin = record_offset + HEAD_BYTES
    body = b"." * (-begin % BLOCK_BYTES)
    for _ in range(BLOCKS // 2):
        body += record_at(begin + len(body), 2 * BLOCK_BYTES)
    # In front of the ends of the other blocks stands what a record ends with.
    crc = record_at(0, 2 * BLOCK_BYTES)[-CRC32_PROPERTY_BYTES:]
    return body + b"." * (BLOCK_BYTES - len(crc)) + crc + b"the last bytes"


def send_hostile(store: MessageStore) -> AppendResult:
    offset = store.end_offset
    (result,) = store.append([message(hostile_body(offset), queue_id=0)])
    assert result.physical_offset == offset
    return result


def sent() -> tuple[MemoryDisk, AppendResult]:
    """A disk with one message that counts, and a hostile one that no one has synced."""
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 1, queues=1)
    store.flush()
    store.flush_consume_queues()
    return disk, send_hostile(store)


def torn_at(disk: MemoryDisk, offset: int, *, power_fails: bool) -> MemoryDisk:
    """What is left where the write ended there."""
    left = disk.after_losing_all_unsynced() if power_fails else disk.after_kill()
    inode = left.names[FIRST_FILE]
    inode.data[offset:] = bytes(len(inode.data) - offset)
    inode.synced[:] = inode.data
    return left


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_write_of_it_that_ended_early_is_a_torn_tail_wherever_it_ended(*, power_fails: bool) -> None:
    disk, hostile = sent()
    begin, end = hostile.physical_offset, hostile.physical_offset + hostile.size_bytes
    image = bytes(disk.names[FIRST_FILE].data)
    checkpoint = bytes(disk.names[f"{ROOT}/checkpoint"].data)
    for written_end in range(begin + 1, end):
        for path, data in ((FIRST_FILE, image), (f"{ROOT}/checkpoint", checkpoint)):
            disk.names[path].data[:] = disk.names[path].synced[:] = data
        store = new_store(torn_at(disk, written_end, power_fails=power_fails))
        report = store.open()
        assert (report.damage, store.end_offset) == ([], begin), written_end - begin
        assert TailDoubt.RECORDS_TRUNCATED not in store.doubts, written_end - begin
        assert store.append([message(b"the next one")])[0].physical_offset == begin
        store.close(clean=False)


def test_a_power_cut_that_took_any_block_after_its_head_leaves_a_torn_tail() -> None:
    disk, hostile = sent()
    begin, end = hostile.physical_offset, hostile.physical_offset + hostile.size_bytes
    image = bytes(disk.names[FIRST_FILE].data)
    checkpoint = bytes(disk.names[f"{ROOT}/checkpoint"].data)
    for lost in range(begin + HEAD_BYTES + -(begin + HEAD_BYTES) % BLOCK_BYTES, end, BLOCK_BYTES):
        left = disk.after_losing_all_unsynced()
        for path, data in ((FIRST_FILE, image), (f"{ROOT}/checkpoint", checkpoint)):
            left.names[path].data[:] = data
        left.names[FIRST_FILE].data[lost : lost + BLOCK_BYTES] = bytes(BLOCK_BYTES)
        store = new_store(left)
        report = store.open()
        assert (report.damage, store.end_offset) == ([], begin), lost - begin
        assert TailDoubt.RECORDS_TRUNCATED not in store.doubts, lost - begin
        store.close(clean=False)


@pytest.mark.parametrize("followed", [True, False])
def test_a_flipped_bit_in_it_is_damage_up_to_its_end(*, followed: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    hostile = send_hostile(store)
    begin, end = hostile.physical_offset, hostile.physical_offset + hostile.size_bytes
    if followed:
        store.append([message(b"the next one")])
    store.flush()
    image = bytes(disk.names[FIRST_FILE].data)
    random = Random(1)
    for position in range(begin, end - (not followed)):
        disk.names[FIRST_FILE].data[:] = image
        disk.flip_bit(FIRST_FILE, position, random.randrange(8))
        store = new_store(disk.after_kill())
        report = store.open()
        assert [(each.begin_offset, each.end_offset) for each in report.damage] == [(begin, end)], position - begin
        assert set(store.topics()) <= {"orders"}, "nothing of what is in the body was taken for a message"
        assert (store.max_offset("orders", 0) > 1) is followed
        store.close(clean=False)
        disk.remove_tree(f"{ROOT}/consumequeue")
        restore_first_checkpoint(disk)


def test_a_size_that_is_wrong_by_any_bit_hides_no_record_after_it() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    hostile = send_hostile(store)
    store.append([message(b"the next one"), message(b"and its next one")])
    store.flush()
    for bit in range(32):
        position = hostile.physical_offset + 3 - bit // 8
        disk.flip_bit(FIRST_FILE, position, bit % 8)
        store = new_store(disk.after_kill())
        report = store.open()
        assert report.damage == [LogRange(0, hostile.size_bytes)], bit
        assert report.end_offset > hostile.size_bytes
        store.close(clean=False)
        disk.flip_bit(FIRST_FILE, position, bit % 8)
        disk.remove_tree(f"{ROOT}/consumequeue")
        restore_first_checkpoint(disk)


def test_a_replica_in_mode_dledger_whose_write_of_it_a_power_cut_tore_has_its_vote() -> None:
    group = QuorumGroup.led(3)
    begin = group[0].store.end_offset
    group[0].append(hostile_body(begin))
    group[0].flush()
    group[1].pull(flush=False)
    assert group[1].store.end_offset == group[0].store.end_offset
    torn = begin + 6 * BLOCK_BYTES - begin % BLOCK_BYTES
    inode = group[1].disk.names[FIRST_FILE]
    inode.data[torn:] = bytes(len(inode.data) - torn)
    inode.synced[:] = inode.data  # the rest of the write is on the platter
    group[1].lose_power()
    assert group[1].store.end_offset == begin
    assert not group[1].replica.saved.log_may_be_incomplete


def test_no_record_within_a_body_is_found_by_its_place() -> None:
    store = open_store(MemoryDisk())
    first = fill(store, 1, queues=1)[0]
    hostile = send_hostile(store)
    begins = {first.physical_offset, hostile.physical_offset}
    for offset in range(store.end_offset):
        for expired_too in (False, True):
            assert (store.message_at(offset, expired_too=expired_too) is not None) == (offset in begins)


def test_no_record_within_a_body_is_found_though_it_names_a_message_that_is_there() -> None:
    store = open_store(MemoryDisk())
    fill(store, 1, queues=1)
    at = store.end_offset + HEAD_BYTES
    store.append([message(record_at(at, 2 * BLOCK_BYTES, topic="orders"))])
    assert store.message_at(at) is None


def reads_of(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each read from now on asks for."""
    counts: list[int] = []
    pread = disk.pread

    def counted(fd: int, count: int, offset: int, /) -> bytes:
        counts.append(count)
        return pread(fd, count, offset)

    monkeypatch.setattr(disk, "pread", counted)
    return counts


def test_a_head_within_a_body_that_claims_much_has_nothing_of_that_read(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    at = store.end_offset + HEAD_BYTES
    head = (2048).to_bytes(4, "big") + record_at(at, 2 * BLOCK_BYTES)[4:HEAD_BYTES]
    store.append([message(head + b"." * 20)])
    fill(store, 12)
    counts = reads_of(disk, monkeypatch)
    assert store.message_at(at) is None
    assert sum(counts) < 256


def test_heads_within_a_damaged_record_that_claim_much_have_nothing_of_that_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    at = store.end_offset + HEAD_BYTES
    heads = b"".join(
        (2048).to_bytes(4, "big") + record_at(at + number * HEAD_BYTES, 2 * BLOCK_BYTES)[4:HEAD_BYTES]
        for number in range(10)
    )
    store.append([message(heads)])
    store.append([message(b"the next one")])
    store.flush()
    disk.names[FIRST_FILE].data[:HEAD_BYTES] = b"?" * HEAD_BYTES
    left = disk.after_kill()
    counts = reads_of(left, monkeypatch)
    report = new_store(left).open()
    assert report.damage
    assert not [count for count in counts if count == 2048]


def test_a_damaged_one_is_put_right_with_another_replica_s_records() -> None:
    disk, other = MemoryDisk(), MemoryDisk()
    for one in (disk, other):
        store = open_store(one)
        hostile = send_hostile(store)
        store.append([message(b"the next one")])
        store.flush()
    disk.flip_bit(FIRST_FILE, hostile.physical_offset + 50)
    store = new_store(disk.after_kill())
    store.open()
    report = store.repair(open_store(other.after_kill()).records_and_next(hostile.physical_offset, 1), needs_proof=True)
    assert not report.damage
    assert bodies(store)[1:] == [b"the next one"]


def test_logs_that_part_at_the_damage_are_not_joined() -> None:
    """The other replica has one message where this one has two, of which the second is whole: it may be the only copy."""
    disk, other = MemoryDisk(), MemoryDisk()
    own, their = open_store(disk), open_store(other)
    first, _ = own.append([message(b"1"), message(b"2")])
    own.flush()
    their.append([message(b"." * (1 + first.size_bytes))])
    assert their.end_offset == own.end_offset
    disk.flip_bit(FIRST_FILE, first.physical_offset + 60)
    store = new_store(disk.after_kill())
    store.open()
    before = bytes(disk.names[FIRST_FILE].data)
    with pytest.raises(ValueError, match="logs part"):
        store.repair(their.read_raw(0, FILE_BYTES), needs_proof=False)
    assert bytes(disk.names[FIRST_FILE].data) == before


@pytest.mark.parametrize("lost_bytes", [1, 20])
def test_a_cut_that_was_kept_lists_no_record_within_a_damaged_body(lost_bytes: int) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    body_bytes = len(hostile_body(0))
    send_hostile(store)
    store.append([message(b"the next one")])
    kept = DivergedMessages(disk, ROOT)
    name = kept.save(store, 0, 3, 1_700_000_000_000)
    lost_from = HEAD_BYTES + body_bytes - 1
    disk.names[f"{ROOT}/diverged/{name}"].data[lost_from : lost_from + lost_bytes] = bytes(lost_bytes)
    (file,) = kept.files()
    assert (file.messages, file.topics) == (1, {"orders": 1})
    assert [record.body for record in decode_records(kept.read(name, 0, 99).data)] == [b"the next one"]
