"""A bounded number of open file descriptors, least recently used closed first. Main thread only."""

from __future__ import annotations

import os
from collections.abc import Hashable

from brokerd.store.disk import Disk


class FileCache:
    def __init__(self, disk: Disk, open_files_max: int, flags: int = os.O_RDWR) -> None:
        self._disk = disk
        self._max = open_files_max
        self._flags = flags
        self._fds: dict[Hashable, int] = {}  # in the order of use

    def get(self, key: Hashable, path: str) -> int:
        """A descriptor for `path`, good until the next call. Raises FileNotFoundError."""
        fd = self._fds.pop(key, -1)
        if fd < 0:
            fd = self._disk.open(path, self._flags)
            if len(self._fds) >= self._max:
                oldest = next(iter(self._fds))
                self._disk.close(self._fds.pop(oldest))
        self._fds[key] = fd
        return fd

    def get_or_create(self, key: Hashable, path: str) -> int:
        """As get(); an empty file is created when there is none."""
        self.forget(key)
        self._disk.close(self._disk.open(path, self._flags | os.O_CREAT))
        return self.get(key, path)

    def forget(self, key: Hashable) -> None:
        fd = self._fds.pop(key, -1)
        if fd >= 0:
            self._disk.close(fd)

    def close(self) -> None:
        while self._fds:
            self._disk.close(self._fds.popitem()[1])
