"""RocketMQ's IndexFile, as bytes, and which keys a record is found by. Pure. Sources: IndexHeader, IndexFile, IndexService.

    byte 0    | begin timestamp 8 | end timestamp 8 | begin offset 8 | end offset 8 | slots used 4 | index count 4 |
    byte 40   maxHashSlotNum slots: | the newest entry of this slot 4 |, 0: none
    then      maxIndexNum entries: | key hash 4 | physical offset 8 | seconds since begin timestamp 4 | entry before it 4 |

Big-endian. Entries are numbered from 1 (what the first takes up is never used), and the index count is the next number, so
that 0 can mean "none". An entry names the one before it in its slot: a chain from the newest to the oldest. A key is known by
its hash only, and several keys share a hash: a reader must look at the record itself.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final, NamedTuple

from mqwire.java_hash import java_hash
from mqwire.names import PROPERTY_KEYS, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX

HEADER: Final = struct.Struct(">qqqqii")
ENTRY: Final = struct.Struct(">iqii")
HEADER_BYTES: Final = HEADER.size
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = ENTRY.size
INDEX_BYTES_OF_KEY: Final = ENTRY_BYTES + SLOT_BYTES
FIRST_ENTRY: Final = 1
SECONDS_MAX: Final = 2**31 - 1

UNIQUE_KEY_PREFIX: Final = (PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX + "\x01").encode()
KEYS_PREFIX: Final = (PROPERTY_KEYS + "\x01").encode()


class IndexHeader(NamedTuple):
    """Of a file that holds nothing: all 0, as a new file is, but for the count."""

    begin_timestamp_ms: int = 0  # store timestamps of the first entry and of the last
    end_timestamp_ms: int = 0
    begin_offset: int = 0  # where the records of those begin in the CommitLog
    end_offset: int = 0
    slots_used: int = 0
    index_count: int = FIRST_ENTRY


def unpack_header(data: bytes) -> IndexHeader:
    """A file of zeros, or one too short to have a header, holds nothing."""
    if len(data) < HEADER_BYTES:
        return IndexHeader()
    header = IndexHeader(*HEADER.unpack_from(data))
    return header if header.index_count > FIRST_ENTRY else IndexHeader()


def file_bytes(slots: int, entries: int) -> int:
    return HEADER_BYTES + slots * SLOT_BYTES + entries * ENTRY_BYTES


def positive(value: int) -> int:
    """Math.abs of the signed value, and 0 for the one that has none: what entries hold and slots are chosen by."""
    if value <= 0x7FFFFFFF:
        return value
    return 0 if value == 0x80000000 else 0x100000000 - value


def key_hash(topic: str, key: str) -> int:
    """The hash under which a message of `topic` with `key` is found (IndexFile.indexKeyHashMethod)."""
    return positive(java_hash(f"{topic}#{key}".encode("utf-8", "surrogatepass")))


def property_value(properties: bytes, prefix: bytes) -> bytes:
    """The value of the property whose "name 0x01" is `prefix`; b"" without one. Of several the last counts, as in Java."""
    found = properties.rfind(prefix)
    if found < 0:
        return b""
    if found == 0 or properties[found - 1] == 2:
        end = properties.find(b"\x02", found)
        return properties[found + len(prefix) : end if end >= 0 else len(properties)]
    value = b""  # the name's end is also another's: look at each
    for pair in properties.split(b"\x02"):
        if pair.startswith(prefix):
            value = pair[len(prefix) :]
    return value


def keys_of(properties: bytes) -> tuple[bytes, list[bytes]]:
    """A record's UNIQ_KEY (b"" without one) and its KEYS, which blanks separate."""
    unique_key = property_value(properties, UNIQUE_KEY_PREFIX)
    keys = property_value(properties, KEYS_PREFIX)
    return unique_key, [key for key in keys.split(b" ") if key] if keys else []


def runs(numbers: list[int], gap: int = 1) -> list[tuple[int, int]]:
    """[begin, end) runs of ascending numbers that lie at most `gap` apart."""
    if not numbers:
        return []
    breaks = [position for position, (one, next_one) in enumerate(pairwise(numbers), 1) if next_one - one > gap]
    return [
        (numbers[begin], numbers[end - 1] + 1) for begin, end in zip([0, *breaks], [*breaks, len(numbers)], strict=True)
    ]
