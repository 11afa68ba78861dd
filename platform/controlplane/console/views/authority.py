"""The page that renews a cluster's CA: which step is next, when it is taken by itself, and a form that takes it now."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.clusters.certificates import Succession, authority_ends_at, next_signs_at, succession
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, form_values, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import AuthorityRenewForm
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.provisioning.authority import authority_renew
from controlplane.tenants.models import Tenant


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.renew_ca")
def cluster_authority(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the next step; a POST starts it, then shows its progress."""
    found = cluster_get(tenant, cluster)
    step, due_at = succession(found.tls_ca, found.tls_ca_step_at) if found.tls_ca else (Succession.TRUST_NEXT, None)
    form = AuthorityRenewForm(request.POST if request.method == "POST" else None, step=step, expected=found.slug)
    act = act_of("POST", f"{found.path}certificate-authority/renew/", form_values(form))
    if wants_code(request):
        return code_answer(act)
    if form.is_valid():
        try:
            operation = authority_renew(actor=request.user, cluster=found, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return redirect("console:operation", tenant.slug, operation.pk)
    context = {
        **cluster_context(request, found),
        "form": form,
        "step": step.value,
        "due_at": due_at,
        "ends_at": authority_ends_at(found.tls_ca) if found.tls_ca else None,
        "changes_at": next_signs_at(found.tls_ca, found.tls_ca_step_at) if found.tls_ca else None,
        "curl": act,
    }
    return tenant_render(
        request,
        tenant,
        "console/authority.html",
        context,
        section="clusters",
        page="settings",
        status=status_of(form),
    )
