"""Why the log may lack records at its end that it once had: `<root>/log.uncertain`, a reason a line.

Written before the evidence is gone, and kept until the replica has noted it in its own state (`MessageStore.forget_doubts`):
a process that is killed in between must not come back and take its log for complete.
"""

from __future__ import annotations

import enum
import os

from brokerd.store.disk import Disk
from brokerd.store.durable_file import replace_file


class TailDoubt(enum.Enum):
    """What happened to the end of the log."""

    LOST_PAGE_CACHE = "its machine went down under it"  # what was never synced may be gone
    SYNC_FAILED = "a sync failed"  # Linux then calls pages clean that never reached the disk (Rebello et al., ATC 2020)
    RECORDS_TRUNCATED = "whole records after a damaged one were truncated"  # that one may have been durable and counted


class TailDoubts:
    """The file. Written by one thread at a time."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.reasons: frozenset[TailDoubt] = frozenset()

    def load(self) -> None:
        """A file that names no reason known here is taken to name them all. Raises OSError."""
        if not self._disk.exists(self._path):
            return
        fd = self._disk.open(self._path, os.O_RDONLY)
        try:
            lines = self._disk.pread(fd, 4096, 0).decode("utf-8", "replace").split("\n")
        finally:
            self._disk.close(fd)
        self.reasons = frozenset(doubt for doubt in TailDoubt if doubt.value in lines) or frozenset(TailDoubt)

    def add(self, doubt: TailDoubt) -> None:
        """Durable on return; raises OSError."""
        if doubt not in self.reasons:
            self.reasons |= {doubt}
            lines = sorted(reason.value for reason in self.reasons)
            replace_file(self._disk, self._path, "\n".join(lines).encode())

    def forget(self) -> None:
        """They are noted elsewhere, durably. Raises OSError."""
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)
            self._disk.sync_directory(os.path.dirname(self._path))
        self.reasons = frozenset()
