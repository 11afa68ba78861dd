"""How many bytes of the CommitLog each topic's messages take, kept up to date from the ConsumeQueues' entries.

Each entry is read in bulk, once when its message is stored and once when it expires (topic_retention.py); sums are kept by
CommitLog file, because retention deletes whole files. Pure but for the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from brokerd.store import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from brokerd.store import size_of_entries

if TYPE_CHECKING:
    from brokerd.store import MessageStore

_SLICE_ENTRIES: Final = 4096


class StoredBytes:
    """Run `update` to its end, then `by_topic` is right. Main thread only."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._first: dict[tuple[str, int], int] = {}  # queue -> the first entry that counts, and
        self._next: dict[tuple[str, int], int] = {}  # the first one that is not counted yet
        self._by_file: dict[str, dict[int, int]] = {}  # topic -> CommitLog file -> bytes
        self._by_topic: dict[str, int] = {}

    def update(self) -> Iterator[None]:
        """Count what is new, a slice for each step."""
        store = self._store
        topics = store.topics()
        for topic in [topic for topic in self._by_file if topic not in topics]:
            self.forget_topic(topic)
        for topic, queue_ids in topics.items():
            if any(
                self._next.get((topic, queue_id), 0) > (store.queue_end_offset(topic, queue_id) or 0)
                or self._first.get((topic, queue_id), 0) > store.min_offset(topic, queue_id)
                for queue_id in queue_ids
            ):
                self.forget_topic(topic)  # the log was truncated, or the topic was deleted and made again
            self._drop_deleted_files(self._by_file.get(topic, {}))
            for queue_id in queue_ids:
                yield from self._update_queue(topic, queue_id)
            yield
        for sums in self._by_file.values():
            self._drop_deleted_files(sums)
        self._by_topic = {
            topic: total for topic, sums in sorted(self._by_file.items()) if (total := sum(sums.values()))
        }

    def _update_queue(self, topic: str, queue_id: int) -> Iterator[None]:
        store = self._store
        key = (topic, queue_id)
        sums = self._by_file.setdefault(topic, {})
        while True:
            yield from self._take_expired(key, sums)
            if sums is not self._by_file.get(topic):  # it was deleted between two steps
                return
            first = max(self._next.get(key, 0), store.min_offset(topic, queue_id))
            entries = store.index_entries(topic, queue_id, first, _SLICE_ENTRIES)
            if self._first.get(key) == self._next.get(key):
                self._first[key] = first  # what came and expired since was never counted
            self._next[key] = first + len(entries) // ENTRY_BYTES
            if not entries:
                return
            for base, size in self._by_file_of(entries):
                sums[base] = sums.get(base, 0) + size
            yield

    def _take_expired(self, key: tuple[str, int], sums: dict[int, int]) -> Iterator[None]:
        """What was counted and is below the queue's first offset by now counts no more."""
        store = self._store
        topic, queue_id = key
        while sums is self._by_file.get(topic) and key in self._first:
            first, end = self._first[key], min(store.min_offset(topic, queue_id), self._next[key])
            entries = store.index_entries(topic, queue_id, first, min(_SLICE_ENTRIES, end - first))
            if not entries:  # nothing has expired, or it went with its files
                self._first[key] = max(first, end)
                return
            self._first[key] = first + len(entries) // ENTRY_BYTES
            for base, size in self._by_file_of(entries):
                if base in sums:
                    sums[base] -= size
            yield

    def _drop_deleted_files(self, sums: dict[int, int]) -> None:
        first = self._store.min_physical_offset
        for base in [base for base in sums if base + self._store.commit_log_file_bytes <= first]:
            del sums[base]

    def _by_file_of(self, entries: bytes) -> Iterator[tuple[int, int]]:
        file_bytes = self._store.commit_log_file_bytes
        first = int.from_bytes(entries[:8], "big") // file_bytes
        last = int.from_bytes(entries[-ENTRY_BYTES : -ENTRY_BYTES + 8], "big") // file_bytes
        if first == last:
            yield first * file_bytes, size_of_entries(entries)
            return
        for at in range(0, len(entries), ENTRY_BYTES):
            base = int.from_bytes(entries[at : at + 8], "big") // file_bytes * file_bytes
            yield base, size_of_entries(entries[at : at + ENTRY_BYTES])

    def log_was_truncated(self) -> None:
        """Where what was counted is gone, other records have come in its place, as many perhaps: count all again."""
        for topic in list(self._by_file):
            self.forget_topic(topic)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self._by_file.pop(topic, None)
        self._by_topic.pop(topic, None)
        for key in [key for key in self._next if key[0] == topic]:
            del self._next[key]
            self._first.pop(key, None)

    def first_of(self, topic: str, queue_id: int) -> int | None:
        """The queue's first message that counts in `bytes_of`; None where none has been counted."""
        return self._first.get((topic, queue_id))

    def bytes_of(self, topic: str) -> int:
        """What the messages that have been counted by now take, be an update under way or not."""
        return sum(self._by_file.get(topic, {}).values())

    def by_topic(self) -> dict[str, int]:
        """As of the last update that came to its end; topics of which nothing is stored are left out."""
        return self._by_topic
