"""Pages of failover drills: the pre-flight with its confirmation, the report while it is made and afterwards, the history, and
drills that are ordered for a window.
"""

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.clusters.models import BrokerGroup, Cluster, OperationState
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_render
from controlplane.console.forms import DrillForm, DrillWindowForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error
from controlplane.console.views.failover import timeline_context
from controlplane.failover.drill.measurement import pauses_of, probes_of
from controlplane.failover.drill.services import drill_preview, drill_start
from controlplane.failover.drill.windows import drill_window_cancel, drill_window_create
from controlplane.failover.models import Drill, DrillFault, DrillWindowState
from controlplane.failover.selectors import drill_get, drill_list, drill_window_get, drill_window_list, group_get
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

_SHOWN_DRILLS = 100
_SHOWN_WINDOWS = 50
# The strip of probes is so wide, in its own units.
_STRIP_WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Bar:
    """One pause on the strip of probes."""

    left: int
    width: int


@dataclass(frozen=True, slots=True)
class Strip:
    """All probes as one line: `bars` are the times without an accepted write, `fault` is where the leader was stopped."""

    lasted_ms: int
    bars: tuple[Bar, ...]
    fault: int | None
    width: int = _STRIP_WIDTH


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_drill(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Show whether a drill may begin and what it would do, and begin it once the group's name is typed."""
    found = cluster_get(tenant, cluster)
    row, driver = group_get(found, group), get_driver()
    # Of the drill that is to be tried again, its choices.
    again = {name: request.GET[name] for name in ("fault", "gives_back") if name in request.GET}
    form = DrillForm(request.POST if request.method == "POST" else None, expected=row.name, initial=again)
    chosen = request.POST if request.method == "POST" else request.GET
    gives_back, fault = bool(chosen.get("gives_back")), chosen.get("fault")
    if form.is_valid():
        try:
            drill = drill_start(
                actor=request.user,
                cluster=found,
                group=row,
                driver=driver,
                gives_back=form.cleaned_data["gives_back"],
                fault=DrillFault(form.cleaned_data["fault"]),
                confirm=form.cleaned_data["typed"],
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return redirect("console:drill", tenant.slug, found.slug, drill.pk)
    context = {
        "plan": drill_preview(cluster=found, group=row, driver=driver, gives_back=gives_back, fault=None),
        "form": form,
        "curl": act_of(
            "POST",
            f"{found.path}groups/{row.name}/drill/",
            {
                "fault": fault if fault in DrillFault else DrillFault.KILL,
                "gives_back": gives_back,
                "confirm": row.name,
            },
        ),
    }
    return cluster_render(request, found, "console/drill_new.html", context, page="overview", status=status_of(form))


@require_safe
@tenant_page("failover.view")
def drill_list_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the history: every drill with its verdict and figures."""
    found = cluster_get(tenant, cluster)
    return _drills(request, found, DrillWindowForm(groups=_groups(found)))


@require_POST
@tenant_page("group.promote")
def drill_window_new(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Order a drill for a window."""
    found = cluster_get(tenant, cluster)
    form = DrillWindowForm(request.POST, groups=_groups(found))
    if wants_code(request):
        return code_answer(_window_act(found, form))
    if form.is_valid():
        values = dict(form.cleaned_data)
        try:
            drill_window_create(
                actor=request.user,
                cluster=found,
                group=group_get(found, values.pop("group")),
                fault=DrillFault(values.pop("fault")),
                **values,
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("Ordered. It begins within its window, once the group is healthy."))
            return redirect("console:drill-list", tenant.slug, found.slug)
    return _drills(request, found, form)


@require_POST
@tenant_page("group.promote")
def drill_window_cancel_page(request: ConsoleRequest, tenant: Tenant, cluster: str, window: uuid.UUID) -> HttpResponse:
    """Take an order back."""
    found = cluster_get(tenant, cluster)
    try:
        drill_window_cancel(actor=request.user, window=drill_window_get(found, window))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, say("Cancelled. Nothing was stopped."))
    return redirect("console:drill-list", tenant.slug, found.slug)


def _drills(request: ConsoleRequest, cluster: Cluster, form: DrillWindowForm) -> HttpResponse:
    windows = list(drill_window_list(cluster).order_by("-opens_at")[:_SHOWN_WINDOWS])
    can_drill = actor_can(request.user, "group.promote", cluster.tenant)
    waiting = next((one for one in windows if can_drill and one.state == DrillWindowState.WAITING), None)
    context = {
        "drills": list(drill_list(cluster).order_by("-created_at")[:_SHOWN_DRILLS]),
        "windows": windows,
        "form": form,
        "can_drill": can_drill,
        "cancel_act": waiting and act_of("POST", f"{waiting.path}cancel/"),
        "curl": act_of("GET", f"{cluster.path}drills/"),
        "curl_window": _window_act(cluster, form),
    }
    return cluster_render(request, cluster, "console/drills.html", context, page="failovers", status=status_of(form))


def _groups(cluster: Cluster) -> list[str]:
    return list(BrokerGroup.objects.filter(cluster=cluster).order_by("name").values_list("name", flat=True))


def _window_act(cluster: Cluster, form: DrillWindowForm) -> Act:
    return act_of("POST", f"{cluster.path}drill-windows/", form.body())


@require_safe
@tenant_page("failover.view")
def drill_page(request: ConsoleRequest, tenant: Tenant, cluster: str, drill: uuid.UUID) -> HttpResponse:
    """Show one drill's report; the page updates itself while the drill goes on."""
    found = cluster_get(tenant, cluster)
    row = drill_get(found, drill)
    context = {
        **_report(row),
        "can_drill": actor_can(request.user, "group.promote", tenant),
        "curl": act_of("GET", row.path),
    }
    return cluster_render(request, found, "console/drill.html", context, page="failovers")


@require_safe
@tenant_page("failover.view")
def drill_report(request: ConsoleRequest, tenant: Tenant, cluster: str, drill: uuid.UUID) -> HttpResponse:
    """Return the report alone; the answer stops asking by itself once the drill is over."""
    found = cluster_get(tenant, cluster)
    context = {"tenant": tenant, "cluster": found, **_report(drill_get(found, drill))}
    return render(request, "console/parts/drill.html", context)


def _report(drill: Drill) -> dict[str, object]:
    return {
        **timeline_context(drill.failover),
        "drill": drill,
        "running": drill.state == OperationState.IN_PROGRESS,
        "strip": _strip(drill),
        "returned": drill.operation.failovers.exclude(pk=drill.failover_id).first(),
    }


def _strip(drill: Drill) -> Strip | None:
    probes = probes_of(drill.probes) if drill.judged_at is not None else []
    if not probes or drill.probing_started_at is None:
        return None
    lasted_ms = max(probe.answered_ms for probe in probes)
    scale = _STRIP_WIDTH / max(1, lasted_ms)
    bars = tuple(Bar(round(one.from_ms * scale), max(1, round(one.lasted_ms * scale))) for one in pauses_of(probes))
    fault = None
    if drill.fault_at is not None:
        fault = round((drill.fault_at - drill.probing_started_at) / timedelta(milliseconds=1) * scale)
    return Strip(lasted_ms, bars, fault)
