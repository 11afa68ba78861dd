"""What the delivery of delayed messages that wait will take: each is stored a second time, and counts twice from the send on.

Sizes come from the ConsumeQueues' entries, in bulk, once when a message is stored and once when it is delivered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from brokerd.delay_levels import queue_id_of_level
from brokerd.store import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from brokerd.store import INDEX_BYTES_OF_KEY, size_of_entries
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC

if TYPE_CHECKING:
    from brokerd.store import MessageStore

_SLICE_ENTRIES: Final = 4096
# Keys are summed up over so many messages, and count until all of these are delivered.
_KEYS_TOGETHER: Final = 256


@dataclass(slots=True)
class _Level:
    """What is counted of a level's queue: the messages from `first` up to `next`."""

    first: int
    next: int
    size_bytes: int = 0
    keys: int = 0  # besides UNIQ_KEY, of which each message has one
    keys_of: dict[int, int] = field(default_factory=dict)  # the same, of each _KEYS_TOGETHER messages

    @property
    def total_bytes(self) -> int:
        return self.size_bytes + (self.next - self.first + self.keys) * INDEX_BYTES_OF_KEY


class WaitingBytes:
    """Main thread only."""

    def __init__(self, store: MessageStore) -> None:
        self.total = 0
        self._store = store
        self._levels: dict[int, _Level] = {}

    def update(self, offsets: Mapping[int, int], levels: Iterable[int], *, with_keys: Collection[int] = ()) -> None:
        """Count what has come, and no more what is delivered: `offsets` are how far, by level. Raises OSError and StoreError.

        `with_keys` are levels of whose new messages some have keys: each is looked at. Those that were there when a level was first
        looked at, thousands perhaps, are taken to have none but UNIQ_KEY.
        """
        try:
            for level in levels:
                self._update_level(level, offsets.get(level, 0), with_keys=level in with_keys)
        finally:
            self.total = sum(level.total_bytes for level in self._levels.values())

    def _update_level(self, level: int, begin: int, *, with_keys: bool) -> None:
        queue_id = queue_id_of_level(level)
        end = self._store.queue_end_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id) or 0
        begin = min(begin, end)
        known = self._levels.get(level)
        if known is None or not known.first <= begin <= known.next <= end or not self._drop(known, queue_id, begin):
            known = self._levels[level] = _Level(begin, begin)
            self._add(known, queue_id, end, with_keys=False)
        elif known.next < end:
            self._add(known, queue_id, end, with_keys=with_keys)

    def _drop(self, known: _Level, queue_id: int, begin: int) -> bool:
        """Take out what lies in front of `begin`; False when its entries are gone, and all is to be counted again."""
        while known.first < begin:
            count = min(_SLICE_ENTRIES, begin - known.first)
            entries = self._store.index_entries(RMQ_SYS_SCHEDULE_TOPIC, queue_id, known.first, count)
            if not entries:
                return False
            known.size_bytes -= size_of_entries(entries)
            known.first += len(entries) // ENTRY_BYTES
        for together in [
            together for together in known.keys_of if (together + 1) * _KEYS_TOGETHER <= begin or begin == known.next
        ]:
            known.keys -= known.keys_of.pop(together)
        return True

    def _add(self, known: _Level, queue_id: int, end: int, *, with_keys: bool) -> None:
        store = self._store
        while known.next < end:
            entries = store.index_entries(RMQ_SYS_SCHEDULE_TOPIC, queue_id, known.next, _SLICE_ENTRIES)
            if not entries:  # of messages that retention deleted before they were due
                known.first = known.next = max(
                    known.next + 1, min(end, store.min_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id))
                )
                known.size_bytes = known.keys = 0
                known.keys_of.clear()
                continue
            known.size_bytes += size_of_entries(entries)
            if with_keys:
                for at in range(0, len(entries), ENTRY_BYTES):
                    count = store.count_keys(entries[at : at + ENTRY_BYTES])
                    if count:
                        together = (known.next + at // ENTRY_BYTES) // _KEYS_TOGETHER
                        known.keys_of[together] = known.keys_of.get(together, 0) + count
                        known.keys += count
            known.next += len(entries) // ENTRY_BYTES

    def forget(self) -> None:
        """The log was truncated: where what was counted is gone other messages may have come."""
        self._levels.clear()
        self.total = 0
