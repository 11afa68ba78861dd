"""Pages of usage: a month by day and by what it was for, the rows behind, and the budget."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.billing.apis import export_response
from controlplane.billing.budgets import budget_get, budget_remove, budget_set, budget_status
from controlplane.billing.exports import has_parquet
from controlplane.billing.money import DEFAULT_CURRENCY
from controlplane.billing.periods import Month
from controlplane.billing.selectors import (
    By,
    UsageFilter,
    month_breakdown,
    month_usage,
    price_at,
    subscription_at,
    usage_rows,
    usage_sum,
)
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.billing_forms import BudgetForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.console.views.usage_parts import part_charts, usage_charts
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

_PARTS_MAX = 50
ROWS_PER_PAGE = 100
_TITLES = {By.TOPIC: _("By topic"), By.GROUP: _("By consumer group"), By.CREDENTIAL: _("By credential")}
_CAPTIONS = {
    By.TOPIC: _("Usage by topic"),
    By.GROUP: _("Usage by consumer group"),
    By.CREDENTIAL: _("Usage by credential"),
}
_NONE = {
    By.TOPIC: "–",
    By.GROUP: _("no group: sends and storage"),
    By.CREDENTIAL: _("no credential: storage, and usage recounted from the log"),
}
# What was delivered in more pairs of topic and group than a broker lists.
_OTHERS = {By.TOPIC: _("many topics, counted together"), By.GROUP: _("many groups, counted together")}


def month_asked(request: ConsoleRequest) -> Month:
    """Return the month of the address, by default the present one; raises InvalidInput."""
    text = request.GET.get("month")
    return Month.parse(text) if text else Month.of(timezone.now())


@require_safe
@tenant_page("billing.view")
def usage_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show a month: what it cost, what it will cost, and what it was for."""
    month = month_asked(request)
    usage = month_usage(tenant, month)
    now = timezone.now()
    subscription = subscription_at(tenant, now)
    breakdowns = [
        {
            "id": by.value,
            "title": _TITLES[by],
            "caption": _CAPTIONS[by],
            "none": _NONE[by],
            "others": _OTHERS.get(by, ""),
            "found": month_breakdown(tenant, month, by, currency=usage.currency, limit=_PARTS_MAX),
        }
        for by in By
    ]
    context = {
        "usage": usage,
        "months": months_around(month, now, tenant.created_at),
        "is_current": month == Month.of(now),
        "charts": [*usage_charts(usage), *part_charts(tenant, usage)],
        "has_parquet": has_parquet(),
        "breakdowns": breakdowns,
        "budget": budget_status(tenant),
        "plan": None if subscription is None else subscription.plan,
        "price": None if subscription is None else price_at(subscription.plan, now),
        "can_budget": actor_can(request.user, "budget.manage", tenant),
        "curl": act_of("GET", f"{tenant.path}usage/?month={month}"),
    }
    return tenant_render(request, tenant, "console/usage.html", context, section="usage")


@require_safe
@tenant_page("billing.view")
def usage_export(request: ConsoleRequest, tenant: Tenant, kind: str) -> HttpResponse:
    """Return the month as a file: CSV, Parquet, or its cost in FOCUS 1.2."""
    return export_response(tenant, month_asked(request), kind)


@require_safe
@tenant_page("billing.view")
def usage_records(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the rows behind a number: hours of topics."""
    month = month_asked(request)
    wanted = _filter(request)
    rows = usage_rows(tenant, month, wanted)
    context = {
        "month": month,
        "wanted": [(title, value) for title, value in _filter_words(request) if value],
        "sum": usage_sum(rows),
        "rows": Paginator(rows, ROWS_PER_PAGE).get_page(request.GET.get("page")),
        "query": _query_without_page(request),
        "curl": act_of("GET", f"{tenant.path}usage/records/?{_query_without_page(request)}"),
    }
    return tenant_render(request, tenant, "console/usage_records.html", context, section="usage")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("budget.manage")
def budget_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Set or remove the budget."""
    budget = budget_get(tenant)
    subscription = subscription_at(tenant, timezone.now())
    first = {"currency": DEFAULT_CURRENCY if subscription is None else subscription.plan.currency}
    initial = first if budget is None else {"amount": budget.amount, "currency": budget.currency}
    if request.method == "POST" and request.POST.get("remove"):
        budget_remove(actor=request.user, tenant=tenant)
        tell_done(request, gettext("The budget is removed."))
        return redirect("console:usage", tenant.slug)
    form = BudgetForm(request.POST if request.method == "POST" else None, initial=initial)
    command = act_of("PUT", f"{tenant.path}budget/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            budget_set(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The budget is set."))
            return redirect("console:usage", tenant.slug)
    context = {
        "form": form,
        "budget": budget,
        "curl": command,
        "remove_act": act_of("DELETE", f"{tenant.path}budget/"),
    }
    return tenant_render(request, tenant, "console/budget.html", context, section="usage", status=status_of(form))


def months_around(month: Month, now: datetime, since: datetime) -> dict[str, Month | None]:
    """Return the month before and the one after, as far as they can hold anything."""
    return {
        "before": month.previous if month > Month.of(since) else None,
        "after": month.next if month < Month.of(now) else None,
    }


def _filter(request: ConsoleRequest) -> UsageFilter:
    values: dict[str, Any] = {
        name: request.GET[name]
        for name in ("direction", "topic", "consumer_group", "credential", "kind")
        if name in request.GET
    }
    for name in ("cluster_id", "price_id"):
        if request.GET.get(name):
            values[name] = _uuid(request.GET[name])
    return UsageFilter(**values)


def _uuid(text: str) -> UUID:
    """The key, or one that nothing has."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


def _filter_words(request: ConsoleRequest) -> list[tuple[str, str]]:
    titles = {
        "direction": gettext("Direction"),
        "topic": gettext("Topic"),
        "consumer_group": gettext("Group"),
        "credential": gettext("Credential"),
    }
    return [(title, request.GET.get(name, "")) for name, title in titles.items()]


def _query_without_page(request: ConsoleRequest) -> str:
    query = request.GET.copy()
    query.pop("page", None)
    return query.urlencode()
