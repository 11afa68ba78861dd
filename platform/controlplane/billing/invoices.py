"""Invoices: a draft is computed for as long as its month can change, then it is issued: numbered without gaps, and frozen.

Its lines are those of the month's usage (lines.py), and what it corrects of earlier invoices (adjustments.py), each with all of its
digits; the total is their sum, rounded once. When it is issued says closing.py.
"""

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from django.db import connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from controlplane.billing.adjustments import adjustment_lines, lines_about, tenants_with_changes
from controlplane.billing.closing import Metered, Wait, issue_time, metered_clusters, month_waits
from controlplane.billing.lines import (
    LineView,
    cluster_names,
    counted_quantities,
    line_of,
    line_order,
    prices_of,
    stored_line,
)
from controlplane.billing.models import (
    ChangedMonth,
    Invoice,
    InvoiceLine,
    InvoiceSeries,
    InvoiceState,
    Rounding,
    Usage,
)
from controlplane.billing.money import total_of
from controlplane.billing.periods import Month
from controlplane.billing.selectors import usage_rows, usage_sum
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import NotFound
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.insight.selectors import counted
from controlplane.tenants.models import Tenant

_log = get_logger("controlplane.billing")

# Usage is not written while an invoice is; so long it waits for those who are writing.
_LOCK_TIMEOUT = "30s"
# A month that waits stays a draft; so far back it is looked for.
_DRAFT_MONTHS = 13
_WAITING_MAX = 200


@dataclass(frozen=True, slots=True)
class InvoiceView:
    """An invoice as it is shown. `number` is None for a draft; `unpriced_rows` counts usage that has no price.

    `waits` says what a draft waits for; `agreed_ends` names clusters that are billed to an end that an operator stated.
    """

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
    issued: Invoice | None = None
    rounding: str = Rounding.INVOICE
    snapshot_id: str = ""
    agreed_ends: list[dict[str, str]] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    @property
    def exact_total(self) -> Decimal:
        """The sum of the lines, before it is rounded."""
        return sum((line.amount for line in self.lines), start=Decimal(0))

    @property
    def rounding_rule(self) -> str:
        """How amounts became cents, as the invoice says it."""
        if self.rounding == Rounding.LINE:
            return say(
                "Each line is the exact sum of its usage rows, rounded half up to the cent; the total is the sum of the lines."
            )
        return say(
            "Each line is the exact sum of its usage rows. The total is the sum of the lines, rounded once to the cent: "
            "half a cent and more, up."
        )

    @property
    def usage_lines(self) -> list[LineView]:
        """The lines of the month's own usage."""
        return [line for line in self.lines if line.corrects is None]

    @property
    def adjustments(self) -> list[LineView]:
        """The lines that correct earlier invoices."""
        return [line for line in self.lines if line.corrects is not None]

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
        raise NotFound(say("There is no such line."))


@dataclass(frozen=True, slots=True)
class Place:
    """A line and the invoice or draft that it stands on."""

    invoice: str
    path: str
    state: str
    month: Month
    line: LineView


@dataclass(frozen=True, slots=True)
class LineUsage:
    """The usage rows behind a line. `places` are all lines about the same topic of the same month, the first one first:
    together they are what was, or with the draft will be, invoiced for these rows. `difference` is what the rows sum to
    beyond that: what the next invoice takes.
    """

    line: LineView
    month: Month
    rows: QuerySet[Usage]
    count: int
    sum: Decimal
    places: list[Place]
    difference: Decimal


def invoice_list(tenant: Tenant) -> QuerySet[Invoice]:
    """Return the tenant's issued invoices, newest first."""
    return Invoice.objects.filter(tenant=tenant).select_related("tenant").order_by("-month", "-number")


def invoice_get(tenant: Tenant, name: str) -> InvoiceView:
    """Return an invoice by its number, or a draft by its name; raises NotFound."""
    nothing = NotFound(say("There is no such invoice."))
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
    """Return the drafts: of the present month, and of those before that are not issued yet, newest first."""
    moment = now or timezone.now()
    month = first = Month.of(moment)
    oldest = Usage.objects.filter(tenant=tenant).order_by("hour").values_list("hour", flat=True).first()
    drafts: list[InvoiceView] = []
    for _ in range(_DRAFT_MONTHS):
        drafts += [
            replace(draft, waits=month_waits(tenant, month, moment))
            for draft in _drafts(tenant, month, moment)
            if not _is_issued(tenant, month, draft.currency)
        ]
        if month < first.previous and (oldest is None or month.start <= oldest):
            break
        month = month.previous
    return drafts


def line_usage(invoice: InvoiceView, position: int) -> LineUsage:
    """Return the rows behind a line; raises NotFound."""
    line = invoice.line(position)
    month = line.corrected_month or invoice.month
    rows = usage_rows(invoice.tenant, month, line.usage_filter)
    summed = usage_sum(rows)
    amount = summed["amount"] or Decimal(0)
    places = _places(invoice, line)
    return LineUsage(
        line, month, rows, summed["count"], amount, places, amount - sum(place.line.exact_amount for place in places)
    )


def corrections(invoice: InvoiceView) -> list[Place]:
    """Return the adjustments of an issued invoice: those on later invoices, then those on the draft."""
    if invoice.issued is None:
        return []
    lines = InvoiceLine.objects.filter(corrects=invoice.issued).order_by("invoice__number", "position")
    stored = [_place(line) for line in lines.select_related("invoice__tenant", "corrects", "price__plan")]
    return stored + _drafted(invoice.tenant, invoice.issued)


def _places(invoice: InvoiceView, line: LineView) -> list[Place]:
    origin = line.corrects or invoice.issued
    if origin is None:
        return [Place(invoice.name, invoice.path, invoice.state, invoice.month, line)]
    drafted = [place for place in _drafted(invoice.tenant, origin) if place.line.key == line.key]
    return [_place(one) for one in lines_about(origin, line.key)] + drafted


def _place(line: InvoiceLine) -> Place:
    own = line.invoice
    return Place(own.number_text, own.path, InvoiceState.ISSUED, Month.of_date(own.month), stored_line(line))


def _drafted(tenant: Tenant, corrected: Invoice) -> list[Place]:
    """The adjustments of an invoice that stand on a draft."""
    if not ChangedMonth.objects.filter(tenant=tenant, month=corrected.month).exists():
        return []
    return [
        Place(draft.name, draft.path, draft.state, draft.month, line)
        for draft in invoice_drafts(tenant)
        for line in draft.adjustments
        if line.corrects is not None and line.corrects.pk == corrected.pk
    ]


def invoices_issue(now: datetime | None = None) -> list[Invoice]:
    """Issue what is due and waits for nothing; returns the new invoices. Running it twice, or twice at once, issues each once.

    A tenant's months are issued in their order: one that waits holds back the next, not other tenants'.
    """
    moment = now or timezone.now()
    issued = []
    waiting: set[uuid.UUID] = set()
    for month in _due_months(moment):
        tenants = Usage.objects.filter(hour__gte=month.start, hour__lt=month.end).values_list("tenant_id", flat=True)
        concerned = Q(pk__in=tenants.distinct()) | Q(pk__in=tenants_with_changes())
        for tenant in Tenant.objects.filter(concerned).exclude(pk__in=waiting).order_by("created_at"):
            drafts = [one for one in _drafts(tenant, month, moment) if not _is_issued(tenant, month, one.currency)]
            if drafts and month_waits(tenant, month, moment):
                waiting.add(tenant.pk)
                continue
            for draft in drafts:
                invoice = _issue(tenant, month, draft.currency, moment)
                if invoice is not None:
                    issued.append(invoice)
    return issued


@dataclass(frozen=True, slots=True)
class WaitingInvoice:
    """A tenant's month that is past its issue time and waits, as operators see it."""

    tenant: Tenant
    month: Month
    waits: list[Wait]


def invoices_waiting(now: datetime | None = None) -> list[WaitingInvoice]:
    """Return which invoices are due and wait, oldest first; at most 200. For operators: ask `operator_require` first."""
    moment = now or timezone.now()
    found: list[WaitingInvoice] = []
    for month in _due_months(moment):
        tenants = Usage.objects.filter(hour__gte=month.start, hour__lt=month.end).values_list("tenant_id", flat=True)
        done = Invoice.objects.filter(month=month.first_day).values_list("tenant_id", flat=True)
        for tenant in Tenant.objects.filter(pk__in=tenants.distinct()).exclude(pk__in=done).order_by("slug"):
            if len(found) >= _WAITING_MAX:
                return found
            waits = month_waits(tenant, month, moment)
            if waits and _drafts(tenant, month, moment):
                found.append(WaitingInvoice(tenant, month, waits))
    return found


def _due_months(now: datetime) -> list[Month]:
    """Months whose late window has passed, since the first that has usage, oldest first."""
    first = Usage.objects.order_by("hour").values_list("hour", flat=True).first()
    if first is None:
        return []
    months = []
    month = Month.of(first)
    while issue_time(month) <= now:
        months.append(month)
        month = month.next
    return months


def _issue(tenant: Tenant, month: Month, currency: str, now: datetime) -> Invoice | None:
    """Number and store a draft as it is now; None when that was done before."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(f"set local lock_timeout = '{_LOCK_TIMEOUT}'")
        # The holder of this row issues; the others wait. A number that is taken is used, or no one saw it.
        last = Invoice.objects.aggregate(last=Max("number"))["last"] or 0
        InvoiceSeries.objects.get_or_create(pk=1, defaults={"next_number": last + 1})
        series = InvoiceSeries.objects.select_for_update().get(pk=1)
        if _is_issued(tenant, month, currency):
            return None
        # What a job writes from here on finds the invoice, and is noted as a change of its month.
        with connection.cursor() as cursor:
            cursor.execute("lock table billing_usage in share mode")
        draft = next((one for one in _drafts(tenant, month, now) if one.currency == currency), None)
        if draft is None:
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
            snapshot_id=draft.snapshot_id,
            agreed_ends=draft.agreed_ends,
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
                corrects=line.corrects,
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


def _drafts(tenant: Tenant, month: Month, now: datetime) -> list[InvoiceView]:
    """The month's invoices as usage makes them now, one for each currency, with what they correct of earlier ones."""
    counted_now = counted_quantities(tenant, month)
    adjustments = adjustment_lines(tenant, month, now)
    if not counted_now and not adjustments:
        return []
    unpriced = Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end, price=None).count()
    names, prices = cluster_names(tenant), prices_of(counted_now)
    keys = sorted(counted_now, key=lambda key: line_order(names, prices, key))
    until = counted(Job.USAGE_BILLING).until
    snapshot_id, agreed = _snapshot(), _agreed_ends(tenant, month)
    drafts = []
    for currency in sorted({*(price.currency for price in prices.values()), *adjustments}):
        own = [
            line_of(key, counted_now[key], prices[key.price_id], names.get(key.cluster_id, ""))
            for key in keys
            if prices[key.price_id].currency == currency
        ]
        lines = [
            replace(line, position=position)
            for position, line in enumerate([*own, *adjustments.get(currency, [])], start=1)
        ]
        total = total_of(line.amount for line in lines)
        if not own and not total:
            continue  # a difference of less than a cent alone is no invoice: it stands on the next one
        drafts.append(
            InvoiceView(
                tenant=tenant,
                tenant_name=tenant.name,
                month=month,
                currency=currency,
                number=None,
                lines=lines,
                total=total,
                issued_at=None,
                counted_until=until,
                unpriced_rows=unpriced,
                snapshot_id=snapshot_id,
                agreed_ends=agreed,
            )
        )
    return drafts


def _issued_view(invoice: Invoice) -> InvoiceView:
    lines = invoice.lines.select_related("price__plan", "corrects__tenant").order_by("position")
    return InvoiceView(
        tenant=invoice.tenant,
        tenant_name=invoice.tenant_name,
        month=Month.of_date(invoice.month),
        currency=invoice.currency,
        number=invoice.number_text,
        lines=[stored_line(line) for line in lines],
        total=invoice.total,
        issued_at=invoice.issued_at,
        counted_until=invoice.counted_until,
        issued=invoice,
        rounding=invoice.rounding,
        snapshot_id=invoice.snapshot_id,
        agreed_ends=invoice.agreed_ends,
    )


def _snapshot() -> str:
    """The lake's snapshot that usage was last counted from; empty when no run said."""
    runs = JobRun.objects.filter(job=Job.USAGE_BILLING, state=JobRunState.COMPLETED).exclude(snapshot_id="")
    return runs.order_by("-finished_at").values_list("snapshot_id", flat=True).first() or ""


def _agreed_ends(tenant: Tenant, month: Month) -> list[dict[str, str]]:
    return [
        {"cluster": one.name, "until": one.agreed_until.isoformat(), "reason": one.agreed_reason}
        for one in metered_clusters(tenant, month)
        if one.agreed_until is not None and one.is_agreed(month) and _was_needed(one, month)
    ]


def _was_needed(one: Metered, month: Month) -> bool:
    """Whether the month waits without what was agreed: else nothing has to be said of it."""
    return one.end_of(month) > month.start and (
        one.ingested_until is None or one.ingested_until < one.end_of(month) or bool(one.check_error)
    )
