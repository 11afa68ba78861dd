"""Messages become records, or go to the quarantine with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqwire.metering import MeteringRecordError, decode_metering_record, encode_metering_record
from tests.spark_etl.metering import CLUSTER, NOW, behind, delivered, read_rows, record, sent, utc

GOOD = record(
    "2026-11-21 13:05",
    7,
    messages_in=[sent(), sent(kind="delayed", credential="")],
    messages_out=[delivered()],
    lag=[behind(3, -1)],
)
BODY: dict[str, Any] = json.loads(encode_metering_record(GOOD))


def changed(**members: Any) -> bytes:
    return json.dumps({**BODY, **members}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in BODY.items() if key != name}).encode()


def row_changed(rows: str, **members: Any) -> bytes:
    return changed(**{rows: [{**BODY[rows][0], **members}]})


def row_without(rows: str, name: str) -> bytes:
    return changed(**{rows: [{key: value for key, value in BODY[rows][0].items() if key != name}]})


BAD = [
    b"",
    b"hello",
    b"[1, 2]",
    b'{"version": 1',
    b"\xff\xfe{}",
    changed(version=2),
    without("version"),
    changed(sequence="7"),
    changed(end_offset=2**63),
    changed(sequence=0),
    changed(cluster="c" * 256),
    changed(storage=[{"topic": "orders"}]),
    row_changed("in", kind="urgent"),
    row_changed("lag", lag_ms=-2),
    row_without("out", "units"),
    without("connections"),
]


def reasons(*bodies: bytes) -> list[str | None]:
    return [row["refused"] and row["refused"]["reason"] for row in read_rows(bodies)]


def test_what_the_codec_refuses_is_quarantined_in_the_codecs_words() -> None:
    expected = []
    for body in BAD:
        with pytest.raises(MeteringRecordError) as refused:
            decode_metering_record(body)
        expected.append(str(refused.value))
    assert reasons(*BAD) == expected


def test_what_the_codec_takes_is_taken() -> None:
    good = [
        encode_metering_record(GOOD),
        json.dumps(BODY, indent=2).encode(),
        changed(of_the_future={"nested": [1, 2]}),
        row_changed("in", of_the_future=1),
        changed(deleted_to=5),
        changed(**{"in": [], "out": [], "lag": [], "storage": []}),
        changed(sequence=2**63 - 1),
    ]
    assert reasons(*good) == [None] * len(good)
    assert [row["record"]["sequence"] for row in read_rows(good)] == [7] * 6 + [2**63 - 1]


def test_a_record_of_another_cluster_is_quarantined() -> None:
    assert reasons(changed(cluster="theirs")) == ["a record of cluster theirs in the log of orders-cluster"]


def test_a_record_that_ends_before_it_begins_is_quarantined() -> None:
    assert reasons(changed(end_ms=5)) == ["end_ms is before start_ms"]


def test_a_future_dated_record_is_quarantined() -> None:
    hour_ahead, minutes_ahead = record("2026-11-21 21:00"), record("2026-11-21 20:10")
    assert sorted(reasons(*map(encode_metering_record, [hour_ahead, minutes_ahead])), key=str) == [
        None,
        "future-dated by 3660 s: correct the broker's clock",
    ]


def test_a_good_record_keeps_everything() -> None:
    (row,) = read_rows([encode_metering_record(GOOD)])
    kept = row["record"]
    assert (row["cluster"], kept["broker"], kept["epoch"], kept["sequence"], kept["recounted"]) == (
        *(CLUSTER, "broker-a", 1, 7, False),
    )
    assert (kept["start"], kept["end_ms"] - kept["start_ms"]) == (utc("2026-11-21 13:05"), 60_000)
    assert [kept[name] for name in ("messages_in", "messages_out", "lag", "connections")] == [
        BODY[name] for name in ("in", "out", "lag", "connections")
    ]


def test_the_quarantine_keeps_the_message_as_it_was() -> None:
    _, row = read_rows([encode_metering_record(GOOD), b"\xffbroken"])
    kept = row["refused"]
    assert (kept["body"], kept["queue_offset"], kept["broker_name"]) == (b"\xffbroken", 1, "broker-a")
    assert (kept["ingested_at"], row["cluster"], row["record"]) == (NOW, CLUSTER, None)
