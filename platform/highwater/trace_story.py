"""What trace records say of one message: who sent it, who got it when, and with what result. Pure: records in, a story out.

Records are the word of whoever wrote them. Brokers check that a key may send to the topic, or receive in the group, that a record
names; which message it names, no one can check. So a story says what speaks against a record: an address that is not the message's,
and an end of a delivery that names no group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mqwire.trace_records import TraceKind, TraceRecord

# ConsumeReturnType, by its number.
_RESULTS = ("success", "time_out", "exception", "returned_null", "failed")
# MessageType, by its number.
_TYPES = ("normal", "transaction_half", "transaction_commit", "delay", "order")


# The client's address, its request id, and the consumer group.
_Delivery = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class TracedSend:
    """A send by its producer's word. `address` is the producer's, as its broker saw it; `cost_ms` the time until the answer.

    `is_from_sender` says whether the message itself came from that address; None: the caller did not say from which it came.
    """

    at_ms: int | None
    address: str
    group: str
    topic: str
    store_host: str
    cost_ms: int | None
    body_size_bytes: int | None
    message_type: str
    is_success: bool
    is_from_sender: bool | None = None


@dataclass(frozen=True, slots=True)
class TracedDelivery:
    """A delivery by its consumer's word. `result` is success, time_out, exception, returned_null or failed; empty when no record
    is about its end: the handler is at work, or its process died. `cost_ms` is the handler's time.

    `end_names_group` is False where the record of its end names no group, as those of old clients: then whoever may receive in some
    group could have written it, at this address.
    """

    began_ms: int | None
    address: str
    group: str
    retried: int | None
    cost_ms: int | None
    result: str
    end_names_group: bool = True


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """How a producer ended a transaction: its word, such as COMMIT_MESSAGE. `is_from_sender` as for a send."""

    at_ms: int | None
    address: str
    group: str
    state: str
    is_from_sender: bool | None = None


@dataclass(frozen=True, slots=True)
class TraceStory:
    """All that trace records say of a message, oldest first."""

    sends: tuple[TracedSend, ...] = ()
    deliveries: tuple[TracedDelivery, ...] = ()
    transactions: tuple[TracedTransaction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sends or self.deliveries or self.transactions)


def trace_story(
    message_id: str, records: Iterable[tuple[str, TraceRecord]], *, sender: str | None = None
) -> TraceStory:
    """Return what the records say of the message with this client's id (UNIQ_KEY). `records` has each with its client's address;
    `sender` is the address from which the message came, as its broker saw it.

    A record that came twice, as a trace message that was sent again, counts once.
    """
    mine = dict.fromkeys((address, record) for address, record in records if message_id in record.message_id.split(","))
    # Clients of different hosts could make the same request id, and programs of one host take that of another group.
    begins: dict[_Delivery, tuple[str, TraceRecord]] = {}
    ends: dict[_Delivery, tuple[str, TraceRecord]] = {}
    for address, record in mine:
        if record.kind is TraceKind.SUB_BEFORE:
            begins[address, record.request_id, record.group] = address, record
        elif record.kind is TraceKind.SUB_AFTER:
            ends[address, record.request_id, record.group] = address, record
    for key in [key for key in ends if not key[2]]:
        open_ones = [begin for begin in begins if begin[:2] == key[:2] and begin not in ends]
        if len(open_ones) == 1:  # of several it can't be said which: it is a delivery of its own
            ends[open_ones[0]] = ends.pop(key)
    deliveries = [_delivery(begins.get(key), ends.get(key)) for key in {**begins, **ends}]
    sends = [_send(address, record, sender) for address, record in mine if record.kind is TraceKind.PUB]
    transactions = [
        TracedTransaction(
            record.timestamp_ms,
            address,
            record.group,
            record.transaction_state,
            None if sender is None else address == sender,
        )
        for address, record in mine
        if record.kind is TraceKind.END_TRANSACTION
    ]
    return TraceStory(
        tuple(sorted(sends, key=lambda one: one.at_ms or 0)),
        tuple(sorted(deliveries, key=lambda one: one.began_ms or 0)),
        tuple(sorted(transactions, key=lambda one: one.at_ms or 0)),
    )


def _send(address: str, record: TraceRecord, sender: str | None) -> TracedSend:
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
        is_from_sender=None if sender is None else address == sender,
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
        end_names_group=ended is None or bool(ended.group),
    )


def _result(record: TraceRecord) -> str:
    if record.code in (None, 0):
        return "success" if record.is_success else "failed"
    return _word(_RESULTS, record.code)


def _word(words: tuple[str, ...], number: int | None) -> str:
    return words[number] if number is not None and 0 <= number < len(words) else "" if number is None else str(number)
