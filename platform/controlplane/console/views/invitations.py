"""Invitations: what a tenant's owner revokes, and the page that an invited person opens."""

import uuid

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.common.errors import ApplicationError, NotFound
from controlplane.common.sentences import say
from controlplane.common.throttling import pages_of_strangers
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.forms import ConfirmForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tenant_render
from controlplane.tenants.invitation_services import (
    invitation_accept,
    invitation_decline,
    invitation_get,
    invitation_of_secret,
    invitation_revoke,
)
from controlplane.tenants.models import Tenant

SESSION_KEY = "invitation"


@require_safe
@pages_of_strangers
def invitation_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Keep the link's secret in the session, and go on without it in the address: no log, history or referrer has it.

    Of a link that is not valid nothing is kept: strangers would fill the table of sessions.
    """
    try:
        invitation_of_secret(secret)
    except NotFound as error:
        return _not_valid(request, error)
    request.session[SESSION_KEY] = secret
    return redirect("console:invitation")


def _not_valid(request: HttpRequest, error: NotFound) -> HttpResponse:
    return never_store(render(request, "console/invitation.html", {"problem": error}, status=404))


@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest) -> HttpResponse:
    """Show who invites to what; accept or decline it, once logged in with the address that was invited."""
    secret = request.session.get(SESSION_KEY, "")
    try:
        found = invitation_of_secret(secret)
    except NotFound as error:
        request.session.pop(SESSION_KEY, None)
        return _not_valid(request, error)
    user = request.user if request.user.is_authenticated else None
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if user is not None and form.is_valid():
        declines = request.POST.get("answer") == "decline"
        try:
            if declines:
                invitation_decline(user=user, secret=secret)
            else:
                invitation_accept(user=user, secret=secret)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            del request.session[SESSION_KEY]
            name = found.tenant.name
            tell_done(
                request,
                say("The invitation is declined.") if declines else say("You are a member of %(name)s now.", name=name),
            )
            return redirect("console:home") if declines else redirect("console:cluster-list", found.tenant.slug)
    context = {
        "invitation": found,
        "form": form,
        "is_mine": user is not None and user.email == found.email,
        "here": reverse("console:invitation"),
    }
    return never_store(render(request, "console/invitation.html", context, status=status_of(form)))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("member.manage")
def invitation_revoke_page(request: ConsoleRequest, tenant: Tenant, invitation: uuid.UUID) -> HttpResponse:
    """Revoke an invitation after a second look."""
    found = invitation_get(tenant, invitation)
    back = reverse("console:member-list", args=[tenant.slug])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            invitation_revoke(actor=request.user, invitation=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The invitation of %(email)s is revoked.", email=found.email))
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Revoke the invitation of %(email)s?", email=found.email),
        "consequence": say("Its link is refused at once. You can invite the person again."),
        "verb": say("Revoke"),
        "button": say("Revoke invitation"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Members")}],
        "curl": act_of("DELETE", found.path),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="members", status=status_of(form))
