"""The metering record: what is written is read back, and what is none is refused with its cause."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqwire.errors import RemoteProtocolError
from mqwire.metering import (
    ConnectionCounts,
    InRow,
    LagRow,
    MeteringRecord,
    MeteringRecordError,
    OutRow,
    StorageRow,
    UnknownMeteringVersionError,
    decode_metering_record,
    encode_metering_record,
    report_origin,
    units_of,
)

RECORD = MeteringRecord(
    version=1,
    cluster="c",
    broker="broker-a",
    epoch=3,
    sequence=7,
    start_ms=1_000,
    end_ms=61_000,
    start_offset=100,
    end_offset=900,
    recounted=False,
    messages_in=(InRow(topic="orders", credential="AK", kind="delayed", messages=2, bytes=5000, units=3),),
    messages_out=(OutRow(topic="orders", group="g", credential="AK", messages=1, bytes=10, units=1),),
    lag=(LagRow(topic="orders", group="g", queue_id=0, consumer_offset=4, max_offset=6, lag_messages=2, lag_ms=-1),),
    storage=(StorageRow(topic="orders", bytes=4096),),
    connections=ConnectionCounts(producers=1, consumers=2),
)

AS_JSON: dict[str, Any] = {
    "version": 1,
    "cluster": "c",
    "broker": "broker-a",
    "epoch": 3,
    "sequence": 7,
    "start_ms": 1000,
    "end_ms": 61000,
    "start_offset": 100,
    "end_offset": 900,
    "recounted": False,
    "in": [{"topic": "orders", "credential": "AK", "kind": "delayed", "messages": 2, "bytes": 5000, "units": 3}],
    "out": [{"topic": "orders", "group": "g", "credential": "AK", "messages": 1, "bytes": 10, "units": 1}],
    "lag": [
        {
            "topic": "orders",
            "group": "g",
            "queue_id": 0,
            "consumer_offset": 4,
            "max_offset": 6,
            "lag_messages": 2,
            "lag_ms": -1,
        }
    ],
    "storage": [{"topic": "orders", "bytes": 4096}],
    "connections": {"producers": 1, "consumers": 2},
}


def changed(**members: object) -> bytes:
    return json.dumps({**AS_JSON, **members}).encode()


def without(member: str) -> bytes:
    return json.dumps({name: value for name, value in AS_JSON.items() if name != member}).encode()


def test_a_record_is_written_with_exactly_these_members() -> None:
    assert json.loads(encode_metering_record(RECORD)) == AS_JSON


def test_a_record_is_read_back() -> None:
    assert decode_metering_record(encode_metering_record(RECORD)) == RECORD


def test_who_reported_pulls_is_written_only_where_someone_did() -> None:
    (row,) = RECORD.messages_out
    reported = msgspec.structs.replace(row, origin=report_origin(1, 77))
    record = msgspec.structs.replace(RECORD, messages_out=(row, reported))
    first, second = json.loads(encode_metering_record(record))["out"]
    assert ("origin" in first, second["origin"]) == (False, "report-1-77")
    assert decode_metering_record(encode_metering_record(record)) == record


def test_what_retention_took_is_written_only_where_it_took_something() -> None:
    assert decode_metering_record(changed(deleted_to=300)).deleted_to == 300
    assert decode_metering_record(changed()).deleted_to is None


def test_a_record_is_known_by_cluster_broker_epoch_and_sequence() -> None:
    assert RECORD.key == ("c", "broker-a", 3, 7)


def test_members_that_are_not_known_are_ignored() -> None:
    assert decode_metering_record(changed(colour="red")) == RECORD


def test_another_version_is_distinguished_from_a_broken_record() -> None:
    with pytest.raises(UnknownMeteringVersionError, match="version 2: this program reads version 1") as raised:
        decode_metering_record(b'{"version": 2, "everything": "else"}')
    assert raised.value.version == 2


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "version"),
        (changed(version="1"), "version"),
        (changed(version=0), "version"),
        (changed(epoch=-1), "epoch"),
        (changed(sequence=0), "sequence"),
        (changed(end_offset=99), "end_offset 99 is below start_offset 100"),
        (changed(end_offset=2**63), "end_offset"),
        (changed(cluster=""), "cluster"),
        (changed(recounted=1), "recounted"),
        (changed(**{"in": [{**AS_JSON["in"][0], "kind": "odd"}]}), r"\.in\[0\]\.kind"),
        (changed(**{"in": [{**AS_JSON["in"][0], "messages": 1.5}]}), r"\.in\[0\]\.messages"),
        (changed(lag=[{**AS_JSON["lag"][0], "lag_ms": -2}]), r"\.lag\[0\]\.lag_ms"),
        *((without(member), member) for member in AS_JSON),
        (b"[" * 100_000, "recursion|Expected"),
    ],
)
def test_what_is_no_record_is_refused_with_its_cause(body: bytes, cause: str) -> None:
    with pytest.raises(MeteringRecordError, match=cause):
        decode_metering_record(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_remote_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_metering_record(body)


@pytest.mark.parametrize(("body_bytes", "units"), [(0, 1), (1, 1), (4096, 1), (4097, 2), (8192, 2), (4_194_304, 1024)])
def test_a_unit_is_a_begun_block_of_four_kibibytes(body_bytes: int, units: int) -> None:
    assert units_of(body_bytes) == units
