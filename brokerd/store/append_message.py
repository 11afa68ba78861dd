"""The hot path of sends: encode, give offsets, write once, index.

Everything for one message is done in one loop over tuples and local names; what is the same for all messages of a queue (its
topic as it stands in a record) is prepared in the ConsumeQueue object. See tests/bench/store_append.py for what it costs.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence

from brokerd.store.append_batch import CRC_PROPERTY_REVERSED, encode_batch, is_common
from brokerd.store.commit_log import CommitLog, Segment
from brokerd.store.config import END_FILE_MIN_BLANK_BYTES, StoreConfig
from brokerd.store.consume_queue import ConsumeQueue
from brokerd.store.consume_queue_store import ConsumeQueueStore
from brokerd.store.disk import Buffer
from brokerd.store.errors import MessageIllegalError
from brokerd.store.record import BLANK, BLANK_HEAD_BYTES, ENTRY, NOT_CONSUMABLE, DispatchTagsCode
from brokerd.store.results import AppendResult, BatchResult, BatchToStore, MessageToStore
from brokerd.store.send_counts import SHARDING_KEY_PREFIX, TRANSACTION_BITS, SendCounts, extra_units_of
from brokerd.store.status import StoreStatus
from mqwire.checksum import crc32
from mqwire.codes import MessageSysFlag
from mqwire.message import (
    BLANK_MAGIC,
    CRC32_PROPERTY_BYTES,
    CRC32_PROPERTY_PREFIX,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
)
from mqwire.metering import UNIT_BYTES
from mqwire.names import PROPERTY_CRC32

_CRC32_NAME = PROPERTY_CRC32.encode()
_CLOCK_STEP_BACK_MAX_MS = 10_000
"""A clock that is set back by no more than this is waited for, so that store timestamps rise along a queue. One that was
far ahead by mistake is followed back: offsets by time are then vague for that stretch, but no timestamp lies for months."""
_FLAGS_OF_OTHERS = MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6
_PACK_UINT16 = struct.Struct(">H").pack
_PACK_ENTRY = ENTRY.pack


class MessageAppender:
    """Invariant: a call stores all its messages or none; after a refusal nothing of it is visible anywhere."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        consume_queues: ConsumeQueueStore,
        status: StoreStatus,
        store_host: bytes,
    ) -> None:
        self.last_store_timestamp_ms = 0
        self._config = config
        self._log = commit_log
        self._consume_queues = consume_queues
        self._status = status
        self._tags_code = DispatchTagsCode(config.delay_levels_ms)
        self._store_host = store_host
        # The fixed part of a record, for a born host of 4 and of 16 address bytes.
        self._head_v4 = struct.Struct(f">IIIiiqqiq8sq{len(store_host)}siqi")
        self._head_v6 = struct.Struct(f">IIIiiqqiq20sq{len(store_host)}siqi")
        self._store_host_flag = MessageSysFlag.STOREHOSTADDRESS_V6 if len(store_host) == 20 else 0

    def append(
        self,
        messages: Sequence[MessageToStore],
        now_ms: int,
        counts: SendCounts | None = None,
        *,
        any_size: bool = False,
    ) -> list[AppendResult]:
        """Store all messages in order, or none; see MessageStore.append."""
        now_ms = self._begin(now_ms)
        log = self._log
        config = self._config
        with_crc = config.append_record_crc
        body_bytes_max = sys.maxsize if any_size else config.max_message_size_bytes
        queues = self._consume_queues.queues
        store_host = self._store_host
        store_host_flag = self._store_host_flag
        crc_bytes = CRC32_PROPERTY_BYTES if with_crc else 0
        pack_head_v4 = self._head_v4.pack
        around_v4_bytes = self._head_v4.size + 2 + crc_bytes  # with an IPv4 born host, all but the variable parts
        new_tuple = tuple.__new__  # half the price of AppendResult(...)
        properties_bytes_max = MAX_PROPERTIES_BYTES - crc_bytes

        position = start = log.end_offset
        file_bytes = log.file_bytes
        last_end = position - position % file_bytes + file_bytes - END_FILE_MIN_BLANK_BYTES

        segments: list[Segment] = []
        buffers: list[Buffer] = []
        results: list[AppendResult] = []
        indexed: list[ConsumeQueue] = []
        index = 0
        last_topic = ""  # a batch's messages share their queue: what follows from it is looked up once
        last_queue_id = -1
        # What is counted: of the messages of one topic in a row, and those of another kind than "normal" apart.
        runs: list[tuple[str, int, int, int]] = []
        specials: list[tuple[str, int, bytes, int]] = []
        run_start = run_specials = run_bytes = run_extra_units = 0
        is_scheduled = False
        try:
            for (
                topic,
                queue_id,
                flag,
                sys_flag,
                born_timestamp_ms,
                born_host,
                reconsume_times,
                prepared_transaction_offset,
                body,
                properties,
                tags_code,
            ) in messages:
                if topic is not last_topic or queue_id != last_queue_id:
                    if topic is not last_topic and index:
                        runs.append(
                            (last_topic, index - run_start - len(specials) + run_specials, run_bytes, run_extra_units)
                        )
                        run_start, run_specials, run_bytes, run_extra_units = index, len(specials), 0, 0
                    queue = queues.get((topic, queue_id)) or self._create_queue(topic, queue_id)
                    last_topic, last_queue_id = topic, queue_id
                    is_scheduled = queue.is_schedule_topic
                    middle = queue.record_middle
                    middle_bytes = len(middle)
                    magic = MESSAGE_MAGIC if middle_bytes <= MAX_TOPIC_BYTES_V1 + 1 else MESSAGE_MAGIC_V2
                if sys_flag & 0xB0:  # IPv6 bits follow from the hosts' lengths; batches inside a message are not ours
                    sys_flag = self._own_sys_flag(sys_flag)
                body_bytes = len(body)
                if body_bytes > body_bytes_max:
                    raise ValueError(f"the body has {body_bytes} bytes, maxMessageSize is {body_bytes_max}")
                if properties and with_crc:
                    # One byte is found seven times as fast as a name, and few properties hold it: here, and for the "H" below.
                    if 0x23 in properties and _CRC32_NAME in properties:
                        properties = _without_record_crc(properties)
                    if properties[-1:] != b"\x02":
                        properties += b"\x02"
                properties_bytes = len(properties)
                if properties_bytes > properties_bytes_max:
                    raise ValueError(
                        f"the properties have {properties_bytes} bytes, at most {properties_bytes_max} fit"
                    )
                if len(born_host) == 8:
                    pack_head = pack_head_v4
                    size = around_v4_bytes + body_bytes + middle_bytes + properties_bytes
                else:
                    pack_head = self._head_v6.pack
                    sys_flag |= MessageSysFlag.BORNHOST_V6
                    size = around_v4_bytes + 12 + body_bytes + middle_bytes + properties_bytes
                if position + size > last_end:
                    if size + END_FILE_MIN_BLANK_BYTES > file_bytes:
                        raise ValueError(f"the record has {size} bytes, a CommitLog file {file_bytes}")
                    # END_OF_FILE: a BLANK takes the rest of the file, the record goes to the next.
                    blank_end = last_end + END_FILE_MIN_BLANK_BYTES
                    buffers.append(BLANK.pack(blank_end - position, BLANK_MAGIC))
                    segments.append((start, buffers, position + BLANK_HEAD_BYTES - start))
                    buffers = []
                    position = start = blank_end
                    last_end = position + file_bytes - END_FILE_MIN_BLANK_BYTES
                if sys_flag & NOT_CONSUMABLE:
                    queue_offset = 0
                else:
                    queue_offset = queue.next_offset
                    queue.next_offset = queue_offset + 1
                    indexed.append(queue)
                    if is_scheduled:
                        tags_code = self._tags_code.of(queue.topic_bytes, properties, now_ms)
                    queue.tail += _PACK_ENTRY(position, size, tags_code)
                fixed = pack_head(
                    size,
                    magic,
                    crc32(body) & 0x7FFFFFFF,
                    queue_id,
                    flag,
                    queue_offset,
                    position,
                    sys_flag | store_host_flag,
                    born_timestamp_ms,
                    born_host,
                    now_ms,
                    store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    body_bytes,
                )
                if with_crc:
                    rest = middle + _PACK_UINT16(properties_bytes + CRC32_PROPERTY_BYTES) + properties
                    crc = crc32(rest, crc32(body, crc32(fixed))) & 0x7FFFFFFF
                    rest += (CRC_PROPERTY_REVERSED % crc)[::-1]
                else:
                    rest = middle + _PACK_UINT16(properties_bytes) + properties
                buffers += (fixed, body, rest)
                if (
                    is_scheduled
                    or sys_flag & TRANSACTION_BITS
                    or (0x48 in properties and SHARDING_KEY_PREFIX in properties)
                ):
                    specials.append((topic, sys_flag, properties, body_bytes))
                else:
                    run_bytes += body_bytes
                    if body_bytes > UNIT_BYTES:
                        run_extra_units += extra_units_of(body_bytes)
                results.append(new_tuple(AppendResult, (position, size, queue_offset, now_ms)))
                position += size
                index += 1
            if buffers:
                segments.append((start, buffers, position - start))
            log.append(segments)
        except (ValueError, struct.error) as error:
            _unindex(indexed)
            raise MessageIllegalError(index, str(error)) from error
        except BaseException:
            _unindex(indexed)
            raise
        log.end_offset = position
        if results:
            log.last_record_offset = results[-1].physical_offset
        self.last_store_timestamp_ms = now_ms
        self._consume_queues.unwritten_entries += len(indexed)
        if counts is not None and index:
            count = None if runs or specials else counts.normal.get(last_topic)
            if count is not None:  # nearly always: the same as below, for one run alone
                count[0] += index
                count[1] += run_bytes
                count[2] += index + run_extra_units
            else:
                runs.append((last_topic, index - run_start - len(specials) + run_specials, run_bytes, run_extra_units))
                for topic, run_messages, run_bytes, run_extra_units in runs:
                    counts.add(topic, "normal", run_messages, run_bytes, run_messages + run_extra_units)
                for special in specials:
                    counts.add_special(*special)
        return results

    def append_batch(self, batch: BatchToStore, now_ms: int, counts: SendCounts | None = None) -> BatchResult:
        """Store the messages of a batch in order, or none; see MessageStore.append_batch."""
        log = self._log
        config = self._config
        topic = batch.topic
        queue = self._consume_queues.queues.get((topic, batch.queue_id))
        if queue is None or not config.append_record_crc or not is_common(batch, queue):
            return self._append_one_by_one(batch, now_ms, counts)
        now_ms = self._begin(now_ms)
        position = log.end_offset
        try:
            encoded = encode_batch(
                batch,
                queue,
                physical_offset=position,
                store_timestamp_ms=now_ms,
                store_host=self._store_host,
                max_body_bytes=config.max_message_size_bytes,
            )
        except (ValueError, struct.error):
            return self._append_one_by_one(batch, now_ms, counts)  # which names the message that is to blame
        size = len(encoded.records)
        if position % log.file_bytes + size > log.file_bytes - END_FILE_MIN_BLANK_BYTES:
            return self._append_one_by_one(batch, now_ms, counts)  # a BLANK comes in between
        log.append([(position, [encoded.records], size)])
        count = len(encoded.physical_offsets)
        queue_offset = queue.next_offset
        queue.next_offset += count
        queue.tail += encoded.entries
        log.end_offset = position + size
        log.last_record_offset = encoded.physical_offsets[-1]
        self.last_store_timestamp_ms = now_ms
        self._consume_queues.unwritten_entries += count
        if counts is not None:
            counts.add(topic, "normal", count, encoded.body_bytes, count + encoded.extra_units)
        return BatchResult(encoded.physical_offsets, queue_offset, log.end_offset, now_ms)

    def _append_one_by_one(self, batch: BatchToStore, now_ms: int, counts: SendCounts | None) -> BatchResult:
        results = self.append(batch.messages(), now_ms, counts)
        first, last = results[0], results[-1]
        return BatchResult(
            [result.physical_offset for result in results],
            first.queue_offset,
            last.physical_offset + last.size_bytes,
            first.store_timestamp_ms,
        )

    def _begin(self, now_ms: int) -> int:
        """The store timestamp of the records that are about to be made at `now_ms`; raises when none are taken."""
        if self._status.refusal is not None:
            self._status.check()
        if self._consume_queues.unwritten_entries > self._config.unwritten_entries_max:
            self._consume_queues.spill()
        last_ms = self.last_store_timestamp_ms
        return last_ms if last_ms - _CLOCK_STEP_BACK_MAX_MS <= now_ms < last_ms else now_ms

    def _create_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self._consume_queues.create(topic, queue_id)

    @staticmethod
    def _own_sys_flag(sys_flag: int) -> int:
        if sys_flag & MessageSysFlag.INNER_BATCH:
            raise ValueError("batches inside one message (batch ConsumeQueues) are not supported")
        return sys_flag & ~_FLAGS_OF_OTHERS


def _unindex(indexed: list[ConsumeQueue]) -> None:
    """Take back the entries of a call that failed."""
    for queue in reversed(indexed):
        queue.next_offset -= 1
        del queue.tail[-ENTRY.size :]


def _without_record_crc(properties: bytes) -> bytes:
    """A client's own `__CRC32#` property would be taken for ours."""
    kept = [pair for pair in properties.split(b"\x02") if pair and not pair.startswith(CRC32_PROPERTY_PREFIX)]
    return b"".join(pair + b"\x02" for pair in kept)
