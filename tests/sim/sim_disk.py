"""A machine's disk: the faulty one of the store's tests, without its log of calls, and with errors on demand."""

from __future__ import annotations

import errno

from tests.sim.memory_disk import MemoryDisk


class SimDisk(MemoryDisk):
    """`fail_syncs` makes the next syncs of files below `failing` fail with EIO: the CommitLog, unless it says otherwise."""

    def __init__(self, boot: int = 0) -> None:
        super().__init__(boot)
        self.fail_syncs = 0
        self.failing = "/commitlog/"
        self._last_line = _LastLine()
        self.log = self._last_line
        self.fail = self._fail

    def _fail(self, number: int, name: str) -> int | None:
        if self.fail_syncs and name == "sync" and self.failing in self._last_line.text:
            self.fail_syncs -= 1
            return errno.EIO
        return None

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
