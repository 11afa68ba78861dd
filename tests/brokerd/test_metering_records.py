"""From intervals to records and back: splitting, and where counting goes on."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerd.metering import meter as meter_module
from brokerd.metering.meter import Interval, Meter
from brokerd.metering.records import (
    Recorded,
    Samples,
    last_recorded,
    message_of,
    origins_recorded,
    pulls_recorded_from,
    records_of,
)
from brokerd.metering.recount import Recount
from brokerd.metering.storage import StoredBytes
from brokerd.store import GetMessageStatus, GetResult, MessageStore, SendCounts
from mqwire.message import unpack_host
from mqwire.metering import (
    ConnectionCounts,
    InRow,
    LagRow,
    MeteringRecord,
    MeteringRecordError,
    OutRow,
    StorageRow,
    encode_metering_record,
)
from mqwire.names import RMQ_SYS_METERING
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import HOST, ManualClock, message, open_store, read_queue

CONNECTIONS = ConnectionCounts(producers=1, consumers=2)
SAMPLES = Samples(connections=CONNECTIONS)


def in_row(topic: str = "orders", messages: int = 1, credential: str = "") -> InRow:
    return InRow(
        topic=topic, credential=credential, kind="normal", messages=messages, bytes=messages * 4, units=messages
    )


def interval(*rows: InRow, start: int = 0, end: int = 100) -> Interval:
    return Interval(start_ms=1000, end_ms=2000, start_offset=start, end_offset=end, messages_in=rows)


def records(
    counted: Interval, samples: Samples = SAMPLES, *, epoch: int = 1, first: int = 1, max_bytes: int = 1024 * 1024
) -> list[MeteringRecord]:
    return records_of(counted, samples, cluster="c", broker="b", epoch=epoch, first_sequence=first, max_bytes=max_bytes)


# --- the meter


def test_an_interval_holds_what_was_counted_by_credential_and_leaves_nothing_behind() -> None:
    meter = Meter()
    meter.sends_of("AK2").add("orders", "normal", 2, 8, 2)
    meter.sends_of("AK1").add("orders", "ordered", 1, 4, 1)
    pulled = GetResult(GetMessageStatus.FOUND, 3, 0, 3, [], 3, 300, 5000, 4)
    meter.pulled("orders", "g", "AK1", pulled)
    meter.pulled("orders", "g", "AK1", pulled)
    taken = meter.take(start_ms=5, end_ms=4, start_offset=10, end_offset=20)
    assert [(row.credential, row.kind, row.messages) for row in taken.messages_in] == [
        ("AK1", "ordered", 1),
        ("AK2", "normal", 2),
    ]
    assert taken.messages_out == (
        OutRow(topic="orders", group="g", credential="AK1", messages=6, bytes=10000, units=8),
    )
    assert (taken.start_ms, taken.end_ms) == (5, 5)
    assert meter.take(start_ms=0, end_ms=0, start_offset=0, end_offset=0).messages_in == ()


def out_row(group: str, origin: str = "") -> OutRow:
    return OutRow(topic="orders", group=group, credential="", messages=1, bytes=4, units=1, origin=origin)


def test_what_others_reported_is_never_merged_with_what_is_counted() -> None:
    meter = Meter()
    meter.add_out([out_row("g"), out_row("g", "report-1-7"), out_row("g")])
    own, reported = meter.take_out()
    assert (own.messages, own.origin, reported.messages, reported.origin) == (2, "", 1, "report-1-7")


def test_pulls_can_be_taken_a_part_at_a_time_and_an_origins_rows_stay_together() -> None:
    meter = Meter()
    meter.add_out([out_row(f"g{number}") for number in range(3)])
    meter.add_out([out_row(f"g{number}", origin) for origin in ("a", "b") for number in range(3)])
    taken = []
    while rows := meter.take_out(2):
        taken.append([(row.group, row.origin) for row in rows])
    of_origin = [[(f"g{number}", origin) for number in range(3)] for origin in ("a", "b")]
    assert taken == [[("g0", ""), ("g1", "")], [("g2", ""), *of_origin[0]], of_origin[1]]


def pulled_by(meter: Meter, topic: str, group: str, credential: str = "AK", messages: int = 1) -> None:
    result = GetResult(GetMessageStatus.FOUND, messages, 0, 1, [], messages, 300, 10 * messages, messages)
    meter.pulled(topic, group, credential, result)


def rows_of(meter: Meter) -> list[tuple[str, str, str, int, int, int]]:
    return [
        (row.topic, row.group, row.credential, row.messages, row.bytes, row.units)
        for row in meter.take(start_ms=0, end_ms=0, start_offset=0, end_offset=0).messages_out
    ]


def test_beyond_so_many_pairs_a_keys_pulls_are_counted_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_OF_CREDENTIAL_MAX", 2)
    meter = Meter()
    for number in range(5):
        for _ in range(2):
            pulled_by(meter, f"t{number}", f"g{number}", messages=number + 1)
    pulled_by(meter, "t3", "g3", "another-key")
    assert rows_of(meter) == [
        ("(others)", "(others)", "AK", 24, 240, 24),
        ("t0", "g0", "AK", 2, 20, 2),
        ("t1", "g1", "AK", 4, 40, 4),
        ("t3", "g3", "another-key", 1, 10, 1),
    ]


def test_beyond_so_many_pairs_of_all_keys_each_key_has_one_row_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_MAX", 2)
    meter = Meter()
    for number in range(4):
        pulled_by(meter, "orders", "g", f"AK{number}")
    assert [row[:3] for row in rows_of(meter)] == [
        ("(others)", "(others)", "AK2"),
        ("(others)", "(others)", "AK3"),
        ("orders", "g", "AK0"),
        ("orders", "g", "AK1"),
    ]


def test_what_is_no_ones_usage_is_not_in_the_row_of_what_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_OF_CREDENTIAL_MAX", 0)
    meter = Meter()
    for topic in ("orders", "%RETRY%g", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"):
        pulled_by(meter, topic, "g")
    assert [(topic, messages) for topic, _, _, messages, _, _ in rows_of(meter)] == [
        ("(others)", 3),
        ("rmq_sys_(others)", 3),
    ]


def test_the_pairs_with_rows_are_the_same_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_OF_CREDENTIAL_MAX", 1)
    meter = Meter()
    named = []
    for group in ("first", "second", "first"):
        pulled_by(meter, "orders", group)
        named += [row[1] for row in rows_of(meter)]
    meter.begin_hour()
    pulled_by(meter, "orders", "second")
    assert [*named, rows_of(meter)[0][1]] == ["first", "(others)", "first", "second"]


def test_pulls_that_were_counted_elsewhere_have_no_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_OF_CREDENTIAL_MAX", 2)
    meter, former = Meter(), Meter()
    for number in range(5):
        pulled_by(former, "orders", f"g{number}")
    pulled_by(meter, "orders", "g9")
    meter.add_out(former.take_out())
    assert [(row[1], row[3]) for row in rows_of(meter)] == [("(others)", 4), ("g0", 1), ("g9", 1)]


def test_a_slave_whose_master_is_away_for_hours_keeps_a_bounded_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "PAIRS_MAX", 2)
    meter = Meter()
    for number in range(5):
        pulled_by(meter, "orders", f"g{number}")
        meter.begin_hour()
    assert [(row[1], row[3]) for row in rows_of(meter)] == [("(others)", 3), ("g0", 1), ("g1", 1)]


# --- splitting


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 255), max_size=60),
    max_bytes=st.integers(3100, 9000),
    first=st.integers(1, 100),
)
def test_a_split_interval_keeps_every_row_once_and_every_record_within_the_limit(
    lengths: list[int], max_bytes: int, first: int
) -> None:
    names = [f"{number}".ljust(length, "t")[:255] for number, length in enumerate(lengths)]
    samples = Samples(
        connections=CONNECTIONS,
        lag=tuple(
            LagRow(topic=name, group="g", queue_id=0, consumer_offset=1, max_offset=2, lag_messages=1, lag_ms=-1)
            for name in names
        ),
        storage=tuple(StorageRow(topic=name, bytes=1) for name in names),
    )
    counted = interval(*(in_row(name) for name in names))
    split = records(counted, samples, first=first, max_bytes=max_bytes)
    assert tuple(row for record in split for row in record.messages_in) == counted.messages_in
    assert tuple(row for record in split for row in record.lag) == samples.lag
    assert tuple(row for record in split for row in record.storage) == samples.storage
    assert all(len(encode_metering_record(record)) <= max_bytes for record in split)
    assert [record.sequence for record in split] == list(range(first, first + len(split)))
    assert {(record.start_ms, record.end_ms) for record in split} == {(1000, 2000)}
    assert [(record.start_offset, record.end_offset) for record in split] == [(0, 0)] * (len(split) - 1) + [(0, 100)]


def test_an_interval_of_nothing_is_one_record() -> None:
    (record,) = records(interval())
    assert (record.start_offset, record.end_offset, record.messages_in) == (0, 100, ())


# --- where counting goes on


def store_with(*made: MeteringRecord) -> MessageStore:
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=65536)
    for record in made:
        store.append([message_of(record, HOST)])
    return store


def test_without_a_record_nothing_is_counted_yet() -> None:
    assert last_recorded(open_store(MemoryDisk())) is None


def test_counting_goes_on_where_the_last_record_ends() -> None:
    store = store_with(*records(interval(in_row())), *records(interval(start=100, end=250), epoch=3, first=7))
    assert last_recorded(store) == Recorded(end_offset=250, epoch=3, sequence=7, end_ms=2000)


def test_records_of_an_interval_that_were_torn_apart_are_reported() -> None:
    whole = interval(*(in_row(f"topic-{number}" * 20) for number in range(60)), start=50)
    split = records(whole, max_bytes=3100)
    assert len(split) > 3
    store = store_with(*records(interval(start=0, end=50)), *split[:-1])
    reported = last_recorded(store)
    assert reported is not None
    assert (reported.end_offset, reported.sequence) == (50, len(split) - 1)
    assert set(reported.rows) == {row for part in split[:-1] for row in part.messages_in}


# --- what is recorded of pulls


def pulls(*groups: str, start: int = 0) -> Interval:
    return replace(interval(start=start, end=start + 100), messages_out=tuple(out_row(group) for group in groups))


def test_the_pulls_of_records_after_an_offset_are_found_confirmed_or_not() -> None:
    store = store_with(*records(pulls("g1")))
    offset = store.end_offset
    store.confirm_offset = offset
    store.append([message_of(record, HOST) for record in records(pulls("g2", "g3", start=100), first=2)])
    assert pulls_recorded_from(store, offset, unpack_host(HOST), 10) == [
        out_row("g2", "record-1-2"),
        out_row("g3", "record-1-2"),
    ]


def test_only_the_pulls_that_this_broker_recorded_are_found() -> None:
    store = store_with(*records(pulls("g1")))
    assert pulls_recorded_from(store, 0, ("192.0.2.9", 1), 10) == []


def test_an_origin_is_kept_however_often_it_is_reported() -> None:
    reported = replace(interval(), messages_out=(out_row("g", "report-1-7"),))
    assert pulls_recorded_from(store_with(*records(reported)), 0, unpack_host(HOST), 10) == [out_row("g", "report-1-7")]


def test_of_many_records_the_last_are_looked_through() -> None:
    store = store_with(*(one for number in range(5) for one in records(pulls(f"g{number}"), first=number + 1)))
    assert [row.group for row in pulls_recorded_from(store, 0, unpack_host(HOST), 2)] == ["g4", "g3"]


def test_a_record_that_cannot_be_read_does_not_hide_the_others() -> None:
    store = store_with(*records(pulls("g1")))
    (unknown,) = records(pulls("g2"), first=2)
    store.append([message_of(msgspec.structs.replace(unknown, version=9), HOST)])
    assert [row.group for row in pulls_recorded_from(store, 0, unpack_host(HOST), 10)] == ["g1"]


def test_origins_are_looked_up_in_front_of_an_offset() -> None:
    reported = [replace(interval(), messages_out=(out_row("g", f"report-1-{number}"),)) for number in range(4)]
    store = store_with(*(one for number, of in enumerate(reported, 1) for one in records(of, first=number)))
    assert origins_recorded(store, 3, 2) == {"report-1-1", "report-1-2"}


# --- what readers do not see


def test_a_record_past_the_confirmed_end_is_not_seen() -> None:
    store = store_with(*records(interval()))
    confirmed = store.end_offset
    store.append([message_of(record, HOST) for record in records(interval(start=100, end=200), first=2)])
    store.confirm_offset = confirmed
    reported = last_recorded(store)
    assert reported is not None
    assert reported.end_offset == 100


def test_a_last_record_that_cannot_be_read_is_reported_with_its_place() -> None:
    store = open_store(MemoryDisk())
    store.append([message(b'{"version": 99}', topic=RMQ_SYS_METERING)])
    with pytest.raises(MeteringRecordError, match=r"RMQ_SYS_METERING, offset 0: .*version 99"):
        last_recorded(store)


@settings(max_examples=60, deadline=None)
@given(
    topics=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    kept=st.integers(0, 40),
    more=st.integers(0, 10),
)
def test_whatever_parts_of_an_interval_survive_their_sum_is_the_logs_content(
    topics: list[int], kept: int, more: int
) -> None:
    """The parts of one interval are torn by a crash; what is recounted afterwards makes up for exactly the lost ones."""
    store = open_store(MemoryDisk(), mapped_file_size_commit_log_bytes=1024 * 1024)
    counts = SendCounts()
    names = [f"topic-{number}-".ljust(120, "x") for number in topics]
    store.append([message(b"b" * (number % 7), topic=name) for number, name in enumerate(names)], counts)
    meter = Meter()
    for row in counts.rows():
        meter.sends_of("AK").add(*row)
    end = store.end_offset
    counted = meter.take(start_ms=1, end_ms=2, start_offset=0, end_offset=end)
    survived = records(counted, max_bytes=3100)[:kept]
    store.append([message_of(record, HOST) for record in survived] or [message(topic="nothing")])
    store.append([message(topic=names[0]) for _ in range(more)])
    last = last_recorded(store) or Recorded(end_offset=0, epoch=0, sequence=0, end_ms=0)
    pieces: list[Interval] = []
    if last.end_offset < store.end_offset:
        recount = Recount(store, last.end_offset, store.end_offset, last.rows, last.rows_to)
        while not recount.done:
            piece = recount.advance(5)
            pieces += [] if piece is None else [piece]
    assert all(row.messages > 0 and row.bytes >= 0 for piece in pieces for row in piece.messages_in)
    recorded = sum(row.messages for rows in [part.messages_in for part in survived] for row in rows)
    recorded += sum(row.messages for piece in pieces for row in piece.messages_in)
    assert recorded == len(topics) + more + (0 if survived else 1)


# --- stored bytes


def updated(stored: StoredBytes) -> dict[str, int]:
    for _ in stored.update():
        pass
    return stored.by_topic()


def sizes(store: MessageStore) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            for stored in read_queue(store, topic, queue_id):
                found[topic] = found.get(topic, 0) + stored.size_bytes
    return found


def test_stored_bytes_are_those_of_the_records() -> None:
    store = open_store(MemoryDisk())
    stored = StoredBytes(store)
    for number in range(40):
        store.append([message(b"x" * number, topic=f"t{number % 3}", queue_id=number % 2) for _ in range(3)])
        if number % 9 == 0:
            assert updated(stored) == sizes(store)
        if number % 7 == 0:
            store.flush_consume_queues()
    assert updated(stored) == sizes(store)
    assert updated(StoredBytes(store)) == sizes(store), "the same in one go"


def test_half_counted_bytes_are_not_reported() -> None:
    store = open_store(MemoryDisk())
    store.append([message(topic=topic) for topic in ("a", "b", "c")])
    stored = StoredBytes(store)
    update = stored.update()
    next(update)
    assert stored.by_topic() == {}
    assert updated(stored) == sizes(store)


def test_stored_bytes_go_with_the_files_that_retention_deletes() -> None:
    clock = ManualClock()
    store = open_store(MemoryDisk(), clock, file_reserved_hours=1, delete_when=tuple(range(24)))
    stored = StoredBytes(store)
    for _ in range(30):
        store.append([message(b"x" * 400)])
    before = updated(stored)
    store.flush_consume_queues()
    clock.time_ms += 7_200_000
    store.append([message(b"x" * 400)])
    assert store.delete_expired(clock.time_ms).deleted_commit_log_files
    assert updated(stored) == sizes(store)
    assert updated(stored)["orders"] < before["orders"]


def test_the_bytes_of_records_in_the_place_of_truncated_ones_are_theirs() -> None:
    """The queue is as long as before."""
    store = open_store(MemoryDisk())
    stored = StoredBytes(store)
    kept, _ = store.append([message(b"kept"), message(b"truncated")])
    updated(stored)
    store.truncate(kept.physical_offset + kept.size_bytes)
    stored.log_was_truncated()
    store.append([message(b"in its place, and longer")])
    assert updated(stored) == sizes(store)


def test_what_came_and_expired_between_two_counts_is_not_taken_off() -> None:
    store = open_store(MemoryDisk())
    stored = StoredBytes(store)
    store.append([message(b"first")])
    updated(stored)
    store.append([message(b"second"), message(b"third")])
    store.keep_from("orders", 0, 2)
    assert updated(stored) == sizes(store)
    assert updated(stored) == sizes(store)


def test_a_count_goes_on_after_the_disk_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(MemoryDisk())
    stored = StoredBytes(store)
    store.append([message()])
    with monkeypatch.context() as patch:
        patch.setattr(store, "index_entries", Mock(side_effect=OSError("unreadable")))
        with pytest.raises(OSError, match="unreadable"):
            updated(stored)
    assert updated(stored) == sizes(store)


def test_a_deleted_topics_bytes_are_forgotten() -> None:
    store = open_store(MemoryDisk())
    stored = StoredBytes(store)
    store.append([message(topic="orders"), message(topic="payments")])
    updated(stored)
    store.delete_topic("orders")
    assert set(updated(stored)) == {"payments"}
    store.append([message(topic="orders")])
    assert updated(stored)["orders"] == sizes(store)["orders"]


def test_sequences_and_ranges_of_intervals_follow_each_other() -> None:
    made: list[MeteringRecord] = []
    for number in range(5):
        rows = (in_row(f"{number}-{row}".ljust(200, "x")) for row in range(number * 8))
        made += records(
            interval(*rows, start=number * 100, end=number * 100 + 100), first=len(made) + 1, max_bytes=3100
        )
    assert all(before.end_offset == after.start_offset for before, after in itertools.pairwise(made))
    assert len({record.key for record in made}) == len(made)
