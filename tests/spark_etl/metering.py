"""Metering records with known content, as messages and as frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from highwater import MessageQueue
from mqwire.metering import (
    ConnectionCounts,
    InRow,
    LagRow,
    MessageKind,
    MeteringRecord,
    OutRow,
    StorageRow,
    encode_metering_record,
)
from mqwire.names import RMQ_SYS_METERING
from spark_etl.jobs.metering_reader import columns_of
from spark_etl.transforms.metering_schema import LAKE_RECORD
from spark_etl.transforms.time import to_ms

CLUSTER = "11111111-1111-4111-8111-111111111111"
OTHER_CLUSTER = "22222222-2222-4222-8222-222222222222"
TENANT = "33333333-3333-4333-8333-333333333333"
NAME = "orders-cluster"
BROKER = "broker-a"


def utc(text: str) -> datetime:
    """A moment in UTC, of text like 2026-11-21 13:00."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = utc("2026-11-21 20:00")


def sent(topic: str = "orders", messages: int = 1, **given: Any) -> InRow:
    """Messages of one unit and 100 bytes each, unless set otherwise."""
    kind: MessageKind = given.pop("kind", "normal")
    values = {"credential": "key-1", "bytes": messages * 100, "units": messages, **given}
    return InRow(topic=topic, kind=kind, messages=messages, **values)


def delivered(topic: str = "orders", group: str = "workers", messages: int = 1, **given: Any) -> OutRow:
    values = {"credential": "key-2", "bytes": messages * 100, "units": messages, **given}
    return OutRow(topic=topic, group=group, messages=messages, **values)


@dataclass(frozen=True)
class Stored:
    """What the reader looks at of a message."""

    body: bytes
    queue: MessageQueue
    queue_offset: int
    store_timestamp_ms: int


def behind(lag_messages: int, lag_ms: int = 0, *, offset: int = 0, **given: Any) -> LagRow:
    """One queue of group "workers" on "orders", so far behind, at `offset`."""
    values = {"topic": "orders", "group": "workers", "queue_id": 0, **given}
    return LagRow(
        consumer_offset=offset, max_offset=offset + lag_messages, lag_messages=lag_messages, lag_ms=lag_ms, **values
    )


def record(
    start: str | datetime,
    sequence: int = 1,
    *,
    minutes: float = 1,
    messages_in: Sequence[InRow] = (),
    messages_out: Sequence[OutRow] = (),
    lag: Sequence[LagRow] = (),
    storage: Sequence[StorageRow] = (),
    **given: Any,
) -> MeteringRecord:
    """A record of the interval that begins at `start`; its stretch of the log is 1000 bytes at 1000 times its sequence. The
    first one's begins where the log does.
    """
    start_ms = to_ms(utc(start) if isinstance(start, str) else start)
    values = {
        "version": 1,
        "cluster": NAME,
        "broker": BROKER,
        "epoch": 1,
        "start_offset": sequence * 1000 if sequence > 1 else 0,
        "end_offset": sequence * 1000 + 1000,
        "recounted": False,
        **given,
    }
    return MeteringRecord(
        sequence=sequence,
        start_ms=start_ms,
        end_ms=start_ms + int(minutes * 60_000),
        messages_in=tuple(messages_in),
        messages_out=tuple(messages_out),
        lag=tuple(lag),
        storage=tuple(storage),
        connections=ConnectionCounts(producers=1, consumers=1),
        **values,
    )


def message(body: bytes, offset: int = 0) -> Stored:
    """A message of the metering topic."""
    return Stored(body, MessageQueue(RMQ_SYS_METERING, BROKER, 0), offset, to_ms(NOW))


def read_rows(
    bodies: Iterable[bytes], *, begin: int = 0, now: datetime = NOW, cluster: str = CLUSTER
) -> list[dict[str, Any]]:
    """Rows of READ, as the reader makes them of these bodies."""
    messages = [message(body, offset) for offset, body in enumerate(bodies, start=begin)]
    batches = columns_of(messages, cluster_id=cluster, cluster_name=NAME, now_ms=to_ms(now))
    return [row for batch in batches for row in batch.to_pylist()]


def lake_frame(spark: SparkSession, given: Iterable[MeteringRecord], *, now: datetime = NOW) -> DataFrame:
    """Records as they lie in the lake."""
    return lake_frame_of(spark, {CLUSTER: given}, now=now)


def lake_frame_of(
    spark: SparkSession, given: Mapping[str, Iterable[MeteringRecord]], *, now: datetime = NOW
) -> DataFrame:
    """Records by cluster. A query costs Spark a second or more however little it reads: tests put all their cases into one."""
    rows = [
        row
        for cluster, records in given.items()
        for row in read_rows([encode_metering_record(one) for one in records], now=now, cluster=cluster)
    ]
    assert not [row["refused"] for row in rows if row["refused"]]
    records = [{"cluster": row["cluster"], **row["record"]} for row in rows]
    return spark.createDataFrame(records, LAKE_RECORD)
