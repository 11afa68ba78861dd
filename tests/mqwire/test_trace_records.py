"""Trace records as stock clients write them, by kind and version."""

from __future__ import annotations

import pytest

from mqwire.errors import RemoteProtocolError
from mqwire.trace_records import (
    RECORDS_MAX,
    SUBJECTS_MAX,
    TraceKind,
    TraceRecord,
    read_traces,
    trace_subjects,
    write_traces,
)

PUB = TraceRecord(
    TraceKind.PUB,
    "7F01",
    timestamp_ms=1_700_000_000_000,
    region="DefaultRegion",
    group="shop",
    topic="orders",
    tags="paid",
    keys="o-1 o-2",
    store_host="10.0.0.1:10911",
    body_size_bytes=12,
    cost_ms=3,
    message_type=0,
    offset_message_id="0A00",
    is_success=True,
)
BEFORE = TraceRecord(
    TraceKind.SUB_BEFORE,
    "7F01",
    timestamp_ms=1_700_000_000_005,
    region="DefaultRegion",
    group="billing",
    request_id="R1",
    retried=2,
    keys="o-1",
)
AFTER = TraceRecord(
    TraceKind.SUB_AFTER,
    "7F01",
    timestamp_ms=1_700_000_000_009,
    group="billing",
    request_id="R1",
    cost_ms=4,
    is_success=False,
    keys="o-1",
    code=4,
)


def body(*fields: str) -> bytes:
    return ("\x01".join(fields) + "\x02").encode()


def test_records_of_one_body_are_read_as_they_were_written() -> None:
    assert read_traces(write_traces([PUB, BEFORE, AFTER])) == ([PUB, BEFORE, AFTER], 0)


def test_a_send_is_written_as_javas_client_writes_it() -> None:
    fields = write_traces([PUB]).decode().removesuffix("\x02").split("\x01")
    assert fields == [
        *("Pub", "1700000000000", "DefaultRegion", "shop", "orders", "7F01", "paid", "o-1 o-2", "10.0.0.1:10911"),
        *("12", "3", "0", "0A00", "true"),
    ]


def test_null_is_no_text() -> None:
    ((record,), _) = read_traces(
        body("Pub", "1", "null", "g", "t", "M", "null", "null", "h", "1", "2", "0", "null", "true")
    )
    assert (record.region, record.tags, record.keys, record.offset_message_id) == ("", "", "", "")


def test_clients_that_send_no_offset_id_are_read() -> None:
    ((record,), _) = read_traces(body("Pub", "1", "r", "g", "t", "M", "", "", "h", "1", "2", "0", "true"))
    assert (record.is_success, record.offset_message_id) == (True, "")


def test_the_hosts_that_go_clients_write_are_read() -> None:
    (records, _) = read_traces(
        body("Pub", "1", "r", "g", "t", "M", "", "", "h", "1", "2", "0", "O", "true", "10.0.0.7")
        + body("SubBefore", "1", "r", "g", "R", "M", "0", "null", "10.0.0.8")
    )
    assert [record.client_host for record in records] == ["10.0.0.7", "10.0.0.8"]


def test_an_end_of_a_delivery_without_time_and_group_is_read() -> None:
    ((record,), _) = read_traces(body("SubAfter", "R", "M", "7", "true", "k"))
    assert (record.cost_ms, record.timestamp_ms, record.group, record.code) == (7, None, "", None)


def test_the_end_of_a_transaction_and_a_recall_are_read() -> None:
    (records, unreadable) = read_traces(
        body("EndTransaction", "1", "r", "g", "t", "M", "", "", "h", "2", "T", "COMMIT_MESSAGE", "false")
        + body("Recall", "1", "r", "g", "t", "M", "true")
    )
    assert [record.topic for record in records] == ["t", "t"]
    assert (records[0].transaction_state, records[1].is_success, unreadable) == ("COMMIT_MESSAGE", True, 0)


@pytest.mark.parametrize(
    "text",
    [b"hello", b"Pub\x01", b"Pub\x01soon\x01r\x01g", b"\xff\xfe", body("SubAfter", "R"), body("Pub", "1" * 5000)],
)
def test_what_is_no_record_is_counted(text: bytes) -> None:
    assert read_traces(text) == ([], 1)


def test_of_a_body_of_very_many_records_the_rest_counts_as_one_that_cannot_be_read() -> None:
    records, unreadable = read_traces(body("Recall", "1", "r", "g", "t", "M", "true") * (RECORDS_MAX + 2))
    assert (len(records), unreadable) == (RECORDS_MAX, 1)


def test_the_subjects_of_records_are_what_reading_them_whole_says() -> None:
    text = (
        write_traces([PUB, PUB, BEFORE, AFTER])
        + body("Recall", "1", "r", "g", "recalled", "M", "true")
        + body("EndTransaction", "1", "r", "g", "ended", "M", "", "", "h", "0", "T", "COMMIT_MESSAGE", "true")
        + body("SubAfter", "R", "M", "7", "true", "k")
    )
    records, unreadable = read_traces(text)
    of_groups = (TraceKind.SUB_BEFORE, TraceKind.SUB_AFTER)
    expected = {(record.kind, record.group if record.kind in of_groups else record.topic) for record in records}
    assert (trace_subjects(text), unreadable) == (expected, 0)


@pytest.mark.parametrize("text", [b"hello", b"Pub\x01", b"Pub\x01soon\x01r\x01g", b"\xff\xfe", body("SubAfter", "R")])
def test_what_is_no_record_has_no_subjects(text: bytes) -> None:
    assert trace_subjects(write_traces([PUB]) + text) is None


def test_records_without_end_have_no_subjects() -> None:
    recall = body("Recall", "1", "r", "g", "t", "M", "true")
    assert trace_subjects(recall * RECORDS_MAX) == {(TraceKind.RECALL, "t")}
    with pytest.raises(RemoteProtocolError, match="at most"):
        trace_subjects(recall * (RECORDS_MAX + 1))


def test_subjects_without_end_are_refused() -> None:
    recalls = [body("Recall", "1", "r", "g", f"t{number}", "M", "true") for number in range(SUBJECTS_MAX + 1)]
    assert len(trace_subjects(b"".join(recalls[:-1])) or ()) == SUBJECTS_MAX
    with pytest.raises(RemoteProtocolError, match="topics and groups"):
        trace_subjects(b"".join(recalls))


def test_a_full_message_of_javas_client_is_within_the_bounds() -> None:
    # It sends once it has 128,000 characters: by then it may have put in all of one more batch of 1,024 messages.
    after = TraceRecord(
        TraceKind.SUB_AFTER,
        "7F" * 16,
        1_700_000_000_000,
        request_id="7F" * 16,
        group="g",
        cost_ms=1,
        is_success=True,
        code=0,
    )
    size = len(write_traces([after]))
    assert trace_subjects(write_traces([after]) * (128_000 // size + 1024)) == {(TraceKind.SUB_AFTER, "g")}


def test_records_of_other_messages_are_passed_over_when_one_is_looked_for() -> None:
    two = body("Recall", "1", "r", "g", "t", "M", "true") + body("Recall", "1", "r", "g", "t", "other", "true")
    assert [record.message_id for record in read_traces(two, about="other")[0]] == ["other"]


def test_separators_in_a_text_break_no_record() -> None:
    record = TraceRecord(TraceKind.SUB_BEFORE, "M", 1, keys="a\x01b\x02c", group="g", request_id="R", retried=0)
    ((read,), unreadable) = read_traces(write_traces([record]))
    assert (read.keys, unreadable) == ("a b c", 0)
