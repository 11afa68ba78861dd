"""What of the API will end, and when. What is promised: docs/api.md."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.http import HttpResponseBase
from django.urls import reverse
from django.utils.http import http_date

# How long programs have at least to do without it.
NOTICE = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A method of a route that is deprecated `since` a day and answers no more from the day `ends` on, both in UTC.

    Raises ValueError for less time between them than is promised.
    """

    since: date
    ends: date

    def __post_init__(self) -> None:
        if self.ends - self.since < NOTICE:
            raise ValueError(f"{self.ends} is less than {NOTICE.days} days after {self.since}")


def deprecation_headers(deprecation: Deprecation, response: HttpResponseBase) -> None:
    """Set Deprecation (RFC 9745), Sunset (RFC 8594), and the Link to the reference, which has the policy."""
    response.headers["Deprecation"] = f"@{_seconds(deprecation.since)}"
    response.headers["Sunset"] = http_date(_seconds(deprecation.ends))
    response.headers["Link"] = f'<{reverse("api-reference")}>; rel="deprecation"; type="text/html"'


def _seconds(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
