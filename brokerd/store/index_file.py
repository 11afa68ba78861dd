"""One IndexFile (index_format.py draws it): reading chains, and adding entries in bulk.

Entries are written at once, where no one looks for them yet. Slots are kept in memory while the file grows, and reach the
disk together with the header now and then (flush_steps): what is on disk between two flushes is the state of the last one,
and whole, for an Apache broker too.

A file is sparse: its size is set when it is created, its blocks come as they are written. Nothing is mapped into memory, so
that a full disk is an error and not the end of the process.
"""

from __future__ import annotations

import mmap
import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from brokerd.store.disk import Disk
from brokerd.store.index_format import (
    ENTRY,
    ENTRY_BYTES,
    FIRST_ENTRY,
    HEADER,
    HEADER_BYTES,
    SECONDS_MAX,
    SLOT_BYTES,
    IndexHeader,
    file_bytes,
    runs,
    unpack_header,
)

_PAGE_SLOTS_SHIFT = 10
_PAGE_SLOTS = 1 << _PAGE_SLOTS_SHIFT
_STEP_PAGES = 64  # written in one go: a fraction of a millisecond
_PAGES_APART_MAX = 4
_READ_ENTRIES = 65536
_SWAP = sys.byteorder == "little"


class IndexFile:
    """`slots` and `entries` are maxHashSlotNum and maxIndexNum. Main thread only, but for sync()."""

    def __init__(self, disk: Disk, path: str, slots: int, entries: int) -> None:
        self.path = path
        self.header = IndexHeader()
        self._disk = disk
        self._slots_max = slots
        self._entries_max = entries
        self._entries_at = HEADER_BYTES + slots * SLOT_BYTES
        self._fd = -1
        self._slots: memoryview | None = None  # of native ints, once something is added
        self._dirty = bytearray()  # one for each page of slots
        self._header_is_last = False

    # -- opening

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def full(self) -> bool:
        return self.header.index_count >= self._entries_max

    def open(self) -> bool:
        """Read the header; False when the file was made with other sizes than ours."""
        self._fd = self._disk.open(self.path, os.O_RDWR)
        self.header = unpack_header(self._disk.pread(self._fd, HEADER_BYTES, 0))
        right = self._disk.size(self._fd) == file_bytes(self._slots_max, self._entries_max)
        return right and self.header.index_count <= self._entries_max

    def create(self) -> None:
        """A new file of full size. Its name is durable on return. Raises OSError, and leaves no file then."""
        self._fd = self._disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            self._disk.ftruncate(self._fd, file_bytes(self._slots_max, self._entries_max))
            self._disk.sync_directory(os.path.dirname(self.path))
        except OSError:
            self.delete()
            raise

    def close(self) -> None:
        """Nothing is written."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
        self.release_slots()

    def release_slots(self) -> None:
        """Give the memory back: the file is full, and flushed."""
        self._slots = None

    def delete(self) -> None:
        self.close()
        self._disk.unlink(self.path)

    # -- reading

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.header.begin_timestamp_ms <= end_ms and begin_ms <= self.header.end_timestamp_ms

    def chain(self, value: int) -> Iterator[tuple[int, int, int]]:
        """The (hash, physical offset, store timestamp without its milliseconds) of each entry in the slot of a hash, the
        newest first.
        """
        slot = value % self._slots_max
        if self._slots is not None:
            number = self._slots[slot]
        else:
            number = int.from_bytes(self._disk.pread(self._fd, SLOT_BYTES, HEADER_BYTES + slot * SLOT_BYTES), "big")
        begin_ms, limit = self.header.begin_timestamp_ms, self.header.index_count
        while FIRST_ENTRY <= number < limit:
            data = self._disk.pread(self._fd, ENTRY_BYTES, self._entries_at + number * ENTRY_BYTES)
            if len(data) < ENTRY_BYTES:
                return
            entry_hash, offset, seconds, limit_next = ENTRY.unpack(data)
            yield entry_hash, offset, begin_ms + seconds * 1000
            number, limit = limit_next, number  # a chain leads to ever smaller numbers, whatever is in the file

    def entry(self, number: int) -> tuple[int, int, int, int]:
        hash_, offset, seconds, previous = ENTRY.unpack(
            self._disk.pread(self._fd, ENTRY_BYTES, self._entries_at + number * ENTRY_BYTES)
        )
        return hash_, offset, seconds, previous

    # -- adding

    def put(self, hashes: Sequence[int], offsets: Sequence[int], timestamps_ms: Sequence[int]) -> int:
        """Add as many entries as fit, in order; returns how many. Raises OSError, and nothing has been added then."""
        header = self.header
        first = header.index_count
        amount = min(len(hashes), self._entries_max - first)
        if amount <= 0:
            return 0
        slots = self._slots if self._slots is not None else self._load_slots()
        slots_max, dirty = self._slots_max, self._dirty
        chosen = [value % slots_max for value in hashes[:amount]]
        begin_ms = header.begin_timestamp_ms if first > FIRST_ENTRY else timestamps_ms[0]
        # Two of them may share a slot: take each's predecessor and put each's number in one walk.
        previous = []
        number = first
        for slot in chosen:
            previous.append(slots[slot])
            slots[slot] = number
            number += 1
        seconds = [(timestamp - begin_ms) // 1000 for timestamp in timestamps_ms[:amount]]
        if not 0 <= min(seconds) <= max(seconds) <= SECONDS_MAX:
            seconds = [min(max(second, 0), SECONDS_MAX) for second in seconds]
        data = b"".join(map(ENTRY.pack, hashes[:amount], offsets, seconds, previous))
        try:
            self._write(data, self._entries_at + first * ENTRY_BYTES)
        except OSError:
            for slot, number in zip(reversed(chosen), reversed(previous), strict=True):
                slots[slot] = number
            raise
        for slot in chosen:
            dirty[slot >> _PAGE_SLOTS_SHIFT] = 1
        self.header = IndexHeader(
            begin_ms,
            timestamps_ms[amount - 1],
            header.begin_offset if first > FIRST_ENTRY else offsets[0],
            offsets[amount - 1],
            header.slots_used + previous.count(0),
            first + amount,
        )
        return amount

    def _write(self, data: bytes | memoryview, position: int) -> None:
        rest = memoryview(data)
        while rest:
            written = self._disk.pwrite(self._fd, rest, position)
            position += written
            rest = rest[written:]

    def _new_slots(self) -> memoryview:
        # Anonymous memory: pages that no entry falls into take no room.
        self._slots = memoryview(mmap.mmap(-1, self._slots_max * SLOT_BYTES)).cast("I")
        self._dirty = bytearray((self._slots_max >> _PAGE_SLOTS_SHIFT) + 1)
        return self._slots

    def _load_slots(self) -> memoryview:
        slots = self._new_slots()
        end = self._entries_at
        position: int | None = HEADER_BYTES
        while position is not None and position < end:
            size = min(_PAGE_SLOTS * SLOT_BYTES * _STEP_PAGES, end - position)
            data = array("I", self._disk.pread(self._fd, size, position))
            if _SWAP:
                data.byteswap()
            begin = (position - HEADER_BYTES) // SLOT_BYTES
            slots[begin : begin + len(data)] = memoryview(data)
            position = self._disk.next_data(self._fd, position + size)
            if position is not None:
                position -= (position - HEADER_BYTES) % SLOT_BYTES
        return slots

    # -- making it durable

    @property
    def dirty(self) -> bool:
        return any(self._dirty)

    def flush_steps(self) -> Iterator[None]:
        """Write the header and the slots, unsynced, a little in each step; add nothing in between."""
        # Every slot names an entry below the header's count at any moment.
        if not self._header_is_last:
            self._write(HEADER.pack(*self.header), 0)
        yield from self._slot_steps()
        if self._header_is_last:
            self._write(HEADER.pack(*self.header), 0)
            self._header_is_last = False

    def _slot_steps(self) -> Iterator[None]:
        slots, dirty = self._slots, self._dirty
        if slots is None:
            return
        pages = [number for number, is_dirty in enumerate(dirty) if is_dirty]
        written = 0
        for begin, end in runs(pages, _PAGES_APART_MAX):
            for page in range(begin, end, _STEP_PAGES):
                until = min(page + _STEP_PAGES, end)
                part = array("I")
                part.frombytes(slots[page << _PAGE_SLOTS_SHIFT : until << _PAGE_SLOTS_SHIFT].cast("B"))
                if _SWAP:
                    part.byteswap()
                self._write(memoryview(part).cast("B"), HEADER_BYTES + (page << _PAGE_SLOTS_SHIFT) * SLOT_BYTES)
                dirty[page:until] = bytes(until - page)
                written += until - page
                if written >= _STEP_PAGES:
                    written = 0
                    yield

    def sync(self) -> None:
        """Blocks: for a worker thread."""
        self._disk.fdatasync(self._fd)

    # -- going back

    def count_below(self, offset: int) -> int:
        """The index count that leaves out the entries of records at `offset` and after."""
        numbers = range(FIRST_ENTRY, self.header.index_count)
        return FIRST_ENTRY + bisect_left(numbers, offset, key=lambda number: self.entry(number)[1])

    def go_back_to_checkpoint(self, header: IndexHeader) -> None:
        """As truncate(). The next flush writes the header last: a process that is killed during it leaves another count than the
        checkpoint has, as the slots are of both states then, and the next one goes back again.
        """
        self.truncate(header)
        self._header_is_last = True

    def truncate(self, header: IndexHeader) -> None:
        """Go back to an earlier header: the slots are rebuilt from the entries that it counts. In memory, until a flush."""
        slots = self._new_slots()
        slots_max, used = self._slots_max, 0
        number = FIRST_ENTRY
        while number < header.index_count:
            amount = min(_READ_ENTRIES, header.index_count - number)
            words = array(
                "I", self._disk.pread(self._fd, amount * ENTRY_BYTES, self._entries_at + number * ENTRY_BYTES)
            )
            if _SWAP:
                words.byteswap()
            for value in words[:: ENTRY_BYTES // 4]:
                slot = value % slots_max
                if not slots[slot]:
                    used += 1
                slots[slot] = number
                number += 1
        self._dirty = bytearray(b"\x01" * len(self._dirty))
        self.header = header._replace(slots_used=used)

    def header_at(self, count: int) -> IndexHeader:
        """The header that this file had when it counted `count`; its last time is known to the second."""
        if count <= FIRST_ENTRY:
            return IndexHeader()
        _, offset, seconds, _ = self.entry(count - 1)
        end_ms = min(self.header.end_timestamp_ms, self.header.begin_timestamp_ms + seconds * 1000 + 999)
        return self.header._replace(end_timestamp_ms=end_ms, end_offset=offset, index_count=count)
