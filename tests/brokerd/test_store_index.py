"""The message index: it finds exactly the messages of a key, whatever happened to it or to the log."""

from __future__ import annotations

import contextlib
import errno
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.store import MessageStore, StoreError
from brokerd.store.index_format import ENTRY, FIRST_ENTRY, HEADER_BYTES, file_bytes, key_hash, unpack_header
from brokerd.store.store_checkpoint import StoreCheckpoint
from mqwire.message import decode_record
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.store_harness import ROOT, ManualClock, message, new_store, open_store

INDEX = f"{ROOT}/index"
FOREVER = 2**63 - 1
# Few slots and short files, so that chains are long and messages cross from one file to the next.
SMALL: dict[str, Any] = {"max_hash_slot_num": 3, "max_index_num": 8}
# Two pairs of keys whose hashes are equal.
COLLIDING = ["AaAa", "BBBB", "AaBB", "other", "BBAa"]


def send(store: MessageStore, body: bytes, keys: str, unique_key: str = "", topic: str = "orders") -> int:
    """Returns where the record begins in the log."""
    properties = f"UNIQ_KEY\x01{unique_key}\x02" if unique_key else ""
    properties += f"KEYS\x01{keys}\x02" if keys else ""
    (result,) = store.append([message(body, topic, properties=properties.encode())])
    return result.physical_offset


def index_all(store: MessageStore, records_max: int = 7) -> None:
    while store.index.build(store.confirm_offset, records_max):
        pass
    assert store.index.indexed_until == store.confirm_offset


def found(
    store: MessageStore, key: str, topic: str = "orders", *, unique: bool = False, count: int = 64
) -> list[bytes]:
    result = store.queries.query(topic, key, count, 0, FOREVER, unique=unique)
    return [decode_record(record).body for record in result.records]


def open_small(disk: MemoryDisk, clock: ManualClock | None = None) -> MessageStore:
    return open_store(disk, clock, **SMALL)


# -- finding


def test_a_message_is_found_by_each_of_its_keys_and_by_its_unique_key() -> None:
    store = open_small(MemoryDisk())
    send(store, b"one", "a b", "U1")
    send(store, b"two", "b", "U2")
    index_all(store)
    assert [found(store, key) for key in ("a", "b", "U1", "U2", "c")] == [
        [b"one"],
        [b"one", b"two"],
        [b"one"],
        [b"two"],
        [],
    ]


def test_a_unique_query_looks_at_the_unique_key_alone() -> None:
    store = open_small(MemoryDisk())
    send(store, b"its key", "X", "U1")
    send(store, b"its id", "a", "X")
    index_all(store)
    assert found(store, "X", unique=True) == [b"its id"]
    assert found(store, "X") == [b"its key", b"its id"]


@pytest.mark.parametrize("topic", ["orders", "o" * 200])
def test_a_slice_of_work_ends_at_two_thousand_keys_too(topic: str) -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=2**20, max_index_num=10_000)
    keys = " ".join(f"k{number}" for number in range(1_500))
    store.append([message(b"x", topic, properties=f"KEYS\x01{keys}\x02".encode()) for _ in range(5)])
    entries = []
    while store.index.build(store.confirm_offset, 256):
        entries.append(store.index._files[-1].header.index_count - FIRST_ENTRY)
    assert entries == [3_000, 6_000, 7_500]


def test_a_message_with_one_key_twice_is_found_once() -> None:
    store = open_small(MemoryDisk())
    send(store, b"one", "a a b a", "a")
    index_all(store)
    assert found(store, "a") == [b"one"]


def test_keys_of_other_topics_are_not_found() -> None:
    store = open_small(MemoryDisk())
    send(store, b"here", "a")
    send(store, b"there", "a", topic="bills")
    index_all(store)
    assert (found(store, "a"), found(store, "a", "bills"), found(store, "a", "none")) == ([b"here"], [b"there"], [])


def test_the_newest_are_found_when_there_are_more_than_asked_for() -> None:
    store = open_small(MemoryDisk())
    for number in range(20):
        send(store, b"%d" % number, "a")
    index_all(store)
    assert found(store, "a", count=3) == [b"17", b"18", b"19"]
    assert found(store, "a", count=0) == []


def test_only_messages_stored_between_the_two_times_are_found() -> None:
    clock = ManualClock()
    store = open_small(MemoryDisk(), clock)
    begin_ms = clock.time_ms
    for number in range(20):
        clock.time_ms = begin_ms + number * 300
        send(store, b"%d" % number, "a")
    index_all(store)
    result = store.queries.query("orders", "a", 64, begin_ms + 700, begin_ms + 1500)
    assert [decode_record(record).body for record in result.records] == [b"3", b"4", b"5"]
    assert store.queries.query("orders", "a", 64, begin_ms + 6000, FOREVER).records == []


def test_what_is_not_confirmed_is_not_found() -> None:
    store = open_small(MemoryDisk())
    send(store, b"one", "a")
    store.confirm_offset = store.end_offset
    send(store, b"two", "a")
    index_all(store)
    assert found(store, "a") == [b"one"]
    store.confirm_offset = None
    assert store.queries.query("orders", "a", 9, 0, FOREVER).lag_bytes > 0
    index_all(store)
    assert found(store, "a") == [b"one", b"two"]


def test_a_deleted_topics_messages_are_not_found_and_those_of_its_successor_are() -> None:
    store = open_small(MemoryDisk())
    send(store, b"old", "a")
    index_all(store)
    store.delete_topic("orders")
    assert found(store, "a") == []
    send(store, b"new", "a")
    index_all(store)
    assert found(store, "a") == [b"new"]


def test_long_records_and_the_ends_of_log_files_are_passed() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=2**20, **SMALL)
    for number in range(4):
        send(store, bytes(700_000), f"k{number}")
    index_all(store)
    assert [len(found(store, f"k{number}")) for number in range(4)] == [1, 1, 1, 1]


def test_the_last_update_is_that_of_the_last_message_with_a_key() -> None:
    clock = ManualClock()
    store = open_small(MemoryDisk(), clock)
    send(store, b"one", "a")
    clock.time_ms += 5000
    last = send(store, b"two", "b")
    send(store, b"three", "")
    index_all(store)
    result = store.queries.query("orders", "none", 9, 0, FOREVER)
    assert (result.index_last_update_timestamp_ms, result.index_last_update_physical_offset) == (clock.time_ms, last)


Sent = tuple[list[str], str]
sent_messages = st.lists(
    st.tuples(st.lists(st.sampled_from(COLLIDING), max_size=3), st.sampled_from(["", *COLLIDING])), max_size=25
)


@given(sent_messages, st.integers(1, 5), st.integers(2, 9), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_exactly_the_messages_of_a_key_are_found_though_hashes_collide(
    sent: list[Sent], slots: int, entries: int, records_max: int
) -> None:
    assert key_hash("orders", "AaAa") == key_hash("orders", "BBBB") == key_hash("orders", "AaBB")
    store = open_store(MemoryDisk(), max_hash_slot_num=slots, max_index_num=entries)
    for number, (keys, unique_key) in enumerate(sent):
        send(store, b"%d" % number, " ".join(keys), unique_key)
    index_all(store, records_max)
    for key in COLLIDING:
        expected = [b"%d" % number for number, (keys, unique) in enumerate(sent) if key in keys or key == unique]
        assert found(store, key) == expected


# -- on disk


def test_the_file_is_as_rocketmq_draws_it() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock, **SMALL)
    first = send(store, b"one", "a")
    clock.time_ms += 2500
    second = send(store, b"two", "a")
    index_all(store)
    store.index.flush()
    (name,) = disk.listdir(INDEX)
    data = disk.content(INDEX)[f"{INDEX}/{name}"]
    assert len(name) == 17
    assert len(data) == file_bytes(3, 8) == HEADER_BYTES + 3 * 4 + 8 * 20
    assert tuple(unpack_header(data)) == (clock.time_ms - 2500, clock.time_ms, first, second, 1, 3)
    value = key_hash("orders", "a")
    slots = [int.from_bytes(data[40 + 4 * slot : 44 + 4 * slot], "big") for slot in range(3)]
    assert slots == [2 if slot == value % 3 else 0 for slot in range(3)]
    entries = [ENTRY.unpack_from(data, 52 + 20 * number) for number in range(3)]
    assert entries == [(0, 0, 0, 0), (value, first, 0, 0), (value, second, 2, 1)]


def test_an_apache_broker_reads_the_log_again_from_where_the_index_on_disk_ends() -> None:
    """After a kill it begins at the older of the checkpoint's times: keys of later messages are only in our memory then."""
    disk, clock = MemoryDisk(), ManualClock()
    store = open_small(disk, clock)
    send(store, b"one", "a")
    index_all(store)
    store.index.flush()
    indexed_ms, _ = store.index.last_update
    clock.time_ms += 5000
    send(store, b"two", "a")
    index_all(store)
    store.flush_consume_queues()
    reported = StoreCheckpoint.load(disk, f"{ROOT}/checkpoint")
    assert (reported.logics_msg_timestamp_ms, reported.physic_msg_timestamp_ms > indexed_ms) == (indexed_ms, True)
    store.index.flush()
    store.flush_consume_queues()
    reported = StoreCheckpoint.load(disk, f"{ROOT}/checkpoint")
    assert reported.logics_msg_timestamp_ms == reported.physic_msg_timestamp_ms


def test_a_full_file_is_followed_by_one_with_a_later_name() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    for number in range(30):
        send(store, b"%d" % number, "a b")
    index_all(store)
    store.close()
    names = disk.listdir(INDEX)
    assert len(names) == 9  # seven entries in each
    assert len(set(names)) == 9
    assert found(open_small(disk), "b") == [b"%d" % number for number in range(30)]


def test_an_index_is_read_again_after_a_clean_stop_not_made_again() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    for number in range(10):
        send(store, b"%d" % number, "a")
    index_all(store)
    store.close()
    before = disk.content(INDEX)
    store = open_small(disk)
    assert store.index.build(store.confirm_offset, 9) == 0
    assert disk.content(INDEX) == before
    assert found(store, "a") == [b"%d" % number for number in range(10)]
    send(store, b"10", "a")
    index_all(store)
    assert len(found(store, "a")) == 11


@pytest.mark.parametrize("lost", ["the folder", "the checkpoint", "one file", "the sizes"])
def test_an_index_that_lacks_something_is_made_again_from_the_log(lost: str) -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    for number in range(12):
        send(store, b"%d" % number, "a")
    index_all(store)
    store.close(clean=lost != "the checkpoint")
    if lost == "the folder":
        disk.remove_tree(INDEX)
    elif lost == "the checkpoint":
        disk.names.pop(f"{ROOT}/indexCheckpoint.json", None)
    elif lost == "one file":
        del disk.names[f"{INDEX}/{disk.listdir(INDEX)[-1]}"]
    sizes = {"max_hash_slot_num": 5, "max_index_num": 100} if lost == "the sizes" else SMALL
    store = open_store(disk, **sizes)
    assert store.index.indexed_until == 0
    index_all(store)
    assert found(store, "a") == [b"%d" % number for number in range(12)]


def test_a_full_disk_makes_the_index_wait_not_the_sends() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    send(store, b"one", "a")
    index_all(store)
    disk.fail = lambda _number, name: errno.ENOSPC if name == "pwrite" else None
    full = pytest.raises(OSError, match="No space")
    disk_fail, disk.fail = disk.fail, lambda _number, _name: None
    send(store, b"two", "a")
    disk.fail = disk_fail
    with full:
        index_all(store)
    assert found(store, "a") == [b"one"]
    disk.fail = lambda _number, _name: None
    index_all(store)
    assert found(store, "a") == [b"one", b"two"]


def test_an_index_that_a_power_cut_tore_is_made_again_where_a_full_disk_has_no_room_to_put_it_right() -> None:
    """The broker did not start, and so its retention never made room."""
    disk = MemoryDisk()
    store = open_small(disk)
    send(store, b"one", "a")
    index_all(store)
    store.flush_consume_queues()
    send(store, b"two", "a")
    index_all(store)
    store.flush()
    disk = disk.after_power_cut(1)
    disk.capacity_bytes = 0
    store = open_small(disk)
    disk.capacity_bytes = None
    index_all(store)
    assert found(store, "a") == [b"one", b"two"]


def test_a_message_is_found_once_though_its_index_was_interrupted_between_two_files() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    for number in range(10):
        send(store, b"%d" % number, "a b")
    assert store.index.build(store.end_offset, 1)
    disk.fail = lambda _number, name: errno.ENOSPC if name == "create" else None
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            store.index.build(store.end_offset, 10)
    disk.fail = lambda _number, _name: None
    index_all(store)
    assert found(store, "a") == found(store, "b") == [b"%d" % number for number in range(10)]
    store.close()
    assert found(open_small(disk), "a") == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("call", ["ftruncate", "sync_directory"])
def test_an_index_file_that_cannot_be_made_leaves_nothing(call: str) -> None:
    """Each try left a descriptor, and a file of no size, for which the next start made the whole index again."""
    disk = MemoryDisk()
    store = open_small(disk)
    send(store, b"one", "a")
    descriptors = len(disk._fds)
    disk.fail = lambda _number, name: errno.EIO if name == call else None
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            store.index.build(store.end_offset, 10)
    assert (len(disk._fds), disk.listdir(INDEX)) == (descriptors, [])
    disk.fail = lambda _number, _name: None
    index_all(store)
    assert found(store, "a") == [b"one"]


def test_retention_deletes_index_files_with_their_log() -> None:
    disk = MemoryDisk()
    clock = ManualClock()
    store = open_small(disk, clock)
    for number in range(60):
        send(store, b"%d" % number + bytes(200), f"k{number}")
    index_all(store)
    store.index.flush()
    files = len(disk.listdir(INDEX))
    store.flush()
    disk.used_ratio = 0.8
    clock.time_ms += 100 * 3_600_000
    send(store, b"today", "new")
    store.flush_consume_queues()
    report = store.delete_expired(clock.time_ms)
    assert report.deleted_commit_log_files
    assert len(disk.listdir(INDEX)) < files
    assert found(store, "k0") == []
    assert len(found(store, "k59")) == 1
    store.close()
    store = open_small(disk, clock)
    index_all(store)
    assert (found(store, "k0"), found(store, "new")) == ([], [b"today"])


def test_an_index_that_retention_has_overtaken_goes_on_where_the_log_begins() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_small(disk, clock)
    for number in range(60):
        send(store, b"%d" % number + bytes(200), f"k{number}")
    store.index.build(store.end_offset, 3)
    store.flush()
    disk.used_ratio = 0.8
    clock.time_ms += 100 * 3_600_000
    send(store, b"today", "new")
    store.flush_consume_queues()
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files
    assert store.min_physical_offset > store.index.indexed_until
    index_all(store)
    assert (found(store, "k0"), found(store, "new")) == ([], [b"today"])


# -- the log is cut


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 5, 11, 12])
def test_a_cut_log_cuts_its_index(kept: int, flushed: bool) -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    starts = [send(store, b"%d" % number, f"a k{number}") for number in range(12)] + [store.end_offset]
    index_all(store)
    if flushed:
        store.index.flush()
    store.truncate(starts[kept])
    for number in range(4):
        send(store, b"other %d" % number, f"a n{number}")
    index_all(store)
    others = [b"other %d" % number for number in range(4)]
    assert found(store, "a") == [b"%d" % number for number in range(kept)] + others
    assert [found(store, f"k{number}") for number in range(12)] == [
        [b"%d" % number] if number < kept else [] for number in range(12)
    ]
    store.close()
    assert found(open_small(disk), "n3") == [b"other 3"]


def test_an_entry_that_outlived_its_record_answers_with_no_other_message() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    send(store, b"kept", "b")
    end = store.end_offset
    send(store, b"lost", "a")
    index_all(store)
    store.index.flush()
    stale = {path: data for path, data in disk.content().items() if "ndex" in path}
    store.truncate(end)
    send(store, b"gain", "c")
    store.close()
    for path, data in stale.items():  # the index of before the cut
        disk.names[path].data[:] = data
    store = open_small(disk)
    assert store.index.indexed_until == store.end_offset
    assert list(store.index.candidates("orders", "a", 0, FOREVER)) == [end]
    assert (found(store, "a"), found(store, "b")) == ([], [b"kept"])


def test_a_log_that_starts_over_forgets_its_index() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    send(store, b"old", "a")
    index_all(store)
    store.index.flush()
    store.start_over(8192)
    assert disk.listdir(INDEX) == []
    store.confirm_offset = None
    send(store, b"new", "a")
    index_all(store)
    assert found(store, "a") == [b"new"]


def test_a_damaged_log_that_is_cut_keeps_the_index_of_what_is_left() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    starts = [send(store, b"%d" % number + bytes(200), f"k{number}") for number in range(12)]
    index_all(store)
    store.close()
    position = starts[6]
    disk.flip_bit(f"{ROOT}/commitlog/{position - position % 4096:020d}", position % 4096 + 100)
    disk.names.pop(f"{ROOT}/consumequeue/orders/0/{0:020d}", None)  # so that the log is read from its first record
    store = new_store(disk, **SMALL)
    assert store.open().damage
    assert len(found(store, "k5")) == 1
    store.truncate_damaged()
    assert [len(found(store, f"k{number}")) for number in range(12)] == [1] * 6 + [0] * 6
    send(store, b"new", "new")
    index_all(store)
    assert found(store, "new") == [b"new"]


def test_an_index_that_is_made_again_passes_over_damage() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    starts = [send(store, b"%d" % number, f"k{number}") for number in range(12)]
    store.close()
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", starts[6] + 5)  # its magic
    disk.names.pop(f"{ROOT}/consumequeue/orders/0/{0:020d}", None)
    store = new_store(disk, **SMALL)
    assert store.open().damage
    index_all(store)
    assert [len(found(store, f"k{number}")) for number in range(12)] == [1] * 6 + [0] + [1] * 5


# -- damage that another replica puts right


def indexed_over_damage(part: bytes = b"magic") -> tuple[MemoryDisk, bytes, int, list[bytes]]:
    """A disk whose index was made, and flushed, when one of 12 records was damaged."""
    disk, sent = MemoryDisk(), list[bytes]()
    store = open_small(disk)
    for number in range(12):
        sent.append(b"%d" % number)
        send(store, sent[-1], f"a k{number}", f"U{number}")
    store.flush_consume_queues()
    log = store.read_raw(0, 1 << 20)
    damaged_at = store.physical_offset_of("orders", 0, 6)
    assert damaged_at is not None
    position = {b"magic": 5, b"size": 3}.get(part, log[damaged_at:].find(part))
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", damaged_at + position)
    index_all(store)
    store.index.flush()
    assert found(store, "k6") == []
    store.flush()
    return disk.after_kill(), log[damaged_at:], damaged_at, sent


def put_right(disk: MemoryDisk, records: bytes, damaged_at: int) -> None:
    """As a broker whose reader met the damage."""
    store = open_small(disk)
    if store.locate_damage(damaged_at) is not None:
        store.write_over(damaged_at, records)


@pytest.mark.parametrize("part", [b"magic", b"size", b"k6"])
def test_a_message_is_found_by_its_keys_once_its_damage_is_put_right(part: bytes) -> None:
    disk, records, damaged_at, sent = indexed_over_damage(part)
    put_right(disk, records, damaged_at)
    assert_finds_what_the_log_holds(disk.after_kill(), sent)


def test_damage_that_the_index_meets_is_looked_at() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    (first, _) = [send(store, b"%d" % number, "a") for number in range(2)]
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", first + 5)
    index_all(store)
    assert store.damage_seen == first


def test_a_message_is_found_by_its_keys_once_a_broker_that_takes_nothing_more_puts_its_damage_right() -> None:
    disk, records, damaged_at, sent = indexed_over_damage()
    store = open_small(disk)
    store.declare_damaged(damaged_at)
    store.repair(records, needs_proof=True)
    store.close()
    assert_finds_what_the_log_holds(disk, sent)


def test_a_crash_at_any_call_while_damage_is_put_right_hides_no_message_from_its_keys() -> None:
    for die_at in count():
        disk, records, damaged_at, sent = indexed_over_damage()
        disk.die_at = disk.calls + die_at
        try:
            put_right(disk, records, damaged_at)
        except Died:
            left = disk.after_power_cut(die_at)
            put_right(left, records, damaged_at)
            assert_finds_what_the_log_holds(left.after_kill(), sent)
        else:
            break


def test_damage_that_is_put_right_leaves_an_index_as_it_is_that_has_its_keys() -> None:
    disk = MemoryDisk()
    store = open_small(disk)
    starts = [send(store, b"%d" % number, f"a k{number}") for number in range(12)]
    index_all(store)
    records = store.read_raw(0, 1 << 20)[starts[6] :]
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", starts[6] + 5)
    store.write_over(starts[6], records)
    assert store.index.indexed_until == store.end_offset


def test_an_index_whose_sync_failed_is_made_again_where_damage_is_put_right() -> None:
    """The next start would go back to its checkpoint, which calls all of the log indexed."""
    disk, records, damaged_at, sent = indexed_over_damage()
    store = open_small(disk)
    send_and_index(store, sent, 1)
    disk.fail = lambda _, name: errno.EIO if name == "sync" else None
    with pytest.raises(OSError, match="Input/output error"):
        store.index.flush(sync_log=False)
    disk.fail = lambda *_: None
    store.write_over(damaged_at, records)
    store.flush_consume_queues()
    assert_finds_what_the_log_holds(disk.after_kill(), sent)


@pytest.mark.parametrize("failing", ["sync", "pwrite", "create", "rename", "sync_directory"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_going_back_that_failed_is_done_again_before_damage_is_written_over(failing: str, number: int) -> None:
    """The next peer is asked at once; the index has gone back in memory by then, and on the disk it has not."""
    disk = MemoryDisk()
    store = open_small(disk)
    starts = [send(store, b"%d" % sent, "" if sent == 11 else f"k{sent}") for sent in range(12)]
    records = store.read_raw(0, 1 << 20)[starts[10] :]
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", starts[10] + 5)
    index_all(store)
    store.index.flush()
    calls = count(1)
    disk.fail = lambda _, name: errno.EIO if name == failing and next(calls) == number else None
    with contextlib.suppress(OSError):
        store.write_over(starts[10], records)
    disk.fail = lambda *_: None
    if store.locate_damage(starts[10]) is not None:
        store.write_over(starts[10], records)
    store.flush()
    store = open_small(disk.after_kill())
    index_all(store)
    assert [len(found(store, f"k{number}")) for number in range(11)] == [1] * 11


def test_nothing_is_sought_by_key_and_nothing_indexed_while_the_index_goes_back() -> None:
    store = open_small(MemoryDisk())
    send(store, b"one", "a")
    store.index.is_away = True
    assert store.index.build(store.confirm_offset, 7) == 0
    with pytest.raises(StoreError, match="try again in a moment"):
        found(store, "a")
    store.index.is_away = False
    index_all(store)
    assert found(store, "a") == [b"one"]


# -- crashes


def live(disk: MemoryDisk, sent: list[bytes]) -> None:
    store = open_small(disk)
    for number in range(12):
        sent.append(b"%d" % number)
        send(store, sent[-1], f"a k{number}", f"U{number}")
        if number % 2:
            store.index.build(store.confirm_offset, 3)
        if number % 4 == 3:
            store.flush_consume_queues()
            store.index.flush()
    store.close()


def live_until(die_at: int | None) -> tuple[MemoryDisk, list[bytes]]:
    disk, sent = MemoryDisk(), list[bytes]()
    disk.die_at = die_at
    with contextlib.suppress(Died):
        live(disk, sent)
    return disk, sent


CALLS = live_until(None)[0].calls


def assert_finds_what_the_log_holds(disk: MemoryDisk, sent: list[bytes]) -> None:
    store = open_small(disk)
    index_all(store)
    held = found(store, "a")
    assert held == sent[: len(held)]
    (stored,) = [store.max_offset("orders", 0)]
    assert len(held) == stored, "every message that the log holds"
    for number, body in enumerate(held):
        assert found(store, f"k{number}") == found(store, f"U{number}", unique=True) == [body]
    store.close()


@pytest.mark.parametrize("after", ["kill", "power cut"])
def test_a_crash_at_any_call_leaves_an_index_that_finds_everything(after: str) -> None:
    for die_at in range(CALLS):
        disk, sent = live_until(die_at)
        left = disk.after_kill() if after == "kill" else disk.after_power_cut(die_at)
        assert_finds_what_the_log_holds(left, sent)


def test_a_second_kill_while_the_index_goes_back_to_its_checkpoint_hides_nothing() -> None:
    """The slots are of two states then: the third start must go back again."""
    for die_at in count():
        disk, sent = MemoryDisk(), list[bytes]()
        store = open_small(disk)
        send_and_index(store, sent, 4)
        store.flush_consume_queues()
        store.index.flush()
        send_and_index(store, sent, 3)
        for _ in store.index.flush_steps():  # killed before the checkpoint
            pass
        left = disk.after_kill()
        left.die_at = die_at
        try:
            open_small(left)
        except Died:
            assert_finds_what_the_log_holds(left.after_kill(), sent)
        else:
            break


@pytest.mark.parametrize("then", ["kill", "power cut", "clean stop"])
@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("sync", [1, 2])
def test_what_a_failed_sync_of_the_index_left_is_made_again(then: str, checkpointed: bool, sync: int) -> None:
    """Its pages are clean from then on, and those that reached the disk are not known."""
    disk, sent = MemoryDisk(), list[bytes]()
    store = open_small(disk)
    send_and_index(store, sent, 4)
    if checkpointed:
        store.index.flush()
    send_and_index(store, sent, 5)  # two files have something new
    store.flush_consume_queues()
    syncs = count(1)
    disk.fail = lambda _, name: errno.EIO if name == "sync" and next(syncs) == sync else None
    with pytest.raises(OSError, match="Input/output error"):
        store.index.flush()
    send_and_index(store, sent, 3)
    assert found(store, "a") == sent
    if store.index.wants_flush:
        store.index.flush()
    if then == "clean stop":
        store.close()
        for inode in disk.names.values():
            inode.drop_clean_pages()
    else:
        store.flush_consume_queues()
    assert_finds_what_the_log_holds(disk.after_power_cut(sync) if then == "power cut" else disk.after_kill(), sent)


def test_what_a_failed_sync_of_the_index_left_is_made_again_where_memory_is_short_after_a_kill() -> None:
    """Its header came from the disk then, with the count of the checkpoint, and slots named entries beyond that."""
    disk, sent = MemoryDisk(), list[bytes]()
    slots: dict[str, Any] = {"max_hash_slot_num": 64, "max_index_num": 400}
    store = open_store(disk, **slots)
    send_and_index(store, sent, 20)
    store.flush_consume_queues()
    store.index.flush()
    send_and_index(store, sent, 20)
    disk.fail = lambda number, name: errno.EIO if disk.log[-1] == f"sync {store.index.files[-1]}" else None
    with pytest.raises(OSError, match="Input/output error"):
        store.index.flush()
    left = disk.after_kill()
    assert left.names[store.index.files[-1]].drop_clean_pages()
    store = open_store(left, **slots)
    index_all(store)
    assert [found(store, f"k{number}") for number in range(40)] == [[body] for body in sent]


def send_and_index(store: MessageStore, sent: list[bytes], amount: int) -> None:
    for number in range(len(sent), len(sent) + amount):
        sent.append(b"%d" % number)
        send(store, sent[-1], f"a k{number}", f"U{number}")
    index_all(store)
