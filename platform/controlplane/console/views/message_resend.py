"""A stored message, edited and sent again."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.message_forms import ResendForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tenant_render
from controlplane.tenants.models import Tenant
from controlplane.topics.gateway import message_get
from controlplane.topics.resends import message_resend, resend_list
from controlplane.topics.selectors import topic_get, topic_list


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("message.send")
def message_resend_page(
    request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
) -> HttpResponse:
    """Show a message as a form; a POST sends it as a new one and leads back to the message's page."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    place: dict[str, Any] = {"broker_name": broker, "queue_id": queue_id, "queue_offset": queue_offset}
    message = message_get(actor=request.user, topic=found, **place)
    resends = resend_list(found, **place)
    form = ResendForm(
        request.POST if request.method == "POST" else None,
        message=message,
        topic=found.name,
        topics=list(topic_list(found.cluster).values_list("name", flat=True)),
        sent_before=bool(resends),
    )
    line = act_of("POST", f"{found.path}messages/{broker}/{queue_id}/{queue_offset}/resend/", form.body_sent())
    if wants_code(request):
        return code_answer(line)
    if form.is_valid():
        try:
            sent = message_resend(
                actor=request.user,
                topic=found,
                **place,
                edit=form.edit(),
                again=form.cleaned_data.get("again", False),
            )
        except ApplicationError as error:
            form_take_error(form, error, {"resent_before": "again"} if resends else None)
        else:
            words = _("Sent again as a new message: %(status)s, in queue %(queue)s at offset %(offset)s.")
            tell_done(
                request,
                words % {"status": sent.status, "queue": sent.queue_id, "offset": sent.queue_offset},
            )
            return redirect("console:message", tenant.slug, found.cluster.slug, found.name, *place.values())
    context = {
        **cluster_context(request, found.cluster),
        "topic": found,
        "message": message,
        "resends": resends,
        "form": form,
        "curl": line,
    }
    return tenant_render(
        request, tenant, "console/message_resend.html", context, section="clusters", status=status_of(form)
    )
