"""What a month will cost. Pure.

The method, as pages say it: cost so far, plus the average of the last seven counted days for each remaining hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from controlplane.billing.money import ZERO
from controlplane.billing.periods import HOUR, Month, hour_of
from controlplane.common.sentences import say, say_all, say_count

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
        return Forecast(None, say("No figures of this month yet."))
    so_far = sum((amount for hour, amount in hours.items() if month.start <= hour < month.end), start=ZERO)
    if counted_until >= month.end:
        return Forecast(so_far, say("The month is complete: this is what it cost."))
    begin = max(counted_from, hour_of(counted_until - WINDOW))
    length = counted_until - begin
    if length < LEAST:
        return Forecast(None, say("Less than 5 minutes of usage so far: too little for a forecast."))
    recent = sum((amount for hour, amount in hours.items() if hour_of(begin) <= hour < counted_until), start=ZERO)
    # In exact fractions: seconds of the window and of what is left, no floating point.
    left_s, length_s = _seconds(month.end - counted_until), _seconds(length)
    amount = so_far + recent * left_s / length_s
    method = say(
        "Cost so far, plus the average of the last %(window)s for the remaining %(rest)s.",
        window=_words(length),
        rest=_words(month.end - counted_until),
    )
    return Forecast(amount, say_all(say("A rough estimate."), method) if length < ROUGH else method)


def _seconds(length: timedelta) -> Decimal:
    return Decimal(length // timedelta(seconds=1))


def _words(length: timedelta) -> str:
    if length % timedelta(days=1) == timedelta(0):
        days = length // timedelta(days=1)
        return say_count("%(count)s day", "%(count)s days", days)
    if length >= timedelta(days=2):
        return say("%(days)s days", days=f"{length / timedelta(days=1):.1f}")
    if length < HOUR:
        return say("%(minutes)s minutes", minutes=length // timedelta(minutes=1))
    hours = round(length / HOUR)
    return say_count("%(count)s hour", "%(count)s hours", hours)
