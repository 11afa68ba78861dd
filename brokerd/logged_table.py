"""A table by name whose changes are records of the log, as topics and consumer groups are.

A change is a record (metadata_record.py), which all replicas apply; a file of RocketMQ's is written too, for its tools
and for a start on a directory that RocketMQ has written.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from brokerd.metadata import MetadataFile
from brokerd.metadata_record import MetadataRecord
from brokerd.store import StoreError
from mqwire.bodies import DataVersion

logger = logging.getLogger("brokerd.logged_table")

RowT = TypeVar("RowT")


class LoggedTable(ABC, Generic[RowT]):
    """The rows, their DataVersion and their file.

    `clock_ms` is the wall clock, for the DataVersion. `write` puts a change into the log; it raises StoreError, and the
    table stays as it was.
    """

    def __init__(
        self, file: MetadataFile, clock_ms: Callable[[], int], write: Callable[[MetadataRecord], None] | None
    ) -> None:
        self.is_imported = False
        """Whether the file was written by others since the log was."""
        self.data_version = DataVersion()
        self._table: dict[str, RowT] = {}
        self._file = file
        self._clock_ms = clock_ms
        self._write = write
        self._file_is_old = False
        self._before_applying: dict[str, RowT] | None = None

    @abstractmethod
    def _file_content(self) -> bytes:
        """What the file is to hold now."""

    @abstractmethod
    def apply(self, record: MetadataRecord) -> None:
        """Take over what a record of the log says; `finish_applying` when all are applied."""

    @property
    def table(self) -> Mapping[str, RowT]:
        """All rows by name; a view."""
        return MappingProxyType(self._table)

    def select(self, name: str) -> RowT | None:
        return self._table.get(name)

    def finish_applying(self) -> None:
        """What was applied is one change."""
        before, self._before_applying = self._before_applying, None
        if before is not None and before != self._table:
            self.data_version = self.data_version.next_version(self._clock_ms())
            self._file_is_old = True
        self.write_file()

    def write_file(self) -> None:
        """Write the file if the table has changed since; tried again with the next change when that fails."""
        if self._file_is_old:
            self._file_is_old = False
            try:
                self._file.store(self._file.snapshot(self._file_content()))
            except OSError as error:
                self._file_is_old = True
                logger.error("%s cannot be written: %s", self._file.name, error)

    def _begin_applying(self) -> None:
        if self._before_applying is None:
            self._before_applying = dict(self._table)

    def _changed(self, before: dict[str, RowT], record: MetadataRecord | None = None) -> None:
        """The table has changed from `before`, which it is again when the log does not take the record."""
        version = self.data_version
        self.data_version = version.next_version(self._clock_ms())
        try:
            if record is not None and self._write is not None:
                self._write(record)
        except StoreError:
            # What could not be written must not be answered as done, nor be seen by anyone.
            self._table = before
            self.data_version = version
            raise
        self._file_is_old = True
        self.write_file()
