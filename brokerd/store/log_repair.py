"""Damage inside the log, put right in place with the records that another replica has there.

The other replica's records are written over the damaged ones, up to the first place where this log holds a whole record
again. Nothing after that is fetched, and nothing that others may count on is given up meanwhile.

Where logs part they must not be joined that way: the damaged record may be the very first that the other one never had, and its
epoch's. So the record that follows must be the same in both, byte for byte. Then all in front of it is the same, too, for an
epoch has one leader, which only appends (the Raft paper's Log Matching).
"""

from __future__ import annotations

import os
from collections.abc import Callable

from brokerd.store.commit_log import CommitLog, Segment
from brokerd.store.config import StoreConfig
from brokerd.store.disk import Disk
from brokerd.store.errors import UnprovenRecordsError
from brokerd.store.log_scanner import LogScanner
from brokerd.store.record import BLANK_HEAD_BYTES, DispatchRequest, parse_record
from brokerd.store.status import StoreStatus


class LogRepair:
    """Reads and writes by descriptors of its own: for a worker thread."""

    def __init__(self, config: StoreConfig, disk: Disk, record_crc_from: int) -> None:
        self._disk = disk
        self._log = CommitLog(config, disk, StoreStatus())
        self._record_crc_from = record_crc_from

    def locate(self, offset: int, end_offset: int) -> int | None:
        """Where the damage begins that a reader of `offset` met; None when every record is whole up to there and there.

        Walks the records of one CommitLog file: a file begins with a record. Raises OSError.
        """
        try:
            scanner = LogScanner(self._log, self._log.base_of(offset), self._record_crc_from)
            for record in scanner:
                if record.physical_offset >= offset:
                    return None
            return scanner.offset if scanner.offset <= offset < end_offset else None
        finally:
            self._log.close()

    def write(
        self,
        begin_offset: int,
        data: bytes,
        end_offset: int,
        *,
        needs_proof: bool,
        announce: Callable[[bytes], None],
    ) -> int:
        """Write records of another replica's log from `begin_offset` on over damaged ones, durably; returns how far.

        `announce` gets them, in a pull's form, once it is sure that they fit, and before the first is written.
        Raises ValueError when these records do not fit into the log, which ends at `end_offset`, UnprovenRecordsError when
        `data` has no record to compare with what follows them, and OSError. Without `needs_proof`, as the leader's have, they
        may also be the last ones.
        """
        try:
            segments, end, position = self._segments(begin_offset, data, end_offset)
            if not self._goes_on_alike(end, data, position, end_offset) and (needs_proof or end < end_offset):
                raise UnprovenRecordsError(end)
            records = [(offset, b"".join(bytes(buffer) for buffer in buffers)) for offset, buffers, _ in segments]
            announce(b"".join(record for _, record in records))
            for offset, record in records:
                self._overwrite(offset, record)
            return end
        finally:
            self._log.close()

    def _segments(self, begin_offset: int, data: bytes, end_offset: int) -> tuple[list[Segment], int, int]:
        log = self._log
        segments: list[Segment] = []
        offset, position = begin_offset, 0
        while position < len(data) and offset < end_offset and not (position and self._is_whole(offset)):
            file_end = log.base_of(offset) + log.file_bytes
            record = parse_record(data, position, offset, file_end - offset, offset >= self._record_crc_from)
            if isinstance(record, DispatchRequest):
                size, after = record.size_bytes, offset + record.size_bytes
            elif record == file_end - offset:
                size, after = BLANK_HEAD_BYTES, file_end
            else:
                raise ValueError(f"what is to be written over the damage at {offset} is no record")
            if after > end_offset:
                raise ValueError(f"the record at {offset} goes past the end of this log, {end_offset}")
            segments.append((offset, [data[position : position + size]], size))
            position += size
            offset = after
        self._refuse_where_logs_part(begin_offset, offset, segments)
        return segments, offset, position

    def _refuse_where_logs_part(self, begin: int, end: int, segments: list[Segment]) -> None:
        """Raises ValueError where this log has a whole record within one of the other's. In the body of one a sender may have put
        what looks so: then both logs have it.
        """
        log = self._log
        log.bases = list(range(log.base_of(begin), end, log.file_bytes))  # of the files that are looked through
        scanner = LogScanner(log, begin, self._record_crc_from)
        own = scanner.find_record(begin + 1)
        while own is not None and own < end:
            size = int.from_bytes(log.read(own, 4), "big")
            offset, buffers, _ = next(segment for segment in reversed(segments) if segment[0] <= own)
            if bytes(buffers[0])[own - offset : own - offset + size] != log.read(own, size):
                raise ValueError(
                    f"the logs part at the damage: this one has a whole record at {own}, within those of the other"
                )
            own = scanner.find_record(own + size)

    def _goes_on_alike(self, offset: int, data: bytes, position: int, end_offset: int) -> bool:
        """Whether the next record of `data` is this log's, too; False where there is none to compare, raises ValueError if not."""
        log = self._log
        while position < len(data) and offset < end_offset:
            file_end = log.base_of(offset) + log.file_bytes
            record = parse_record(data, position, offset, file_end - offset, offset >= self._record_crc_from)
            size = record.size_bytes if isinstance(record, DispatchRequest) else BLANK_HEAD_BYTES
            if record is None or log.read(offset, size) != data[position : position + size]:
                raise ValueError(f"the logs part after the damage, at {offset}")
            if isinstance(record, DispatchRequest):
                return True
            position += size
            offset = file_end
        return False

    def _is_whole(self, offset: int) -> bool:
        return next(iter(LogScanner(self._log, offset, self._record_crc_from)), None) is not None

    def _overwrite(self, offset: int, data: bytes) -> None:
        log, disk = self._log, self._disk
        base = log.base_of(offset)
        fd = disk.open(log.path(base), os.O_RDWR)
        try:
            view, position = memoryview(data), offset - base
            while view:
                count = disk.pwrite(fd, view, position)
                position += count
                view = view[count:]
            if disk.size(fd) < log.file_bytes:
                disk.ftruncate(fd, log.file_bytes)
            disk.fsync(fd)
        finally:
            disk.close(fd)
