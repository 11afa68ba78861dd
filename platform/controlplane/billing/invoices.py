"""Invoices: a draft is computed for as long as its month can change, then it is issued: numbered without gaps, and frozen.

A line stands for what one price made of one topic of one cluster in one direction. It is the exact sum of its usage rows,
rounded half up to the cent; the total is the sum of the lines.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.conf import settings
from django.db import transaction
from django.db.models import Max, QuerySet, Sum
from django.utils import timezone

from controlplane.billing.models import Direction, Invoice, InvoiceLine, InvoiceSeries, InvoiceState, Price, Usage
from controlplane.billing.money import to_cents, total_of
from controlplane.billing.periods import Month
from controlplane.billing.selectors import UsageFilter, usage_rows, usage_sum
from controlplane.clusters.models import Cluster
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import NotFound
from controlplane.common.logging import get_logger
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.insight.selectors import counted
from controlplane.tenants.models import Tenant

_log = get_logger("controlplane.billing")

_ORDER = {Direction.IN: 0, Direction.OUT: 1, Direction.STORAGE: 2}


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of a draft or of an issued invoice."""

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
        """Which usage rows it stands for, within the invoice's month."""
        return UsageFilter(
            cluster_id=self.cluster_id, direction=self.direction, topic=self.topic, price_id=self.price.pk
        )


@dataclass(frozen=True, slots=True)
class InvoiceView:
    """An invoice as it is shown. `number` is None for a draft; `unpriced_rows` counts usage that has no price."""

    tenant: Tenant
    tenant_name: str
    month: Month
    currency: str
    number: str | None
    lines: list[LineView]
    total: Decimal
    issued_at: datetime | None
    counted_until: datetime | None
    unpriced_rows: int = 0

    @property
    def state(self) -> str:
        return InvoiceState.DRAFT if self.number is None else InvoiceState.ISSUED

    @property
    def name(self) -> str:
        """How addresses call it: its number, or `draft-2026-11-eur`."""
        return self.number or f"draft-{self.month}-{self.currency.lower()}"

    @property
    def path(self) -> str:
        """The invoice's API path."""
        return f"{self.tenant.path}invoices/{self.name}/"

    @property
    def due_at(self) -> datetime:
        """When a draft is issued at the earliest."""
        return issue_time(self.month)

    def line(self, position: int) -> LineView:
        """Return one line; raises NotFound."""
        for line in self.lines:
            if line.position == position:
                return line
        raise NotFound("There is no such line.")


@dataclass(frozen=True, slots=True)
class LineUsage:
    """The usage rows behind a line. `difference` is what they sum to beyond what was invoiced; 0 unless they were counted
    again after the invoice was issued.
    """

    line: LineView
    rows: QuerySet[Usage]
    count: int
    sum: Decimal
    difference: Decimal


def issue_time(month: Month) -> datetime:
    """Return when the month can no longer change: late records are taken for HIGHWATER_LATE_WINDOW_HOURS."""
    return month.end + timedelta(hours=settings.HIGHWATER_LATE_WINDOW_HOURS)


def invoice_list(tenant: Tenant) -> QuerySet[Invoice]:
    """Return the tenant's issued invoices, newest first."""
    return Invoice.objects.filter(tenant=tenant).select_related("tenant").order_by("-month", "-number")


def invoice_get(tenant: Tenant, name: str) -> InvoiceView:
    """Return an invoice by its number, or a draft by its name; raises NotFound."""
    nothing = NotFound("There is no such invoice.")
    if name.startswith("draft-"):
        found = [draft for draft in invoice_drafts(tenant) if draft.name == name]
        if not found:
            raise nothing
        return found[0]
    digits = name.removeprefix("HW-")
    if not (name.startswith("HW-") and digits.isascii() and digits.isdigit() and len(digits) == 7):
        raise nothing
    invoice = invoice_list(tenant).filter(number=int(digits)).first()
    if invoice is None:
        raise nothing
    return _issued_view(invoice)


def invoice_drafts(tenant: Tenant, now: datetime | None = None) -> list[InvoiceView]:
    """Return the drafts: of the present month, and of the last ones that are not issued yet, newest first."""
    month = Month.of(now or timezone.now())
    drafts: list[InvoiceView] = []
    # A month waits two days for late records, then for the jobs to run; three back is long ago.
    for _ in range(4):
        drafts += [draft for draft in _drafts(tenant, month) if not _is_issued(tenant, month, draft.currency)]
        month = month.previous
    return drafts


def line_usage(invoice: InvoiceView, position: int) -> LineUsage:
    """Return the rows behind a line; raises NotFound."""
    line = invoice.line(position)
    rows = usage_rows(invoice.tenant, invoice.month, line.usage_filter)
    summed = usage_sum(rows)
    amount = summed["amount"] or Decimal(0)
    return LineUsage(line, rows, summed["count"], amount, amount - line.exact_amount)


def invoices_issue(now: datetime | None = None) -> list[Invoice]:
    """Issue what is due; returns the new invoices. Running it twice, or twice at once, issues each once."""
    moment = now or timezone.now()
    issued = []
    for month in _closed_months(moment):
        tenants = Usage.objects.filter(hour__gte=month.start, hour__lt=month.end).values_list("tenant_id", flat=True)
        for tenant in Tenant.objects.filter(pk__in=tenants.distinct()).order_by("created_at"):
            for draft in _drafts(tenant, month):
                invoice = _issue(draft, moment)
                if invoice is not None:
                    issued.append(invoice)
    return issued


def _closed_months(now: datetime) -> list[Month]:
    """Months whose usage is final, oldest first: the late window has passed, and usage was counted once more after it."""
    first = Usage.objects.order_by("hour").values_list("hour", flat=True).first()
    if first is None:
        return []
    runs = JobRun.objects.filter(job=Job.USAGE_BILLING, state=JobRunState.COMPLETED, is_backfill=False)
    last_begin = runs.order_by("-started_at").values_list("started_at", flat=True).first()
    until = counted(Job.USAGE_BILLING).until
    months = []
    month = Month.of(first)
    while issue_time(month) <= now:
        if last_begin is not None and last_begin >= issue_time(month) and until is not None and until >= month.end:
            months.append(month)
        month = month.next
    return months


def _issue(draft: InvoiceView, now: datetime) -> Invoice | None:
    """Number and store a draft; None when that was done before."""
    with transaction.atomic():
        # Whoever holds this row issues; the others wait. A number that is taken is used, or nobody saw it.
        last = Invoice.objects.aggregate(last=Max("number"))["last"] or 0
        InvoiceSeries.objects.get_or_create(pk=1, defaults={"next_number": last + 1})
        series = InvoiceSeries.objects.select_for_update().get(pk=1)
        if _is_issued(draft.tenant, draft.month, draft.currency):
            return None
        invoice = Invoice.objects.create(
            tenant=draft.tenant,
            number=series.next_number,
            month=draft.month.first_day,
            currency=draft.currency,
            total=draft.total,
            tenant_name=draft.tenant_name,
            issued_at=now,
            counted_until=draft.counted_until or draft.month.end,
        )
        InvoiceLine.objects.bulk_create(
            InvoiceLine(
                invoice=invoice,
                position=line.position,
                cluster_id=line.cluster_id,
                cluster_name=line.cluster_name,
                direction=line.direction,
                topic=line.topic,
                price=line.price,
                messages=line.messages,
                bytes=line.bytes,
                billed_units=line.billed_units,
                exact_amount=line.exact_amount,
                amount=line.amount,
            )
            for line in draft.lines
        )
        InvoiceSeries.objects.filter(pk=1).update(next_number=series.next_number + 1)
        audit_event_record(
            actor="billing",
            action="invoice.issue",
            resource=invoice.path,
            tenant_id=draft.tenant.pk,
            details={"total": str(draft.total), "currency": draft.currency},
        )
    _log.info("invoice issued", number=invoice.number_text, tenant=draft.tenant.slug)
    return invoice


def _is_issued(tenant: Tenant, month: Month, currency: str) -> bool:
    return Invoice.objects.filter(tenant=tenant, month=month.first_day, currency=currency).exists()


def _drafts(tenant: Tenant, month: Month) -> list[InvoiceView]:
    """The month's invoices as its usage makes them now, one for each currency."""
    usage = Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end)
    groups = list(
        usage.exclude(price=None)
        .values("cluster_id", "direction", "topic", "price_id")
        .annotate(
            messages=Sum("messages"), bytes=Sum("bytes"), billed_units=Sum("billed_units"), exact_amount=Sum("amount")
        )
    )
    if not groups:
        return []
    unpriced = usage.filter(price=None).count()
    names = dict(Cluster.objects.filter(tenant=tenant).values_list("pk", "name"))
    prices = {
        price.pk: price
        for price in Price.objects.filter(pk__in={group["price_id"] for group in groups}).select_related("plan")
    }
    groups.sort(
        key=lambda group: (
            names.get(group["cluster_id"], ""),
            str(group["cluster_id"]),
            _ORDER[Direction(group["direction"])],
            group["topic"],
            prices[group["price_id"]].valid_from,
        )
    )
    until = counted(Job.USAGE_BILLING).until
    drafts = []
    for currency in sorted({price.currency for price in prices.values()}):
        own = [group for group in groups if prices[group["price_id"]].currency == currency]
        lines = [
            LineView(
                position=position,
                cluster_id=group["cluster_id"],
                cluster_name=names.get(group["cluster_id"], ""),
                direction=group["direction"],
                topic=group["topic"],
                price=prices[group["price_id"]],
                messages=int(group["messages"]),
                bytes=int(group["bytes"]),
                billed_units=group["billed_units"],
                exact_amount=group["exact_amount"],
                amount=to_cents(group["exact_amount"]),
            )
            for position, group in enumerate(own, start=1)
        ]
        drafts.append(
            InvoiceView(
                tenant=tenant,
                tenant_name=tenant.name,
                month=month,
                currency=currency,
                number=None,
                lines=lines,
                total=total_of(line.amount for line in lines),
                issued_at=None,
                counted_until=until,
                unpriced_rows=unpriced,
            )
        )
    return drafts


def _issued_view(invoice: Invoice) -> InvoiceView:
    lines = invoice.lines.select_related("price__plan").order_by("position")
    return InvoiceView(
        tenant=invoice.tenant,
        tenant_name=invoice.tenant_name,
        month=Month.of_date(invoice.month),
        currency=invoice.currency,
        number=invoice.number_text,
        lines=[
            LineView(
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
            )
            for line in lines
        ],
        total=invoice.total,
        issued_at=invoice.issued_at,
        counted_until=invoice.counted_until,
    )
