"""What trace records say of one message: who sent it, who got it when, and with what result. Pure: records in, a story out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mqwire.trace_records import TraceKind, TraceRecord

# ConsumeReturnType, by its number.
_RESULTS = ("success", "time_out", "exception", "returned_null", "failed")
# MessageType, by its number.
_TYPES = ("normal", "transaction_half", "transaction_commit", "delay", "order")


@dataclass(frozen=True, slots=True)
class TracedSend:
    """A send by its producer's word. `address` is the producer's, as its broker saw it; `cost_ms` the time until the answer."""

    at_ms: int | None
    address: str
    group: str
    topic: str
    store_host: str
    cost_ms: int | None
    body_size_bytes: int | None
    message_type: str
    is_success: bool


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """A delivery by its consumer's word. `result` is success, time_out, exception, returned_null or failed; empty when no record
    is about its end: the handler is at work, or its process died. `cost_ms` is the handler's time.
    """

    began_ms: int | None
    address: str
    group: str
    retried: int | None
    cost_ms: int | None
    result: str


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """How a producer ended a transaction: its word, such as COMMIT_MESSAGE."""

    at_ms: int | None
    address: str
    group: str
    state: str


@dataclass(frozen=True, slots=True)
class TraceStory:
    """All that trace records say of a message, oldest first."""

    sends: tuple[TracedSend, ...] = ()
    deliveries: tuple[TracedDelivery, ...] = ()
    transactions: tuple[TracedTransaction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sends or self.deliveries or self.transactions)


def trace_story(message_id: str, records: Iterable[tuple[str, TraceRecord]]) -> TraceStory:
    """Return what the records say of the message with this client's id (UNIQ_KEY). `records` has each with its client's address.

    A record that came twice, as a trace message that was sent again, counts once.
    """
    mine = dict.fromkeys((address, record) for address, record in records if message_id in record.message_id.split(","))
    begins: dict[tuple[str, str], tuple[str, TraceRecord]] = {}
    ends: dict[tuple[str, str], tuple[str, TraceRecord]] = {}
    for address, record in mine:
        # Clients of different hosts could make the same request id.
        if record.kind is TraceKind.SUB_BEFORE:
            begins[address, record.request_id] = address, record
        elif record.kind is TraceKind.SUB_AFTER:
            ends[address, record.request_id] = address, record
    deliveries = [_delivery(begins.get(key), ends.get(key)) for key in {**begins, **ends}]
    sends = [_send(address, record) for address, record in mine if record.kind is TraceKind.PUB]
    transactions = [
        TracedTransaction(record.timestamp_ms, address, record.group, record.transaction_state)
        for address, record in mine
        if record.kind is TraceKind.END_TRANSACTION
    ]
    return TraceStory(
        tuple(sorted(sends, key=lambda one: one.at_ms or 0)),
        tuple(sorted(deliveries, key=lambda one: one.began_ms or 0)),
        tuple(sorted(transactions, key=lambda one: one.at_ms or 0)),
    )


def _send(address: str, record: TraceRecord) -> TracedSend:
    return TracedSend(
        at_ms=record.timestamp_ms,
        address=address or record.client_host,
        group=record.group,
        topic=record.topic,
        store_host=record.store_host,
        cost_ms=record.cost_ms,
        body_size_bytes=record.body_size_bytes,
        message_type=_word(_TYPES, record.message_type),
        is_success=bool(record.is_success),
    )


def _delivery(begin: tuple[str, TraceRecord] | None, end: tuple[str, TraceRecord] | None) -> TracedDelivery:
    some = begin or end
    assert some is not None, "a delivery has one of both"
    address, record = some
    ended = None if end is None else end[1]
    began_ms = record.timestamp_ms
    if begin is None and began_ms is not None and record.cost_ms is not None:
        began_ms -= record.cost_ms
    return TracedDelivery(
        began_ms=began_ms,
        address=address or record.client_host,
        group=record.group,
        retried=None if begin is None else begin[1].retried,
        cost_ms=None if ended is None else ended.cost_ms,
        result="" if ended is None else _result(ended),
    )


def _result(record: TraceRecord) -> str:
    if record.code in (None, 0):
        return "success" if record.is_success else "failed"
    return _word(_RESULTS, record.code)


def _word(words: tuple[str, ...], number: int | None) -> str:
    return words[number] if number is not None and 0 <= number < len(words) else "" if number is None else str(number)
