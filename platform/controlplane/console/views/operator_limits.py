"""The operators' pages of limits: which tenants have limits of their own, and one tenant's, raised or lowered with a reason."""

from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.clusters.limits import (
    limit_set,
    limit_settings,
    limits_of_tenants,
    tenant_by_slug,
)
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.forms import LimitForm
from controlplane.console.pages import form_take_error, status_of, tell_done
from controlplane.console.views.operator import operator_page, operator_render

_PER_PAGE = 25


@require_safe
@operator_page
def limits_tenants(request: ConsoleRequest) -> HttpResponse:
    """List the tenants, those with limits of their own first; `find` is a part of a name."""
    find = request.GET.get("find", "").strip()
    context = {
        "find": find,
        "rows": Paginator(limits_of_tenants(find), _PER_PAGE).get_page(request.GET.get("page")),
        "query": f"{urlencode({'find': find})}&" if find else "",
        "curl": act_of("GET", f"/api/v1/operator/tenants/?{urlencode({'find': find} if find else {})}"),
    }
    return operator_render(request, "console/operator/limits.html", context, "limits")


@require_http_methods(["GET", "HEAD", "POST"])
@operator_page
def limits_tenant(request: ConsoleRequest, tenant: str) -> HttpResponse:
    """Show a tenant's limits, and change one."""
    found = tenant_by_slug(tenant)
    form = LimitForm(request.POST if request.method == "POST" else None, limits=limit_settings(found))
    path = f"/api/v1/operator/tenants/{found.slug}/limits/"
    name, body = form.address_and_body()
    curl_set = act_of("PUT", f"{path}{name}/", body)
    if wants_code(request):
        return code_answer(curl_set)
    if form.is_valid():
        try:
            missing = limit_set(actor=request.user, tenant=found, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The limit is set."))
            if missing:
                said = gettext("These brokers did not take it yet, and get it as soon as they answer: %s.")
                tell_done(request, said % ", ".join(missing))
            return redirect("console:operator-limits-tenant", found.slug)
    context = {
        "tenant_shown": found,
        "limits": limit_settings(found),
        "form": form,
        "curl": act_of("GET", path),
        "curl_set": curl_set,
    }
    return operator_render(request, "console/operator/limits_tenant.html", context, "limits", status_of(form))
