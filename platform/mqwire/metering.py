"""The metering record: what a broker group counted in one stretch of its log, as a message on RMQ_SYS_METERING.

The body is JSON (UTF-8) of a `MeteringRecord`. Readers add the rows of all records, each taken once by its `key`:

- `start_offset`..`end_offset` are the CommitLog bytes whose sends `messages_in` counts. In the topic's order each record starts
  where the one before ended, across restarts and epochs.
- What would not fit one message comes as several records of successive sequences with the same `start_ms` and `end_ms`. All but the
  last have `end_offset` equal to `start_offset`; no row stands in two of them.
- A later epoch's record that starts below an earlier epoch's end says that the earlier tail was lost by an unclean promotion.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from mqwire import names
from mqwire.errors import RemoteProtocolError

METERING_VERSION: Final = 1
UNIT_BYTES: Final = 4096

# In place of a topic and a group: what was handed out of very many topics to very many groups, in one row. No topic or group can
# have this name.
OTHERS: Final = "(others)"

# These stand in every broker, and clients may use them as any other topic.
_OPEN_TOPICS: Final = frozenset({names.RMQ_SYS_BENCHMARK_TOPIC, names.AUTO_CREATE_TOPIC_KEY_TOPIC})
# Topics of RocketMQ and of Highwater themselves: no tenant's usage. Retry and dead-letter topics are the tenant's.
INTERNAL_TOPICS: Final = tuple(
    sorted(
        value
        for name, value in vars(names).items()
        if name.startswith("RMQ_SYS_") and isinstance(value, str) and value not in _OPEN_TOPICS
    )
)
# Not "RMQ_SYS_": that begins some names above, and others that a broker makes for any client.
INTERNAL_PREFIX: Final = names.SYSTEM_TOPIC_PREFIX
_INTERNAL_OTHERS: Final = INTERNAL_PREFIX + OTHERS

_INT64_MAX: Final = 2**63 - 1
_Count = Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
_CountOrUnknown = Annotated[int, msgspec.Meta(ge=-1, le=_INT64_MAX)]
_QueueId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_FromOne = Annotated[int, msgspec.Meta(ge=1, le=_INT64_MAX)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_Credential = Annotated[str, msgspec.Meta(max_length=255)]

MessageKind: TypeAlias = Literal["normal", "ordered", "delayed", "transactional"]


class MeteringRecordError(RemoteProtocolError):
    """The bytes are no metering record: not JSON, or a member is missing or out of range. The text names it."""


class UnknownMeteringVersionError(MeteringRecordError):
    """The record is of a version that this program does not know: update the reader."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"metering record of version {version}: this program reads version {METERING_VERSION}; update the reader"
        )
        self.version = version


class InRow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages stored. `credential` is the sender's access key; "" without access control and where counted from the log."""

    topic: _Name
    credential: _Credential
    kind: MessageKind
    messages: _Count
    bytes: _Count
    """Bodies as they are stored: compressed where the sender compressed them."""
    units: _Count
    """The sum of units_of() over the messages."""


class OutRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Messages handed to consumers of a group, each time that they were. Several rows may have the same topic, group and key.

    Where the group is OTHERS the row is of many groups, and its topic is what `others_of` gives.
    """

    topic: _Name
    group: _Name
    credential: _Credential
    messages: _Count
    bytes: _Count
    units: _Count
    origin: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Who reported to the leader: report_origin() or record_origin(). Leaders take each origin once. "" is the leader itself."""


class LagRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue of a group at `end_ms`."""

    topic: _Name
    group: _Name
    queue_id: _QueueId
    consumer_offset: _Count
    max_offset: _Count
    lag_messages: _Count
    lag_ms: _CountOrUnknown
    """Age of the oldest message not yet consumed; 0 when there is none, -1 when it is not known."""


class StorageRow(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the CommitLog that a topic's messages take at `end_ms`."""

    topic: _Name
    bytes: _Count


class ConnectionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Client connections at `end_ms`."""

    producers: _Count
    consumers: _Count


class MeteringRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record; see this module's text. Times are UTC, in milliseconds."""

    version: int
    cluster: _Name
    broker: _Name
    epoch: _Count
    sequence: _FromOne
    """Rises by 1 from record to record of an epoch."""
    start_ms: _Count
    end_ms: _Count
    start_offset: _Count
    end_offset: _Count
    recounted: bool
    """Counted from the log after a restart or a promotion; `end_ms` is then the store time of the last message counted."""
    messages_in: tuple[InRow, ...] = msgspec.field(name="in")
    messages_out: tuple[OutRow, ...] = msgspec.field(name="out")
    lag: tuple[LagRow, ...]
    storage: tuple[StorageRow, ...]
    connections: ConnectionCounts
    deleted_to: _Count | None = None
    """Only where retention was faster than metering: what lay in front of this offset and was not counted before is gone."""
    clock_step_ms: int = 0
    """How far the broker's wall clock was from `end_ms`, which is of steady time; 0 while it is followed."""
    pulls_lost_ms: _Count = 0
    """A broker was killed before this record: what it handed out in its last so many milliseconds may not be counted."""

    def __post_init__(self) -> None:
        if self.end_offset < self.start_offset:
            raise ValueError(f"end_offset {self.end_offset} is below start_offset {self.start_offset}")

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Two records with the same key are one record, read twice."""
        return self.cluster, self.broker, self.epoch, self.sequence


class PullReport(msgspec.Struct, frozen=True, kw_only=True):
    """METERING_REPORT's body: what a follower has its leader record. Sent again with the same number.

    Rows without an origin were handed out by the follower itself.
    """

    replica_id: _Count
    number: _Count
    messages_out: tuple[OutRow, ...] = msgspec.field(name="out")


class _Version(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=1)]


_encoder = msgspec.json.Encoder()
_version_decoder = msgspec.json.Decoder(_Version)
_decoder = msgspec.json.Decoder(MeteringRecord)
_report_decoder = msgspec.json.Decoder(PullReport)


def report_origin(replica_id: int, number: int) -> str:
    """The origin of what a replica handed out itself and reported by this."""
    return f"report-{replica_id}-{number}"


def record_origin(epoch: int, sequence: int) -> str:
    """The origin of what this record said, which was lost from the log when its leader was replaced, and is reported again."""
    return f"record-{epoch}-{sequence}"


def others_of(topic: str) -> str:
    """The topic of the row that stands for this one among others: of usage if this one is usage."""
    return _INTERNAL_OTHERS if topic in INTERNAL_TOPICS or topic.startswith(INTERNAL_PREFIX) else OTHERS


def units_of(body_bytes: int) -> int:
    """Billing units of one message: begun blocks of 4 KiB, at least one."""
    return (body_bytes + UNIT_BYTES - 1) // UNIT_BYTES or 1


def encode_metering_record(record: MeteringRecord) -> bytes:
    """The body of the message."""
    return _encoder.encode(record)


def decode_metering_record(body: bytes | bytearray | memoryview) -> MeteringRecord:
    """The record in a message's body; members that this version does not know are ignored.

    Raises UnknownMeteringVersionError, or MeteringRecordError for what is no record.
    """
    try:
        version = _version_decoder.decode(body).version
        if version != METERING_VERSION:
            raise UnknownMeteringVersionError(version)
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MeteringRecordError(f"not a metering record: {error}") from error


def encode_pull_report(report: PullReport) -> bytes:
    """The body of a METERING_REPORT request."""
    return _encoder.encode(report)


def decode_pull_report(body: bytes | bytearray | memoryview) -> PullReport:
    """The report in a request's body; raises MeteringRecordError."""
    try:
        return _report_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MeteringRecordError(f"not a report of pulls: {error}") from error
