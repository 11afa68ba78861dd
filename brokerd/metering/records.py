"""From counted intervals to messages on RMQ_SYS_METERING, and back to where counting goes on."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from brokerd.metering.journal import IntervalKey
from brokerd.metering.meter import Interval
from brokerd.store import GetMessageStatus, MessageStore, MessageToStore, StoreError
from mqwire.errors import RemoteProtocolError
from mqwire.message import StoredMessage, decode_record, decode_records
from mqwire.metering import (
    METERING_VERSION,
    ConnectionCounts,
    InRow,
    LagRow,
    MeteringRecord,
    MeteringRecordError,
    OutRow,
    StorageRow,
    decode_metering_record,
    encode_metering_record,
    record_origin,
)
from mqwire.names import RMQ_SYS_METERING

logger = logging.getLogger(__name__)

_QUEUE_ID: Final = 0
_ENTRY: Final = struct.Struct(">qi8x")  # of a ConsumeQueue: physical offset, size, tags code
_NO_RECORD: Final = 2**31 - 1  # the size of an entry that stands for none
_NO_ROWS_BYTES: Final = 2048  # a record without rows; names have at most 255 bytes
_ROWS_BYTES_MIN: Final = 1024  # the longest row alone
_Row: TypeAlias = InRow | OutRow | LagRow | StorageRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What is looked up at the end of an interval."""

    connections: ConnectionCounts
    lag: tuple[LagRow, ...] = ()
    storage: tuple[StorageRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """How far the log is counted: up to `end_offset`, and of what follows there `rows`, which lie in front of `rows_to`.

    There are such rows when the records of one interval were torn apart by a crash or a promotion.
    """

    end_offset: int
    epoch: int
    sequence: int
    end_ms: int
    rows: tuple[InRow, ...] = ()
    rows_to: int = 0


def records_of(
    interval: Interval,
    samples: Samples,
    *,
    cluster: str,
    broker: str,
    epoch: int,
    first_sequence: int,
    max_bytes: int,
    pulls_lost_ms: int = 0,
) -> list[MeteringRecord]:
    """The interval as records of at most `max_bytes` each; all but the last are without an offset range."""
    groups = list(_packed(interval, samples, max(max_bytes - _NO_ROWS_BYTES, _ROWS_BYTES_MIN)))
    last = len(groups) - 1
    return [
        MeteringRecord(
            version=METERING_VERSION,
            cluster=cluster,
            broker=broker,
            epoch=epoch,
            sequence=first_sequence + number,
            start_ms=interval.start_ms,
            end_ms=interval.end_ms,
            start_offset=interval.start_offset,
            end_offset=interval.end_offset if number == last else interval.start_offset,
            recounted=interval.recounted,
            messages_in=tuple(row for row in rows if isinstance(row, InRow)),
            messages_out=tuple(row for row in rows if isinstance(row, OutRow)),
            lag=tuple(row for row in rows if isinstance(row, LagRow)),
            storage=tuple(row for row in rows if isinstance(row, StorageRow)),
            connections=samples.connections,
            deleted_to=interval.deleted_to,
            clock_step_ms=interval.clock_step_ms,
            pulls_lost_ms=pulls_lost_ms if number == last else 0,
        )
        for number, rows in enumerate(groups)
    ]


def _packed(interval: Interval, samples: Samples, max_bytes: int) -> Iterator[list[_Row]]:
    encode = msgspec.json.Encoder().encode
    rows: list[_Row] = []
    size = 0
    all_rows: tuple[_Row, ...] = (*interval.messages_in, *interval.messages_out, *samples.lag, *samples.storage)
    for row in all_rows:
        row_bytes = len(encode(row)) + 1
        if rows and size + row_bytes > max_bytes:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += row_bytes
    yield rows


def message_of(record: MeteringRecord, store_host: bytes) -> MessageToStore:
    """The message to append; its sender is the broker itself."""
    body = encode_metering_record(record)
    return MessageToStore(
        RMQ_SYS_METERING, _QUEUE_ID, 0, 0, record.end_ms, store_host, 0, 0, body, b"WAIT\x01true\x02", 0
    )


def last_recorded(store: MessageStore) -> Recorded | None:
    """How far the log that readers see is counted; None when no record is left.

    Raises MeteringRecordError when the last record cannot be read: what follows it would be counted twice or not at all.
    """
    offset = store.max_offset(RMQ_SYS_METERING, _QUEUE_ID) - 1
    found = _record_at(store, offset)
    if found is None:
        return None
    message, last = found
    rows: list[InRow] = []
    part = last
    while part.end_offset == part.start_offset:
        rows += part.messages_in
        offset -= 1
        found = _record_at(store, offset)
        if found is None or not _of_one_interval(found[1], last):
            break
        part = found[1]
    return Recorded(
        end_offset=last.end_offset,
        epoch=last.epoch,
        sequence=last.sequence,
        end_ms=last.end_ms,
        rows=tuple(rows),
        rows_to=message.physical_offset if rows else 0,
    )


def _of_one_interval(part: MeteringRecord, last: MeteringRecord) -> bool:
    return (
        (part.epoch, part.start_offset, part.start_ms, part.end_ms)
        == (last.epoch, last.start_offset, last.start_ms, last.end_ms)
    ) and part.end_offset == part.start_offset


def _record_at(store: MessageStore, offset: int) -> tuple[StoredMessage, MeteringRecord] | None:
    if offset < store.min_offset(RMQ_SYS_METERING, _QUEUE_ID):
        return None
    result = store.get_messages(RMQ_SYS_METERING, _QUEUE_ID, offset, 1, 1)
    if result.status is not GetMessageStatus.FOUND:
        return None
    (message,) = decode_records(b"".join(result.chunks))
    try:
        return message, decode_metering_record(message.body)
    except MeteringRecordError as error:
        raise MeteringRecordError(f"{RMQ_SYS_METERING}, offset {offset}: {error}") from error


def origins_recorded(store: MessageStore, to_offset: int, count: int) -> set[str]:
    """Whose pulls are in the last `count` records before queue offset `to_offset`, confirmed or not."""
    records = _records_backwards(store, to_offset, count)
    return {row.origin for _, record in records for row in record.messages_out if row.origin}


def intervals_recorded(store: MessageStore, to_offset: int, count: int) -> set[IntervalKey]:
    """Which intervals the last `count` records before queue offset `to_offset` cover, confirmed or not."""
    return {
        (record.epoch, record.start_ms)
        for _, record in _records_backwards(store, to_offset, count)
        if not record.recounted
    }


def pulls_recorded_from(
    store: MessageStore, physical_offset: int, written_by: tuple[str, int], count: int
) -> list[OutRow]:
    """What the records from `physical_offset` on say was pulled, each row with its origin; of at most `count` records.

    Only of those that the broker at `written_by`, (ip, port), wrote: each leader reports its own again.
    """
    found: list[OutRow] = []
    end = store.queue_end_offset(RMQ_SYS_METERING, _QUEUE_ID) or 0
    for message, record in _records_backwards(store, end, count):
        if message.physical_offset < physical_offset:
            break
        if message.born_host == written_by:
            origin = record_origin(record.epoch, record.sequence)
            found += (msgspec.structs.replace(row, origin=row.origin or origin) for row in record.messages_out)
    return found


def _records_backwards(
    store: MessageStore, to_offset: int, count: int
) -> Iterator[tuple[StoredMessage, MeteringRecord]]:
    """The last records in front of a queue offset, newest first, beyond confirmOffset too; what cannot be read is left out."""
    first = max(to_offset - count, store.min_offset(RMQ_SYS_METERING, _QUEUE_ID), 0)
    entries = store.index_entries(RMQ_SYS_METERING, _QUEUE_ID, first, max(to_offset - first, 0))
    for position, size in reversed(list(_ENTRY.iter_unpack(entries))):
        if size == _NO_RECORD:
            break
        try:
            message = decode_record(memoryview(store.read_raw(position, size)))
            yield message, decode_metering_record(message.body)
        except (StoreError, RemoteProtocolError) as error:
            logger.error("a metering record, at %d, cannot be looked through: %s", position, error)
