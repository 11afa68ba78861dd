"""How far the message index goes: `indexCheckpoint.json` below the store's root, beside the index (an Apache broker takes
every file in `index/` for an IndexFile). The index is a function of the log, so without this file it is merely rebuilt.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from brokerd.store.disk import Disk
from brokerd.store.durable_file import replace_file
from brokerd.store.index_format import IndexHeader


@dataclass(frozen=True, slots=True)
class IndexCheckpoint:
    """All that it names is synced: the entries of the newest file up to its header's count, and every older file."""

    indexed_until: int  # of the CommitLog: every record below has its entries
    file_name: str  # the newest file; "" when there is none
    header: IndexHeader
    boot_id: str  # the page cache that the newest file's slots were written to; "" while they are written over

    @classmethod
    def load(cls, disk: Disk, path: str) -> IndexCheckpoint | None:
        """None when there is none, or nothing that makes sense."""
        if not disk.exists(path):
            return None
        fd = disk.open(path, os.O_RDONLY)
        try:
            data = disk.pread(fd, disk.size(fd), 0)
        finally:
            disk.close(fd)
        try:
            values = json.loads(data)
            header = IndexHeader(*map(int, values["header"]))
            return cls(int(values["indexedUntil"]), str(values["fileName"]), header, str(values["bootId"]))
        except (ValueError, KeyError, TypeError):
            return None

    def save(self, disk: Disk, path: str) -> None:
        """Durable on return."""
        values = {
            "indexedUntil": self.indexed_until,
            "fileName": self.file_name,
            "header": list(self.header),
            "bootId": self.boot_id,
        }
        replace_file(disk, path, json.dumps(values).encode())
