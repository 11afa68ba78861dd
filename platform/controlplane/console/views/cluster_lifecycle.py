"""A cluster is suspended and resumed, restored after its deletion, or removed before its time. Each form posts to an address of its
own, and goes on to the progress.
"""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.clusters.lifecycle import cluster_purge, cluster_restore, cluster_resume, cluster_suspend
from controlplane.clusters.models import Operation
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, form_values, wants_code
from controlplane.console.forms import SuspendForm, TypedNameForm
from controlplane.console.pages import form_take_error, tell_error
from controlplane.console.views.cluster_settings import settings_render
from controlplane.tenants.models import Tenant


@require_POST
@tenant_page("cluster.suspend")
def cluster_suspend_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Stop the cluster and keep all that it has."""
    found = cluster_get(tenant, cluster)
    form = SuspendForm(request.POST)
    if wants_code(request):
        return code_answer(act_of("POST", f"{found.path}suspend/", form_values(form)))
    if form.is_valid():
        try:
            operation = cluster_suspend(actor=request.user, cluster=found, reason=form.cleaned_data["reason"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return _progress(tenant, operation)
    return settings_render(request, found, suspend_form=form)


@require_POST
@tenant_page("cluster.resume")
def cluster_resume_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Start a suspended cluster again."""
    found = cluster_get(tenant, cluster)
    try:
        return _progress(tenant, cluster_resume(actor=request.user, cluster=found))
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:cluster", tenant.slug, found.slug)


@require_POST
@tenant_page("cluster.resume")
def cluster_restore_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Take the deletion back."""
    found = cluster_get(tenant, cluster)
    try:
        return _progress(tenant, cluster_restore(actor=request.user, cluster=found))
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:cluster", tenant.slug, found.slug)


@require_POST
@tenant_page("cluster.delete")
def cluster_purge_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Remove a deleted cluster for good, after its name was typed."""
    found = cluster_get(tenant, cluster)
    form = TypedNameForm(request.POST, expected=found.slug)
    if form.is_valid():
        try:
            return _progress(tenant, cluster_purge(actor=request.user, cluster=found, confirm=found.slug))
        except ApplicationError as error:
            form_take_error(form, error)
    return settings_render(request, found, delete_form=form)


def _progress(tenant: Tenant, operation: Operation) -> HttpResponse:
    return redirect("console:operation", tenant.slug, operation.pk)
