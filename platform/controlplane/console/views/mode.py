"""The page that changes a cluster's mode and replicas in place: choose, see what each step changes and stops, then do it."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_render
from controlplane.console.forms import ConfirmForm
from controlplane.console.pages import form_take_error, status_of
from controlplane.console.quorum_forms import ModeForm
from controlplane.failover.mode.services import mode_change_start, mode_preview
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.grow")
def cluster_mode(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """`?mode=` shows the preview; a POST there starts the work, then shows its progress."""
    found, driver = cluster_get(tenant, cluster), get_driver()
    form = ModeForm(request.GET or None, present=found.mode, groups=found.broker_groups.count())
    confirm = ConfirmForm(request.POST if request.method == "POST" else None)
    preview = None
    if form.is_valid():
        wanted = {"mode": str(form.cleaned_data["mode"]), "replicas": form.cleaned_data["replicas"]}
        if confirm.is_valid():
            try:
                operation = mode_change_start(actor=request.user, cluster=found, driver=driver, **wanted)
            except ApplicationError as error:
                form_take_error(confirm, error)
            else:
                return redirect("console:operation", tenant.slug, operation.pk)
        preview = mode_preview(cluster=found, driver=driver, **wanted)
    body = {} if preview is None else {"mode": preview.mode_after, "replicas": preview.replicas_after}
    context = {
        "form": form,
        "confirm_form": confirm,
        "preview": preview,
        "curl": act_of("POST", f"{found.path}mode/", body),
    }
    status = status_of(form) if preview is None else status_of(confirm)
    return cluster_render(request, found, "console/mode_change.html", context, page="settings", status=status)
