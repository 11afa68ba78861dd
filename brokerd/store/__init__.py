"""The message store: RocketMQ's CommitLog and ConsumeQueues on disk, synchronous, without sockets and without trio.

Read in this order:

    message_store.py        the door: MessageStore, and which method may run in which thread
    config.py results.py errors.py disk.py clock.py    what it is given, what it answers, what it stands on
    append_message.py       sends: encode, number, write once, index        (hot)
    append_batch.py         the same for a batch, encoded together           (hot)
    get_message.py          pulls, by offset, time and physical offset       (hot)
    commit_log.py           the files of records: creation, writing, syncing, truncating
    block_cache.py file_cache.py status.py    what reads share; open files, bounded; the latch that refuses appends
    consume_queue.py consume_queue_store.py    the index of each queue: memory tails and files
    record.py log_scanner.py    what a whole record is; walking the log
    send_counts.py          what of it counts as sends
    index_service.py message_query.py    messages by key: the index, built after the log; what it offers, looked at
    index_format.py index_file.py index_reader.py index_checkpoint.py    its parts, from bytes to the loop over a block
    durable_file.py         small files that are replaced whole
    recovery.py store_checkpoint.py tail_doubts.py    what happens at open; where it may begin; what may be missing then
    retention.py topic_tombstones.py    what is deleted; what stays deleted
    append_raw.py log_repair.py    bytes between replicas: new ones, and those that put damage right

Not here: RocketMQ 5.5's index of tags, ConsumeQueueExt, batch and multi-dispatch ConsumeQueues, and config/*.json, which
belong to the broker's managers.

Nothing here logs: reports and errors carry what there is to say, never a payload.
"""

from brokerd.store.clock import Clock, SystemClock
from brokerd.store.config import CONSUME_QUEUE_ENTRY_BYTES, StoreConfig
from brokerd.store.consume_queue import size_of_entries
from brokerd.store.consume_queue_store import WrittenEntries
from brokerd.store.disk import Disk, DiskUsage, OsDisk
from brokerd.store.errors import (
    AppendFailedError,
    DiskFullError,
    FlushFailedError,
    LogDamagedError,
    MessageIllegalError,
    RecordDamagedError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreFormatError,
    StoreLockedError,
    StoreReadOnlyError,
    UnprovenRecordsError,
)
from brokerd.store.index_format import INDEX_BYTES_OF_KEY, KEYS_PREFIX, keys_of
from brokerd.store.message_query import QUERY_READ_MAX_BYTES, QueryResult
from brokerd.store.message_store import MessageStore
from brokerd.store.record import DispatchRequest
from brokerd.store.results import (
    AppendResult,
    BatchResult,
    BatchToStore,
    BoundaryType,
    GetMessageStatus,
    GetResult,
    LogRange,
    MessageToStore,
    RecoveryReport,
    RetentionReport,
    StoreState,
)
from brokerd.store.send_counts import SendCounts
from brokerd.store.tail_doubts import TailDoubt

__all__ = [
    "CONSUME_QUEUE_ENTRY_BYTES",
    "INDEX_BYTES_OF_KEY",
    "KEYS_PREFIX",
    "QUERY_READ_MAX_BYTES",
    "AppendFailedError",
    "AppendResult",
    "BatchResult",
    "BatchToStore",
    "BoundaryType",
    "Clock",
    "Disk",
    "DiskFullError",
    "DiskUsage",
    "DispatchRequest",
    "FlushFailedError",
    "GetMessageStatus",
    "GetResult",
    "LogDamagedError",
    "LogRange",
    "MessageIllegalError",
    "MessageStore",
    "MessageToStore",
    "OsDisk",
    "QueryResult",
    "RecordDamagedError",
    "RecoveryReport",
    "RetentionReport",
    "SendCounts",
    "StoreClosedError",
    "StoreConfig",
    "StoreDamagedError",
    "StoreError",
    "StoreFormatError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreState",
    "SystemClock",
    "TailDoubt",
    "UnprovenRecordsError",
    "WrittenEntries",
    "keys_of",
    "size_of_entries",
]
