"""What the pages of usage are made of: charts of a month, and how old its numbers are."""

from decimal import Decimal

from django.utils.translation import get_language, gettext

from controlplane.billing.selectors import By, DayUsage, MonthUsage, daily_parts
from controlplane.console.charts import Chart, Curve
from controlplane.console.templatetags.amounts import money_words
from controlplane.console.templatetags.console import zone_mark
from controlplane.tenants.models import Tenant
from mqwire.metering import OTHERS


def day_words(day: DayUsage, usage: MonthUsage) -> str:
    """Return a day as a label: with its hours where it is cut by the UTC month's end."""
    date = day.day.date
    words = f"{date}" if get_language() == "zh-hans" else f"{date.day} {date:%b %Y}"
    if day.day.whole:
        return words
    start, end = day.day.start.astimezone(usage.zone), day.day.end.astimezone(usage.zone)
    return gettext("%(day)s, %(start)s to %(end)s %(zone)s") % {
        "day": words,
        "start": f"{start:%H:%M}",
        "end": f"{end:%H:%M}",
        "zone": zone_mark(start),
    }


def usage_charts(usage: MonthUsage) -> list[Chart]:
    """Return cost by day and messages by day. A day that was not counted is unknown, not 0."""
    labels = [day_words(day, usage) for day in usage.days]
    ticks = [str(day.day.date.day) for day in usage.days]
    x = [day.day.start for day in usage.days]
    charts = []
    currency = usage.currency
    if currency is not None:
        amounts = [None if day.sums is None else day.sums.amount(currency) for day in usage.days]
        cost = Curve.of(
            gettext("Cost in %(currency)s") % {"currency": currency},
            amounts,
            lambda value: money_words(Decimal(value), currency),
        )
        title = gettext("Cost by day in %(currency)s") % {"currency": currency}
        charts.append(Chart("cost", title, "bars", gettext("Day"), labels, ticks, x, usage.zone, [cost]))
    counts = [
        (
            "sent",
            gettext("Messages sent by day"),
            Curve.of(
                gettext("Sent"), [None if day.sums is None else day.sums.messages_in for day in usage.days], _count
            ),
        ),
        (
            "delivered",
            gettext("Messages delivered by day"),
            Curve.of(
                gettext("Delivered"),
                [None if day.sums is None else day.sums.messages_out for day in usage.days],
                _count,
            ),
        ),
    ]
    charts += [
        Chart(chart_id, title, "bars", gettext("Day"), labels, ticks, x, usage.zone, [curve])
        for chart_id, title, curve in counts
    ]
    return charts


def part_charts(tenant: Tenant, usage: MonthUsage) -> list[Chart]:
    """Return messages by day of the topics, and of the credentials, that had the most; a day that was not counted is unknown."""
    charts = []
    titles = {
        By.TOPIC: gettext("Messages by day and topic"),
        By.CREDENTIAL: gettext("Messages by day and credential"),
    }
    for by, title in titles.items():
        parts = daily_parts(tenant, usage, by)
        if not parts:
            continue
        x = [day.day.start for day in usage.days]
        curves = [
            Curve.of(
                gettext("many topics, counted together") if name == OTHERS else name,
                [None if day.sums is None else counts.get(day.day.start, 0) for day in usage.days],
                _count,
            )
            for name, counts in parts
        ]
        labels = [day_words(day, usage) for day in usage.days]
        ticks = [str(day.day.date.day) for day in usage.days]
        charts.append(
            Chart(
                f"by-{by.value}-by-day",
                title,
                "lines",
                gettext("Day"),
                labels,
                ticks,
                x,
                usage.zone,
                curves,
                names_curves=True,
            )
        )
    return charts


def _count(value: Decimal | float) -> str:
    return f"{int(value):,}".replace(",", "\u202f")
