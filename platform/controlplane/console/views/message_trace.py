"""Where is my message? One box for the whole cluster."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import TraceForm
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.console.views.topic_parts import PREVIEW_BYTES
from controlplane.insight.whereabouts import Whereabouts, message_whereabouts
from controlplane.tenants.models import Tenant
from controlplane.topics.selectors import topic_list


@require_safe
@tenant_page("message.browse")
def message_trace_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """`?q=` finds a message by any id or key, and shows its story; or why it was not found."""
    found_cluster = cluster_get(tenant, cluster)
    topics = list(topic_list(found_cluster).values_list("name", flat=True))
    form = TraceForm(request.GET if "q" in request.GET else None, topics=topics)
    found: Whereabouts | None = None
    query = {"q": "k-1"}
    if form.is_bound:
        typed = {name: form[name].data for name in ("q", "topic", "trace_topic")}
        query = {name: str(value) for name, value in typed.items() if value}
    line = act_of("GET", f"{found_cluster.path}message-trace/?{urlencode(query)}")
    if wants_code(request):
        return code_answer(line)
    if form.is_valid():
        try:
            found = message_whereabouts(
                actor=request.user,
                cluster=found_cluster,
                text=form.cleaned_data["q"],
                topic=form.cleaned_data["topic"],
                trace_topic=form.cleaned_data["trace_topic"],
                body_limit_bytes=PREVIEW_BYTES,
            )
        except ApplicationError as error:
            form_take_error(form, error)
    context = {
        **cluster_context(request, found_cluster),
        "form": form,
        "found": found,
        "known_topics": set(topics),
        "curl": line,
    }
    return tenant_render(
        request,
        tenant,
        "console/message_trace.html",
        context,
        section="clusters",
        page="message-trace",
        status=status_of(form),
    )
