"""Which hours a run counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spark_etl.transforms.time import HOUR_MS, from_ms, to_ms


@dataclass(frozen=True, slots=True)
class HourRange:
    """Whole UTC hours, [from_ms, to_ms)."""

    from_ms: int
    to_ms: int

    @property
    def begin(self) -> datetime:
        return from_ms(self.from_ms)

    @property
    def end(self) -> datetime:
        return from_ms(self.to_ms)


def hours_to_count(
    now: datetime, late_window: timedelta, requested: tuple[datetime, datetime] | None = None
) -> HourRange:
    """The hours that a run counts: those asked for (a backfill), widened to whole hours, or all within the window.

    A late record reopens its hour as long as the hour lies in the window, because each run counts the whole window again.
    """
    begin, end = requested or (now - late_window, now)
    return HourRange(to_ms(begin) // HOUR_MS * HOUR_MS, -(-to_ms(end) // HOUR_MS) * HOUR_MS)
