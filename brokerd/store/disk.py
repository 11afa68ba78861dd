"""The disk, as a constructor argument: one method for each system call that the store makes, and no others.

`OsDisk` is the real one and adds nothing; the tests plug a faulty one in. All raise OSError as `os` does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Room on the file system of a path, as a user without root's reserve sees it."""

    total_bytes: int
    free_bytes: int

    @property
    def used_ratio(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes if self.total_bytes else 0.0


class Disk(Protocol):
    # files
    def open(self, path: str, flags: int) -> int: ...
    def close(self, fd: int) -> None: ...
    def permissions(self, path: str) -> int:
        """Its permission bits; raises FileNotFoundError."""

    def set_permissions(self, fd: int, bits: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def pread(self, fd: int, count: int, offset: int, /) -> bytes: ...
    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int: ...
    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def fallocate(self, fd: int, offset: int, length: int, /) -> None:
        """Reserve room, so that a later write there can't fail for want of it. The bytes read as zeros."""

    def next_data(self, fd: int, offset: int) -> int | None:
        """The first offset >= `offset` that may hold something other than zeros; None when nothing does."""

    def lock(self, fd: int) -> None:
        """An exclusive lock against every other opener, Java's included; raises BlockingIOError when it is held."""

    # names
    def listdir(self, path: str) -> list[str]:
        """The names in a directory; none when it doesn't exist."""

    def exists(self, path: str) -> bool:
        """Raises OSError where that can't be found out: what is there must not be taken for absent."""

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        """Create it and its parents, where missing; with `durable` their names are synced."""

    def sync_directory(self, path: str) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def link(self, source: str, target: str) -> None:
        """Give the file a second name; raises OSError where the file system has no hard links."""

    def unlink(self, path: str) -> None: ...
    def remove_directory(self, path: str) -> None: ...

    # the machine
    def usage(self, path: str) -> DiskUsage: ...
    def boot_id(self) -> str:
        """Changes whenever the page cache was lost: by a power cut, not by the end of a process."""


class OsDisk:
    """The real disk."""

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    pwritev = staticmethod(os.pwritev)
    fdatasync = staticmethod(os.fdatasync)
    fsync = staticmethod(os.fsync)
    ftruncate = staticmethod(os.ftruncate)
    close = staticmethod(os.close)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def permissions(self, path: str) -> int:
        return os.stat(path).st_mode & 0o777

    def set_permissions(self, fd: int, bits: int) -> None:
        os.fchmod(fd, bits)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def fallocate(self, fd: int, offset: int, length: int, /) -> None:
        os.posix_fallocate(fd, offset, length)

    def next_data(self, fd: int, offset: int) -> int | None:
        try:
            return os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno == errno.EINVAL:  # a file system that does not know
                return offset if offset < self.size(fd) else None
            raise

    def lock(self, fd: int) -> None:
        # flock also refuses a second store in this process; Java's FileChannel.tryLock is the POSIX one.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent, durable=durable)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        if durable:
            self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def usage(self, path: str) -> DiskUsage:
        stat = os.statvfs(path)
        # What root keeps for itself is neither used nor free for us: leave it out of the total, as df does.
        total_blocks = stat.f_blocks - stat.f_bfree + stat.f_bavail
        return DiskUsage(total_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def boot_id(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        except OSError:
            return ""
