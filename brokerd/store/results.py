"""What goes into the store and what comes out. Tuples where there is one for each message: they are the cheapest."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MessageToStore(NamedTuple):
    """One message to append (MessageExtBrokerInner). Hosts are packed: 4 or 16 address bytes, then 4 of port."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes | bytearray | memoryview
    properties: bytes  # the property string, UTF-8, with or without its last separator
    tags_code: int  # mqwire.message.tags_code of the TAGS property, 0 without one


class BatchToStore(NamedTuple):
    """Messages of one queue that differ in flag, body, properties and tag only: the n-th of each belong together."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    reconsume_times: int
    shared_properties: bytes  # stored after the properties of each
    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]  # each with its last separator, or empty
    tags_codes: Sequence[int]

    def messages(self) -> list[MessageToStore]:
        """The same, one by one."""
        return [
            MessageToStore(
                topic=self.topic,
                queue_id=self.queue_id,
                flag=flag,
                sys_flag=self.sys_flag,
                born_timestamp_ms=self.born_timestamp_ms,
                born_host=self.born_host,
                reconsume_times=self.reconsume_times,
                prepared_transaction_offset=0,
                body=body,
                properties=properties + self.shared_properties,
                tags_code=tags_code,
            )
            for flag, body, properties, tags_code in zip(
                self.flags, self.bodies, self.properties, self.tags_codes, strict=True
            )
        ]


class AppendResult(NamedTuple):
    """Where a message went."""

    physical_offset: int
    size_bytes: int
    queue_offset: int
    store_timestamp_ms: int


class BatchResult(NamedTuple):
    """Where the messages of a batch went; their queue offsets follow one another."""

    physical_offsets: Sequence[int]
    queue_offset: int  # of the first
    end_offset: int  # after the last record
    store_timestamp_ms: int


class GetMessageStatus(enum.Enum):
    """RocketMQ's own, with its own rules for the next offset."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class GetResult:
    """The answer to a pull. `chunks` are record bytes, in order; a chunk may hold several adjacent records."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    chunks: list[bytes]
    count: int
    size_bytes: int
    body_bytes: int = 0  # of the records' bodies alone
    units: int = 0  # mqwire.metering.units_of() of each body, added up


class BoundaryType(enum.Enum):
    """Which side of a moment offset_by_time answers for (RocketMQ's BoundaryType)."""

    LOWER = "lower"  # the first message stored at the moment or later; the max offset when there is none
    UPPER = "upper"  # the last message stored at the moment or earlier; the min offset when there is none


class StoreState(enum.Enum):
    CLOSED = "closed"
    RUNNING = "running"
    READ_ONLY = "read only"  # damaged, or a flush or an append failed: `MessageStore.refusal` says which


@dataclass(frozen=True, slots=True)
class LogRange:
    """Bytes [begin, end) of the CommitLog."""

    begin_offset: int
    end_offset: int


@dataclass(slots=True)
class RecoveryReport:
    """What open() found and did. All offsets are of the CommitLog, in bytes."""

    clean_shutdown: bool = False
    min_offset: int = 0
    end_offset: int = 0
    durable_mark: int = -1  # what the checkpoint knew to be durable; -1: no checkpoint of ours
    scanned_from: int = 0
    records_scanned: int = 0
    consume_queue_rebuilt: bool = False  # all of it, from the first record; otherwise from the checkpoint on
    truncated: LogRange | None = None  # a torn tail that was removed
    truncated_saved_as: str = ""  # the file that holds those bytes, when whole records were among them
    damage: list[LogRange] = field(default_factory=list)  # not readable, not truncated: the store is read-only
    anomalies: list[str] = field(default_factory=list)  # oddities that cost nothing, in plain words
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What delete_expired() did."""

    deleted_commit_log_files: tuple[int, ...] = ()  # their base offsets
    deleted_consume_queue_files: int = 0
    min_offset: int = 0
    used_ratio: float = 0.0
