"""The hot path of pulls, and the other ways to find a message: by time, by physical offset.

A record is read by the length that its ConsumeQueue entry gives, adjacent ones together, and handed out as it lies in the file.
What it says of itself (size, magic, queue, offsets) must agree with the entry; where it doesn't, the entry is looked for
again in the CommitLog, and only if that fails too the pull ends with RecordDamagedError: nothing is skipped silently.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from brokerd.store.block_cache import BLOCK_BYTES, BLOCK_MASK, BLOCK_SHIFT, BlockCache
from brokerd.store.commit_log import CommitLog
from brokerd.store.config import StoreConfig
from brokerd.store.consume_queue import BLANK_SIZE, ConsumeQueue
from brokerd.store.consume_queue_store import ConsumeQueueStore
from brokerd.store.errors import RecordDamagedError
from brokerd.store.index_format import keys_of
from brokerd.store.log_scanner import LogScanner
from brokerd.store.record import (
    ENTRY,
    MIN_RECORD_BYTES,
    NOT_CONSUMABLE,
    STORE_TIMESTAMP_HEAD_BYTES,
    DispatchRequest,
    DispatchTagsCode,
    parse_record,
    read_frame,
    record_crc_holds,
    store_timestamp_ms,
)
from brokerd.store.results import BoundaryType, GetMessageStatus, GetResult
from brokerd.store.send_counts import extra_units_of
from brokerd.store.store_checkpoint import NO_RECORD_CRC
from mqwire.message import MAX_PROPERTIES_BYTES, MESSAGE_MAGIC, MESSAGE_MAGIC_V2
from mqwire.metering import UNIT_BYTES

AcceptTagsCode = Callable[[int], bool]

# Size, queue offset, physical offset, sysFlag, and the body's length where both hosts have IPv4 addresses.
_CHECKED = struct.Struct(">I16xqqi44xi")
_HOSTS_V6 = 0x30  # of sysFlag
_BYTES_APART_MAX = BLOCK_BYTES // 2 // ENTRY.size
_UNREADABLE_MAX = 64  # entries in a row that are passed over in a search by time
_DAMAGE_MAX = 4_096  # the same at a queue's beginning, which would be stuck there
_ONE_BY_ONE_MAX = 256  # messages that a search by time looks at from a queue's beginning before its steps grow
_LIKELY_CACHED_BYTES = 1024 * 1024 * 1024
# maxMessageSize is 24 MiB at most. Where no record begins a body may claim any size, which is not to be read to see that.
_RECORD_MAX_BYTES = 32 * 1024 * 1024


class MessageReader:
    """Main thread only."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog, consume_queues: ConsumeQueueStore) -> None:
        self.confirm_offset: int | None = None  # readers see only what ends at or before it; None: end_offset
        self.record_crc_from = NO_RECORD_CRC  # records from here on have a CRC of themselves
        self.damaged = False  # recovery found damage: what the log lacks is lost, not skipped
        self.trusted_from = 0  # what lies below has not been read since the store was opened: check its CRC
        self._config = config
        self._log = commit_log
        self._consume_queues = consume_queues
        self._blocks = BlockCache(commit_log, config.read_cache_blocks_max)
        self._tags_code = DispatchTagsCode(config.delay_levels_ms)

    def log_was_written_over(self) -> None:
        """Some of its bytes are others now; in any thread."""
        self._blocks.outdated = True

    # -- bounds

    @property
    def bound(self) -> int:
        confirm = self.confirm_offset
        end = self._log.end_offset
        return end if confirm is None or confirm > end else confirm

    def max_offset(self, queue: ConsumeQueue) -> int:
        """One more than the last offset that readers may see."""
        bound = self.bound
        if bound >= self._log.end_offset:
            return queue.next_offset
        low, high = self.min_stored_offset(queue), queue.next_offset
        step = 16  # what isn't confirmed yet is usually little: look near the end first
        while high - step > low:
            if self._is_visible(queue, high - step, bound):
                low = high - step + 1
                break
            high -= step
            step *= 4
        while low < high:
            middle = (low + high) // 2
            if self._is_visible(queue, middle, bound):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_visible(self, queue: ConsumeQueue, offset: int, bound: int) -> bool:
        position, size, _ = ENTRY.unpack(self._consume_queues.read(queue, offset, 1))
        return bool(size == BLANK_SIZE or position + size <= bound)

    def min_offset(self, queue: ConsumeQueue) -> int:
        """The first offset whose message is kept; not above the max offset, as an expiry may be known before it is confirmed."""
        first = self._consume_queues.min_offset(queue, self._log.min_offset)
        return first if first <= self.min_stored_offset(queue) else min(first, self.max_offset(queue))

    def min_stored_offset(self, queue: ConsumeQueue) -> int:
        """The first offset whose record the log has, be it expired."""
        return self._consume_queues.min_stored_offset(queue, self._log.min_offset)

    # -- pulling

    def get_messages(
        self, queue: ConsumeQueue, offset: int, max_count: int, max_bytes: int, accept: AcceptTagsCode | None
    ) -> GetResult:
        """See MessageStore.get_messages."""
        min_offset = self.min_offset(queue)
        max_offset = self.max_offset(queue)
        if max_offset == 0:
            return GetResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset, [], 0, 0)
        if offset < min_offset:
            return GetResult(GetMessageStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset, [], 0, 0)
        if offset >= max_offset:
            status = (
                GetMessageStatus.OFFSET_OVERFLOW_ONE if offset == max_offset else GetMessageStatus.OFFSET_OVERFLOW_BADLY
            )
            return GetResult(status, max_offset, min_offset, max_offset, [], 0, 0)

        scan = max_count if accept is None else max(max_count, self._config.max_filter_scan_entries)
        entries = self._consume_queues.read(queue, offset, min(scan, max_offset - offset))
        if not entries:
            raise RecordDamagedError(queue.topic, queue.queue_id, offset, -1)
        first = ENTRY.unpack_from(entries)[0]
        last = ENTRY.unpack_from(entries, len(entries) - ENTRY.size)[0]
        # Blocks pay when a pull finds several of its records in one; records far apart are read one by one.
        in_blocks = last - first <= len(entries) * _BYTES_APART_MAX
        trusted_from = self.trusted_from_now
        cache = self._blocks
        if cache.outdated:
            cache.clear()
        blocks = cache.blocks
        unpack = _CHECKED.unpack_from
        chunks: list[bytes] = []
        count = 0
        total = body_bytes = extra_units = 0
        next_offset = offset
        current = -1
        block = b""
        begin = end = 0  # of the chunk that is growing, in block
        for position, size, tags_code in ENTRY.iter_unpack(entries):
            if count and (count >= max_count or total + size > max_bytes):
                break
            if accept is not None and not accept(tags_code):
                next_offset += 1
                continue
            if size == BLANK_SIZE and not self.damaged:  # no record ever had this number
                next_offset += 1
                continue
            if in_blocks:
                number = position >> BLOCK_SHIFT
                start = position & BLOCK_MASK
                stop = start + size
                if number != current or start != end:
                    if end > begin:
                        chunks.append(block[begin:end])
                    begin = end = start
                    if number != current:
                        current = number
                        block = blocks.get(number) or cache.load(number)
                if stop > len(block) and len(block) < BLOCK_BYTES:  # the log has grown since
                    if end > begin:
                        chunks.append(block[begin:end])
                        begin = start
                    block = cache.load(number)
                if size >= MIN_RECORD_BYTES and stop <= len(block):
                    own_size, own_queue_offset, own_position, sys_flag, body_length = unpack(block, start)
                    if (
                        own_position == position
                        and own_size == size
                        and own_queue_offset == next_offset
                        and (position >= trusted_from or record_crc_holds(block, start, stop))
                    ):
                        if sys_flag & _HOSTS_V6:
                            body_length = _body_length(block, start, sys_flag)
                        body_bytes += body_length
                        if body_length > UNIT_BYTES:
                            extra_units += extra_units_of(body_length)
                        end = stop
                        next_offset += 1
                        count += 1
                        total += size
                        continue
                if end > begin:
                    chunks.append(block[begin:end])
                begin = end = -1
            try:
                record = self._read_checked(queue, position, size, next_offset)
            except RecordDamagedError:
                if count:
                    break  # what is whole in front of it comes first
                raise
            chunks.append(record)
            body_length = _body_length(record, 0, int.from_bytes(record[36:40], "big"))
            body_bytes += body_length
            if body_length > UNIT_BYTES:
                extra_units += extra_units_of(body_length)
            next_offset += 1
            count += 1
            total += len(record)
        if end > begin:
            chunks.append(block[begin:end])
        if count:
            return GetResult(
                *(GetMessageStatus.FOUND, next_offset, min_offset, max_offset, chunks),
                *(count, total, body_bytes, count + extra_units),
            )
        return GetResult(GetMessageStatus.NO_MATCHED_MESSAGE, next_offset, min_offset, max_offset, [], 0, 0)

    @property
    def trusted_from_now(self) -> int:
        """Records from here on were written or checked by this process, lately: they still are in the page cache."""
        return max(self.trusted_from, self._log.end_offset - _LIKELY_CACHED_BYTES)

    def _read_checked(self, queue: ConsumeQueue, position: int, size: int, queue_offset: int) -> bytes:
        """The record of one entry, found again in the CommitLog where the entry is wrong."""
        if MIN_RECORD_BYTES <= size <= self._log.file_bytes:
            data = self._log.read(position, size)
            if len(data) == size:
                own_size, own_offset, own_position, _, _ = _CHECKED.unpack_from(data)
                if own_position == position and own_size == size and own_offset == queue_offset:
                    if position < self.trusted_from_now and not isinstance(
                        parse_record(data, 0, position, self._log.file_bytes, position >= self.record_crc_from),
                        DispatchRequest,
                    ):
                        raise RecordDamagedError(queue.topic, queue.queue_id, queue_offset, position)
                    return data
        record = self._find_record(queue, queue_offset)
        if record is None:
            raise RecordDamagedError(queue.topic, queue.queue_id, queue_offset, position)
        self._consume_queues.repair(
            queue,
            queue_offset,
            ENTRY.pack(
                record.physical_offset,
                record.size_bytes,
                self._tags_code.of(record.topic, record.properties, record.store_timestamp_ms),
            ),
        )
        return self._log.read(record.physical_offset, record.size_bytes)

    def _find_record(self, queue: ConsumeQueue, queue_offset: int) -> DispatchRequest | None:
        """Walk the log from the last good entry in front of `queue_offset` until its record comes, or a later one."""
        begin = max(self._log.min_offset, queue.floor_physical_offset)
        for earlier in range(queue_offset - 1, self.min_stored_offset(queue) - 1, -1):
            position, _, _ = ENTRY.unpack(self._consume_queues.read(queue, earlier, 1))
            record, _ = self.record_at(position)
            if record is not None and self._is(record, queue) and record.queue_offset == earlier:
                begin = position + record.size_bytes
                break
        for record in LogScanner(self._log, begin, self.record_crc_from):
            if record.physical_offset >= self.bound:
                break
            if self._is(record, queue) and record.queue_offset >= queue_offset:
                return record if record.queue_offset == queue_offset else None
        return None

    @staticmethod
    def _is(record: DispatchRequest, queue: ConsumeQueue) -> bool:
        return (
            record.queue_id == queue.queue_id
            and record.topic == queue.topic_bytes
            and not record.sys_flag & NOT_CONSUMABLE
        )

    # -- by physical offset, by time

    def record_at(self, physical_offset: int) -> tuple[DispatchRequest | None, bytes]:
        """The record that starts exactly there, whole and undamaged, or None; and the bytes that were read to see that."""
        log = self._log
        if not log.min_offset <= physical_offset < log.end_offset:
            return None, b""
        room = log.file_bytes - physical_offset % log.file_bytes
        head = log.read(physical_offset, 4)
        size = int.from_bytes(head, "big")
        if not MIN_RECORD_BYTES <= size <= min(room, _RECORD_MAX_BYTES):
            return None, head
        data = log.read(physical_offset, size)
        record = parse_record(data, 0, physical_offset, room, physical_offset >= self.record_crc_from)
        return record if isinstance(record, DispatchRequest) else None, data

    def is_indexed(self, physical_offset: int) -> bool:
        """Whether the queue that a record there names has it at this place, with this size: that is written for real ones alone."""
        log = self._log
        if not log.min_offset <= physical_offset < log.end_offset:
            return False
        frame = read_frame(log.read, physical_offset, log.file_bytes - physical_offset % log.file_bytes)
        if frame is None or frame.queue_offset < 0:
            return False
        queue = self._consume_queues.queues.get((frame.topic.decode("utf-8", "replace"), frame.queue_id))
        if queue is None:
            return False
        entry = self._consume_queues.read(queue, frame.queue_offset, 1)
        return len(entry) == ENTRY.size and ENTRY.unpack(entry)[:2] == (physical_offset, frame.size_bytes)

    def message_at(self, physical_offset: int, *, expired_too: bool = False) -> bytes | None:
        """The record of a queue's message that starts exactly there, whole and undamaged, and visible to readers; else None.

        The offset may be any: what a sender has put into a message's body may look like a record there, of anyone's topic.
        """
        if not self.is_indexed(physical_offset):
            return None
        record, data = self.record_at(physical_offset)
        return data if record is not None and self.is_readable(record, expired_too=expired_too) else None

    def is_readable(self, record: DispatchRequest, *, expired_too: bool = False) -> bool:
        """Whether readers may see it, and it is kept."""
        if record.physical_offset + record.size_bytes > self.bound:
            return False
        return expired_too or not self._consume_queues.has_expired(
            record.topic.decode(errors="replace"), record.queue_id, record.queue_offset
        )

    def count_keys(self, entry: bytes) -> int:
        """How many keys the record of an entry has beside its UNIQ_KEY, as its last bytes say, unchecked."""
        position, size, _ = ENTRY.unpack(entry)
        if size == BLANK_SIZE:
            return 0
        tail_bytes = min(size, MAX_PROPERTIES_BYTES)
        return len(keys_of(self._log.read(position + size - tail_bytes, tail_bytes))[1])

    def store_timestamp_at(self, physical_offset: int) -> int:
        """The store timestamp of the record there; -1 when no record's head is there."""
        head = self._log.read(physical_offset, STORE_TIMESTAMP_HEAD_BYTES)
        if len(head) < STORE_TIMESTAMP_HEAD_BYTES:
            return -1
        magic, own_offset = int.from_bytes(head[4:8], "big"), int.from_bytes(head[28:36], "big")
        if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) or own_offset != physical_offset:
            return -1
        return store_timestamp_ms(head)

    def store_timestamp_of(self, queue: ConsumeQueue, offset: int) -> int:
        """When the message at `offset` was stored; -1 when there is none."""
        if not self.min_offset(queue) <= offset < self.max_offset(queue):
            return -1
        return self.store_timestamp_at(ENTRY.unpack(self._consume_queues.read(queue, offset, 1))[0])

    def physical_offset_of(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Where the record of the message at `offset` begins; None when there is none."""
        if not self.min_offset(queue) <= offset < self.max_offset(queue):
            return None
        entry = self._consume_queues.read(queue, offset, 1)
        return ENTRY.unpack(entry)[0] if entry else None

    def offset_by_time(self, queue: ConsumeQueue, timestamp_ms: int, boundary: BoundaryType) -> int:
        """See MessageStore.offset_by_time."""
        low = first = self.min_offset(queue)
        high = self.max_offset(queue)
        upper = boundary is BoundaryType.UPPER
        while low < high:
            middle = (low + high) // 2
            known, stored = self._stored_from(queue, middle, high)
            if known is not None and (stored < timestamp_ms or (upper and stored == timestamp_ms)):
                low = known + 1
            else:
                high = middle
        return max(low - 1, first) if upper else low

    def expired_to(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """The first message that was not stored before a moment: all in front of it may go.

        Looked for from the front: where a clock was wrong for a while the queue is not in order, and a look in its middle would
        pass over messages that are younger. One after the other at first, which is exact, then in steps that grow: what has
        expired in a look's interval is seldom more, and after a long stop no one waits for each.
        """
        low, high, step = self.min_offset(queue), self.max_offset(queue), 1
        one_by_one_until = min(high, low + _ONE_BY_ONE_MAX)
        while low < one_by_one_until:
            known, stored = self._stored_from(queue, low, high, _DAMAGE_MAX)
            if known is None or stored >= timestamp_ms:
                return low
            low = known + 1
        while low < high:
            probe = min(low + step - 1, high - 1)
            known, stored = self._stored_from(queue, probe, high, _UNREADABLE_MAX if step > 1 else _DAMAGE_MAX)
            if known is None or stored >= timestamp_ms:
                if step == 1:
                    return low
                high, step = probe, 1
            else:
                low, step = known + 1, step * 2
        return low

    def _stored_from(
        self, queue: ConsumeQueue, offset: int, end: int, most: int = _UNREADABLE_MAX
    ) -> tuple[int | None, int]:
        """The first message from `offset` on, in front of `end`, whose record's head can be read, and when it was stored; an
        entry without a message is as old as the record that stands after it. None where none of the next `most` can be read.
        """
        for each in range(offset, min(end, offset + most)):
            position, _, _ = ENTRY.unpack(self._consume_queues.read(queue, each, 1))
            stored = self.store_timestamp_at(position)
            if stored >= 0:
                return each, stored
        return None, -1


def _body_length(record: bytes, position: int, sys_flag: int) -> int:
    """The length of the body of the record at `position`."""
    at = position + 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    return int.from_bytes(record[at : at + 4], "big")
