"""What every page of a cluster is rendered with."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse

from controlplane.alerts.selectors import firing_in
from controlplane.clusters.models import Cluster
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import act_of
from controlplane.console.pages import tenant_render
from controlplane.tenants.rules import actor_can


def cluster_context(request: ConsoleRequest, cluster: Cluster) -> dict[str, object]:
    """Return what every page of a cluster needs: the cluster, and which buttons to show."""
    return {
        "cluster": cluster,
        "can_create_topic": actor_can(request.user, "topic.create", cluster.tenant),
        "can_delete_cluster": actor_can(request.user, "cluster.delete", cluster.tenant),
        "curl_start": act_of("POST", f"{cluster.path}{'resume' if cluster.delete_at is None else 'restore'}/"),
        "can_resume_cluster": actor_can(request.user, "cluster.resume", cluster.tenant),
        "can_see_alerts": actor_can(request.user, "alert.view", cluster.tenant),
        "firing_here": firing_in(cluster),
        "can_trace": actor_can(request.user, "message.browse", cluster.tenant),
    }


def cluster_render(
    request: ConsoleRequest,
    cluster: Cluster,
    template: str,
    context: Mapping[str, Any],
    *,
    page: str,
    status: int = 200,
) -> HttpResponse:
    """Render a page of a cluster. `page` marks the tab that it belongs to."""
    whole = {**cluster_context(request, cluster), **context}
    return tenant_render(request, cluster.tenant, template, whole, section="clusters", page=page, status=status)
