"""REST for tenants: usage, budget, invoices, the plan."""

from typing import Any, ClassVar

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone, translation
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.billing.budgets import budget_remove, budget_set, budget_status
from controlplane.billing.exports import cost_focus_csv, usage_csv, usage_parquet
from controlplane.billing.invoice_csv import invoice_csv
from controlplane.billing.invoice_pdf import invoice_pdf
from controlplane.billing.invoices import InvoiceView, invoice_drafts, invoice_get, invoice_list, line_usage
from controlplane.billing.models import Invoice, InvoiceState
from controlplane.billing.periods import Month
from controlplane.billing.selectors import (
    By,
    UsageFilter,
    month_breakdown,
    month_usage,
    price_at,
    subscription_at,
    usage_rows,
)
from controlplane.billing.serializers import (
    BreakdownQuerySerializer,
    BreakdownSerializer,
    BudgetSerializer,
    BudgetSetSerializer,
    InvoiceHeadSerializer,
    InvoiceListSerializer,
    InvoiceSerializer,
    MonthUsageSerializer,
    PdfQuerySerializer,
    TenantPlanSerializer,
    UsageQuerySerializer,
    UsageRecordQuerySerializer,
    UsageRecordSerializer,
)
from controlplane.common.downloads import OneAnswer, as_download
from controlplane.common.errors import NotFound
from controlplane.common.pagination import CursorPagination, paginated
from controlplane.common.sentences import say
from controlplane.tenants.api_base import TenantApi
from controlplane.tenants.models import Tenant


class ByHour(CursorPagination):
    """For usage rows."""

    ordering = ("hour", "id")


class ByNumber(CursorPagination):
    """For invoices."""

    ordering = ("-number",)


class UsageApi(TenantApi):
    """Usage of a month."""

    permissions: ClassVar = {"GET": "billing.view"}

    @extend_schema(
        operation_id="usage_get", parameters=[UsageQuerySerializer], responses=MonthUsageSerializer, tags=["billing"]
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Return the month by day, what it cost so far, and the forecast to its end."""
        return Response(MonthUsageSerializer(month_usage(self.tenant, month_of(request))).data)


class UsageBreakdownApi(TenantApi):
    """What a month was for."""

    permissions: ClassVar = {"GET": "billing.view"}

    @extend_schema(
        operation_id="usage_breakdown",
        parameters=[BreakdownQuerySerializer],
        responses=BreakdownSerializer,
        tags=["billing"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """Return the month by topic, by consumer group or by credential: each way it adds up to the month."""
        query = BreakdownQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        month = month_of(request)
        usage = month_usage(self.tenant, month)
        values = query.validated_data
        found = month_breakdown(self.tenant, month, By(values["by"]), currency=usage.currency, limit=values["limit"])
        data = {
            "month": str(month),
            "by": found.by.value,
            "counted_until": usage.counted.until,
            "results": found.parts,
            "others": found.others,
            "others_count": found.left_out,
        }
        return Response(BreakdownSerializer(data).data)


class UsageExportApi(TenantApi):
    """A month's usage as a file."""

    permissions: ClassVar = {"GET": "billing.view"}
    problems: ClassVar = {"GET": (409,)}
    content_negotiation_class = OneAnswer

    @extend_schema(
        operation_id="usage_export",
        parameters=[UsageQuerySerializer],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY},
        tags=["billing"],
    )
    def get(self, request: Request, tenant: str, kind: str) -> HttpResponse:
        """Return the month by day, topic, direction, group and credential: `csv` or `parquet`; or `focus`, its cost in
        FOCUS 1.2.
        """
        return export_response(self.tenant, month_of(request), kind)


class UsageRecordListApi(TenantApi):
    """The rows that everything else is made of."""

    permissions: ClassVar = {"GET": "billing.view"}
    pagination_class: type[CursorPagination] = ByHour

    @extend_schema(
        operation_id="usage_record_list",
        parameters=[UsageRecordQuerySerializer],
        responses=UsageRecordSerializer(many=True),
        tags=["billing"],
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List usage rows of a month, by hour."""
        query = UsageRecordQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values: dict[str, Any] = {name: value for name, value in query.validated_data.items() if name != "month"}
        rows = usage_rows(self.tenant, month_of(request), UsageFilter(**values))
        return paginated(self, request, rows, UsageRecordSerializer)


class BudgetApi(TenantApi):
    """The budget."""

    permissions: ClassVar = {"GET": "billing.view", "PUT": "budget.manage", "DELETE": "budget.manage"}

    @extend_schema(operation_id="budget_get", responses=BudgetSerializer, tags=["billing"])
    def get(self, request: Request, tenant: str) -> Response:
        """Return the budget and how much of it is spent; 404 without one."""
        return self._status()

    @extend_schema(operation_id="budget_set", request=BudgetSetSerializer, responses=BudgetSerializer, tags=["billing"])
    def put(self, request: Request, tenant: str) -> Response:
        """Set the budget of each UTC month. It notifies at 50, 80 and 100 %; nothing is stopped."""
        form = BudgetSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        budget_set(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return self._status()

    @extend_schema(operation_id="budget_remove", responses={204: None}, tags=["billing"])
    def delete(self, request: Request, tenant: str) -> Response:
        """Remove the budget."""
        budget_remove(actor=self.actor, tenant=self.tenant)
        return Response(status=204)

    def _status(self) -> Response:
        status = budget_status(self.tenant)
        if status is None:
            raise NotFound(say("There is no budget."))
        return Response(BudgetSerializer(status).data)


class InvoiceListApi(TenantApi):
    """Invoices."""

    permissions: ClassVar = {"GET": "billing.view"}

    @extend_schema(operation_id="invoice_list", responses=InvoiceListSerializer, tags=["billing"])
    def get(self, request: Request, tenant: str) -> Response:
        """List drafts (on the first page), then issued invoices, newest first."""
        paginator = ByNumber()
        page: list[Invoice] = paginator.paginate_queryset(invoice_list(self.tenant), request) or []
        first = "cursor" not in request.query_params
        heads: list[Any] = [*(invoice_drafts(self.tenant) if first else []), *map(_head, page)]
        return paginator.get_paginated_response(InvoiceHeadSerializer(heads, many=True).data)


class InvoiceDetailApi(TenantApi):
    """One invoice."""

    permissions: ClassVar = {"GET": "billing.view"}

    @extend_schema(operation_id="invoice_get", responses=InvoiceSerializer, tags=["billing"])
    def get(self, request: Request, tenant: str, invoice: str) -> Response:
        """Return an invoice with its lines, by its number or by a draft's name."""
        return Response(InvoiceSerializer(invoice_get(self.tenant, invoice)).data)


class InvoicePdfApi(TenantApi):
    """An invoice to be printed."""

    permissions: ClassVar = {"GET": "billing.view"}
    content_negotiation_class = OneAnswer

    @extend_schema(
        operation_id="invoice_pdf",
        parameters=[PdfQuerySerializer],
        responses={(200, "application/pdf"): OpenApiTypes.BINARY},
        tags=["billing"],
    )
    def get(self, request: Request, tenant: str, invoice: str) -> HttpResponse:
        """Return the invoice as PDF, in English or in Chinese."""
        query = PdfQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        return pdf_response(invoice_get(self.tenant, invoice), query.validated_data["language"])


class InvoiceCsvApi(TenantApi):
    """An invoice for spreadsheets."""

    permissions: ClassVar = {"GET": "billing.view"}
    content_negotiation_class = OneAnswer

    @extend_schema(operation_id="invoice_csv", responses={(200, "text/csv"): OpenApiTypes.STR}, tags=["billing"])
    def get(self, request: Request, tenant: str, invoice: str) -> HttpResponse:
        """Return the invoice as CSV: a header, a record for each line, and the total as the last."""
        return csv_response(invoice_get(self.tenant, invoice))


class InvoiceLineUsageApi(TenantApi):
    """What a line is made of."""

    permissions: ClassVar = {"GET": "billing.view"}
    pagination_class: type[CursorPagination] = ByHour

    @extend_schema(operation_id="invoice_line_usage", responses=UsageRecordSerializer(many=True), tags=["billing"])
    def get(self, request: Request, tenant: str, invoice: str, position: int) -> Response:
        """List the usage rows behind a line, by hour."""
        found = line_usage(invoice_get(self.tenant, invoice), position)
        return paginated(self, request, found.rows, UsageRecordSerializer)


class TenantPlanApi(TenantApi):
    """The tenant's plan."""

    permissions: ClassVar = {"GET": "billing.view"}

    @extend_schema(operation_id="tenant_plan_get", responses=TenantPlanSerializer, tags=["billing"])
    def get(self, request: Request, tenant: str) -> Response:
        """Return the plan that the tenant has now, with its price."""
        now = timezone.now()
        subscription = subscription_at(self.tenant, now)
        plan = None if subscription is None else subscription.plan
        price = None if plan is None else price_at(plan, now)
        return Response(TenantPlanSerializer({"plan": plan, "price": price}).data)


def month_of(request: Request) -> Month:
    """Return the month that was asked for, by default the present one; raises InvalidInput."""
    text = request.query_params.get("month")
    return Month.of(timezone.now()) if text is None else Month.parse(text)


def csv_response(invoice: InvoiceView) -> HttpResponse:
    """Return the answer that a browser saves as a file."""
    return as_download(HttpResponse(invoice_csv(invoice), content_type="text/csv; charset=utf-8"), invoice.name, "csv")


def pdf_response(invoice: InvoiceView, language: str) -> HttpResponse:
    """Return the invoice, in one of settings.LANGUAGES, as a PDF that a browser saves as a file."""
    page_url = f"{settings.HIGHWATER_PUBLIC_URL}/t/{invoice.tenant.slug}/invoices/{invoice.name}/"
    with translation.override(language):
        content = invoice_pdf(invoice, page_url)
    name = invoice.name if language == settings.LANGUAGE_CODE else f"{invoice.name}-{language}"
    return as_download(HttpResponse(content, content_type="application/pdf"), name, "pdf")


def export_response(tenant: Tenant, month: Month, kind: str) -> HttpResponse:
    """Return a month's usage as a file; raises NotFound for a kind that there is not."""
    match kind:
        case "csv":
            response = HttpResponse(usage_csv(tenant, month), content_type="text/csv; charset=utf-8")
            return as_download(response, f"usage-{month}", "csv")
        case "parquet":
            response = HttpResponse(usage_parquet(tenant, month), content_type="application/vnd.apache.parquet")
            return as_download(response, f"usage-{month}", "parquet")
        case "focus":
            response = HttpResponse(cost_focus_csv(tenant, month), content_type="text/csv; charset=utf-8")
            return as_download(response, f"focus-1.2-{month}", "csv")
    raise NotFound(say("Usage is exported as csv, parquet or focus."))


def _head(invoice: Invoice) -> dict[str, Any]:
    return {
        "name": invoice.number_text,
        "path": invoice.path,
        "number": invoice.number_text,
        "state": InvoiceState.ISSUED,
        "month": f"{invoice.month:%Y-%m}",
        "currency": invoice.currency,
        "total": invoice.total,
        "issued_at": invoice.issued_at,
        "counted_until": invoice.counted_until,
    }
