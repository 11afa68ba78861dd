"""Which keys the records in a block of the CommitLog are found by: the indexer's inner loop. Pure.

It looks at every byte of the log once more, for every message, on the same core that serves the sends: so it takes from a
record only what it needs, where it lies, and leaves everything unusual to record.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from operator import mul

from brokerd.store.index_format import KEYS_PREFIX, UNIQUE_KEY_PREFIX, keys_of, positive, property_value
from brokerd.store.record import MIN_RECORD_BYTES, DispatchRequest, parse_record
from mqwire.codes import MessageSysFlag
from mqwire.java_hash import MASK, MOVES, POWERS, SHORT, java_hash, joined_hash
from mqwire.message import MESSAGE_MAGIC

# Of a record with two IPv4 hosts: size, magic, physical offset, sysFlag, store timestamp, body length.
_HEAD = struct.Struct(">II20xqi16xq20xi")
_BODY_AT = 88
_HOSTS_V6 = MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6
_ROLLBACK = MessageSysFlag.TRANSACTION_ROLLBACK_TYPE
_UNUSUAL = (
    _HOSTS_V6 | MessageSysFlag.TRANSACTION_PREPARED_TYPE
)  # a bit of PREPARED is in ROLLBACK too, as it happens not
_CACHED_MAX = 1024
# A message has 1,025 at most, in older logs thousands: here a slice of work ends.
_KEYS_AT_ONCE = 2048
_HEADS_MAX = 256  # of a topic: one for each client, for a millisecond
_TAIL_POWER = 31**4 & MASK


@dataclass(slots=True)
class BlockKeys:
    """Entries to be, in the log's order, in three lists of one length; and where the reading goes on."""

    hashes: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    records: int = 0
    next_offset: int = 0
    stopped: bool = False  # in front of something that is no whole record: read more of the log, or skip damage

    def put(self, value: int, offset: int, timestamp_ms: int) -> None:
        self.hashes.append(positive(value))
        self.offsets.append(offset)
        self.timestamps_ms.append(timestamp_ms)


class IndexReader:
    """Remembers the hashes of topics, and of the parts of keys that come again."""

    def __init__(self) -> None:
        self._topics: dict[bytes, tuple[int, dict[bytes, int]]] = {}
        """Topic -> (hash of "topic#", UNIQ_KEY but its last four bytes, a counter -> hash of both, moved by those four)."""

    def read(self, buffer: bytes, offset: int, room: int, records_max: int) -> BlockKeys:
        """The keys of up to `records_max` records of `buffer`, of fewer if they have 2,048 keys. It lies at `offset` of the log;
        `room` bytes are left of that file.
        """
        found = BlockKeys()
        hashes, offsets, timestamps = found.hashes, found.offsets, found.timestamps_ms
        unpack = _HEAD.unpack_from
        rfind, find = buffer.rfind, buffer.find
        topics = self._topics
        position = records = 0
        last = len(buffer) - MIN_RECORD_BYTES
        while records < records_max:
            if position > last:
                found.stopped = self._is_blank_or_short(buffer, position, offset, room, found)
                break
            size, magic, own_offset, sys_flag, timestamp_ms, body_bytes = unpack(buffer, position)
            end = position + size
            topic_at = position + _BODY_AT + body_bytes
            begin = -1  # of the properties
            if (
                magic == MESSAGE_MAGIC
                and own_offset == offset + position
                and not sys_flag & _HOSTS_V6
                and position < topic_at < end <= len(buffer)
            ):
                topic_end = topic_at + 1 + buffer[topic_at]
                begin = topic_end + 2
            # A damaged size would lead over the next record.
            if not 0 < begin <= end or begin + (buffer[topic_end] << 8 | buffer[topic_end + 1]) != end:
                record = parse_record(buffer, position, offset + position, room - position, False)
                if not isinstance(record, DispatchRequest):
                    found.stopped = self._is_blank_or_short(buffer, position, offset, room, found)
                    break
                self._put_record(record, found)
                position += record.size_bytes
                records += 1
                if len(hashes) >= _KEYS_AT_ONCE:
                    break
                continue
            topic = buffer[topic_at + 1 : topic_end]
            prefix, heads = topics.get(topic) or self._new_topic(topic)
            if sys_flag & _ROLLBACK != _ROLLBACK:
                at = rfind(UNIQUE_KEY_PREFIX, begin, end)
                if at >= 0:
                    if at == begin or buffer[at - 1] == 2:
                        stop = find(b"\x02", at, end)
                        key = buffer[at + 9 : stop if stop >= 0 else end]
                    else:
                        key = property_value(buffer[begin:end], UNIQUE_KEY_PREFIX)
                    if len(key) > 4 and key.isascii():
                        head = heads.get(key[:-4])
                        if head is None:
                            head = self._new_head(prefix, heads, key[:-4])
                        a, b, c, d = key[-4:]
                        value = (head + a * 29791 + b * 961 + c * 31 + d) & MASK
                        # As positive() has it.
                        hashes.append(value if value <= 0x7FFFFFFF else (0x100000000 - value) & 0x7FFFFFFF)
                        offsets.append(own_offset)
                        timestamps.append(timestamp_ms)
                    elif key:
                        found.put(joined_hash(prefix, key), own_offset, timestamp_ms)
                at = rfind(KEYS_PREFIX, begin, end)
                if at >= 0:
                    if at == begin or buffer[at - 1] == 2:
                        stop = find(b"\x02", at, end)
                        keys = buffer[at + 5 : stop if stop >= 0 else end]
                    else:
                        keys = property_value(buffer[begin:end], KEYS_PREFIX)
                    for key in keys.split(b" ") if b" " in keys else (keys,):
                        if not key:
                            continue
                        size = len(key)
                        if size <= SHORT and key.isascii():  # joined_hash(), here
                            value = (prefix * MOVES[size] + sum(map(mul, key, POWERS[size]))) & MASK
                        else:
                            value = joined_hash(prefix, key)
                        hashes.append(value if value <= 0x7FFFFFFF else (0x100000000 - value) & 0x7FFFFFFF)
                        offsets.append(own_offset)
                        timestamps.append(timestamp_ms)
                    if len(hashes) >= _KEYS_AT_ONCE:
                        records_max = 0  # this one was the last
            position = end
            records += 1
        found.records = records
        found.next_offset = max(found.next_offset, offset + position)
        return found

    @staticmethod
    def _is_blank_or_short(buffer: bytes, position: int, offset: int, room: int, found: BlockKeys) -> bool:
        """Go to the next file at a BLANK; True when there is none."""
        size = parse_record(buffer, position, offset + position, room - position, False)
        if isinstance(size, int) and size == room - position:
            found.next_offset = offset + room
            return False
        return True

    def _put_record(self, record: DispatchRequest, found: BlockKeys) -> None:
        if record.sys_flag & _ROLLBACK == _ROLLBACK:
            return
        prefix, _ = self._topics.get(record.topic) or self._new_topic(record.topic)
        unique_key, keys = keys_of(record.properties)
        for key in [unique_key, *keys] if unique_key else keys:
            found.put(joined_hash(prefix, key), record.physical_offset, record.store_timestamp_ms)

    def _new_topic(self, topic: bytes) -> tuple[int, dict[bytes, int]]:
        if len(self._topics) >= _CACHED_MAX:
            self._topics.clear()
        known = self._topics[topic] = (java_hash(topic + b"#"), {})
        return known

    def _new_head(self, prefix: int, heads: dict[bytes, int], head: bytes) -> int:
        if len(heads) >= _HEADS_MAX:
            heads.clear()
        value = heads[head] = joined_hash(prefix, head) * _TAIL_POWER & MASK
        return value
