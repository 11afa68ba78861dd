"""One ConsumeQueue: the index of one queue of one topic, `consumequeue/<topic>/<queue id>/%020d`.

Entry i lies at byte 20 * i and says where the message with queue offset i is:

    | physical offset 8 | size 4 | tags code 8 |

Fresh entries wait in memory (`tail`) and go to their file in bulk: they are a pure function of the CommitLog, so losing
them costs a moment of recovery and nothing else. A file is created at its full size, with holes; what comes after the last
entry is zeros. Where a queue's first entry isn't the first of its file, blanks (0, 2^31 - 1, 0) fill the front, as in Apache's.
A number that no record of the log has, between two that have, gets a blank too, with the offset of the next record.

Invariant: tail_offset + len(tail) / 20 == next_offset; every entry below tail_offset is in a file.
"""

from __future__ import annotations

import bisect
import sys
from array import array
from collections.abc import Callable

from brokerd.store.config import CONSUME_QUEUE_ENTRY_BYTES as ENTRY_BYTES
from brokerd.store.record import ENTRY

BLANK_SIZE = 2**31 - 1
BLANK_ENTRY = ENTRY.pack(0, BLANK_SIZE, 0)
_WORDS = 5  # of 4 bytes in an entry: position, position, size, tags code, tags code
_SIZE_WORD = 2


class ConsumeQueue:
    __slots__ = (
        "bases",
        "directory",
        "floor_physical_offset",
        "is_schedule_topic",
        "min_offset_known",
        "min_physical_offset_known",
        "next_offset",
        "queue_id",
        "record_middle",
        "stored_end",
        "tail",
        "tail_offset",
        "topic",
        "topic_bytes",
    )

    def __init__(self, topic: str, queue_id: int, directory: str, next_offset: int = 0) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.directory = directory
        self.bases: list[int] = []  # of the files, in bytes, ascending
        self.next_offset = next_offset  # the queue's max offset: the next message gets it
        self.tail = bytearray()
        self.tail_offset = next_offset
        self.stored_end = 0  # the number up to which its files have entries
        self.floor_physical_offset = 0  # records below belong to a deleted topic of this name
        self.min_offset_known = 0
        self.min_physical_offset_known = -1  # the bound for which min_offset_known was computed
        length = len(self.topic_bytes)
        self.record_middle = (bytes((length,)) if length <= 127 else length.to_bytes(2, "big")) + self.topic_bytes
        self.is_schedule_topic = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry, whatever number its first one is going to have."""
        return not self.next_offset or not (self.bases or self.tail)

    def path(self, base: int) -> str:
        return f"{self.directory}/{base:020d}"

    def put(self, queue_offset: int, physical_offset: int, size_bytes: int, tags_code: int) -> int:
        """Add the entry of a record that was found in the log; returns by how many entries the tail grew.

        A number that was given before means that the topic was created again (as Apache does it, from 0): the later
        record counts. A gap is filled.
        """
        before = len(self.tail)
        if queue_offset != self.next_offset:
            self.min_offset_known, self.min_physical_offset_known = 0, -1
            if queue_offset < self.tail_offset or self.is_empty:
                self.tail.clear()
                self.tail_offset = queue_offset
            elif queue_offset < self.next_offset:
                del self.tail[(queue_offset - self.tail_offset) * ENTRY_BYTES :]
            else:
                self.put_gap(queue_offset, physical_offset)
        self.tail += ENTRY.pack(physical_offset, size_bytes, tags_code)
        self.next_offset = queue_offset + 1
        return (len(self.tail) - before) // ENTRY_BYTES

    def put_gap(self, until: int, physical_offset: int) -> int:
        """Entries without a message up to `until`, lost somewhere in front of `physical_offset`; returns how many."""
        count = until - self.next_offset
        self.tail += ENTRY.pack(physical_offset, BLANK_SIZE, 0) * count
        self.next_offset = until
        return count

    def begin_at(self, queue_offset: int) -> int:
        """Begin with the next entry: no message in front of it is there any more. Returns by how many entries the tail shrank."""
        shrank = len(self.tail) // ENTRY_BYTES
        self.tail.clear()
        self.tail_offset = self.next_offset = queue_offset
        self.min_offset_known, self.min_physical_offset_known = 0, -1
        return shrank

    def first_offset_at(self, low: int, physical_offset: int, read: Callable[[int, int], bytes]) -> int:
        """The first offset >= `low` whose record is at or after `physical_offset`; next_offset when there is none.

        `read(first, count)` gives entries. The blanks in front of a queue's first entry come before everything.
        """

        def key(offset: int) -> bool:
            entry = read(offset, 1)
            if len(entry) < ENTRY_BYTES:
                return False
            position, size, _ = ENTRY.unpack(entry)
            return bool(position >= physical_offset and (size != BLANK_SIZE or position > 0))

        return bisect.bisect_left(range(self.next_offset), True, lo=low, hi=self.next_offset, key=key)


def size_of_entries(entries: bytes) -> int:
    """How many bytes the records of these ConsumeQueue entries take."""
    words = array("I", entries)
    if sys.byteorder == "little":
        words.byteswap()
    sizes = words[_SIZE_WORD::_WORDS]
    return sum(sizes) - BLANK_SIZE * sizes.count(BLANK_SIZE)
