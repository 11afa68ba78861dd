"""The bill of an issued invoice made again from the snapshot of the metering records that the invoice keeps.

The Spark job `invoice` counts the invoice's month, and the months that its lines correct, as that snapshot has them. From these
sums the lines are made as they are for a draft, and compared with what was issued. Nothing is changed by that.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from celery import current_app
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor, actor_label
from controlplane.accounts.operators import operator_require
from controlplane.billing.adjustments import NOTHING, lines_before, month_differences
from controlplane.billing.lines import LineKey, LineView, Quantities, cluster_names, line_of, prices_of, stored_line
from controlplane.billing.models import Invoice, InvoiceReproduction, ReproductionState
from controlplane.billing.money import exact_text, total_of
from controlplane.billing.periods import Month
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, NotFound
from controlplane.common.sentences import say
from controlplane.insight.job_config import config_of, spark_conf_problem
from controlplane.insight.locks import job_lock
from controlplane.insight.models import JobRun
from controlplane.insight.process import run_job

REPRODUCE_TASK = "billing.invoice_reproduce"
JOB = "invoice"
LISTED_MAX = 50
_DIRECTIONS = {"in": say("sent"), "out": say("delivered"), "storage": say("stored")}

Sums = dict[Month, dict[LineKey, Quantities]]


class ReproductionFailed(Exception):
    """The bill could not be made again; the text says why."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A bill made again, and in sentences where it is not what was issued."""

    total: Decimal
    differences: list[str]


def invoice_by_number(text: str) -> Invoice:
    """Return an issued invoice by `HW-0000001`; raises NotFound. For operators: ask `operator_require` first."""
    digits = text.removeprefix("HW-")
    found = None
    if text.startswith("HW-") and digits.isascii() and digits.isdigit() and len(digits) == 7:
        found = Invoice.objects.select_related("tenant").filter(number=int(digits)).first()
    if found is None:
        raise NotFound(say("There is no such invoice."))
    return found


def issued_invoices() -> QuerySet[Invoice]:
    """Return every tenant's issued invoices, newest first. For operators: ask `operator_require` first."""
    return Invoice.objects.select_related("tenant").prefetch_related("reproductions").order_by("-number")


def reproduction_queue(*, actor: Actor, invoice: Invoice) -> InvoiceReproduction:
    """Have a worker make the bill again; one that waits already begins once more.

    Raises Conflict where the invoice keeps no snapshot.
    """
    operator_require(actor)
    if not invoice.snapshot_id:
        raise Conflict(_no_snapshot(invoice), code="no_snapshot")
    reproductions_mark_lost()
    with transaction.atomic():
        open_ones = invoice.reproductions.filter(state__in=(ReproductionState.QUEUED, ReproductionState.RUNNING))
        found = open_ones.order_by("created_at").first()
        if found is None:
            found = InvoiceReproduction.objects.create(invoice=invoice, requested_by=actor_label(actor))
            audit_event_record(
                actor=actor, action="invoice.reproduce", resource=invoice.path, tenant_id=invoice.tenant_id
            )
        pk = str(found.pk)
        transaction.on_commit(lambda: current_app.send_task(REPRODUCE_TASK, args=(pk,)), robust=True)
    return found


def reproduction_execute(reproduction_id: uuid.UUID) -> str:
    """Make the bill again if no other worker does; returns the state, for the worker's log."""
    with job_lock(JOB) as lock:
        if lock is None:
            return "busy"
        running = {"state": ReproductionState.RUNNING, "updated_at": timezone.now()}
        waiting = InvoiceReproduction.objects.filter(pk=reproduction_id, state=ReproductionState.QUEUED)
        if waiting.update(**running) != 1:
            return "not queued"
        row = InvoiceReproduction.objects.select_related("invoice__tenant").get(pk=reproduction_id)
        try:
            made = invoice_reproduce(row.invoice, lock=lock)
        except ReproductionFailed as error:
            row.state, row.error = ReproductionState.FAILED, error.args[0]
        except BaseException as error:  # whatever it was, the row must not stay running; the error goes on
            _save(
                row,
                ReproductionState.FAILED,
                say("The worker could not do it: %(error)s", error=f"{type(error).__name__}: {error}"),
            )
            raise
        else:
            row.state, row.total, row.differences = ReproductionState.COMPLETED, made.total, made.differences
        _save(row, row.state, row.error)
    return row.state


def reproductions_mark_lost() -> int:
    """Mark as failed what claims to run while no worker holds the lock; returns how many."""
    running = InvoiceReproduction.objects.filter(state=ReproductionState.RUNNING)
    if not running.exists():
        return 0
    with job_lock(JOB) as lock:
        if lock is None:
            return 0
        now = timezone.now()
        values = {"state": ReproductionState.FAILED, "finished_at": now, "updated_at": now}
        return running.update(**values, error=say("Its worker was lost while it ran. Start it again."))


def invoice_reproduce(invoice: Invoice, *, lock: Any = None) -> Reproduction:
    """Make the bill again, here and now; raises ReproductionFailed that says what to do."""
    if not invoice.snapshot_id:
        raise ReproductionFailed(_no_snapshot(invoice))
    problem = spark_conf_problem()
    if problem:
        raise ReproductionFailed(problem)
    if lock is None:
        with job_lock(JOB) as own:
            if own is None:
                raise ReproductionFailed(say("Another invoice is being made again. Wait until that has ended."))
            return invoice_reproduce(invoice, lock=own)
    corrected = [line.corrects for line in invoice.lines.select_related("corrects") if line.corrects is not None]
    months = sorted({Month.of_date(one.month) for one in (invoice, *corrected)})
    wanted = {
        "tenant_id": str(invoice.tenant_id),
        "snapshot_id": int(invoice.snapshot_id),
        "months": [{"from": month.start.isoformat(), "to": month.end.isoformat()} for month in months],
    }
    result = run_job(JOB, {**config_of(JobRun(job=JOB)), "invoice": wanted}, lock)
    if not result.completed:
        raise ReproductionFailed(result.error)
    return compare(invoice, sums_of(result.lines))


def sums_of(lines: Iterable[Mapping[str, Any]]) -> Sums:
    """Return the job's lines by month; raises ReproductionFailed for what is none."""
    sums: Sums = defaultdict(dict)
    for line in lines:
        try:
            key = LineKey(
                uuid.UUID(line["cluster_id"]), str(line["direction"]), str(line["topic"]), uuid.UUID(line["price_id"])
            )
            quantities = Quantities(
                int(line["messages"]), int(line["bytes"]), Decimal(line["billed_units"]), Decimal(line["amount"])
            )
            month = Month.of(datetime.fromisoformat(line["month"]))
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise ReproductionFailed(say("The job's result can't be used: %(error)s.", error=f"{error!r}")) from error
        sums[month][key] = quantities
    return sums


def compare(invoice: Invoice, sums: Sums) -> Reproduction:
    """Return the bill that these sums make, and where it differs from what was issued."""
    stored = invoice.lines.select_related("price__plan", "corrects__tenant").order_by("position")
    issued = {_place(line): line for line in (stored_line(row) for row in stored)}
    made = {_place(line): line for line in _made_lines(invoice, sums, issued.values())}
    total = total_of(line.exact_amount for line in made.values())
    differences = [
        sentence
        for place in sorted({*issued, *made}, key=str)
        if (sentence := _difference(issued.get(place), made.get(place), invoice.currency))
    ]
    if not differences and total != invoice.total:
        differences = [
            say(
                "The total is %(total)s %(currency)s, issued was %(issued)s %(currency)s.",
                total=str(total),
                issued=str(invoice.total),
                currency=invoice.currency,
            )
        ]
    return Reproduction(total, differences)


def _no_snapshot(invoice: Invoice) -> str:
    return say(
        "%(number)s does not name a snapshot of the metering records: it was issued before invoices kept one.",
        number=invoice.number_text or "",
    )


def _place(line: LineView) -> tuple[str, LineKey]:
    return ("" if line.corrects is None else line.corrects.number_text, line.key)


def _made_lines(invoice: Invoice, sums: Sums, issued: Iterable[LineView]) -> list[LineView]:
    counted = sums.get(Month.of_date(invoice.month), {})
    prices, names = prices_of(counted), cluster_names(invoice.tenant)
    lines = [
        line_of(key, quantities, prices[key.price_id], names.get(key.cluster_id, ""))
        for key, quantities in counted.items()
        if key.price_id in prices and prices[key.price_id].currency == invoice.currency
    ]
    corrected = {line.corrects.pk: line.corrects for line in issued if line.corrects is not None}
    for one in corrected.values():
        lines += month_differences(one, sums.get(Month.of_date(one.month), {}), lines_before(one, invoice.number))
    return lines


def _difference(issued: LineView | None, made: LineView | None, currency: str) -> str:
    """In a sentence; empty for equal lines."""
    one = issued or made
    assert one is not None, "a place comes from one of both"
    before, now = (NOTHING if line is None else _quantities(line) for line in (issued, made))
    if before == now:
        return ""
    what = say(
        "%(cluster)s / %(topic)s, %(direction)s",
        cluster=one.cluster_name or str(one.cluster_id),
        topic=one.topic,
        direction=_DIRECTIONS.get(one.direction, one.direction),
    )
    if one.corrects is not None:
        what = say("%(what)s, correcting %(number)s", what=what, number=one.corrects.number_text)
    return say(
        "%(what)s: issued %(before)s; from the snapshot %(now)s.",
        what=what,
        before=_words(before, currency),
        now=_words(now, currency),
    )


def _quantities(line: LineView) -> Quantities:
    return Quantities(line.messages, line.bytes, line.billed_units, line.exact_amount)


def _words(quantities: Quantities, currency: str) -> str:
    if quantities == NOTHING:
        return say("nothing")
    return say(
        "%(messages)s messages, %(bytes)s bytes, %(amount)s %(currency)s",
        messages=quantities.messages,
        bytes=quantities.bytes,
        amount=exact_text(quantities.exact_amount),
        currency=currency,
    )


def _save(row: InvoiceReproduction, state: str, error: str) -> None:
    now = timezone.now()
    InvoiceReproduction.objects.filter(pk=row.pk, state=ReproductionState.RUNNING).update(
        state=state,
        error=error.replace("\x00", ""),
        total=row.total,
        differences=row.differences[:LISTED_MAX],
        finished_at=now,
        updated_at=now,
    )
