"""By which protobuf message a topic's bodies are shown: give a schema, and take it away."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import ConfirmForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.console.schema_forms import SchemaForm
from controlplane.tenants.models import Tenant
from controlplane.topics.schemas import schema_delete, schema_find, schema_get, schema_set
from controlplane.topics.selectors import topic_get


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("topic.update")
def topic_schema_page(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Give a topic a schema, or another one, then show the topic."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    given = schema_find(found)
    posted = request.method == "POST"
    form = SchemaForm(request.POST if posted else None, request.FILES if posted else None, given=given)
    command = act_of("PUT", f"{found.path}schema/", form.body())
    if wants_code(request):
        return code_answer(command)
    if form.is_valid():
        try:
            schema = schema_set(actor=request.user, topic=found, **form.values())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("Bodies are shown as %(message)s from now on.", message=schema.message))
            return redirect("console:topic", tenant.slug, found.cluster.slug, found.name)
    context = {
        **cluster_context(request, found.cluster),
        "topic": found,
        "form": form,
        "schema": given,
        "curl": command,
    }
    return tenant_render(
        request, tenant, "console/topic_schema.html", context, section="clusters", status=status_of(form)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("topic.update")
def topic_schema_delete(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Take a topic's schema away, after a second look."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    schema = schema_get(found)
    back = reverse("console:topic", args=[tenant.slug, found.cluster.slug, found.name])
    form = ConfirmForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            schema_delete(actor=request.user, topic=found)
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, say("Bodies are shown as they come again."))
            return redirect(back)
    context = {
        "form": form,
        "heading": say("Delete the schema of %(name)s?", name=found.name),
        "consequence": say("Bodies are shown as text or hexadecimal again. Messages and programs are not affected."),
        "verb": say("Delete"),
        "button": say("Delete schema"),
        "back": back,
        "crumbs": [
            {"url": reverse("console:topic-list", args=[tenant.slug, found.cluster.slug]), "words": say("Topics")},
            {"url": back, "words": found.name},
        ],
        "curl": act_of("DELETE", schema.path),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="clusters", status=status_of(form))
