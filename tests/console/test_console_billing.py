"""Pages of usage, budgets, invoices and settings, over rows as Spark writes them: figures, words, forms, and how they look."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.billing.budgets import budget_check, budget_set
from controlplane.billing.invoices import invoice_drafts, invoices_issue
from controlplane.billing.models import Budget, Invoice, Usage
from controlplane.billing.money import to_cents
from controlplane.billing.periods import Month, hour_of
from controlplane.console.templatetags.amounts import gib_hours, money_words
from mqwire.metering import OTHERS
from tests.console.browser import LogIn, assert_drawn, is_painted, look_at
from tests.console.world import World
from tests.controlplane.billing_world import make_plan, make_progress, make_run, subscribe, use

NOW = datetime.now(UTC)
THIS = Month.of(NOW)
LAST = THIS.previous.previous


@pytest.fixture
def counted(world: World) -> World:
    """A month and a bit of usage with a price, counted until an hour ago."""
    plan = make_plan()
    subscribe(world.tenant, plan)
    price = plan.prices.get()
    world.tenant.__class__.objects.filter(pk=world.tenant.pk).update(created_at=LAST.start)
    credential = world.cluster.credentials.get(is_control=False).access_key
    hour = LAST.start
    while hour < hour_of(NOW):
        if hour.hour in (6, 12):
            use(world.cluster, hour, "0.4000050", credential=credential, messages=10_000, price=price)
            use(world.cluster, hour, "0.2", direction="out", group="ledger", credential=credential, price=price)
            use(world.cluster, hour, "0.001", direction="storage", size=2**31, price=price)
        hour += timedelta(hours=1)
    make_run(until=hour_of(NOW), since=LAST.start)
    return world


def test_the_figures_are_those_of_the_rows(counted: World) -> None:
    page = counted.client(counted.bob).get(counted.path(f"usage/?month={LAST}")).content.decode()
    days = (LAST.end - LAST.start).days
    expected = Decimal("1.202010") * days
    assert f"exactly {expected.normalize():f} EUR" in page
    assert f"{20_000 * days:,}".replace(",", "\u202f") in page
    assert "The month is complete: this is what it cost." in page


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("1234.5", "1\u202f234.50 EUR"),
        ("0", "0.00 EUR"),
        ("0.005", "0.01 EUR"),
        ("0.0049", "< 0.01 EUR"),
        ("-0.0049", "> -0.01 EUR"),
    ],
)
def test_what_rounds_to_nothing_is_not_shown_as_nothing(amount: str, words: str) -> None:
    assert money_words(Decimal(amount), "EUR") == words


@pytest.mark.parametrize(
    ("byte_hours", "words"),
    [
        (0, "0"),
        (1, "< 0.01 GiB·h"),
        (2**30, "1.00 GiB·h"),
        (-1, "> -0.01 GiB·h"),
        (-1024 * 2**30, "-1\u202f024.00 GiB·h"),
    ],
)
def test_stored_bytes_that_are_credited_are_shown_as_they_are(byte_hours: int, words: str) -> None:
    assert gib_hours(byte_hours) == words


# A script that keeps what charts write on their axes.
NOTES_WHAT_IS_WRITTEN = (
    "window.drawn = [];"
    "const fill = CanvasRenderingContext2D.prototype.fillText;"
    "CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {"
    "  window.drawn.push(text);"
    "  return fill.call(this, text, ...at); };"
)


@pytest.mark.django_db(transaction=True)
def test_the_axis_of_a_small_cost_has_different_ticks(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    plan = make_plan()
    subscribe(world.tenant, plan)
    use(world.cluster, hour_of(NOW), "0.0049", price=plan.prices.get())
    make_run(until=NOW, since=THIS.start)
    log_in(world.alice)
    page.add_init_script(NOTES_WHAT_IS_WRITTEN)
    page.goto(live_server.url + world.path("usage/"))
    expect(page.locator("#cost")).to_have_attribute("data-state", "drawn")
    assert {"0", "0.002", "0.004"} <= set(page.evaluate("window.drawn"))


@pytest.mark.django_db(transaction=True)
def test_a_chart_in_chinese_has_days_in_chinese_and_names_the_only_topic(
    page: Page, live_server: LiveServer, counted: World, log_in: LogIn
) -> None:
    log_in(counted.alice)
    page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": "zh-hans", "url": live_server.url}])
    page.add_init_script(NOTES_WHAT_IS_WRITTEN)
    page.goto(live_server.url + counted.path(f"usage/?month={LAST}"))
    chart = page.locator("figure", has=page.locator("#by-topic-by-day"))
    expect(chart.locator("[data-chart]")).to_have_attribute("data-state", "drawn")
    expect(chart.locator(".chart__key")).to_contain_text("payments")
    days = [text for text in page.evaluate("window.drawn") if re.search("[A-Za-z月]", text) and text[0].isdigit()]
    assert any("月" in day for day in days)
    assert not [day for day in days if "Sep" in day]


def test_a_month_that_was_not_counted_is_unknown_and_not_0(world: World) -> None:
    page = world.client(world.alice).get(world.path("usage/")).content.decode()
    assert "No usage yet" in page
    figures = re.findall(r'data-figure="(cost|sent|delivered|stored)"><dt>[^<]*</dt><dd>(.*?)</dd>', page)
    assert [name for name, _ in figures] == ["cost", "sent", "delivered", "stored"]
    assert all('title="not known"' in value for _, value in figures)
    assert "0.00" not in page


def test_days_that_are_not_counted_yet_are_gaps_in_the_chart(counted: World) -> None:
    page = counted.client(counted.alice).get(counted.path("usage/"))
    chart = page.context["charts"][0]
    spec = json.loads(chart.json)
    uncounted = [
        value
        for value, day in zip(spec["series"][0]["values"], page.context["usage"].days, strict=True)
        if day.day.start > NOW
    ]
    assert all(value is None for value in uncounted)
    assert [words for _, words in [(label, cells[0][1]) for label, cells in chart.rows]] == spec["series"][0]["words"]


def test_the_age_of_the_numbers_is_shown(counted: World) -> None:
    assert "Figures until" in counted.client(counted.victor).get(counted.path("usage/")).content.decode()


@pytest.mark.parametrize("by", ["topic", "group", "credential"])
def test_each_breakdown_adds_up_to_the_month(counted: World, by: str) -> None:
    response = counted.client(counted.alice).get(counted.path(f"usage/?month={LAST}"))
    (found,) = [one["found"] for one in response.context["breakdowns"] if one["id"] == by]
    assert sum(part.sums.amount("EUR") for part in found.parts) == response.context["usage"].amount
    assert sum(part.sums.messages_in for part in found.parts) == response.context["usage"].total.messages_in


def test_a_part_opens_the_rows_behind_it(counted: World) -> None:
    client = counted.client(counted.alice)
    page = client.get(counted.path(f"usage/?month={LAST}")).content.decode()
    link = re.search(r'href="([^"]*records/[^"]*consumer_group=ledger)"', page)
    assert link is not None
    rows = client.get(link.group(1).replace("&amp;", "&"))
    assert rows.context["sum"]["amount"] == Decimal("0.4") * (LAST.end - LAST.start).days
    assert all(row.consumer_group == "ledger" for row in rows.context["rows"])


def test_what_was_delivered_in_too_many_pairs_to_list_is_shown_as_such(counted: World) -> None:
    use(counted.cluster, LAST.start, "0", direction="out", topic=OTHERS, group=OTHERS, messages=70_000_000)
    client = counted.client(counted.alice)
    for path in (f"usage/?month={LAST}", f"usage/records/?month={LAST}&consumer_group={OTHERS}"):
        page = client.get(counted.path(path)).content.decode()
        assert "many topics, counted together" in page
        assert "many groups, counted together" in page


def test_times_are_in_the_tenants_zone_with_utc_in_the_title(counted: World) -> None:
    client = counted.client(counted.alice)
    response = client.post(counted.path("settings/"), {"name": "Acme Trading", "time_zone": "Asia/Kolkata"})
    assert response.status_code == 302
    page = client.get(counted.path("usage/")).content.decode()
    assert re.search(r'title="[-0-9 :.]+ UTC">[^<]+ IST</time>', page)
    assert "Times are shown in Asia/Kolkata" in page


def test_an_unknown_zone_is_refused_beside_its_field(world: World) -> None:
    response = world.client(world.alice).post(world.path("settings/"), {"name": "Acme", "time_zone": "Mars/Base"})
    assert response.status_code == 422
    world.tenant.refresh_from_db()
    assert world.tenant.time_zone == "UTC"


def test_an_owner_sets_and_removes_a_budget_and_a_member_may_not(counted: World) -> None:
    client = counted.client(counted.alice)
    assert client.post(counted.path("budget/"), {"amount": "250.00", "currency": "EUR"}).status_code == 302
    assert Budget.objects.get().amount == Decimal("250.00")
    assert "of 250.00 EUR is spent" in client.get(counted.path("usage/")).content.decode()
    assert counted.client(counted.bob).post(counted.path("budget/"), {"amount": "1"}).status_code == 403
    assert client.post(counted.path("budget/"), {"remove": "1"}).status_code == 302
    assert not Budget.objects.exists()


def test_a_budget_says_what_it_does_not_count(counted: World) -> None:
    budget_set(actor=counted.alice, tenant=counted.tenant, amount=Decimal("250"), currency="USD")
    page = counted.client(counted.alice).get(counted.path("usage/")).content.decode()
    assert "What was spent in EUR is not counted." in page


@pytest.mark.parametrize("amount", ["0", "-1", "x", "1.001", "1e20"])
def test_a_budget_that_is_none_is_refused_beside_its_field(world: World, amount: str) -> None:
    response = world.client(world.alice).post(world.path("budget/"), {"amount": amount, "currency": "EUR"})
    assert response.status_code == 422
    assert not Budget.objects.exists()


def test_a_reached_threshold_is_said_on_every_page_of_the_tenant(counted: World) -> None:
    budget_set(actor=counted.alice, tenant=counted.tenant, amount=Decimal("0.01"), currency="EUR")
    make_run(until=NOW)
    use(counted.cluster, NOW, "0.01", price=counted.tenant.subscriptions.get().plan.prices.get())
    budget_check(counted.tenant)
    for rest in ("", "members/", "clusters/orders/"):
        page = counted.client(counted.victor).get(counted.path(rest)).content.decode()
        assert "100 % of the budget for" in page, rest
    assert "of the budget" not in counted.client(counted.charlie).get("/t/globex/").content.decode()


def test_an_issued_invoice_has_a_number_lines_and_the_rows_behind_each(counted: World) -> None:
    make_run(until=NOW)
    invoices_issue(NOW)
    invoice = Invoice.objects.get(month=LAST.first_day)
    client = counted.client(counted.bob)
    response = client.get(counted.path(f"invoices/{invoice.number_text}/"))
    page = response.content.decode()
    assert f"data-total>{invoice.total} EUR" in page
    lines = response.context["invoice"].lines
    assert to_cents(sum((line.amount for line in lines), start=Decimal(0))) == invoice.total
    assert "rounded once to the cent" in page
    for line in lines:
        rows = client.get(counted.path(f"invoices/{invoice.number_text}/lines/{line.position}/"))
        assert rows.context["usage"].sum == line.exact_amount
        assert rows.context["usage"].difference == 0
    assert client.get(counted.path("invoices/HW-9999999/")).status_code == 404
    assert client.get(counted.path(f"invoices/{invoice.number_text}/lines/99/")).status_code == 404
    assert counted.client(counted.charlie).get(f"/t/globex/invoices/{invoice.number_text}/").status_code == 404


def test_a_draft_says_which_cluster_its_invoice_waits_for(counted: World) -> None:
    make_run(until=NOW)
    counted.cluster.__class__.objects.update(created_at=LAST.start)
    make_progress(counted.cluster, LAST.end - timedelta(hours=1))
    assert invoices_issue(NOW) == []
    client = counted.client(counted.bob)
    words = f"It waits for cluster {counted.cluster.name}: its metering is read until"
    assert words in client.get(counted.path("invoices/")).content.decode()
    assert words in client.get(counted.path(f"invoices/draft-{LAST}-eur/")).content.decode()


def corrected(counted: World) -> tuple[Invoice, str]:
    """An issued invoice of which hours were counted again, 0.60 less of what was sent, 1 more of what was stored; and the draft."""
    make_run(until=NOW)
    invoices_issue(NOW)
    invoice = Invoice.objects.get(month=LAST.first_day)
    hour = LAST.start + timedelta(hours=6)
    Usage.objects.filter(hour__in=(hour, hour + timedelta(days=1)), direction="in").update(amount=Decimal("0.1000050"))
    Usage.objects.filter(hour=hour, direction="storage").update(amount=Decimal("1.001"))
    (draft,) = [one for one in invoice_drafts(counted.tenant) if one.adjustments]
    return invoice, draft.name


def test_a_correction_is_shown_on_both_invoices_with_links_to_each_other(counted: World) -> None:
    invoice, draft = corrected(counted)
    client = counted.client(counted.bob)
    old = client.get(counted.path(f"invoices/{invoice.number_text}/")).content.decode()
    new = client.get(counted.path(f"invoices/{draft}/"))
    credit, charge = new.context["invoice"].adjustments
    assert [credit.amount, charge.amount] == [Decimal("-0.60"), Decimal("1.00")]
    assert f"data-total>{invoice.total} EUR" in old
    for line, words in ((credit, "Credit"), (charge, "Additional charge")):
        assert f"{line.position}. {words}" in new.content.decode()
        assert counted.path(f"invoices/{draft}/lines/{line.position}/") in old
        rows = client.get(counted.path(f"invoices/{draft}/lines/{line.position}/"))
        assert rows.context["usage"].month == LAST
        assert f"{invoice.number_text}, line" in rows.content.decode()
    assert f'{counted.path(f"invoices/{invoice.number_text}/")}"' in new.content.decode()


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_a_correction_look_right(
    page: Page, live_server: LiveServer, counted: World, log_in: LogIn
) -> None:
    invoice, draft = corrected(counted)
    log_in(counted.alice)
    page.goto(live_server.url + counted.path(f"invoices/{invoice.number_text}/"))
    look_at(page, "invoice that was corrected")
    page.locator("#corrected-by").get_by_role("link").first.click()
    expect(page.locator("#line-places")).to_be_visible()
    look_at(page, "invoice adjustment line")
    page.goto(live_server.url + counted.path(f"invoices/{draft}/"))
    expect(page.locator("[data-adjustment]")).to_have_count(2)
    look_at(page, "draft with adjustments")
    page.locator("[data-adjustment]").first.get_by_role("link", name=invoice.number_text).click()
    expect(page).to_have_url(re.compile(invoice.number_text))


def test_an_invoice_is_downloaded_as_csv(counted: World) -> None:
    response = counted.client(counted.bob).get(counted.path(f"invoices/draft-{THIS}-eur/csv/"))
    if THIS.start + timedelta(hours=13) > NOW:
        assert response.status_code == 404  # nothing was used this month yet
        return
    assert response.headers["Content-Disposition"] == f'attachment; filename="draft-{THIS}-eur.csv"'
    assert response.content.decode().startswith("invoice,state,tenant,month,position,")


@pytest.mark.django_db(transaction=True)
def test_the_pages_of_billing_look_right(page: Page, live_server: LiveServer, counted: World, log_in: LogIn) -> None:
    make_run(until=NOW)
    invoices_issue(NOW)
    budget_set(actor=counted.alice, tenant=counted.tenant, amount=Decimal("30"), currency="EUR")
    budget_check(counted.tenant)
    number = Invoice.objects.get(month=LAST.first_day).number_text
    log_in(counted.alice)
    for name, rest in (
        ("usage", f"usage/?month={LAST}"),
        ("invoices", "invoices/"),
        ("invoice", f"invoices/{number}/"),
        ("invoice line", f"invoices/{number}/lines/1/"),
        ("tenant settings", "settings/"),
    ):
        page.goto(live_server.url + counted.path(rest))
        if name == "usage":
            expect(page.locator("#cost")).to_have_attribute("data-state", "drawn")
            assert_drawn(page, "cost")
        look_at(page, name)


@pytest.mark.django_db(transaction=True)
def test_a_day_that_was_not_counted_is_shaded_and_one_that_cost_nothing_is_not(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    subscribe(world.tenant, make_plan())
    type(world.tenant).objects.update(created_at=LAST.start)
    half = LAST.start + (LAST.end - LAST.start) / 2
    use(world.cluster, LAST.start, "1", price=world.tenant.subscriptions.get().plan.prices.get())
    make_run(until=half, since=LAST.start)
    log_in(world.bob)
    page.goto(live_server.url + world.path(f"usage/?month={LAST}"))
    expect(page.locator("#cost")).to_have_attribute("data-state", "drawn")
    expect(page.get_by_text("Shaded: not known.").first).to_be_visible()
    assert is_painted(page, "cost", 0.12, 0.35, 0.85) == [False, True]


@pytest.mark.django_db(transaction=True)
def test_a_chart_is_read_by_keyboard_and_agrees_with_its_table(
    page: Page, live_server: LiveServer, counted: World, log_in: LogIn
) -> None:
    log_in(counted.alice)
    page.goto(live_server.url + counted.path(f"usage/?month={LAST}"))
    chart = page.locator("#cost")
    expect(chart).to_have_attribute("data-state", "drawn")
    chart.focus()
    page.keyboard.press("Home")
    reading = page.locator("#cost-reading")
    expect(reading).to_contain_text("1.20\u202fEUR".replace("\u202f", " "))
    first = page.locator('[data-twin="cost"] tbody tr').first
    label, words = first.locator("th").text_content() or "", first.locator("td").text_content() or ""
    expect(reading).to_have_text(f"{label}. Cost in EUR: {words}")
    page.keyboard.press("ArrowRight")
    expect(reading).to_contain_text(
        page.locator('[data-twin="cost"] tbody tr').nth(1).locator("th").text_content() or ""
    )
    page.get_by_text("The same as a table").first.click()
    expect(first).to_be_visible()


@pytest.mark.django_db(transaction=True)
def test_without_scripts_each_chart_is_a_table(counted: World) -> None:
    page = counted.client(counted.alice).get(counted.path(f"usage/?month={LAST}")).content.decode()
    charts, tables = (
        re.findall(pattern, page) for pattern in (r'"chart needs-script" id="([^"]+)', r'data-twin="([^"]+)')
    )
    assert charts
    assert charts == tables
