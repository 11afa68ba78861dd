"""Reading the metering topics of many clusters in one go, in Spark's Python workers.

A worker gets tasks, one a cluster, and reads them a few at a time over one event loop: no JVM, query or process per
cluster. What a cluster can't give is that cluster's error and stops no other. Bodies are validated by mqwire.metering
alone, and turned into columns by Arrow's JSON reader.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.json
import trio
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from highwater import AsyncAdmin, Credentials, HighwaterError, MessageQueue, ReceivedMessage
from mqwire.metering import MeteringRecord, MeteringRecordError, decode_metering_record, encode_metering_record
from mqwire.names import RMQ_SYS_METERING
from spark_etl.tls import tls_of
from spark_etl.transforms.metering_schema import JSON_RECORD, READ_RECORD, REFUSED_MESSAGE
from spark_etl.transforms.plausible import implausible

# So many clusters are asked at the same time by one worker: while one answers, others are decoded.
CLUSTERS_AT_ONCE: Final = 32
# What is read of a cluster before its columns are made: bounds a worker's memory.
BYTES_AT_ONCE: Final = 4 * 1024 * 1024
MESSAGES_PER_RUN: Final = 200_000
PULL_MESSAGES: Final = 32
BATCH_ROWS: Final = 1000
# Of the log's end, of which a power cut may have put another in place of what was read.
OVERLAP_MESSAGES: Final = 120
ATTEMPTS: Final = 4
PAUSE_S: Final = 1.0
ERROR_LENGTH_MAX: Final = 500

TASK: Final = T.StructType([T.StructField("task", T.BinaryType())])
# One row each: a record, a refused message, or how the reading of a cluster ended (then both are null).
READ: Final = T.StructType(
    [
        T.StructField("cluster", T.StringType()),
        T.StructField("record", READ_RECORD),
        T.StructField("refused", REFUSED_MESSAGE),
        T.StructField("error", T.StringType()),
        T.StructField("messages", T.LongType()),
        # Records that are no later ones of their broker than those before them: only these can have been read before.
        T.StructField("out_of_order", T.LongType()),
    ]
)


class Place(msgspec.Struct, frozen=True):
    """Where reading goes on in one queue, and the record before it; see state.Position."""

    broker: str
    queue_id: int
    next_offset: int
    epoch: int
    sequence: int
    end_offset: int
    end_ms: int
    from_start: bool


class Task(msgspec.Struct, frozen=True):
    """One cluster to be read."""

    cluster_id: str
    cluster_name: str
    namesrv_addr: str
    access_key: str
    secret_key: str
    use_tls: bool
    tls_ca: str
    now_ms: int
    places: tuple[Place, ...]


@dataclass
class Order:
    """Whether the records of a cluster come in the order in which they were written: then none comes twice."""

    broken: int = 0
    _newest: dict[str, tuple[int, int]] = field(default_factory=dict)

    def note(self, record: MeteringRecord) -> None:
        """The next record that was read."""
        number = (record.epoch, record.sequence)
        newest = self._newest.get(record.broker)
        if newest is not None and number <= newest:
            self.broken += 1
        else:
            self._newest[record.broker] = number


@dataclass
class _Progress:
    """What a worker has read of a cluster."""

    task: Task
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    order: Order = field(default_factory=Order)
    messages: int = 0
    found: list[ReceivedMessage] = field(default_factory=list)
    found_bytes: int = 0
    error: str = ""
    more: bool = True

    @property
    def is_full(self) -> bool:
        return self.found_bytes >= BYTES_AT_ONCE or self.is_enough

    @property
    def is_enough(self) -> bool:
        """Whether the rest is the next run's. Not of what is read again from its start: that run would begin past it."""
        return self.messages >= MESSAGES_PER_RUN and not any(place.from_start for place in self.task.places)


def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of TASK -> rows of READ; for `mapInArrow`."""
    waiting = [
        _Progress(msgspec.json.decode(task, type=Task)) for batch in batches for task in batch.column(0).to_pylist()
    ]
    while waiting:
        now, waiting = waiting[:CLUSTERS_AT_ONCE], waiting[CLUSTERS_AT_ONCE:]
        trio.run(_read_all, now)
        for progress in now:
            yield from _rows(progress)
            if progress.more and not progress.error and not progress.is_enough:
                waiting.append(progress)
            else:
                yield end_of(progress.task.cluster_id, progress.messages, progress.order, error=progress.error)


async def _read_all(clusters: list[_Progress]) -> None:
    async with trio.open_nursery() as nursery:
        for progress in clusters:
            nursery.start_soon(_read, progress)


async def _read(progress: _Progress) -> None:
    """Fills `found`; whatever goes wrong with this cluster becomes its error."""
    task = progress.task
    credentials = Credentials(task.access_key, task.secret_key) if task.access_key else None
    failed = ""
    for attempt in range(ATTEMPTS):
        try:
            tls = tls_of(task.use_tls, task.tls_ca, "tls_ca")
            async with AsyncAdmin(task.namesrv_addr, credentials, use_tls=tls) as admin:
                await _read_queues(admin, progress)
            return
        except (HighwaterError, OSError) as error:
            failed = str(error).rstrip(".") or type(error).__name__
            if not getattr(error, "retryable", True):
                break
        except Exception as error:  # one tenant's broker must not stop the others' bills
            failed = f"{type(error).__name__}: {error}"
            break
        if attempt + 1 < ATTEMPTS:
            await trio.sleep(PAUSE_S * (attempt + 1))
    progress.error = f"its metering can't be read from {task.namesrv_addr}: {failed}"[:ERROR_LENGTH_MAX]


async def _read_queues(admin: AsyncAdmin, progress: _Progress) -> None:
    route = await admin.topic_route(RMQ_SYS_METERING)
    places = {(place.broker, place.queue_id): place for place in progress.task.places}
    progress.more = False
    for queue in route.subscribe_queues:
        key = (queue.broker_name, queue.queue_id)
        place = places.get(key)
        if key in progress.begins:
            begin, verify = progress.begins[key], None
        elif place is None or place.from_start:
            begin, verify = 0, None
        else:
            begin, verify = max(0, place.next_offset - 1), place
        await _read_queue(admin, queue, begin, verify, progress)
        if progress.is_full:
            progress.more = True
            return


async def _read_queue(
    admin: AsyncAdmin, queue: MessageQueue, begin: int, verify: Place | None, progress: _Progress
) -> None:
    key = (queue.broker_name, queue.queue_id)
    while True:
        messages = await admin.pull(queue, begin, PULL_MESSAGES)
        if verify is not None:
            # The last record that was read is read again: is it still that one, then so is all before it.
            if messages and messages[0].queue_offset == begin and _is_same(messages[0], verify):
                begin, verify = begin + 1, None
                messages = messages[1:]
                if not messages:
                    progress.begins[key] = begin
                    return
            else:
                first = await admin.min_offset(queue)
                if first <= begin:
                    # An unclean promotion or a power cut put other records there.
                    begin = await _before_other_records(
                        admin, queue, min(begin, await admin.max_offset(queue)), first, verify
                    )
                    messages = []
                verify = None
                if not messages:
                    messages = await admin.pull(queue, begin, PULL_MESSAGES)
        messages = [message for message in messages if message.queue_offset >= begin]
        if not messages:
            progress.begins[key] = begin
            return
        progress.found += messages
        progress.messages += len(messages)
        progress.found_bytes += sum(len(message.body) for message in messages)
        begin = messages[-1].queue_offset + 1
        progress.begins[key] = begin
        if progress.is_full:
            return


async def _before_other_records(admin: AsyncAdmin, queue: MessageQueue, end: int, first: int, place: Place) -> int:
    """An offset before all that was written since `place` was read, at most `end`: so far back that the record there is of
    no later leadership, and OVERLAP_MESSAGES at least.
    """
    begin, step = end, OVERLAP_MESSAGES
    while begin > first:
        begin, step = max(first, begin - step), 2 * step
        messages = await admin.pull(queue, begin, 1)
        if not messages or not _is_later(messages[0], place):
            break
    return begin


def _is_later(message: ReceivedMessage, place: Place) -> bool:
    """Whether a later leader wrote it; what is no record may be one's, too."""
    try:
        return decode_metering_record(message.body).epoch > place.epoch
    except MeteringRecordError:
        return True


def _is_same(message: ReceivedMessage, place: Place) -> bool:
    try:
        record = decode_metering_record(message.body)
    except MeteringRecordError:
        return False
    return (record.epoch, record.sequence, record.end_offset, record.end_ms) == (
        *(place.epoch, place.sequence, place.end_offset, place.end_ms),
    )


# -- columns

_READ_ARROW: Final = to_arrow_schema(READ)
_RECORD_ARROW: Final = to_arrow_type(READ_RECORD)
_REFUSED_ARROW: Final = to_arrow_type(REFUSED_MESSAGE)
_JSON_ARROW: Final = to_arrow_schema(JSON_RECORD)


def _rows(progress: _Progress) -> Iterator[pa.RecordBatch]:
    """What was found, as columns; `found` is empty afterwards."""
    found, progress.found, progress.found_bytes = progress.found, [], 0
    for first in range(0, len(found), BATCH_ROWS):
        yield from columns_of(
            found[first : first + BATCH_ROWS],
            cluster_id=progress.task.cluster_id,
            cluster_name=progress.task.cluster_name,
            now_ms=progress.task.now_ms,
            order=progress.order,
        )


class Message(Protocol):
    """What is looked at of a message."""

    @property
    def body(self) -> bytes: ...
    @property
    def queue(self) -> MessageQueue: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_timestamp_ms(self) -> int: ...


def columns_of(
    messages: Sequence[Message],
    *,
    cluster_id: str,
    cluster_name: str,
    now_ms: int,
    order: Order | None = None,
    keep_refused: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Messages of a metering topic as rows of READ: records, and what is none with the reason."""
    good: list[tuple[Message, bytes, MeteringRecord]] = []
    refused: list[tuple[Message, str]] = []
    for message in messages:
        try:
            record = decode_metering_record(message.body)
        except MeteringRecordError as error:
            refused.append((message, str(error)))
            continue
        reason = implausible(record, cluster_name, now_ms)
        if reason:
            refused.append((message, reason))
        else:
            if order is not None:
                order.note(record)
            # Written again: one line, and no member that this version does not know.
            good.append((message, encode_metering_record(record), record))
    if good:
        yield _record_batch(good, cluster_id, now_ms)
    if refused and keep_refused:
        yield _refused_batch(refused, cluster_id, now_ms)


def _record_batch(good: list[tuple[Message, bytes, MeteringRecord]], cluster_id: str, now_ms: int) -> pa.RecordBatch:
    lines = b"\n".join(line for _, line, _ in good)
    table = pyarrow.json.read_json(
        io.BytesIO(lines),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=_JSON_ARROW, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    names = {"messages_in": "in", "messages_out": "out"}
    given: dict[str, Any] = {
        "queue_id": [message.queue.queue_id for message, _, _ in good],
        "queue_offset": [message.queue_offset for message, _, _ in good],
        "ingested_ms": [now_ms] * len(good),
        "start": [record.start_ms * 1000 for _, _, record in good],
        # Left out of the JSON where they are 0.
        "clock_step_ms": [record.clock_step_ms for _, _, record in good],
        "pulls_lost_ms": [record.pulls_lost_ms for _, _, record in good],
    }
    arrays = []
    for column in _RECORD_ARROW:
        if column.name in given:
            arrays.append(pa.array(given[column.name], type=column.type))
        else:
            arrays.append(table.column(names.get(column.name, column.name)).combine_chunks().cast(column.type))
    record = pa.StructArray.from_arrays(arrays, fields=list(_RECORD_ARROW))
    return _read_batch(cluster_id, record=record, rows=len(good))


def _refused_batch(refused: list[tuple[Message, str]], cluster_id: str, now_ms: int) -> pa.RecordBatch:
    rows = [
        {
            "reason": reason,
            "body": message.body,
            "broker_name": message.queue.broker_name,
            "queue_id": message.queue.queue_id,
            "queue_offset": message.queue_offset,
            "store_timestamp": message.store_timestamp_ms * 1000,
            "ingested_at": now_ms * 1000,
        }
        for message, reason in refused
    ]
    return _read_batch(cluster_id, refused=pa.array(rows, type=_REFUSED_ARROW), rows=len(rows))


def end_of(cluster_id: str, messages: int, order: Order, *, error: str = "") -> pa.RecordBatch:
    """The row that says how the reading of a cluster ended."""
    return _read_batch(cluster_id, error=error, messages=messages, out_of_order=order.broken, rows=1)


def _read_batch(
    cluster_id: str,
    *,
    rows: int,
    record: pa.Array | None = None,
    refused: pa.Array | None = None,
    error: str | None = None,
    messages: int | None = None,
    out_of_order: int | None = None,
) -> pa.RecordBatch:
    arrays = [
        pa.array([cluster_id] * rows, type=pa.string()),
        pa.nulls(rows, _RECORD_ARROW) if record is None else record,
        pa.nulls(rows, _REFUSED_ARROW) if refused is None else refused,
        pa.array([error] * rows, type=pa.string()),
        pa.array([messages] * rows, type=pa.int64()),
        pa.array([out_of_order] * rows, type=pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_READ_ARROW)


class _Requeued(msgspec.Struct, frozen=True):
    """A refused message, as far as columns_of() looks at it."""

    body: bytes
    queue: MessageQueue
    queue_offset: int
    store_timestamp_ms: int


def reread_refused(
    names: Mapping[str, str], now_ms: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """QUARANTINE_ROWs -> rows of READ for those that are records by now; for `mapInArrow`. `names` are cluster names
    by id.
    """

    def reread(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                queue = MessageQueue(RMQ_SYS_METERING, row["broker_name"], row["queue_id"])
                stored_ms = int(row["store_timestamp"].timestamp() * 1000)
                message = _Requeued(row["body"], queue, row["queue_offset"], stored_ms)
                cluster = row["cluster"]
                yield from columns_of(
                    [message], cluster_id=cluster, cluster_name=names[cluster], now_ms=now_ms, keep_refused=False
                )

    return reread


def tasks_frame(tasks: Iterable[Task]) -> list[tuple[bytes]]:
    """Tasks as rows of TASK."""
    return [(msgspec.json.encode(task),) for task in tasks]
