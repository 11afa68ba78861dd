"""How many bytes of the CommitLog each topic's messages take, kept up to date from the ConsumeQueues' entries.

Each entry is read once, in bulk; sums are kept by CommitLog file, because retention deletes whole files. Pure but for the store.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from brokerd.store import MessageStore

ENTRY_BYTES: Final = 20
_WORDS: Final = 5  # of 4 bytes in an entry: position, position, size, tags code, tags code
_SIZE_WORD: Final = 2
_BLANK_SIZE: Final = 2**31 - 1  # an entry without a record: store/consume_queue.py
_SLICE_ENTRIES: Final = 4096


class StoredBytes:
    """Run `update` to its end, then `by_topic` is right. Main thread only."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._next: dict[tuple[str, int], int] = {}  # queue -> the first entry that is not counted yet
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
                for queue_id in queue_ids
            ):
                self.forget_topic(topic)  # the log was truncated, or the topic was deleted and made again
            for queue_id in queue_ids:
                yield from self._update_queue(topic, queue_id)
            yield
        first = store.min_physical_offset
        for sums in self._by_file.values():
            for base in [base for base in sums if base + store.commit_log_file_bytes <= first]:
                del sums[base]
        self._by_topic = {
            topic: total for topic, sums in sorted(self._by_file.items()) if (total := sum(sums.values()))
        }

    def _update_queue(self, topic: str, queue_id: int) -> Iterator[None]:
        store = self._store
        key = (topic, queue_id)
        sums = self._by_file.setdefault(topic, {})
        while sums is self._by_file.get(topic):  # it may be deleted between two steps
            first = max(self._next.get(key, 0), store.min_offset(topic, queue_id))
            entries = store.index_entries(topic, queue_id, first, _SLICE_ENTRIES)
            self._next[key] = first + len(entries) // ENTRY_BYTES
            if not entries:
                return
            self._add(sums, entries)
            yield

    def _add(self, sums: dict[int, int], entries: bytes) -> None:
        file_bytes = self._store.commit_log_file_bytes
        first = int.from_bytes(entries[:8], "big") // file_bytes
        last = int.from_bytes(entries[-ENTRY_BYTES : -ENTRY_BYTES + 8], "big") // file_bytes
        if first == last:
            sums[first * file_bytes] = sums.get(first * file_bytes, 0) + _size_of(entries)
            return
        for at in range(0, len(entries), ENTRY_BYTES):
            base = int.from_bytes(entries[at : at + 8], "big") // file_bytes * file_bytes
            sums[base] = sums.get(base, 0) + _size_of(entries[at : at + ENTRY_BYTES])

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted."""
        self._by_file.pop(topic, None)
        self._by_topic.pop(topic, None)
        for key in [key for key in self._next if key[0] == topic]:
            del self._next[key]

    def by_topic(self) -> dict[str, int]:
        """As of the last update that came to its end; topics of which nothing is stored are left out."""
        return self._by_topic


def _size_of(entries: bytes) -> int:
    words = array("I", entries)
    if sys.byteorder == "little":
        words.byteswap()
    sizes = words[_SIZE_WORD::_WORDS]
    return sum(sizes) - _BLANK_SIZE * sizes.count(_BLANK_SIZE)
