"""What keeps clusters apart on this machine, for its operators: users, limits, and what of the disk is promised."""

import shutil

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.limits import tenant_limit
from controlplane.clusters.models import Cluster, Replica
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.console.curl import curl
from controlplane.console.pages import tell_done, tell_error
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.provisioning.cgroups import unlimited_reason
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.isolation import shared_user_reason
from controlplane.provisioning.leftovers import leftovers_clear, leftovers_find
from controlplane.tenants.models import Tenant


@require_safe
@operator_page
def machine(request: ConsoleRequest) -> HttpResponse:
    """Show whether clusters have OS users and limits of their own, and how much of the disk brokers may take."""
    disk = shutil.disk_usage(settings.HIGHWATER_STATE_DIR)
    limits = [
        (tenant_limit(tenant, "stored_bytes"), Replica.objects.filter(group__cluster__tenant=tenant).count())
        for tenant in Tenant.objects.all()
    ]
    unlimited = sum(brokers for limit, brokers in limits if not limit)
    promised = sum(limit * brokers for limit, brokers in limits)
    try:
        leftovers, away = leftovers_find(get_driver()), ""
    except ApplicationError as error:
        leftovers, away = None, error.message
    context = {
        "leftovers": leftovers,
        "away": away,
        "curl_clear": curl("POST", "/api/v1/operator/leftovers/", {}),
        "shared_user_reason": shared_user_reason(),
        "unlimited_reason": unlimited_reason(),
        "memory_bytes": settings.HIGHWATER_DAEMON_MEMORY_MIB * 1024 * 1024,
        "first_user": settings.HIGHWATER_DAEMON_USERS,
        "disk": disk,
        "promised": promised,
        "unlimited": unlimited,
        "is_overcommitted": unlimited > 0 or promised > disk.free,
        "clusters": Cluster.objects.count(),
        "brokers": Replica.objects.count(),
    }
    return operator_render(request, "console/operator/machine.html", context, "machine")


@require_POST
@operator_page
def leftovers_clear_page(request: ConsoleRequest) -> HttpResponse:
    """End the processes and free the ports that belong to no cluster, then show the page again."""
    try:
        found = leftovers_clear(actor=request.user, driver=get_driver())
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(
            request,
            gettext("%(processes)s processes were ended, %(ports)s ports freed.")
            % {"processes": len(found.processes), "ports": len(found.ports)},
        )
    return redirect("console:operator-machine")
