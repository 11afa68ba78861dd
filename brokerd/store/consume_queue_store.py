"""All ConsumeQueues: finding them, reading entries, and writing the tails to their files in bulk.

Main thread only, but for sync(), which works on names and touches nothing of this object.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from brokerd.store.commit_log import NO_ROOM
from brokerd.store.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from brokerd.store.config import MAX_TOPIC_BYTES, StoreConfig
from brokerd.store.consume_queue import BLANK_ENTRY, BLANK_SIZE, ConsumeQueue
from brokerd.store.disk import Disk
from brokerd.store.errors import DiskFullError, StoreError, StoreFormatError
from brokerd.store.file_cache import FileCache
from brokerd.store.record import ENTRY
from brokerd.store.topic_tombstones import TopicTombstones
from mqwire.checksum import crc32
from mqwire.names import LMQ_PREFIX, RMQ_SYS_SCHEDULE_TOPIC

_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class WrittenEntries:
    """What write() has put into files and no one has synced yet, and what may be said once that is done."""

    files: tuple[str, ...]
    directories: tuple[str, ...]
    dispatch_offset: int  # entries for all records below are in files
    last_record_offset: int  # of those records
    store_timestamp_ms: int  # of the last of those records
    queues_digest: int

    def with_those_of(self, earlier: WrittenEntries) -> WrittenEntries:
        """These, which may be synced before some that were written earlier: then they are synced together."""
        return replace(
            self,
            files=tuple(dict.fromkeys((*earlier.files, *self.files))),
            directories=tuple(dict.fromkeys((*earlier.directories, *self.directories))),
        )


class ConsumeQueueStore:
    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        tombstones: TopicTombstones,
        kept_from: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        self.queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._kept_from = kept_from  # by topic and queue: messages below have expired, though the log has them
        self.unwritten_entries = 0  # in all tails together
        self._config = config
        self._disk = disk
        self._tombstones = tombstones
        self._root = config.consume_queue_dir
        self._file_bytes = config.mapped_file_size_consume_queue_bytes
        self._files = FileCache(disk, config.open_files_max)
        self._dirty_files: dict[str, None] = {}
        self._dirty_directories: dict[str, None] = {}
        self._unproven_files: dict[str, None] = {}  # a sync of theirs failed
        self._stray_files: list[tuple[ConsumeQueue, int]] = []  # found in front of a gap
        self._digest = 0
        self._digests: dict[tuple[str, int], int] = {}

    # -- finding

    def create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A queue that isn't there yet, in memory; its directory comes with its first entries.

        Raises ValueError when the topic can't be the name of a directory, or the queue id is none.
        """
        encoded = topic.encode()
        if not 0 < len(encoded) <= MAX_TOPIC_BYTES or topic in (".", "..") or "/" in topic or "\0" in topic:
            raise ValueError(f"{topic[:80]!r} can't be a topic: no slash, no NUL, 1 to {MAX_TOPIC_BYTES} bytes")
        if not 0 <= queue_id < 2**31:
            raise ValueError(f"{queue_id} is not a queue id")
        queue = ConsumeQueue(topic, queue_id, f"{self._root}/{topic}/{queue_id}")
        queue.is_schedule_topic = topic == RMQ_SYS_SCHEDULE_TOPIC
        tombstone = self._tombstones.get(topic)
        if tombstone is not None:
            queue.floor_physical_offset = tombstone.physical_offset
            queue.next_offset = queue.tail_offset = tombstone.next_offsets.get(queue_id, 0)
        self.queues[topic, queue_id] = queue
        return queue

    def load(self, below: int) -> int:
        """Find the queues on disk, each up to its last entry for a record in front of `below`; returns their digest.

        Entries after that are neither trusted nor touched yet: dispatch writes them again, trim() removes the rest.
        Raises StoreFormatError for files of another size and for queues of kinds that we don't have.
        """
        self.close()
        self.queues.clear()
        self._digests.clear()
        self._digest = 0
        self.unwritten_entries = 0
        self._stray_files.clear()
        for topic in self._disk.listdir(self._root):
            if topic.startswith(LMQ_PREFIX):
                raise StoreFormatError(f"{self._root}/{topic}: light message queues (multi-dispatch) are not supported")
            for name in self._disk.listdir(f"{self._root}/{topic}"):
                if name.isdigit():
                    self._load_queue(topic, int(name), below)
        return self._digest

    def _load_queue(self, topic: str, queue_id: int, below: int) -> None:
        queue = self.create(topic, queue_id)
        for name in self._disk.listdir(queue.directory):
            if len(name) != 20 or not name.isdigit():
                continue
            path = f"{queue.directory}/{name}"
            fd = self._disk.open(path, os.O_RDWR)
            try:
                size = self._disk.size(fd)
                if size > self._file_bytes or int(name) % self._file_bytes:
                    raise StoreFormatError(
                        f"{path} has {size} bytes, but mappedFileSizeConsumeQueue={self._file_bytes}: set the key to "
                        "the size of the files that are there"
                    )
                if size < self._file_bytes:  # cut short; what is missing will be missed, and rebuilt
                    self._disk.ftruncate(fd, self._file_bytes)
            finally:
                self._disk.close(fd)
            queue.bases.append(int(name))
        for position in range(len(queue.bases) - 1, 0, -1):
            if queue.bases[position] != queue.bases[position - 1] + self._file_bytes:
                self._stray_files += [(queue, base) for base in queue.bases[:position]]
                del queue.bases[:position]  # only an unbroken run counts; the digest will not agree
                break
        if not queue.bases:
            self._note_names(queue)
            return
        low = queue.bases[0] // ENTRY_BYTES
        high = (queue.bases[-1] + self._file_bytes) // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            entry = self._read_files(queue, middle, 1)
            position, size, _ = ENTRY.unpack(entry) if len(entry) == ENTRY_BYTES else (0, 0, 0)
            if size > 0 and position < below:
                low = middle + 1
            else:
                high = middle
        queue.stored_end = low
        if queue.bases[-1] >= low * ENTRY_BYTES:
            self._note_names(queue)
        if low > 0:
            queue.next_offset = queue.tail_offset = max(low, queue.next_offset)
            self._update_digest(queue)

    def _note_names(self, queue: ConsumeQueue) -> None:
        """Of its last file no checkpoint knows. Who made it may have been killed before it synced its name, or its directories'."""
        for directory in (self._root, os.path.dirname(queue.directory), queue.directory):
            self._dirty_directories[directory] = None

    def topics(self) -> dict[str, list[int]]:
        """Topic -> its queue ids, of all queues that have had a message."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self.queues):
            found.setdefault(topic, []).append(queue_id)
        return found

    # -- reading

    def read(self, queue: ConsumeQueue, first: int, count: int) -> bytes:
        """Up to `count` entries from offset `first`, as they lie in the file; fewer at the end of the queue."""
        count = min(count, queue.next_offset - first)
        if count <= 0:
            return b""
        start = first - queue.tail_offset
        if start >= 0:
            return bytes(queue.tail[start * ENTRY_BYTES : (start + count) * ENTRY_BYTES])
        if start + count <= 0:
            return self._read_files(queue, first, count)
        data = self._read_files(queue, first, -start)
        if len(data) == -start * ENTRY_BYTES:
            data += queue.tail[: (start + count) * ENTRY_BYTES]
        return data

    def _read_files(self, queue: ConsumeQueue, first: int, count: int) -> bytes:
        data = b""
        while count > 0:
            position = first * ENTRY_BYTES
            base = position - position % self._file_bytes
            size = min(count * ENTRY_BYTES, base + self._file_bytes - position)
            try:
                fd = self._files.get((queue.directory, base), queue.path(base))
            except FileNotFoundError:
                return data
            data += self._disk.pread(fd, size, position - base)
            first += size // ENTRY_BYTES
            count -= size // ENTRY_BYTES
        return data

    def min_offset(self, queue: ConsumeQueue, log_min_offset: int) -> int:
        """The first offset whose message is kept: the CommitLog has its record, and it has not expired."""
        first = self.min_stored_offset(queue, log_min_offset)
        kept_from = self._kept_from.get((queue.topic, queue.queue_id), 0)
        return first if kept_from <= first else min(kept_from, queue.next_offset)

    def has_expired(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is no longer kept, though the log may have its record."""
        return offset < self._kept_from.get((topic, queue_id), 0)

    def min_stored_offset(self, queue: ConsumeQueue, log_min_offset: int) -> int:
        """The first offset whose record the CommitLog still has (ConsumeQueue.correctMinOffset), be it expired."""
        bound = max(log_min_offset, queue.floor_physical_offset)
        if queue.min_physical_offset_known != bound:
            low = queue.min_offset_known
            if queue.bases:  # the tail may have gone back, and these files go when it is written
                low = max(low, min(queue.bases[0] // ENTRY_BYTES, queue.tail_offset))
            low = min(max(low, 0 if queue.bases else queue.tail_offset), queue.next_offset)
            queue.min_offset_known = queue.first_offset_at(
                low, bound, lambda first, count: self.read(queue, first, count)
            )
            # An empty queue has no first entry to stand on yet: look again next time.
            queue.min_physical_offset_known = bound if queue.min_offset_known < queue.next_offset else -1
        return queue.min_offset_known

    # -- writing

    def write(self, dispatch_offset: int, last_record_offset: int, store_timestamp_ms: int) -> WrittenEntries:
        """Put all tails into their files (into the page cache); the caller must have dispatched up to `dispatch_offset`.

        Raises DiskFullError when there is no room and StoreError otherwise: what is not written stays in memory.
        """
        if self._unproven_files:
            self._write_again()
        if self.unwritten_entries:
            for queue in self.queues.values():
                if queue.tail:
                    self._write_tail(queue)
        written = WrittenEntries(
            tuple(self._dirty_files),
            tuple(self._dirty_directories),
            dispatch_offset,
            last_record_offset,
            store_timestamp_ms,
            self._digest,
        )
        self._dirty_files.clear()
        self._dirty_directories.clear()
        return written

    def written_again(self, written: WrittenEntries) -> None:
        """Syncing `written` failed: have it written and synced with the next."""
        self._unproven_files.update(dict.fromkeys(written.files))
        self._dirty_directories.update(dict.fromkeys(written.directories))

    def _write_again(self) -> None:
        """After a failed sync Linux calls pages clean that are not on the disk: only what is written again is synced."""
        try:
            while self._unproven_files:
                path = next(iter(self._unproven_files))
                if self._disk.exists(path):  # its topic may be gone
                    fd = self._disk.open(path, os.O_RDWR)
                    try:
                        self._pwrite(fd, self._disk.pread(fd, self._file_bytes, 0).rstrip(b"\0"), 0)
                    finally:
                        self._disk.close(fd)
                    self._dirty_files[path] = None
                del self._unproven_files[path]
        except OSError as error:
            raise StoreError(f"{self._root} can't be written: {error.strerror}") from error

    def spill(self) -> None:
        """Write tails without any claim, to bound the memory they take. Raises as write() does."""
        for queue in self.queues.values():
            if queue.tail:
                self._write_tail(queue)

    def _write_tail(self, queue: ConsumeQueue) -> None:
        offset = queue.tail_offset
        data = memoryview(bytes(queue.tail))
        try:
            if queue.bases and queue.stored_end < queue.tail_offset:
                self._blank_front(queue)
            while data:
                position = offset * ENTRY_BYTES
                base = position - position % self._file_bytes
                size = min(len(data), base + self._file_bytes - position)
                fd = self._file_for_writing(queue, base, position - base)
                self._pwrite(fd, data[:size], position - base)
                self._dirty_files[queue.path(base)] = None
                offset += size // ENTRY_BYTES
                data = data[size:]
            if queue.next_offset < queue.stored_end:  # it went back: numbers were given again
                self._trim_files(queue, queue.next_offset * ENTRY_BYTES)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFullError(f"no room in {queue.directory}: {error.strerror}") from error
            raise StoreError(f"{queue.directory} can't be written: {error.strerror}") from error
        self.unwritten_entries -= len(queue.tail) // ENTRY_BYTES
        queue.tail = bytearray()
        queue.tail_offset = queue.stored_end = queue.next_offset
        self._update_digest(queue)

    def _blank_front(self, queue: ConsumeQueue) -> None:
        """Its files lack entries in front of the tail: the queue begins there, whatever they are of.

        A topic that was deleted goes on counting, and so does a queue whose first messages have gone with the log's files; a power
        cut, or a full disk, may leave a file of theirs that is empty. Without blanks in front of its first entry the next start
        would find none.
        """
        position = queue.tail_offset * ENTRY_BYTES
        base = position - position % self._file_bytes
        for other in [other for other in queue.bases if other != base]:
            self._remove(queue, other)
            queue.bases.remove(other)
        if queue.bases:
            first = max(queue.stored_end, base // ENTRY_BYTES)
            fd = self._files.get((queue.directory, base), queue.path(base))
            self._pwrite(fd, BLANK_ENTRY * (queue.tail_offset - first), first * ENTRY_BYTES - base)
            self._dirty_files[queue.path(base)] = None

    def _pwrite(self, fd: int, data: memoryview | bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            count = self._disk.pwrite(fd, view, position)
            position += count
            view = view[count:]

    def _file_for_writing(self, queue: ConsumeQueue, base: int, position: int) -> int:
        if base in queue.bases:
            return self._files.get((queue.directory, base), queue.path(base))
        if not queue.bases and not self._disk.exists(queue.directory):
            self._make_queue_directory(queue)
        if queue.bases and base != queue.bases[-1] + self._file_bytes:  # only an unbroken run of files counts
            while queue.bases:
                self._remove(queue, queue.bases[-1])
                queue.bases.pop()
        fd = self._files.get_or_create((queue.directory, base), queue.path(base))
        self._disk.ftruncate(fd, self._file_bytes)
        if position and not queue.bases:
            self._pwrite(fd, BLANK_ENTRY * (position // ENTRY_BYTES), 0)
        queue.bases.append(base)
        self._dirty_directories[queue.directory] = None
        return fd

    def _make_queue_directory(self, queue: ConsumeQueue) -> None:
        topic_directory = os.path.dirname(queue.directory)
        self._disk.make_directory(queue.directory, durable=False)
        self._dirty_directories[self._root] = None
        self._dirty_directories[topic_directory] = None

    def sync(self, written: WrittenEntries) -> None:
        """Sync what write() wrote. Blocks; for a worker thread. Files deleted in between don't count."""
        for path in written.files:
            try:
                fd = self._disk.open(path, os.O_RDWR)
            except FileNotFoundError:
                continue
            try:
                self._disk.fdatasync(fd)
            finally:
                self._disk.close(fd)
        for path in written.directories:
            try:
                self._disk.sync_directory(path)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise

    def repair(self, queue: ConsumeQueue, offset: int, entry: bytes) -> None:
        """Put right one entry that a reader found to be wrong. It is synced with the next ones."""
        if offset >= queue.tail_offset:
            start = (offset - queue.tail_offset) * ENTRY_BYTES
            queue.tail[start : start + ENTRY_BYTES] = entry
            return
        position = offset * ENTRY_BYTES
        base = position - position % self._file_bytes
        self._pwrite(self._files.get((queue.directory, base), queue.path(base)), entry, position - base)
        self._dirty_files[queue.path(base)] = None

    def _update_digest(self, queue: ConsumeQueue) -> None:
        key = (queue.topic, queue.queue_id)
        first_base = queue.bases[0] if queue.bases else 0
        value = crc32(b"%b\0%d\0%d\0%d" % (queue.topic_bytes, queue.queue_id, first_base, queue.next_offset))
        self._digest = (self._digest - self._digests.get(key, 0) + value) & (2**64 - 1)
        self._digests[key] = value

    # -- removing

    def trim(self) -> None:
        """After recovery: what lies in files after the last entry of each queue becomes zeros, and files in front of a gap go."""
        for queue, base in self._stray_files:
            if base not in queue.bases:  # nor was it written again
                self._remove(queue, base)
        self._stray_files.clear()
        for queue in self.queues.values():
            self._trim_files(queue, queue.tail_offset * ENTRY_BYTES)  # entries of the tail are going to be written over

    def _trim_files(self, queue: ConsumeQueue, end: int) -> None:
        # The last file stays even when it is empty: its name keeps the queue's number.
        while queue.bases and (queue.bases[-1] > end or (queue.bases[-1] == end and len(queue.bases) > 1)):
            self._remove(queue, queue.bases.pop())
        if queue.bases and queue.bases[-1] <= end < queue.bases[-1] + self._file_bytes:
            base = queue.bases[-1]
            fd = self._files.get((queue.directory, base), queue.path(base))
            page_end = min(-(-(end - base) // _PAGE_BYTES) * _PAGE_BYTES, self._file_bytes)
            in_page = self._disk.pread(fd, page_end - (end - base), end - base)
            if in_page.strip(b"\0") or self._disk.next_data(fd, page_end) is not None:
                self._disk.ftruncate(fd, end - base)
                self._disk.ftruncate(fd, self._file_bytes)
                self._dirty_files[queue.path(base)] = None
        queue.stored_end = min(queue.stored_end, end // ENTRY_BYTES)

    def _remove(self, queue: ConsumeQueue, base: int) -> None:
        self._files.forget((queue.directory, base))
        self._disk.unlink(queue.path(base))
        self._dirty_directories[queue.directory] = None

    def has_files(self, topic: str) -> bool:
        return self._disk.exists(f"{self._root}/{topic}")

    def delete_topic(self, topic: str) -> None:
        """Forget a topic's queues and remove their files. The tombstone has been written."""
        for key in [key for key in self.queues if key[0] == topic]:
            queue = self.queues.pop(key)
            self.unwritten_entries -= len(queue.tail) // ENTRY_BYTES
            self._digest = (self._digest - self._digests.pop(key, 0)) & (2**64 - 1)
            for base in queue.bases:
                self._files.forget((queue.directory, base))
        topic_directory = f"{self._root}/{topic}"
        for name in self._disk.listdir(topic_directory):
            for file in self._disk.listdir(f"{topic_directory}/{name}"):
                self._disk.unlink(f"{topic_directory}/{name}/{file}")
            self._disk.remove_directory(f"{topic_directory}/{name}")
        if self._disk.exists(topic_directory):
            self._disk.remove_directory(topic_directory)

    def start_over(self, log_begin_offset: int, queues: Sequence[tuple[str, int, int]]) -> None:
        """Forget all queues but these (topic, queue id, next offset), which are empty. Durable on return.

        Killed in between, there are fewer queues, or emptier ones: the log must be read again from its first record.
        """
        for topic in self.topics():
            self.delete_topic(topic)
        self._disk.sync_directory(self._root)
        for topic, queue_id, next_offset in queues:
            # An entry for a message that retention has deleted, as the leader's queue has one.
            queue = self.create(topic, queue_id)
            self.unwritten_entries += queue.put(next_offset - 1, log_begin_offset - 1, 1, 0)
        self.sync(self.write(0, 0, 0))

    def go_on(self, log_begin_offset: int, queues: Sequence[tuple[str, int, int]]) -> None:
        """Have these (topic, queue id, next offset) go on there: they have no messages left, and may lack their last entries."""
        for topic, queue_id, next_offset in queues:
            queue = self.queues.get((topic, queue_id))
            if queue is None:  # all its messages were in the damage
                queue = self.create(topic, queue_id)
            if queue.next_offset < next_offset and queue.is_empty:
                self.unwritten_entries += queue.put(next_offset - 1, log_begin_offset - 1, 1, 0)
            elif queue.next_offset < next_offset:
                self.unwritten_entries += queue.put_gap(next_offset, log_begin_offset - 1)

    def delete_expired(self, log_min_offset: int, durable_until: int) -> int:
        """Delete files of which every record is gone; never a queue's last one, which keeps its number. Returns how many.

        Entries for records in front of `durable_until` are on the disk. A file without such entries may be gone after a power cut.
        """
        count = 0
        for queue in self.queues.values():
            while len(queue.bases) > 1:
                base = queue.bases[0]
                entry = self._read_files(queue, (base + self._file_bytes) // ENTRY_BYTES - 1, 1)
                if len(entry) < ENTRY_BYTES:
                    break
                position, size, _ = ENTRY.unpack(entry)
                if size != BLANK_SIZE and position >= log_min_offset:
                    break
                following = self.read(queue, (base + self._file_bytes) // ENTRY_BYTES, 1)
                if not following or ENTRY.unpack(following)[0] >= durable_until:
                    break
                self._files.forget((queue.directory, base))
                self._disk.unlink(queue.path(base))
                queue.bases.pop(0)
                count += 1
                self._update_digest(queue)
        return count

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.queues.values())

    def close(self) -> None:
        self._files.close()
