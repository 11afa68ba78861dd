"""Walking the CommitLog record by record, at recovery: to dispatch, and to find where it ends and why."""

from __future__ import annotations

from collections.abc import Iterator

from brokerd.store.commit_log import CommitLog
from brokerd.store.record import (
    BLANK,
    BLANK_HEAD_BYTES,
    HEAD,
    MIN_RECORD_BYTES,
    DispatchRequest,
    RecordFrame,
    parse_record,
    read_frame,
)
from mqwire.message import (
    BLANK_MAGIC,
    CRC32_PROPERTY_BYTES,
    CRC32_PROPERTY_PREFIX,
    MESSAGE_MAGIC,
    MESSAGE_MAGIC_V2,
)

WINDOW_BYTES = 4 * 1024 * 1024
_ZEROS = bytes(WINDOW_BYTES)
_PIECE_BYTES = 64  # no disk loses less of a write: a sector has 512 bytes or more
_SIZE_BYTES = 4  # that a record begins with
_ALWAYS_ZERO_BYTES = 2  # of these
_MAGIC_START = b"\xda\xa3\x20"  # of both record magics


class LogScanner:
    """Iterate to get the records from `offset` on. It stops in front of the first byte that is none: `offset` then."""

    def __init__(
        self, commit_log: CommitLog, offset: int, record_crc_from: int, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self.offset = offset
        self._window_bytes = window_bytes
        self._log = commit_log
        self._record_crc_from = record_crc_from

    def __iter__(self) -> Iterator[DispatchRequest]:
        log = self._log
        file_bytes = log.file_bytes
        crc_from = self._record_crc_from
        offset = self.offset
        file_end = offset - offset % file_bytes + file_bytes
        buffer = b""
        position = 0
        while True:
            record = parse_record(buffer, position, offset, file_end - offset, offset >= crc_from)
            if isinstance(record, DispatchRequest):
                offset += record.size_bytes
                position += record.size_bytes
                self.offset = offset
                yield record
            elif record is None:
                wanted = min(max(self._window_bytes, self._claimed_size(buffer, position, offset)), file_end - offset)
                if len(buffer) - position >= wanted or wanted < BLANK_HEAD_BYTES:
                    return
                buffer = log.read(offset, wanted)
                position = 0
                if len(buffer) < wanted:  # the file is short: what is here is all that there will be
                    whole = parse_record(buffer, 0, offset, file_end - offset, offset >= crc_from)
                    if whole is None:
                        return
            elif record == file_end - offset:  # a BLANK reaches exactly to the end of its file
                offset = file_end
                file_end += file_bytes
                buffer = b""
                position = 0
                self.offset = offset
            else:
                return

    @staticmethod
    def _claimed_size(buffer: bytes, position: int, offset: int) -> int:
        """The size that a record claims, if what is here can be one; otherwise 0, so that garbage can't ask for memory."""
        if len(buffer) - position < HEAD.size:
            return 0
        size, magic, _, _, _, _, own_offset, _, _ = HEAD.unpack_from(buffer, position)
        return int(size) if magic in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) and own_offset == offset else 0

    def find_record_after(self, begin: int) -> int | None:
        """The first whole record after what begins at `begin` and is none; None when only other bytes are left.

        A sender may have put into a message's body what is a whole record at just this place. So what lies within the bad record
        does not count, as long as anything tells where that ends: its size does, and so do the lengths of its parts.
        """
        frame = self._frame(begin)
        if frame is None:
            return self.find_record(begin)
        by_size, by_parts = self._end(begin, frame.size_bytes), self._end(begin, frame.size_by_parts)
        for end in (by_parts, by_size):
            if end is not None and self._begins_at(end):
                return self.find_record(end)
        if frame.is_head and by_size is not None and self.zeros_from(by_size - 1):
            # Its write ended early, and nothing was written after it; unless it does end in front of these zeros, and its size
            # is wrong. Of a write that ended early the lengths that are missing are zeros, so its parts end among zeros.
            if by_parts is None or by_parts >= by_size or self.zeros_from(by_parts - 1):
                return None
            return self.find_record(by_parts)
        return self.find_record(self._likely_end(begin, frame, by_size, by_parts))

    def _likely_end(self, begin: int, frame: RecordFrame, by_size: int | None, by_parts: int | None) -> int:
        """Where a bad record ends at the earliest that no whole one follows at once; `begin` where nothing tells."""
        if by_size is not None and (by_size == by_parts or (frame.is_head and not frame.topic)):
            return by_size  # what stood after its body may never have reached the disk
        for end in (by_size, by_parts):
            if end is not None and self._ends_with_crc(begin, end):
                return end
        if not frame.is_head or by_size is None:
            return begin
        return by_size if by_parts is None else min(by_size, by_parts)

    def _frame(self, begin: int) -> RecordFrame | None:
        return read_frame(self._log.read, begin, self._file_end(begin) - begin)

    def _file_end(self, offset: int) -> int:
        return self._log.base_of(offset) + self._log.file_bytes

    def _end(self, begin: int, size: int) -> int | None:
        """Where a record of that size ends; None where there can be none."""
        return begin + size if MIN_RECORD_BYTES <= size <= self._file_end(begin) - begin else None

    def _begins_at(self, offset: int) -> bool:
        """Whether a whole record begins there, or a BLANK."""
        file_end = self._file_end(offset)
        if self._is_record(offset, file_end):
            return True
        head = self._log.read(offset, BLANK_HEAD_BYTES)
        return len(head) == BLANK_HEAD_BYTES and BLANK.unpack(head) == (file_end - offset, BLANK_MAGIC)

    def _ends_with_crc(self, begin: int, end: int) -> bool:
        """Whether the bytes up to `end` are a record's CRC, right or wrong."""
        crc = self._log.read(max(begin, end - CRC32_PROPERTY_BYTES), min(CRC32_PROPERTY_BYTES, end - begin))
        return len(crc) == CRC32_PROPERTY_BYTES and crc.startswith(CRC32_PROPERTY_PREFIX) and crc.endswith(b"\x02")

    def find_record(self, begin: int) -> int | None:
        """The offset of the first whole record at or after `begin`; None when only other bytes are left."""
        log = self._log
        offset = begin
        while (data := log.next_data(offset)) is not None:
            offset = data
            file_end = log.base_of(offset) + log.file_bytes
            # Overlap the windows by a head, so that no magic hides on an edge; look back for a head split by next_data.
            window = log.read(offset, min(WINDOW_BYTES, file_end - offset))
            found = window.find(_MAGIC_START)
            while found >= 0:
                candidate = offset + found - 4
                if candidate >= begin and self._is_record(candidate, file_end):
                    return candidate
                found = window.find(_MAGIC_START, found + 1)
            end = offset + len(window)
            offset = end if end >= file_end or len(window) < BLANK_HEAD_BYTES else end - 3
        return None

    def _is_record(self, offset: int, file_end: int) -> bool:
        frame = read_frame(self._log.read, offset, file_end - offset)
        # Its parts first: a head alone, of which a body may hold thousands, must not have a whole file read.
        if frame is None or not frame.is_head or self._end(offset, frame.size_by_parts) is None:
            return False
        size = frame.size_bytes
        crc_required = offset >= self._record_crc_from
        if size != frame.size_by_parts or (crc_required and not self._ends_with_crc(offset, offset + size)):
            return False
        record = parse_record(self._log.read(offset, size), 0, offset, file_end - offset, crc_required)
        return isinstance(record, DispatchRequest)

    def lacks_a_piece(self, begin: int, end: int) -> bool:
        """Whether a power cut can have left these bytes of the log, which are no whole records, as they are.

        A write beyond the durable end goes over zeros, and the disk has each piece of it or has not. So where no piece has
        only zeros all of it was there, and something else has changed it.
        """
        log = self._log
        offset = begin
        while offset < end:
            size = min(_PIECE_BYTES - offset % _PIECE_BYTES, end - offset)
            if not any(log.read(offset, size)) and (offset > begin or not self._may_begin_with_zeros(size, begin, end)):
                return True
            offset += size
        return False

    def _may_begin_with_zeros(self, count: int, begin: int, end: int) -> bool:
        """Whether so many of a record's first bytes are zeros in any record, or in one that goes from `begin` to `end`.

        Of a record of less than 256 bytes the first three are. Were they lost, the fourth alone would hardly be its size.
        """
        if count <= _ALWAYS_ZERO_BYTES:
            return True
        return count < _SIZE_BYTES and begin + int.from_bytes(self._log.read(begin, _SIZE_BYTES), "big") == end

    def spoiled_record_end(self, begin: int) -> int | None:
        """Where what begins here ends as a record of ours does, though it is no record: it was whole, and is spoiled. None: it
        may be a write that ended early.

        A write puts the bytes in their order over zeros. So all of it was written where the bytes up to the zeros end with a
        record's CRC; if that is spoiled, where the last byte of the size that it claims is there. Where that one is not there, and
        the head is whole, a CRC may be one that a sender has put into the body: there the parts must end with it.
        """
        frame = self._frame(begin)
        by_size = None if frame is None or not frame.is_head else self._end(begin, frame.size_bytes)
        written_end = self._zeros_begin(begin, self._file_end(begin))
        if frame is not None and by_size is not None and written_end < by_size:
            return written_end if self._end(begin, frame.size_by_parts) == written_end else None
        if self._ends_with_crc(begin, written_end):
            return written_end
        return by_size if by_size is not None and any(self._log.read(by_size - 1, 1)) else None

    def _zeros_begin(self, begin: int, file_end: int) -> int:
        """From where on a file has only zeros."""
        log = self._log
        zeros_from = offset = begin
        while (data := log.next_data(offset)) is not None and data < file_end:
            window = log.read(data, min(WINDOW_BYTES, file_end - data))
            if not window:
                break
            written = window.rstrip(b"\0")
            if written:
                zeros_from = data + len(written)
            offset = data + len(window)
        return zeros_from

    def zeros_from(self, begin: int) -> bool:
        """Whether every byte from `begin` on is zero."""
        log = self._log
        offset = begin
        while (data := log.next_data(offset)) is not None:
            offset = data
            file_end = log.base_of(offset) + log.file_bytes
            window = log.read(offset, min(WINDOW_BYTES, file_end - offset))
            if window != _ZEROS[: len(window)]:
                return False
            offset += max(len(window), 1)
            if not window:
                offset = file_end
        return True
