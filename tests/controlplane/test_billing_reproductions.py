"""An issued bill made again: what is compared, what an operator sees, and that the invoice stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from controlplane.accounts.models import User
from controlplane.billing.closing import issue_time
from controlplane.billing.invoices import invoices_issue
from controlplane.billing.lines import counted_quantities
from controlplane.billing.models import Invoice, InvoiceReproduction, Price, ReproductionState, Usage
from controlplane.billing.periods import Month
from controlplane.billing.reproductions import ReproductionFailed, Sums, compare, reproduction_queue, sums_of
from controlplane.common.errors import Conflict
from controlplane.insight.services import SCHEDULE
from tests.controlplane.billing_world import make_plan, make_run, subscribe, use
from tests.controlplane.world import Json, World

OCT, NOV = Month(2026, 10), Month(2026, 11)
SNAPSHOT = "8171634525340513312"
LIST = "/operator/invoices/"
API = "/api/v1/operator/invoices/HW-0000001/reproductions/"


@pytest.fixture
def price(world: World) -> Price:
    plan = make_plan()
    subscribe(world.acme, plan)
    return plan.prices.get()


@pytest.fixture
def issued(world: World, price: Price) -> Invoice:
    """October's invoice, of two lines."""
    use(world.cluster, OCT.start, "1.005", messages=10, price=price)
    use(world.cluster, OCT.start + timedelta(days=1), "2.01", topic="orders", price=price)
    (invoice,) = issue(OCT)
    return invoice


def issue(month: Month, snapshot: str = SNAPSHOT) -> list[Invoice]:
    due: datetime = issue_time(month)
    make_run(until=due, snapshot_id=snapshot)
    return invoices_issue(due)


def sums_now(world: World, *months: Month) -> Sums:
    """What usage sums to in the database: a faithful lake says the same."""
    return {month: counted_quantities(world.acme, month) for month in months}


def operator() -> tuple[Client, User]:
    client = Client()
    user = User.objects.create_user("olga@example.com", is_staff=True)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client, user


def test_the_same_sums_make_the_same_bill(world: World, issued: Invoice) -> None:
    made = compare(issued, sums_now(world, OCT))
    assert (made.differences, made.total, issued.total) == ([], Decimal("3.02"), Decimal("3.02"))


def test_what_changed_afterwards_does_not_count_but_the_adjustment_of_it_does(
    world: World, issued: Invoice, price: Price
) -> None:
    before = sums_now(world, OCT)
    assert Usage.objects.filter(hour=OCT.start).update(amount=Decimal("5"), messages=50) == 1
    use(world.cluster, NOV.start, "1", price=price)
    (november,) = issue(NOV)
    assert compare(issued, before).differences == []
    assert november.lines.filter(corrects=issued).count() == 1
    assert compare(november, sums_now(world, OCT, NOV)).differences == []
    (sentence,) = compare(november, {**before, NOV: counted_quantities(world.acme, NOV)}).differences
    assert "payments, sent, correcting HW-0000001: issued 40 messages" in sentence
    assert sentence.endswith("from the snapshot nothing.")


def test_each_line_that_differs_is_named_with_both_figures(world: World, issued: Invoice) -> None:
    sums = sums_now(world, OCT)
    orders, payments = sorted(sums[OCT], key=lambda key: key.topic)
    less = replace(sums[OCT][payments], messages=9, exact_amount=Decimal("0.9045"))
    found = compare(issued, {OCT: {payments: less}})
    assert orders.topic == "orders"
    assert found.total == Decimal("0.90")
    assert [sentence.split(": ", 1)[1] for sentence in found.differences] == [
        "issued 1000 messages, 4096000 bytes, 2.01 EUR; from the snapshot nothing.",
        "issued 10 messages, 4096000 bytes, 1.005 EUR; from the snapshot 9 messages, 4096000 bytes, 0.9045 EUR.",
    ]


@pytest.mark.parametrize("line", [{}, {"month": "x"}, {"cluster_id": None}])
def test_a_result_of_the_job_that_is_no_line_is_an_error(line: dict[str, Any]) -> None:
    with pytest.raises(ReproductionFailed, match="can't be used"):
        sums_of([line])


def test_an_operator_has_it_made_again_by_a_button_and_by_rest(
    world: World, issued: Invoice, api: Callable[..., Json]
) -> None:
    client, user = operator()
    assert 'data-reproduction="none"' in client.get(LIST).content.decode()
    assert client.post(f"{LIST}HW-0000001/reproduce/").status_code == 302
    row = InvoiceReproduction.objects.get()
    assert (row.state, row.requested_by, row.is_equal) == (ReproductionState.QUEUED, "olga@example.com", None)
    # The one that waits begins, instead of a second one.
    assert api(user).call("POST", API).status_code == 202
    assert InvoiceReproduction.objects.count() == 1
    values = {"state": ReproductionState.COMPLETED, "differences": ["one line is less"], "total": Decimal("3.00")}
    InvoiceReproduction.objects.update(**values)
    assert "one line is less" in client.get(LIST).content.decode()
    (found,) = api(user).call("GET", API).json()["results"]
    assert (found["is_equal"], found["differences"], found["snapshot_id"]) == (False, ["one line is less"], SNAPSHOT)


def test_an_operator_who_reads_chinese_is_told_so_that_it_is_made_again(world: World, issued: Invoice) -> None:
    client, _ = operator()
    client.cookies["language"] = "zh-hans"
    page = client.post(f"{LIST}HW-0000001/reproduce/", follow=True).content.decode()
    assert "正在重新生成 HW-0000001" in page
    assert "is being made again" not in page


def test_others_do_not_find_it(world: World, issued: Invoice, api: Callable[..., Json]) -> None:
    client = Client()
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    assert client.post(f"{LIST}HW-0000001/reproduce/").status_code == 404
    assert api(world.alice).call("POST", API).status_code == 404


def test_an_invoice_of_before_that_keeps_no_snapshot_says_so(world: World, price: Price) -> None:
    use(world.cluster, OCT.start, "1", price=price)
    (invoice,) = issue(OCT, snapshot="")
    with pytest.raises(Conflict, match="does not name a snapshot"):
        reproduction_queue(actor=SCHEDULE, invoice=invoice)
    assert "It keeps no snapshot" in operator()[0].get(LIST).content.decode()


def test_one_whose_worker_was_lost_can_be_started_again(world: World, issued: Invoice) -> None:
    lost = reproduction_queue(actor=SCHEDULE, invoice=issued)
    InvoiceReproduction.objects.update(state=ReproductionState.RUNNING)
    again = reproduction_queue(actor=SCHEDULE, invoice=issued)
    lost.refresh_from_db()
    assert (lost.state, lost.error) == (
        ReproductionState.FAILED,
        "Its worker was lost while it ran. Start it again.",
    )
    assert again.pk != lost.pk
