"""The page that restarts or upgrades a cluster's daemons one after another: what each runs, in which order, then do it."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import ConfirmForm
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.failover.rolling.services import Purpose, rolling_plan, rolling_start
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.versions import cluster_versions
from controlplane.tenants.models import Tenant


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.restart")
def cluster_rolling(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show versions and the order; a POST starts the work with `purpose`, then shows its progress."""
    found, driver = cluster_get(tenant, cluster), get_driver()
    confirm = ConfirmForm(request.POST if request.method == "POST" else None)
    if confirm.is_valid():
        purpose = Purpose.UPGRADE if request.POST.get("purpose") == Purpose.UPGRADE else Purpose.RESTART
        try:
            operation = rolling_start(actor=request.user, cluster=found, driver=driver, purpose=purpose)
        except ApplicationError as error:
            form_take_error(confirm, error)
        else:
            return redirect("console:operation", tenant.slug, operation.pk)
    daemons = cluster_versions(found)
    upgrade_available = any(daemon.is_outdated for daemon in daemons)
    context = {
        **cluster_context(request, found),
        "confirm_form": confirm,
        "plan": rolling_plan(cluster=found, driver=driver),
        "daemons": daemons,
        "upgrade_available": upgrade_available,
        "curl_restart": act_of("POST", f"{found.path}restart/", {}),
        "curl_upgrade": act_of("POST", f"{found.path}upgrade/", {}),
    }
    return tenant_render(
        request,
        tenant,
        "console/rolling.html",
        context,
        section="clusters",
        page="settings",
        status=status_of(confirm),
    )
