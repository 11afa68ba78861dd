"""A machine's disk: the faulty one of the store's tests, without its log of calls, and with errors on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tests.sim.memory_disk import MemoryDisk
from tests.sim.trio_process import block


class SimDisk(MemoryDisk):
    """`fail_syncs` makes the next syncs of files below `failing` fail with EIO: the CommitLog, unless it says otherwise."""

    def __init__(self, boot: int = 0) -> None:
        super().__init__(boot)
        self.fail_syncs = 0
        self.failing = "/commitlog/"
        self.sync_s: Callable[[], float] = lambda: 0.0  # how long the next sync takes
        self.on_death: Callable[[], None] = lambda: None
        self.on_failed_sync: Callable[[], None] = lambda: None
        self._last_line = _LastLine()
        self.log = self._last_line
        self.fail = self._fail

    def _fail(self, number: int, name: str) -> int | None:
        if self.fail_syncs and name == "sync" and self.failing in self._last_line.text:
            self.fail_syncs -= 1
            self.on_failed_sync()
            return errno.EIO
        return None

    def stop(self) -> None:
        """The process that uses it is gone: nothing that it still tries has an effect."""
        self._dead = True

    def _call(self, name: str, detail: str) -> None:
        alive = not self._dead
        try:
            super()._call(name, detail)
        finally:
            if alive and self._dead:
                self.on_death()

    def fdatasync(self, fd: int, /) -> None:
        seconds = self.sync_s()
        block(seconds / 2)
        super().fdatasync(fd)
        block(seconds / 2)

    fsync = fdatasync

    def page_cache(self, path: str, begin: int, end: int) -> bytes:
        """What the end of the process would leave there."""
        inode = self.names.get(path)
        return b"" if inode is None else bytes(inode.data[begin:end])

    @classmethod
    def of(cls, disk: MemoryDisk) -> SimDisk:
        """The same content, as the next process finds it."""
        new = cls(disk._boot)
        new.names, new.synced_names, new.directories = disk.names, disk.synced_names, disk.directories
        return new


class _LastLine(list[str]):
    """Keeps nothing else."""

    text = ""

    def append(self, line: str) -> None:
        self.text = line
