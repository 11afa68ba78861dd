"""Recovery: find the log's end, truncate what a crash tore, refuse what bit rot broke, and bring the ConsumeQueues up to it.

There is one path, whether the stop was clean or not (the `abort` file is only reported):

1. The checkpoint says from where on records must be read (all ConsumeQueue entries for earlier ones are synced), what was
   durable, and a digest of the queues. Without one of ours, or when the queues on disk don't match it, everything is read
   from the first record on.
2. Records are checked and dispatched one after the other, up to the first place p that holds none.
3. After p there are only zeros: p is the end. Otherwise a whole record is looked for there, after where the bad one at p ends
   (LogScanner.find_record_after): its body is a sender's, and may hold what looks like a record.
   - p lies below the durable mark: damage. Acknowledged data is missing; nothing is truncated, the store is read-only.
   - there is none: a torn tail. It is truncated and synced, before anything can be appended. But where the bytes at p were a
     whole record once (LogScanner.spoiled_record_end), that is one which no crash spoils: damage, as above.
   - there is one, and a power cut or a failed sync can have left it so (see StoreConfig.truncate_unproven_tail): a piece of
     what is bad has only zeros, as a write leaves it that never reached the disk. Its records are saved aside and truncated,
     and before that it is noted that the log may lack what counted (tail_doubts.py), for a damaged record may look like that:
     such a replica has no full vote and is no proof that a promotion is clean before it has caught up.
   - otherwise: damage, as above. Reading goes on after it, so that as much as possible is served.
4. Log, then ConsumeQueues, then the checkpoint are synced.

Running it again changes nothing, and it may be interrupted anywhere: it writes nothing that it would read differently.
"""

from __future__ import annotations

from brokerd.store.commit_log import CommitLog
from brokerd.store.config import StoreConfig
from brokerd.store.consume_queue import ConsumeQueue
from brokerd.store.consume_queue_store import ConsumeQueueStore
from brokerd.store.disk import Disk
from brokerd.store.errors import StoreFormatError
from brokerd.store.log_copy import copy_log
from brokerd.store.log_scanner import LogScanner
from brokerd.store.record import ENTRY, NOT_CONSUMABLE, DispatchRequest, DispatchTagsCode
from brokerd.store.results import LogRange, RecoveryReport
from brokerd.store.store_checkpoint import StoreCheckpoint
from brokerd.store.tail_doubts import TailDoubt, TailDoubts
from brokerd.store.topic_tombstones import TopicTombstones

_GAP_MAX = 1_000_000  # a queue offset that jumps further is an oddity of the record, not of the log
_ANOMALIES_MAX = 100


class _QueueHasGap(Exception):
    """The ConsumeQueue on disk lacks entries that the checkpoint promised: dispatch everything again."""


class Recovery:
    """One run of it, over the parts of a store that is being opened."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        commit_log: CommitLog,
        consume_queues: ConsumeQueueStore,
        tombstones: TopicTombstones,
        checkpoint: StoreCheckpoint,
        doubts: TailDoubts,
    ) -> None:
        self.report = RecoveryReport()
        self.last_store_timestamp_ms = 0
        self._config = config
        self._disk = disk
        self._log = commit_log
        self._queues = consume_queues
        self._tombstones = tombstones
        self._checkpoint = checkpoint
        self._doubts = doubts
        self._tags_code = DispatchTagsCode(config.delay_levels_ms)
        self._complete_rebuild = False

    def run(self) -> RecoveryReport:
        """Leaves log and queues ready for reading; for appending too unless the report lists damage."""
        self._refuse_other_stores()
        checkpoint, log, report = self._checkpoint, self._log, self.report
        same_sizes = checkpoint.own and checkpoint.commit_log_file_bytes == log.file_bytes
        problems = log.load(short_file_is_ours=same_sizes)
        self._check_consume_queue_file_size()
        self._tombstones.load()
        report.min_offset = log.min_offset
        report.durable_mark = checkpoint.durable_mark if checkpoint.own else -1
        report.anomalies.extend(problems)

        # Begin with the last record in front of the checkpoint: were it gone, the log would have lost its end.
        start = max(checkpoint.dispatch_offset, log.min_offset) if checkpoint.own else log.min_offset
        first = max(checkpoint.last_record_offset, log.min_offset) if checkpoint.own else start
        digest = self._queues.load(start)
        self._complete_rebuild = (
            not checkpoint.own
            or checkpoint.dispatch_offset <= log.min_offset
            or digest != checkpoint.queues_digest
            or len(problems) > log.last_file_is_short  # which is how a crash leaves it while the end is being zeroed
        )
        try:
            if self._complete_rebuild and start > log.min_offset:
                raise _QueueHasGap
            end = self._scan(first, start)
        except _QueueHasGap:
            self._complete_rebuild = True
            first = start = log.min_offset
            self._queues.load(start)
            end = self._scan(first, start)
        if self._tombstones.truncate(end):  # these deletions were truncated: what they hid is to be found again
            self._complete_rebuild = True
            first = start = log.min_offset
            self._queues.load(start)
            end = self._scan(first, start)
        report.scanned_from = first
        report.consume_queue_rebuilt = self._complete_rebuild and end > start
        log.end_offset = end
        report.end_offset = end
        return report

    def _refuse_other_stores(self) -> None:
        root = self._config.root_dir
        for name, what in (
            ("batchconsumequeue", "batch ConsumeQueues"),
            ("consumequeue_r", "RocksDB ConsumeQueues (storeType=defaultRocksDB)"),
        ):
            if self._disk.listdir(f"{root}/{name}"):
                raise StoreFormatError(f"{root}/{name}: {what} are not supported")
        for name in self._disk.listdir(root):
            if name.startswith("dledger-"):
                raise StoreFormatError(f"{root}/{name}: a DLedger CommitLog of Apache's has another format")

    def _check_consume_queue_file_size(self) -> None:
        known, now = self._checkpoint.consume_queue_file_bytes, self._config.mapped_file_size_consume_queue_bytes
        if self._checkpoint.own and known != now:
            raise StoreFormatError(
                f"{self._config.consume_queue_dir} was made with mappedFileSizeConsumeQueue={known}, not {now}: "
                "set the key to that, or remove the directory (it is rebuilt)"
            )

    # -- reading

    def _scan(self, start: int, dispatch_from: int) -> int:
        """Check all records from `start` on and dispatch those from `dispatch_from` on.

        Returns where the log ends, having truncated a torn tail.
        """
        report = self.report
        report.records_scanned = 0
        report.damage.clear()
        self._log.last_record_offset = start
        while True:
            scanner = LogScanner(self._log, start, self._checkpoint.record_crc_from)
            last_end = start
            for record in scanner:
                last_end = record.physical_offset + record.size_bytes
                if record.physical_offset >= dispatch_from:
                    self._dispatch(record)
                report.records_scanned += 1
                self._log.last_record_offset = record.physical_offset
            end = scanner.offset
            # A BLANK whose record is not there goes too: the next append decides what stands after the last record,
            # and another replica may have a message there, of the epoch before the one that wrote the BLANK.
            without_blank = last_end if last_end >= report.durable_mark else end
            if end >= report.durable_mark and scanner.zeros_from(end):
                if without_blank < end and not report.damage:
                    self._log.truncate(without_blank)
                    return without_blank
                self._remove_files_behind(end)
                return end
            next_record = scanner.find_record_after(end)
            if next_record is None:
                next_record = self._end_of_spoiled(scanner, end)
            if end >= report.durable_mark and (next_record is None or self._is_unproven(scanner, end, next_record)):
                if report.damage:  # damaged in front already: leave the tail as it is
                    return end
                self._truncate(without_blank, save=next_record is not None)
                return without_blank
            if next_record is None:
                damaged_until = max(report.durable_mark, end)
                report.damage.append(LogRange(end, damaged_until))
                return max(end, damaged_until)
            report.damage.append(LogRange(end, next_record))
            start = next_record

    def _is_unproven(self, scanner: LogScanner, end: int, next_record: int) -> bool:
        """Whether whole records after the bad one at `end` can be leftovers of writes that were never synced."""
        policy = self._config.truncate_unproven_tail
        if policy == "after_power_loss":
            checkpoint = self._checkpoint
            can_be_so = checkpoint.own and end >= checkpoint.durable_mark and self._lost_writes
            return can_be_so and scanner.lacks_a_piece(end, next_record)
        return policy == "always"

    @property
    def _lost_writes(self) -> bool:
        """Whether the machine went down, or a sync failed, so that any piece of what was not synced may be missing."""
        boot_id = self._disk.boot_id()  # where none can be read, two that are equal say nothing
        same_boot = self._checkpoint.boot_id == boot_id != ""
        return not same_boot or TailDoubt.SYNC_FAILED in self._doubts.reasons

    def _end_of_spoiled(self, scanner: LogScanner, begin: int) -> int | None:
        """Where the log's last record ends, if it was whole once and is none any more; None if its write may have ended early."""
        if not self._checkpoint.own:
            return None
        end = scanner.spoiled_record_end(begin)
        return None if end is None or (self._lost_writes and scanner.lacks_a_piece(begin, end)) else end

    def _dispatch(self, record: DispatchRequest) -> None:
        self.last_store_timestamp_ms = max(self.last_store_timestamp_ms, record.store_timestamp_ms)
        if record.sys_flag & NOT_CONSUMABLE:
            return
        topic = record.topic.decode("utf-8", "replace")
        queue = self._queues.queues.get((topic, record.queue_id))
        if queue is None:
            try:
                queue = self._queues.create(topic, record.queue_id)
            except ValueError as error:
                self._note(f"the record at {record.physical_offset} is in no queue: {error}")
                return
        if record.physical_offset < queue.floor_physical_offset:
            return
        if record.queue_offset != queue.next_offset:
            far = queue.next_offset > 0 and record.queue_offset > queue.next_offset + _GAP_MAX
            if record.queue_offset < 0 or (far and not self._is_all_below_the_log(queue)):
                self._note(f"the record at {record.physical_offset} claims queue offset {record.queue_offset}")
                return
            if not self._complete_rebuild:
                raise _QueueHasGap
            if not queue.next_offset and self.report.damage and not self._log.min_offset:
                self._queues.unwritten_entries += queue.put_gap(record.queue_offset, record.physical_offset)
            if record.queue_offset > queue.next_offset and self._is_all_below_the_log(queue):
                # Files of an earlier log, or of deleted records: nothing is missing in this log.
                self._queues.unwritten_entries -= queue.begin_at(record.queue_offset)
            elif queue.next_offset:
                self._note(
                    f"{topic}, queue {record.queue_id}: offset {record.queue_offset} follows {queue.next_offset - 1}"
                )
        code = self._tags_code.of(record.topic, record.properties, record.store_timestamp_ms)
        self._queues.unwritten_entries += queue.put(
            record.queue_offset, record.physical_offset, record.size_bytes, code
        )
        if self._queues.unwritten_entries > self._config.unwritten_entries_max:
            self._queues.spill()

    def _is_all_below_the_log(self, queue: ConsumeQueue) -> bool:
        """Whether all of the queue's entries, if its files have any, are for records in front of the log's first one, which
        nothing damaged precedes.
        """
        if queue.is_empty or self.report.damage:
            return False
        entry = self._queues.read(queue, queue.next_offset - 1, 1)
        return not entry or ENTRY.unpack(entry)[0] < self._log.min_offset

    def _note(self, text: str) -> None:
        if len(self.report.anomalies) < _ANOMALIES_MAX:
            self.report.anomalies.append(text)

    # -- cutting

    def _remove_files_behind(self, end: int) -> None:
        """Files that were created ahead, and a last file that is shorter than it should be, are put right."""
        log = self._log
        if log.bases and (log.bases[-1] > end or log.last_file_is_short) and not self.report.damage:
            log.truncate(end)

    def _truncate(self, end: int, save: bool) -> None:
        report = self.report
        cut_end = self._log.bases[-1] + self._log.file_bytes
        if save:
            report.truncated_saved_as = self._save_aside(end)
            self._doubts.add(TailDoubt.RECORDS_TRUNCATED)
        report.truncated = LogRange(end, cut_end)
        self._log.truncate(end)

    def _save_aside(self, begin: int) -> str:
        """Copy the log from `begin` on to a new file, `diverged/cut-<offset>`; durable on return.

        An earlier one of the same offset stays: it may hold other messages.
        """
        directory = self._config.path("diverged")
        self._disk.make_directory(directory)
        path = first = f"{directory}/cut-{begin:020d}"
        number = 1
        while self._disk.exists(path):
            path = f"{first}.{number}"
            number += 1
        copy_log(self._disk, self._log, path, begin)
        return path
