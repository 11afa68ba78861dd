"""What every page is rendered with, and how an error of a service reaches the person who caused it."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.forms import BaseForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html

from controlplane.alerts.selectors import firing_count
from controlplane.billing.budgets import budget_alert_now
from controlplane.clusters.models import Operation
from controlplane.common.errors import ApplicationError, FactorNeeded
from controlplane.common.sentences import in_words, say, say_all
from controlplane.console.access import ConsoleRequest
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

HTTP_UNPROCESSABLE = 422


def tenant_render(
    request: ConsoleRequest,
    tenant: Tenant,
    template: str,
    context: Mapping[str, Any],
    *,
    section: str,
    page: str = "",
    status: int = 200,
) -> HttpResponse:
    """Render a page of a tenant. `section` and `page` mark where in the navigation it is."""
    response = render(
        request,
        template,
        {
            "tenant": tenant,
            "section": section,
            "page": page,
            "can_see_tokens": actor_can(request.user, "token.view", tenant),
            "can_see_audit": actor_can(request.user, "audit.view", tenant),
            "can_change_tenant": actor_can(request.user, "tenant.update", tenant),
            "budget_alert": budget_alert_now(tenant),
            "firing_count": firing_count(tenant) if actor_can(request.user, "alert.view", tenant) else None,
            **context,
        },
        status=status,
    )
    # A user who logs out on a shared machine leaves nothing behind the back button.
    response.headers["Cache-Control"] = "private, no-cache"
    return response


def status_of(form: BaseForm) -> int:
    """Return the HTTP status of a page with this form: 422 when it holds errors."""
    return HTTP_UNPROCESSABLE if form.is_bound and form.errors else 200


def operation_link(error: ApplicationError) -> str:
    """Return a link to the operation that an error names, or nothing."""
    path = error.extra.get("operation")
    if not isinstance(path, str):
        return ""
    found = Operation.objects.select_related("tenant").filter(pk=path.rstrip("/").rpartition("/")[2]).first()
    if found is None:
        return ""
    url = reverse("console:operation", args=[found.tenant.slug, found.pk])
    return format_html(' <a href="{}">{}</a>', url, in_words(say("Watch the progress")))


def form_take_error(form: BaseForm, error: ApplicationError, fields: Mapping[str, str] | None = None) -> None:
    """Put a service's error beside the field that it is about, or above the form.

    `fields` says for error codes without a field, such as `slug_taken`, which field they are about. Raises FactorNeeded, which
    is about no field.
    """
    if isinstance(error, FactorNeeded):
        raise error  # a page of its own asks for it
    placed = False
    for field_error in error.errors:
        name = field_error.field.split(".")[0]
        if name in form.fields:
            form.add_error(name, in_words(field_error.message))
            placed = True
    if placed:
        return
    about = (fields or {}).get(error.code)
    form.add_error(about, _words(error))


def tell_done(request: HttpRequest, words: str) -> None:
    """Show a sentence at the top of the next page."""
    messages.success(request, in_words(words))


def tell_error(request: HttpRequest, error: ApplicationError) -> None:
    """Show an error at the top of the next page. Raises FactorNeeded, as `form_take_error` does."""
    if isinstance(error, FactorNeeded):
        raise error
    messages.error(request, _words(error))


def _words(error: ApplicationError) -> str:
    words, link = in_words(say_all(error.message, error.hint)), operation_link(error)
    return format_html("{}{}", words, link) if link else words


def never_store(response: HttpResponse) -> HttpResponse:
    """Mark an answer that shows a secret: no cache may keep it."""
    response.headers["Cache-Control"] = "no-store, private"
    return response
