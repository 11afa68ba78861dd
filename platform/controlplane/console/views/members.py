"""Who belongs to a tenant: list, invite, change a role, remove."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.common.errors import ApplicationError, BrokerUnreachable
from controlplane.common.sentences import in_words, say, say_all, say_count
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, wants_code
from controlplane.console.forms import ROLE_DETAILS, Choice, MemberForm, RevokeForm, RoleForm
from controlplane.console.pages import form_take_error, never_store, status_of, tell_done, tell_error, tenant_render
from controlplane.tenants.invitation_services import IssuedInvitation, invitation_create, invitation_list
from controlplane.tenants.known_secrets import KnownSecret, may_revoke
from controlplane.tenants.models import Membership, Role, Tenant
from controlplane.tenants.rules import actor_can, actor_require, roles_to_give
from controlplane.tenants.selectors import membership_get, membership_list
from controlplane.tenants.services import member_secrets, membership_remove, membership_update


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A line of the list."""

    membership: Membership
    is_me: bool
    can_change: bool
    can_remove: bool


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("member.view")
def member_list(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the members and open invitations, and invite a person: the link is in the answer to the POST and nowhere else."""
    can_manage = actor_can(request.user, "member.manage", tenant)
    roles = roles_to_give(request.user, tenant)
    form = MemberForm(request.POST if request.method == "POST" else None, roles=roles)
    if request.method == "POST":
        actor_require(request.user, "member.manage", tenant)
    issued: IssuedInvitation | None = None
    command = act_of("POST", f"{tenant.path}invitations/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            issued = invitation_create(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"already_member": "email"})
        else:
            form = MemberForm(roles=roles)
    given = dict(roles)
    rows = []
    for membership in membership_list(tenant):
        is_me = membership.user_id == request.user.pk
        can_change = can_manage and membership.role in given
        rows.append(MemberRow(membership, is_me, can_change, can_remove=can_change or is_me))
    context = {
        "form": form,
        "issued": issued,
        "invitations": invitation_list(tenant) if can_manage else [],
        "members": rows,
        "can_manage": can_manage,
        "roles": roles,
        "role_act": next((_role_act(row.membership, row.membership.role) for row in rows if row.can_change), None),
        "role_facts": [Choice(Role(role).label, detail) for role, detail in ROLE_DETAILS.items()],
        "curl": command,
    }
    return never_store(
        tenant_render(request, tenant, "console/members.html", context, section="members", status=status_of(form))
    )


@require_POST
@tenant_page("member.manage")
def member_update(request: ConsoleRequest, tenant: Tenant, membership: uuid.UUID) -> HttpResponse:
    """Change a role; first show what the person would still know beyond a lower one."""
    found = membership_get(tenant, membership)
    role = request.POST.get("role", "")
    back = reverse("console:member-list", args=[tenant.slug])
    if role not in Role.values:
        return redirect(back)
    secrets = member_secrets(actor=request.user, membership=found, role=role)
    form = RoleForm(request.POST, secrets=_choices(request, tenant, secrets))
    command = _role_act(found, role, form.chosen())
    if wants_code(request):
        return code_answer(command)
    is_asked = bool(secrets) and not form.data.get("is_confirmed")
    if is_asked:
        form = RoleForm(initial={"role": role}, secrets=_choices(request, tenant, secrets))
    elif form.is_valid():
        try:
            membership_update(actor=request.user, membership=found, role=role, revoke=form.chosen())
        except ApplicationError as error:
            tell_error(request, error)
        else:
            tell_done(
                request,
                say("%(email)s is %(role)s now.", email=found.user.email, role=in_words(Role(role).label).lower()),
            )
        return redirect(back)
    context = {
        "form": form,
        "heading": say("Make %(email)s %(role)s?", email=found.user.email, role=in_words(Role(role).label).lower()),
        "consequence": say(
            "The API tokens that the person issued and that may do more end at once. The person also knows secrets that"
            " do more than the new role."
        ),
        "verb": say("Change role"),
        "button": say("Change role"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Members")}],
        "curl": command,
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="members", status=status_of(form))


def _role_act(membership: Membership, role: str, revoke: Sequence[str] = ()) -> Act:
    body: dict[str, Any] = {"role": role, "revoke": list(revoke)} if revoke else {"role": role}
    return act_of("PATCH", f"{membership.tenant.path}members/{membership.pk}/", body)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("member.view")
def member_remove(request: ConsoleRequest, tenant: Tenant, membership: uuid.UUID) -> HttpResponse:
    """Remove a member, or leave, after a second look."""
    found = membership_get(tenant, membership)
    is_me = found.user_id == request.user.pk
    if not is_me:
        actor_require(request.user, "member.manage", tenant)
    back = reverse("console:member-list", args=[tenant.slug])
    secrets = member_secrets(actor=request.user, membership=found)
    offered = _choices(request, tenant, secrets)
    form = RevokeForm(request.POST if request.method == "POST" else None, secrets=offered)
    chosen = form.chosen()
    command = act_of("DELETE", f"{tenant.path}members/{found.pk}/" + (f"?revoke={','.join(chosen)}" if chosen else ""))
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            membership_remove(actor=request.user, membership=found, revoke=chosen)
        except BrokerUnreachable as error:  # all is done but what it names
            tell_error(request, error)
            return redirect("console:home") if is_me else redirect(back)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(
                request,
                say("You left %(tenant)s.", tenant=tenant.name)
                if is_me
                else say("%(email)s is no longer a member.", email=found.user.email),
            )
            return redirect("console:home") if is_me else redirect(back)
    context = {
        "form": form,
        "heading": say("Leave %(tenant)s?", tenant=tenant.name)
        if is_me
        else say("Remove %(email)s?", email=found.user.email),
        "consequence": (
            _leaving_words(len(secrets) - len(offered))
            if is_me
            else say(
                "The person loses access at once, and so do the API tokens that they issued. Programs go"
                " on running: their key pairs stay."
            )
        ),
        "verb": say("Leave") if is_me else say("Remove"),
        "button": say("Leave tenant") if is_me else say("Remove member"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Members")}],
        "curl": command,
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="members", status=status_of(form))


_KINDS = {
    "service_account_token": say("API token"),
    "key_pair": say("Key pair"),
    "alert_channel": say("Alert channel"),
}


def _choices(request: ConsoleRequest, tenant: Tenant, secrets: list[KnownSecret]) -> list[tuple[str, Choice]]:
    """Return what the person who asks may end, as checkboxes."""
    return [
        (
            str(secret.id),
            Choice(
                say("%(kind)s “%(name)s”", kind=_KINDS[secret.kind], name=secret.name),
                say("%(place)s: made by the person", place=secret.place)
                if secret.made
                else say("%(place)s: its secret was shown to the person", place=secret.place),
            ),
        )
        for secret in secrets
        if may_revoke(request.user, tenant, secret)
    ]


def _leaving_words(left_to_others: int) -> str:
    return say_all(
        say("You lose access to its clusters at once. An owner can invite you again."),
        say_count(
            "You know %(count)s secret that your role can’t end: tell an admin.",
            "You know %(count)s secrets that your role can’t end: tell an admin.",
            left_to_others,
        )
        if left_to_others
        else "",
    )
