"""A batch is encoded together; every byte is that of its messages stored one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brokerd.store import (
    BatchToStore,
    DiskFullError,
    MessageIllegalError,
    MessageStore,
    SendCounts,
    StoreReadOnlyError,
)
from mqwire.codes import MessageSysFlag
from mqwire.message import pack_host
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import CLIENT, CLIENT_V6, HOST, ManualClock, bodies, message, open_store, read_queue

HOST_V6 = pack_host("2001:db8::7", 10911)
LARGE_FILE_BYTES = 256 * 1024


def batch(*items: bytes, **changes: Any) -> BatchToStore:
    values: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": CLIENT,
        "reconsume_times": 0,
        "shared_properties": b"CLUSTER\x01c\x02",
        "flags": range(len(items)),
        "bodies": items,
        "properties": [b"UNIQ_KEY\x01%032d\x02" % number for number in range(len(items))],
        "tags_codes": range(len(items)),
    }
    return BatchToStore(**(values | changes))


def stored(store: MessageStore, counts: SendCounts) -> tuple[dict[str, bytes], list[Any], int]:
    disk: Any = store._disk
    store.flush_consume_queues()
    files = {path: data for path, data in disk.content().items() if "checkpoint" not in path}
    return files, sorted(counts.rows()), store.end_offset


def assert_as_one_by_one(*batches: BatchToStore, store_host: bytes = HOST, **changes: Any) -> MessageStore:
    """The same batches, stored in both ways, leave the same files, counts and results."""
    one_by_one, together = (open_store(MemoryDisk(), ManualClock(), store_host, **changes) for _ in range(2))
    counts_of_ones, counts = SendCounts(), SendCounts()
    for each in batches:
        ones = one_by_one.append(each.messages(), counts_of_ones)
        result = together.append_batch(each, counts)
        assert list(result.physical_offsets) == [one.physical_offset for one in ones]
        assert result.queue_offset == ones[0].queue_offset
        assert result.end_offset == together.end_offset == one_by_one.end_offset
        assert result.store_timestamp_ms == ones[0].store_timestamp_ms
    assert stored(together, counts) == stored(one_by_one, counts_of_ones)
    return together


items = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.binary(max_size=80) | st.just(b"x" * 5000),
    st.sampled_from(
        [
            b"",
            b"UNIQ_KEY\x01" + b"0" * 32 + b"\x02",
            b"KEYS\x01" + b"k" * 300 + b"\x02",
            b"__SHARDINGKEY\x01order\x02",
            b"NOT__SHARDINGKEY\x01x\x02",
            b"__CRC32#\x010123456789\x02",
            b"K\x01a#\x02H\x01H\x02",
        ]
    ),
    st.integers(-(2**63), 2**63 - 1),
)


@st.composite
def batches(draw: st.DrawFn) -> BatchToStore:
    flags, bodies_, properties, tags_codes = zip(*draw(st.lists(items, min_size=1, max_size=12)), strict=True)
    return BatchToStore(
        topic=draw(st.sampled_from(["orders", "t" * 127, "u" * 128, "日本"])),
        queue_id=draw(st.sampled_from([0, 1, 7])),
        sys_flag=draw(
            st.sampled_from([0, 1, MessageSysFlag.TRANSACTION_COMMIT_TYPE, MessageSysFlag.TRANSACTION_PREPARED_TYPE])
        ),
        born_timestamp_ms=draw(st.integers(0, 2**63 - 1)),
        born_host=draw(st.sampled_from([CLIENT, CLIENT_V6])),
        reconsume_times=draw(st.integers(0, 9)),
        shared_properties=draw(st.sampled_from([b"", b"CLUSTER\x01DefaultCluster\x02"])),
        flags=flags,
        bodies=bodies_,
        properties=properties,
        tags_codes=tags_codes,
    )


@given(st.lists(batches(), min_size=1, max_size=4), st.sampled_from([HOST, HOST_V6]), st.booleans())
@example([batch(b"a", b"b"), batch(b"c", b"d")], HOST, True)
def test_a_batch_is_stored_as_its_messages_one_by_one(
    all_batches: list[BatchToStore], store_host: bytes, append_record_crc: bool
) -> None:
    assert_as_one_by_one(
        *all_batches,
        store_host=store_host,
        append_record_crc=append_record_crc,
        mapped_file_size_commit_log_bytes=LARGE_FILE_BYTES,
    )


def test_batches_go_over_the_end_of_a_file() -> None:
    store = assert_as_one_by_one(*(batch(b"x" * 500, b"y" * 500, b"z" * 500) for _ in range(6)))
    assert store.end_offset > 2 * 4096


def test_a_batch_fills_a_file_to_its_last_byte() -> None:
    size = open_store(MemoryDisk()).append_batch(batch(b"")).end_offset
    store = assert_as_one_by_one(batch(b"x" * (4096 - 8 - size)), batch(b"next"))
    assert read_queue(store, "orders", 1)[1].physical_offset == 4096


def test_a_delayed_message_in_a_batch_is_indexed_by_its_time() -> None:
    properties = [b"DELAY\x012\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"]
    assert_as_one_by_one(batch(b"later", topic=RMQ_SYS_SCHEDULE_TOPIC, properties=properties))
    assert_as_one_by_one(*[batch(b"later", topic=RMQ_SYS_SCHEDULE_TOPIC, properties=properties)] * 2)


def test_a_store_that_is_opened_again_finds_every_message() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.append([message(b"first", queue_id=1)])
    store.append_batch(batch(b"second", b"third"))
    store.append([message(b"fourth", queue_id=1)])
    store.flush()
    assert bodies(open_store(disk.after_kill())) == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.parametrize(
    ("refused", "index"),
    [
        (batch(b"a", b"x" * 3000, b"c"), 1),
        (batch(b"a", b"b", properties=[b"", b"K\x01" + b"v" * 32767 + b"\x02"]), 1),
        (batch(b"a", flags=[2**31]), 0),
    ],
)
def test_a_batch_with_a_message_that_breaks_a_limit_is_refused_whole(refused: BatchToStore, index: int) -> None:
    store = open_store(MemoryDisk(), max_message_size_bytes=2999)
    store.append_batch(batch(b"before"))
    end_offset = store.end_offset
    with pytest.raises(MessageIllegalError) as raised:
        store.append_batch(refused)
    assert raised.value.index == index
    assert (store.end_offset, store.max_offset("orders", 1)) == (end_offset, 1)
    assert store.append_batch(batch(b"behind")).queue_offset == 1


def test_nothing_of_a_batch_stays_where_the_disk_is_full() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.append_batch(batch(b"before"))
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        store.append_batch(batch(*[b"x" * 1000] * 3))
    assert store.disk_full
    assert store.max_offset("orders", 1) == 1
    assert [each.body for each in read_queue(store, "orders", 1)] == [b"before"]


def test_a_closed_store_takes_no_batch() -> None:
    store = open_store(MemoryDisk())
    store.append_batch(batch(b"before"))
    store.close()
    with pytest.raises(StoreReadOnlyError):
        store.append_batch(batch(b"behind"))
