"""The settings of a cluster: its name, who promotes, growing, suspending, deleting. Each form posts to an address of its own."""

from django.conf import settings
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.clusters.labels import labels_text
from controlplane.clusters.lifecycle import cluster_delete, has_run
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.selectors import cluster_get
from controlplane.clusters.services import cluster_grow, cluster_update, may_add_group
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of, code_answer, form_values, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import ClusterNameForm, GrowForm, LabelsForm, PolicyForm, SuspendForm, TypedNameForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.delete")
def cluster_settings(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the settings; a POST deletes the cluster after its name was typed, then shows the progress."""
    found = cluster_get(tenant, cluster)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=found.slug)
    if form.is_valid():
        try:
            operation = cluster_delete(actor=request.user, cluster=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return redirect("console:operation", tenant.slug, operation.pk)
    return settings_render(request, found, delete_form=form)


@require_POST
@tenant_page("cluster.update")
def cluster_rename(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Change what people call the cluster."""
    found = cluster_get(tenant, cluster)
    form = ClusterNameForm(request.POST)
    if wants_code(request):
        return code_answer(act_of("PATCH", found.path, form_values(form)))
    if form.is_valid():
        try:
            cluster_update(actor=request.user, cluster=found, name=form.cleaned_data["name"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("It is called %(name)s now.", name=found.name))
            return redirect("console:cluster-settings", tenant.slug, found.slug)
    return settings_render(request, found, name_form=form)


@require_POST
@tenant_page("cluster.update")
def cluster_labels(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Give the cluster other labels."""
    found = cluster_get(tenant, cluster)
    form = LabelsForm(request.POST)
    if wants_code(request):
        return code_answer(_labels_curl(found, form))
    if form.is_valid():
        try:
            cluster_update(actor=request.user, cluster=found, labels=form.cleaned_data["labels"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("The labels are saved."))
            return redirect("console:cluster-settings", tenant.slug, found.slug)
    return settings_render(request, found, labels_form=form)


@require_POST
@tenant_page("cluster.update")
def cluster_policy(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Change who promotes a slave."""
    found = cluster_get(tenant, cluster)
    form = PolicyForm(request.POST)
    if wants_code(request):
        return code_answer(_policy_curl(found, form))
    if form.is_valid():
        try:
            cluster_update(actor=request.user, cluster=found, failover_policy=form.cleaned_data["failover_policy"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("Saved: %(policy)s", policy=_policy_words(found)))
            return redirect("console:cluster-settings", tenant.slug, found.slug)
    return settings_render(request, found, policy_form=form)


@require_POST
@tenant_page("cluster.grow")
def cluster_grow_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Add a broker group, then show the progress."""
    found = cluster_get(tenant, cluster)
    form = GrowForm(request.POST)
    if wants_code(request):
        return code_answer(_grow_curl(found, form))
    if form.is_valid():
        try:
            operation = cluster_grow(actor=request.user, cluster=found, by=form.cleaned_data["by"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            return redirect("console:operation", tenant.slug, operation.pk)
    return settings_render(request, found, grow_form=form)


def settings_render(
    request: ConsoleRequest,
    cluster: Cluster,
    *,
    delete_form: Form | None = None,
    policy_form: Form | None = None,
    grow_form: Form | None = None,
    name_form: Form | None = None,
    suspend_form: Form | None = None,
    labels_form: Form | None = None,
) -> HttpResponse:
    """Return the page with all its forms; the one that was posted and refused in place of its empty one."""
    forms = (delete_form, policy_form, grow_form, name_form, suspend_form, labels_form)
    posted = next((form for form in forms if form is not None), None)
    policy_form = policy_form or PolicyForm(initial={"failover_policy": cluster.failover_policy})
    grow_form = grow_form or GrowForm()
    suspend_form = suspend_form or SuspendForm()
    labels_form = labels_form or LabelsForm(initial={"labels": labels_text(cluster.labels)})
    name_form = name_form or ClusterNameForm(initial={"name": cluster.name})
    context = {
        **cluster_context(request, cluster),
        "delete_form": delete_form or TypedNameForm(expected=cluster.slug),
        "policy_form": policy_form,
        "grow_form": grow_form,
        "name_form": name_form,
        "suspend_form": suspend_form,
        "labels_form": labels_form,
        "curl_labels": _labels_curl(cluster, labels_form),
        "can_suspend": cluster.is_running and actor_can(request.user, "cluster.suspend", cluster.tenant),
        "undo_hours": f"{settings.HIGHWATER_DELETE_UNDO_HOURS:g}" if has_run(cluster) else "0",
        "may_add_group": may_add_group(cluster),
        "groups": list(cluster.broker_groups.order_by("name")),
        "replica_count": max((group.replicas.count() for group in cluster.broker_groups.all()), default=0),
        "topic_count": cluster.topics.count(),
        "curl_name": act_of("PATCH", cluster.path, {"name": str(name_form["name"].value() or "")}),
        "curl_policy": _policy_curl(cluster, policy_form),
        "curl_grow": _grow_curl(cluster, grow_form),
        "curl_suspend": act_of("POST", f"{cluster.path}suspend/", form_values(suspend_form)),
        "curl_delete": act_of("POST", f"{cluster.path}purge/", {"confirm": cluster.slug})
        if cluster.state == ClusterState.DELETION_PENDING
        else act_of("DELETE", cluster.path),
    }
    return tenant_render(
        request,
        cluster.tenant,
        "console/cluster_settings.html",
        context,
        section="clusters",
        page="settings",
        status=200 if posted is None else status_of(posted),
    )


def _labels_curl(cluster: Cluster, form: Form) -> Act:
    typed = form_values(form).get("labels", {}) if form.is_bound else cluster.labels
    return act_of("PATCH", cluster.path, {"labels": typed})


def _policy_curl(cluster: Cluster, form: Form) -> Act:
    return act_of("PATCH", cluster.path, form_values(form))


def _grow_curl(cluster: Cluster, form: Form) -> Act:
    return act_of("POST", f"{cluster.path}grow/", form_values(form))


def _policy_words(cluster: Cluster) -> str:
    return (
        say("an operator promotes.")
        if cluster.failover_policy == "manual"
        else say("promoted by itself when nothing is lost.")
    )
