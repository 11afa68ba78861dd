"""Addresses of the billing API, below /api/v1/."""

from django.urls import path

from controlplane.billing import apis, operator_apis

_TENANT = "tenants/<slug:tenant>/"
_INVOICE = f"{_TENANT}invoices/<slug:invoice>/"
_PLAN = "operator/plans/<slug:plan>/"

urlpatterns = [
    path(f"{_TENANT}usage/", apis.UsageApi.as_view(), name="usage"),
    path(f"{_TENANT}usage/breakdown/", apis.UsageBreakdownApi.as_view(), name="usage-breakdown"),
    path(f"{_TENANT}usage/export/<slug:kind>/", apis.UsageExportApi.as_view(), name="usage-export"),
    path(f"{_TENANT}usage/records/", apis.UsageRecordListApi.as_view(), name="usage-record-list"),
    path(f"{_TENANT}plan/", apis.TenantPlanApi.as_view(), name="tenant-plan"),
    path(f"{_TENANT}budget/", apis.BudgetApi.as_view(), name="budget"),
    path(f"{_TENANT}invoices/", apis.InvoiceListApi.as_view(), name="invoice-list"),
    path(_INVOICE, apis.InvoiceDetailApi.as_view(), name="invoice-detail"),
    path(f"{_INVOICE}pdf/", apis.InvoicePdfApi.as_view(), name="invoice-pdf"),
    path(f"{_INVOICE}csv/", apis.InvoiceCsvApi.as_view(), name="invoice-csv"),
    path(f"{_INVOICE}lines/<int:position>/usage/", apis.InvoiceLineUsageApi.as_view(), name="invoice-line-usage"),
    path(
        "operator/invoices/<slug:invoice>/reproductions/",
        operator_apis.InvoiceReproductionListApi.as_view(),
        name="invoice-reproduction-list",
    ),
    path("operator/plans/", operator_apis.PlanListApi.as_view(), name="plan-list"),
    path(_PLAN, operator_apis.PlanDetailApi.as_view(), name="plan-detail"),
    path(f"{_PLAN}prices/", operator_apis.PriceListApi.as_view(), name="price-list"),
    path(f"{_PLAN}prices/<uuid:price_id>/", operator_apis.PriceDetailApi.as_view(), name="price-detail"),
    path("operator/subscriptions/", operator_apis.SubscriptionListApi.as_view(), name="subscription-list"),
]
