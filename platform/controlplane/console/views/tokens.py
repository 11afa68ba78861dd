"""API tokens of a tenant: list, make (shown once), revoke."""

import uuid
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.accounts.models import ApiToken
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.forms import ConfirmForm, TokenForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tenant_render
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.rules import actor_can, roles_to_give
from controlplane.tenants.token_services import api_token_get, api_token_issue, api_token_list, api_token_revoke


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A line of the list."""

    token: ApiToken

    @property
    def state(self) -> str:
        """`active`, `expired`, or `disabled` with its service account."""
        if self.token.service_account is not None and self.token.service_account.disabled_at is not None:
            return "disabled"
        return "active" if self.token.is_live else "expired"

    @property
    def role(self) -> str:
        """Its role in a word."""
        return Role(self.token.role).label

    @property
    def owner(self) -> str:
        """Whose it is: a member's address, a program, or the tenant's own."""
        if self.token.service_account is not None:
            return say("Service account %(name)s", name=self.token.service_account.name)
        return say("Service token") if self.token.user is None else self.token.user.email

    @property
    def issuer(self) -> str:
        """Who issued it, and that they have left; empty for a member's own token."""
        issuer = self.token.issuer
        if issuer is None or issuer == self.token.user:
            return ""
        if self.token.issuer_is_member:  # type: ignore[attr-defined]  # api_token_list annotates it
            return say("Issued by %(email)s", email=issuer.email)
        return say("Issued by %(email)s, who has left", email=issuer.email)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("token.view")
def token_list(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the tokens, and make one. The new token is in the answer to the POST and nowhere else."""
    roles = roles_to_give(request.user, tenant)
    form = TokenForm(request.POST if request.method == "POST" else None, roles=roles)
    act = act_of("POST", f"{tenant.path}tokens/", form.body())
    if wants_code(request):
        return code_answer(act)
    created = ""
    if form.is_valid():
        try:
            issued = api_token_issue(
                actor=request.user,
                tenant=tenant,
                name=form.cleaned_data["name"],
                role=form.cleaned_data["role"],
                scopes=tuple(form.cleaned_data["scopes"]),
                days=form.days(),
                user=None if form.cleaned_data["is_service"] else request.user,
            )
        except ApplicationError as error:
            form_take_error(form, error, {"not_allowed": "role"})
        else:
            created = issued.text
            form = TokenForm(roles=roles)
    context = {
        "form": form,
        "created": created,
        "tokens": [TokenRow(token) for token in api_token_list(tenant).order_by("-created_at")],
        "can_manage": actor_can(request.user, "token.manage", tenant),
        "environment": settings.HIGHWATER_ENVIRONMENT,
        "curl": act,
    }
    return never_store(
        tenant_render(request, tenant, "console/tokens.html", context, section="tokens", status=status_of(form))
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("token.manage")
def token_revoke(request: ConsoleRequest, tenant: Tenant, token: uuid.UUID) -> HttpResponse:
    """Revoke a token after a second look."""
    found = api_token_get(tenant, token)
    back = reverse("console:token-list", args=[tenant.slug])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            api_token_revoke(actor=request.user, token=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The token “%(found)s” is revoked.", found=found.name))
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Revoke the token “%(found)s”?", found=found.name),
        "consequence": say("Scripts that use it are refused at once. This can’t be undone."),
        "verb": say("Revoke"),
        "button": say("Revoke token"),
        "back": back,
        "crumbs": [{"url": back, "words": say("API tokens")}],
        "curl": act_of("DELETE", f"{tenant.path}tokens/{found.pk}/"),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="tokens", status=status_of(form))
