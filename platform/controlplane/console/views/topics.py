"""Pages of topics: the list, a new one, one with its queues and messages, deleting."""

from dataclasses import replace

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import MessageForm, TopicChangeForm, TopicForm, TypedNameForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.console.views.topic_parts import queues_context, topic_render
from controlplane.insight.availability import jobs_problem
from controlplane.insight.lists_as_csv import topics_csv
from controlplane.insight.selectors import lag_of_topics
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require
from controlplane.topics.models import Topic
from controlplane.topics.selectors import topic_get, topics_named
from controlplane.topics.services import TopicOptions, topic_create, topic_delete, topic_update

TOPICS_SHOWN_MAX = 100


@require_safe
@tenant_page("topic.view")
def topic_list_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Show the cluster's topics by name; a search narrows them down."""
    found = cluster_get(tenant, cluster)
    search, matching = _matching(request, found)
    topics = list(matching[:TOPICS_SHOWN_MAX])
    lags = lag_of_topics(found, [topic.name for topic in topics])
    context = {
        **cluster_context(request, found),
        "topics": [(topic, lags.get(topic.name)) for topic in topics],
        "lags": lags,
        "lag_as_of": max((one.as_of for one in lags.values()), default=None),
        "jobs_problem": "" if lags else jobs_problem(),
        "search": search,
        "left_out": matching.count() - len(topics) if len(topics) == TOPICS_SHOWN_MAX else 0,
        "curl": act_of("GET", f"{found.path}topics/?live=false"),
    }
    return tenant_render(request, tenant, "console/topics.html", context, section="clusters", page="topics")


@require_safe
@tenant_page("topic.view")
def topic_list_file(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Return the cluster's topics, or those that a search finds, as CSV; each with the group that has the largest backlog."""
    found = cluster_get(tenant, cluster)
    return topics_csv(found, request.GET.get("q", ""))


def _matching(request: ConsoleRequest, cluster: Cluster) -> tuple[str, QuerySet[Topic]]:
    """What was searched for, and the topics whose names hold it."""
    search = request.GET.get("q", "").strip()
    return search, topics_named(cluster, search)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("topic.create")
def topic_new(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """Create a topic on the brokers, then show it."""
    found = cluster_get(tenant, cluster)
    form = TopicForm(request.POST if request.method == "POST" else None)
    command = act_of("POST", f"{found.path}topics/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            topic = topic_create(
                actor=request.user, cluster=found, name=form.cleaned_data["name"], options=form.options()
            )
        except ApplicationError as error:
            form_take_error(form, error, {"topic_exists": "name"})
        else:
            tell_done(request, gettext("The topic %(name)s is ready.") % {"name": topic.name})
            return redirect("console:topic", tenant.slug, found.slug, topic.name)
    context = {
        **cluster_context(request, found),
        "form": form,
        "curl": command,
    }
    return tenant_render(request, tenant, "console/topic_new.html", context, section="clusters", status=status_of(form))


@require_safe
@tenant_page("topic.view")
def topic_page(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Show a topic: its queues with their offsets, a form for a test message, its newest messages."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    return topic_render(request, found, MessageForm())


@require_safe
@tenant_page("topic.view")
def topic_queues(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Return the queues alone; the topic's page asks for them after a test message was sent."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    context = {"tenant": tenant, "cluster": found.cluster, "topic": found, **queues_context(found)}
    return render(request, "console/parts/queues.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("topic.update")
def topic_change(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Change a topic's queues, permission, limits or description on the brokers, then show it."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    before = {name: getattr(found, name) for name in TopicChangeForm.base_fields}
    form = TopicChangeForm(request.POST if request.method == "POST" else None, initial=before)
    command = act_of("PATCH", found.path, form.changes())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            topic_update(
                actor=request.user,
                topic=found,
                options=replace(TopicOptions.of(found), **form.changed()),
            )
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The topic %(name)s is changed.") % {"name": found.name})
            return redirect("console:topic", tenant.slug, found.cluster.slug, found.name)
    context = {**cluster_context(request, found.cluster), "topic": found, "form": form, "curl": command}
    return tenant_render(
        request, tenant, "console/topic_change.html", context, section="clusters", status=status_of(form)
    )


@require_POST
@tenant_page("topic.create")
def topic_retry(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Ask the brokers again for a topic whose creation failed."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    try:
        topic_create(actor=request.user, cluster=found.cluster, name=found.name, options=TopicOptions.of(found))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, gettext("The topic %(name)s is ready.") % {"name": found.name})
    return redirect("console:topic", tenant.slug, found.cluster.slug, found.name)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("topic.view")
def topic_delete_page(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Delete a topic after its name was typed."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    actor_require(request.user, "topic.delete", tenant)
    back = reverse("console:topic", args=[tenant.slug, found.cluster.slug, found.name])
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=found.name)
    if form.is_valid():
        try:
            topic_delete(actor=request.user, topic=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The topic %(name)s is deleted.") % {"name": found.name})
            return redirect("console:topic-list", tenant.slug, found.cluster.slug)
    context = {
        "form": form,
        "heading": gettext("Delete the topic %(name)s?") % {"name": found.name},
        "consequence": gettext(
            "Its messages can no longer be received, and producers are refused. This can’t be undone."
        ),
        "verb": gettext("Delete"),
        "button": gettext("Delete topic"),
        "back": back,
        "crumbs": [
            {"url": reverse("console:topic-list", args=[tenant.slug, found.cluster.slug]), "words": gettext("Topics")},
            {"url": back, "words": found.name},
        ],
        "curl": act_of("DELETE", found.path),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="clusters", status=status_of(form))
