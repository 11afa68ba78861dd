"""Usage that changes after its month's invoice was issued: the difference is on the next invoice, once, and exactly."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from controlplane.billing.closing import issue_time
from controlplane.billing.invoices import (
    InvoiceView,
    invoice_drafts,
    invoice_get,
    invoices_issue,
    line_usage,
)
from controlplane.billing.models import ChangedMonth, Invoice, InvoiceLine, Price, Usage
from controlplane.billing.money import to_cents
from controlplane.billing.periods import Month
from tests.controlplane.billing_world import make_plan, make_run, subscribe, use
from tests.controlplane.world import Json, World, make_cluster

OCT, NOV, DEC = Month(2026, 10), Month(2026, 11), Month(2026, 12)
INVOICES = "/api/v1/tenants/acme/invoices/"


@pytest.fixture
def price(world: World) -> Price:
    plan = make_plan()
    subscribe(world.acme, plan)
    return plan.prices.get()


@pytest.fixture
def issued(world: World, price: Price) -> Invoice:
    """October's invoice: 3.02 for payments, of exactly 3.015."""
    use(world.cluster, OCT.start, "1.005", messages=10, price=price)
    use(world.cluster, OCT.start + timedelta(days=1), "2.01", messages=20, price=price)
    (invoice,) = issue(OCT)
    assert invoice.total == Decimal("3.02")
    return invoice


def issue(month: Month) -> list[Invoice]:
    """What is issued as soon as the month is final."""
    due = issue_time(month)
    make_run(until=due)
    return invoices_issue(due)


def draft(world: World, now: datetime = NOV.start) -> InvoiceView:
    (found,) = invoice_drafts(world.acme, now)
    return found


def lines(invoice: InvoiceView) -> list[tuple[str, str, Decimal]]:
    """(corrected invoice's number or nothing, topic, amount) of each line."""
    return [(line.corrects.number_text if line.corrects else "", line.topic, line.amount) for line in invoice.lines]


def recount(hour: datetime, amount: str, **values: Any) -> None:
    """What a job that counts an hour again does to its row."""
    assert Usage.objects.filter(hour=hour).update(amount=Decimal(amount), **values) == 1


def test_usage_that_does_not_change_after_its_invoice_leaves_no_mark(world: World, issued: Invoice) -> None:
    assert not ChangedMonth.objects.exists()
    assert invoice_drafts(world.acme, NOV.start) == []


def test_more_usage_is_an_additional_charge_of_the_next_draft(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, OCT.start + timedelta(hours=5), "0.50", messages=5, price=price)
    use(world.cluster, NOV.start, "1", price=price)
    found = draft(world)
    assert (found.month, lines(found)) == (
        NOV,
        [("", "payments", Decimal("1.00")), ("HW-0000001", "payments", Decimal("0.50"))],
    )
    adjustment = found.lines[1]
    assert (adjustment.exact_amount, adjustment.messages) == (Decimal("0.5000000000"), 5)
    assert found.total == Decimal("1.50")


def test_less_usage_is_a_credit_and_the_issued_invoice_stays(world: World, issued: Invoice) -> None:
    recount(OCT.start + timedelta(days=1), "0.01", messages=1)
    found = draft(world)
    assert (lines(found), found.total) == ([("HW-0000001", "payments", Decimal("-2.00"))], Decimal("-2.00"))
    assert found.lines[0].messages == -19
    assert invoice_get(world.acme, "HW-0000001").total == Decimal("3.02")


def test_rows_that_are_gone_are_credited_whole(world: World, issued: Invoice) -> None:
    Usage.objects.all().delete()
    assert lines(draft(world)) == [("HW-0000001", "payments", Decimal("-3.015"))]


def test_a_topic_that_the_invoice_did_not_have_is_charged(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, OCT.start, "0.07", topic="refunds", price=price)
    assert lines(draft(world)) == [("HW-0000001", "refunds", Decimal("0.07"))]


def test_another_price_credits_the_old_line_and_charges_the_new_one(
    world: World, issued: Invoice, price: Price
) -> None:
    Price.objects.filter(pk=price.pk).update(valid_to=NOV.end)
    other = Price.objects.create(
        plan=price.plan,
        valid_from=NOV.end,
        currency="EUR",
        per_million_units=1,
        per_million_units_out=1,
        per_gib_month_stored=1,
    )
    recount(OCT.start, "5.00", price=other)
    assert lines(draft(world)) == [
        ("HW-0000001", "payments", Decimal("-1.005")),
        ("HW-0000001", "payments", Decimal("5.00")),
    ]


def test_less_than_a_cent_is_no_invoice_of_its_own(world: World, issued: Invoice) -> None:
    recount(OCT.start, "1.0051")
    assert invoice_drafts(world.acme, NOV.start) == []
    recount(OCT.start, "1.0099999999")
    assert invoice_drafts(world.acme, NOV.start) == []
    recount(OCT.start, "1.010")
    assert (lines(draft(world)), draft(world).total) == (
        [("HW-0000001", "payments", Decimal("0.005"))],
        Decimal("0.01"),
    )


def test_less_than_a_cent_stands_on_an_invoice_that_has_other_lines(
    world: World, issued: Invoice, price: Price
) -> None:
    recount(OCT.start, "1.0051")
    use(world.cluster, NOV.start, "1.0049", price=price)
    found = draft(world)
    assert [line.amount for line in found.lines] == [Decimal("1.0049"), Decimal("0.0001")]
    assert found.total == Decimal("1.01")


def test_an_invoice_that_was_rounded_line_by_line_stays_and_is_adjusted_by_what_changed(
    world: World, price: Price
) -> None:
    """As invoices were until lines kept their digits: 0.01 and 0.01 for 0.005 and 0.005."""
    for topic in ("payments", "refunds"):
        use(world.cluster, OCT.start, "0.005", topic=topic, price=price)
    (invoice,) = issue(OCT)
    with connection.cursor() as cursor:  # what was issued is frozen, but to those who own the table
        cursor.execute("set constraints all immediate")
        cursor.execute("alter table billing_invoice disable trigger billing_invoice_stays")
        cursor.execute("alter table billing_invoiceline disable trigger billing_invoice_line_stays")
        cursor.execute("update billing_invoice set rounding = 'line', total = 0.02")
        cursor.execute("update billing_invoiceline set amount = 0.01")
        cursor.execute("alter table billing_invoice enable trigger billing_invoice_stays")
        cursor.execute("alter table billing_invoiceline enable trigger billing_invoice_line_stays")
    assert Usage.objects.filter(topic="payments").update(amount=Decimal("0.105")) == 1
    shown = invoice_get(world.acme, invoice.number_text)
    assert (shown.total, shown.exact_total, "the total is the sum of the lines" in shown.rounding_rule) == (
        Decimal("0.02"),
        Decimal("0.02"),
        True,
    )
    assert lines(draft(world)) == [(invoice.number_text, "payments", Decimal("0.1"))]


def test_a_difference_is_invoiced_once_however_often_jobs_run(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    recount(OCT.start, "1.505")
    for _ in range(3):
        recount(OCT.start, "1.505")
        assert draft(world).total == Decimal("1.50")
    assert [invoice.total for invoice in issue(NOV)] == [Decimal("1.50")]
    assert invoices_issue(issue_time(NOV)) == []
    use(world.cluster, DEC.start, "2", price=price)
    assert [invoice.total for invoice in issue(DEC)] == [Decimal("2.00")]
    assert InvoiceLine.objects.exclude(corrects=None).count() == 1


def test_a_second_difference_is_counted_from_the_first(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    recount(OCT.start, "1.504")
    issue(NOV)
    recount(OCT.start, "0.003")
    use(world.cluster, DEC.start, "2", price=price)
    assert lines(draft(world, DEC.start)) == [
        ("", "payments", Decimal("2.00")),
        ("HW-0000001", "payments", Decimal("-1.501")),
    ]
    issue(DEC)
    about = [*issued.lines.all(), *issued.corrections.all()]
    assert sum(line.amount for line in about) == Decimal("0.003") + Decimal("2.01")


def test_a_tenant_that_has_no_later_usage_gets_its_credit_all_the_same(world: World, issued: Invoice) -> None:
    Usage.objects.all().delete()
    ChangedMonth.objects.update(changed_at=NOV.start + timedelta(days=9))
    use(make_cluster(world.globex, "other"), OCT.start, "0")
    (credit,) = issue(NOV)
    assert (credit.month, credit.total, credit.tenant) == (NOV.first_day, Decimal("-3.02"), world.acme)
    assert issue(DEC) == []


def test_a_difference_goes_to_the_first_invoice_that_is_not_issued(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    use(world.cluster, DEC.start, "2", price=price)
    recount(OCT.start, "2.005")
    december, november = invoice_drafts(world.acme, DEC.start + timedelta(hours=1))
    assert (len(november.adjustments), len(december.adjustments)) == (1, 0)


def test_other_currencies_and_other_tenants_are_left_alone(world: World, issued: Invoice, price: Price) -> None:
    dollars = make_plan("premium", "USD").prices.get()
    use(world.cluster, NOV.start, "1", price=dollars)
    cluster = make_cluster(world.globex, "other")
    use(cluster, NOV.start, "1", price=price)
    recount(OCT.start, "2.005")
    found = {one.currency: lines(one) for one in invoice_drafts(world.acme, NOV.start)}
    assert found == {"EUR": [("HW-0000001", "payments", Decimal("1.00"))], "USD": [("", "payments", Decimal("1.00"))]}
    assert [one.adjustments for one in invoice_drafts(world.globex, NOV.start)] == [[]]


def test_an_adjustment_opens_the_rows_behind_it_and_all_lines_about_them(
    world: World, issued: Invoice, price: Price
) -> None:
    recount(OCT.start, "1.505", messages=15)
    first = line_usage(invoice_get(world.acme, "HW-0000001"), 1)
    assert [(place.state, place.line.amount) for place in first.places] == [
        ("issued", Decimal("3.015")),
        ("draft", Decimal("0.50")),
    ]
    second = line_usage(draft_now(world), 1)
    assert (second.month, second.count, second.sum, second.difference) == (OCT, 2, Decimal("3.5150000000"), Decimal(0))
    assert sum(place.line.amount for place in second.places) == second.sum


def draft_now(world: World) -> InvoiceView:
    """The draft as pages ask for it: of today."""
    (found,) = [one for one in invoice_drafts(world.acme) if one.adjustments]
    return found


def test_the_api_links_both_ways_and_hides_it_from_outsiders(
    world: World, issued: Invoice, api: Callable[..., Json]
) -> None:
    recount(OCT.start, "1.505")
    old = f"{INVOICES}HW-0000001/"
    for person in (world.alice, world.bob):
        (place,) = api(person).call("GET", old).json()["corrected_by"]
        assert (place["state"], place["amount"]) == ("draft", "0.50")
        found = api(person).call("GET", place["path"]).json()
        line = found["lines"][place["position"] - 1]
        assert line["corrects"] == {"number": "HW-0000001", "path": old, "month": "2026-10"}
        rows = api(person).call("GET", f"{place['path']}lines/{place['position']}/usage/").json()["results"]
        assert [row["hour"][:10] for row in rows] == ["2026-10-01", "2026-10-02"]
    absent = api(world.charlie).call("GET", f"{INVOICES}HW-0000009/")
    foreign = api(world.charlie).call("GET", place["path"])
    assert (
        (foreign.status_code, foreign.json()["code"])
        == (absent.status_code, absent.json()["code"])
        == (404, "not_found")
    )


def test_the_csv_names_what_a_line_corrects(world: World, issued: Invoice, api: Callable[..., Json]) -> None:
    recount(OCT.start, "1.505")
    name = draft_now(world).name
    text = api(world.bob).call("GET", f"{INVOICES}{name}/csv/").content.decode()
    header, line, total = csv.reader(io.StringIO(text))
    assert dict(zip(header, line, strict=True))["corrects_invoice"] == "HW-0000001"
    assert dict(zip(header, line, strict=True))["corrects_month"] == "2026-10"
    assert dict(zip(header, total, strict=True))["amount"] == "0.50"


def test_the_database_holds_an_adjustment_once_for_an_invoice(world: World, issued: Invoice, price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    recount(OCT.start, "1.505")
    issue(NOV)
    line = InvoiceLine.objects.get(corrects=issued)
    line.pk, line.position = None, 99
    with pytest.raises(IntegrityError, match="invoice_adjustment_once"), transaction.atomic():
        line.save(force_insert=True)
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        InvoiceLine.objects.filter(corrects=issued).update(amount=0)


@pytest.mark.django_db(transaction=True)
def test_late_usage_that_comes_while_the_invoice_is_issued_is_on_it_or_noted(world: World, price: Price) -> None:
    """Whichever of the two is first: nothing falls between them."""
    use(world.cluster, OCT.start, "1", price=price)
    make_run(until=issue_time(OCT))
    gate = threading.Barrier(2)
    failures: list[BaseException] = []

    def late() -> None:
        gate.wait(30)
        try:
            for number in range(40):
                use(world.cluster, OCT.start, "0.10", topic=f"late-{number}", price=price)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    writer = threading.Thread(target=late)
    writer.start()
    gate.wait(30)
    (invoice,) = invoices_issue(issue_time(OCT))
    writer.join(60)
    assert failures == []
    pending = [one.total for one in invoice_drafts(world.acme, NOV.start)]
    assert invoice.total + sum(pending) == Decimal("5.00")


def test_a_year_of_recounts_leaves_each_topic_invoiced_exactly(world: World, price: Price) -> None:
    months = [Month(2026, number) for number in range(1, 10)]
    for turn, month in enumerate(months):
        use(world.cluster, month.start, f"{turn}.{turn}35", price=price)
        issue(month)
        for earlier in months[: turn + 1]:
            recount(earlier.start, f"{turn}.{(turn * 7919 + earlier.month * 331) % 10_000:04d}")
    use(world.cluster, months[-1].next.start, "1", price=price)
    issue(months[-1].next)
    for invoice in Invoice.objects.filter(month__lte=months[-1].first_day):
        counted = Usage.objects.get(hour=datetime(2026, invoice.month.month, 1, tzinfo=UTC)).amount
        about = [*invoice.lines.filter(corrects=None), *invoice.corrections.all()]
        assert sum(line.amount for line in about) == counted
    for invoice in Invoice.objects.all():
        assert invoice.total == to_cents(sum((line.amount for line in invoice.lines.all()), start=Decimal(0)))
