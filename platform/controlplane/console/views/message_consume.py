"""A stored message, handled now by a member that a person picks."""

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError, FactorNeeded, NotFound
from controlplane.common.sentences import say, say_all
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.message_forms import ConsumeForm
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.consumers.direct import message_consume, message_groups
from controlplane.consumers.selectors import Member, group_members
from controlplane.tenants.models import Tenant
from controlplane.topics.selectors import topic_get

MEMBERS_SHOWN_MAX = 200


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("message.consume")
def message_consume_page(
    request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
) -> HttpResponse:
    """Let a person pick a group (`?group=`) and one of its members; a POST has the member handle the message."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    if not found.cluster.broker_groups.filter(name=broker).exists():
        raise NotFound(say("There is no message at this place."))
    is_post = request.method == "POST"
    group = str((request.POST if is_post else request.GET).get("group", ""))
    members: tuple[Member, ...] = ()
    context: dict[str, Any] = {"groups": ()}
    try:
        context["groups"] = message_groups(actor=request.user, topic=found)
        if group:
            connected = group_members(found.cluster, group).members
            members = connected[:MEMBERS_SHOWN_MAX]
            context["members_more"] = len(connected) - len(members)
    except FactorNeeded:
        raise
    except ApplicationError as error:
        context["problem"] = say_all(error.message, error.hint)
    form = ConsumeForm(request.POST if is_post else None, group=group, members=members)
    sent = {"group": group or "my-group", "client_id": form["client_id"].value() or "10.0.0.7@4711"}
    line = act_of("POST", f"{found.path}messages/{broker}/{queue_id}/{queue_offset}/consume/", sent)
    if wants_code(request):
        return code_answer(line)
    if form.is_valid():
        context["asked"] = form.cleaned_data["client_id"]
        try:
            context["handled"] = message_consume(
                actor=request.user,
                topic=found,
                broker_name=broker,
                queue_id=queue_id,
                queue_offset=queue_offset,
                group=group,
                client_id=form.cleaned_data["client_id"],
            )
        except ApplicationError as error:
            form_take_error(form, error)
    context |= {
        **cluster_context(request, found.cluster),
        "topic": found,
        "broker": broker,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "group": group,
        "members": members,
        "form": form,
        "curl": line,
    }
    return tenant_render(
        request, tenant, "console/message_consume.html", context, section="clusters", status=status_of(form)
    )
