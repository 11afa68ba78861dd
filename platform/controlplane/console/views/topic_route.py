"""A topic's route: which broker has which queues, and which member of a group reads them."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.pages import tenant_render
from controlplane.consumers.route_map import topic_route_map
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can
from controlplane.topics.selectors import topic_get


@require_safe
@tenant_page("topic.view")
def topic_route(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Show the broker groups with their queues; with `?group=` who reads each queue. The topic's page takes a part of it."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    group = request.GET.get("group", "").strip()
    query = f"?{urlencode({'group': group})}" if group else ""
    context: dict[str, object] = {
        **cluster_context(request, found.cluster),
        "topic": found,
        "group": group,
        "can_inspect": actor_can(request.user, "consumer.inspect", tenant),
        "curl": act_of("GET", f"{found.path}route/{query}"),
        "route": None,
    }
    try:
        context["route"] = topic_route_map(actor=request.user, topic=found, group=group)
    except ApplicationError as error:
        context |= {"problem": error.message, "hint": error.hint}
    return tenant_render(request, tenant, "console/topic_route.html", context, section="clusters")
