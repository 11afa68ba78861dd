"""What counts as a send, and that counting while it is appended and counting it again from the log agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.metering.meter import Interval
from brokerd.metering.recount import Recount, RecountError
from brokerd.store import MessageStore, MessageToStore, SendCounts
from mqwire.codes import MessageSysFlag
from mqwire.metering import units_of
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METERING, RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import CLIENT, CLIENT_V6, ManualClock, message, open_store

HOUR_MS = 3_600_000
DELAYED = b"DELAY\x013\x02REAL_TOPIC\x01orders\x02REAL_QID\x010\x02"

Rows = dict[tuple[str, str], tuple[int, int, int]]


def rows(counts: SendCounts) -> Rows:
    return {(topic, kind): (messages, size, units) for topic, kind, messages, size, units in counts.rows()}


def recounted(store: MessageStore, begin: int = 0, end: int | None = None, records_at_a_time: int = 3) -> Rows:
    total: dict[tuple[str, str], Counter[str]] = {}
    for piece in pieces(Recount(store, begin, store.end_offset if end is None else end), records_at_a_time):
        for row in piece.messages_in:
            assert row.credential == ""
            total.setdefault((row.topic, row.kind), Counter()).update(
                {"messages": row.messages, "bytes": row.bytes, "units": row.units}
            )
    return {key: (count["messages"], count["bytes"], count["units"]) for key, count in total.items()}


def pieces(recount: Recount, records_at_a_time: int = 3) -> Iterator[Interval]:
    while not recount.done:
        piece = recount.advance(records_at_a_time)
        if piece is not None:
            yield piece


def counted(*messages: MessageToStore) -> Rows:
    """Counted as they are appended, and again from the log."""
    store = open_store(MemoryDisk())
    counts = SendCounts()
    store.append(list(messages), counts)
    live = rows(counts)
    assert recounted(store) == live
    return live


# --- the rules


def test_a_message_counts_with_its_body_and_its_begun_units() -> None:
    assert counted(message(b"x" * 1025), message(b"")) == {("orders", "normal"): (2, 1025, 2)}


def test_each_body_has_its_own_units() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=65536)
    counts = SendCounts()
    store.append([message(b"x" * size) for size in (0, 1, 4096, 4097, 8192, 8193)], counts)
    assert rows(counts) == {("orders", "normal"): (6, 0 + 1 + 4096 + 4097 + 8192 + 8193, 1 + 1 + 1 + 2 + 2 + 3)}
    assert recounted(store) == rows(counts)


def test_a_sharding_key_makes_a_message_ordered() -> None:
    assert counted(message(properties=b"__SHARDINGKEY\x01order-7\x02")) == {("orders", "ordered"): (1, 4, 1)}


@pytest.mark.parametrize(
    "properties", [b"MY__SHARDINGKEY\x01x\x02", b"__SHARDINGKEY\x01\x02", b"KEYS\x01__SHARDINGKEY\x02"]
)
def test_what_only_looks_like_a_sharding_key_does_not(properties: bytes) -> None:
    assert counted(message(properties=properties)) == {("orders", "normal"): (1, 4, 1)}


def test_a_delayed_message_counts_under_its_real_topic() -> None:
    waiting = message(topic=RMQ_SYS_SCHEDULE_TOPIC, queue_id=2, properties=DELAYED + b"__SHARDINGKEY\x01k\x02")
    assert counted(waiting) == {("orders", "delayed"): (1, 4, 1)}


def test_a_delivered_copy_does_not_count_again() -> None:
    store = open_store(MemoryDisk())
    store.append([message(properties=DELAYED)])
    assert recounted(store) == {}


@pytest.mark.parametrize("level", [b"0", b"-1"])
def test_a_delay_level_that_delays_nothing_does_not_hide_a_message(level: bytes) -> None:
    assert counted(message(properties=b"DELAY\x01%b\x02REAL_TOPIC\x01orders\x02" % level)) == {
        ("orders", "normal"): (1, 4, 1)
    }


def test_a_committed_message_is_transactional() -> None:
    assert counted(message(sys_flag=MessageSysFlag.TRANSACTION_COMMIT_TYPE)) == {("orders", "transactional"): (1, 4, 1)}


def test_the_brokers_own_records_do_not_count() -> None:
    store = open_store(MemoryDisk())
    store.append([message(topic=RMQ_SYS_METERING), message(topic=RMQ_SYS_EPOCH)])
    assert recounted(store) == {}


def test_retries_and_dead_letters_count_under_their_own_names() -> None:
    assert counted(message(topic="%RETRY%g"), message(topic="%DLQ%g")) == {
        ("%RETRY%g", "normal"): (1, 4, 1),
        ("%DLQ%g", "normal"): (1, 4, 1),
    }


def test_what_is_refused_does_not_count() -> None:
    store = open_store(MemoryDisk())
    counts = SendCounts()
    with pytest.raises(Exception, match="the record has"):
        store.append([message(), message(b"x" * 5000)], counts)
    assert rows(counts) == {}


def test_a_pull_knows_the_bodies_of_what_it_got() -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=65536)
    store.append([message(b"x" * 10), message(b"y" * 5000, born_host=CLIENT_V6), message(b"")])
    result = store.get_messages("orders", 0, 0, 32, 100_000)
    assert (result.count, result.body_bytes, result.units) == (3, 5010, 4)


def test_a_pull_knows_the_bodies_of_what_was_there_before_a_restart() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    store.append([message(b"x" * 10), message(b"y" * 500, born_host=CLIENT_V6)])
    store.close()
    result = open_store(disk).get_messages("orders", 0, 0, 32, 100_000)
    assert (result.count, result.body_bytes, result.units) == (2, 510, 2)


# --- live and again


sends = st.lists(
    st.lists(
        st.builds(
            lambda topic, queue, size, properties, sys_flag, host: message(
                b"b" * size,
                topic=topic,
                queue_id=queue,
                properties=DELAYED if topic == RMQ_SYS_SCHEDULE_TOPIC else properties,
                sys_flag=sys_flag,
                born_host=host,
            ),
            st.sampled_from(["orders", "payments", "%RETRY%g", "t" * 150, RMQ_SYS_SCHEDULE_TOPIC]),
            st.integers(0, 2),
            st.integers(0, 3000) | st.integers(4090, 9000),
            st.sampled_from([b"", b"TAGS\x01a\x02", b"__SHARDINGKEY\x01k\x02", b"K\x01v\x02__SHARDINGKEY\x01k"]),
            st.sampled_from([0, 0, 0, 4, 8, 12]),
            st.sampled_from([CLIENT, CLIENT_V6]),
        ),
        min_size=1,
        max_size=8,
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(traffic=sends, data=st.data())
def test_counting_again_agrees_with_counting_live_over_any_range(
    traffic: list[list[MessageToStore]], data: st.DataObject
) -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=16384)
    offsets, per_call = [0], []
    for messages in traffic:
        counts = SendCounts()
        store.append(messages, counts)
        offsets.append(store.end_offset)
        per_call.append(counts)
    begin = data.draw(st.integers(0, len(per_call)))
    end = data.draw(st.integers(begin, len(per_call)))
    expected = SendCounts()
    for counts in per_call[begin:end]:
        for row in counts.rows():
            expected.add(*row)
    assert recounted(store, offsets[begin], offsets[end]) == rows(expected)
    assert sum(count[0] for count in rows(expected).values()) == sum(map(len, traffic[begin:end]))


@settings(max_examples=40, deadline=None)
@given(traffic=sends)
def test_counts_are_made_of_single_messages(traffic: list[list[MessageToStore]]) -> None:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=16384)
    counts = SendCounts()
    expected: dict[tuple[str, str], list[int]] = {}
    for messages in traffic:
        store.append(messages, counts)
        for one in messages:
            delayed = one.topic == RMQ_SYS_SCHEDULE_TOPIC
            ordered = b"__SHARDINGKEY\x01k" in one.properties
            kind = (
                "delayed" if delayed else "transactional" if one.sys_flag & 12 else "ordered" if ordered else "normal"
            )
            count = expected.setdefault(("orders" if delayed else one.topic, kind), [0, 0, 0])
            count[0] += 1
            count[1] += len(one.body)
            count[2] += units_of(len(one.body))
    assert rows(counts) == {key: tuple(count) for key, count in expected.items()}


# --- pieces


def test_a_recount_is_cut_at_full_hours() -> None:
    clock = ManualClock(10 * HOUR_MS - 1)
    store = open_store(MemoryDisk(), clock)
    for _ in range(3):
        store.append([message(), message()])
        clock.time_ms += HOUR_MS // 2
    first, second = pieces(Recount(store, 0, store.end_offset))
    assert (first.start_offset, second.end_offset, first.end_offset) == (0, store.end_offset, second.start_offset)
    assert [(piece.start_ms, piece.end_ms, piece.messages_in[0].messages) for piece in (first, second)] == [
        (10 * HOUR_MS - 1, 10 * HOUR_MS - 1, 2),
        (10 * HOUR_MS - 1 + HOUR_MS // 2, 11 * HOUR_MS - 1, 4),
    ]


def test_what_retention_took_is_reported() -> None:
    store = store_with_files(4)
    store.close()
    disk = store._disk
    assert isinstance(disk, MemoryDisk)
    disk.unlink("/store/commitlog/" + f"{0:020d}")
    store = open_store(disk)
    (piece,) = pieces(Recount(store, 100, store.end_offset))
    assert (piece.start_offset, piece.deleted_to, piece.end_offset) == (100, 4096, store.end_offset)


def test_retention_that_takes_the_whole_range_leaves_an_empty_piece() -> None:
    store = store_with_files(4)
    store.close()
    disk = store._disk
    assert isinstance(disk, MemoryDisk)
    disk.unlink("/store/commitlog/" + f"{0:020d}")
    store = open_store(disk)
    (piece,) = pieces(Recount(store, 100, 2000, after_ms=77))
    assert (piece.start_offset, piece.deleted_to, piece.end_offset, piece.messages_in) == (100, 2000, 2000, ())
    assert (piece.start_ms, piece.end_ms) == (77, 77)


def test_retention_in_the_middle_of_a_recount_takes_only_what_was_not_counted_yet() -> None:
    store = store_with_files(4)
    recount = Recount(store, 0, store.end_offset)
    assert recount.advance(1) is None
    store._log.delete_first_file()
    (piece,) = pieces(recount)
    assert piece.deleted_to == 4096
    left = recounted(store, 4096)["orders", "normal"][0]
    assert piece.messages_in[0].messages == 1 + left


def test_a_log_that_cannot_be_read_stops_a_recount() -> None:
    store = store_with_files(2)
    store._disk.unlink("/store/commitlog/" + f"{0:020d}")
    store._log.close()
    with pytest.raises(RecountError, match="cannot be read at 0"):
        list(pieces(Recount(store, 0, store.end_offset)))


def store_with_files(files: int) -> MessageStore:
    store = open_store(MemoryDisk())
    while store.end_offset < (files - 1) * 4096 + 1:
        store.append([message(b"x" * 500)])
    return store
