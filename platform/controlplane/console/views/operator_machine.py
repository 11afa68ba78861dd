"""What keeps clusters apart on this machine, for its operators: users, limits, and what of the disk is promised."""

import shutil

from django.conf import settings
from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.clusters.limits import tenant_limit
from controlplane.clusters.models import Cluster, Replica
from controlplane.console.access import ConsoleRequest
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.provisioning.cgroups import unlimited_reason
from controlplane.provisioning.isolation import shared_user_reason
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
    context = {
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
