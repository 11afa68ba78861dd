"""The message index: which records a key names. RocketMQ's IndexService, built in bulk after the log is written.

Sends know nothing of it. build() reads the log after them, a bounded number of records each time, up to what readers may see:
so a query answers what is indexed by then, which is all but the last moments unless the machine is busy.

The index is a function of the log. After a crash it goes back to its checkpoint and reads on from there; without one it is
rebuilt; where the log is truncated, it is truncated. A hash is shared by several keys and an entry may outlive its record, so
candidates() are offers: the caller looks at the record.

Main thread only, but for sync_flushed(), and for expect() while it `is_away`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from brokerd.store.commit_log import DISK_FULL, CommitLog
from brokerd.store.config import StoreConfig
from brokerd.store.disk import Disk
from brokerd.store.errors import StoreError
from brokerd.store.index_checkpoint import IndexCheckpoint
from brokerd.store.index_file import IndexFile
from brokerd.store.index_format import FIRST_ENTRY, INDEX_BYTES_OF_KEY, IndexHeader, key_hash
from brokerd.store.index_reader import BlockKeys, IndexReader
from brokerd.store.log_scanner import LogScanner
from brokerd.store.record import BLANK, BLANK_HEAD_BYTES, MIN_RECORD_BYTES, record_spans
from brokerd.store.results import RecoveryReport
from brokerd.store.store_checkpoint import NO_RECORD_CRC
from mqwire.message import MESSAGE_MAGIC, MESSAGE_MAGIC_V2

_WINDOW_BYTES_MIN = 64 * 1024
_WINDOW_BYTES = 512 * 1024
_NAME_FORMAT = "%Y%m%d%H%M%S"
_NAME_DIGITS = 17
_CHAIN_MAX = 20_000  # entries looked at for one query: a few tens of milliseconds
_ALL_MS = 2**63 - 1
_CHECKPOINT_EACH_BYTES = 64 * 1024 * 1024  # of a log without keys


@dataclass(frozen=True, slots=True)
class FlushedIndex:
    """What flush_steps() has written: the files to sync, and what may be said then."""

    files: tuple[IndexFile, ...]
    checkpoint: IndexCheckpoint


class IndexService:
    def __init__(
        self, config: StoreConfig, disk: Disk, commit_log: CommitLog, note_damage: Callable[[int], None]
    ) -> None:
        self.indexed_until = 0
        self.is_away = False  # another thread has it to itself: the main thread neither changes nor reads it
        self._config = config
        self._disk = disk
        self._log = commit_log
        self._note_damage = note_damage  # called with where no whole record is
        self._directory = config.index_dir
        self._checkpoint_path = config.path("indexCheckpoint.json")
        self._files: list[IndexFile] = []  # the oldest first
        self._unsynced: list[IndexFile] = []  # full ones, written but not synced
        self._sync_failure: StoreError | None = None
        # What the checkpoint's file says, or may say where its saving failed.
        self._saved: IndexCheckpoint | None = None
        self._reader = IndexReader()
        self._window_bytes = _WINDOW_BYTES_MIN
        self._checkpointed_until = -1
        self._perhaps_saved_until = -1  # that, or what a checkpoint says whose saving failed
        # The store timestamp up to which the files on disk are whole. From the CommitLog file of that moment on an Apache broker
        # that opens the directory after a kill reads the log again: from a later one, keys in between would be in no index.
        self.written_until_ms = 0 if config.message_index_enable else _ALL_MS

    # -- state

    @property
    def last_update(self) -> tuple[int, int]:
        """(store timestamp, physical offset) of the last record with a key; zeros when there is none."""
        header = self._files[-1].header if self._files else IndexHeader()
        return header.end_timestamp_ms, header.end_offset

    @property
    def begin_timestamp_ms(self) -> int:
        """The store timestamp of the oldest entry; -1 without any."""
        return self._files[0].header.begin_timestamp_ms if self._files else -1

    @property
    def used_bytes(self) -> int:
        """What its entries take on disk, each with a slot: files are as sparse as they are empty."""
        return sum(file.header.index_count for file in self._files) * INDEX_BYTES_OF_KEY

    @property
    def files(self) -> list[str]:
        return [file.path for file in self._files]

    # -- opening

    def load(self, recovered: RecoveryReport, clean: bool) -> list[str]:
        """Find the files and how far they go; returns what had to be rebuilt, in words.

        `clean`: the store was closed properly by its last user, so an index that has no checkpoint of ours is whole.
        """
        log = self._log
        self._files = [self._file(name) for name in self._disk.listdir(self._directory) if _is_name(name)]
        checkpoint = IndexCheckpoint.load(self._disk, self._checkpoint_path)
        while checkpoint is not None and self._files and self._files[-1].name > checkpoint.file_name:
            self._delete(self._files[-1])  # younger than the checkpoint: perhaps not even of its full size
        right = [file.open() for file in self._files]
        problem = ""
        if not all(right):
            problem = "index files were made with another maxHashSlotNum or maxIndexNum"
        elif checkpoint is not None:
            self._saved = checkpoint
            problem = self._go_back_to(checkpoint)
        elif self._files:
            problem = self._adopt(clean)
        else:
            self.indexed_until = log.min_offset
        if problem:
            self.clear(log.min_offset)
            return [f"{problem}: the message index is rebuilt"]
        if self.indexed_until > recovered.end_offset:
            self._go_back(recovered.end_offset)
        # If it was truncated, entries will come where those were that slots on disk name.
        if self.wants_flush and not recovered.damage:
            try:
                self.flush(sync_log=False)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                self.clear(log.min_offset)
                return ["the disk is full: the message index is rebuilt"]
        self.indexed_until = max(self.indexed_until, log.min_offset)
        self._note_written()
        return []

    def _go_back_to(self, checkpoint: IndexCheckpoint) -> str:
        """Returns what makes that impossible."""
        if checkpoint.file_name:
            if not self._files or self._files[-1].name != checkpoint.file_name:
                return f"index file {checkpoint.file_name[:40]!a} is missing"
            newest = self._files[-1]
            if newest.header.index_count < checkpoint.header.index_count:
                return f"index file {newest.name} has lost entries"
            same_boot = checkpoint.boot_id == self._disk.boot_id() != ""
            if newest.header.index_count != checkpoint.header.index_count or not same_boot:
                newest.go_back_to_checkpoint(checkpoint.header)
        self.indexed_until = self._checkpointed_until = self._perhaps_saved_until = checkpoint.indexed_until
        return ""

    def _adopt(self, clean: bool) -> str:
        """An Apache broker's index, which is whole when it was closed. Returns why it can't be taken over."""
        if not clean:
            return "the index was not closed, and has no checkpoint"
        last = self._files[-1].header.end_offset
        head = self._log.read(last, 4)
        size = int.from_bytes(head, "big")
        if not MIN_RECORD_BYTES <= size <= self._log.file_bytes:
            return "the index goes further than the log"
        self.indexed_until = last + size
        return ""

    def _file(self, name: str) -> IndexFile:
        config = self._config
        return IndexFile(self._disk, f"{self._directory}/{name}", config.max_hash_slot_num, config.max_index_num)

    def close(self) -> None:
        """Nothing is written."""
        for file in self._files:
            file.close()

    # -- building

    def build(self, bound: int, records_max: int) -> int:
        """Index up to `records_max` records below `bound`; returns how many bytes that took, 0 at the end.

        Raises OSError, and then goes on at the same place the next time.
        """
        if self.is_away:
            return 0
        log = self._log
        offset = self.indexed_until = max(self.indexed_until, log.min_offset)  # retention may have overtaken it
        end = min(bound, log.end_offset)
        if offset >= end:
            return 0
        room = log.file_bytes - offset % log.file_bytes
        buffer = log.read(offset, min(self._window_bytes, end - offset, room))
        found = self._reader.read(buffer, offset, room, records_max)
        if found.stopped and not found.records and found.next_offset == offset:
            found = self._read_one(buffer, offset, end, room)
        self._put(found)
        self.indexed_until = found.next_offset
        taken = found.next_offset - offset
        # As many records mostly take as many bytes; what is read beyond them is read again the next time.
        self._window_bytes = min(max(taken + taken // 8, _WINDOW_BYTES_MIN), _WINDOW_BYTES)
        return taken

    def _read_one(self, buffer: bytes, offset: int, end: int, room: int) -> BlockKeys:
        """A record that is longer than the window, or what comes after a damaged place."""
        if end - offset < BLANK_HEAD_BYTES:
            return BlockKeys(next_offset=offset)
        size, magic = BLANK.unpack_from(buffer)
        if magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
            if len(buffer) < size <= min(end - offset, room):
                found = self._reader.read(self._log.read(offset, size), offset, room, 1)
                if found.records:
                    return found
            elif end - offset < size <= room:
                return BlockKeys(next_offset=offset)  # its end is not for readers yet
        self._note_damage(offset)
        scanner = LogScanner(self._log, offset, NO_RECORD_CRC)
        following = scanner.find_record_after(offset)
        return BlockKeys(next_offset=end if following is None else min(following, end))

    def _put(self, found: BlockKeys) -> None:
        hashes, offsets, timestamps = found.hashes, found.offsets, found.timestamps_ms
        while hashes:
            if not self._files or self._files[-1].full:
                self._roll()
            amount = self._files[-1].put(hashes, offsets, timestamps)
            if amount == len(hashes):
                return
            hashes, offsets, timestamps = hashes[amount:], offsets[amount:], timestamps[amount:]

    def _roll(self) -> None:
        if self._files:
            full = self._files[-1]
            for _ in full.flush_steps():
                pass  # once in twenty million entries
            full.release_slots()
            if full not in self._unsynced:
                self._unsynced.append(full)
        self._disk.make_directory(self._directory)
        now = time.time_ns() // 1_000_000
        name = int(time.strftime(_NAME_FORMAT, time.localtime(now / 1000)) + f"{now % 1000:03d}")
        if self._files:
            name = max(name, int(self._files[-1].name) + 1)  # the names give the order, whatever the clock does
        file = self._file(f"{name:0{_NAME_DIGITS}d}")
        file.create()
        self._files.append(file)

    # -- durability

    @property
    def wants_flush(self) -> bool:
        if self._sync_failure is not None:
            return False
        newest_is_dirty = bool(self._files) and self._files[-1].dirty
        return newest_is_dirty or bool(self._unsynced) or self._far_from_checkpoint

    @property
    def _far_from_checkpoint(self) -> bool:
        return self.indexed_until >= self._checkpointed_until + _CHECKPOINT_EACH_BYTES

    def begin_flush(self) -> None:
        """Note durably that the newest file may be of two states, until the flush has succeeded. Blocks: for a worker thread.

        Its count alone does not say so after a sync that failed: of what was written any part may be on the disk. Raises OSError.
        """
        if self._saved is not None and self._saved.boot_id:
            marked = replace(self._saved, boot_id="")
            marked.save(self._disk, self._checkpoint_path)
            self._saved = marked

    def flush_steps(self) -> Iterator[FlushedIndex | None]:
        """After begin_flush(): write what is in memory, a little in each step; the last step gives what sync_flushed() needs.

        Nothing may be built between the steps. Raises OSError; the next flush writes it again.
        """
        files = list(self._unsynced)
        if self._files:
            newest = self._files[-1]
            for _ in newest.flush_steps():
                yield None
            files.append(newest)
        header = self._files[-1].header if self._files else IndexHeader()
        name = self._files[-1].name if self._files else ""
        yield FlushedIndex(tuple(files), IndexCheckpoint(self.indexed_until, name, header, self._disk.boot_id()))

    def sync_flushed(self, flushed: FlushedIndex, *, sync_log: bool = True) -> None:
        """Sync the log, then these files, then the checkpoint. Blocks: for a worker thread. Raises OSError, StoreError.

        After a sync of the files that failed none is tried again, for Linux may call pages clean that are not on the disk. The
        index goes on in memory, and the next start reads from the log what follows the last checkpoint.
        """
        if self._sync_failure is not None:
            raise self._sync_failure.with_traceback(None)
        if sync_log:
            self._log.flush()
        for file in flushed.files:
            try:
                file.sync()
            except OSError as error:
                self._sync_failure = StoreError(f"syncing {file.path} failed: {error.strerror}")
                text = f"{error.strerror}; it grows in memory until the next start makes the rest again from the log"
                raise OSError(error.errno, text, file.path) from error
        self._perhaps_saved_until = max(self._perhaps_saved_until, flushed.checkpoint.indexed_until)
        self._saved = flushed.checkpoint
        flushed.checkpoint.save(self._disk, self._checkpoint_path)

    def flushed(self, flushed: FlushedIndex) -> None:
        """sync_flushed() has succeeded."""
        self._checkpointed_until = self._perhaps_saved_until = flushed.checkpoint.indexed_until
        self._note_written()
        self._unsynced = [file for file in self._unsynced if file not in flushed.files]

    def _note_written(self) -> None:
        if self._config.message_index_enable:
            self.written_until_ms = self.last_update[0]

    def flush_if_wanted(self) -> None:
        """At a clean stop. Raises OSError, StoreError."""
        if self._sync_failure is not None:
            if self._checkpointed_until < 0:  # the next start would take the files over as whole
                self.clear(self._log.min_offset)
            return
        if self.wants_flush or (self._files and self.indexed_until != self._checkpointed_until):
            self.flush()

    def flush(self, *, sync_log: bool = True) -> None:
        """begin_flush(), flush_steps() and sync_flushed() in one."""
        self.begin_flush()
        for step in self.flush_steps():
            if step is not None:
                self.sync_flushed(step, sync_log=sync_log)
                self.flushed(step)

    # -- going back

    def truncate(self, end_offset: int) -> None:
        """Forget the records from `end_offset` on, durably: the log is about to be truncated there."""
        self._go_back(end_offset)
        if self._sync_failure is not None:
            return  # the log is opened again, and the index goes back to a checkpoint and to the log's end
        if self._files or self._disk.exists(self._checkpoint_path):
            self.flush(sync_log=False)  # before that offset it is synced, or sound

    def _go_back(self, end_offset: int) -> None:
        while self._files and self._files[-1].header.begin_offset >= end_offset:
            self._delete(self._files[-1])
        if self._files and self._files[-1].header.end_offset >= end_offset:
            newest = self._files[-1]
            newest.truncate(newest.header_at(newest.count_below(end_offset)))
        self.indexed_until = min(self.indexed_until, end_offset)

    def _lacks(self, records: bytes) -> int | None:
        """Where the first of these records, in a pull's form, begins that has no entry for one of its keys; None: all have.

        What was damaged when the index was built has none. It looks at 20,000 entries at most, and names the record at which
        they end. Raises OSError and RemoteProtocolError.
        """
        looks = _CHAIN_MAX
        for position, size in record_spans(records):
            offset = int.from_bytes(records[position + 28 : position + 36], "big")
            if offset >= self.indexed_until:
                return offset
            found = self._reader.read(records[position : position + size], offset, size, 1)
            for value in found.hashes:
                for own_offset in self._offsets_of(value, offset):
                    looks -= 1
                    if own_offset == offset or looks < 0:
                        break
                else:
                    return offset
                if looks < 0:
                    return offset
        return None

    def _offsets_of(self, value: int, offset_min: int) -> Iterator[int]:
        """Of each entry in the hash's chain that is not before `offset_min`, the newest first, but one for another hash."""
        for file in reversed(self._files):
            for entry_hash, offset, _ in file.chain(value):
                if offset < offset_min:
                    return
                yield offset if entry_hash == value else -1

    def expect(self, records: bytes) -> None:
        """These are about to be written over damage: if it lacks one of them, go back there, durably, to read them.

        Blocks. Raises OSError.
        """
        offset = self._lacks(records)
        if offset is None or offset >= max(self.indexed_until, self._perhaps_saved_until):
            return
        if self._sync_failure is None:
            try:
                self.truncate(offset)
                return
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
        # The next start would go back to a checkpoint that is after them.
        self.clear(self._log.min_offset)

    def clear(self, begin_offset: int) -> None:
        """Forget everything, durably, and begin again at `begin_offset`."""
        if self._disk.exists(self._checkpoint_path):
            self._disk.unlink(self._checkpoint_path)
            self._disk.sync_directory(os.path.dirname(self._checkpoint_path))
        self._saved = None
        while self._files:
            self._delete(self._files[-1])
        self.indexed_until = begin_offset
        self._checkpointed_until = self._perhaps_saved_until = -1
        self._note_written()

    def _delete(self, file: IndexFile) -> None:
        file.delete()
        self._files.remove(file)
        if file in self._unsynced:
            self._unsynced.remove(file)
        self._disk.sync_directory(self._directory)

    def delete_expired(self, min_offset: int) -> int:
        """Delete the files whose records retention has all deleted, never the newest; returns how many."""
        deleted = 0
        if self.is_away:
            return deleted
        while len(self._files) > 1 and self._files[0].header.end_offset < min_offset:
            if self._files[0] in self._unsynced:
                break  # perhaps at work in another thread
            self._delete(self._files[0])
            deleted += 1
        return deleted

    # -- reading

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Where records may begin that `topic` and `key` name, stored between the two times: the newest first, no place
        twice. Look at each: it may be another key's record, deleted, or a second out of the range.

        It looks at 20,000 entries at most, which more messages than that of one key with one hash can use up. Raises OSError,
        and StoreError while it goes back.
        """
        if self.is_away:
            raise StoreError("it goes back to records that were damaged when it was made; try again in a moment")
        value = key_hash(topic, key)
        min_offset = self._log.min_offset
        looks = _CHAIN_MAX
        last = 2**63 - 1  # a place comes again where writing was interrupted between two files
        for file in reversed(self._files):
            header = file.header
            if header.index_count == FIRST_ENTRY or header.end_offset < min_offset:
                continue
            if not file.overlaps(begin_ms, end_ms):
                continue
            for entry_hash, offset, timestamp_ms in file.chain(value):
                looks -= 1
                if looks < 0 or offset < min_offset or timestamp_ms + 999 < begin_ms:
                    break
                if entry_hash == value and timestamp_ms <= end_ms and offset < last:
                    last = offset
                    yield offset
            if looks < 0:
                return


def _is_name(name: str) -> bool:
    return name.isdigit() and len(name) >= _NAME_DIGITS
