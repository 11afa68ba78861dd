"""What is being counted: sends and pulls of the open interval, and the intervals that are waiting to be recorded.

Pure: time and offsets are passed in. How the counts of sends are made is in store/send_counts.py, how they become records in
records.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from brokerd.store import GetResult, SendCounts
from mqwire.metering import OTHERS, InRow, OutRow, others_of

# Pairs of topic and group that have a row of their own in the records of an hour, of one access key and of all. Each pull can name
# another pair, and each row is kept here, in the log, in the lake and in the table of usage.
PAIRS_OF_CREDENTIAL_MAX: Final = 2_000
PAIRS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What was counted of [start_offset, end_offset) of the log, or of the time from start_ms to end_ms (UTC)."""

    start_ms: int
    end_ms: int
    start_offset: int
    end_offset: int
    messages_in: tuple[InRow, ...]
    messages_out: tuple[OutRow, ...] = ()
    recounted: bool = False
    deleted_to: int | None = None
    clock_step_ms: int = 0


class Meter:
    """The counts of the open interval. Counting is on the hot path: a look-up for each batch of sends, and for each pull.

    Of pulls each (topic, group, credential) has a count of its own, as far as pairs have rows; what is beyond is counted together,
    for each credential, under OTHERS.
    """

    def __init__(self) -> None:
        self.sends: dict[str, SendCounts] = {}  # by credential; add with `sends_of`
        self._pulls: dict[tuple[str, str, str], list[int]] = {}
        self._pairs: dict[str, set[tuple[str, str]]] = {}  # that have rows in this hour, by credential
        self._pair_count = 0
        self._reported: dict[str, list[OutRow]] = {}  # by origin: never merged, so that each can be recognised

    def sends_of(self, credential: str) -> SendCounts:
        """Where the sends of an access key are counted; good for one append, not to be kept."""
        counts = self.sends.get(credential)
        if counts is None:
            counts = self.sends[credential] = SendCounts()
        return counts

    def pulled(self, topic: str, group: str, credential: str, result: GetResult) -> None:
        """The messages of `result` were handed to a consumer."""
        count = self._pulls.get((topic, group, credential))
        if count is None:
            count = self._new_count(topic, group, credential)
        count[0] += result.count
        count[1] += result.body_bytes
        count[2] += result.units

    def _new_count(self, topic: str, group: str, credential: str) -> list[int]:
        """Where the pulls of a pair that has no count are counted."""
        pairs = self._pairs.setdefault(credential, set())
        if (topic, group) not in pairs:
            # The counts may be of more hours than the pairs: a slave keeps them until a master takes them.
            is_full = max(self._pair_count, len(self._pulls)) >= PAIRS_MAX
            if group == OTHERS or is_full or len(pairs) >= PAIRS_OF_CREDENTIAL_MAX:
                return self._pulls.setdefault((others_of(topic), OTHERS, credential), [0, 0, 0])
            pairs.add((topic, group))
            self._pair_count += 1
        return self._pulls.setdefault((topic, group, credential), [0, 0, 0])

    def begin_hour(self) -> None:
        """Let other pairs have rows of their own from now on."""
        self._pairs.clear()
        self._pair_count = 0

    def add_out(self, rows: Iterable[OutRow]) -> None:
        """Pulls that were counted elsewhere. An origin's rows come together, once."""
        for row in rows:
            if row.origin:
                self._reported.setdefault(row.origin, []).append(row)
                continue
            count = self._pulls.get((row.topic, row.group, row.credential))
            if count is None:
                count = self._new_count(row.topic, row.group, row.credential)
            count[0] += row.messages
            count[1] += row.bytes
            count[2] += row.units

    def take_out(self, rows_max: int | None = None) -> tuple[OutRow, ...]:
        """The rows of what was pulled, which leave the meter; about so many, for those of an origin stay together."""
        keys = sorted(self._pulls)[:rows_max]
        rows: list[OutRow] = []
        for topic, group, credential in keys:
            messages, size, units = self._pulls.pop((topic, group, credential))
            rows.append(
                OutRow(topic=topic, group=group, credential=credential, messages=messages, bytes=size, units=units)
            )
        for origin in list(self._reported):
            if rows_max is not None and len(rows) >= rows_max:
                break
            rows += self._reported.pop(origin)
        return tuple(rows)

    def out_rows(self) -> tuple[OutRow, ...]:
        """The rows of what was pulled so far, which stay."""
        rows = [
            OutRow(topic=topic, group=group, credential=credential, messages=messages, bytes=size, units=units)
            for (topic, group, credential), (messages, size, units) in sorted(self._pulls.items())
        ]
        return (*rows, *(row for reported in self._reported.values() for row in reported))

    def take(
        self, *, start_ms: int, end_ms: int, start_offset: int, end_offset: int, clock_step_ms: int = 0
    ) -> Interval:
        """Close the interval: its counts leave the meter."""
        interval = Interval(
            start_ms=start_ms,
            end_ms=max(start_ms, end_ms),
            start_offset=start_offset,
            end_offset=end_offset,
            messages_in=in_rows(self.sends.items()),
            messages_out=self.take_out(),
            clock_step_ms=clock_step_ms,
        )
        self.clear()
        return interval

    def clear(self) -> None:
        """Forget the counts: they will be made again from the log."""
        self.sends.clear()
        self._pulls.clear()
        self._reported.clear()


def in_rows(counts: Iterable[tuple[str, SendCounts]]) -> tuple[InRow, ...]:
    """The rows of (credential, counts), in a fixed order."""
    return tuple(
        InRow(topic=topic, credential=credential, kind=kind, messages=messages, bytes=body_bytes, units=units)
        for credential, sends in sorted(counts, key=lambda entry: entry[0])
        for topic, kind, messages, body_bytes, units in sorted(sends.rows())
    )
