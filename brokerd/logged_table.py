"""A table by name whose changes are records of the log, as topics and consumer groups are.

A change is a record (metadata_record.py), which all replicas apply, and an answer waits for that alone. A file of RocketMQ's is
written soon after (services/table_files.py), for its tools and for a start on a directory that RocketMQ has written.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from brokerd.metadata import MetadataFile, Snapshot
from brokerd.metadata_record import MetadataRecord
from brokerd.store import StoreError
from mqwire.bodies import DataVersion

logger = logging.getLogger("brokerd.logged_table")

RowT = TypeVar("RowT")


class LoggedTable(ABC, Generic[RowT]):
    """The rows, their DataVersion and their file.

    `clock_ms` is the wall clock, for the DataVersion. `write` puts a change into the log; it raises StoreError, and the
    table stays as it was. `wants_file` is called when the file has to be written.
    """

    def __init__(
        self,
        file: MetadataFile,
        clock_ms: Callable[[], int],
        write: Callable[[MetadataRecord], None] | None,
        wants_file: Callable[[], None],
    ) -> None:
        self.is_imported = False
        """Whether the file was written by others since the log was."""
        self.data_version = DataVersion()
        self._table: dict[str, RowT] = {}
        self._file = file
        self._clock_ms = clock_ms
        self._write = write
        self._wants_file = wants_file
        self._file_is_old = False
        self._file_outranks_log = (
            False  # it was written by others, and the next start would believe it more than the log
        )
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
            self._make_file_old()

    @property
    def file_name(self) -> str:
        return self._file.name

    def take_changes(self) -> Snapshot | None:
        """The file's new content, None when the table has not changed since the last call; for `write_changes`."""
        if not self._file_is_old:
            return None
        self._file_is_old = False
        return self._file.snapshot(self._file_content())

    def write_changes(self, changes: Snapshot) -> None:
        """Replaces the file durably, in whatever thread; raises OSError: call `mark_changed` then."""
        self._file.store(changes)
        self._file_outranks_log = False

    def mark_changed(self) -> None:
        """What was taken last is not in the file."""
        self._file_is_old = True

    def write_file(self) -> None:
        """Write the file at once if the table has changed since; later, with the next change, when that fails."""
        changes = self.take_changes()
        if changes is not None:
            try:
                self.write_changes(changes)
            except OSError as error:
                self.mark_changed()
                logger.error("%s cannot be written: %s", self._file.name, error)

    def own_file(self) -> None:
        """Have the log count more than the file from now on, if others wrote that; raises StoreError: then no change may be
        answered as done, for the next start would take it back. Call it when the log has a base with what the file says.
        """
        if not self._file_outranks_log:
            return
        try:
            self.write_changes(self._file.snapshot(self._file_content()))
        except OSError as error:
            raise StoreError(f"{self._file.name}, which others wrote, cannot be replaced: {error}") from error

    def _take_for_imported(self) -> None:
        """The file that was just loaded is not this table's own."""
        self.is_imported = self._file_outranks_log = True

    def _make_file_old(self) -> None:
        self._file_is_old = True
        if self._file_outranks_log:
            # What the log says from here on would be lost with the process: this once, no answer may be faster than the file.
            self.write_file()
        if self._file_is_old:
            self._wants_file()

    def _begin_applying(self) -> None:
        if self._before_applying is None:
            self._before_applying = dict(self._table)

    def _become(self, table: dict[str, RowT], record: MetadataRecord | None = None) -> None:
        """Be `table` from now on, once the log has taken `record`; raises StoreError, and nothing has changed then."""
        if record is not None and self._write is not None:
            self._write(record)  # may write a base in front, which must not hold what is refused afterwards
        self._table = table
        self.data_version = self.data_version.next_version(self._clock_ms())
        self._make_file_old()
