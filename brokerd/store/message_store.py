"""MessageStore: the store's one door.

Threads: everything belongs to one thread, but flush() and sync_consume_queues(), which block and may each run in a worker
thread at the same time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from brokerd.store.append_message import MessageAppender
from brokerd.store.append_raw import RawAppender
from brokerd.store.clock import Clock
from brokerd.store.commit_log import DISK_FULL, NO_DESCRIPTOR, NO_ROOM, CommitLog
from brokerd.store.config import StoreConfig
from brokerd.store.consume_queue_store import ConsumeQueueStore, WrittenEntries
from brokerd.store.disk import Disk
from brokerd.store.errors import (
    DiskFullError,
    FlushFailedError,
    LogDamagedError,
    RecordDamagedError,
    RecordWithoutCrcError,
    StoreClosedError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
)
from brokerd.store.get_message import AcceptTagsCode, MessageReader
from brokerd.store.index_service import IndexService
from brokerd.store.log_copy import copy_log
from brokerd.store.log_repair import LogRepair
from brokerd.store.log_scanner import LogScanner
from brokerd.store.message_query import MessageQueries
from brokerd.store.record import offset_after
from brokerd.store.recovery import Recovery
from brokerd.store.results import (
    AppendResult,
    BatchResult,
    BatchToStore,
    BoundaryType,
    GetMessageStatus,
    GetResult,
    MessageToStore,
    RecoveryReport,
    RetentionReport,
    StoreState,
)
from brokerd.store.retention import expirable_files, expired_files
from brokerd.store.send_counts import SendCounts
from brokerd.store.status import StoreStatus
from brokerd.store.store_checkpoint import INDEX_AHEAD_MS, NO_RECORD_CRC, StoreCheckpoint
from brokerd.store.store_lock import take_lock
from brokerd.store.tail_doubts import TailDoubt, TailDoubts
from brokerd.store.topic_tombstones import Tombstone, TopicTombstones

_SPACE_CHECK_INTERVAL_MS = 1000


class MessageStore:
    """One CommitLog with its ConsumeQueues, in a directory that an Apache RocketMQ broker could serve as well.

    `store_host` is this broker's address as records hold it (mqwire.message.pack_host). Open it before use.
    """

    def __init__(self, config: StoreConfig, *, disk: Disk, clock: Clock, store_host: bytes) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._store_host = store_host
        self._status = StoreStatus()
        self._lock_fd = -1
        self._kept_from: dict[tuple[str, int], int] = {}  # by topic and queue; stays when the store is reopened
        self._sync_lock = threading.Lock()
        self._reopen_with: tuple[int | None] | None = None  # the confirm offset that an unfinished reopening sets
        self._reset()

    def _reset(self) -> None:
        config, disk = self._config, self._disk
        self._checkpoint = StoreCheckpoint()
        self._tombstones = TopicTombstones(disk, config.path("topicTombstones.json"))
        self._doubts = TailDoubts(disk, config.path("log.uncertain"))
        self._log = CommitLog(config, disk, self._status)
        self._queues = ConsumeQueueStore(config, disk, self._tombstones, self._kept_from)
        self._appender = MessageAppender(config, self._log, self._queues, self._status, self._store_host)
        self._raw_appender = RawAppender(config, self._log, self._queues, self._status)
        self._reader = MessageReader(config, self._log, self._queues)
        self.index = IndexService(config, disk, self._log, self._note_damage)
        self.queries = MessageQueries(self.index, self._reader, self._tombstones)
        self._disk_full = False
        self._share_passed = False  # diskSpaceWarningLevelRatio was, at the last look
        self._did_not_fit = False  # something lately, and there has not been room for more since
        self._damaged_from: int | None = None
        self._unsynced: WrittenEntries | None = None  # what write_consume_queues() gave last, until that is synced
        self._queues_durable_until = 0  # recovery finds the ConsumeQueues' entries for what lies below without the log
        self.damage_seen: int | None = None  # near which a reader met no whole record; not looked at closer yet
        self._next_space_check_ms = 0

    # -- opening and closing

    def open(self) -> RecoveryReport:
        """Take the lock and recover; returns what was found. With damage the store opens read-only.

        Raises StoreLockedError, StoreFormatError (nothing was touched), FlushFailedError or OSError.
        """
        began = time.monotonic_ns()
        if self._lock_fd >= 0:
            raise StoreLockedError("this store is open already")
        self._reset()
        self._disk.make_directory(self._config.root_dir)
        self._lock_fd = take_lock(self._disk, self._config.path("lock"))
        try:
            report = self._recover()
        except BaseException:
            self._release()
            raise
        report.duration_ms = (time.monotonic_ns() - began) // 1_000_000
        return report

    def _recover(self) -> RecoveryReport:
        config, disk, log = self._config, self._disk, self._log
        disk.sync_directory(config.root_dir)  # a name that a killed process saw is not durable for that
        abort = config.path("abort")
        clean = not disk.exists(abort)
        self._checkpoint = StoreCheckpoint.load(disk, config.path("checkpoint"))
        fresh = not self._checkpoint.own and not disk.listdir(config.commit_log_dir)
        self._doubts.load()
        recovery = Recovery(config, disk, log, self._queues, self._tombstones, self._checkpoint, self._doubts)
        report = recovery.run()
        report.clean_shutdown = clean
        same_boot = self._checkpoint.own and self._checkpoint.boot_id == disk.boot_id() != ""
        may_save_checkpoint = True
        reopens = self._reopen_with is not None  # this very process had it open: its machine has not gone down since
        if not (clean or fresh or same_boot or reopens):
            try:
                self._doubts.add(TailDoubt.LOST_PAGE_CACHE)  # before the checkpoint names this boot
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                may_save_checkpoint = False  # nor by retention, which runs once the user of the log has noted the doubt
        self._appender.last_store_timestamp_ms = max(
            recovery.last_store_timestamp_ms, self._checkpoint.physic_msg_timestamp_ms
        )
        self._reader.trusted_from = report.end_offset if report.damage else report.scanned_from
        self._reader.damaged = bool(report.damage)
        self._damaged_from = report.damage[0].begin_offset if report.damage else None
        # In front of it they were taken as they are. Not 0 until the next sync: a full disk may have none before there is room.
        self._queues_durable_until = report.scanned_from
        self._reader.record_crc_from = self._checkpoint.record_crc_from
        report.anomalies.extend(self.index.load(report, clean))
        if report.damage:
            first = report.damage[0]
            self._status.latch(
                StoreDamagedError(
                    f"the CommitLog is damaged at {first.begin_offset}..{first.end_offset}: read-only until repaired by another"
                    " replica; without others, restore a backup, or see truncateDamagedTail"
                )
            )
            return report
        try:
            log.make_recovered_durable(report.durable_mark)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:  # nothing that was written is in doubt
                raise
            failure = FlushFailedError(f"syncing {config.commit_log_dir} failed: {error.strerror}")
            self._note_failed_sync(failure)
            raise failure from error
        disk.make_directory(config.consume_queue_dir)
        self._queues.trim()
        checkpoint = self._checkpoint
        crc_from_before = checkpoint.record_crc_from
        if not config.append_record_crc:
            checkpoint.record_crc_from = NO_RECORD_CRC
        elif fresh:
            checkpoint.record_crc_from = 0
        elif checkpoint.record_crc_from > report.end_offset:
            checkpoint.record_crc_from = report.end_offset
        self._reader.record_crc_from = checkpoint.record_crc_from
        checkpoint.boot_id = disk.boot_id()
        self._status.opened()
        self._remove_deleted_topics()
        if may_save_checkpoint:
            begins = not checkpoint.own and not report.records_scanned
            self._save_recovered(needed=begins or checkpoint.record_crc_from > crc_from_before)
        self._tombstones.save_truncated()
        if clean:
            fd = disk.open(abort, os.O_RDWR | os.O_CREAT)
            disk.close(fd)
            disk.sync_directory(config.root_dir)
        return report

    def _save_recovered(self, *, needed: bool) -> None:
        """Have the next recovery begin here. On a full disk it may begin where this one did; else no retention could ever make
        room. It is `needed` where the records that are appended now have no CRC any more, and before the first one: without a
        checkpoint a write that a power cut has torn is damage.
        """
        try:
            self.flush_consume_queues()
        except (DiskFullError, OSError) as error:
            if needed or not (isinstance(error, DiskFullError) or error.errno in DISK_FULL):
                raise

    def _remove_deleted_topics(self) -> None:
        """Finish deletions that a crash interrupted: topics of which no queue shows a message any more."""
        for topic in self._queues.topics():
            tombstone = self._tombstones.get(topic)
            # With the deletion's place the log may have lost a later topic's messages, whose numbers its queues keep.
            if (
                tombstone is not None
                and tombstone.physical_offset > self._log.min_offset
                and all(
                    self._reader.min_stored_offset(queue) == queue.next_offset
                    for queue in self._queues
                    if queue.topic == topic
                )
            ):
                self._queues.delete_topic(topic)

    def close(self, clean: bool = True) -> None:
        """Sync everything and take away the `abort` file; with clean=False just let go, as a crash would.

        Raises what flush() raises; the lock is released all the same.
        """
        if self._lock_fd < 0:
            return
        try:
            if clean and self._status.refusal is None:
                self.flush_consume_queues()
                self.index.flush_if_wanted()
                self._disk.unlink(self._config.path("abort"))
                self._disk.sync_directory(self._config.root_dir)
        finally:
            self._release()

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        self.index.close()
        if self._lock_fd >= 0:
            self._disk.close(self._lock_fd)
            self._lock_fd = -1
        self._status.refusal = StoreClosedError("the store is closed")

    # -- state

    @property
    def state(self) -> StoreState:
        if self._lock_fd < 0:
            return StoreState.CLOSED
        return StoreState.RUNNING if self._status.refusal is None else StoreState.READ_ONLY

    @property
    def refusal(self) -> StoreReadOnlyError | None:
        """Why nothing can be appended; None while it can. A full disk is not among the reasons: see disk_full."""
        return self._status.refusal

    @property
    def disk_full(self) -> bool:
        """Whether appends are refused for want of room, as of the last look (at most a second old under load)."""
        return self._disk_full

    @property
    def doubts(self) -> frozenset[TailDoubt]:
        """Why the log may lack records at its end; kept over restarts until forget_doubts()."""
        return self._doubts.reasons

    def forget_doubts(self) -> None:
        """The user of the log has noted them, durably. Raises OSError."""
        self._doubts.forget()

    def _note_failed_sync(self, failure: FlushFailedError) -> None:
        try:
            self._doubts.add(TailDoubt.SYNC_FAILED)
        except OSError as error:
            failure.add_note(f"Nor can that be noted for the next start: {error}")

    def lacks_room(self) -> bool:
        """Whether this disk is full, by a look of at most a second ago, or something did not fit and there is no room yet.

        Other than disk_full it is looked at also while nothing is appended, and after what did not fit it passes only when
        room for many records has been reserved: a replica that is to lead a group should have that.
        """
        now_ms = self._clock.now_ms()
        if self._space_check_is_due(now_ms):
            self._check_space(now_ms)
        return self._disk_full or self._did_not_fit

    @property
    def end_offset(self) -> int:
        """The byte after the last appended record."""
        return self._log.end_offset

    @property
    def durable_offset(self) -> int:
        """The byte after the last synced record."""
        return self._log.durable_offset

    @property
    def commit_log_file_bytes(self) -> int:
        """mappedFileSizeCommitLog: where a BLANK head stands in read_raw's bytes, the next file follows."""
        return self._log.file_bytes

    @property
    def min_physical_offset(self) -> int:
        """The first byte that retention has left."""
        return self._log.min_offset

    @property
    def confirm_offset(self) -> int:
        """Readers see records that end at or before it: the end of the log unless it was set."""
        return self._reader.bound

    @confirm_offset.setter
    def confirm_offset(self, offset: int | None) -> None:
        self._reader.confirm_offset = offset

    # -- appending

    def append(
        self, messages: Sequence[MessageToStore], counts: SendCounts | None = None, *, any_size: bool = False
    ) -> list[AppendResult]:
        """Store all messages in order, with one write, or none of them; give them their offsets, and add them to `counts`.

        `any_size`: copies of messages that are stored, to which maxMessageSize is no limit.
        They are readable at once (up to confirm_offset) and durable after a flush(). Raises MessageIllegalError (names
        the one message; append the others without it), DiskFullError, StoreReadOnlyError.
        """
        now_ms = self._clock.now_ms()
        if self._disk_full or self._space_check_is_due(now_ms):
            self._look_for_room(now_ms)
        try:
            return self._appender.append(messages, now_ms, counts, any_size=any_size)
        except DiskFullError:
            self._disk_full = True  # until the next look
            raise

    def append_batch(self, batch: BatchToStore, counts: SendCounts | None = None) -> BatchResult:
        """As append(batch.messages(), counts), for less. A batch holds one message at least."""
        now_ms = self._clock.now_ms()
        if self._disk_full or self._space_check_is_due(now_ms):
            self._look_for_room(now_ms)
        try:
            return self._appender.append_batch(batch, now_ms, counts)
        except DiskFullError:
            self._disk_full = True
            raise

    def _look_for_room(self, now_ms: int) -> None:
        if self._space_check_is_due(now_ms):
            self._check_space(now_ms)
        if self._disk_full:
            self._status.check()
            raise DiskFullError(self._disk_full_text())

    def append_raw(self, data: bytes, at_offset: int, *, checked: bool = False) -> int:
        """Append whole records as a leader's read_raw() gave them; returns the new end offset.

        Raises ValueError unless `at_offset` is the end and every record is whole and says so itself. By a CRC of itself, unless
        the leader has `checked` them: it knows from where on those of its log have one.
        """
        try:
            try:
                end_offset = self._raw_appender.append(data, at_offset, self._reader.record_crc_from)
            except RecordWithoutCrcError:
                if not checked:
                    raise
                self._expect_records_without_crc()
                end_offset = self._raw_appender.append(data, at_offset, NO_RECORD_CRC)
        except DiskFullError:
            self._did_not_fit = True
            raise
        if data:
            self._did_not_fit = False
        return end_offset

    def _expect_records_without_crc(self) -> None:
        """From now on, durably, until the next start: it would take them for damaged ones."""
        checkpoint = self._checkpoint
        with self._sync_lock:
            crc_from, checkpoint.record_crc_from = checkpoint.record_crc_from, NO_RECORD_CRC
            try:
                checkpoint.save(self._disk, self._config.path("checkpoint"))
            except OSError as error:
                checkpoint.record_crc_from = crc_from
                raise StoreError(f"the checkpoint can't be written: {error.strerror}") from error
        self._reader.record_crc_from = NO_RECORD_CRC

    def append_needed(self, message: MessageToStore) -> AppendResult:
        """As append(), but also where diskSpaceWarningLevelRatio is passed: for small records without which no one leads."""
        (result,) = self._appender.append([message], self._clock.now_ms(), None)
        return result

    def _space_check_is_due(self, now_ms: int) -> bool:
        # Also when the clock was set back: a full disk would stay full until it is as late again.
        return not 0 < self._next_space_check_ms - now_ms <= _SPACE_CHECK_INTERVAL_MS

    def _check_space(self, now_ms: int) -> None:
        self._next_space_check_ms = now_ms + _SPACE_CHECK_INTERVAL_MS
        if self._disk_full and not self._share_passed:  # an append did not fit since the last look
            self._did_not_fit = True
        if self._did_not_fit and self._status.refusal is None:
            self._did_not_fit = not self._log.has_room()
        try:
            used_ratio = self.used_ratio()
        except OSError:
            return  # as full as it was, for the next look: delete_expired() looks as well, and raises
        self._disk_full = self._share_passed = used_ratio > self._config.disk_space_warning_level_ratio

    def used_ratio(self) -> float:
        """The used share of the fuller of the file systems that hold the store."""
        return max(
            self._disk.usage(self._config.commit_log_dir).used_ratio, self._disk.usage(self._config.root_dir).used_ratio
        )

    def _disk_full_text(self) -> str:
        return f"the disk is full, or more than {self._config.disk_space_warning_level_ratio:.0%} of it is used"

    # -- durability

    def flush(self) -> int:
        """Sync all records that were appended when this began; returns the durable offset. Blocks: for a worker thread.

        An error is for ever: FlushFailedError now and at each later call, appends are refused, reads go on.
        """
        durable = self._flush_log()
        with suppress(
            DiskFullError, OSError
        ):  # the append that needs the file will say so, when it still cannot be made then
            self._log.prepare_next_file()
        return durable

    def _flush_log(self) -> int:
        try:
            return self._log.flush()
        except FlushFailedError as failure:
            self._note_failed_sync(failure)
            raise

    def write_consume_queues(self) -> WrittenEntries:
        """Put the ConsumeQueues' fresh entries into their files, unsynced: quick, for the main thread, once a second or so.

        Give the result to sync_consume_queues(). Raises DiskFullError (nothing is lost: the entries stay in memory).
        """
        if self._status.refusal is not None:
            self._status.check()
        log, earlier = self._log, self._unsynced
        written = self._queues.write(log.end_offset, log.last_record_offset, self._appender.last_store_timestamp_ms)
        self._unsynced = written if earlier is None else written.with_those_of(earlier)
        return self._unsynced

    def sync_consume_queues(self, written: WrittenEntries) -> None:
        """Sync the log, then these entries, then the checkpoint, so that recovery begins here. Blocks: for a worker thread.

        One at a time, in the order of the writes. Raises FlushFailedError (latched) or OSError (try again later).
        """
        with self._sync_lock:  # the deletion of a topic does not wait for the worker's turn
            durable = self._flush_log()
            if (
                written is not self._unsynced
            ):  # those that were written after them have been synced with them, or could not be
                self._queues.written_again(written)
                return
            self._unsynced = None
            try:
                self._queues.sync(written)
                self._save_checkpoint(written, durable)
            except OSError:
                self._queues.written_again(written)
                self._unsynced = None  # nor can those be said to be durable that were written meanwhile
                raise
            self._queues_durable_until = written.dispatch_offset

    def _save_checkpoint(self, written: WrittenEntries, durable: int) -> None:
        checkpoint = self._checkpoint
        checkpoint.physic_msg_timestamp_ms = written.store_timestamp_ms
        checkpoint.logics_msg_timestamp_ms = min(written.store_timestamp_ms, self.index.written_until_ms)
        checkpoint.index_msg_timestamp_ms = written.store_timestamp_ms + INDEX_AHEAD_MS if self.index.files else 0
        checkpoint.confirm_phy_offset = written.dispatch_offset
        checkpoint.durable_mark = durable
        checkpoint.dispatch_offset = written.dispatch_offset
        checkpoint.last_record_offset = written.last_record_offset
        checkpoint.queues_digest = written.queues_digest
        checkpoint.commit_log_file_bytes = self._config.mapped_file_size_commit_log_bytes
        checkpoint.consume_queue_file_bytes = self._config.mapped_file_size_consume_queue_bytes
        checkpoint.save(self._disk, self._config.path("checkpoint"))

    def flush_consume_queues(self) -> None:
        """write_consume_queues() and sync_consume_queues() in one."""
        self.sync_consume_queues(self.write_consume_queues())

    # -- reading

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        *,
        accept: AcceptTagsCode | None = None,
    ) -> GetResult:
        """Records of a queue from `offset` on, at least one (whatever its size) and at most `max_count`.

        `accept` sees the tags code of each entry; a filtered pull looks at a bounded number of entries and then answers
        NO_MATCHED_MESSAGE with where to go on. Raises RecordDamagedError when a message is damaged, StoreError when the
        disk can't be read.
        """
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return GetResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
        try:
            return self._reader.get_messages(queue, offset, max_count, max_bytes, accept)
        except RecordDamagedError as error:
            self._note_damage(error.physical_offset)
            raise
        except OSError as error:
            raise _unreadable(topic, queue_id, error) from error

    def _note_damage(self, physical_offset: int) -> None:
        """For a closer look; what retention has deleted isn't damaged."""
        if physical_offset >= self._log.min_offset:
            self.damage_seen = physical_offset

    def scan(self, offset: int, *, window_bytes: int) -> LogScanner:
        """The records from `offset` on, where one begins, read in windows; up to what is appended by then."""
        return LogScanner(self._log, offset, self._checkpoint.record_crc_from, window_bytes)

    def index_entries(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` ConsumeQueue entries from queue offset `first` on; consume_queue.py draws one."""
        queue = self._queues.queues.get((topic, queue_id))
        return b"" if queue is None else self._queues.read(queue, first, count)

    def count_keys(self, entry: bytes) -> int:
        """How many keys the record of a ConsumeQueue entry has beside its UNIQ_KEY, as its last bytes say, unchecked."""
        return self._reader.count_keys(entry)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the queue's next visible message gets; 0 when there is no such queue.

        Raises StoreError when the disk can't be read.
        """
        queue = self._queues.queues.get((topic, queue_id))
        try:
            return self._reader.max_offset(queue) if queue is not None else 0
        except OSError as error:
            raise _unreadable(topic, queue_id, error) from error

    def queue_end_offset(self, topic: str, queue_id: int) -> int | None:
        """The offset that the queue's next message gets, visible or not; None when there is no such queue."""
        queue = self._queues.queues.get((topic, queue_id))
        return None if queue is None else queue.next_offset

    def queue_offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """The queue offset of its first message at `physical_offset` or after it; its end when there is none; 0 when there is no
        queue. Raises StoreError when the disk can't be read.
        """
        queue = self._queues.queues.get((topic, queue_id))
        if queue is None:
            return 0
        try:
            low = self._queues.min_stored_offset(queue, self._log.min_offset)
            return queue.first_offset_at(
                low, physical_offset, lambda first, count: self._queues.read(queue, first, count)
            )
        except OSError as error:
            raise _unreadable(topic, queue_id, error) from error

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's first message that is kept; its max offset when none is; 0 when there is no queue.

        Raises StoreError when the disk can't be read.
        """
        queue = self._queues.queues.get((topic, queue_id))
        try:
            return self._reader.min_offset(queue) if queue is not None else 0
        except OSError as error:
            raise _unreadable(topic, queue_id, error) from error

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """The queue offset of a moment (by store timestamps); 0 when there is no such queue."""
        queue = self._queues.queues.get((topic, queue_id))
        return self._reader.offset_by_time(queue, timestamp_ms, boundary) if queue is not None else 0

    def expired_to(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset up to which all messages were stored before a moment, and can be read; 0 when there is no such queue."""
        queue = self._queues.queues.get((topic, queue_id))
        return self._reader.expired_to(queue, timestamp_ms) if queue is not None else 0

    def message_at(self, physical_offset: int, *, expired_too: bool = False) -> bytes | None:
        """The record that starts exactly there; None unless a whole, undamaged, visible one does that is kept.

        With `expired_too` also one that has expired while a consumer had it in hand.
        """
        return self._reader.message_at(physical_offset, expired_too=expired_too)

    def store_timestamp_of(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 when there is none at that offset."""
        queue = self._queues.queues.get((topic, queue_id))
        return self._reader.store_timestamp_of(queue, offset) if queue is not None else -1

    def physical_offset_of(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where the record of a message begins in the CommitLog; None when there is none at that offset."""
        queue = self._queues.queues.get((topic, queue_id))
        return self._reader.physical_offset_of(queue, offset) if queue is not None else None

    def read_raw(self, offset: int, max_bytes: int, *, check: bool = False) -> bytes:
        """Whole records (and BLANK heads) from a record's start on, for a follower; at least one, up to the log's end.

        Followers fetch beyond confirm_offset: that they hold a record is what moves it. What this process wrote or checked
        lately is given as it is, unless `check` asks for it. Raises LogDamagedError when no whole record is at `offset`.
        """
        check = check or offset < self._reader.trusted_from_now
        try:
            crc_from = self._reader.record_crc_from
            return self._raw_appender.read(offset, max_bytes, self._log.end_offset, crc_from, check=check)
        except LogDamagedError as error:
            self._note_damage(error.physical_offset)
            raise

    def records_and_next(self, offset: int, max_bytes: int) -> bytes:
        """As read_raw(), checked, with one record more where there is a whole one: what another replica proves its log by."""
        data = self.read_raw(offset, max_bytes, check=True)
        following = offset_after(data, offset, self.commit_log_file_bytes)
        if following >= self.end_offset:
            return data
        try:
            return data + self.read_raw(following, 1, check=True)
        except LogDamagedError:  # noted; what is whole in front of it may be all that the other one lacks
            return data

    def copy_log(self, begin_offset: int, end_offset: int, path: str) -> None:
        """Copy the log's bytes to a new file, each at its offset - `begin_offset`; durable on return.

        Blocks. Raises DiskFullError and OSError, and leaves no file then.
        """
        copy_log(self._disk, self._log, path, begin_offset, end_offset)

    def truncate(self, end_offset: int) -> RecoveryReport:
        """Make `end_offset`, where a record ends, the log's end, durably: for a replica whose log parts from its leader's.

        Blocks, reopens the store, and is safe to be killed anywhere. Raises ValueError and what open() raises; for want of a
        descriptor DiskFullError, and it `wants_reopening`.
        """
        if not self._log.min_offset <= end_offset <= self._log.end_offset:
            raise ValueError(f"{end_offset} is outside of the log, {self._log.min_offset}..{self._log.end_offset}")
        if self._damaged_from is None:  # else nothing is written any more: recovery dispatches what is left again
            self.flush_consume_queues()
        return self._truncate(end_offset)

    def _truncate(self, end_offset: int) -> RecoveryReport:
        log_is_as_it_was = True
        try:
            self._lower_checkpoint(end_offset)
            self.index.truncate(end_offset)
            log_is_as_it_was = False
            self._log.truncate(end_offset)
        except OSError as error:  # how much of it was done is for recovery to find out
            if error.errno in NO_DESCRIPTOR:
                self._close_to_reopen(self._reader.confirm_offset)
                raise DiskFullError(f"no descriptor to truncate {self._config.root_dir}: {error.strerror}") from error
            failure = FlushFailedError(f"truncating {self._config.commit_log_dir} failed: {error.strerror}")
            if not log_is_as_it_was:  # else no record is in doubt, and its replica votes as before
                self._note_failed_sync(failure)
            raise self._status.latch(failure) from error
        return self._reopen(self._reader.confirm_offset)

    def _reopen(self, confirm_offset: int | None) -> RecoveryReport:
        self._close_to_reopen(confirm_offset)
        return self.reopen()

    def _close_to_reopen(self, confirm_offset: int | None) -> None:
        self._reopen_with = (confirm_offset,)
        self._release()

    @property
    def wants_reopening(self) -> bool:
        """Whether it was closed to be opened again, and that failed: reopen() goes on. Its end may be another one, and meanwhile
        nothing of it may be read.
        """
        return self._reopen_with is not None and self._lock_fd < 0

    def reopen(self) -> RecoveryReport:
        """Open it again where `wants_reopening`. Raises what open() raises; DiskFullError for want of room or descriptors."""
        if self._reopen_with is None:
            raise ValueError("the store was not closed to be opened again")
        (confirm_offset,) = self._reopen_with
        try:
            report = self.open()
        except Exception as error:
            self.confirm_offset = 0  # that of before is in `_reopen_with`
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise DiskFullError(f"opening {self._config.root_dir} again failed: {error.strerror}") from error
            raise
        self._reopen_with = None
        self.confirm_offset = None if confirm_offset is None else min(confirm_offset, report.end_offset)
        return report

    def _lower_checkpoint(self, end_offset: int) -> None:
        """Before the log is truncated: below what the checkpoint calls durable recovery would call that damage."""
        checkpoint, path = self._checkpoint, self._config.path("checkpoint")
        if not checkpoint.own:  # without one recovery reads everything
            if self._disk.exists(path):
                self._disk.unlink(path)
                self._disk.sync_directory(self._config.root_dir)
            return
        # A file begins with a record, so everything from its file's first byte on is dispatched again.
        file_base = self._log.base_of(end_offset)
        if file_base < checkpoint.dispatch_offset:
            queues = ConsumeQueueStore(self._config, self._disk, self._tombstones)
            checkpoint.queues_digest = queues.load(file_base)
            queues.close()
            checkpoint.dispatch_offset = checkpoint.last_record_offset = file_base
        checkpoint.durable_mark = min(checkpoint.durable_mark, end_offset)
        checkpoint.confirm_phy_offset = min(checkpoint.confirm_phy_offset, end_offset)
        checkpoint.save(self._disk, path)

    @property
    def damaged_from(self) -> int | None:
        """The first byte that is known to be damaged; None when the log is sound as far as it was read.

        It was found by recovery, or declared so later; the store takes nothing more until it is put right.
        """
        return self._damaged_from

    def locate_damage(self, offset: int) -> int | None:
        """Where the damage begins that a reader met at `offset`; None when the log is sound there, or retention deleted it.

        Reads up to a whole CommitLog file. Blocks: for a worker thread. Raises OSError.
        """
        repair = LogRepair(self._config, self._disk, self._reader.record_crc_from)
        found = repair.locate(offset, self._log.end_offset)
        return None if found is None or found < self._log.min_offset else found

    def declare_damaged(self, begin_offset: int) -> None:
        """Take nothing more, for the log is damaged from there on and another replica can put that right."""
        if self._damaged_from is None:
            self._damaged_from = begin_offset
            self._reader.trusted_from = self._log.end_offset
            self._status.latch(
                StoreDamagedError(f"the CommitLog is damaged at {begin_offset}: read-only until repaired")
            )

    def write_over(self, begin_offset: int, data: bytes) -> None:
        """Write another replica's records over damage that a reader met, while the store goes on as it is.

        Blocks, beside appends, reads and flushes, but alone with the message index. Raises ValueError when it is not proven
        that they are this log's, and OSError.
        """
        repair = LogRepair(self._config, self._disk, self._reader.record_crc_from)
        try:
            repair.write(begin_offset, data, self._log.end_offset, needs_proof=True, announce=self.index.expect)
        finally:
            self._reader.log_was_written_over()

    def repair(self, data: bytes, *, needs_proof: bool) -> RecoveryReport:
        """Write another replica's records from `damaged_from` on over the damage; what is whole after it stays.

        They must be proven by a record after them that this log has, too; without `needs_proof` they may also be its last ones.
        Blocks, reopens the store, and is safe to be killed anywhere. Raises ValueError when they do not fit into this log, which
        is then as it was, and what open() raises.
        """
        begin_offset = self._damaged_from
        if begin_offset is None:
            raise ValueError("the log is not damaged")
        record_crc_from = self._reader.record_crc_from
        repaired_to = LogRepair(self._config, self._disk, record_crc_from).write(
            begin_offset, data, self._log.end_offset, needs_proof=needs_proof, announce=self.index.expect
        )
        report = self._reopen(self._reader.confirm_offset)
        if report.damage and report.damage[0].begin_offset < repaired_to:
            raise ValueError(f"the log is still damaged at {report.damage[0].begin_offset}")
        return report

    def truncate_damaged(self) -> RecoveryReport:
        """Make the first damaged byte the log's end, durably, so that it can be fetched again from another replica.

        Blocks, reopens the store for writing, and is safe to be killed anywhere. Raises ValueError and what open() raises.
        """
        begin_offset = self._damaged_from
        if begin_offset is None:
            raise ValueError("the log is not damaged")
        return self._truncate(begin_offset)

    def delete_damaged(self, below_offset: int, queues: Sequence[tuple[str, int, int]]) -> RecoveryReport:
        """Delete the files in front of `below_offset`, where one begins, and the damage with them; what comes after it stays.

        For a replica whose leader's retention has deleted that: no one puts it right any more. `queues` are the leader's
        queues_without_messages(): one that ended in the damage goes on counting there. Blocks, reopens the store; killed in
        between it leaves a log that begins earlier. Raises ValueError and what open() raises.
        """
        begin_offset = self._damaged_from
        if begin_offset is None or not begin_offset < below_offset < self._log.end_offset:
            raise ValueError(f"no damage has all of the log's records in front of {below_offset}")
        if below_offset not in self._log.bases:
            raise ValueError(f"{below_offset} is no file's first byte")
        try:
            while self._log.min_offset < below_offset:
                self._log.delete_first_file()
        except OSError as error:  # how much of it was done is for recovery to find out
            failure = FlushFailedError(
                f"deleting damaged files of {self._config.commit_log_dir} failed: {error.strerror}"
            )
            raise self._status.latch(failure) from error
        report = self._reopen(self._reader.confirm_offset)
        self._queues.go_on(below_offset, queues)
        self.flush_consume_queues()
        return report

    def queues_without_messages(self) -> list[tuple[str, int, int]]:
        """(topic, queue id, next offset) of the queues that retention has emptied: only they know where they go on."""
        return [
            (queue.topic, queue.queue_id, queue.next_offset)
            for queue in self._queues
            if queue.next_offset and self._reader.min_stored_offset(queue) >= queue.next_offset
        ]

    def start_over(self, begin_offset: int, queues: Sequence[tuple[str, int, int]] = ()) -> RecoveryReport:
        """Forget all messages and make `begin_offset`, where a file begins, both ends of the log, durably.

        For a replica whose leader's retention has deleted what it lacks. `queues` are the leader's
        queues_without_messages(): they go on counting there. Blocks, reopens the store; killed in between it leaves a
        shorter log. Raises ValueError and what open() raises. Where the disk fails in between, either the failure is latched, or no
        log is left, and the store `wants_reopening`: a checkpoint that is written then would call the missing log damage.
        """
        if begin_offset % self._log.file_bytes:
            raise ValueError(
                f"{begin_offset} is no file's first byte: mappedFileSizeCommitLog must be the same on all replicas"
            )
        if self._damaged_from is None:  # else nothing is written any more
            self.flush_consume_queues()
        # Without a checkpoint recovery reads whatever log it finds from its first record, and misses nothing at its end.
        if self._disk.exists(self._config.path("checkpoint")):
            self._disk.unlink(self._config.path("checkpoint"))
            self._disk.sync_directory(self._config.root_dir)
        # The queues first, durably: files of the old ones that a power cut brought back beside the new log would be in the way
        # of what the leader sends, and it would not say again where its empty ones go on.
        no_room: DiskFullError | None = None
        try:
            try:
                self._queues.start_over(begin_offset, queues)
            except DiskFullError as error:
                no_room = error  # the log, which has no queues any more, makes room; then the leader says it again
            self.index.clear(begin_offset)
            self._log.delete_all()
        except (OSError, StoreError) as error:  # how much of it was done is for recovery to find out
            failure = FlushFailedError(f"emptying {self._config.root_dir} failed: {error}")
            raise self._status.latch(failure) from error
        try:
            if no_room is not None:
                raise no_room
            self._log.begin_at(begin_offset)
        except (OSError, DiskFullError):
            self._close_to_reopen(begin_offset)
            raise
        report = self._reopen(begin_offset)
        self.flush_consume_queues()
        return report

    @property
    def earliest_store_time_ms(self) -> int:
        """The store timestamp of the oldest record; -1 when the log is empty."""
        if self._log.min_offset >= self._log.end_offset:
            return -1
        return self._reader.store_timestamp_at(self._log.min_offset)

    # -- topics

    def topics(self) -> dict[str, list[int]]:
        """Topic -> queue ids, of all queues that have had messages (or were asked to take one)."""
        return self._queues.topics()

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's messages. A later topic of that name goes on counting where this one stopped.

        It holds from the log's present end on, and is truncated with the log: write a record of it first, and have the
        other replicas delete where that ends. The bytes stay in the CommitLog until retention takes their files.
        Raises StoreReadOnlyError, OSError.
        """
        if self._status.refusal is not None:
            self._status.check()
        next_offsets = {queue.queue_id: queue.next_offset for queue in self._queues if queue.topic == topic}
        for queue in [queue for queue in self._kept_from if queue[0] == topic]:
            del self._kept_from[queue]
        if next_offsets:
            self._tombstones.bury(topic, Tombstone(self._log.end_offset, next_offsets))
        elif not self._queues.has_files(topic):  # else the disk failed when it was deleted before
            return
        self._queues.delete_topic(topic)
        self.flush_consume_queues()

    # -- retention

    def keep_from(self, topic: str, queue_id: int, offset: int) -> None:
        """Serve no message of the queue below `offset` any more. The bytes stay in the CommitLog until their file goes.

        Held in memory: the caller knows it from records of the log, and says it again after a start. Never lowered.
        """
        key = topic, queue_id
        self._kept_from[key] = max(offset, self._kept_from.get(key, 0))

    def keep_all(self) -> None:
        """Take back every keep_from(): what has expired is about to be read from the log again."""
        self._kept_from.clear()

    def delete_expired(
        self, now_ms: int, *, keep_from_offset: int | None = None, waiting_from: int | None = None
    ) -> RetentionReport:
        """Delete CommitLog files by age and disk usage, and ConsumeQueue files that became empty; see retention.py.

        Never the active file, nor any that reaches into [keep_from_offset, ...): what is needed whatever its age. What reaches
        into [waiting_from, ...) does not expire. Call it each ten seconds or so; each call deletes at most deleteFileBatchMax
        files.
        """
        used_ratio = self.used_ratio()
        if self._status.refusal is not None:
            return RetentionReport(min_offset=self._log.min_offset, used_ratio=used_ratio)
        may_go_below = min(self._log.durable_offset, self._queues_durable_until, self.confirm_offset)
        files = expirable_files(self._config, self._log, self._reader, may_go_below, keep_from_offset)
        expired = expired_files(self._config, files, now_ms, used_ratio, waiting_from)
        for _ in expired:
            self._log.delete_first_file()
        queue_files = 0
        if expired:
            queue_files = self._queues.delete_expired(self._log.min_offset, self._queues_durable_until)
            self.index.delete_expired(self._log.min_offset)
            self._tombstones.forget_below(self._log.min_offset)
            self._next_space_check_ms = 0
        return RetentionReport(
            tuple(file.base_offset for file in expired), queue_files, self._log.min_offset, used_ratio
        )


def _unreadable(topic: str, queue_id: int, error: OSError) -> StoreError:
    return StoreError(f"reading {topic}, queue {queue_id} failed: {error.strerror}")
