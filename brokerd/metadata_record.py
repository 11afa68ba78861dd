"""The metadata record: a change of topics, groups or consumer offsets, as a message on RMQ_SYS_METADATA, queue 0.

What the log holds up to a record is what the tables say there, on every replica: a change is replicated, confirmed and
truncated with the messages around it. A *base* holds all three tables, in one record or several that are appended
together; what follows it changes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from brokerd.store import MessageToStore
from brokerd.store.record import record_spans
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from mqwire.errors import RemoteProtocolError
from mqwire.message import StoredMessage, decode_record, tags_code, topic_bytes_of
from mqwire.names import RMQ_SYS_METADATA

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig

Offsets = dict[str, dict[int, int]]  # "topic@group" -> queue -> offset

_BASE_END: Final = "base-end"
BASE_END_TAGS_CODE: Final = tags_code(_BASE_END)  # of a base's last record, so that it is found without reading others
_BASE_END_PROPERTIES: Final = b"TAGS\x01base-end\x02WAIT\x01true\x02"
_PROPERTIES: Final = b"WAIT\x01true\x02"
_TOPIC: Final = RMQ_SYS_METADATA.encode()
_BASE_TABLES: Final = ("topics", "groups", "forbidden", "offsets", "resets", "reset_counts", "kept_from")
_HEAD_BYTES: Final = 200  # for the names of the tables in a base's record
_QUEUES_MAX: Final = 16  # of one entry: even with the longest names they fit into the least maxMessageSize
_MAX_BYTES: Final = 256 * 1024  # even where messages may be larger
_FRAME_BYTES: Final = 512  # of a record, for what is around its body


def record_max_bytes(config: BrokerConfig) -> int:
    """How long the body of a record may be: it is a message, and lies in one file of the CommitLog."""
    file_bytes = config.mapped_file_size_commit_log_bytes
    return min(_MAX_BYTES, config.max_message_size_bytes, file_bytes - _FRAME_BYTES)


class MetadataRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body, JSON. Offsets are absolute: what is so from here on."""

    part: int = 0  # of a base: which of its records this is, and how many there are
    parts: int = 0
    topics: dict[str, TopicConfig] = {}
    deleted_topics: list[str] = []
    groups: dict[str, SubscriptionGroupConfig] = {}
    forbidden: dict[str, dict[str, int]] = {}  # of a base, as subscriptionGroup.json has it
    deleted_groups: list[str] = []
    forgotten_groups: list[str] = []  # whose offsets are gone
    offsets: Offsets = {}
    resets: Offsets = {}  # pending from here on, until the group's next pull
    taken_resets: dict[str, list[int]] = {}  # pending no longer
    reset_counts: Offsets = {}  # of a base
    losses: list[int] = []  # of a base: where leaders began whose log may have lacked what consumers had read, in bytes
    kept_from: Offsets = {}  # topic -> queue -> offset: messages below have expired (topic_retention.py)

    @property
    def is_base(self) -> bool:
        return self.parts > 0

    @property
    def frees(self) -> bool:
        """Whether it only deletes or expires, or only says how far consumers are."""
        return not (self.topics or self.groups or self.resets)


def metadata_message(record: MetadataRecord, store_host: bytes, now_ms: int) -> MessageToStore:
    """The message to append; its sender is the broker itself."""
    ends_base = record.is_base and record.part == record.parts - 1
    return MessageToStore(
        RMQ_SYS_METADATA,
        0,
        0,
        0,
        now_ms,
        store_host,
        0,
        0,
        msgspec.json.encode(record),
        _BASE_END_PROPERTIES if ends_base else _PROPERTIES,
        BASE_END_TAGS_CODE if ends_base else 0,
    )


def base_records(
    topics: dict[str, TopicConfig],
    groups: dict[str, SubscriptionGroupConfig],
    forbidden: dict[str, dict[str, int]],
    offsets: Offsets,
    resets: Offsets,
    reset_counts: Offsets,
    kept_from: Offsets,
    *,
    max_bytes: int,
) -> list[MetadataRecord]:
    """The records of a base that holds these tables, none of which is larger than `max_bytes` unless one entry is."""
    tables: tuple[tuple[str, Mapping[str, Any]], ...] = (
        *(("topics", topics), ("groups", groups), ("forbidden", forbidden)),
        *(("offsets", offsets), ("resets", resets), ("reset_counts", reset_counts)),
        ("kept_from", kept_from),
    )
    found = _packed(tables, max_bytes)
    return [MetadataRecord(part=number, parts=len(found), **one) for number, one in enumerate(found)]


def split_offsets(offsets: Offsets, max_bytes: int) -> list[Offsets]:
    """All of them, in parts that each make a record of at most `max_bytes`."""
    return [part["offsets"] for part in _packed((("offsets", offsets),), max_bytes) if part]


def _packed(tables: Iterable[tuple[str, Mapping[str, Any]]], max_bytes: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    room = max_bytes - _HEAD_BYTES
    left = room
    for table, entries in tables:
        for key, value in _small_entries(entries):
            size = len(msgspec.json.encode({key: value}))
            if size > left and left < room:
                found.append({})
                left = room
            left -= size
            part = found[-1].setdefault(table, {})
            part[key] = {**part.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def _small_entries(entries: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in entries.items():
        if not isinstance(value, dict) or len(value) <= _QUEUES_MAX:
            yield key, value
            continue
        rows = list(value.items())
        for begin in range(0, len(rows), _QUEUES_MAX):
            yield key, dict(rows[begin : begin + _QUEUES_MAX])


def joined(parts: Sequence[MetadataRecord]) -> MetadataRecord:
    """The whole base of which these are the records."""
    whole: dict[str, Any] = {}
    for part in parts:
        for table in _BASE_TABLES:
            known = whole.setdefault(table, {})
            for key, value in getattr(part, table).items():
                known[key] = {**known.get(key, {}), **value} if isinstance(value, dict) else value
    return MetadataRecord(part=0, parts=1, losses=parts[-1].losses, **whole)


def decode_metadata(message: StoredMessage) -> MetadataRecord:
    """Raises RemoteProtocolError when it cannot be read: the log is not ours then, or damaged."""
    try:
        return msgspec.json.decode(message.body, type=MetadataRecord)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"the metadata record at {message.physical_offset}: {error}") from error


class Located(NamedTuple):
    """A metadata record, and where in the log it begins and ends."""

    begin_offset: int
    end_offset: int
    record: MetadataRecord


def pieces(data: bytes) -> Iterator[tuple[bytes, list[Located]]]:
    """`data`, whole records as a leader sent them, in pieces, each with its metadata records.

    A piece ends after a record that deletes topics: the messages that follow may be of a topic of the same name.
    """
    if _TOPIC not in data:
        yield data, []
        return
    begin = 0
    found: list[Located] = []
    for position, size in record_spans(data):
        # Of a message that anyone sent nothing but its topic is looked at: a batch may hold what can't be decoded.
        if topic_bytes_of(data, position) == _TOPIC:
            message = decode_record(data, position)
            record = decode_metadata(message)
            begins_at = message.physical_offset
            found.append(Located(begins_at, begins_at + message.size_bytes, record))
            if record.deleted_topics:
                yield data[begin : position + size], found
                begin, found = position + size, []
    if begin < len(data):
        yield data[begin:], found
