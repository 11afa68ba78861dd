"""A topic's messages as they come."""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.message_forms import TailForm
from controlplane.console.pages import status_of, tenant_render
from controlplane.console.views.clusters import cluster_context
from controlplane.console.views.topic_parts import PREVIEW_BYTES
from controlplane.tenants.models import Tenant
from controlplane.topics.selectors import topic_get
from controlplane.topics.tail import TailFilter, messages_tail

SHOWN_AT_ONCE = 50


@require_safe
@tenant_page("message.browse")
def message_tail_page(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Show what is stored from now on, or since `?cursor=`. A script asks for the rows alone each two seconds, for a while."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    form = TailForm(request.GET)
    filters = form.cleaned_data if form.is_valid() else {}
    wanted = {name: str(value) for name, value in filters.items() if value}
    act = act_of("GET", f"{found.path}messages/tail/?{urlencode(wanted)}")
    if wants_code(request):
        return code_answer(act)
    context: dict[str, object] = {
        "tenant": tenant,
        "cluster": found.cluster,
        "topic": found,
        "form": form,
        "wanted": wanted,
        "curl": act,
        "cursor": request.GET.get("cursor", ""),
    }
    status = status_of(form)
    if not form.errors:
        try:
            page = messages_tail(
                actor=request.user,
                topic=found,
                cursor=request.GET.get("cursor", ""),
                wanted=TailFilter(**filters),
                limit=SHOWN_AT_ONCE,
                body_limit_bytes=PREVIEW_BYTES,
            )
            context |= {"page": page, "cursor": page.cursor, "messages": page.messages[::-1]}
        except ApplicationError as error:
            context["problem"] = error.message
    context["next_query"] = urlencode({**wanted, "cursor": str(context["cursor"])})
    if request.htmx:
        return render(request, "console/parts/tail_rows.html", context, status=status)
    context |= cluster_context(request, found.cluster)
    return tenant_render(request, tenant, "console/message_tail.html", context, section="clusters", status=status)
