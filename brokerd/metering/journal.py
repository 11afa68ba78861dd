"""What was handed to consumers and is in no record yet, as a file: so that a killed broker knows it again.

It is rewritten each second and not synced: the page cache outlives the process. What a power cut takes is bounded by the time since
the last record, and reported (`pulls_lost_ms`). Pure but for the disk.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection
from typing import Final

import msgspec

from brokerd.store import Disk
from mqwire.metering import OutRow

logger = logging.getLogger(__name__)

NAME: Final = "meteringPulls.json"
PERIOD_S: Final = 1.0
ROWS_OFTEN_MAX: Final = 5000
PERIOD_OF_MANY_ROWS_S: Final = 10.0

IntervalKey = tuple[int, int]
"""Epoch and start_ms: how a record says which interval it is."""


class JournalInterval(msgspec.Struct, frozen=True):
    """Pulls of one interval; they are in its record once that is written."""

    epoch: int
    start_ms: int
    rows: tuple[OutRow, ...]

    @property
    def key(self) -> IntervalKey:
        return self.epoch, self.start_ms


class Journal(msgspec.Struct, frozen=True):
    """`kept` is to be reported to the leader. `closed`: written by a clean stop, after which nothing was handed out."""

    boot_id: str
    intervals: tuple[JournalInterval, ...] = ()
    kept: tuple[OutRow, ...] = ()
    closed: bool = False

    @property
    def row_count(self) -> int:
        return len(self.kept) + sum(len(interval.rows) for interval in self.intervals)

    def unrecorded(self, recorded: Collection[IntervalKey]) -> list[OutRow]:
        """The rows that no record has. `recorded` are the intervals that the log has records of."""
        rows = list(self.kept)
        for interval in self.intervals:
            if interval.key not in recorded:
                rows += interval.rows
        return rows


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Journal)


class JournalFile:
    """The file in the folder of the metadata."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._path = os.path.join(folder, NAME)
        self._written = b""
        self._closed = False
        self._lock = threading.Lock()

    def load(self) -> Journal | None:
        """What was written last; None when there is nothing, or nothing that can be read."""
        disk = self._disk
        if not disk.exists(self._path):
            return None
        try:
            fd = disk.open(self._path, os.O_RDONLY)
            try:
                content = disk.pread(fd, disk.size(fd), 0)
            finally:
                disk.close(fd)
            return _decoder.decode(content)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            logger.warning("%s cannot be read, pulls before this start may be missing: %s", self._path, error)
            return None

    def store(self, journal: Journal) -> None:
        """Replaces the file, unless it says the same; raises OSError. A killed process leaves the old one or the new one.

        May be called from several threads; after a closed journal only closed ones are written.
        """
        content = _encode(journal)
        with self._lock:
            if content == self._written or (self._closed and not journal.closed):
                return
            disk = self._disk
            draft = f"{self._path}.new"
            disk.make_directory(self._folder, durable=False)
            fd = disk.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                written = 0
                while written < len(content):
                    written += disk.pwrite(fd, memoryview(content)[written:], written)
            finally:
                disk.close(fd)
            disk.rename(draft, self._path)
            self._written, self._closed = content, journal.closed
