"""Deleted topics: `topicTombstones.json` below the store's root.

The records of a deleted topic stay in the CommitLog until retention removes their files. So that a rebuilt ConsumeQueue
doesn't bring them back, and so that a new topic of the same name doesn't give their numbers to other messages, we remember for
each deleted topic where the log ended then, and each queue's next offset. Forgotten when the log has passed that place.

A deletion is part of the log's history: the broker writes a record of it (services/metadata_log.py), and every replica deletes
where that record ends. So a tombstone is truncated with the log: one that lies past the end never happened, its numbers are
numbers that other messages may get from another leader, and the messages that it hid are there again. The record alone would
not do, because recovery begins at a checkpoint, and retention may have deleted the record of a number that must be kept; and
tombstones that outlived a truncation left a former leader waiting for ever for a number that no one would send.

A topic may be deleted several times in a log: its tombstones are kept in their order, and the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from brokerd.store.disk import Disk
from brokerd.store.durable_file import replace_file
from brokerd.store.errors import StoreFormatError


@dataclass(frozen=True, slots=True)
class Tombstone:
    physical_offset: int  # records below belong to the deleted topic
    next_offsets: dict[int, int] = field(default_factory=dict)  # queue id -> where a new topic goes on


class TopicTombstones:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._tombstones: dict[str, tuple[Tombstone, ...]] = {}  # of each topic, in the log's order
        self._lines: dict[str, bytes] = {}  # what the file has of each topic, as far as it was written before
        self._truncated = False

    def load(self) -> None:
        """Raises StoreFormatError when the file can't be read: going on without it would revive deleted messages."""
        if not self._disk.exists(self._path):
            return
        fd = self._disk.open(self._path, os.O_RDONLY)
        try:
            data = self._disk.pread(fd, self._disk.size(fd), 0)
        finally:
            self._disk.close(fd)
        try:
            self._tombstones = {
                topic: tuple(
                    Tombstone(
                        int(entry["physicalOffset"]),
                        {int(queue_id): int(offset) for queue_id, offset in entry["nextOffsets"].items()},
                    )
                    for entry in (entries if isinstance(entries, list) else [entries])  # of an older version
                )
                for topic, entries in json.loads(data).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreFormatError(
                f"{self._path} can't be read: {error}. Without it deleted topics come back"
            ) from error

    def get(self, topic: str) -> Tombstone | None:
        """The topic's last deletion; None when there was none."""
        found = self._tombstones.get(topic)
        return None if found is None else found[-1]

    def bury(self, topic: str, tombstone: Tombstone) -> None:
        """Remember a deletion; durable on return. Numbers only rise over an earlier one of the same topic."""
        earlier = self._tombstones.get(topic, ())
        if earlier:
            merged = dict(earlier[-1].next_offsets)
            for queue_id, offset in tombstone.next_offsets.items():
                merged[queue_id] = max(offset, merged.get(queue_id, 0))
            tombstone = Tombstone(tombstone.physical_offset, merged)
        self._tombstones[topic] = (*earlier, tombstone)
        self._lines.pop(topic, None)
        self._save()

    def truncate(self, end_offset: int) -> bool:
        """Drop those past the log's end, in memory; returns whether there were any. Their topics' queues must be rebuilt.

        Not saved before that is done (save_truncated): a process that is killed in between must do it again.
        """
        found = self._keep(lambda tombstone: tombstone.physical_offset <= end_offset)
        self._truncated |= found
        return found

    def save_truncated(self) -> None:
        """The queues are what the log says, durably."""
        if self._truncated:
            self._save()
            self._truncated = False

    def forget_below(self, min_offset: int) -> None:
        """Drop what no record of the log needs any longer."""
        if self._keep(lambda tombstone: tombstone.physical_offset > min_offset):
            self._save()

    def _keep(self, wanted: Callable[[Tombstone], bool]) -> bool:
        kept = {topic: tuple(filter(wanted, every)) for topic, every in self._tombstones.items()}
        if kept == self._tombstones:
            return False
        for topic, every in kept.items():
            if every != self._tombstones[topic]:
                self._lines.pop(topic, None)
        self._tombstones = {topic: every for topic, every in kept.items() if every}
        return True

    def _save(self) -> None:
        """Write the file whole; what is costly, its text, is made once for each topic."""
        lines = self._lines
        for topic, every in self._tombstones.items():
            if topic not in lines:
                lines[topic] = f"{json.dumps(topic)}: {json.dumps([_entry(one) for one in every])}".encode()
        replace_file(self._disk, self._path, b"{\n" + b",\n".join(lines.values()) + b"\n}\n")


def _entry(tombstone: Tombstone) -> dict[str, object]:
    return {
        "physicalOffset": tombstone.physical_offset,
        "nextOffsets": {str(queue_id): offset for queue_id, offset in tombstone.next_offsets.items()},
    }
