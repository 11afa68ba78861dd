"""Months, days and hours of billing. Pure.

What is billed are UTC months of UTC hours, whatever a tenant's zone. Days are the tenant's calendar days, cut at the month's
ends: so the days of a month add up to the month, and the month to its invoice. An hour belongs to the day in which it begins.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say, say_as

_TEXT = re.compile(r"(2\d{3})-(0[1-9]|1[0-2])")
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month in UTC."""

    year: int
    month: int

    @classmethod
    def of(cls, moment: datetime) -> "Month":
        """Return the UTC month that the moment lies in."""
        utc = moment.astimezone(UTC)
        return cls(utc.year, utc.month)

    @classmethod
    def of_date(cls, day: date) -> "Month":
        """Return the month of a date."""
        return cls(day.year, day.month)

    @classmethod
    def parse(cls, text: str) -> "Month":
        """Return the month of `2026-11`; raises InvalidInput for anything else."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidInput.for_field("month", say("Use a month such as 2026-11."), "invalid_month")
        return cls(int(match[1]), int(match[2]))

    @property
    def start(self) -> datetime:
        """The first moment."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return self.next.start

    @property
    def next(self) -> "Month":
        return Month(self.year + 1, 1) if self.month == 12 else Month(self.year, self.month + 1)

    @property
    def previous(self) -> "Month":
        return Month(self.year - 1, 12) if self.month == 1 else Month(self.year, self.month - 1)

    @property
    def first_day(self) -> date:
        return date(self.year, self.month, 1)

    @property
    def hours(self) -> int:
        """How many hours it has; UTC has no daylight saving."""
        return 24 * monthrange(self.year, self.month)[1]

    @property
    def words(self) -> str:
        """The month in a sentence: `November 2026`."""
        return _in_words(self.month, self.year)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"


@dataclass(frozen=True, slots=True)
class Day:
    """A calendar day of a zone as far as it lies in the month: [start, end) in UTC. `whole` says that nothing was cut."""

    date: date
    start: datetime
    end: datetime
    whole: bool

    @property
    def hours(self) -> float:
        """How long it is: 23 or 25 h on the days on which clocks are changed."""
        return (self.end - self.start) / HOUR


def _in_words(month: int, year: int) -> str:
    return (
        say_as("month", "January %(year)s", year=year),
        say_as("month", "February %(year)s", year=year),
        say_as("month", "March %(year)s", year=year),
        say_as("month", "April %(year)s", year=year),
        say_as("month", "May %(year)s", year=year),
        say_as("month", "June %(year)s", year=year),
        say_as("month", "July %(year)s", year=year),
        say_as("month", "August %(year)s", year=year),
        say_as("month", "September %(year)s", year=year),
        say_as("month", "October %(year)s", year=year),
        say_as("month", "November %(year)s", year=year),
        say_as("month", "December %(year)s", year=year),
    )[month - 1]


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return, in UTC, when the day begins. Where clocks skip midnight, that is when they are changed (PEP 495, fold 0)."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def days_of(month: Month, zone: ZoneInfo) -> list[Day]:
    """Return the zone's days that lie in the UTC month, in order; they tile it."""
    days = []
    day = month.start.astimezone(zone).date()
    while (start := midnight(day, zone)) < month.end:
        end = midnight(day + timedelta(days=1), zone)
        cut = max(start, month.start), min(end, month.end)
        if cut[0] < cut[1]:
            days.append(Day(day, cut[0], cut[1], cut == (start, end)))
        day += timedelta(days=1)
    return days


def hour_of(moment: datetime) -> datetime:
    """Return the begin of the UTC hour that the moment lies in."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def is_whole_hour(moment: datetime) -> bool:
    """Whether the moment is the begin of a UTC hour: usage is priced by the hour, so prices change on the hour."""
    return hour_of(moment) == moment
