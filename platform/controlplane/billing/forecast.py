"""What a month will cost. Pure.

The method, as pages say it: cost so far, plus the average of the last seven counted days for each remaining hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from controlplane.billing.money import ZERO
from controlplane.billing.periods import HOUR, Month, hour_of

WINDOW = timedelta(days=7)
# Less than a day says little of a month, and is called a rough estimate; less than this says nothing.
ROUGH = timedelta(days=1)
LEAST = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Forecast:
    """`amount` is None when it can't be said; `method` says in words how it was found, or why it was not."""

    amount: Decimal | None
    method: str


def forecast(
    month: Month, hours: Mapping[datetime, Decimal], counted_from: datetime | None, counted_until: datetime | None
) -> Forecast:
    """Return the forecast to the month's end.

    Args:
        hours: amount by begin of the UTC hour, in [counted_from, counted_until); an hour without an entry cost nothing.
            Hours before the month count for the mean only.
        counted_from, counted_until: which hours were counted at all; None when none were.
    """
    if counted_from is None or counted_until is None or counted_until <= month.start:
        return Forecast(None, "No figures of this month yet.")
    so_far = sum((amount for hour, amount in hours.items() if month.start <= hour < month.end), start=ZERO)
    if counted_until >= month.end:
        return Forecast(so_far, "The month is complete: this is what it cost.")
    begin = max(counted_from, hour_of(counted_until - WINDOW))
    length = counted_until - begin
    if length < LEAST:
        return Forecast(None, "Less than 5 minutes of usage so far: too little for a forecast.")
    recent = sum((amount for hour, amount in hours.items() if hour_of(begin) <= hour < counted_until), start=ZERO)
    # In exact fractions: seconds of the window and of what is left, no floating point.
    left_s, length_s = _seconds(month.end - counted_until), _seconds(length)
    amount = so_far + recent * left_s / length_s
    rough = "A rough estimate. " if length < ROUGH else ""
    return Forecast(
        amount,
        f"{rough}Cost so far, plus the average of the last {_words(length)} for the remaining {_words(month.end - counted_until)}.",
    )


def _seconds(length: timedelta) -> Decimal:
    return Decimal(length // timedelta(seconds=1))


def _words(length: timedelta) -> str:
    if length % timedelta(days=1) == timedelta(0):
        days = length // timedelta(days=1)
        return f"{days} day{'' if days == 1 else 's'}"
    if length >= timedelta(days=2):
        return f"{length / timedelta(days=1):.1f} days"
    if length < HOUR:
        return f"{length // timedelta(minutes=1)} minutes"
    hours = round(length / HOUR)
    return f"{hours} hour{'' if hours == 1 else 's'}"
