"""What of the tenant's messages is hidden from whom."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.forms import ConfirmForm
from controlplane.console.masking_forms import MaskingRuleForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_includes, actor_require
from controlplane.topics.masking_rules import (
    masking_rule_create,
    masking_rule_delete,
    masking_rule_get,
    masking_rule_list,
)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("masking.view")
def masking_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the rules, and make one."""
    if request.method == "POST":
        actor_require(request.user, "masking.manage", tenant)
    form = MaskingRuleForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", f"{tenant.path}masking-rules/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            masking_rule_create(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"masking_rule_exists": "pattern"})
        else:
            tell_done(request, say("The rule holds from now on."))
            return redirect("console:masking", tenant.slug)
    can_manage = actor_can(request.user, "masking.manage", tenant)
    context = {
        "rules": [
            (one, can_manage and actor_includes(request.user, tenant, one.visible_from))
            for one in masking_rule_list(tenant).order_by("topic", "part", "pattern")
        ],
        "form": form,
        "curl": command,
        "can_manage": can_manage,
    }
    return tenant_render(request, tenant, "console/masking.html", context, section="members", status=status_of(form))


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("masking.manage")
def masking_delete(request: ConsoleRequest, tenant: Tenant, rule: uuid.UUID) -> HttpResponse:
    """Delete a rule, after a second look."""
    found = masking_rule_get(tenant, rule)
    back = reverse("console:masking", args=[tenant.slug])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            masking_rule_delete(actor=request.user, rule=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The rule for %(pattern)s is deleted.", pattern=found.pattern))
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Delete the rule for %(pattern)s?", pattern=found.pattern),
        "consequence": say(
            "What it hides is shown at once to everyone who may read messages, if no other rule hides it."
        ),
        "verb": say("Delete"),
        "button": say("Delete rule"),
        "back": back,
        "crumbs": [{"url": back, "words": say("Masking")}],
        "curl": act_of("DELETE", found.path),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="members", status=status_of(form))
