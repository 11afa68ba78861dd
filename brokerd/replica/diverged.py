"""What a replica cuts is kept below `<root>/diverged/`, so that a person can look at it and send it again.

Two kinds of file, in both of which what stood in the log at offset o stands at o - begin; between records there may be zeros,
damaged ones and, where logs part within a record, its rest:

- `<epoch>-<begin>-<end>-<time>.log`: what the group's leader never had, from `begin` to `end`, at most the first KEPT_MAX_BYTES
  of it.
- `cut-<begin>`, or `cut-<begin>.<number>` where there is one already: what recovery truncated after a power cut.

Of a `.log` that earlier versions wrote the records stand one after the other, and of a BLANK its head alone: its size tells.

Looking at a file changes nothing, and reads and parses a bounded part of it at a time.
"""

from __future__ import annotations

import os
import re
import struct
from array import array
from bisect import bisect_left
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from brokerd.store import Disk, DiskFullError, LogDamagedError, MessageStore
from brokerd.store.record import (
    BLANK_HEAD_BYTES,
    HEAD,
    MIN_RECORD_BYTES,
    NOT_CONSUMABLE,
    DispatchRequest,
    offset_after,
    parse_record,
    read_frame,
    record_spans,
)
from mqwire.bodies import DivergedFile
from mqwire.message import BLANK_MAGIC, MESSAGE_MAGIC, MESSAGE_MAGIC_V2

# Of one cut so much is kept, from its beginning on. Half a day of sends at 400 KB a second; a smaller number in a later
# version would take longer files for those of earlier ones.
KEPT_MAX_BYTES = 16 * 1024**3
_CHUNK_BYTES = 1024 * 1024
_CUT = re.compile(r"(\d+)-(\d{20})-(\d{20})-(\d+)\.log")
_TRUNCATED = re.compile(r"cut-(\d{20})(?:\.\d+)?")
_MAGIC_START = b"\xda\xa3\x20"  # of both record magics
_INT = struct.Struct(">I")
_RECORD_MAX_BYTES = 64 * 1024 * 1024
# A request is answered on the event loop: so much of a file is looked through for one.
_SCAN_BYTES = 4 * 1024 * 1024
_SCAN_RECORDS = 10_000
_STEP_BYTES = 16 * 1024  # what passing bytes that are no record costs, beside reading them
_ANSWER_BYTES = 4 * 1024 * 1024
_TOPICS_TOLD = 100
_FILES_KNOWN = 16


@dataclass(frozen=True, slots=True)
class SavedRecords:
    """Records of a saved cut, and where in the file each begins; `next_position` is where to read on.

    With no records and a `next_position` below `size`, the file was not looked through so far yet: ask again.
    """

    data: bytes
    positions: tuple[int, ...]
    next_position: int
    size: int


class DivergedMessages:
    """The saved cuts of one replica."""

    def __init__(self, disk: Disk, root_dir: str) -> None:
        self._disk = disk
        self._directory = os.path.join(root_dir, "diverged")
        self._contents: OrderedDict[str, _Contents] = OrderedDict()  # by name, the last used last
        self._counted: dict[str, DivergedFile] = {}  # all files that were looked through once, however many

    def save(self, store: MessageStore, begin_offset: int, epoch: int, now_ms: int) -> str:
        """Copy the log from `begin_offset` to its end; durable on return. Returns the file's name.

        Raises DiskFullError, before anything is written where there is no room for all of it, and OSError.
        """
        self._disk.make_directory(self._directory)
        name = f"{epoch}-{begin_offset:020d}-{store.end_offset:020d}-{now_ms}.log"
        end_offset = min(store.end_offset, begin_offset + KEPT_MAX_BYTES)
        free_bytes = self._disk.usage(self._directory).free_bytes
        if free_bytes < end_offset - begin_offset:
            raise DiskFullError(
                f"no room for {self._path(name)}, {end_offset - begin_offset} bytes: {free_bytes} are free"
            )
        store.copy_log(begin_offset, end_offset, self._path(name))
        return name

    def count(self) -> int:
        """How many cuts are kept, without reading them."""
        return len(self._names())

    def files(self) -> list[DivergedFile]:
        """All saved cuts, oldest first. What they hold is counted a bounded part at a time: see `counted_bytes`."""
        scan = _Budget()
        names = self._names()
        self._counted = {name: self._counted[name] for name in names if name in self._counted}
        found = [self._counted.get(name) or self._count_on(name, scan) for name in names]
        return sorted(found, key=lambda file: (file.cut_at_ms or 0, file.begin_offset))

    def read(self, name: str, position: int, max_messages: int) -> SavedRecords:
        """The records that begin at `position` or later; raises FileNotFoundError for an unknown name."""
        if name not in self._names():
            raise FileNotFoundError(f"there is no saved cut {name[:80]!a}")
        contents = self._contents_of(name)
        fd = self._disk.open(self._path(name), os.O_RDONLY)
        try:
            contents.look_on(self._disk, fd, _Budget(), until=position, records=max_messages + 1)
            first = bisect_left(contents.positions, position)
            begins = contents.positions[first : first + max_messages]
            records: list[bytes] = []
            positions: list[int] = []
            size = 0
            for begin in begins:
                (record_bytes,) = _INT.unpack(_read(self._disk, fd, begin, _INT.size))
                if records and size + record_bytes > _ANSWER_BYTES:
                    break
                records.append(_read(self._disk, fd, begin, record_bytes))
                positions.append(begin)
                size += record_bytes
        finally:
            self._disk.close(fd)
        following = first + len(records)
        if following < len(contents.positions):
            next_position = contents.positions[following]
        elif contents.complete:
            next_position = contents.size
        else:
            next_position = max(position, contents.looked_to)
        return SavedRecords(b"".join(records), tuple(positions), next_position, contents.size)

    def delete(self, name: str) -> None:
        """Remove a saved cut for good; raises FileNotFoundError for an unknown name."""
        if name not in self._names():
            raise FileNotFoundError(f"there is no saved cut {name[:80]!a}")
        self._disk.unlink(self._path(name))
        self._disk.sync_directory(self._directory)
        self._contents.pop(name, None)
        self._counted.pop(name, None)

    def _names(self) -> list[str]:
        return [
            name for name in self._disk.listdir(self._directory) if _CUT.fullmatch(name) or _TRUNCATED.fullmatch(name)
        ]

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _count_on(self, name: str, scan: _Budget) -> DivergedFile:
        """Look through more of a file. What is known of others stays: a listing of many must get on, and readers too."""
        contents = self._contents.get(name) or self._open_contents(name)
        if not contents.complete and not scan.spent:
            fd = self._disk.open(self._path(name), os.O_RDONLY)
            try:
                contents.look_on(self._disk, fd, scan)
            finally:
                self._disk.close(fd)
            self._contents[name] = contents
        file = _described(name, contents)
        if contents.complete:
            self._counted[name] = file
            if len(self._contents) > _FILES_KNOWN:
                self._contents.pop(name, None)
        return file

    def _contents_of(self, name: str) -> _Contents:
        contents = self._contents.get(name)
        if contents is None:
            contents = self._contents[name] = self._open_contents(name)
        self._contents.move_to_end(name)
        while len(self._contents) > _FILES_KNOWN:
            self._contents.popitem(last=False)
        return contents

    def _open_contents(self, name: str) -> _Contents:
        fd = self._disk.open(self._path(name), os.O_RDONLY)
        try:
            size = self._disk.size(fd)
        finally:
            self._disk.close(fd)
        if truncated := _TRUNCATED.fullmatch(name):
            return _Contents(size, int(truncated[1]))
        begin, end = _range_of(name)
        return _Contents(size, begin if size == min(end - begin, KEPT_MAX_BYTES) else None)


@dataclass(slots=True)
class _Budget:
    """What one request may look through."""

    bytes_left: int = _SCAN_BYTES
    records_left: int = _SCAN_RECORDS

    @property
    def spent(self) -> bool:
        return self.bytes_left <= 0 or self.records_left <= 0


@dataclass(slots=True)
class _Contents:
    """What was found in a file so far. `log_begin`: the log offset of its first byte, where all stands there as in the log."""

    size: int
    log_begin: int | None
    looked_to: int = 0
    positions: array[int] = field(default_factory=lambda: array("q"))
    topics: Counter[str] = field(default_factory=Counter)
    not_consumable: int = 0
    first_store_ms: int | None = None
    last_store_ms: int | None = None

    @property
    def complete(self) -> bool:
        return self.looked_to >= self.size

    def look_on(
        self, disk: Disk, fd: int, scan: _Budget, *, until: int | None = None, records: int | None = None
    ) -> None:
        """Look through more of the file, as far as the budget goes; with `until` only until `records` after it are known."""
        while not self.complete and not scan.spent:
            if (
                until is not None
                and records is not None
                and len(self.positions) - bisect_left(self.positions, until) >= records
            ):
                return
            window = _read(disk, fd, self.looked_to, min(_CHUNK_BYTES, self.size - self.looked_to))
            rest = window
            while rest and not scan.spent:
                position = self._take(rest, scan)
                if position == 0:
                    if len(rest) < len(window) and self._is_cut_off(rest):
                        break  # to be read as the beginning of a window
                    position = self._step(disk, fd, rest, scan)
                self.looked_to += position
                rest = rest[position:]
            scan.bytes_left -= len(window)

    def _is_cut_off(self, rest: bytes) -> bool:
        """Whether what begins at the end of a window may go on after it."""
        return self.looked_to + len(rest) < self.size and (len(rest) < HEAD.size or self._claimed(rest) > len(rest))

    def _take(self, window: bytes, scan: _Budget) -> int:
        """Note the records that `window` begins with; returns where the next thing begins that is none, or not whole."""
        position = 0
        while position + BLANK_HEAD_BYTES <= len(window) and scan.records_left > 0:
            record = self._record(window, position)
            if record is None:
                if self.log_begin is None and _magic(window, position) == BLANK_MAGIC:
                    position += BLANK_HEAD_BYTES
                    continue
                break
            self._note(self.looked_to + position, record)
            position += record.size_bytes
            scan.records_left -= 1
        return position

    def _step(self, disk: Disk, fd: int, window: bytes, scan: _Budget) -> int:
        """How far to go on from where the window begins with no whole record: a large one is read whole, other bytes are passed."""
        scan.bytes_left -= _STEP_BYTES
        claimed = self._claimed(window)
        if len(window) < claimed <= min(_RECORD_MAX_BYTES, self.size - self.looked_to):
            whole = _read(disk, fd, self.looked_to, claimed)
            scan.bytes_left -= claimed
            record = self._record(whole, 0)
            if record is not None:
                self._note(self.looked_to, record)
                return record.size_bytes
        begin = self.log_begin
        if begin is None:
            return self.size - self.looked_to  # saved records follow each other: what comes after other bytes is none
        if claimed and (bad_bytes := self._bad_record_bytes(disk, fd, begin)):
            return bad_bytes
        found = window.find(_MAGIC_START, 5)
        while found >= 0:
            head = window[found - 4 : found - 4 + HEAD.size]
            if len(head) < HEAD.size or HEAD.unpack(head)[6] == begin + self.looked_to + found - 4:
                return found - 4
            found = window.find(_MAGIC_START, found + 1)
        return len(window) if self.looked_to + len(window) >= self.size else max(1, len(window) - 7)

    def _bad_record_bytes(self, disk: Disk, fd: int, begin: int) -> int:
        """How much of the file the record takes that begins here and is not whole; 0 where its lengths contradict each other.

        Its body is a sender's, and may hold what looks like a record of anyone's.
        """
        frame = read_frame(
            lambda offset, count: _read(disk, fd, offset - begin, count), begin + self.looked_to, _RECORD_MAX_BYTES
        )
        if frame is None or not MIN_RECORD_BYTES <= frame.size_bytes <= _RECORD_MAX_BYTES:
            return 0
        agree = frame.size_by_parts == frame.size_bytes or not frame.topic  # which may never have been written
        return min(frame.size_bytes, self.size - self.looked_to) if agree else 0

    def _claimed(self, window: bytes) -> int:
        """The size that a record at the window's beginning claims; 0 where none can begin."""
        if len(window) < HEAD.size or _magic(window, 0) not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2):
            return 0
        if self.log_begin is not None and HEAD.unpack_from(window)[6] != self.log_begin + self.looked_to:
            return 0
        return int.from_bytes(window[:4], "big")

    def _record(self, window: bytes, position: int) -> DispatchRequest | None:
        if len(window) - position < MIN_RECORD_BYTES or _magic(window, position) == BLANK_MAGIC:
            return None
        own_offset: int = HEAD.unpack_from(window, position)[6]
        if self.log_begin is not None and own_offset != self.log_begin + self.looked_to + position:
            return None
        record = parse_record(window, position, own_offset, len(window) - position, False)
        return record if isinstance(record, DispatchRequest) else None

    def _note(self, position: int, record: DispatchRequest) -> None:
        self.positions.append(position)
        self.topics[record.topic.decode("utf-8", "replace")] += 1
        self.not_consumable += bool(record.sys_flag & NOT_CONSUMABLE)
        stored = record.store_timestamp_ms
        self.first_store_ms = stored if self.first_store_ms is None else min(self.first_store_ms, stored)
        self.last_store_ms = stored if self.last_store_ms is None else max(self.last_store_ms, stored)


def _range_of(name: str) -> tuple[int, int]:
    """Where in the log the cut that a `.log` is named after began and ended."""
    cut = _CUT.fullmatch(name)
    return (int(cut[2]), int(cut[3])) if cut else (0, 0)


def _described(name: str, contents: _Contents) -> DivergedFile:
    cut = _CUT.fullmatch(name)
    truncated = _TRUNCATED.fullmatch(name)
    begin, end = (int(truncated[1]), int(truncated[1]) + contents.size) if truncated else _range_of(name)
    return DivergedFile(
        name=name,
        reason="diverged" if cut else "power_cut",
        epoch=int(cut[1]) if cut else None,
        begin_offset=begin,
        end_offset=end,
        size_bytes=contents.size,
        left_out_bytes=end - begin - contents.size if contents.log_begin is not None else 0,
        messages=len(contents.positions),
        cut_at_ms=int(cut[4]) if cut else None,
        topics=dict(contents.topics.most_common(_TOPICS_TOLD)),
        not_consumable=contents.not_consumable,
        first_store_ms=contents.first_store_ms,
        last_store_ms=contents.last_store_ms,
        counted_bytes=contents.looked_to,
    )


def count_records(store: MessageStore, begin_offset: int) -> int:
    """How many records the log holds from `begin_offset`, where one begins, to its end."""
    count = 0
    offset = begin_offset
    while offset < store.end_offset:
        try:
            data = store.read_raw(offset, _CHUNK_BYTES)
        except LogDamagedError:
            break
        count += sum(1 for _ in record_spans(data))
        offset = offset_after(data, offset, store.commit_log_file_bytes)
    return count


def _magic(data: bytes, position: int) -> int:
    return int.from_bytes(data[position + 4 : position + 8], "big")


def _read(disk: Disk, fd: int, position: int, count: int) -> bytes:
    parts: list[bytes] = []
    while count > 0:
        part = disk.pread(fd, min(_CHUNK_BYTES, count), position)
        if not part:
            break
        parts.append(part)
        position += len(part)
        count -= len(part)
    return b"".join(parts)
