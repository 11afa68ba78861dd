"""What the message index will take for messages that are stored and not indexed yet: it counts as stored from the send on.

Otherwise sends with many keys would be far past a quota by the time that the index has read them. A sum of parts of the log; pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

# Sends are added up over so much of the log: a part counts until the index has read it to its end.
_PART_BYTES: Final = 64 * 1024
_PARTS_MAX: Final = 1024


@dataclass(slots=True)
class _Part:
    begin_offset: int
    end_offset: int
    index_bytes: int


class UnindexedKeys:
    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._total_bytes = 0

    def add(self, begin_offset: int, end_offset: int, index_bytes: int) -> None:
        """Records between these offsets of the log were stored, and will take so much of the index."""
        parts = self._parts
        self._total_bytes += index_bytes
        if parts:
            last = parts[-1]
            lag_bytes = end_offset - parts[0].begin_offset
            if end_offset - last.begin_offset <= max(_PART_BYTES, lag_bytes // _PARTS_MAX):
                last.end_offset = max(last.end_offset, end_offset)
                last.index_bytes += index_bytes
                return
        parts.append(_Part(begin_offset, end_offset, index_bytes))

    def bytes_after(self, indexed_until: int) -> int:
        """What is to come for records that the index has not read."""
        parts = self._parts
        while parts and parts[0].end_offset <= indexed_until:
            self._total_bytes -= parts.popleft().index_bytes
        return self._total_bytes
