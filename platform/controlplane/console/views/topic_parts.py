"""The topic's page, which the pages of its messages render, too."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpResponse
from django.urls import reverse

from controlplane.common.errors import ApplicationError
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import Act, act_of, form_values
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import BrowseForm, MessageForm, SearchForm
from controlplane.console.pages import status_of, tenant_render
from controlplane.tenants.rules import actor_can
from controlplane.topics.gateway import messages_browse
from controlplane.topics.models import Topic
from controlplane.topics.schemas import schema_find
from controlplane.topics.search import FoundMessages
from controlplane.topics.selectors import topics_live
from controlplane.topics.services import TopicOptions

NEWEST_LIMIT = 20
SEARCH_LIMIT = 50
PREVIEW_BYTES = 200


def send_context(topic: Topic, form: MessageForm) -> dict[str, object]:
    """Return what the form for a test message needs."""
    return {"send_form": form, "send_curl": send_curl(topic, form)}


def send_curl(topic: Topic, form: MessageForm) -> Act:
    """Return the command that sends what was typed."""
    return act_of("POST", f"{topic.path}messages/", form.body_sent())


def search_curl(topic: Topic, form: SearchForm) -> Act:
    """Return the command that looks for what was typed; for an example while nothing was."""
    query = {"key": "" if form.is_bound else "k-1", **form_values(form)}
    texts = {name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in query.items()}
    return act_of("GET", f"{topic.path}messages/search/?{urlencode(texts)}")


def retry_act(topic: Topic) -> Act:
    """Return what asks the brokers for a topic again: it is created with all that was chosen for it."""
    chosen = {name: value for name, value in asdict(TopicOptions.of(topic)).items() if value is not None}
    return act_of("POST", f"{topic.cluster.path}topics/", {"name": topic.name, **chosen})


def queues_context(topic: Topic) -> dict[str, object]:
    """Return the queues with their offsets, or why they are not known now."""
    live = topics_live(topic.cluster, [topic], with_limits=True)[topic.name]
    return {
        "queues": live.queues,
        "limits": live.limits,
        "message_count": live.message_count,
        "live_problem": live.message,
        "as_of": live.as_of,
    }


def search_context(topic: Topic, form: SearchForm, found: FoundMessages | None = None) -> dict[str, object]:
    """Return what the search for a message needs: its form, and what was found once something was looked for."""
    key = str(form.cleaned_data.get("key", "")) if form.is_bound and form.is_valid() else ""
    return {
        "search_form": form,
        "search_limit": SEARCH_LIMIT,
        "found": found,
        "sought": key,
        "search_query": urlencode({name: form.data[name] for name in form.fields if form.data.get(name)}),
        "search_curl": search_curl(topic, form),
    }


def newest_context(request: ConsoleRequest, topic: Topic) -> dict[str, object]:
    """Return the newest messages, or with `?from=` those from a moment on; or why they can't be read now."""
    form = BrowseForm({"since": request.GET["from"]} if request.GET.get("from") else None)
    since = form.cleaned_data["since"] if form.is_bound and form.is_valid() else None
    query = {"limit": str(NEWEST_LIMIT), **({"since": since.isoformat()} if since is not None else {})}
    context: dict[str, object] = {
        "browse_form": form,
        "since": since,
        "newest": [],
        "newest_problem": "",
        "read_at": datetime.now(UTC),
        "browse_curl": act_of("GET", f"{topic.path}messages/?{urlencode(query)}"),
    }
    if form.errors:
        return context
    try:
        page = messages_browse(
            actor=request.user, topic=topic, limit=NEWEST_LIMIT, body_limit_bytes=PREVIEW_BYTES, since=since
        )
    except ApplicationError as error:
        context["newest_problem"] = error.message
        return context
    context["newest"] = page.messages
    if since is not None and len(page.messages) == NEWEST_LIMIT:
        context["later"] = _later_than(page.messages[0].stored_at, page.messages[-1].stored_at)
    return context


def _later_than(first: datetime, last: datetime) -> str:
    """Return from when on the next page is: with the last message's moment again, unless all are of one moment."""
    return (last if last > first else last + timedelta(milliseconds=1)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def topic_render(
    request: ConsoleRequest,
    topic: Topic,
    form: MessageForm,
    more: Mapping[str, object] | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    """Render a topic's page; `more` is what a message that was just sent, or looked for, without scripts adds."""
    tenant = topic.cluster.tenant
    can_browse = actor_can(request.user, "message.browse", tenant)
    context = {
        **cluster_context(request, topic.cluster),
        "topic": topic,
        "seen_again_at": reverse("console:topic", args=[tenant.slug, topic.cluster.slug, topic.name]),
        "can_send": topic.cluster.is_running and actor_can(request.user, "message.send", tenant),
        "can_browse": can_browse,
        "can_change_topic": topic.cluster.is_running and actor_can(request.user, "topic.update", tenant),
        "can_delete_topic": actor_can(request.user, "topic.delete", tenant),
        "can_change_schema": actor_can(request.user, "topic.update", tenant),
        "retry_act": retry_act(topic),
        "schema": schema_find(topic),
        "schema_curl": act_of("GET", f"{topic.path}schema/"),
        **queues_context(topic),
        **send_context(topic, form),
        **(search_context(topic, SearchForm()) if can_browse else {}),
        **(newest_context(request, topic) if can_browse else {}),
        **(more or {}),
    }
    status = max(status_of(form), status)
    return tenant_render(request, tenant, "console/topic.html", context, section="clusters", status=status)
