"""Pages of clusters: the list, a new one, the overview."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.clusters.labels import labelled
from controlplane.clusters.models import (
    Cluster,
    ClusterMode,
    ClusterState,
    Health,
    OperationState,
    OperationType,
)
from controlplane.clusters.selectors import (
    cluster_get,
    cluster_list,
    operation_latest,
)
from controlplane.clusters.services import cluster_create
from controlplane.common.errors import ApplicationError, NotFound
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context as cluster_context
from controlplane.console.forms import ClusterForm
from controlplane.console.health import HealthWords, health_words
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.console.views.failover import roles_context
from controlplane.console.views.figures import curves_context, live_of
from controlplane.failover.acknowledgement import acknowledgement_words
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.role_map import GroupRow, group_row
from controlplane.insight.figures import figures_latest
from controlplane.insight.models import ClusterFigures
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can

CLUSTERS_SHOWN_MAX = 100
# On purpose: a pill's state, not a health.
_STOPPED = "stopped"
# What changes a running cluster as a whole, and is shown on its page while it goes on or has failed.
_SHOWN_WHILE_RUNNING = (
    OperationType.CLUSTER_GROW,
    OperationType.CLUSTER_MODE,
    OperationType.CLUSTER_RESTART,
    OperationType.CLUSTER_UPGRADE,
    OperationType.CLUSTER_CA,
)


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A line of the list."""

    cluster: Cluster
    health: HealthWords
    topic_count: int
    figures: ClusterFigures | None

    @property
    def mode(self) -> str:
        """The mode with how often each message is kept, where that is more than once."""
        return mode_words(self.cluster)


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """A name server or a broker of the overview."""

    title: str
    role: str
    address: str
    health: str
    message: str
    started_at: datetime | None


@require_safe
@tenant_page("cluster.view")
def cluster_list_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show the tenant's clusters: the tenant's home page."""
    wanted = [one for one in request.GET.getlist("label") if one]
    search = request.GET.get("q", "").strip().replace("\x00", "")
    found = labelled(cluster_list(tenant), wanted)
    if search:
        found = found.filter(Q(name__icontains=search) | Q(slug__icontains=search))
    clusters = list(found.annotate(topic_count=Count("topics")).order_by("name")[:CLUSTERS_SHOWN_MAX])
    left_out = found.count() - len(clusters) if len(clusters) == CLUSTERS_SHOWN_MAX else 0
    figures = figures_latest(clusters)
    context = {
        "clusters": [
            ClusterRow(cluster, health_words(cluster), cluster.topic_count, figures.get(cluster.pk))
            for cluster in clusters
        ],
        "labels_wanted": wanted,
        "search": search,
        "left_out": left_out,
        "can_create": actor_can(request.user, "cluster.create", tenant),
        "curl": act_of("GET", f"{tenant.path}clusters/?{urlencode([('label', one) for one in wanted])}"),
    }
    return tenant_render(request, tenant, "console/clusters.html", context, section="clusters", page="list")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.create")
def cluster_new(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Create a cluster, then show the progress."""
    form = ClusterForm(request.POST or None)
    command = act_of("POST", f"{tenant.path}clusters/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            _, operation = cluster_create(actor=request.user, tenant=tenant, **form.cleaned_data)
        except ApplicationError as error:
            form_take_error(form, error, {"slug_taken": "slug"})
        else:
            return redirect("console:operation", tenant.slug, operation.pk)
    context = {"form": form, "curl": command}
    return tenant_render(
        request, tenant, "console/cluster_new.html", context, section="clusters", status=status_of(form)
    )


@require_safe
@tenant_page("cluster.view")
def cluster_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show a cluster: health, what flows through it, who leads, daemons."""
    found = cluster_get(tenant, cluster)
    return tenant_render(
        request,
        tenant,
        "console/cluster.html",
        _overview(request, found),
        section="clusters",
        page="overview",
    )


@require_safe
@tenant_page("cluster.view")
def cluster_ca(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the certificate that programs trust, as a file."""
    found = cluster_get(tenant, cluster)
    if not found.tls_ca:
        raise NotFound(say("This cluster was made before TLS; a new one has it."))
    return HttpResponse(found.tls_ca, content_type="application/x-pem-file")


@require_safe
@tenant_page("cluster.view")
def cluster_health(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the health sentence alone; the overview asks for it every ten seconds."""
    found = cluster_get(tenant, cluster)
    context = {"health": health_words(found), "alone": _alone(found)}
    return render(request, "console/parts/health.html", context)


def mode_words(cluster: Cluster) -> str:
    """Return the mode in words, with the replicas of each group where there are several."""
    replicas = max((len(group.replicas.all()) for group in cluster.broker_groups.all()), default=1)
    name: str = cluster.get_mode_display()
    return name if replicas < 2 else say("%(name)s, %(replicas)s replicas", name=name, replicas=replicas)


def _overview(request: ConsoleRequest, cluster: Cluster) -> dict[str, object]:
    operation = operation_latest(cluster)
    settled = operation is None or (
        operation.state in (OperationState.COMPLETED, OperationState.CANCELLED)
        or (cluster.state == ClusterState.RUNNING and operation.type not in _SHOWN_WHILE_RUNNING)
    )
    roles = roles_context(request, cluster)
    return {
        **cluster_context(request, cluster),
        "health": health_words(cluster),
        "alone": _alone(cluster),
        "live": live_of(cluster),
        **curves_context(request, cluster),
        "operation": None if settled else operation,
        "topic_count": cluster.topics.count(),
        "daemons": _daemons(cluster, roles["groups"]),
        "acknowledgement": "" if roles["groups"] else _acknowledgement(cluster),
        **roles,
        "curl": act_of("GET", f"{cluster.path}figures/"),
    }


def _alone(cluster: Cluster) -> GroupRow | None:
    """The one group of a cluster of one broker, which has no role map, to be drawn beside its health."""
    groups = cluster.broker_groups.all()
    if cluster.mode != ClusterMode.SINGLE or not cluster.is_running or len(groups) != 1:
        return None
    return group_row(groups[0]) if len(groups[0].replicas.all()) == 1 else None


def _acknowledgement(cluster: Cluster) -> str:
    """What SEND_OK means in a cluster of one broker, which has no role map to say it."""
    if cluster.mode != ClusterMode.SINGLE:
        return ""
    alone = GroupView(name="", in_sync_replicas=cluster.in_sync_replicas, replicas=())
    return acknowledgement_words(alone, None, cluster.flush_disk_type)


def _daemons(cluster: Cluster, groups: list[GroupRow]) -> list[DaemonRow]:
    is_stopped = cluster.state in (ClusterState.SUSPENDED, ClusterState.DELETION_PENDING)
    # The role map is sampled more often: what it found silent is not called healthy here.
    silent = {
        (group.name, replica.replica_id)
        for group in groups
        for replica in group.replicas
        if replica.role == "unknown" and replica.unreachable_since is not None
    }
    rows = [
        DaemonRow(
            say("Name server %(position)s", position=server.position + 1),
            "",
            "" if server.port is None else server.address,
            _STOPPED if is_stopped else server.health,
            server.health_message,
            server.process_started_at,
        )
        for server in cluster.name_servers.all()
    ]
    for group in cluster.broker_groups.all():
        alone = not cluster.is_replicated and len(group.replicas.all()) == 1
        rows += [
            DaemonRow(
                group.name,
                say("master") if alone else say("replica %(broker_id)s", broker_id=replica.broker_id),
                "" if replica.port is None else replica.address,
                _STOPPED
                if is_stopped
                else Health.DOWN
                if (group.name, replica.broker_id) in silent
                else replica.health,
                replica.health_message,
                replica.process_started_at,
            )
            for replica in group.replicas.all()
        ]
    return rows
