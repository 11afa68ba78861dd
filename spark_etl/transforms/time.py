"""Hours, days and months in UTC by arithmetic on epoch milliseconds, so that no session's time zone can move them.

A day of a daylight-saving change has its 24 UTC hours like any other.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def hour_begin_ms(epoch_ms: Column) -> Column:
    """The begin of the hour, in epoch milliseconds."""
    return epoch_ms - F.pmod(epoch_ms, F.lit(HOUR_MS))


def _day(epoch_ms: Column) -> Column:
    """The day as a date; dates have no zone."""
    days = ((epoch_ms - F.pmod(epoch_ms, F.lit(DAY_MS))) / DAY_MS).cast("int")
    return F.date_from_unix_date(days)


def hours_of_month(epoch_ms: Column) -> Column:
    """How many hours the month has: 672, 696, 720 or 744."""
    return (F.dayofmonth(F.last_day(_day(epoch_ms))) * 24).cast("long")


def to_ms(moment: datetime) -> int:
    """Epoch milliseconds of a moment with a zone."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def from_ms(epoch_ms: int) -> datetime:
    """The moment, in UTC."""
    return EPOCH + timedelta(milliseconds=epoch_ms)
