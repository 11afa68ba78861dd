"""Trace records: what clients with tracing on write of their messages to RMQ_SYS_TRACE_TOPIC, or a topic of their own.

The body of such a message is text: records that end in U+0002, with fields that end in U+0001. Its keys are the ids (UNIQ_KEY) and
keys of the messages that it is about, so that the index finds it.

    Pub             time, region, group, topic, id, tags, keys, store host, body length, cost, type, offset id, success
                    [, client host]
    SubBefore       time, region, group, request id, id, times retried, keys[, client host]
    SubAfter        request id, id, cost, success, keys, code[, time, group]
    EndTransaction  time, region, group, topic, id, tags, keys, store host, type, transaction id, state, from check
    Recall          time, region, group, topic, id, success

Source: TraceDataEncoder of 5.x, internal/trace.go of the Go client. Java writes `null` for a text that it has not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from mqwire.errors import RemoteProtocolError

_FIELD_END = "\x01"
_RECORD_END = "\x02"
# Clients send what they have collected once it reaches 128,000 characters, of records of a hundred and more; Java's adds what it
# has of one more batch, of up to 1,024 messages, before it looks.
RECORDS_MAX = 2_500
# Clients collect by topic; our own puts a hundred records of any into one message.
SUBJECTS_MAX = 256
_FIELDS_MAX = 16


class TraceKind(Enum):
    """What a record is about."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


_FEWEST_FIELDS: Final = {"Pub": 13, "SubBefore": 7, "SubAfter": 6, "EndTransaction": 12, "Recall": 7}
_SUBJECT_AT: Final = {"SubBefore": 3, "SubAfter": 8}  # the group; the topic of others is the fourth


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One record. What its kind does not have is empty, or None; all of it is the client's own word.

    `code` is ConsumeReturnType's: 0 success, 1 time-out, 2 exception, 3 returned nothing, 4 failed. `request_id` joins
    SubBefore and SubAfter; `cost_ms` is the time until the answer, or of the handler.
    """

    kind: TraceKind
    message_id: str
    timestamp_ms: int | None = None
    region: str = ""
    group: str = ""
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    body_size_bytes: int | None = None
    cost_ms: int | None = None
    message_type: int | None = None
    offset_message_id: str = ""
    is_success: bool | None = None
    request_id: str = ""
    retried: int | None = None
    code: int | None = None
    transaction_id: str = ""
    transaction_state: str = ""


def read_traces(body: bytes, *, about: str = "") -> tuple[list[TraceRecord], int]:
    """The records of a trace message, and how many there could not be read; with `about` those only that name this id.

    What follows the first RECORDS_MAX records counts as one that could not be read, so that no body is costly to read.
    """
    records = []
    unreadable = 0
    texts = body.decode("utf-8", "replace").split(_RECORD_END, RECORDS_MAX)
    if len(texts) > RECORDS_MAX and texts.pop():
        unreadable += 1
    for text in texts:
        if not text or about not in text:
            continue
        try:
            records.append(_record(text.split(_FIELD_END, _FIELDS_MAX)))
        except (ValueError, IndexError):
            unreadable += 1
    return records, unreadable


class TraceSubject(NamedTuple):
    """What a record is about: the topic that was sent to or, of a delivery, the group. Clients before 5.0 name none for its end."""

    kind: TraceKind
    name: str


def trace_subjects(body: bytes) -> set[TraceSubject] | None:
    """What the records of a trace message are about, each once; None when one of them is no record. Numbers and times are not read.

    Raises RemoteProtocolError for more records, or more that they are about, than clients send: so that no body is costly.
    """
    texts = body.decode("utf-8", "replace").split(_RECORD_END, RECORDS_MAX)
    if len(texts) > RECORDS_MAX and texts.pop():
        raise RemoteProtocolError(f"a message takes at most {RECORDS_MAX} trace records: send them in several")
    subjects: set[tuple[str, str]] = set()
    for text in texts:
        if not text:
            continue
        fields = text.split(_FIELD_END, _FIELDS_MAX)
        kind = fields[0]
        if len(fields) < _FEWEST_FIELDS.get(kind, _FIELDS_MAX + 2):
            return None
        place = _SUBJECT_AT.get(kind, 4)
        subjects.add((kind, fields[place] if len(fields) > place else ""))
    if len(subjects) > SUBJECTS_MAX:
        raise RemoteProtocolError(
            f"the trace records of a message are about at most {SUBJECTS_MAX} topics and groups: send them in several"
        )
    return {TraceSubject(TraceKind(kind), _text(name)) for kind, name in subjects}


def write_traces(records: Iterable[TraceRecord]) -> bytes:
    """The body of a trace message with these records: Pub, SubBefore and SubAfter, as Java's client writes them."""
    return "".join(_FIELD_END.join(_fields(record)) + _RECORD_END for record in records).encode()


def _record(fields: list[str]) -> TraceRecord:
    """Raises ValueError or IndexError for what is no record."""
    kind = TraceKind(fields[0])
    if kind is TraceKind.SUB_AFTER:
        return TraceRecord(
            kind,
            request_id=_text(fields[1]),
            message_id=_text(fields[2]),
            cost_ms=_number(fields[3]),
            is_success=fields[4] == "true",
            keys=_text(fields[5]),
            code=_number(fields[6]) if len(fields) > 6 else None,
            timestamp_ms=_number(fields[7]) if len(fields) > 7 else None,
            group=_text(fields[8]) if len(fields) > 8 else "",
        )
    timestamp_ms, region, group = _number(fields[1]), _text(fields[2]), _text(fields[3])
    if kind is TraceKind.SUB_BEFORE:
        return TraceRecord(
            kind,
            timestamp_ms=timestamp_ms,
            region=region,
            group=group,
            request_id=_text(fields[4]),
            message_id=_text(fields[5]),
            retried=_number(fields[6]),
            keys=_text(fields[7]) if len(fields) > 7 else "",
            client_host=_text(fields[8]) if len(fields) > 8 else "",
        )
    topic, message_id = _text(fields[4]), _text(fields[5])
    if kind is TraceKind.RECALL:
        return TraceRecord(
            kind,
            timestamp_ms=timestamp_ms,
            region=region,
            group=group,
            topic=topic,
            message_id=message_id,
            is_success=fields[6] == "true",
        )
    tags, keys, store_host = _text(fields[6]), _text(fields[7]), _text(fields[8])
    if kind is TraceKind.END_TRANSACTION:
        return TraceRecord(
            kind,
            timestamp_ms=timestamp_ms,
            region=region,
            group=group,
            topic=topic,
            message_id=message_id,
            tags=tags,
            keys=keys,
            store_host=store_host,
            message_type=_number(fields[9]),
            transaction_id=_text(fields[10]),
            transaction_state=_text(fields[11]),
        )
    # Clients before 4.4 send no offset id.
    has_offset_id = len(fields) > 13
    return TraceRecord(
        kind,
        timestamp_ms=timestamp_ms,
        region=region,
        group=group,
        topic=topic,
        message_id=message_id,
        tags=tags,
        keys=keys,
        store_host=store_host,
        body_size_bytes=_number(fields[9]),
        cost_ms=_number(fields[10]),
        message_type=_number(fields[11]),
        offset_message_id=_text(fields[12]) if has_offset_id else "",
        is_success=fields[13 if has_offset_id else 12] == "true",
        client_host=_text(fields[14]) if len(fields) > 14 else "",
    )


def _fields(record: TraceRecord) -> list[str]:
    head = [record.kind.value]
    match record.kind:
        case TraceKind.PUB:
            rest: list[object] = [
                record.timestamp_ms,
                record.region,
                record.group,
                record.topic,
                record.message_id,
                record.tags,
                record.keys,
                record.store_host,
                record.body_size_bytes,
                record.cost_ms,
                record.message_type,
                record.offset_message_id,
                record.is_success,
            ]
        case TraceKind.SUB_BEFORE:
            rest = [
                record.timestamp_ms,
                record.region,
                record.group,
                record.request_id,
                record.message_id,
                record.retried,
                record.keys,
            ]
        case TraceKind.SUB_AFTER:
            rest = [
                record.request_id,
                record.message_id,
                record.cost_ms,
                record.is_success,
                record.keys,
                record.code,
                record.timestamp_ms,
                record.group,
            ]
        case _:
            raise ValueError(f"{record.kind.value} records are not written here")
    return head + [_written(value) for value in rest]


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = "null" if value in (None, "") else str(value)
    return text.replace(_FIELD_END, " ").replace(_RECORD_END, " ")


def _text(field: str) -> str:
    return "" if field == "null" else field


def _number(field: str) -> int:
    """Raises ValueError for what is no 64-bit number."""
    if len(field) > 20:
        raise ValueError("too long for a number")
    return int(field)
