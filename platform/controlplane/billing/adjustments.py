"""Usage that was counted again after its month's invoice was issued: the difference goes on the tenant's next invoice.

An issued invoice never changes. What its month's usage sums to now, less all that was invoiced for it (its lines and earlier
adjustments), is an adjustment: a credit below 0, an additional charge above, with all of its digits. It is computed, as drafts
are, until the invoice that it stands on is issued; from then on it is part of what was invoiced. So however often usage is counted
and drafts are looked at, each difference is invoiced once, and all lines about a month's topic sum to its usage exactly.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.db.models import Max, Q, QuerySet

from controlplane.billing.lines import (
    LineKey,
    LineView,
    Quantities,
    cluster_names,
    counted_quantities,
    line_of,
    line_order,
    prices_of,
)
from controlplane.billing.models import ChangedMonth, Invoice, InvoiceLine, Usage
from controlplane.billing.periods import Month
from controlplane.tenants.models import Tenant

NOTHING = Quantities(0, 0, Decimal(0), Decimal(0))


@dataclass(slots=True)
class _Invoiced:
    """All that was invoiced for one key of one month."""

    quantities: Quantities = NOTHING

    def add(self, line: InvoiceLine) -> None:
        so_far = self.quantities
        self.quantities = Quantities(
            so_far.messages + int(line.messages),
            so_far.bytes + int(line.bytes),
            so_far.billed_units + line.billed_units,
            so_far.exact_amount + line.exact_amount,
        )


def adjustment_lines(tenant: Tenant, month: Month, now: datetime) -> dict[str, list[LineView]]:
    """Return what the tenant's invoice for `month` corrects of earlier ones, by currency; without positions."""
    found: dict[str, list[LineView]] = defaultdict(list)
    changed = dict(ChangedMonth.objects.filter(tenant=tenant).values_list("month", "changed_at"))
    for invoice in Invoice.objects.filter(tenant=tenant, month__in=changed).order_by("month", "number"):
        if adjusted_month(tenant, invoice.currency, min(now, changed[invoice.month])) == month:
            counted = counted_quantities(invoice.tenant, Month.of_date(invoice.month))
            lines = InvoiceLine.objects.filter(_about(invoice))
            found[invoice.currency] += month_differences(invoice, counted, lines)
    return {currency: lines for currency, lines in found.items() if lines}


def adjusted_month(tenant: Tenant, currency: str, changed_at: datetime) -> Month:
    """Return the month whose invoice takes what changed at that moment: the first after the last issued one that has usage.

    A tenant without any gets an invoice for the month of the change itself.
    """
    last = Invoice.objects.filter(tenant=tenant, currency=currency).aggregate(last=Max("month"))["last"]
    month = Month.of(changed_at)
    if last is None:
        return month
    after = Month.of_date(last).next
    first = (
        Usage.objects.filter(tenant=tenant, hour__gte=after.start, hour__lt=month.start, price__currency=currency)
        .order_by("hour")
        .values_list("hour", flat=True)
        .first()
    )
    return max(after, month if first is None else Month.of(first))


def tenants_with_changes() -> Iterable[object]:
    """Return the ids of tenants with a month that changed after its invoice was issued."""
    return ChangedMonth.objects.values_list("tenant_id", flat=True)


def month_differences(
    invoice: Invoice, counted: dict[LineKey, Quantities], lines_before: Iterable[InvoiceLine]
) -> list[LineView]:
    """Return what the invoice's month sums to, as counted, beyond the lines that were invoiced for it.

    Exact amounts are compared: where an old invoice rounded its lines, that rounding stays as it was issued.
    """
    invoiced: dict[LineKey, _Invoiced] = defaultdict(_Invoiced)
    # The names of clusters that are no more are on the lines only.
    names = {}
    for line in lines_before:
        key = LineKey(line.cluster_id, line.direction, line.topic, line.price_id)
        invoiced[key].add(line)
        names[line.cluster_id] = line.cluster_name
    prices = prices_of([*invoiced, *counted])
    names |= cluster_names(invoice.tenant)
    lines = []
    own = (key for key in {*invoiced, *counted} if prices[key.price_id].currency == invoice.currency)
    for key in sorted(own, key=lambda key: line_order(names, prices, key)):
        now, before = counted.get(key, NOTHING), invoiced[key]
        difference = _less(now, before.quantities)
        if difference.exact_amount:
            name = names.get(key.cluster_id, "")
            lines.append(line_of(key, difference, prices[key.price_id], name, corrects=invoice))
    return lines


def lines_before(invoice: Invoice, number: int) -> QuerySet[InvoiceLine]:
    """Return all lines about the invoice's month that stand on invoices with a lower number than this."""
    return InvoiceLine.objects.filter(_about(invoice), invoice__number__lt=number)


def lines_about(invoice: Invoice, key: LineKey) -> list[InvoiceLine]:
    """Return all issued lines about one key of the invoice's month: its own, then adjustments, oldest first."""
    lines = InvoiceLine.objects.filter(
        _about(invoice), cluster_id=key.cluster_id, direction=key.direction, topic=key.topic, price_id=key.price_id
    )
    return list(lines.select_related("invoice__tenant", "corrects").order_by("invoice__number", "position"))


def _about(invoice: Invoice) -> Q:
    return Q(invoice=invoice, corrects=None) | Q(corrects=invoice)


def _less(now: Quantities, before: Quantities) -> Quantities:
    return Quantities(
        now.messages - before.messages,
        now.bytes - before.bytes,
        now.billed_units - before.billed_units,
        now.exact_amount - before.exact_amount,
    )
