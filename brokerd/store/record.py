"""Checking records and taking from them what dispatch needs, without decoding the rest.

CommitLog.checkMessageAndReturnSize, with two differences: the physical offset must agree, and a CRC of the whole record is
demanded where we know that every record carries one. The layout is drawn in mqwire/message.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mqwire.checksum import crc32
from mqwire.errors import RemoteProtocolError
from mqwire.message import (
    BLANK_MAGIC,
    CRC32_PROPERTY_BYTES,
    CRC32_PROPERTY_PREFIX,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
    crc32_property,
    tags_code,
)
from mqwire.names import PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TAGS, RMQ_SYS_SCHEDULE_TOPIC

BLANK: Final = struct.Struct(">II")
ENTRY: Final = struct.Struct(">qiq")  # a ConsumeQueue entry: physical offset, size, tags code
HEAD: Final = struct.Struct(">IIIiiqqiq")  # up to the born timestamp
_INT64: Final = struct.Struct(">q")
_BODY_LENGTH: Final = struct.Struct(">i")
_UINT16: Final = struct.Struct(">H")

BLANK_HEAD_BYTES: Final = BLANK.size
MIN_RECORD_BYTES: Final = 91  # IPv4 hosts, no body, no topic, no properties

_TAGS_PREFIX: Final = PROPERTY_TAGS.encode() + b"\x01"
_TAGS_MAX: Final = 4096  # whose codes are remembered
_TAG_BYTES_MAX: Final = 128
_DELAY_PREFIX: Final = PROPERTY_DELAY_TIME_LEVEL.encode() + b"\x01"
NOT_CONSUMABLE: Final = 0x4
"""This bit of sysFlag is set in TRANSACTION_PREPARED_TYPE and TRANSACTION_ROLLBACK_TYPE, and in no other type: such
records have queue offset 0 and no ConsumeQueue entry (CommitLogDispatcherBuildConsumeQueue)."""


class DispatchRequest(NamedTuple):
    """What one record says to the ConsumeQueues (RocketMQ's DispatchRequest)."""

    physical_offset: int
    size_bytes: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes
    body_bytes: int


class RecordFrame(NamedTuple):
    """What the record at an offset says of its place, its queue and its lengths. No checksum was looked at.

    The broker writes all of that but the topic's name: a sender's bytes stand between, in lengths that are counted.
    """

    is_head: bool  # its magic and the physical offset are those of a record that begins there
    size_bytes: int  # as its head says
    size_by_parts: int  # what its body, topic and properties make; 0 where these lengths can't be
    topic: bytes
    queue_id: int
    queue_offset: int


_BODY_START_MAX: Final = 112  # with IPv6 hosts


def read_frame(read: Callable[[int, int], bytes], offset: int, size_max: int) -> RecordFrame | None:
    """The frame of what begins at `offset`, of which `read` gives bytes: its front, and what stands after its body. None where no
    record has room.
    """
    front = read(offset, min(_BODY_START_MAX, size_max))
    if len(front) < MIN_RECORD_BYTES:
        return None
    size, magic, _, queue_id, _, queue_offset, own_offset, sys_flag, _ = HEAD.unpack_from(front)
    body_start = 88 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    by_parts = 0
    topic = b""
    if body_start <= len(front):
        body_end = body_start + _BODY_LENGTH.unpack_from(front, body_start - 4)[0]
        # Where the magic is none of the two, the length that agrees with the size may tell which it was.
        for length_bytes in {MESSAGE_MAGIC: (1,), MESSAGE_MAGIC_V2: (2,)}.get(magic, (1, 2)):
            if not body_start <= body_end <= size_max - length_bytes - 2:
                break
            topic_start = body_end + length_bytes
            topic_bytes = int.from_bytes(read(offset + body_end, length_bytes), "big")
            if topic_start + topic_bytes + 2 > size_max:
                continue
            topic = read(offset + topic_start, topic_bytes)
            properties_bytes = int.from_bytes(read(offset + topic_start + topic_bytes, 2), "big")
            by_parts = topic_start + topic_bytes + 2 + properties_bytes
            if by_parts == size:
                break
    is_head = magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and own_offset == offset
    return RecordFrame(is_head, size, by_parts, topic, queue_id, queue_offset)


def record_spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields (position, size) of each record of a pull's body, in which a BLANK travels as its head alone.

    Raises RemoteProtocolError for a record without a size.
    """
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if int.from_bytes(data[position + 4 : position + BLANK_HEAD_BYTES], "big") == BLANK_MAGIC:
            position += BLANK_HEAD_BYTES
            continue
        if size <= 0:
            raise RemoteProtocolError("a record without a size")
        yield position, size
        position += size


def offset_after(data: bytes, offset: int, file_bytes: int) -> int:
    """The log offset after `data`, whole records and BLANK heads read from `offset` on."""
    position = 0
    while position < len(data):
        if int.from_bytes(data[position + 4 : position + BLANK_HEAD_BYTES], "big") == BLANK_MAGIC:
            position += BLANK_HEAD_BYTES
            offset += file_bytes - offset % file_bytes
        else:
            size = int.from_bytes(data[position : position + 4], "big")
            position += size
            offset += size
    return offset


def parse_record(
    buffer: bytes | bytearray, position: int, physical_offset: int, size_max: int, crc_required: bool
) -> DispatchRequest | int | None:
    """The whole, undamaged record at `position` of `buffer`, which lies at `physical_offset` of the log.

    The size of a BLANK when one is there; None when neither is. `size_max` bounds the claimed size; a record that is
    longer than what the buffer still holds gives None too, so the caller must have read enough.
    """
    if len(buffer) - position < BLANK_HEAD_BYTES:
        return None
    if len(buffer) - position < MIN_RECORD_BYTES:
        size, magic = BLANK.unpack_from(buffer, position)
        return size if magic == BLANK_MAGIC and BLANK_HEAD_BYTES <= size <= size_max else None
    size, magic, body_crc, queue_id, _flag, queue_offset, own_offset, sys_flag, _born = HEAD.unpack_from(
        buffer, position
    )
    if magic == MESSAGE_MAGIC:
        topic_length_bytes = 1
    elif magic == MESSAGE_MAGIC_V2:
        topic_length_bytes = 2
    elif magic == BLANK_MAGIC and BLANK_HEAD_BYTES <= size <= size_max:
        return int(size)
    else:
        return None
    end = position + size
    if own_offset != physical_offset or not MIN_RECORD_BYTES <= size <= size_max or end > len(buffer):
        return None
    store_timestamp = position + 48 + (20 if sys_flag & 0x10 else 8)
    body_length_at = store_timestamp + 8 + (20 if sys_flag & 0x20 else 8) + 12
    body_start = body_length_at + 4
    if body_start + topic_length_bytes + 2 > end:
        return None
    (body_length,) = _BODY_LENGTH.unpack_from(buffer, body_length_at)
    body_end = body_start + body_length
    if body_length < 0 or body_end + topic_length_bytes + 2 > end:
        return None
    if topic_length_bytes == 1:
        topic_start = body_end + 1
        topic_end = topic_start + buffer[body_end]
    else:
        topic_start = body_end + 2
        topic_end = topic_start + _UINT16.unpack_from(buffer, body_end)[0]
    properties_start = topic_end + 2
    if properties_start > end or properties_start + _UINT16.unpack_from(buffer, topic_end)[0] != end:
        return None
    crc_start = end - CRC32_PROPERTY_BYTES
    if crc_start >= properties_start and buffer.startswith(CRC32_PROPERTY_PREFIX, crc_start):
        crc = crc32(memoryview(buffer)[position:crc_start]) & 0x7FFFFFFF
        if buffer[end - 11 : end] != (b"%010d" % crc)[::-1] + b"\x02":
            return None
    elif crc_required or (body_length and crc32(memoryview(buffer)[body_start:body_end]) & 0x7FFFFFFF != body_crc):
        return None
    return DispatchRequest(
        physical_offset,
        size,
        bytes(buffer[topic_start:topic_end]),
        queue_id,
        queue_offset,
        sys_flag,
        _INT64.unpack_from(buffer, store_timestamp)[0],
        bytes(buffer[properties_start:end]),
        body_length,
    )


def record_crc_holds(buffer: bytes, start: int, end: int) -> bool:
    """Whether the bytes from `start` to `end` close with a CRC of themselves, as a whole record of ours does."""
    crc_start = end - CRC32_PROPERTY_BYTES
    crc = crc32(memoryview(buffer)[start:crc_start]) & 0x7FFFFFFF
    return buffer[crc_start:end] == crc32_property(crc)


def store_timestamp_ms(head: bytes) -> int:
    """The store timestamp of the record that starts with `head` (at least 76 bytes of it)."""
    sys_flag = int.from_bytes(head[36:40], "big")
    return int(_INT64.unpack_from(head, 68 if sys_flag & 0x10 else 56)[0])


STORE_TIMESTAMP_HEAD_BYTES: Final = 76


class DispatchTagsCode:
    """The tags code of a record, from its own bytes only, so that a rebuilt ConsumeQueue is equal to the first one.

    Messages that wait in SCHEDULE_TOPIC_XXXX hold the time of their delivery there instead.
    """

    def __init__(self, delay_levels_ms: tuple[int, ...]) -> None:
        self._delay_levels_ms = delay_levels_ms
        self._codes: dict[bytes, int] = {b"": 0}

    def of(self, topic: bytes, properties: bytes, store_timestamp: int) -> int:
        if topic == _SCHEDULE_TOPIC:
            level = delay_level_of(properties)
            if level > 0:
                delays = self._delay_levels_ms
                return store_timestamp + delays[min(level, len(delays)) - 1]
        value = property_of(properties, _TAGS_PREFIX)
        code = self._codes.get(value)
        if code is None:
            code = tags_code(value.decode("utf-8", "replace"))
            # A longer one is not likely to come again, and what is remembered is every sender's to fill.
            if len(value) <= _TAG_BYTES_MAX and len(self._codes) < _TAGS_MAX:
                self._codes[value] = code
        return code


_SCHEDULE_TOPIC: Final = RMQ_SYS_SCHEDULE_TOPIC.encode()


def delay_level_of(properties: bytes) -> int:
    """The DELAY property as the broker writes it; 0 without one."""
    value = property_of(properties, _DELAY_PREFIX)
    return int(value) if value.isdigit() and len(value) < 10 else 0


def property_of(properties: bytes, prefix: bytes) -> bytes:
    """The value of a property, b"" without one; of several with one name the last counts, as in Java's map."""
    if prefix not in properties:
        return b""
    found = b""
    for pair in properties.split(b"\x02"):
        if pair.startswith(prefix) and len(pair) > len(prefix):
            found = pair[len(prefix) :]
    return found
