"""Records as bytes, between two copies of one log: what a leader hands out and what a follower takes in.

Both logs have the same file size, so the same bytes stand at the same offsets. A BLANK travels as the 8 bytes of its head, and
what follows it is the next file's first record.
"""

from __future__ import annotations

from brokerd.store.commit_log import CommitLog, Segment
from brokerd.store.config import StoreConfig
from brokerd.store.consume_queue import ConsumeQueue
from brokerd.store.consume_queue_store import ConsumeQueueStore
from brokerd.store.errors import LogDamagedError, RecordWithoutCrcError
from brokerd.store.record import (
    BLANK_HEAD_BYTES,
    ENTRY,
    NOT_CONSUMABLE,
    DispatchRequest,
    DispatchTagsCode,
    parse_record,
)
from brokerd.store.status import StoreStatus
from mqwire.message import BLANK_MAGIC


class RawAppender:
    """Main thread only."""

    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, consume_queues: ConsumeQueueStore, status: StoreStatus
    ) -> None:
        self._config = config
        self._log = commit_log
        self._consume_queues = consume_queues
        self._status = status
        self._tags_code = DispatchTagsCode(config.delay_levels_ms)

    def append(self, data: bytes, at_offset: int, record_crc_from: int) -> int:
        """See MessageStore.append_raw; raises RecordWithoutCrcError for a record at or after `record_crc_from`."""
        if self._status.refusal is not None:
            self._status.check()
        if self._consume_queues.unwritten_entries > self._config.unwritten_entries_max:
            self._consume_queues.spill()
        log = self._log
        if at_offset != log.end_offset:
            raise ValueError(f"records for offset {at_offset} can't be appended at {log.end_offset}")
        segments: list[Segment] = []
        records: list[DispatchRequest] = []
        position = start = 0  # in data
        offset = segment_offset = at_offset
        while position < len(data):
            file_end = log.base_of(offset) + log.file_bytes
            record = parse_record(data, position, offset, file_end - offset, offset >= record_crc_from)
            if isinstance(record, DispatchRequest):
                records.append(record)
                position += record.size_bytes
                offset += record.size_bytes
            elif record == file_end - offset:
                position += BLANK_HEAD_BYTES
                segments.append((segment_offset, (data[start:position],), position - start))
                start = position
                offset = segment_offset = file_end
            elif parse_record(data, position, offset, file_end - offset, False) is not None:
                raise RecordWithoutCrcError(f"what is to be appended at {offset} has no CRC of itself")
            else:
                raise ValueError(f"what is to be appended at {offset} is no record")
        if position > start:
            segments.append((segment_offset, (data[start:position],), position - start))
        indexed = self._index(records)
        log.append(segments)
        log.end_offset = offset
        for queue, record, code in indexed:
            if record.queue_offset > queue.next_offset and not queue.is_empty:  # its first message, as in recovery
                self._consume_queues.unwritten_entries -= queue.begin_at(record.queue_offset)
            self._consume_queues.unwritten_entries += queue.put(
                record.queue_offset, record.physical_offset, record.size_bytes, code
            )
        if records:
            log.last_record_offset = records[-1].physical_offset
        return offset

    def _index(self, records: list[DispatchRequest]) -> list[tuple[ConsumeQueue, DispatchRequest, int]]:
        """The queue and tags code of each of these records; raises ValueError when one doesn't follow the last of its queue."""
        entries = []
        next_offsets: dict[ConsumeQueue, int] = {}
        for record in records:
            if record.sys_flag & NOT_CONSUMABLE:
                continue
            topic = record.topic.decode("utf-8", "replace")
            queue = self._consume_queues.queues.get((topic, record.queue_id))
            if queue is None:
                queue = self._consume_queues.create(topic, record.queue_id)
            expected = next_offsets.get(queue, queue.next_offset)
            # Where a queue begins its leader decides: it may have forgotten, with the log's first files, that there was one.
            begins = queue not in next_offsets and (
                queue.is_empty or self._begins_elsewhere(queue, record.queue_offset)
            )
            if record.queue_offset < 0 or (record.queue_offset != expected and not begins):
                raise ValueError(
                    f"{topic}, queue {record.queue_id}: offset {record.queue_offset} can't follow {expected - 1}"
                )
            next_offsets[queue] = record.queue_offset + 1
            code = self._tags_code.of(record.topic, record.properties, record.store_timestamp_ms)
            entries.append((queue, record, code))
        return entries

    def _begins_elsewhere(self, queue: ConsumeQueue, queue_offset: int) -> bool:
        """Whether a queue that shows no message, and knows another number, has its first one with this.

        - A replica that started over: the topic was deleted after this message, and its leader said where the next one of the
          name goes on.
        - A power cut has brought the files of a deleted topic's queue back: its leader has forgotten the deletion with the log's
          first files, and counts from zero.
        - A power cut has left the last file of the queue alone, or an empty one, and no record of the log had its numbers.
        - It was killed when it had deleted damaged files, as its leader had, and did not know yet where this queue goes on.
        """
        if queue_offset == queue.next_offset:
            return False  # as ever: nothing is read for it
        last = self._consume_queues.read(queue, queue.next_offset - 1, 1)
        if not last:
            return True
        floor = max(self._log.min_offset, queue.floor_physical_offset)
        return bool(ENTRY.unpack(last)[0] < floor)

    def read(self, offset: int, max_bytes: int, bound: int, record_crc_from: int, *, check: bool) -> bytes:
        """See MessageStore.read_raw."""
        log = self._log
        if not check and bound - offset <= max_bytes and log.base_of(offset) == log.base_of(bound - 1):
            # All that is left, in one file: a record begins at `offset` and one ends at `bound`, so nothing is to be parsed.
            return log.read(offset, bound - offset) if bound > offset else b""
        parts: list[bytes] = []
        total = 0
        ends_with_blank = False
        has_record = False
        while offset < bound:
            file_end = log.base_of(offset) + log.file_bytes
            head = log.read(offset, BLANK_HEAD_BYTES)
            size = int.from_bytes(head[:4], "big")
            if (
                len(head) == BLANK_HEAD_BYTES
                and int.from_bytes(head[4:], "big") == BLANK_MAGIC
                and size == file_end - offset
            ):
                parts.append(head)
                total += BLANK_HEAD_BYTES
                offset = file_end
                ends_with_blank = True
                continue
            window = log.read(offset, max(size, min(max_bytes - total, file_end - offset, bound - offset)))
            position = 0
            while position < len(window):
                at = offset + position
                record = parse_record(window, position, at, file_end - at, at >= record_crc_from)
                if not isinstance(record, DispatchRequest):
                    break
                if has_record and total + record.size_bytes > max_bytes:
                    if position:
                        parts.append(window[:position])
                    elif ends_with_blank:
                        parts.pop()  # a BLANK goes with the record for which it was written: both are of one epoch
                    return b"".join(parts)
                position += record.size_bytes
                total += record.size_bytes
                has_record = True
            parts.append(window[:position])
            offset += position
            ends_with_blank = False
            if position == 0 or total >= max_bytes:
                break
        if not has_record and offset < bound:
            raise LogDamagedError(offset)
        return b"".join(parts)
