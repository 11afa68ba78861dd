"""Messages of a topic: send a test message, browse the newest, look at one."""

import json
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.csv_files import csv_response
from controlplane.common.errors import ApplicationError, InvalidInput
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import MessageForm, SearchForm
from controlplane.console.pages import form_take_error, status_of, tenant_render
from controlplane.console.views.topic_parts import (
    PREVIEW_BYTES,
    SEARCH_LIMIT,
    newest_context,
    search_context,
    search_curl,
    send_context,
    send_curl,
    topic_render,
)
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES, BodyForm
from controlplane.topics.gateway import BrowsedMessage, message_get, message_send
from controlplane.topics.models import Topic
from controlplane.topics.resends import resend_list
from controlplane.topics.schemas import schema_exists
from controlplane.topics.search import FoundMessages, messages_search
from controlplane.topics.selectors import topic_get

# What the page calls each way to show a body.
_FORMS = {
    BodyForm.AUTO: say("As it comes"),
    BodyForm.TEXT: say("Text"),
    BodyForm.JSON: "JSON",
    BodyForm.HEX: say("Hexadecimal"),
    BodyForm.BASE64: "base64",
    BodyForm.PROTOBUF: "Protobuf",
}


@require_safe
@tenant_page("message.browse")
def message_list(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Return the newest messages alone, for refreshing them in place."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    context = {
        "tenant": tenant,
        "cluster": found.cluster,
        "topic": found,
        "can_send": actor_can(request.user, "message.send", tenant),
        **newest_context(request, found),
    }
    return render(request, "console/parts/messages.html", context)


@require_POST
@tenant_page("topic.view")
def message_send_page(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Send a test message. With htmx the answer replaces the form; without, it is the topic's page."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    actor_require(request.user, "message.send", tenant)
    form = MessageForm(request.POST)
    if wants_code(request):
        return code_answer(send_curl(found, form))
    more: dict[str, object] = {}
    if form.is_valid():
        try:
            more["sent"] = message_send(actor=request.user, topic=found, message=form.message())
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            form = MessageForm()
    if not request.htmx:
        return topic_render(request, found, form, more)
    context = {"tenant": tenant, "cluster": found.cluster, "topic": found, **send_context(found, form), **more}
    response = render(request, "console/parts/send.html", context, status=status_of(form))
    if more:
        response.headers["HX-Trigger"] = "message-sent"
    return response


@require_safe
@tenant_page("message.browse")
def message_search(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Find messages by key or id. With htmx the answer replaces the form; without, it is the topic's page."""
    found_topic = topic_get(cluster_get(tenant, cluster), topic)
    form = SearchForm(request.GET)
    if wants_code(request):
        return code_answer(search_curl(found_topic, form))
    found = _search(request, found_topic, form, body_limit_bytes=PREVIEW_BYTES)
    context = search_context(found_topic, form, found)
    if not request.htmx:
        return topic_render(request, found_topic, MessageForm(), context, status=status_of(form))
    context |= {"tenant": tenant, "cluster": found_topic.cluster, "topic": found_topic}
    return render(request, "console/parts/search.html", context, status=status_of(form))


def _search(request: ConsoleRequest, topic: Topic, form: SearchForm, *, body_limit_bytes: int) -> FoundMessages | None:
    """None where the form is not valid, or was refused: it says why then."""
    if not form.is_valid():
        return None
    try:
        return messages_search(
            actor=request.user,
            topic=topic,
            sought=form.sought(),
            limit=SEARCH_LIMIT,
            body_limit_bytes=body_limit_bytes,
        )
    except ApplicationError as error:
        form_take_error(form, error)
        return None


@require_safe
@tenant_page("message.browse")
def message_search_file(request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str) -> HttpResponse:
    """Return the messages that a search finds as CSV, masked as on the page; a search that can't be made is the topic's page."""
    found_topic = topic_get(cluster_get(tenant, cluster), topic)
    form = SearchForm(request.GET)
    found = _search(request, found_topic, form, body_limit_bytes=BODY_SHOWN_MAX_BYTES)
    if found is not None:
        return csv_response(f"messages-{found_topic.name}", _FILE_COLUMNS, map(_file_row, found.messages))
    context = search_context(found_topic, form, None)
    return topic_render(request, found_topic, MessageForm(), context, status=status_of(form))


_FILE_COLUMNS = (
    *(
        "stored_at",
        "born_at",
        "born_host",
        "broker_name",
        "queue_id",
        "queue_offset",
        "message_id",
        "offset_message_id",
    ),
    *("tags", "keys", "properties", "reconsume_times", "masked", "body", "body_encoding", "body_truncated"),
)


def _file_row(message: BrowsedMessage) -> tuple[object, ...]:
    body, properties = message.body, json.dumps(message.properties, ensure_ascii=False, sort_keys=True)
    return (
        *(message.stored_at, message.born_at, message.born_host, message.broker_name, message.queue_id),
        *(message.queue_offset, message.message_id, message.offset_message_id, message.tags, " ".join(message.keys)),
        *(properties, message.reconsume_times, " ".join(message.masked), body.text, body.encoding, str(body.truncated)),
    )


@require_safe
@tenant_page("message.browse")
def message_page(
    request: ConsoleRequest, tenant: Tenant, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
) -> HttpResponse:
    """Show one message whole: its body (the first 64 KiB; `?as=` says how), properties, and where it is stored."""
    found = topic_get(cluster_get(tenant, cluster), topic)
    place: dict[str, Any] = {"broker_name": broker, "queue_id": queue_id, "queue_offset": queue_offset}
    wanted = request.GET.get("as", "")
    form = BodyForm(wanted) if wanted in set(BodyForm) else BodyForm.AUTO
    body_problem = ""
    try:
        message = message_get(actor=request.user, topic=found, **place, body_as=form)
    except InvalidInput as error:
        body_problem, form = error.errors[0].message, BodyForm.AUTO
        message = message_get(actor=request.user, topic=found, **place)
    has_schema = schema_exists(found.cluster, found.name)
    context = {
        **cluster_context(request, found.cluster),
        "topic": found,
        "message": message,
        "properties": sorted(message.properties.items()),
        "resends": resend_list(found, broker, queue_id, queue_offset),
        "can_send": found.cluster.is_running and actor_can(request.user, "message.send", tenant),
        "can_consume": found.cluster.is_running and actor_can(request.user, "message.consume", tenant),
        "body_as": form,
        "body_forms": [(one, words) for one, words in _FORMS.items() if has_schema or one is not BodyForm.PROTOBUF],
        "body_problem": body_problem,
        "curl": act_of("GET", f"{found.path}messages/{broker}/{queue_id}/{queue_offset}/?body_as={form}"),
    }
    return tenant_render(request, tenant, "console/message.html", context, section="clusters")
