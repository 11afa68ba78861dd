"""Programs of a tenant: list, make, change, disable, delete; and their tokens."""

import uuid
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.forms import ConfirmForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tell_error, tenant_render
from controlplane.console.service_account_forms import AccountTokenForm, ServiceAccountForm
from controlplane.console.views.tokens import TokenRow
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require, role_includes, roles_to_give
from controlplane.tenants.service_account_services import (
    ROLES,
    service_account_create,
    service_account_delete,
    service_account_get,
    service_account_list,
    service_account_update,
)
from controlplane.tenants.token_services import api_token_issue, api_token_list


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("service_account.view")
def account_list(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the programs, and make one."""
    if request.method == "POST":
        actor_require(request.user, "service_account.manage", tenant)
    form = ServiceAccountForm(request.POST if request.method == "POST" else None, roles=_roles(request, tenant))
    command = act_of("POST", f"{tenant.path}service-accounts/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            account = service_account_create(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"name_taken": "name"})
        else:
            tell_done(request, say("%(name)s is made. Next, a token for it.", name=account.name))
            return redirect("console:service-account", tenant.slug, account.pk)
    context = {
        "accounts": service_account_list(tenant).order_by("name"),
        "form": form,
        "curl": command,
        "can_manage": actor_can(request.user, "service_account.manage", tenant),
    }
    return tenant_render(
        request, tenant, "console/service_accounts.html", context, section="tokens", status=status_of(form)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("service_account.view")
def account_page(request: ConsoleRequest, tenant: Tenant, account: uuid.UUID) -> HttpResponse:
    """Show a program with its tokens; issue one, change the program, or disable it. A new token is in this answer only."""
    found = service_account_get(tenant, account)
    what = request.POST.get("what") if request.method == "POST" else None
    if request.method == "POST":
        actor_require(request.user, "service_account.manage", tenant)
    if what in ("disable", "enable") and not wants_code(request):
        try:
            service_account_update(actor=request.user, account=found, disabled=what == "disable")
        except ApplicationError as error:
            tell_error(request, error)
        else:
            tell_done(
                request, say("Its tokens are refused now.") if what == "disable" else say("Its tokens work again.")
            )
        return redirect("console:service-account", tenant.slug, found.pk)
    initial: dict[str, Any] = {"name": found.name, "description": found.description, "role": found.role}
    change = ServiceAccountForm(
        request.POST if what == "account" else None, roles=_roles(request, tenant), initial=initial, prefix="account"
    )
    roles = [(value, label) for value, label in _roles(request, tenant) if role_includes(found.role, value)]
    token_form = AccountTokenForm(request.POST if what == "token" else None, roles=roles, initial={"role": found.role})
    change_act = act_of("PATCH", found.path, change.changes())
    token_body = {**token_form.body(), "service_account_id": str(found.pk)}
    token_act = act_of("POST", f"{tenant.path}tokens/", token_body)
    if wants_code(request):
        return code_answer(token_act if what == "token" else change_act)
    created = ""
    if change.is_valid():
        try:
            service_account_update(actor=request.user, account=found, **change.changed())
        except ApplicationError as error:
            form_take_error(change, error, {"name_taken": "name"})
        else:
            tell_done(request, say("The service account is saved."))
            return redirect("console:service-account", tenant.slug, found.pk)
    if token_form.is_valid():
        try:
            issued = api_token_issue(
                actor=request.user,
                tenant=tenant,
                name=token_form.cleaned_data["name"],
                role=token_form.cleaned_data["role"],
                scopes=tuple(token_form.cleaned_data["scopes"]),
                days=token_form.days(),
                service_account=found,
            )
        except ApplicationError as error:
            form_take_error(token_form, error, {"not_allowed": "role"})
        else:
            created = issued.text
            token_form = AccountTokenForm(roles=roles, initial={"role": found.role})
    context = {
        "account": found,
        "change_form": change,
        "token_form": token_form,
        "created": created,
        "tokens": [
            TokenRow(one) for one in api_token_list(tenant).filter(service_account=found).order_by("-created_at")
        ],
        "can_manage": actor_can(request.user, "service_account.manage", tenant),
        "environment": settings.HIGHWATER_ENVIRONMENT,
        "curl": act_of("PATCH", found.path, {"disabled": found.disabled_at is None}),
        "change_curl": change_act,
        "token_curl": token_act,
    }
    status = max(status_of(change), status_of(token_form))
    return never_store(
        tenant_render(request, tenant, "console/service_account.html", context, section="tokens", status=status)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("service_account.manage")
def account_delete(request: ConsoleRequest, tenant: Tenant, account: uuid.UUID) -> HttpResponse:
    """Delete a program with its tokens, after a second look."""
    found = service_account_get(tenant, account)
    back = reverse("console:service-account-list", args=[tenant.slug])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            service_account_delete(actor=request.user, account=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The service account %(name)s is deleted.", name=found.name))
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Delete the service account %(name)s?", name=found.name),
        "consequence": say("Programs that use its tokens are refused at once. This can’t be undone."),
        "verb": say("Delete"),
        "button": say("Delete service account"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Service accounts")}],
        "curl": act_of("DELETE", found.path),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="tokens", status=status_of(form))


def _roles(request: ConsoleRequest, tenant: Tenant) -> list[tuple[str, str]]:
    return [(value, label) for value, label in roles_to_give(request.user, tenant) if value in ROLES]
