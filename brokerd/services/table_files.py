"""Writing RocketMQ's files of the tables after their changes, never on the event loop: a write syncs twice.

What a change promises is in the log (metadata_log.py), so no answer waits for a file, and many changes share one write.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from brokerd.environment import Threads
    from brokerd.metadata import Snapshot

logger = logging.getLogger(__name__)

# The content is put together on the loop, some milliseconds for ten thousand groups: not more often than this.
_PERIOD_S: Final = 0.1
_RETRY_PERIOD_S: Final = 1.0


class TableWithFile(Protocol):
    """A table whose file is written apart from its changes."""

    @property
    def file_name(self) -> str: ...

    def take_changes(self) -> Snapshot | None: ...

    def write_changes(self, changes: Snapshot) -> None: ...

    def mark_changed(self) -> None: ...


async def write_changes(table: TableWithFile, threads: Threads) -> bool:
    """Write the file in a thread if the table has changed. False when the disk refuses, which is logged: try again."""
    changes = table.take_changes()
    if changes is None:
        return True
    try:
        await threads.run(table.write_changes, changes)
    except OSError as error:
        table.mark_changed()
        logger.error("%s cannot be written, trying again: %s", table.file_name, error)
        return False
    return True


class TableFiles:
    """The files of `tables`."""

    def __init__(self, threads: Threads, tables: Sequence[TableWithFile]) -> None:
        self._threads = threads
        self._tables = tables
        self._wanted = trio.Event()

    def changed(self) -> None:
        """One of the tables has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Write what changes, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            written = [await write_changes(table, self._threads) for table in self._tables]
            if not all(written):
                self._wanted.set()
            await trio.sleep(_PERIOD_S if all(written) else _RETRY_PERIOD_S)
