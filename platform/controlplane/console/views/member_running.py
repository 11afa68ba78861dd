"""One member of a group: its queues, its settings, and what its threads do."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.pages import tenant_render
from controlplane.consumers.running import member_running
from controlplane.consumers.selectors import group_path
from controlplane.tenants.models import Tenant

_QUEUES_SHOWN = 500


@require_safe
@tenant_page("consumer.inspect")
def member_running_page(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """`?client=` names the member; with `stack=true` it also says what its threads do."""
    found = cluster_get(tenant, cluster)
    client_id = request.GET.get("client", "")
    if not client_id:
        return redirect("console:lag-group", tenant.slug, found.slug, group)
    with_stack = request.GET.get("stack") == "true"
    query = {"client_id": client_id, **({"stack": "true"} if with_stack else {})}
    context: dict[str, object] = {
        **cluster_context(request, found),
        "group": group,
        "client_id": client_id,
        "with_stack": with_stack,
        "curl": act_of("GET", f"{group_path(found, group)}members/running/?{urlencode(query)}"),
        "member": None,
    }
    try:
        member = member_running(
            actor=request.user, cluster=found, group=group, client_id=client_id, with_stack=with_stack
        )
        context |= {
            "member": member,
            "queues": member.queues[:_QUEUES_SHOWN],
            "queues_more": max(0, len(member.queues) - _QUEUES_SHOWN) + member.queues_left_out,
            "as_of": timezone.now(),
        }
    except ApplicationError as error:
        context |= {"problem": error.message, "hint": error.hint}
    return tenant_render(request, tenant, "console/member_running.html", context, section="clusters", page="lag")
