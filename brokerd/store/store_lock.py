"""The `lock` file: one process serves a store, ours or Apache's."""

from __future__ import annotations

import os

from brokerd.store.disk import Disk
from brokerd.store.errors import StoreLockedError


def take_lock(disk: Disk, path: str) -> int:
    """The descriptor that holds the lock until it is closed; raises StoreLockedError, and OSError of the disk."""
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        disk.lock(fd)
        disk.pwrite(fd, b"lock", 0)
    except BlockingIOError as error:
        disk.close(fd)
        raise StoreLockedError(f"{path} is locked: another broker serves this directory") from error
    except OSError:
        disk.close(fd)  # or the lock would be held against the next try
        raise
    return fd
