"""Deleted topics: `topicTombstones.json` below the store's root.

The records of a deleted topic stay in the CommitLog until retention removes their files. So that a rebuilt ConsumeQueue
doesn't bring them back, and so that a new topic of the same name doesn't give their numbers to other messages, we remember for
each deleted topic where the log ended then, and each queue's next offset. Forgotten when the log has passed that place.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from brokerd.store.disk import Disk
from brokerd.store.errors import StoreFormatError
from brokerd.store.store_checkpoint import replace_file


@dataclass(frozen=True, slots=True)
class Tombstone:
    physical_offset: int  # records below belong to the deleted topic
    next_offsets: dict[int, int] = field(default_factory=dict)  # queue id -> where a new topic goes on


class TopicTombstones:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._tombstones: dict[str, Tombstone] = {}

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
                topic: Tombstone(
                    int(entry["physicalOffset"]),
                    {int(queue_id): int(offset) for queue_id, offset in entry["nextOffsets"].items()},
                )
                for topic, entry in json.loads(data).items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreFormatError(
                f"{self._path} can't be read: {error}. Without it deleted topics come back"
            ) from error

    def get(self, topic: str) -> Tombstone | None:
        return self._tombstones.get(topic)

    def bury(self, topic: str, tombstone: Tombstone) -> None:
        """Remember a deletion; durable on return. Numbers only rise over an earlier one of the same topic."""
        earlier = self._tombstones.get(topic)
        if earlier is not None:
            merged = dict(earlier.next_offsets)
            for queue_id, offset in tombstone.next_offsets.items():
                merged[queue_id] = max(offset, merged.get(queue_id, 0))
            tombstone = Tombstone(tombstone.physical_offset, merged)
        self._tombstones[topic] = tombstone
        self._save()

    def forget_below(self, min_offset: int) -> None:
        """Drop what no record of the log needs any longer."""
        gone = [topic for topic, tombstone in self._tombstones.items() if tombstone.physical_offset <= min_offset]
        if gone:
            for topic in gone:
                del self._tombstones[topic]
            self._save()

    def _save(self) -> None:
        data = {
            topic: {
                "physicalOffset": tombstone.physical_offset,
                "nextOffsets": {str(queue_id): offset for queue_id, offset in tombstone.next_offsets.items()},
            }
            for topic, tombstone in self._tombstones.items()
        }
        replace_file(self._disk, self._path, json.dumps(data, indent=1, sort_keys=True).encode())
