"""Counting the sends of a stretch of the log again, after a restart or a promotion; a little at a time.

Pure but for the store, which is read in windows: memory does not grow with the stretch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from brokerd.metering.meter import Interval, in_rows
from brokerd.store import DispatchRequest, MessageStore, SendCounts
from mqwire.metering import InRow

_WINDOW_BYTES = 512 * 1024
_HOUR_MS = 3_600_000
_PIECE_BYTES = 1024 * 1024 * 1024
"""A recount is recorded in pieces: one for each UTC hour, in which it is billed, and not too far apart, so that a restart has
not to begin over."""


class RecountError(Exception):
    """The log cannot be read where it should be."""


class Recount:
    """Counts [begin, end) of the log. `counted` are rows of it that are recorded already, all in front of `counted_to`.

    `after_ms` is when counting stopped: the time of a piece of which nothing is left that has its own.
    """

    def __init__(
        self,
        store: MessageStore,
        begin: int,
        end: int,
        counted: Iterable[InRow] = (),
        counted_to: int = 0,
        after_ms: int = 0,
    ) -> None:
        self._store = store
        self._after_ms = after_ms
        self._end = end
        self._offset = begin
        self._records: Iterator[DispatchRequest] | None = None
        self._record: DispatchRequest | None = None  # read, and not counted yet
        self._counted = tuple(counted)
        self._counted_to = counted_to
        self._open(begin)

    def _open(self, offset: int) -> None:
        self._piece_start = offset
        self._sends = SendCounts()
        self._first_ms = self._last_ms = -1
        self._deleted_to: int | None = None

    @property
    def done(self) -> bool:
        """Whether the last piece has been given out."""
        return self._piece_start >= self._end

    def advance(self, records_max: int) -> Interval | None:
        """Count up to so many records; returns a piece when one is complete. Raises RecountError."""
        store = self._store
        if self._offset < store.min_physical_offset:
            # Retention was faster. The records of the next file say where counting goes on.
            self._offset = self._deleted_to = min(store.min_physical_offset, self._end)
            self._records = self._record = None
        for _ in range(records_max):
            record = self._record or self._next()
            if record is None:
                return self._piece(self._end)
            if self._ends_in_front_of(record):
                self._record = record
                return self._piece(record.physical_offset)
            self._record = None
            if self._sends.add_record(record) and self._first_ms < 0:
                self._first_ms = record.store_timestamp_ms
            self._last_ms = max(self._last_ms, record.store_timestamp_ms)
            self._offset = record.physical_offset + record.size_bytes
        return None

    def _next(self) -> DispatchRequest | None:
        if self._offset >= self._end:
            return None
        if self._records is None:
            self._scanner = self._store.scan(self._offset, window_bytes=_WINDOW_BYTES)
            self._records = iter(self._scanner)
        record = next(self._records, None)
        if record is None:
            if self._scanner.offset < self._end:
                raise RecountError(f"the log cannot be read at {self._scanner.offset}, in front of its end")
            return None
        return record if record.physical_offset < self._end else None

    def _ends_in_front_of(self, record: DispatchRequest) -> bool:
        offset = record.physical_offset
        if offset < self._counted_to or self._last_ms < 0:
            return False
        return (
            record.store_timestamp_ms // _HOUR_MS > self._last_ms // _HOUR_MS
            or offset - self._piece_start >= _PIECE_BYTES
        )

    def _piece(self, end: int) -> Interval:
        for row in self._counted:
            self._sends.add(row.topic, row.kind, -row.messages, -row.bytes, -row.units)
        self._counted = ()
        last_ms = self._after_ms if self._last_ms < 0 else self._last_ms
        piece = Interval(
            start_ms=last_ms if self._first_ms < 0 else min(self._first_ms, last_ms),
            end_ms=last_ms,
            start_offset=self._piece_start,
            end_offset=end,
            messages_in=in_rows([("", self._sends)]),
            recounted=True,
            deleted_to=self._deleted_to,
        )
        self._offset = end
        self._open(end)
        return piece
