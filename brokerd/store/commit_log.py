"""The CommitLog's files: `<commit_log_dir>/%020d`, named by the offset of their first byte, all of one size.

A file is created at its full size and both it and its directory are synced before anything is written to it. Records never
cross files: what is left of a file is filled by a BLANK record, of which only the 8 bytes of its head are written.

Invariant: min_offset <= durable_offset <= end_offset. Bytes from end_offset on are zeros.

Threads: flush() may run in one worker thread while the main thread does everything else. The worker never closes a
descriptor (the main thread may be reading from it), it only says that it is done with one.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from brokerd.store.config import StoreConfig
from brokerd.store.disk import Buffer, Disk
from brokerd.store.errors import AppendFailedError, DiskFullError, FlushFailedError, StoreFormatError
from brokerd.store.file_cache import FileCache
from brokerd.store.status import StoreStatus

Segment = tuple[int, Sequence[Buffer], int]  # offset, buffers, size of them all
IOV_MAX = 1024
# What passes by itself, and is answered without a latch: no room on the disk, no descriptor for a file.
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)  # of open() alone: no sync fails with these
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
NO_ROOM = (*DISK_FULL, *NO_DESCRIPTOR)
_ZEROS = bytes(1024 * 1024)
_WRITTEN_AGAIN_BYTES = (
    64 * 1024
)  # at a time: of a hole no more than that comes to be written, on a disk that may be full


class CommitLog:
    def __init__(self, config: StoreConfig, disk: Disk, status: StoreStatus) -> None:
        self.directory = config.commit_log_dir
        self.file_bytes = config.mapped_file_size_commit_log_bytes
        self.bases: list[int] = []  # of the files that exist, ascending, without gaps unless damaged
        self.end_offset = 0
        self.durable_offset = 0
        self.last_record_offset = 0  # where the last record in front of end_offset begins; end_offset when none is
        self.last_file_is_short = False  # found so by load(): someone truncated it
        self._config = config
        self._disk = disk
        self._status = status
        self._writers: dict[int, int] = {}  # base -> descriptor, for files that may hold unsynced bytes
        self._retired: list[int] = []  # bases whose writer flush() needs no longer
        self._prepared: dict[int, int] = {}  # base -> descriptor of the file created ahead
        self._allocated_until = 0
        self._zeroed_until = 0  # the active file is written up to here, with records or with zeros
        self._removal_is_unsynced = False  # of the file in front of bases[0]: a power cut may bring it back
        self._readers = FileCache(disk, config.open_files_max, os.O_RDONLY)
        self._flush_lock = threading.Lock()
        self._sync_failure: FlushFailedError | None = None  # the status may hold an earlier refusal, of another kind
        self._create_lock = threading.Lock()

    # -- files

    @property
    def min_offset(self) -> int:
        """The first byte that retention has left."""
        return self.bases[0] if self.bases else self.end_offset

    def path(self, base: int) -> str:
        return f"{self.directory}/{base:020d}"

    def base_of(self, offset: int) -> int:
        return offset - offset % self.file_bytes

    def _names(self) -> list[str]:
        """Those of its files. Whatever else is there, such as the lost+found of a file system of its own, is not ours."""
        return [name for name in self._disk.listdir(self.directory) if len(name) == 20 and name.isdigit()]

    def load(self, short_file_is_ours: bool) -> list[str]:
        """Find the files. Returns what is wrong with them, in words: a missing or short file in the middle.

        `short_file_is_ours`: a checkpoint of ours names this very file size, so that a short file was truncated.
        Raises StoreFormatError when the files were made with another mappedFileSizeCommitLog.
        """
        self._disk.make_directory(self.directory)
        problems: list[str] = []
        names = self._names()
        for position, name in enumerate(names):
            base = int(name)
            path = self.path(base)
            size = self._size(path)
            last = position == len(names) - 1
            if size == 0 and last:  # a crash between its creation and its sizing
                self._disk.unlink(path)
                self._disk.sync_directory(self.directory)
                continue
            if base % self.file_bytes or size > self.file_bytes or (size < self.file_bytes and not short_file_is_ours):
                raise StoreFormatError(
                    f"{path} has {size} bytes, but mappedFileSizeCommitLog={self.file_bytes}: set the key to the size "
                    "of the files that are there"
                )
            if size < self.file_bytes:
                self.last_file_is_short = last
                problems.append(f"{path} has only {size} of {self.file_bytes} bytes")
            if self.bases and base != self.bases[-1] + self.file_bytes:
                problems.append(f"the files between {self.path(self.bases[-1])} and {path} are missing")
            self.bases.append(base)
        return problems

    def _size(self, path: str) -> int:
        fd = self._disk.open(path, os.O_RDONLY)
        try:
            return self._disk.size(fd)
        finally:
            self._disk.close(fd)

    def _create(self, base: int) -> int:
        """A new file of full size, its name durable; raises DiskFullError without leaving anything."""
        path = self.path(base)
        disk = self._disk
        fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            disk.ftruncate(fd, self.file_bytes)
            disk.fallocate(fd, 0, min(self._config.allocate_ahead_bytes, self.file_bytes))
            self._zero(fd, 0, min(self._config.zero_ahead_bytes, self.file_bytes))
            disk.fsync(fd)
            disk.sync_directory(self.directory)
        except OSError as error:
            disk.close(fd)
            disk.unlink(path)
            if error.errno in NO_ROOM:
                raise DiskFullError(f"no room for {path}: {error.strerror}") from error
            raise
        return fd

    def prepare_next_file(self) -> None:
        """Create the next file when the active one is nearly full, off the main thread's way."""
        if not self.bases:
            return
        ahead = min(self.file_bytes // 4, 64 * 1024 * 1024)
        with self._create_lock:
            base = self.bases[-1] + self.file_bytes
            if self.end_offset >= base - ahead:
                self._prepare(base)

    def _prepare(self, base: int) -> None:
        if base not in self.bases and base not in self._prepared:
            self._prepared[base] = self._create(base)

    def has_room(self) -> bool:
        """Whether the next allocate_ahead_bytes fit, or those up to the end of the next file: reserves them.

        Any error but that of a full disk is latched, as an append's would be.
        """
        until = self.end_offset + self._config.allocate_ahead_bytes
        file_end = self.base_of(self.end_offset) + self.file_bytes
        try:
            if self._allocated_until < min(until, file_end):
                self._reserve(min(until, file_end))
            if until > file_end:
                with self._create_lock:
                    self._prepare(file_end)
        except DiskFullError:
            return False
        except OSError as error:
            if error.errno not in NO_ROOM:
                self._status.latch(AppendFailedError(f"{self.directory}: {error.strerror}"))
            return False
        return True

    def _writer(self, base: int) -> int:
        """The descriptor to write file `base` with, creating the file when it is the next one."""
        fd = self._writers.get(base)
        if fd is not None:
            return fd
        while self._retired:
            retired = self._writers.pop(self._retired.pop(), None)
            if retired is not None:
                self._disk.close(retired)
        with self._create_lock:
            if base in self.bases:
                fd = self._disk.open(self.path(base), os.O_RDWR)
                self._allocated_until = self._zeroed_until = max(base, self.end_offset)
            else:
                fd = self._prepared.pop(base, None)
                if fd is None:
                    fd = self._create(base)
                self.bases.append(base)
                self._allocated_until = base + min(self._config.allocate_ahead_bytes, self.file_bytes)
                self._zeroed_until = base + min(self._config.zero_ahead_bytes, self.file_bytes)
            self._writers[base] = fd
        return fd

    # -- writing

    def append(self, segments: Sequence[Segment]) -> None:
        """Write segments, each inside one file, in order, each with one gathered write; end_offset is the caller's to move.

        When that fails, all of it is zeroed again, so that what was refused can't come back; where that fails too, or
        the error is another than a full disk, the store takes no more messages.
        Raises DiskFullError (nothing was stored) or AppendFailedError (latched: unknown what was).
        """
        try:
            for offset, _, size in segments:
                if offset + size > self._allocated_until:
                    self._reserve(offset + size)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFullError(f"no room in {self.directory}: {error.strerror}") from error
            raise self._status.latch(AppendFailedError(f"{self.directory}: {error.strerror}")) from error
        try:
            for offset, buffers, size in segments:
                self._write(offset, buffers, size)
                if offset + size + self._config.zero_ahead_bytes > self._zeroed_until:
                    self._zero_further(offset + size)
        except OSError as error:
            self._undo(segments, error)
            raise DiskFullError(f"no room in {self.directory}: {error.strerror}") from error

    def _reserve(self, end: int) -> None:
        """Make sure that bytes up to `end` can be written: the file exists and has room; for more than that where there is some."""
        base = self.base_of(end - 1)
        fd = self._writer(base)
        begin = max(self._allocated_until, base)
        if end > begin:
            until = min(max(end, begin + self._config.allocate_ahead_bytes), base + self.file_bytes)
            try:
                self._disk.fallocate(fd, begin - base, until - begin)
            except OSError as error:
                if error.errno not in NO_ROOM or until == end:
                    raise
                until = end  # a leader begins with a small record, also where too little is left for more
                self._disk.fallocate(fd, begin - base, until - begin)
            self._allocated_until = until

    def _zero_further(self, end: int) -> None:
        """Keep zero_ahead_bytes of written zeros in front of `end`, a chunk at a time; the next sync takes them along.

        Never over a record: they begin where this append ended, or after the zeros that are there.
        """
        if not self._config.zero_ahead_bytes:
            return
        base = self.base_of(end - 1)
        begin = max(self._zeroed_until, end)
        until = min(begin + len(_ZEROS), base + self.file_bytes, self._allocated_until)
        if until > begin:
            self._zero(self._writers[base], begin - base, until - begin)
            self._zeroed_until = until

    def _write(self, offset: int, buffers: Sequence[Buffer], size: int) -> None:
        base = offset - offset % self.file_bytes
        fd = self._writers[base]
        position = offset - base
        if len(buffers) <= IOV_MAX:
            written = self._disk.pwritev(fd, buffers, position)
            if written == size:
                return
        else:
            written = 0
        data = memoryview(b"".join(buffers))[written:]
        while data:
            count = self._disk.pwrite(fd, data, position + written)
            written += count
            data = data[count:]

    def _undo(self, segments: Sequence[Segment], error: OSError) -> None:
        """Zero what a failed write may have left; raises AppendFailedError unless that and the cause allow to go on.

        Whatever the cause: a whole record may be there, though its sender's answer said that it is not stored.
        """
        cause = error
        try:
            for offset, _, size in segments:
                base = self.base_of(offset)
                self._zero(self._writers[base], offset - base, size)
        except OSError as second:
            cause = second
        if cause is not error or error.errno not in NO_ROOM:
            failure = AppendFailedError(f"writing to {self.directory} failed: {cause.strerror}")
            raise self._status.latch(failure) from cause

    def _zero(self, fd: int, position: int, size: int) -> None:
        while size > 0:
            written = self._disk.pwrite(fd, memoryview(_ZEROS)[: min(size, len(_ZEROS))], position)
            position += written
            size -= written

    # -- durability

    def flush(self) -> int:
        """Sync everything that was appended when this began; returns the new durable offset. Blocks.

        Raises FlushFailedError, once and then for ever: after a failed fsync the kernel may call lost pages clean.
        """
        with self._flush_lock:
            for failure in (self._sync_failure, self._status.refusal):
                if isinstance(failure, FlushFailedError):
                    raise failure.with_traceback(None)
            target = self.end_offset
            begin = self.durable_offset
            if target > begin:
                base = self.base_of(begin)
                try:
                    while base < target:
                        fd = self._writers.get(base)
                        if fd is None:
                            raise OSError(errno.EBADF, "it holds unsynced bytes but is not open")
                        self._disk.fdatasync(fd)
                        base += self.file_bytes
                except OSError as error:
                    self._sync_failure = FlushFailedError(f"syncing {self.path(base)} failed: {error.strerror}")
                    self._status.latch(self._sync_failure)
                    raise self._sync_failure from error
                self.durable_offset = target
                active = self.base_of(target)
                self._retired.extend(
                    done for done in list(self._writers) if done < active and done not in self._retired
                )
            return self.durable_offset

    # -- reading

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset`, within one file; fewer at its end, none where there is no file."""
        base = offset - offset % self.file_bytes
        fd = self._writers.get(base)
        if fd is None:
            try:
                fd = self._readers.get(base, self.path(base))
            except FileNotFoundError:
                return b""
        data = self._disk.pread(fd, size, offset - base)
        while len(data) < size:  # the end of the file, or a signal
            more = self._disk.pread(fd, size - len(data), offset - base + len(data))
            if not more:
                break
            data += more
        return data

    def next_data(self, offset: int) -> int | None:
        """The first offset >= `offset` that may hold something other than zeros; None when nothing does."""
        for base in self.bases:
            if base + self.file_bytes <= offset:
                continue
            fd = self._disk.open(self.path(base), os.O_RDONLY)
            try:
                found = self._disk.next_data(fd, max(0, offset - base))
            finally:
                self._disk.close(fd)
            if found is not None:
                return base + found
        return None

    # -- truncating and deleting

    def truncate(self, end: int) -> None:
        """Make `end` the end: later files are deleted, last first, and the rest of its file becomes zeros. Durable on return.

        A file that starts at `end` stays: where it is the only one, its name keeps the offset.
        """
        self.close()
        while self.bases and self.bases[-1] > end:
            self._disk.unlink(self.path(self.bases.pop()))
            self._disk.sync_directory(self.directory)
        if self.bases and end < self.bases[-1] + self.file_bytes:
            fd = self._disk.open(self.path(self.bases[-1]), os.O_RDWR)
            try:
                self._disk.ftruncate(fd, end - self.bases[-1])
                self._disk.ftruncate(fd, self.file_bytes)
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
        self.end_offset = end
        self.durable_offset = min(self.durable_offset, end)

    def delete_all(self) -> None:
        """Delete all files, the last one first, durably. `begin_at` must follow, or another start."""
        self.close()
        self.bases.clear()
        # All that there are: the next file was created ahead, and may be the one to begin with.
        for name in sorted(self._names(), reverse=True):
            self._disk.unlink(os.path.join(self.directory, name))
            self._disk.sync_directory(self.directory)

    def begin_at(self, base: int) -> None:
        """Begin an empty log at `base` where there are no files. Durable on return."""
        self._disk.close(self._create(base))

    def make_recovered_durable(self, begin: int) -> None:
        """Put the log from `begin` on, which is all that is not known to be on the disk, there; raises OSError.

        A sync alone would prove nothing: after one that failed Linux calls the pages clean, keeps them readable, and never
        writes them (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So all of it is written
        again first. What lies past the end of the log becomes zeros on the disk as well: a write that failed, or was
        undone, must not reappear there.
        """
        for base in self.bases:
            if base + self.file_bytes <= begin:
                continue
            fd = self._disk.open(self.path(base), os.O_RDWR)
            try:
                self._write_again(fd, base, max(begin, base))
                if base == self.bases[-1]:
                    self._disk.ftruncate(fd, self.end_offset - base)
                    self._disk.ftruncate(fd, self.file_bytes)
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
        self._disk.sync_directory(self.directory)
        self.durable_offset = self.end_offset
        self._sync_failure = None

    def _write_again(self, fd: int, base: int, offset: int) -> None:
        """Write what a file holds from `offset` to the end of the log over itself; holes stay holes."""
        disk = self._disk
        end = min(self.end_offset - base, self.file_bytes)
        position = offset - base
        while (found := disk.next_data(fd, position)) is not None and found < end:
            position = found
            data = memoryview(disk.pread(fd, min(_WRITTEN_AGAIN_BYTES, end - position), position))
            if not data:
                return  # a short file; what is missing was reported as damage
            while data:
                count = disk.pwrite(fd, data, position)
                position += count
                data = data[count:]

    def delete_first_file(self) -> int:
        """Delete the oldest file and return its base. Never the active one: the caller sees to it.

        Raises OSError; the next call tries the same file again, for without one in the middle a restart calls the log damaged.
        """
        if self._removal_is_unsynced:
            self._sync_removal()
        base = self.bases[0]
        self._readers.forget(base)
        if base in self._writers:
            self._disk.close(self._writers.pop(base))
        with suppress(FileNotFoundError):  # an operator who needed room was faster
            self._disk.unlink(self.path(base))
        self.bases.pop(0)
        self._removal_is_unsynced = True
        self._sync_removal()
        return base

    def _sync_removal(self) -> None:
        self._disk.sync_directory(self.directory)
        self._removal_is_unsynced = False

    def close(self) -> None:
        """Close all descriptors; nothing is synced."""
        for fds in (self._writers, self._prepared):
            while fds:
                self._disk.close(fds.popitem()[1])
        self._retired.clear()
        self._readers.close()
