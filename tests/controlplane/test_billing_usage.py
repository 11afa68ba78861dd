"""Usage, budgets and invoices by the API, over rows as Spark writes them."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from controlplane.billing.budgets import (
    budget_alert_mail,
    budget_alert_now,
    budget_check,
    budget_remove,
    budget_set,
    budgets_check,
)
from controlplane.billing.closing import issue_time
from controlplane.billing.invoices import invoices_issue
from controlplane.billing.models import Budget, BudgetAlert, Invoice, InvoiceLine, InvoiceSeries, Price, Usage
from controlplane.billing.periods import Month
from controlplane.billing.selectors import By, daily_parts, month_usage
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.insight.models import ClusterProgress, JobRunState
from controlplane.tenants.models import Tenant
from tests.controlplane.billing_world import make_plan, make_progress, make_run, subscribe, use
from tests.controlplane.world import Json, World, make_cluster

NOV = Month(2026, 11)
MID = datetime(2026, 11, 16, tzinfo=UTC)
DUE = issue_time(NOV)
USAGE = "/api/v1/tenants/acme/usage/"
INVOICES = "/api/v1/tenants/acme/invoices/"


@pytest.fixture
def price(world: World) -> Price:
    """acme's price since January, in EUR; acme is as old."""
    Tenant.objects.filter(pk=world.acme.pk).update(created_at=datetime(2026, 10, 1, tzinfo=UTC))
    plan = make_plan()
    subscribe(world.acme, plan)
    return plan.prices.get()


def fill(cluster: Cluster, price: Price | None) -> None:
    use(cluster, NOV.start, "1.005", messages=10, size=100, credential="AK1", price=price)
    use(cluster, NOV.start + timedelta(days=1), "2.01", messages=20, size=200, credential="AK2", price=price)
    use(cluster, NOV.start, "0.3333333333", direction="out", group="ledger", messages=5, size=50, price=price)
    use(cluster, NOV.start, "0.0005", direction="storage", size=10**12, price=price)
    use(cluster, NOV.end - timedelta(hours=1), "0.1", topic="refunds", messages=1, size=1, price=price)
    use(cluster, NOV.end, "77", messages=777, price=price)  # of the month after
    use(cluster, NOV.start - timedelta(hours=1), "66", messages=666, price=price)  # of the month before


def get(client: Json, path: str) -> Any:
    answer = client.call("GET", path)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_month_has_exactly_its_rows(world: World, api: Callable[..., Json], price: Price) -> None:
    fill(world.cluster, price)
    make_run(until=NOV.end)
    found = get(api(world.bob), f"{USAGE}?month=2026-11")
    total = found["total"]
    assert (total["messages_in"], total["bytes_in"], total["messages_out"]) == ("31", "301", "5")
    assert (total["byte_hours"], total["amounts"]) == ("1000000000000", {"EUR": "3.4488333333"})
    assert (found["currency"], found["forecast"]["amount"]) == ("EUR", "3.45")
    assert found["counted_until"] == "2026-12-01T00:00:00Z"
    days = {day["date"]: day["usage"]["amounts"] for day in found["days"]}
    assert days["2026-11-01"] == {"EUR": "1.3388333333"}
    assert days["2026-11-03"] == {}


def test_days_are_the_tenants_and_add_up_to_the_utc_month(world: World, api: Callable[..., Json], price: Price) -> None:
    fill(world.cluster, price)
    make_run(until=NOV.end)
    client = api(world.alice)
    assert client.call("PATCH", "/api/v1/tenants/acme/", {"time_zone": "America/New_York"}).status_code == 200
    found = get(client, f"{USAGE}?month=2026-11")
    assert (found["time_zone"], found["days"][0]["date"]) == ("America/New_York", "2026-10-31")
    assert found["days"][0]["usage"]["amounts"] == {"EUR": "1.3388333333"}
    total = sum(Decimal(day["usage"]["amounts"].get("EUR", "0")) for day in found["days"])
    assert total == Decimal(found["total"]["amounts"]["EUR"])


def test_a_chart_of_the_largest_topics_reads_no_rows_of_the_others(world: World, price: Price) -> None:
    for topic in range(20):
        for hour in range(5):
            use(
                world.cluster, NOV.start + hour * timedelta(hours=1), topic=f"t{topic}", messages=topic + 1, price=price
            )
    make_run(until=NOV.end)
    usage = month_usage(world.acme, NOV)
    with CaptureQueriesContext(connection) as queries:
        parts = daily_parts(world.acme, usage, By.TOPIC, most=2)
    assert parts == [("t19", {NOV.start: 100}), ("t18", {NOV.start: 95})]
    with connection.cursor() as cursor:
        rows = 0
        for query in queries.captured_queries:
            cursor.execute(query["sql"])
            rows += len(cursor.fetchall())
    assert rows == 2 + 2 * 5


@pytest.mark.parametrize("zone", ["Mars/Base", "", "Europe/../UTC"])
def test_a_zone_that_is_none_is_refused(world: World, api: Callable[..., Json], zone: str) -> None:
    answer = api(world.alice).call("PATCH", "/api/v1/tenants/acme/", {"time_zone": zone})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "time_zone")


def test_what_was_not_counted_is_null_and_what_was_and_cost_nothing_is_0(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    client = api(world.bob)
    assert get(client, f"{USAGE}?month=2026-11")["total"] is None
    make_run(until=MID)
    found = get(client, f"{USAGE}?month=2026-11")
    assert (found["total"]["messages_in"], found["total"]["amounts"]) == ("0", {})
    known = {day["date"]: day["usage"] is not None for day in found["days"]}
    assert (known["2026-11-15"], known["2026-11-16"]) == (True, False)
    assert get(client, f"{USAGE}?month=2026-12")["total"] is None


def test_days_on_which_one_of_its_clusters_could_not_be_read_are_unknown_though_those_of_others_were_counted(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=NOV.end)
    make_progress(world.cluster, MID)
    found = get(api(world.bob), f"{USAGE}?month=2026-11")
    assert found["counted_until"] == "2026-11-16T00:00:00Z"
    known = {day["date"]: day["usage"] is not None for day in found["days"]}
    assert (known["2026-11-15"], known["2026-11-16"], known["2026-11-30"]) == (True, False, False)
    assert found["forecast"]["amount"] == "1.00", "the last seven days that are known cost nothing"
    make_progress(world.cluster, MID, sealed_at=MID)
    assert get(api(world.bob), f"{USAGE}?month=2026-11")["counted_until"] == "2026-12-01T00:00:00Z"


def test_a_budget_notifies_of_what_is_known_though_a_cluster_could_not_be_read_in_the_month(
    world: World, price: Price
) -> None:
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal(10), currency="EUR")
    use(world.cluster, NOV.start, "6", price=price)
    make_run(until=MID)
    make_progress(make_cluster(world.acme, "staging"), NOV.start - timedelta(days=1))
    assert [alert.threshold_percent for alert in budget_check(world.acme, MID)] == [50]


def test_before_the_tenant_existed_there_is_nothing_to_know(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    make_run(until=NOV.end)
    assert get(api(world.bob), f"{USAGE}?month=2026-05")["total"] is None


def test_a_backfill_that_found_no_record_counts_nothing(world: World, api: Callable[..., Json], price: Price) -> None:
    """Its range is what was asked for, which may reach into the future, and not what was counted."""
    make_run(until=MID, since=NOV.start)
    make_run(until=NOV.end, since=NOV.start - timedelta(days=20), is_backfill=True, rows_in=0, rows_out=0)
    ClusterProgress.objects.all().delete()
    Cluster.objects.update(state=ClusterState.DELETED)
    found = get(api(world.bob), f"{USAGE}?month=2026-11")
    assert (found["counted_from"], found["counted_until"]) == ("2026-11-01T00:00:00Z", "2026-11-16T00:00:00Z")
    assert found["days"][-1]["usage"] is None


def test_a_failed_run_counts_nothing(world: World, api: Callable[..., Json], price: Price) -> None:
    make_run(JobRunState.FAILED, until=NOV.end)
    assert get(api(world.bob), f"{USAGE}?month=2026-11")["counted_until"] is None


@pytest.mark.parametrize("by", ["topic", "group", "credential"])
def test_a_breakdown_adds_up_to_the_month_and_the_rest_is_summed(
    world: World, api: Callable[..., Json], price: Price, by: str
) -> None:
    fill(world.cluster, price)
    fill(make_cluster(world.acme, "staging"), price)
    make_run(until=NOV.end)
    client = api(world.bob)
    whole = get(client, f"{USAGE}?month=2026-11")["total"]
    for limit in (1, 100):
        found = get(client, f"{USAGE}breakdown/?month=2026-11&by={by}&limit={limit}")
        parts = [part["usage"] for part in found["results"]] + ([found["others"]] if found["others"] else [])
        assert sum(Decimal(part["amounts"]["EUR"]) for part in parts) == Decimal(whole["amounts"]["EUR"])
        assert sum(int(part["messages_in"]) for part in parts) == int(whole["messages_in"])
        assert len(found["results"]) + found["others_count"] == len(
            get(client, f"{USAGE}breakdown/?month=2026-11&by={by}")["results"]
        )


@pytest.mark.parametrize(
    ("query", "field"),
    [("by=colour", "by"), ("by=topic&limit=0", "limit"), ("by=topic&month=2026-13", "month"), ("", "by")],
)
def test_a_bad_question_is_reported_beside_its_field(
    world: World, api: Callable[..., Json], query: str, field: str
) -> None:
    answer = api(world.bob).call("GET", f"{USAGE}breakdown/?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)


def test_rows_are_found_by_what_they_are_for(world: World, api: Callable[..., Json], price: Price) -> None:
    fill(world.cluster, price)
    client = api(world.bob)

    def messages(query: str) -> list[str]:
        rows = get(client, f"{USAGE}records/?month=2026-11&{query}")["results"]
        return [row["messages"] for row in rows]

    assert messages("") == ["10", "5", "0", "20", "1"]
    assert messages("consumer_group=ledger") == ["5"]
    assert messages("direction=in&credential=AK2") == ["20"]
    assert messages("topic=refunds") == ["1"]
    assert messages(f"price_id={price.pk}&direction=storage") == ["0"]
    assert messages("consumer_group=&direction=in") == ["10", "20", "1"]
    assert messages("cluster_id=6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11") == []


def test_rows_come_in_pages(world: World, api: Callable[..., Json], price: Price) -> None:
    fill(world.cluster, price)
    client = api(world.bob)
    first = get(client, f"{USAGE}records/?month=2026-11&limit=3")
    rest = client.get(first["next"]).json()
    assert [row["messages"] for row in first["results"] + rest["results"]] == ["10", "5", "0", "20", "1"]


def test_usage_without_a_plan_is_counted_and_said_to_have_no_price(world: World, api: Callable[..., Json]) -> None:
    use(world.cluster, NOV.start, messages=10)
    make_run(until=NOV.end)
    found = get(api(world.bob), f"{USAGE}?month=2026-11")
    assert (found["total"]["messages_in"], found["total"]["unpriced"], found["currency"]) == ("10", True, None)
    assert found["forecast"]["amount"] is None


# --- invoices ---------------------------------------------------------------------------------------------------------


def test_lines_keep_their_digits_and_the_total_is_their_sum_rounded_once(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    fill(world.cluster, price)
    make_run(until=DUE)
    (invoice,) = [one for one in invoices_issue(DUE) if one.month == NOV.first_day]
    found = get(api(world.bob), f"{INVOICES}{invoice.number_text}/")
    lines = [(line["direction"], line["topic"], line["exact_amount"], line["amount"]) for line in found["lines"]]
    assert lines == [
        ("in", "payments", "3.0150000000", "3.015"),
        ("in", "refunds", "0.1000000000", "0.10"),
        ("out", "payments", "0.3333333333", "0.3333333333"),
        ("storage", "payments", "0.0005000000", "0.0005"),
    ]
    assert (found["total"], found["exact_total"]) == ("3.45", "3.4488333333")
    assert (found["state"], found["month"], found["rounding"]) == ("issued", "2026-11", "invoice")
    assert "rounded once to the cent" in found["rounding_rule"]


def test_a_thousand_lines_of_half_a_cent_make_five_and_not_ten(world: World, price: Price) -> None:
    for number in range(1000):
        use(world.cluster, NOV.start, "0.005", topic=f"topic-{number}", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    assert (invoice.lines.count(), invoice.total) == (1000, Decimal("5.00"))


def test_an_invoice_keeps_the_snapshot_of_the_lake_that_it_was_made_from(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE - timedelta(hours=1), snapshot_id="111")
    make_run(until=DUE, snapshot_id="7390226071437811264")
    (invoice,) = invoices_issue(DUE)
    make_run(until=DUE + timedelta(hours=1), snapshot_id="333")
    assert get(api(world.bob), invoice.path)["snapshot_id"] == "7390226071437811264"


def test_every_line_opens_rows_that_sum_to_it(world: World, api: Callable[..., Json], price: Price) -> None:
    fill(world.cluster, price)
    fill(make_cluster(world.acme, "staging"), price)
    make_run(until=DUE)
    invoices_issue(DUE)
    client = api(world.bob)
    path = get(client, INVOICES)["results"][-1]["path"]
    seen = 0
    for line in get(client, path)["lines"]:
        rows = get(client, f"{path}lines/{line['position']}/usage/")["results"]
        assert sum(Decimal(row["amount"]) for row in rows) == Decimal(line["exact_amount"])
        seen += len(rows)
    assert seen == 2 * (5 if "2026-11" in get(client, path)["month"] else 1)
    assert client.call("GET", f"{path}lines/99/usage/").status_code == 404


def test_a_price_that_changes_inside_a_month_makes_two_lines(world: World, price: Price) -> None:
    Price.objects.filter(pk=price.pk).update(valid_to=MID)
    later = Price.objects.create(
        plan=price.plan,
        valid_from=MID,
        currency="EUR",
        per_million_units=80,
        per_million_units_out=1,
        per_gib_month_stored=1,
    )
    use(world.cluster, MID - timedelta(hours=1), "1.004", price=price)
    use(world.cluster, MID, "2.008", price=later)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    lines = [(line.price.per_million_units, line.amount) for line in invoice.lines.order_by("position")]
    assert lines == [(Decimal(40), Decimal("1.004")), (Decimal(80), Decimal("2.008"))]
    assert invoice.total == Decimal("3.01")


def test_a_series_that_is_gone_goes_on_after_the_last_number(world: World, price: Price) -> None:
    """A restored database may lack its one row; numbers are neither given twice nor left out."""
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    (first,) = invoices_issue(DUE)
    InvoiceSeries.objects.all().delete()
    use(world.cluster, NOV.end, "1", price=price)
    make_run(until=issue_time(NOV.next))
    (second,) = [one for one in invoices_issue(issue_time(NOV.next)) if one.month == NOV.next.first_day]
    assert second.number == first.number + 1


def test_an_invoice_of_each_currency(world: World, price: Price) -> None:
    dollars = make_plan("premium", "USD").prices.get()
    use(world.cluster, NOV.start, "1", price=price)
    use(world.cluster, MID, "2", price=dollars)
    make_run(until=DUE)
    assert [(invoice.currency, invoice.total) for invoice in invoices_issue(DUE)] == [
        ("EUR", Decimal(1)),
        ("USD", Decimal(2)),
    ]


def test_nothing_is_issued_before_the_late_window_is_over_and_counted(world: World, price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE - timedelta(minutes=1))
    assert invoices_issue(DUE - timedelta(seconds=1)) == []
    assert invoices_issue(DUE) == []  # the last run began before the window was over
    make_run(JobRunState.FAILED, until=DUE)
    make_run(until=DUE, is_backfill=True)
    assert invoices_issue(DUE) == []
    make_run(until=DUE)
    assert len(invoices_issue(DUE)) == 1


def test_numbers_have_no_gaps_and_each_month_is_issued_once(world: World, price: Price) -> None:
    for cluster in (world.cluster, make_cluster(world.globex, "staging")):
        for month in (NOV.previous, NOV):
            use(cluster, month.start, "1", price=price)
    make_run(until=DUE)
    assert len(invoices_issue(DUE)) == 4
    assert invoices_issue(DUE) == []
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [1, 2, 3, 4]
    assert InvoiceSeries.objects.get().next_number == 5


def test_a_number_is_not_lost_when_writing_fails(world: World, price: Price, monkeypatch: pytest.MonkeyPatch) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    with monkeypatch.context() as patch:
        patch.setattr(InvoiceLine.objects, "bulk_create", lambda lines: 1 // 0)
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            invoices_issue(DUE)
    assert [invoice.number for invoice in invoices_issue(DUE)] == [1]


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_issue_at_once_issue_each_invoice_once(world: World, price: Price) -> None:
    for cluster in (world.cluster, make_cluster(world.globex, "staging")):
        use(cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    gate = threading.Barrier(3)
    failures: list[BaseException] = []

    def issue() -> None:
        gate.wait(30)
        try:
            invoices_issue(DUE)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=issue) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert sorted(Invoice.objects.values_list("number", flat=True)) == [1, 2]


def test_an_issued_invoice_is_frozen(world: World, api: Callable[..., Json], price: Price) -> None:
    row = use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        Invoice.objects.filter(pk=invoice.pk).update(total=2)
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        invoice.lines.update(amount=2)
    Usage.objects.filter(pk=row.pk).update(amount=5)  # a backfill
    assert get(api(world.bob), invoice.path)["total"] == "1.00"


def test_a_draft_follows_its_month_and_goes_when_it_is_issued(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    now = datetime.now(UTC)
    month = Month.of(now)
    use(world.cluster, month.start, "1", price=price)
    client = api(world.bob)
    (draft,) = get(client, INVOICES)["results"]
    assert (draft["name"], draft["state"], draft["number"], draft["total"]) == (
        f"draft-{month}-eur",
        "draft",
        None,
        "1.00",
    )
    use(world.cluster, month.start + timedelta(hours=1), "1", price=price)
    assert get(client, draft["path"])["total"] == "2.00"
    make_run(until=issue_time(month))
    invoices_issue(issue_time(month))
    assert client.call("GET", draft["path"]).status_code == 404


def test_the_csv_has_the_lines_and_the_total(world: World, api: Callable[..., Json], price: Price) -> None:
    use(world.cluster, NOV.start, "1.005", topic="=cmd|x", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    answer = api(world.bob).call("GET", f"{invoice.path}csv/", Accept="text/csv")
    header, line, total = csv.reader(io.StringIO(answer.content.decode()))
    found = dict(zip(header, line, strict=True))
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert (found["invoice"], found["exact_amount"], found["amount"]) == ("HW-0000001", "1.0050000000", "1.005")
    assert found["topic"] == "'=cmd|x"  # no formula of a spreadsheet
    assert dict(zip(header, total, strict=True))["amount"] == "1.01"


def test_the_csv_has_no_figure_with_an_exponent(world: World, api: Callable[..., Json], price: Price) -> None:
    use(world.cluster, NOV.start, "0.0000000004", price=price)
    use(world.cluster, NOV.start, "0.01", direction="storage", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    answer = api(world.bob).call("GET", f"{invoice.path}csv/")
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(line["exact_amount"], line["billed_units"]) for line in lines[:2]] == [
        ("0.0000000004", "1000.0000"),
        ("0.0100000000", "0.0000"),
    ]


@pytest.mark.parametrize("name", ["HW-1", "HW-0000002", "1", "draft-2020-01-eur", "draft-", "hw-0000001"])
def test_an_invoice_of_another_name_is_not_found(
    world: World, api: Callable[..., Json], price: Price, name: str
) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    invoices_issue(DUE)
    assert api(world.bob).call("GET", f"{INVOICES}{name}/").status_code == 404


def test_another_tenants_invoice_looks_absent(world: World, api: Callable[..., Json], price: Price) -> None:
    use(world.cluster, NOV.start, "1", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    for path in (invoice.path, invoice.path.replace("/acme/", "/globex/")):
        assert api(world.charlie).call("GET", path).status_code == 404


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_each_threshold_alerts_once_in_a_month_by_row_and_mail(world: World, price: Price) -> None:
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("100"), currency="EUR")
    make_run(until=MID)

    def spend(amount: str) -> list[int]:
        use(world.cluster, NOV.start + timedelta(hours=Usage.objects.count()), amount, price=price)
        return [alert.threshold_percent for alert in budget_check(world.acme, MID)]

    assert [spend("49.99"), spend("0.01"), spend("10"), spend("60"), spend("500")] == [[], [50], [], [80, 100], []]
    for alert in BudgetAlert.objects.all():
        assert [budget_alert_mail(alert.pk), budget_alert_mail(alert.pk)] == [True, False]
    assert [message.to for message in mail.outbox] == [["alice@example.com"]] * 3
    assert sorted(message.subject for message in mail.outbox)[0] == "[Highwater] Acme has reached 100 % of its budget"
    assert "120.00 of 100.00 EUR" in "".join(str(message.body) for message in mail.outbox)


def test_a_budget_that_was_raised_alerts_again_at_its_own_thresholds(world: World, price: Price) -> None:
    now = datetime.now(UTC)
    make_run(until=now)
    use(world.cluster, Month.of(now).start, "60", price=price)

    def alerts_with(amount: str) -> list[int]:
        budget_set(actor=world.alice, tenant=world.acme, amount=Decimal(amount), currency="EUR")
        return [alert.threshold_percent for alert in budget_check(world.acme, now)]

    assert [alerts_with("100"), alerts_with("1000"), alerts_with("70"), alerts_with("100")] == [[50], [], [50, 80], []]


def test_the_banner_is_of_the_budget_as_it_is(world: World, price: Price) -> None:
    now = datetime.now(UTC)
    make_run(until=now)
    use(world.cluster, Month.of(now).start, "60", price=price)
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("50"), currency="EUR")
    budget_check(world.acme, now)
    banner = budget_alert_now(world.acme)
    assert banner is not None
    assert banner.threshold_percent == 100
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("500"), currency="EUR")
    assert budget_alert_now(world.acme) is None
    budget_remove(actor=world.alice, tenant=world.acme)
    assert budget_alert_now(world.acme) is None


def test_the_next_month_alerts_again(world: World, price: Price) -> None:
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("10"), currency="EUR")
    make_run(until=NOV.end + timedelta(days=9))
    use(world.cluster, NOV.start, "5", price=price)
    use(world.cluster, NOV.end, "5", price=price)
    assert len(budget_check(world.acme, MID)) == 1
    assert len(budget_check(world.acme, NOV.end + timedelta(days=8))) == 1
    assert BudgetAlert.objects.count() == 2


def test_nothing_alerts_while_nothing_is_counted_or_spent_in_another_currency(world: World, price: Price) -> None:
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("10"), currency="USD")
    use(world.cluster, NOV.start, "500", price=price)
    assert budgets_check(MID) == 0
    make_run(until=MID)
    assert budgets_check(MID) == 0
    Budget.objects.update(currency="EUR")
    assert budgets_check(MID) == 3


def test_a_mail_that_could_not_be_sent_is_sent_later(
    world: World, price: Price, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget_set(actor=world.alice, tenant=world.acme, amount=Decimal("10"), currency="EUR")
    make_run(until=MID)
    use(world.cluster, NOV.start, "5", price=price)
    (alert,) = budget_check(world.acme, MID)

    def refuse(*args: object) -> int:
        raise ConnectionRefusedError("no mail server")

    with monkeypatch.context() as patch:
        patch.setattr("controlplane.billing.budgets.mail_each", refuse)
        with pytest.raises(ConnectionRefusedError):
            budget_alert_mail(alert.pk)
    assert budget_alert_mail(alert.pk)
    assert len(mail.outbox) == 1


def test_the_budget_says_what_is_spent(world: World, api: Callable[..., Json], price: Price) -> None:
    client, path = api(world.alice), "/api/v1/tenants/acme/budget/"
    assert client.call("PUT", path, {"amount": "10.00", "currency": "EUR"}).json()["spent"] is None
    now = datetime.now(UTC)
    use(world.cluster, Month.of(now).start, "5.5", price=price)
    make_run(until=now)
    found = get(api(world.bob), path)
    assert (found["spent"], found["percent"], found["alerts"]) == ("5.5000000000", 55, [])
    assert found["not_counted"] == []
    assert client.call("DELETE", path).status_code == 204
    assert client.call("GET", path).status_code == 404


def test_a_budget_says_which_currencies_it_does_not_count(world: World, api: Callable[..., Json], price: Price) -> None:
    client, path = api(world.alice), "/api/v1/tenants/acme/budget/"
    client.call("PUT", path, {"amount": "10.00", "currency": "USD"})
    now = datetime.now(UTC)
    use(world.cluster, Month.of(now).start, "5.5", price=price)
    make_run(until=now)
    found = client.call("GET", path).json()
    assert (Decimal(found["spent"]), found["not_counted"]) == (Decimal(0), ["EUR"])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"amount": "0", "currency": "EUR"}, "amount"),
        ({"amount": "1.001", "currency": "EUR"}, "amount"),
        ({"amount": "-5", "currency": "EUR"}, "amount"),
        ({"amount": "5", "currency": "XXX"}, "currency"),
        ({"currency": "EUR"}, "amount"),
    ],
)
def test_a_bad_budget_is_reported_beside_its_field(
    world: World, api: Callable[..., Json], body: dict[str, str], field: str
) -> None:
    answer = api(world.alice).call("PUT", "/api/v1/tenants/acme/budget/", body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
