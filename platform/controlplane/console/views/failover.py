"""Pages of roles: the role map, promoting and switching after a pre-flight, timelines, and the history."""

import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.clusters.models import Cluster, ClusterMode, Operation, OperationState, StepState
from controlplane.clusters.selectors import cluster_get, is_watched, operation_list, operation_view
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_render
from controlplane.console.forms import TypedLossForm
from controlplane.console.pages import form_take_error, status_of
from controlplane.failover.models import Drill, Failover, FailoverKind
from controlplane.failover.promotion.services import failover_start, group_preflight
from controlplane.failover.role_map import group_rows
from controlplane.failover.selectors import failover_get, failover_list, group_get, timeline_of
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

_SHOWN_FAILOVERS = 100


def roles_context(request: ConsoleRequest, cluster: Cluster) -> dict[str, Any]:
    """Return what the role map needs; empty for a cluster of one broker, and one that is not watched. One that gets replicas just
    now has several.
    """
    several = any(len(group.replicas.all()) > 1 for group in cluster.broker_groups.all())
    if not is_watched(cluster) or (cluster.mode == ClusterMode.SINGLE and not several):
        return {"groups": []}
    current = failover_list(cluster).filter(operation__state=OperationState.IN_PROGRESS).order_by("-created_at").first()
    return {
        "groups": group_rows(cluster),
        "is_replicated": cluster.is_replicated,
        "can_promote": actor_can(request.user, "group.promote", cluster.tenant),
        "can_grow": actor_can(request.user, "cluster.grow", cluster.tenant),
        "current_failover": current,
        "current_change": _current_change(cluster) if cluster.elects_leaders else None,
    }


def _current_change(cluster: Cluster) -> Operation | None:
    """What is being done to a group just now, but for a change of its leader, which has a timeline."""
    changes = operation_list(cluster.tenant, cluster).filter(
        state=OperationState.IN_PROGRESS, type__startswith="group.", failovers=None
    )
    return changes.first()


@require_safe
@tenant_page("cluster.view")
def cluster_roles(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the role map alone; the overview asks for it every three seconds."""
    found = cluster_get(tenant, cluster)
    context = {"tenant": tenant, "cluster": found, **roles_context(request, found)}
    return render(request, "console/parts/roles.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_promote(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Show what a promotion would do, and do it; the group's name is typed only when messages may be lost."""
    return _change(request, tenant, cluster, group, FailoverKind.PROMOTE)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_switchover(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Show what a planned switchover would do, and do it."""
    return _change(request, tenant, cluster, group, FailoverKind.SWITCHOVER)


@require_safe
@tenant_page("failover.view")
def failover_list_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the history: every change of a master, with the measured outage."""
    found = cluster_get(tenant, cluster)
    context = {
        "failovers": list(failover_list(found).order_by("-created_at")[:_SHOWN_FAILOVERS]),
        "curl": act_of("GET", f"{found.path}failovers/"),
    }
    return cluster_render(request, found, "console/failovers.html", context, page="failovers")


@require_safe
@tenant_page("failover.view")
def failover_page(request: ConsoleRequest, tenant: Tenant, cluster: str, failover: uuid.UUID) -> HttpResponse:
    """Show one failover's timeline; the page updates itself while it goes on."""
    found = cluster_get(tenant, cluster)
    row = failover_get(found, failover)
    context = {
        **timeline_context(row),
        "drill": Drill.objects.filter(failover=row).first(),
        "curl": act_of("GET", row.path),
    }
    return cluster_render(request, found, "console/failover.html", context, page="failovers")


@require_safe
@tenant_page("failover.view")
def failover_timeline(request: ConsoleRequest, tenant: Tenant, cluster: str, failover: uuid.UUID) -> HttpResponse:
    """Return the timeline alone; the answer stops asking by itself once it is over."""
    found = cluster_get(tenant, cluster)
    context = {"tenant": tenant, "cluster": found, **timeline_context(failover_get(found, failover))}
    return render(request, "console/parts/timeline.html", context)


def _change(
    request: ConsoleRequest, tenant: Tenant, cluster_slug: str, group_name: str, kind: FailoverKind
) -> HttpResponse:
    cluster = cluster_get(tenant, cluster_slug)
    group = group_get(cluster, group_name)
    text = request.GET.get("candidate", "")
    candidate_id = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
    driver = get_driver()
    preflight = group_preflight(cluster=cluster, group=group, kind=kind, candidate_id=candidate_id, driver=driver)
    form = TypedLossForm(
        request.POST if request.method == "POST" else None,
        expected=group.name,
        needed=preflight.confirmation_needed,
    )
    if form.is_valid():
        try:
            failover = failover_start(
                actor=request.user,
                cluster=cluster,
                group=group,
                kind=kind,
                driver=driver,
                # Whom the page showed, not who is best by now.
                candidate_id=candidate_id if preflight.candidate is None else preflight.candidate.replica_id,
                confirm=str(form.cleaned_data.get("typed", "")),
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return redirect("console:failover", tenant.slug, cluster.slug, failover.pk)
    body = {} if preflight.candidate is None else {"candidate": preflight.candidate.replica_id}
    context = {
        "preflight": preflight,
        "is_switchover": kind == FailoverKind.SWITCHOVER,
        "form": form,
        "curl": act_of("POST", f"{cluster.path}groups/{group.name}/{kind.value}/", body),
    }
    return cluster_render(request, cluster, "console/promote.html", context, page="overview", status=status_of(form))


def timeline_context(failover: Failover) -> dict[str, object]:
    """Return what the part with a failover's timeline needs."""
    steps = [] if failover.operation is None else operation_view(failover.operation).steps
    return {
        "failover": failover,
        "lines": timeline_of(failover),
        "running": failover.state == OperationState.IN_PROGRESS,
        "present_step": next((step for step in steps if step.state != StepState.COMPLETED), None),
    }
