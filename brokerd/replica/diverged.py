"""What a replica cuts is kept: `<root>/diverged/<epoch>-<begin>-<end>-<time>.log` holds the records as the log had them.

The group's leader never had these messages, so they were not promised to be safe; but a person may want to see them and
send them again.
"""

from __future__ import annotations

import os
import re

from brokerd.store import Disk, LogDamagedError, MessageStore
from mqwire.bodies import DivergedFile

_CHUNK_BYTES = 1024 * 1024
_NAME = re.compile(r"(\d+)-(\d{20})-(\d{20})-(\d+)\.log")


class DivergedMessages:
    """The saved cuts of one replica."""

    def __init__(self, disk: Disk, root_dir: str) -> None:
        self._disk = disk
        self._directory = os.path.join(root_dir, "diverged")

    def save(self, store: MessageStore, begin_offset: int, epoch: int, now_ms: int) -> str:
        """Copy the log from `begin_offset` to its end; durable on return. Returns the file's name."""
        self._disk.make_directory(self._directory)
        name = f"{epoch}-{begin_offset:020d}-{store.end_offset:020d}-{now_ms}.log"
        fd = self._disk.open(os.path.join(self._directory, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            offset, position = begin_offset, 0
            while offset < store.end_offset:
                try:
                    data = store.read_raw(offset, _CHUNK_BYTES)
                except LogDamagedError:
                    break  # what is damaged is no one's message
                offset = _end_of(data, offset, store.commit_log_file_bytes)
                view = memoryview(data)
                while view:
                    written = self._disk.pwrite(fd, view, position)
                    position += written
                    view = view[written:]
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_directory(self._directory)
        return name

    def count(self) -> int:
        """How many cuts are kept, without reading them."""
        return sum(_NAME.fullmatch(name) is not None for name in self._disk.listdir(self._directory))

    def files(self) -> list[DivergedFile]:
        """All saved cuts, oldest first."""
        found: list[DivergedFile] = []
        for name in self._disk.listdir(self._directory):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            data = self._content(name)
            epoch, begin, end, cut_at_ms = (int(group) for group in match.groups())
            found.append(
                DivergedFile(
                    name=name,
                    epoch=epoch,
                    begin_offset=begin,
                    end_offset=end,
                    size_bytes=len(data),
                    messages=sum(1 for _ in _record_bounds(data)),
                    cut_at_ms=cut_at_ms,
                )
            )
        return sorted(found, key=lambda file: file.cut_at_ms)

    def read(self, name: str, position: int, max_messages: int) -> tuple[bytes, int, int]:
        """(records, next position, size of the file) from `position` on; raises FileNotFoundError for an unknown name."""
        if _NAME.fullmatch(name) is None or name not in self._disk.listdir(self._directory):
            raise FileNotFoundError(f"there is no saved cut {name[:80]!a}")
        data = self._content(name)
        records: list[bytes] = []
        for begin, end in _record_bounds(data):
            if begin < position:
                continue
            if len(records) >= max_messages:
                return b"".join(records), begin, len(data)
            records.append(data[begin:end])
        return b"".join(records), len(data), len(data)

    def _content(self, name: str) -> bytes:
        fd = self._disk.open(os.path.join(self._directory, name), os.O_RDONLY)
        try:
            size = self._disk.size(fd)
            parts: list[bytes] = []
            position = 0
            while position < size:
                part = self._disk.pread(fd, min(_CHUNK_BYTES, size - position), position)
                if not part:
                    break
                parts.append(part)
                position += len(part)
            return b"".join(parts)
        finally:
            self._disk.close(fd)


def _record_bounds(data: bytes) -> list[tuple[int, int]]:
    bounds: list[tuple[int, int]] = []
    position = 0
    while position + 8 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if data[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":  # the head of a BLANK
            position += 8
            continue
        if size < 8 or position + size > len(data):
            break
        bounds.append((position, position + size))
        position += size
    return bounds


def count_records(store: MessageStore, begin_offset: int) -> int:
    """How many records the log holds from `begin_offset`, where one begins, to its end."""
    count = 0
    offset = begin_offset
    while offset < store.end_offset:
        try:
            data = store.read_raw(offset, _CHUNK_BYTES)
        except LogDamagedError:
            break
        count += len(_record_bounds(data))
        offset = _end_of(data, offset, store.commit_log_file_bytes)
    return count


def _end_of(data: bytes, offset: int, file_bytes: int) -> int:
    """The log offset after `data`, whole records and BLANK heads read from `offset` on."""
    position = 0
    while position < len(data):
        if data[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":
            position += 8
            offset += file_bytes - offset % file_bytes
        else:
            size = int.from_bytes(data[position : position + 4], "big")
            position += size
            offset += size
    return offset
