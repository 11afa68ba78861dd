"""Lines of invoices, and how usage makes them.

A line stands for what one price made of one topic of one cluster in one direction: the exact sum of its usage rows. Only the
invoice's total is rounded.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Sum

from controlplane.billing.models import Direction, Invoice, InvoiceLine, Price, Usage
from controlplane.billing.periods import Month
from controlplane.billing.selectors import UsageFilter
from controlplane.clusters.models import Cluster
from controlplane.tenants.models import Tenant

_ORDER = {Direction.IN: 0, Direction.OUT: 1, Direction.STORAGE: 2}


class LineKey(NamedTuple):
    """What a line stands for, within a month."""

    cluster_id: uuid.UUID
    direction: str
    topic: str
    price_id: uuid.UUID


@dataclass(frozen=True, slots=True)
class Quantities:
    """What usage rows sum to; of an adjustment, by how much more (less: below 0) than was invoiced."""

    messages: int
    bytes: int
    billed_units: Decimal
    exact_amount: Decimal


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of a draft or of an issued invoice. `corrects` is the invoice that an adjustment corrects.

    `amount` is what it adds to the total: `exact_amount`, but on invoices that were rounded line by line.
    """

    position: int
    cluster_id: uuid.UUID
    cluster_name: str
    direction: str
    topic: str
    price: Price
    messages: int
    bytes: int
    billed_units: Decimal
    exact_amount: Decimal
    amount: Decimal
    corrects: Invoice | None = None

    @property
    def key(self) -> LineKey:
        return LineKey(self.cluster_id, self.direction, self.topic, self.price.pk)

    @property
    def corrected_month(self) -> Month | None:
        """The month whose usage an adjustment is about."""
        return None if self.corrects is None else Month.of_date(self.corrects.month)

    @property
    def rate(self) -> Decimal:
        """What the price charges for this direction: a million units, or a GiB-month."""
        match self.direction:
            case Direction.IN:
                return self.price.per_million_units
            case Direction.OUT:
                return self.price.per_million_units_out
            case _:
                return self.price.per_gib_month_stored

    @property
    def usage_filter(self) -> UsageFilter:
        """Which usage rows it stands for, within the month."""
        return UsageFilter(
            cluster_id=self.cluster_id, direction=self.direction, topic=self.topic, price_id=self.price.pk
        )


def counted_quantities(tenant: Tenant, month: Month) -> dict[LineKey, Quantities]:
    """Return what the month's priced usage sums to now."""
    rows = (
        Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end)
        .exclude(price=None)
        .values("cluster_id", "direction", "topic", "price_id")
        .annotate(
            sum_messages=Sum("messages"), sum_bytes=Sum("bytes"), sum_units=Sum("billed_units"), exact=Sum("amount")
        )
    )
    return {
        LineKey(row["cluster_id"], row["direction"], row["topic"], row["price_id"]): Quantities(
            int(row["sum_messages"]), int(row["sum_bytes"]), row["sum_units"], row["exact"]
        )
        for row in rows
    }


def prices_of(keys: Iterable[LineKey]) -> dict[uuid.UUID, Price]:
    """Return the prices that these keys name."""
    wanted = {key.price_id for key in keys}
    return {price.pk: price for price in Price.objects.filter(pk__in=wanted).select_related("plan")}


def line_order(names: dict[uuid.UUID, str], prices: dict[uuid.UUID, Price], key: LineKey) -> tuple[Any, ...]:
    """How lines of a month are sorted: by cluster, direction, topic and the price's begin."""
    name = names.get(key.cluster_id, "")
    return (name, str(key.cluster_id), _ORDER[Direction(key.direction)], key.topic, prices[key.price_id].valid_from)


def cluster_names(tenant: Tenant) -> dict[uuid.UUID, str]:
    """Return the names of the tenant's clusters."""
    return dict(Cluster.objects.filter(tenant=tenant).values_list("pk", "name"))


def line_of(
    key: LineKey,
    quantities: Quantities,
    price: Price,
    cluster_name: str,
    *,
    corrects: Invoice | None = None,
) -> LineView:
    """Return a line that has no position yet."""
    return LineView(
        position=0,
        cluster_id=key.cluster_id,
        cluster_name=cluster_name,
        direction=key.direction,
        topic=key.topic,
        price=price,
        messages=quantities.messages,
        bytes=quantities.bytes,
        billed_units=quantities.billed_units,
        exact_amount=quantities.exact_amount,
        amount=quantities.exact_amount,
        corrects=corrects,
    )


def stored_line(line: InvoiceLine) -> LineView:
    """Return a line of an issued invoice."""
    return LineView(
        position=line.position,
        cluster_id=line.cluster_id,
        cluster_name=line.cluster_name,
        direction=line.direction,
        topic=line.topic,
        price=line.price,
        messages=int(line.messages),
        bytes=int(line.bytes),
        billed_units=line.billed_units,
        exact_amount=line.exact_amount,
        amount=line.amount,
        corrects=line.corrects,
    )
