"""Messages become records, or go to the quarantine with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mqwire.metering import MeteringRecordError, decode_metering_record, encode_metering_record
from spark_etl.transforms.metering_schema import LAKE_RECORD, QUARANTINE_ROW
from spark_etl.transforms.parse import quarantined, records
from tests.spark_etl.metering import CLUSTER, behind, delivered, parsed, record, sent

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


# What the codec refuses, and the words that the quarantine must have for it.
BAD = {
    b"": "not a JSON object",
    b"hello": "not a JSON object",
    b"[1, 2]": "not a JSON object",
    b'"text"': "not a JSON object",
    b"{}": "not a JSON object",
    b'{"version": 1': "JSON",
    b"\xff\xfe{}": "not UTF-8",
    changed(version=2): "unknown version 2",
    changed(version=99, surprise=True): "unknown version 99",
    changed(version=0): "unknown version 0",
    without("version"): "version is missing",
    changed(version="1"): "wrong type",
    changed(sequence="7"): "wrong type",
    changed(sequence=1.5): "wrong type",
    changed(end_offset=2**63): "wrong type",
    changed(sequence=0): "sequence is below 1",
    changed(epoch=-1): "epoch is below 0",
    changed(start_offset=-1): "start_offset is below 0",
    changed(deleted_to=-1): "deleted_to is below 0",
    changed(end_offset=0): "end_offset is below start_offset",
    changed(broker=""): "name is empty or too long",
    changed(cluster="c" * 256): "name is empty or too long",
    changed(**{"in": {"topic": "orders"}}): "wrong type",
    changed(storage=[{"topic": "orders"}]): "row of storage",
    changed(connections={"producers": 1}): "connections",
    changed(connections={"producers": -1, "consumers": 0}): "connections",
    changed(**{"in": [None]}): "row of in",
    row_changed("in", kind="urgent"): "row of in",
    row_changed("in", messages=-1): "row of in",
    row_changed("in", topic=""): "row of in",
    row_changed("out", group=""): "row of out",
    row_changed("lag", lag_ms=-2): "row of lag",
    row_changed("lag", queue_id=-1): "row of lag",
    row_without("in", "credential"): "row of in",
    row_without("out", "units"): "row of out",
    row_without("lag", "max_offset"): "row of lag",
    **{
        without(name): f"{name} is missing"
        for name in ("cluster", "broker", "epoch", "sequence", "start_ms", "end_ms", "start_offset", "end_offset")
    },
    **{without(name): f"{name} is missing" for name in ("recounted", "in", "out", "lag", "storage", "connections")},
}


def test_what_the_codec_refuses_is_quarantined_with_the_reason(spark: SparkSession) -> None:
    for body in BAD:
        with pytest.raises(MeteringRecordError):
            decode_metering_record(body)
    rows = parsed(spark, BAD).collect()
    assert [row.reason and expected in row.reason for row, expected in zip(rows, BAD.values(), strict=True)] == [
        True
    ] * len(BAD), [(row.reason, expected) for row, expected in zip(rows, BAD.values(), strict=True)]


def test_what_the_codec_takes_is_taken(spark: SparkSession) -> None:
    good = [
        encode_metering_record(GOOD),
        changed(of_the_future={"nested": [1, 2]}),
        row_changed("in", of_the_future=1),
        changed(deleted_to=5),
        changed(**{"in": [], "out": [], "lag": [], "storage": []}),
        changed(sequence=2**63 - 1),
    ]
    for body in good:
        decode_metering_record(body)
    frame = parsed(spark, good)
    assert [row.reason for row in frame.collect()] == [None] * len(good)
    assert records(frame).count() == len(good)


def test_a_record_of_another_cluster_is_quarantined(spark: SparkSession) -> None:
    reason = parsed(spark, [changed(cluster="theirs")]).collect()[0].reason
    assert reason == "a record of cluster theirs in the log of orders-cluster"


def test_a_record_that_ends_before_it_begins_is_quarantined(spark: SparkSession) -> None:
    assert parsed(spark, [changed(end_ms=5)]).collect()[0].reason == "end_ms is before start_ms"


def test_a_future_dated_record_is_quarantined(spark: SparkSession) -> None:
    hour_ahead, minutes_ahead = record("2026-11-21 21:00"), record("2026-11-21 20:10")
    reasons = [row.reason for row in parsed(spark, map(encode_metering_record, [hour_ahead, minutes_ahead])).collect()]
    assert reasons == ["future-dated by 3660 s: correct the broker's clock", None]


def test_a_good_record_keeps_everything(spark: SparkSession) -> None:
    frame = records(parsed(spark, [encode_metering_record(GOOD)]))
    assert [(field.name, field.dataType) for field in frame.schema] == [
        (field.name, field.dataType) for field in LAKE_RECORD
    ]
    row = frame.collect()[0]
    assert (row.cluster, row.broker, row.epoch, row.sequence, row.recounted) == (CLUSTER, "broker-a", 1, 7, False)
    assert (row.date, row.hour, row.end_ms - row.start_ms) == ("2026-11-21", 13, 60_000)
    assert [one.asDict() for one in row.messages_in] == BODY["in"]
    assert [one.asDict() for one in row.messages_out] == BODY["out"]
    assert [one.asDict() for one in row.lag] == BODY["lag"]
    assert row.connections.asDict() == BODY["connections"]


def test_the_quarantine_keeps_the_message_as_it_was(spark: SparkSession) -> None:
    frame = quarantined(parsed(spark, [encode_metering_record(GOOD), b"\xffbroken"]))
    assert frame.columns == QUARANTINE_ROW.names
    rows = frame.collect()
    assert len(rows) == 1
    assert (bytes(rows[0].body), rows[0].queue_offset, rows[0].broker_name) == (b"\xffbroken", 1, "broker-a")
    assert (rows[0].date, rows[0].cluster) == ("2026-11-21", CLUSTER)
