"""Message records: exactly the bytes that RocketMQ stores in a CommitLog and sends to consumers.

One record (MessageDecoder, MessageExtEncoder), big-endian:

    | total size 4 | magic 4 | body CRC 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8 | sysFlag 4 |
    | born timestamp 8 | born host 4+4 or 16+4 | store timestamp 8 | store host 4+4 or 16+4 | reconsume times 4 |
    | prepared transaction offset 8 | body length 4, body | topic length 1 (magic V2: 2), topic |
    | properties length 2, properties |

Properties are "name 0x01 value 0x02" repeated. Where the record CRC is on, the last property is `__CRC32#` with ten
decimal digits, lowest first, of the CRC-32 (31 bits of it) of everything in front of that property.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from mqwire.checksum import crc32
from mqwire.codes import MessageSysFlag
from mqwire.errors import LocalProtocolError, RemoteProtocolError
from mqwire.java_hash import hash_of_units, java_hash
from mqwire.names import PROPERTY_CRC32

MESSAGE_MAGIC: Final = 0xDAA320A7
MESSAGE_MAGIC_V2: Final = 0xDAA320AB  # the topic's length takes two bytes: topics of more than 127 bytes
BLANK_MAGIC: Final = 0xCBD43194  # fills the end of a CommitLog file

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

PHYSICAL_OFFSET_POSITION: Final = 28
QUEUE_OFFSET_POSITION: Final = 20
MAX_PROPERTIES_BYTES: Final = 32767
MAX_TOPIC_BYTES_V1: Final = 127

CRC32_PROPERTY_PREFIX: Final = (PROPERTY_CRC32 + NAME_VALUE_SEPARATOR).encode()
CRC32_PROPERTY_BYTES: Final = len(CRC32_PROPERTY_PREFIX) + 10 + 1

# The parts of a record between its variable lengths, by (born host, store host) address lengths.
_HEAD = struct.Struct(">IIIiiqqiq")
_AFTER_BORN_HOST = struct.Struct(">q")
_AFTER_STORE_HOST = struct.Struct(">iqi")
_UINT16 = struct.Struct(">H")
_BATCH_ITEM_HEAD = struct.Struct(">iiiii")
_ALIKE_MAX = 256  # larger batches are taken apart one by one, rather than by a struct of thousands of fields

HEAD_BYTES: Final = _HEAD.size
MIN_RECORD_BYTES: Final = _HEAD.size + 8 + 8 + 8 + _AFTER_STORE_HOST.size + 1 + 2


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A decoded record. `body` is as stored: still compressed when sys_flag says so."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size_bytes: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: tuple[str, int]
    store_timestamp_ms: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def offset_message_id(self) -> str:
        """RocketMQ's offsetMsgId: the store host and the physical offset in hexadecimal."""
        return offset_message_id(pack_host(*self.store_host), self.physical_offset)


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """UtilAll.crc32: CRC-32 without its highest bit."""
    return crc32(body) & 0x7FFFFFFF


def crc32_property(crc: int) -> bytes:
    """The `__CRC32#` property for a record whose bytes so far have that CRC (MessageDecoder.createCrc32)."""
    return CRC32_PROPERTY_PREFIX + (b"%010d" % crc)[::-1] + b"\x02"


def pack_host(ip: str, port: int) -> bytes:
    """An address as records hold it: 4 or 16 bytes of address, then the port in 4 bytes."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip) + port.to_bytes(4, "big")


def unpack_host(packed: bytes) -> tuple[str, int]:
    """The (ip, port) of an 8- or 20-byte packed address."""
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    return socket.inet_ntop(family, packed[:-4]), int.from_bytes(packed[-4:], "big", signed=True)


def properties_to_string(properties: Mapping[str, str]) -> str:
    """MessageDecoder.messageProperties2String."""
    return "".join(f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in properties.items())


def string_to_properties(text: str) -> dict[str, str]:
    """MessageDecoder.string2messageProperties; pairs without a separator, a name or a value are left out as there."""
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        name, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and separator and value:
            properties[name] = value
    return properties


def tags_code(tag: str) -> int:
    """The tag hash that ConsumeQueues and subscriptions hold: Java's String.hashCode, over UTF-16 units, signed."""
    value = java_hash(tag.encode()) if tag.isascii() else hash_of_units(0, tag.encode("utf-16-be", "surrogatepass"))
    return value - 0x100000000 if value & 0x80000000 else value


def offset_message_id(packed_host: bytes, physical_offset: int) -> str:
    """offsetMsgId: 32 hexadecimal digits for IPv4, 56 for IPv6."""
    return (packed_host + physical_offset.to_bytes(8, "big")).hex().upper()


def parse_offset_message_id(message_id: str) -> tuple[tuple[str, int], int]:
    """The ((ip, port), physical offset) that an offsetMsgId names; raises RemoteProtocolError when it is none."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError as error:
        raise RemoteProtocolError(f"{message_id[:80]!r} is not a message id: not hexadecimal") from error
    if len(raw) not in (16, 28):
        raise RemoteProtocolError(f"{message_id[:80]!r} is not a message id: it has neither 32 nor 56 digits")
    return unpack_host(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)


def encode_record(
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes | bytearray | memoryview,
    properties: bytes,
    born_host: bytes,
    store_host: bytes,
    born_timestamp_ms: int,
    store_timestamp_ms: int,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    with_record_crc: bool = True,
) -> bytes:
    """One record. Hosts are packed; the sysFlag's IPv6 bits are set from their lengths.

    Raises LocalProtocolError when topic or properties are too long for their length fields.
    """
    sys_flag &= ~(MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6)
    if len(born_host) == 20:
        sys_flag |= MessageSysFlag.BORNHOST_V6
    if len(store_host) == 20:
        sys_flag |= MessageSysFlag.STOREHOSTADDRESS_V6
    topic_bytes = topic.encode()
    if len(topic_bytes) > MAX_TOPIC_BYTES_V1:
        magic, topic_length = MESSAGE_MAGIC_V2, _UINT16.pack(len(topic_bytes))
    else:
        magic, topic_length = MESSAGE_MAGIC, bytes((len(topic_bytes),))
    if with_record_crc and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    properties_length = len(properties) + (CRC32_PROPERTY_BYTES if with_record_crc else 0)
    if properties_length > MAX_PROPERTIES_BYTES:
        raise LocalProtocolError(
            f"properties take {properties_length} bytes; at most {MAX_PROPERTIES_BYTES} fit a record"
        )
    total = (
        _HEAD.size + len(born_host) + 8 + len(store_host) + _AFTER_STORE_HOST.size + len(body)
        + len(topic_length) + len(topic_bytes) + 2 + properties_length
    )  # fmt: skip
    record = b"".join(
        (
            _HEAD.pack(
                total, magic, body_crc(body), queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp_ms
            ),
            born_host,
            _AFTER_BORN_HOST.pack(store_timestamp_ms),
            store_host,
            _AFTER_STORE_HOST.pack(reconsume_times, prepared_transaction_offset, len(body)),
            body,
            topic_length,
            topic_bytes,
            _UINT16.pack(properties_length),
            properties,
        )
    )
    return record + crc32_property(body_crc(record)) if with_record_crc else record


def decode_record(buffer: bytes | bytearray | memoryview, offset: int = 0) -> StoredMessage:
    """The record that starts at `offset`; raises RemoteProtocolError unless every length and checksum agrees.

    Properties are what a sender made of them: bytes in them that are not UTF-8 become U+FFFD, as stock clients read them.
    """
    view = memoryview(buffer)[offset:]
    if len(view) < MIN_RECORD_BYTES:
        raise RemoteProtocolError(f"a record has at least {MIN_RECORD_BYTES} bytes, {len(view)} are here")
    total, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms = _HEAD.unpack_from(view)
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
        raise RemoteProtocolError(f"0x{magic:08X} is not a record's magic")
    if not MIN_RECORD_BYTES <= total <= len(view):
        raise RemoteProtocolError(f"a record claims {total} bytes, {len(view)} are here")
    view = view[:total]
    born_host_end = _HEAD.size + (20 if sys_flag & MessageSysFlag.BORNHOST_V6 else 8)
    store_host_start = born_host_end + 8
    store_host_end = store_host_start + (20 if sys_flag & MessageSysFlag.STOREHOSTADDRESS_V6 else 8)
    body_start = store_host_end + _AFTER_STORE_HOST.size
    topic_length_bytes = 2 if magic == MESSAGE_MAGIC_V2 else 1
    if body_start + topic_length_bytes + 2 > total:
        raise RemoteProtocolError("the record ends inside its fixed part")
    (store_ms,) = _AFTER_BORN_HOST.unpack_from(view, born_host_end)
    reconsume_times, prepared_offset, body_length = _AFTER_STORE_HOST.unpack_from(view, store_host_end)
    body_end = body_start + body_length
    topic_start = body_end + topic_length_bytes
    if body_length < 0 or topic_start + 2 > total:
        raise RemoteProtocolError(f"a body of {body_length} bytes does not fit a record of {total}")
    topic_end = topic_start + int.from_bytes(view[body_end:topic_start], "big")
    properties_start = topic_end + 2
    if properties_start + int.from_bytes(view[topic_end:properties_start], "big") != total:
        raise RemoteProtocolError("the record's lengths do not add up to its size")
    body = bytes(view[body_start:body_end])
    if body_length and body_crc(body) != crc:
        raise RemoteProtocolError("the body does not match its CRC")
    check_record_crc(view)
    try:
        topic = str(view[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("the record's topic is not UTF-8") from error
    properties = string_to_properties(str(view[properties_start:], "utf-8", "replace"))
    return StoredMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        size_bytes=total,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp_ms=born_ms,
        born_host=unpack_host(bytes(view[_HEAD.size : born_host_end])),
        store_timestamp_ms=store_ms,
        store_host=unpack_host(bytes(view[store_host_start:store_host_end])),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=crc,
        body=body,
        properties=properties,
    )


def topic_bytes_of(buffer: bytes | bytearray | memoryview, offset: int = 0) -> bytes:
    """The topic of the record at `offset`, as it is stored, without a look at anything else that its sender chose. Empty where the
    lengths do not lead to one.
    """
    if len(buffer) - offset < MIN_RECORD_BYTES:
        return b""
    size, magic, _, _, _, _, _, sys_flag, _ = _HEAD.unpack_from(buffer, offset)
    body_length_at = offset + _HEAD.size + (20 if sys_flag & MessageSysFlag.BORNHOST_V6 else 8) + 8
    body_length_at += (20 if sys_flag & MessageSysFlag.STOREHOSTADDRESS_V6 else 8) + _AFTER_STORE_HOST.size - 4
    end = min(offset + size, len(buffer))
    if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) or body_length_at + 4 > end:
        return b""
    length_at = body_length_at + 4 + int.from_bytes(buffer[body_length_at : body_length_at + 4], "big")
    begin = length_at + (2 if magic == MESSAGE_MAGIC_V2 else 1)
    if begin > end:
        return b""
    topic_end = begin + int.from_bytes(buffer[length_at:begin], "big")
    return bytes(buffer[begin:topic_end]) if topic_end <= end else b""


def check_record_crc(record: bytes | memoryview) -> bool:
    """Whether `record`, one whole record, ends in a `__CRC32#` property; raises RemoteProtocolError if it is wrong."""
    crc_start = len(record) - CRC32_PROPERTY_BYTES
    tail = bytes(record[crc_start:])
    if not tail.startswith(CRC32_PROPERTY_PREFIX):
        return False
    if tail != crc32_property(body_crc(record[:crc_start])):
        raise RemoteProtocolError("the record does not match its CRC")
    return True


def decode_records(buffer: bytes | bytearray | memoryview) -> list[StoredMessage]:
    """All records of a pull answer's body; raises RemoteProtocolError when it is not records through and through."""
    messages: list[StoredMessage] = []
    position = 0
    view = memoryview(buffer)
    while position < len(view):
        message = decode_record(view, position)
        messages.append(message)
        position += message.size_bytes
    return messages


class BatchItem(NamedTuple):
    """One message inside the body of SEND_BATCH_MESSAGE: all that the batch's own header does not already say."""

    flag: int
    body: bytes
    properties: bytes  # the property string, UTF-8


def encode_batch_body(items: Iterable[BatchItem]) -> bytes:
    """MessageDecoder.encodeMessages; raises LocalProtocolError when a message's properties are too long."""
    parts: list[bytes] = []
    for item in items:
        if len(item.properties) > MAX_PROPERTIES_BYTES:
            raise LocalProtocolError(
                f"properties take {len(item.properties)} bytes; at most {MAX_PROPERTIES_BYTES} fit a record"
            )
        size = _BATCH_ITEM_HEAD.size + len(item.body) + 2 + len(item.properties)
        parts.append(_BATCH_ITEM_HEAD.pack(size, 0, 0, item.flag, len(item.body)))
        parts.append(item.body)
        parts.append(_UINT16.pack(len(item.properties)))
        parts.append(item.properties)
    return b"".join(parts)


class BatchColumns(NamedTuple):
    """The messages inside a batch, taken apart: the n-th of each belong together, as in a BatchItem."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]


def decode_batch_body(body: bytes | bytearray | memoryview) -> Sequence[BatchItem]:
    """The messages inside a batch; raises RemoteProtocolError when lengths do not add up."""
    return list(map(BatchItem, *decode_batch_columns(body)))


def decode_batch_columns(body: bytes | bytearray | memoryview, most: int = sys.maxsize) -> BatchColumns:
    """The messages inside a batch, by columns; raises RemoteProtocolError when lengths do not add up, or for more than `most`."""
    data = bytes(body)
    columns = _alike_columns(data)
    if columns is not None:
        return columns
    end = len(data)
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    position = 0
    unpack = _BATCH_ITEM_HEAD.unpack_from
    head_bytes = _BATCH_ITEM_HEAD.size
    while position < end:
        if len(flags) >= most:
            raise RemoteProtocolError(f"the batch has more than {most} messages: split it")
        if end - position < head_bytes + 2:
            raise RemoteProtocolError("the batch ends inside a message's head")
        size, _magic, _crc, flag, body_length = unpack(data, position)
        body_start = position + head_bytes
        body_end = body_start + body_length
        properties_start = body_end + 2
        if body_length < 0 or properties_start > end:
            raise RemoteProtocolError(f"message {len(flags)} of the batch claims a body of {body_length} bytes")
        properties_end = properties_start + (data[body_end] << 8) + data[body_end + 1]
        if properties_end > end or properties_end - position != size:
            raise RemoteProtocolError(f"the lengths in message {len(flags)} of the batch do not add up")
        flags.append(flag)
        bodies.append(data[body_start:body_end])
        properties.append(data[properties_start:properties_end])
        position = properties_end
    return BatchColumns(flags, bodies, properties)


def _alike_columns(data: bytes) -> BatchColumns | None:
    """The columns of a batch whose messages all have the lengths of its first, by one call; None for any other batch."""
    if len(data) < _BATCH_ITEM_HEAD.size + 2:
        return None
    size, _magic, _crc, _flag, body_length = _BATCH_ITEM_HEAD.unpack_from(data)
    properties_length = size - _BATCH_ITEM_HEAD.size - 2 - body_length
    if size <= 0 or body_length < 0 or not 0 <= properties_length <= MAX_PROPERTIES_BYTES:
        return None
    count, rest = divmod(len(data), size)
    if rest or count > _ALIKE_MAX or data[-size : 4 - size] != data[:4]:
        return None
    columns = _alike_struct(count, body_length, properties_length).unpack(data)
    if (
        columns[0::6] != (size,) * count
        or columns[2::6] != (body_length,) * count
        or columns[4::6] != (properties_length,) * count
    ):
        return None
    return BatchColumns(columns[1::6], columns[3::6], columns[5::6])


@lru_cache(maxsize=64)
def _alike_struct(count: int, body_length: int, properties_length: int) -> struct.Struct:
    # As _BATCH_ITEM_HEAD, without magic and CRC.
    return struct.Struct(">" + f"i8xii{body_length}sH{properties_length}s" * count)
