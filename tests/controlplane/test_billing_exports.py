"""A month as files: CSV, Parquet, FOCUS 1.2, and an invoice as PDF; and the operators' pages of what waits."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import struct
import sys
import zlib
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone
from fpdf import FPDF

from controlplane.accounts.models import User
from controlplane.billing import exports
from controlplane.billing import invoice_pdf as invoice_pdf_module
from controlplane.billing.closing import issue_time
from controlplane.billing.focus import COLUMNS
from controlplane.billing.invoice_pdf import broken, invoice_pdf
from controlplane.billing.invoices import invoice_get, invoices_issue
from controlplane.billing.models import Price
from controlplane.billing.periods import Month
from controlplane.clusters.models import Cluster
from controlplane.common.catalogues import read_catalogue
from controlplane.console.views import invoices as invoices_module
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState
from controlplane.insight.selectors import ingest_delays
from tests.controlplane.billing_world import make_plan, make_progress, make_run, subscribe, use
from tests.controlplane.world import Json, World

OCT = Month(2026, 10)
DUE = issue_time(OCT)
EXPORT = "/api/v1/tenants/acme/usage/export/"


@pytest.fixture
def price(world: World) -> Price:
    """October of acme: two days of one topic, and what it stored."""
    plan = make_plan()
    subscribe(world.acme, plan)
    price = plan.prices.get()
    for hour in (0, 1, 24):
        use(world.cluster, OCT.start + timedelta(hours=hour), "0.04", messages=1000, credential="AK1", price=price)
    use(world.cluster, OCT.start, "0.0064516129", direction="storage", size=2**31, price=price)
    use(world.cluster, OCT.start, "0", topic="=free", messages=7)
    return price


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_the_csv_has_a_row_for_each_day_topic_direction_and_credential(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    answer = api(world.bob).call("GET", f"{EXPORT}csv/?month=2026-10")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="usage-2026-10.csv"'
    found = rows_of(answer.content)
    assert [(row["day"], row["direction"], row["topic"], row["messages"], row["byte_hours"]) for row in found] == [
        ("2026-10-01", "in", "'=free", "7", "0"),
        ("2026-10-01", "in", "payments", "2000", "0"),
        ("2026-10-01", "storage", "payments", "0", str(2**31)),
        ("2026-10-02", "in", "payments", "1000", "0"),
    ]
    assert sum(Decimal(row["amount"]) for row in found) == Decimal("0.1264516129")
    assert found[0]["amount"] == "0.0000000000", "no exponent, as in 0E-10"


def test_parquet_has_the_same_rows(world: World, api: Callable[..., Json], price: Price) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the dependency group `etl`")
    answer = api(world.bob).call("GET", f"{EXPORT}parquet/?month=2026-10")
    table = parquet.read_table(io.BytesIO(answer.content))
    assert table.column_names == list(exports.ExportRow._fields)
    assert sum(table.column("amount").to_pylist()) == Decimal("0.1264516129")
    assert sum(table.column("messages").to_pylist()) == 3007
    assert parquet.read_table(io.BytesIO(exports.usage_parquet(world.acme, OCT.previous))).num_rows == 0


def test_without_pyarrow_the_answer_says_so_and_what_to_take_instead(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    with patch.object(exports, "has_parquet", return_value=False):
        answer = api(world.bob).call("GET", f"{EXPORT}parquet/?month=2026-10")
    assert (answer.status_code, answer.json()["code"]) == (409, "no_parquet")
    assert "CSV" in answer.content.decode()


def test_parquet_is_written_with_the_packages_that_were_installed_for_spark(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under ./dev up, whose environment has no pyarrow."""
    packages = tmp_path / "packages"
    (packages / "pyarrow").mkdir(parents=True)
    (packages / "pyarrow" / "__init__.py").touch()
    settings.HIGHWATER_SPARK_SETUP = str(tmp_path / "setup.json")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: PathFinder.find_spec(name, sys.path))
    assert not exports.has_parquet()
    setup = {"sentence": "Spark.", "packages": str(packages), "updated_at": timezone.now().isoformat()}
    for state, there in (("installing", False), ("ready", True)):
        (tmp_path / "setup.json").write_text(json.dumps({**setup, "state": state}))
        assert exports.has_parquet() == there
    assert sys.path == [str(tmp_path), str(packages)]


def test_the_focus_export_has_the_columns_and_sums_to_the_cost(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    make_run(until=DUE)
    invoices_issue(DUE)
    found = rows_of(api(world.bob).call("GET", f"{EXPORT}focus/?month=2026-10").content)
    assert tuple(found[0]) == COLUMNS
    assert sum(Decimal(row["BilledCost"]) for row in found) == Decimal("0.1264516129")
    assert {(row["InvoiceId"], row["BillingCurrency"], row["ChargeCategory"]) for row in found} == {
        ("HW-0000001", "EUR", "Usage")
    }
    sent = next(row for row in found if row["SkuMeter"] == "Messages sent")
    assert Decimal(sent["ContractedUnitPrice"]) * Decimal(sent["PricingQuantity"]) == Decimal(sent["ContractedCost"])
    assert (sent["ChargePeriodStart"], sent["ChargePeriodEnd"]) == ("2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z")


def test_a_tenant_exports_its_own_usage_only(world: World, api: Callable[..., Json], price: Price) -> None:
    assert api(world.charlie).call("GET", f"{EXPORT}csv/").status_code == 404
    assert api(world.bob).call("GET", f"{EXPORT}xml/").status_code == 404
    own = api(world.charlie).call("GET", "/api/v1/tenants/globex/usage/export/csv/?month=2026-10")
    assert rows_of(own.content) == []


def test_an_invoice_is_a_pdf_and_the_same_invoice_the_same_file(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    answer = api(world.bob).call("GET", f"{invoice.path}pdf/")
    assert answer.headers["Content-Type"] == "application/pdf"
    assert answer.content.startswith(b"%PDF-")
    page = f"{settings.HIGHWATER_PUBLIC_URL}/t/acme/invoices/{invoice.number_text}/"
    assert answer.content == invoice_pdf(invoice_get(world.acme, invoice.number_text), page)


def test_each_line_of_the_pdf_opens_its_rows(world: World, price: Price) -> None:
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    client = log_in(world.bob)
    content = client.get(f"/t/acme/invoices/{invoice.number_text}/pdf/").content
    found = re.findall(rb"/URI \(([^)]*)\)", content)
    assert len(found) == invoice.lines.count() > 1
    assert [client.get(urlsplit(url.decode()).path).status_code for url in found] == [200] * len(found)


def test_the_pdf_shows_chinese_and_cyrillic_names_in_a_font_of_its_own(world: World, price: Price) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(name="订单 – ’prod’")
    use(world.cluster, OCT.start, "1", topic="платежи", price=price)
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    content = invoice_pdf(invoice_get(world.acme, invoice.number_text), "https://x/")
    assert b"NotoSansSC" in content
    assert letters_of(content) >= set("订单платежи")


def test_letters_that_no_font_of_the_pdf_has_are_question_marks(world: World, price: Price) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(name="订单 \N{PERSONAL COMPUTER}")
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    assert "?" in letters_of(invoice_pdf(invoice_get(world.acme, invoice.number_text), "https://x/"))


def test_a_pdf_of_latin_names_brings_no_font(world: World, price: Price) -> None:
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    assert b"NotoSansSC" not in invoice_pdf(invoice_get(world.acme, invoice.number_text), "https://x/")


def test_an_invoice_is_printed_in_chinese_and_its_text_can_be_copied(
    world: World, api: Callable[..., Json], price: Price
) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(name="Łódź")
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    answer = api(world.bob).call("GET", f"{invoice.path}pdf/?language=zh-hans")
    assert "HW-0000001-zh-hans.pdf" in answer.headers["Content-Disposition"]
    text = text_of(answer.content)
    words = ["账单 HW-0000001", "2026 年 10 月（UTC）", "每百万计费单位 40.00", "总计（舍入到分）", "第 1 页"]  # noqa: RUF001  # Chinese marks
    assert [word for word in words if word not in text] == []
    assert re.findall(r"[A-Za-z?]+", text.replace("?ód?", "")) == [
        *("HW", "Acme", "UTC", "UTC", "UTC", "EUR", "EUR"),
        *("payments", "payments", "GiB", "GiB", "EUR", "HW", "Acme"),
    ]


def test_the_console_offers_the_pdf_in_its_own_language_and_in_the_other(world: World, price: Price) -> None:
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    client = log_in(world.bob)
    page = f"/t/acme/invoices/{invoice.number_text}/"
    client.cookies["language"] = "zh-hans"
    [own, other] = re.findall(r'href="([^"]*/pdf/[^"]*)"', client.get(page).content.decode())
    assert "账单" in text_of(client.get(own).content)
    assert b"NotoSansSC" not in client.get(other).content


def test_a_page_has_no_more_lines_than_the_pdf_and_says_so(
    world: World, price: Price, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(until=DUE)
    (invoice,) = invoices_issue(DUE)
    assert invoice.lines.count() == 2
    for module in (invoice_pdf_module, invoices_module):
        monkeypatch.setattr(module, "LINES_MAX", 1)
    page = log_in(world.bob).get(f"/t/acme/invoices/{invoice.number_text}/").content.decode()
    assert page.count('scope="row"><a href="/t/acme/invoices/HW-0000001/lines/') == 1
    assert "1 more line is in the CSV; the total has it." in page


def test_the_font_of_the_pdf_has_every_letter_of_the_chinese_console() -> None:
    pdf = FPDF()
    pdf.add_font("ours", fname=Path(invoice_pdf_module.__file__).parent / "fonts" / "NotoSansSC.ttf")
    known = getattr(pdf.fonts["ours"], "cmap")  # noqa: B009  # a standard font has none
    words = "".join(read_catalogue(Path(settings.ROOT_DIR) / "web" / "locale" / "zh_Hans").values())
    assert {letter for letter in words if letter.isprintable() and ord(letter) not in known} == set()


def test_a_chinese_line_breaks_between_letters_but_not_before_a_mark_nor_in_a_latin_word() -> None:
    lines = broken("总计（舍入）。A total of 1", 3, len).split("\n")  # noqa: RUF001  # Chinese marks
    assert lines == ["总计", "（舍", "入）。", "A", "total", "of", "1"]  # noqa: RUF001  # Chinese marks


def letters_of(pdf: bytes) -> set[str]:
    """What the embedded font of a PDF shows, by its table of Unicode values."""
    return set(_letters(pdf).values())


def text_of(pdf: bytes) -> str:
    """What a reader copies from a PDF that is in its embedded font throughout, a line for each text."""
    letters = _letters(pdf)
    streams = [found for found in re.findall(rb"stream\n(.*?)\nendstream", pdf, re.DOTALL) if found.startswith(b"x")]
    shown = [text for page in streams for text in re.findall(rb"\((.*?)(?<!\\)\) Tj", zlib.decompress(page), re.DOTALL)]
    plain = [re.sub(rb"\\(.)", lambda found: found[1].replace(b"r", b"\r"), text, flags=re.DOTALL) for text in shown]
    return "\n".join("".join(letters[code] for (code,) in struct.iter_unpack(">H", text)) for text in plain)


def _letters(pdf: bytes) -> dict[int, str]:
    values = re.findall(rb"<([0-9A-F]{4})> <([0-9A-F]{4})>\n", pdf)
    return {int(code, 16): bytes.fromhex(value.decode()).decode("utf-16-be") for code, value in values}


def log_in(user: User) -> Client:
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def operator() -> Client:
    return log_in(User.objects.create_user("olga@example.com", is_staff=True))


def test_an_operator_sees_what_waits_and_agrees_on_an_end(world: World, price: Price) -> None:
    make_run(until=DUE)
    make_progress(world.cluster, OCT.end - timedelta(hours=1), ingest_error="10.0.0.7:9876 refused")
    client = operator()
    waiting = client.get("/operator/invoices/").content.decode()
    path = f"/operator/clusters/{world.cluster.pk}/metering/"
    assert "its metering is read until 2026-10-31 23:00 UTC" in waiting
    assert "10.0.0.7:9876 refused" in waiting
    assert path in waiting
    assert "not known" in client.get(path).content.decode()  # the bound: no sample was taken
    assert client.post(path, {"until": "2026-11-01 00:00", "reason": ""}).status_code == 422
    assert client.post(path, {"until": "2026-11-01 00:00", "reason": "Its disk is lost."}).status_code == 302
    assert ClusterProgress.objects.get(pk=world.cluster.pk).agreed_until == OCT.end
    assert "No invoice waits" in client.get("/operator/invoices/").content.decode()


def test_others_do_not_find_the_operators_pages(world: World, api: Callable[..., Json]) -> None:
    client = Client()
    client.force_login(world.alice, backend="django.contrib.auth.backends.ModelBackend")
    for path in ("/operator/invoices/", f"/operator/clusters/{world.cluster.pk}/metering/"):
        assert client.get(path).status_code == 404
    assert api(world.alice).call("GET", f"/api/v1/operator/clusters/{world.cluster.pk}/metering/").status_code == 404


def test_a_run_is_replayed_as_a_backfill_of_its_range(world: World) -> None:
    run = make_run(until=DUE, rows_late=3, rows_refused=2)
    client = operator()
    page = client.get("/operator/jobs/").content.decode()
    assert 'data-label="Late" class="cell--number"><strong>3</strong><' in page
    assert 'data-label="Refused" class="cell--number"><strong>2</strong><' in page
    assert client.post(f"/operator/jobs/{run.pk}/replay/").status_code == 302
    again = JobRun.objects.get(state=JobRunState.QUEUED)
    assert (again.job, again.range_from, again.range_to, again.is_backfill) == (
        run.job,
        run.range_from,
        run.range_to,
        True,
    )


def test_the_reason_of_a_failure_is_its_first_line() -> None:
    error = "Traceback (most recent call last):\n\nThe lake can't be read.\n  at java"
    assert JobRun(error=error).failure == "The lake can't be read."
    assert JobRun(error="").failure == ""


def test_the_ingest_delay_is_from_the_begin_of_the_run_before(world: World) -> None:
    for minutes in (0, 5, 10):
        make_run(job=Job.INGEST, until=DUE + timedelta(minutes=minutes))
    assert [delay.length for delay in ingest_delays()] == [timedelta(minutes=5, seconds=5)] * 2
