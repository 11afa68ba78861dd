"""Pages of invoices: the list, one of them, and the usage behind each of its lines."""

from dataclasses import replace

from django.conf import settings
from django.core.paginator import Paginator
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.billing.apis import csv_response, pdf_response
from controlplane.billing.invoice_pdf import LINES_MAX, lines_left_words
from controlplane.billing.invoices import corrections, invoice_drafts, invoice_get, invoice_list, line_usage
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.pages import tenant_render
from controlplane.console.views.usage import ROWS_PER_PAGE
from controlplane.tenants.models import Tenant

_INVOICES_PER_PAGE = 60


@require_safe
@tenant_page("billing.view")
def invoice_list_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show drafts and issued invoices."""
    context = {
        "drafts": invoice_drafts(tenant),
        "invoices": Paginator(invoice_list(tenant), _INVOICES_PER_PAGE).get_page(request.GET.get("page")),
        "curl": act_of("GET", f"{tenant.path}invoices/"),
    }
    return tenant_render(request, tenant, "console/invoices.html", context, section="invoices")


@require_safe
@tenant_page("billing.view")
def invoice_page(request: ConsoleRequest, tenant: Tenant, invoice: str) -> HttpResponse:
    """Show an invoice, fit to be printed."""
    found = invoice_get(tenant, invoice)
    shown = replace(found, lines=found.lines[:LINES_MAX])
    context = {
        "invoice": found,
        "usage_lines": shown.usage_lines,
        "adjustments": shown.adjustments,
        "lines_left": lines_left_words(found),
        "corrections": corrections(found),
        "other_languages": [(code, name) for code, name in settings.LANGUAGES if code != request.LANGUAGE_CODE],
        "curl": act_of("GET", found.path),
    }
    return tenant_render(request, tenant, "console/invoice.html", context, section="invoices")


@require_safe
@tenant_page("billing.view")
def invoice_csv_page(request: ConsoleRequest, tenant: Tenant, invoice: str) -> HttpResponse:
    """Return the invoice as a file for spreadsheets."""
    return csv_response(invoice_get(tenant, invoice))


@require_safe
@tenant_page("billing.view")
def invoice_pdf_page(request: ConsoleRequest, tenant: Tenant, invoice: str) -> HttpResponse:
    """Return the invoice as PDF, in the language that was asked for, else in the page's."""
    asked = request.GET.get("language", "")
    language = asked if asked in dict(settings.LANGUAGES) else request.LANGUAGE_CODE
    return pdf_response(invoice_get(tenant, invoice), language)


@require_safe
@tenant_page("billing.view")
def invoice_line_page(request: ConsoleRequest, tenant: Tenant, invoice: str, position: int) -> HttpResponse:
    """Show the usage rows behind a line, and that they sum to it."""
    found = invoice_get(tenant, invoice)
    usage = line_usage(found, position)
    context = {
        "invoice": found,
        "line": usage.line,
        "usage": usage,
        "rows": Paginator(usage.rows, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "query": "",
        "curl": act_of("GET", f"{found.path}lines/{position}/usage/"),
    }
    return tenant_render(request, tenant, "console/invoice_line.html", context, section="invoices")
