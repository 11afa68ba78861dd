"""Reads: usage of a month by day and by what it was for, and the rows behind. Every one starts from a tenant."""

import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.utils import timezone

from controlplane.billing.forecast import WINDOW, Forecast, forecast
from controlplane.billing.models import Direction, Plan, Price, Subscription, Usage
from controlplane.billing.money import ZERO
from controlplane.billing.periods import Day, Month, days_of, hour_of
from controlplane.clusters.models import Credential
from controlplane.common.errors import InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.common.zones import zone_of
from controlplane.insight.models import Job
from controlplane.insight.progress import tenant_read_until
from controlplane.insight.selectors import Counted, counted
from controlplane.tenants.models import Tenant
from mqwire.metering import OTHERS

BREAKDOWN_LIMIT_MAX = 1000


class By(StrEnum):
    """What usage is grouped by. Each way the groups add up to the month."""

    TOPIC = "topic"
    GROUP = "group"
    CREDENTIAL = "credential"


_COLUMNS = {By.TOPIC: "topic", By.GROUP: "consumer_group", By.CREDENTIAL: "credential"}


@dataclass(slots=True)
class Sums:
    """What was counted. `amounts`: currency -> exact amount; `unpriced` says that some of it has no price."""

    messages_in: int = 0
    bytes_in: int = 0
    billed_units_in: Decimal = ZERO
    messages_out: int = 0
    bytes_out: int = 0
    billed_units_out: Decimal = ZERO
    byte_hours: int = 0
    amounts: dict[str, Decimal] = field(default_factory=dict)
    unpriced: bool = False

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row of `_SUMS`."""
        match row["direction"]:
            case Direction.IN:
                self.messages_in += int(row["messages"])
                self.bytes_in += int(row["bytes"])
                self.billed_units_in += row["billed_units"]
            case Direction.OUT:
                self.messages_out += int(row["messages"])
                self.bytes_out += int(row["bytes"])
                self.billed_units_out += row["billed_units"]
            case _:
                self.byte_hours += int(row["bytes"])
        if row["price__currency"] is None:
            self.unpriced = True
        else:
            self.amounts[row["price__currency"]] = self.amounts.get(row["price__currency"], ZERO) + row["amount"]

    def amount(self, currency: str) -> Decimal:
        """Return the amount in one currency."""
        return self.amounts.get(currency, ZERO)


_SUMS = {
    "messages": Sum("messages"),
    "bytes": Sum("bytes"),
    "billed_units": Sum("billed_units"),
    "amount": Sum("amount"),
}


@dataclass(frozen=True, slots=True)
class DayUsage:
    """A day of the tenant's zone. `sums` is None when it was not counted (yet): unknown, not 0."""

    day: Day
    sums: Sums | None
    complete: bool


@dataclass(frozen=True, slots=True)
class MonthUsage:
    """A UTC month of a tenant. `total` is None when nothing of it was counted yet.

    `currency` is the one that its amounts are shown in; `forecasts` has one for each currency of the month.
    """

    month: Month
    zone: ZoneInfo
    counted: Counted
    days: list[DayUsage]
    total: Sums | None
    currency: str | None
    forecasts: dict[str, Forecast]

    @property
    def amount(self) -> Decimal | None:
        """What it cost so far, in `currency`; None when that is not known."""
        return None if self.total is None or self.currency is None else self.total.amount(self.currency)

    @property
    def forecast(self) -> Forecast:
        if self.currency is None:
            return Forecast(None, say("No plan is assigned, so there is nothing to pay."))
        return self.forecasts[self.currency]


def tenant_counted(tenant: Tenant) -> Counted:
    """Return how far the tenant's usage is counted: of each of its clusters, whatever was counted of others.

    Before it existed there was nothing to count.
    """
    found = counted(Job.USAGE_BILLING)
    if found.until is None:
        return found
    begin = hour_of(tenant.created_at)
    earliest = begin if found.since is None else max(found.since, begin)
    read_until = tenant_read_until(tenant)
    until = found.until if read_until is None else min(found.until, read_until)
    return Counted(earliest, until, found.finished_at, found.next_at)


def month_usage(tenant: Tenant, month: Month) -> MonthUsage:
    """Return the month by day, in the tenant's zone."""
    zone = zone_of(tenant.time_zone)
    known = tenant_counted(tenant)
    hours: dict[datetime, Sums] = defaultdict(Sums)
    # For the forecast, with the days before the month.
    rows = (
        Usage.objects.filter(tenant=tenant, hour__gte=month.start - WINDOW, hour__lt=month.end)
        .values("hour", "direction", "price__currency")
        .annotate(**_SUMS)
    )
    for row in rows:
        hours[row["hour"]].add(row)
    inside = {hour: sums for hour, sums in hours.items() if hour >= month.start}
    total = _merged(inside.values()) if inside or _covers(known, month.start, month.end) else None
    currency = _currency(tenant, month, total)
    currencies = sorted({*(total.amounts if total else ()), *([currency] if currency else ())})
    return MonthUsage(
        month=month,
        zone=zone,
        counted=known,
        days=[_day(day, inside, known) for day in days_of(month, zone)],
        total=total,
        currency=currency,
        forecasts={one: _forecast(month, hours, one, known) for one in currencies},
    )


def _forecast(month: Month, hours: Mapping[datetime, Sums], currency: str, known: Counted) -> Forecast:
    """From hours that are counted of every cluster: for the rest the mean stands."""
    amounts = {
        hour: sums.amount(currency) for hour, sums in hours.items() if known.until is not None and hour < known.until
    }
    return forecast(month, amounts, known.since, known.until)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the month: of a topic, a group or a credential in a cluster. An empty `name` is what none is known for, OTHERS what
    was delivered from many topics to many groups.
    """

    cluster_id: uuid.UUID
    cluster_name: str
    name: str
    title: str
    sums: Sums

    @property
    def is_of_many(self) -> bool:
        return self.name == OTHERS


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts with the highest amounts first; `others` is the sum of `left_out` more, None without any."""

    by: By
    parts: list[Part]
    others: Sums | None
    left_out: int


def month_breakdown(tenant: Tenant, month: Month, by: By, *, currency: str | None, limit: int = 100) -> Breakdown:
    """Return what the month was for; raises InvalidInput for a limit outside of 1 to 1000."""
    if not 1 <= limit <= BREAKDOWN_LIMIT_MAX:
        raise InvalidInput.for_field(
            "limit", say("Use a number from 1 to %(most)s.", most=BREAKDOWN_LIMIT_MAX), "out_of_range"
        )
    column = _COLUMNS[by]
    rows = (
        Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end)
        .values("cluster_id", "cluster__name", column, "direction", "price__currency")
        .annotate(**_SUMS)
    )
    found: dict[tuple[uuid.UUID, str, str], Sums] = defaultdict(Sums)
    for row in rows:
        found[row["cluster_id"], row["cluster__name"] or "", row[column]].add(row)
    names = _credential_names(tenant) if by == By.CREDENTIAL else {}
    parts = [
        Part(cluster_id, cluster_name, name, names.get(name, name), sums)
        for (cluster_id, cluster_name, name), sums in found.items()
    ]
    parts.sort(
        key=lambda part: (-part.sums.amount(currency or ""), -part.sums.messages_in, part.cluster_name, part.name)
    )
    rest = parts[limit:]
    return Breakdown(by, parts[:limit], _merged(part.sums for part in rest) if rest else None, len(rest))


def daily_parts(tenant: Tenant, usage: MonthUsage, by: By, most: int = 4) -> list[tuple[str, dict[datetime, int]]]:
    """Return the topics, groups or credentials with the most messages: (name, messages sent and delivered by begin of the day)."""
    column = _COLUMNS[by]
    rows = (
        Usage.objects.filter(tenant=tenant, hour__gte=usage.month.start, hour__lt=usage.month.end)
        .exclude(**{column: ""})
        .exclude(direction=Direction.STORAGE)
        .values(column, "hour")
        .annotate(sum_messages=Sum("messages"))
    )
    sums = rows.order_by().values(column).annotate(total=Sum("messages")).order_by("-total", column)
    # Hours of these alone: a tenant with many topics has many more rows than a chart has curves.
    rows = rows.filter(**{f"{column}__in": list(sums.values_list(column, flat=True)[:most])})
    begins = [day.day.start for day in usage.days]
    found: dict[str, dict[datetime, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        begin = begins[bisect_right(begins, row["hour"]) - 1]
        found[row[column]][begin] += int(row["sum_messages"])
    names = _credential_names(tenant) if by == By.CREDENTIAL else {}
    top = sorted(found.items(), key=lambda part: (-sum(part[1].values()), part[0]))[:most]
    return [(names.get(name, name), dict(counts)) for name, counts in top]


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Which rows; None does not restrict, the empty string asks for rows without."""

    cluster_id: uuid.UUID | None = None
    direction: str | None = None
    topic: str | None = None
    consumer_group: str | None = None
    credential: str | None = None
    kind: str | None = None
    price_id: uuid.UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    def query(self) -> Q:
        """Return the condition."""
        query = Q()
        for name in ("cluster_id", "direction", "topic", "consumer_group", "credential", "kind", "price_id"):
            value = getattr(self, name)
            if value is not None:
                query &= Q(**{name: value})
        if self.since is not None:
            query &= Q(hour__gte=self.since)
        if self.until is not None:
            query &= Q(hour__lt=self.until)
        return query


def usage_rows(tenant: Tenant, month: Month, wanted: UsageFilter) -> QuerySet[Usage]:
    """Return the rows of the month, by hour."""
    rows = Usage.objects.filter(wanted.query(), tenant=tenant, hour__gte=month.start, hour__lt=month.end)
    return rows.select_related("cluster", "price__plan").order_by("hour", "id")


def usage_sum(rows: QuerySet[Usage]) -> dict[str, Any]:
    """Return count, exact amount, and when the rows were last written."""
    return rows.order_by().aggregate(count=Count("id"), amount=Sum("amount"), updated_at=Max("updated_at"))


def plan_get(slug: str) -> Plan:
    """Return one plan; raises NotFound."""
    plan = Plan.objects.filter(slug=slug).first()
    if plan is None:
        raise NotFound(say("There is no such plan."))
    return plan


def price_get(plan: Plan, price_id: uuid.UUID) -> Price:
    """Return one version of the plan's prices; raises NotFound."""
    price = Price.objects.filter(plan=plan, pk=price_id).select_related("plan").first()
    if price is None:
        raise NotFound(say("There is no such version."))
    return price


def price_at(plan: Plan, moment: datetime) -> Price | None:
    """Return the version that is valid at the moment; None when none is."""
    return (
        Price.objects.filter(plan=plan, valid_from__lte=moment)
        .filter(Q(valid_to=None) | Q(valid_to__gt=moment))
        .first()
    )


def subscription_at(tenant: Tenant, moment: datetime) -> Subscription | None:
    """Return the tenant's subscription at the moment; None when it has none."""
    return (
        Subscription.objects.filter(tenant=tenant, valid_from__lte=moment)
        .filter(Q(valid_to=None) | Q(valid_to__gt=moment))
        .select_related("plan")
        .first()
    )


def _merged(many: Iterable[Sums]) -> Sums:
    total = Sums()
    for one in many:
        total.messages_in += one.messages_in
        total.bytes_in += one.bytes_in
        total.billed_units_in += one.billed_units_in
        total.messages_out += one.messages_out
        total.bytes_out += one.bytes_out
        total.billed_units_out += one.billed_units_out
        total.byte_hours += one.byte_hours
        total.unpriced = total.unpriced or one.unpriced
        for currency, amount in one.amounts.items():
            total.amounts[currency] = total.amounts.get(currency, ZERO) + amount
    return total


def _day(day: Day, hours: dict[datetime, Sums], known: Counted) -> DayUsage:
    own = [sums for hour, sums in hours.items() if day.start <= hour < day.end]
    sums = _merged(own) if own or _covers(known, day.start, day.end) else None
    complete = known.until is not None and known.until >= day.end
    return DayUsage(day, sums, complete and sums is not None)


def _covers(known: Counted, start: datetime, end: datetime) -> bool:
    """Whether any of [start, end) was counted."""
    return known.since is not None and known.until is not None and known.since < end and known.until > start


def _currency(tenant: Tenant, month: Month, total: Sums | None) -> str | None:
    """The currency of the plan at the month's end (or now), else the only one that was charged."""
    moment = min(timezone.now(), month.end)
    subscription = subscription_at(tenant, moment) or (
        Subscription.objects.filter(tenant=tenant, valid_from__lt=month.end).order_by("-valid_from").first()
    )
    amounts = total.amounts if total else {}
    if subscription is not None and (subscription.plan.currency in amounts or not amounts):
        return subscription.plan.currency
    return max(amounts, key=lambda one: amounts[one], default=None)


def _credential_names(tenant: Tenant) -> dict[str, str]:
    rows = Credential.objects.filter(cluster__tenant=tenant, is_control=False)
    return {access_key: f"{name} ({access_key})" for access_key, name in rows.values_list("access_key", "name")}
