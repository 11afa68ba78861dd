"""Months, days, forecasts, thresholds and rounding, as tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from controlplane.billing.focus import Account, FocusRow, focus_record
from controlplane.billing.forecast import forecast
from controlplane.billing.money import exact_text, grouped_text, percent_of, thresholds_reached, to_cents, total_of
from controlplane.billing.periods import Month, days_of, hour_of, is_whole_hour
from controlplane.common.errors import InvalidInput
from controlplane.common.zones import zone_check, zone_names, zone_of

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "month"),
    [
        ("2026-11-01T00:00", "2026-11"),
        ("2026-10-31T23:59:59.999999", "2026-10"),
        ("2026-12-31T23:59", "2026-12"),
        ("2028-02-29T12:00", "2028-02"),
    ],
)
def test_a_moment_lies_in_its_utc_month(moment: str, month: str) -> None:
    assert str(Month.of(at(moment))) == month


def test_a_moment_of_another_zone_lies_in_its_utc_month() -> None:
    assert str(Month.of(datetime(2026, 11, 1, 0, 30, tzinfo=ZoneInfo("Europe/Berlin")))) == "2026-10"


@pytest.mark.parametrize(
    ("month", "hours", "after", "before"),
    [
        ("2026-11", 720, "2026-12", "2026-10"),
        ("2026-12", 744, "2027-01", "2026-11"),
        ("2026-01", 744, "2026-02", "2025-12"),
        ("2026-02", 672, "2026-03", "2026-01"),
        ("2028-02", 696, "2028-03", "2028-01"),
    ],
)
def test_months_follow_each_other_and_know_their_hours(month: str, hours: int, after: str, before: str) -> None:
    found = Month.parse(month)
    assert (found.hours, str(found.next), str(found.previous)) == (hours, after, before)
    assert found.end - found.start == hours * HOUR


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-00", "2026-1", "1999-12", "2026-11-01", "x"])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Month.parse(text)


@pytest.mark.parametrize(
    ("month", "zone", "count", "odd"),
    [
        ("2026-11", "UTC", 30, {}),
        # Clocks go forward on 29 March and back on 25 October: 23 and 25 hours.
        ("2026-03", "Europe/Berlin", 32, {date(2026, 3, 1): 23, date(2026, 3, 29): 23, date(2026, 4, 1): 2}),
        ("2026-10", "Europe/Berlin", 32, {date(2026, 10, 1): 22, date(2026, 10, 25): 25, date(2026, 11, 1): 1}),
        ("2026-11", "America/New_York", 31, {date(2026, 10, 31): 4, date(2026, 11, 1): 25, date(2026, 11, 30): 19}),
        ("2026-11", "Asia/Kolkata", 31, {date(2026, 11, 1): 18.5, date(2026, 12, 1): 5.5}),
        # Clocks skip midnight here: the day begins at one.
        ("2026-09", "America/Santiago", 31, {date(2026, 8, 31): 4, date(2026, 9, 6): 23, date(2026, 9, 30): 21}),
        ("2028-02", "Pacific/Kiritimati", 30, {date(2028, 2, 1): 10, date(2028, 3, 1): 14}),
    ],
)
def test_the_days_of_a_zone_tile_the_utc_month(month: str, zone: str, count: int, odd: dict[date, float]) -> None:
    found = Month.parse(month)
    days = days_of(found, ZoneInfo(zone))
    assert len(days) == count
    assert (days[0].start, days[-1].end) == (found.start, found.end)
    assert all(one.end == following.start for one, following in pairwise(days))
    assert {day.date: day.hours for day in days if day.hours != 24} == odd
    assert sum(day.hours for day in days) == found.hours


def test_a_day_that_the_month_cuts_is_not_whole() -> None:
    days = days_of(Month.parse("2026-11"), ZoneInfo("Europe/Berlin"))
    assert [day.date for day in days if not day.whole] == [date(2026, 11, 1), date(2026, 12, 1)]


@pytest.mark.parametrize(
    ("moment", "hour", "whole"),
    [
        ("2026-11-21T14:00", "2026-11-21T14:00", True),
        ("2026-11-21T14:59:59", "2026-11-21T14:00", False),
        ("2026-11-21T14:00:00.000001", "2026-11-21T14:00", False),
    ],
)
def test_a_moment_lies_in_its_hour(moment: str, hour: str, whole: bool) -> None:
    assert hour_of(at(moment)) == at(hour)
    assert is_whole_hour(at(moment)) is whole


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Shanghai", "America/Argentina/Buenos_Aires"])
def test_a_zone_of_the_database_is_taken(name: str) -> None:
    assert zone_check(name) == name
    assert zone_of(name).key == name


@pytest.mark.parametrize("name", ["", "Berlin", "Europe/berlin", "../../etc/passwd", "posix/UTC", "GMT+1", "CET"])
def test_another_name_is_no_zone(name: str) -> None:
    with pytest.raises(InvalidInput):
        zone_check(name)
    assert zone_of(name).key == "UTC"


def test_there_are_many_zones() -> None:
    assert len(zone_names()) > 300


@pytest.mark.parametrize(
    ("exact", "cents"),
    [
        ("0", "0.00"),
        ("0.004999", "0.00"),
        ("0.005", "0.01"),
        ("0.015", "0.02"),
        ("1.0049999999", "1.00"),
        ("2.675", "2.68"),
        ("99999999999.995", "100000000000.00"),
    ],
)
def test_an_amount_is_rounded_half_up_to_the_cent(exact: str, cents: str) -> None:
    assert str(to_cents(Decimal(exact))) == cents


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        (["0.005"] * 1000, "5.00"),
        (["0.004"] * 1000, "4.00"),
        (["0.0000000001"], "0.00"),
        (["-0.005"], "-0.01"),
        (["0.01", "-0.014"], "0.00"),
        ([], "0.00"),
    ],
)
def test_a_total_is_rounded_once_from_the_exact_lines(lines: list[str], total: str) -> None:
    assert str(total_of(map(Decimal, lines))) == total


@pytest.mark.parametrize(
    ("amount", "text"),
    [("0.5000000000", "0.50"), ("1.0050", "1.005"), ("100", "100.00"), ("-2", "-2.00"), ("0", "0.00")],
)
def test_an_exact_amount_shows_its_digits_and_at_least_the_cents(amount: str, text: str) -> None:
    assert exact_text(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("amount", "digits", "text"),
    [
        ("1234567.5", 2, "1,234,567.50"),
        ("-1234.0000420000", 2, "-1,234.000042"),
        ("-0.5", 4, "-0.5000"),
        ("0", 10, "0.0000000000"),
    ],
)
def test_a_grouped_amount_has_commas_and_at_least_so_many_digits(amount: str, digits: int, text: str) -> None:
    assert grouped_text(Decimal(amount), digits) == text


@pytest.mark.parametrize(
    ("spent", "budget", "reached", "percent"),
    [
        ("0", "100", (), 0),
        ("49.9999", "100", (), 49),
        ("50", "100", (50,), 50),
        ("79.99", "100", (50,), 79),
        ("80", "100", (50, 80), 80),
        ("99.9999999999", "100", (50, 80), 99),
        ("100", "100", (50, 80, 100), 100),
        ("1000", "100", (50, 80, 100), 1000),
        ("0.01", "0.01", (50, 80, 100), 100),
    ],
)
def test_thresholds_are_reached_when_they_are(spent: str, budget: str, reached: tuple[int, ...], percent: int) -> None:
    assert thresholds_reached(Decimal(spent), Decimal(budget)) == reached
    assert percent_of(Decimal(spent), Decimal(budget)) == percent


def test_a_budget_of_nothing_has_no_thresholds() -> None:
    with pytest.raises(ValueError, match="above 0"):
        thresholds_reached(Decimal(1), Decimal(0))


def steady(start: str, end: str, per_hour: str) -> dict[datetime, Decimal]:
    hours, moment = {}, at(start)
    while moment < at(end):
        hours[moment] = Decimal(per_hour)
        moment += HOUR
    return hours


@pytest.mark.parametrize(
    ("since", "until", "amount", "words"),
    [
        ("2026-10-01T00:00", "2026-11-16T00:00", "720", "the average of the last 7 days for the remaining 15 days"),
        ("2026-11-14T00:00", "2026-11-16T00:00", "408", "the average of the last 2 days"),  # 48 + 360
        ("2026-10-01T00:00", "2026-12-01T00:00", "720", "The month is complete"),
        ("2026-10-01T00:00", "2027-01-05T00:00", "720", "The month is complete"),
        (
            "2026-11-15T12:00",
            "2026-11-16T00:00",
            "372",
            "A rough estimate. Cost so far, plus the average of the last 12 hours",
        ),
        ("2026-11-15T23:00", "2026-11-15T23:30", "722", "the average of the last 30 minutes"),
        ("2026-11-15T23:00", "2026-11-15T23:04", None, "Less than 5 minutes of usage"),
        ("2026-10-01T00:00", "2026-11-01T00:00", None, "No figures of this month yet"),
        ("2026-10-25T00:00", "2026-11-01T06:00", "720", "plus the average of the last 7"),
    ],
)
def test_a_steady_use_is_forecast_to_the_cent(since: str, until: str, amount: str | None, words: str) -> None:
    found = forecast(Month.parse("2026-11"), steady(since, until, "1"), at(since), at(until))
    assert (None if found.amount is None else to_cents(found.amount)) == (None if amount is None else Decimal(amount))
    assert words in found.method


def test_the_forecast_follows_the_last_seven_days_not_the_first() -> None:
    hours = steady("2026-11-01T00:00", "2026-11-09T00:00", "5") | steady("2026-11-09T00:00", "2026-11-16T00:00", "1")
    found = forecast(Month.parse("2026-11"), hours, at("2026-11-01T00:00"), at("2026-11-16T00:00"))
    assert found.amount == 8 * 24 * 5 + 7 * 24 + 15 * 24


def test_an_hour_without_a_row_cost_nothing_and_one_that_was_not_counted_is_not_guessed() -> None:
    hours = {at("2026-11-15T03:00"): Decimal(24)}
    found = forecast(Month.parse("2026-11"), hours, at("2026-11-15T00:00"), at("2026-11-16T00:00"))
    assert found.amount == 24 + 15 * 24


def test_nothing_is_forecast_of_what_was_never_counted() -> None:
    assert forecast(Month.parse("2026-11"), {}, None, None).amount is None


def test_no_name_in_a_focus_record_is_taken_for_a_formula_and_amounts_stay_numbers() -> None:
    row = FocusRow(
        day=at("2026-10-01T00:00"),
        cluster_id="c1",
        cluster_name="@orders",
        direction="in",
        topic="-topic",
        billed_units=Decimal(2),
        byte_hours=0,
        price_id="p",
        rate=Decimal("-0.5"),
        currency="EUR",
        amount=Decimal(-1),
        invoice="",
    )
    found = focus_record(Account("acme", '=HYPERLINK("x")'), Month(2026, 10), row)
    names = ("BillingAccountName", "SubAccountName", "ResourceName")
    assert [found[name] for name in names] == ['\'=HYPERLINK("x")', "'@orders", "'-topic"]
    assert (found["BilledCost"], found["ListUnitPrice"]) == ("-1", "-0.5")
