"""Small files that are replaced whole: after a crash at any step they hold the old content or the new one."""

from __future__ import annotations

import os

from brokerd.store.disk import Disk


def write_file(disk: Disk, path: str, content: bytes, permissions: int | None = None) -> None:
    """Write `content` as all that the file holds, and sync it; the directory is not synced. Raises OSError."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        if permissions is not None:
            disk.set_permissions(fd, permissions)  # before there is anything to read
        written = 0
        while written < len(content):
            written += disk.pwrite(fd, memoryview(content)[written:], written)
        disk.fsync(fd)
    finally:
        disk.close(fd)


def replace_file(disk: Disk, path: str, content: bytes, permissions: int | None = None) -> None:
    """Put `content` in the place of the file's; durable on return. Raises OSError."""
    temporary = path + ".tmp"
    write_file(disk, temporary, content, permissions)
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path) or ".")
