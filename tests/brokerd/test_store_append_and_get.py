"""Appending and pulling: what goes in comes out, with RocketMQ's offsets and statuses."""

from __future__ import annotations

import itertools

import pytest

from brokerd.store import BoundaryType, GetMessageStatus, MessageIllegalError
from mqwire.codes import MessageSysFlag
from mqwire.message import decode_record, decode_records, pack_host, tags_code
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import (
    CLIENT,
    CLIENT_V6,
    HOST,
    ManualClock,
    bodies,
    fill,
    message,
    open_store,
    read_all,
    read_queue,
)


def test_a_message_comes_back_as_it_was_sent() -> None:
    clock = ManualClock()
    store = open_store(MemoryDisk(), clock)
    (result,) = store.append(
        [
            message(
                "тело".encode(),
                tag="ярлык",
                queue_id=7,
                flag=-3,
                sys_flag=MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZSTD,
                reconsume_times=2,
                prepared_transaction_offset=99,
            )
        ]
    )
    (stored,) = read_queue(store, "orders", 7)
    assert (stored.body, stored.flag, stored.reconsume_times) == ("тело".encode(), -3, 2)
    assert stored.prepared_transaction_offset == 99
    assert stored.sys_flag == MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_ZSTD
    assert stored.properties["TAGS"] == "ярлык"
    assert (stored.born_host, stored.store_host) == (("192.0.2.8", 40000), ("192.0.2.7", 10911))
    assert stored.born_timestamp_ms == 1_600_000_000_000
    assert stored.store_timestamp_ms == result.store_timestamp_ms == clock.time_ms
    assert (stored.physical_offset, stored.size_bytes) == (result.physical_offset, result.size_bytes)


def test_offsets_of_one_call_are_consecutive_in_the_log_and_in_each_queue() -> None:
    store = open_store(MemoryDisk())
    results = store.append([message(queue_id=queue_id) for queue_id in (0, 1, 0, 0, 1)])
    assert [result.queue_offset for result in results] == [0, 0, 1, 2, 1]
    for earlier, later in itertools.pairwise(results):
        assert later.physical_offset == earlier.physical_offset + earlier.size_bytes
    assert store.end_offset == results[-1].physical_offset + results[-1].size_bytes


@pytest.mark.parametrize("store_host", [HOST, pack_host("2001:db8::1", 10911)])
@pytest.mark.parametrize("born_host", [CLIENT, CLIENT_V6])
def test_hosts_of_both_families_are_stored_and_flagged(born_host: bytes, store_host: bytes) -> None:
    store = open_store(MemoryDisk(), store_host=store_host)
    # A client's own opinion of the IPv6 bits doesn't count.
    wrong_bits = MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6
    store.append([message(born_host=born_host, sys_flag=wrong_bits), message(born_host=born_host)])
    first, second = read_queue(store, "orders", 0)
    assert pack_host(*first.born_host) == born_host
    assert pack_host(*first.store_host) == store_host
    assert first.sys_flag == second.sys_flag
    assert bool(first.sys_flag & MessageSysFlag.BORNHOST_V6) == (len(born_host) == 20)
    assert bool(first.sys_flag & MessageSysFlag.STOREHOSTADDRESS_V6) == (len(store_host) == 20)


@pytest.mark.parametrize("length", [127, 128, 255])
def test_long_topics_use_the_second_magic(length: int) -> None:
    store = open_store(MemoryDisk())
    topic = "t" * length
    (result,) = store.append([message(topic=topic)])
    raw = store.message_at(result.physical_offset)
    assert raw is not None
    assert raw[4:8] == bytes.fromhex("daa320a7" if length == 127 else "daa320ab")
    assert decode_record(raw).topic == topic


def test_the_whole_length_of_properties_can_be_used() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=64 * 1024)
    room = 32767 - 20  # the CRC property takes 20
    properties = b"K\x01" + b"v" * (room - 3) + b"\x02"
    store.append([message(properties=properties)])
    assert read_queue(store, "orders", 0)[0].properties["K"] == "v" * (room - 3)
    with pytest.raises(MessageIllegalError, match="properties"):
        store.append([message(properties=b"K\x01" + b"v" * (room - 2) + b"\x02")])


def test_properties_without_a_last_separator_get_one_in_front_of_the_crc() -> None:
    store = open_store(MemoryDisk())
    store.append([message(properties=b"A\x01a\x02B\x01b")])
    properties = read_queue(store, "orders", 0)[0].properties
    assert (properties["A"], properties["B"]) == ("a", "b")
    assert list(properties)[-1] == "__CRC32#"


def test_a_clients_own_crc_property_is_dropped() -> None:
    store = open_store(MemoryDisk())
    store.append([message(properties=b"A\x01a\x02__CRC32#\x01123\x02X__CRC32#\x01kept")])
    properties = read_queue(store, "orders", 0)[0].properties
    assert properties["X__CRC32#"] == "kept"
    assert len(properties["__CRC32#"]) == 10


def test_the_record_crc_can_be_switched_off() -> None:
    store = open_store(MemoryDisk(), append_record_crc=False)
    store.append([message(properties=b"A\x01a")])
    assert read_queue(store, "orders", 0)[0].properties == {"A": "a"}


def test_messages_roll_over_to_the_next_file() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 60)
    assert len(disk.listdir("/store/commitlog")) >= 4
    assert any(later.physical_offset % 4096 == 0 for later in results[1:])
    assert bodies(store) == [b"%06d" % number + b"." * 194 for number in range(60)]


def test_a_call_may_fill_several_files() -> None:
    store = open_store(MemoryDisk())
    results = store.append([message(bytes(1500), queue_id=0) for _ in range(9)])
    assert results[-1].physical_offset == 4 * 4096
    assert len(read_queue(store, "orders", 0)) == 9


def test_more_buffers_than_the_kernel_takes_at_once_are_written_whole() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=1 << 20)
    store.append([message(b"%d" % number) for number in range(2000)])
    assert bodies(store) == [b"%d" % number for number in range(2000)]


def test_short_writes_are_completed() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    disk.short_writes = True
    fill(store, 30)
    store.flush_consume_queues()
    assert len(bodies(store)) == 30


@pytest.mark.parametrize(
    "illegal",
    [
        message(bytes(5000)),
        message(topic="a/b"),
        message(topic=".."),
        message(topic=""),
        message(topic="t" * 256),
        message(queue_id=-1),
        message(sys_flag=MessageSysFlag.INNER_BATCH),
        message(flag=2**31),
        message(properties=b"A\x01" + bytes(40_000)),
    ],
)
def test_one_illegal_message_is_named_and_nothing_of_the_call_is_stored(illegal: object) -> None:
    store = open_store(MemoryDisk(), max_message_size_bytes=4999)
    store.append([message()])
    end = store.end_offset
    with pytest.raises(MessageIllegalError) as caught:
        store.append([message(b"first"), message(b"second"), illegal, message(b"last")])  # type: ignore[list-item]  # any message
    assert caught.value.index == 2
    assert store.end_offset == end
    assert store.max_offset("orders", 0) == 1
    store.append([message(b"first"), message(b"second"), message(b"last")])
    assert bodies(store) == [b"body", b"first", b"second", b"last"]


def test_a_body_of_the_maximum_size_is_taken_and_one_byte_more_is_not() -> None:
    store = open_store(MemoryDisk(), max_message_size_bytes=100)
    store.append([message(bytes(100))])
    with pytest.raises(MessageIllegalError, match="maxMessageSize is 100"):
        store.append([message(bytes(101))])


def test_prepared_and_rolled_back_transaction_records_are_in_no_queue() -> None:
    store = open_store(MemoryDisk())
    results = store.append(
        [
            message(b"prepared", sys_flag=MessageSysFlag.TRANSACTION_PREPARED_TYPE),
            message(b"committed", sys_flag=MessageSysFlag.TRANSACTION_COMMIT_TYPE),
            message(b"rolled back", sys_flag=MessageSysFlag.TRANSACTION_ROLLBACK_TYPE),
            message(b"plain"),
        ]
    )
    assert [result.queue_offset for result in results] == [0, 0, 0, 1]
    assert bodies(store) == [b"committed", b"plain"]
    found = [store.message_at(result.physical_offset) is not None for result in results]
    assert found == [False, True, False, True], "no queue vouches for those that are in none"


def test_delayed_messages_carry_their_delivery_time_as_tags_code() -> None:
    clock = ManualClock()
    store = open_store(MemoryDisk(), clock)
    store.append([message(topic=RMQ_SYS_SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013\x02", tag="ignored")])
    seen: list[int] = []

    def refuse(code: int) -> bool:
        seen.append(code)
        return False

    store.get_messages(RMQ_SYS_SCHEDULE_TOPIC, 2, 0, 1, 1000, accept=refuse)
    assert seen == [clock.time_ms + 10_000]


def test_statuses_and_next_offsets_are_rocketmqs() -> None:
    store = open_store(MemoryDisk())
    fill(store, 10, queues=1)

    def pull(offset: int, queue_id: int = 0) -> tuple[GetMessageStatus, int]:
        result = store.get_messages("orders", queue_id, offset, 32, 100_000)
        return result.status, result.next_begin_offset

    assert pull(0) == (GetMessageStatus.FOUND, 10)
    assert pull(10) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 10)
    assert pull(11) == (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 10)
    assert pull(-1) == (GetMessageStatus.OFFSET_TOO_SMALL, 0)
    assert pull(5, queue_id=9) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def test_a_pull_is_bounded_by_count_and_by_bytes_but_gives_one_message_at_least() -> None:
    store = open_store(MemoryDisk())
    (first, *_) = fill(store, 10, queues=1)
    assert store.get_messages("orders", 0, 0, 3, 100_000).count == 3
    assert store.get_messages("orders", 0, 0, 32, first.size_bytes * 4 + 10).count == 4
    result = store.get_messages("orders", 0, 0, 32, 1)
    assert (result.count, result.size_bytes) == (1, first.size_bytes)
    assert sum(map(len, result.chunks)) == first.size_bytes


def test_adjacent_records_come_in_one_piece() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=1 << 20)
    fill(store, 10, queues=1)
    result = store.get_messages("orders", 0, 2, 5, 100_000)
    assert len(result.chunks) == 1
    assert [each.queue_offset for each in decode_records(result.chunks[0])] == [2, 3, 4, 5, 6]


def test_records_across_read_blocks_and_files_come_back() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=100_000)
    fill(store, 300, size_bytes=1000, queues=7)
    assert len(bodies(store)) == 300
    fill(store, 20, size_bytes=1000, queues=7, first=300)  # the last block has grown
    assert bodies(store)[-1] == b"%06d" % 319 + b"." * 994
    fill(store, 2, size_bytes=70_000, queues=2, first=320)  # larger than a block
    assert len(bodies(store)) == 322


def test_a_filter_sees_tags_codes_and_the_pull_skips_what_it_refuses() -> None:
    store = open_store(MemoryDisk())
    fill(store, 20, queues=1)
    wanted = tags_code("tag1")
    result = store.get_messages("orders", 0, 0, 5, 100_000, accept=lambda code: code == wanted)
    assert [each.queue_offset for each in decode_records(b"".join(result.chunks))] == [1, 3, 5, 7, 9]
    assert result.next_begin_offset == 10
    nothing = store.get_messages("orders", 0, 0, 5, 100_000, accept=lambda code: False)
    assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 20)


def test_a_filtered_pull_looks_at_a_bounded_number_of_entries() -> None:
    store = open_store(MemoryDisk(), max_filter_scan_entries=10)
    fill(store, 50, queues=1)
    result = store.get_messages("orders", 0, 0, 5, 100_000, accept=lambda code: False)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 10)


def test_readers_see_nothing_past_the_confirm_offset() -> None:
    store = open_store(MemoryDisk())
    results = fill(store, 10, queues=1)
    store.confirm_offset = results[4].physical_offset
    assert store.max_offset("orders", 0) == 4
    assert store.get_messages("orders", 0, 0, 32, 100_000).count == 4
    assert store.get_messages("orders", 0, 4, 32, 100_000).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert store.message_at(results[4].physical_offset) is None
    store.confirm_offset = store.end_offset
    assert store.max_offset("orders", 0) == 10


def test_the_confirm_offset_may_lie_far_behind() -> None:
    store = open_store(MemoryDisk())
    results = fill(store, 200, queues=1)
    for visible in (0, 1, 63, 64, 65, 150, 199):
        store.confirm_offset = results[visible].physical_offset
        assert store.max_offset("orders", 0) == visible


def test_time_finds_offsets_from_both_sides() -> None:
    clock = ManualClock(1000)
    store = open_store(MemoryDisk(), clock)
    for time_ms in (1000, 1000, 2000, 2000, 4000):
        clock.time_ms = time_ms
        store.append([message()])

    def lower(time_ms: int) -> int:
        return store.offset_by_time("orders", 0, time_ms)

    def upper(time_ms: int) -> int:
        return store.offset_by_time("orders", 0, time_ms, BoundaryType.UPPER)

    assert [lower(time_ms) for time_ms in (0, 1000, 1001, 2000, 3000, 4000, 4001)] == [0, 0, 2, 2, 4, 4, 5]
    assert [upper(time_ms) for time_ms in (0, 1000, 1001, 2000, 3000, 4000, 4001)] == [0, 1, 1, 3, 3, 4, 4]
    assert store.earliest_store_time_ms == 1000
    assert store.store_timestamp_of("orders", 0, 2) == 2000
    assert store.store_timestamp_of("orders", 0, 5) == -1


def test_store_timestamps_do_not_follow_a_clock_that_steps_back_a_little() -> None:
    clock = ManualClock(5_000_000)
    store = open_store(MemoryDisk(), clock)
    store.append([message()])
    clock.time_ms -= 10_000
    (result,) = store.append([message()])
    assert result.store_timestamp_ms == 5_000_000


def test_a_clock_that_was_far_ahead_is_followed_back() -> None:
    clock = ManualClock(5_000_000)
    store = open_store(MemoryDisk(), clock)
    store.append([message()])
    clock.time_ms = 1_000_000
    (result,) = store.append([message()])
    assert result.store_timestamp_ms == 1_000_000


def test_a_message_is_found_only_where_one_starts() -> None:
    store = open_store(MemoryDisk())
    results = fill(store, 30)
    starts = {result.physical_offset for result in results}
    for offset in range(-1, store.end_offset + 10):
        assert (store.message_at(offset) is not None) == (offset in starts)


def test_entries_are_read_from_memory_from_files_and_across_both() -> None:
    store = open_store(MemoryDisk())
    for round_number in range(6):
        fill(store, 20, queues=2, first=20 * round_number)
        if round_number % 2 == 0:
            store.flush_consume_queues()
        assert len(bodies(store)) == 20 * (round_number + 1)


def test_entries_in_memory_are_bounded() -> None:
    store = open_store(MemoryDisk(), unwritten_entries_max=10)
    fill(store, 100)
    assert store._queues.unwritten_entries <= 10 + 4
    assert len(read_all(store)["orders", 0]) == 34
