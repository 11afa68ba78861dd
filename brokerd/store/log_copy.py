"""A part of the log copied to a file of its own, before it is truncated."""

from __future__ import annotations

import os

from brokerd.store.commit_log import NO_ROOM, CommitLog
from brokerd.store.disk import Disk
from brokerd.store.errors import DiskFullError
from brokerd.store.log_scanner import WINDOW_BYTES


def copy_log(disk: Disk, log: CommitLog, path: str, begin: int, end: int | None = None) -> None:
    """Copy the log's bytes from `begin` to `end`, or all data from there on, to a new file; durable on return, its name too.

    What stands in the log at offset o stands in the file at o - begin, whole, torn or damaged; holes stay holes. Reads across
    the log's files, a bounded part at a time. Raises DiskFullError, of which no file is left, and OSError.
    """
    try:
        fd = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            offset = begin
            while (found := log.next_data(offset)) is not None and (end is None or found < end):
                file_end = log.base_of(found) + log.file_bytes
                until = file_end if end is None else min(file_end, end)
                window = log.read(found, min(WINDOW_BYTES, until - found))
                _write(disk, fd, window.rstrip(b"\0"), found - begin)
                offset = found + len(window) if window else file_end
            if end is not None:
                disk.ftruncate(fd, end - begin)
            disk.fsync(fd)
        finally:
            disk.close(fd)
    except OSError as error:
        if disk.exists(path):
            disk.unlink(path)
        if error.errno in NO_ROOM:
            raise DiskFullError(f"no room for {path}: {error.strerror}") from error
        raise
    disk.sync_directory(os.path.dirname(path))


def _write(disk: Disk, fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = disk.pwrite(fd, view, position)
        position += written
        view = view[written:]
