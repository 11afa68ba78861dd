"""Dead letters of a group: look, take away as a file, send again at a rate."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.clusters.selectors import cluster_get
from controlplane.common.downloads import as_download
from controlplane.common.errors import ApplicationError, InvalidInput
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.group_forms import ReplayForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.console.views.topic_parts import PREVIEW_BYTES
from controlplane.consumers.dead_letter_apis import EXPORT_TYPES
from controlplane.consumers.dead_letters import dead_letters, dead_letters_export
from controlplane.consumers.models import DeadLetterReplay, ReplayState, ReplayTarget
from controlplane.consumers.replays import replay_cancel, replay_continue, replay_start
from controlplane.consumers.selectors import group_path, replay_get, replay_list
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require

LETTERS_SHOWN = 50
REPLAYS_SHOWN = 20
OUTCOMES_SHOWN = 100


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("message.browse")
def dead_letters_page(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Show the newest dead letters; a POST replays those that were selected, or all."""
    found = cluster_get(tenant, cluster)
    form = ReplayForm(request.POST if request.method == "POST" else None)
    chosen = request.POST.getlist("place")
    line = act_of("POST", f"{group_path(found, group)}dead-letter-replays/", form.body_sent(chosen))
    if request.method == "POST":
        actor_require(request.user, "dead_letter.replay", tenant)
        if wants_code(request):
            return code_answer(line)
        if form.is_valid():
            try:
                wish = form.wish(chosen)
                replay = replay_start(actor=request.user, cluster=found, group=group, wish=wish)
            except ApplicationError as error:
                form_take_error(form, error)
            else:
                return redirect("console:dead-letter-replay", tenant.slug, found.slug, group, replay.pk)
    context: dict[str, object] = {
        **cluster_context(request, found),
        "group": group,
        "form": form,
        "chosen": chosen,
        "replays": replay_list(found, group)[:REPLAYS_SHOWN],
        "can_replay": actor_can(request.user, "dead_letter.replay", tenant),
        "letters": None,
        "as_of": timezone.now(),
        "curl": line,
    }
    try:
        context["letters"] = dead_letters(
            actor=request.user, cluster=found, group=group, limit=LETTERS_SHOWN, body_limit_bytes=PREVIEW_BYTES
        )
    except ApplicationError as error:
        context["problem"] = error.message
    status = status_of(form)
    return tenant_render(
        request, tenant, "console/dead_letters.html", context, section="clusters", page="lag", status=status
    )


@require_safe
@tenant_page("message.browse")
def dead_letters_file(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, kind: str) -> HttpResponse:
    """Return the newest dead letters as CSV or as JSON lines."""
    if kind not in EXPORT_TYPES:
        raise InvalidInput.for_field("kind", say("Use csv or jsonl."), "invalid")
    found = cluster_get(tenant, cluster)
    lines = dead_letters_export(actor=request.user, cluster=found, group=group, as_csv=kind == "csv")
    response = HttpResponse("".join(lines), content_type=EXPORT_TYPES[kind])
    return as_download(response, f"dead-letters-{group}", kind)


@require_safe
@tenant_page("message.browse")
def replay_page(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replay: uuid.UUID) -> HttpResponse:
    """Show how far a replay is, and its report. The part that changes asks for itself until the replay has ended."""
    found = cluster_get(tenant, cluster)
    made = replay_get(found, group, replay)
    context = {**cluster_context(request, found), "group": group, **_report(request, made)}
    if request.htmx:
        return render(request, "console/parts/replay.html", {"tenant": tenant, **context})
    return tenant_render(request, tenant, "console/replay.html", context, section="clusters", page="lag")


@require_POST
@tenant_page("dead_letter.replay")
def replay_change(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replay: uuid.UUID, act: str
) -> HttpResponse:
    """Cancel a replay, or go on with one that ended early."""
    found = cluster_get(tenant, cluster)
    made = replay_get(found, group, replay)
    try:
        if act == "cancel":
            replay_cancel(actor=request.user, replay=made)
            tell_done(request, gettext("The replay is cancelled. No further message is sent."))
        else:
            replay_continue(actor=request.user, replay=made)
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:dead-letter-replay", tenant.slug, found.slug, group, made.pk)


def _report(request: ConsoleRequest, replay: DeadLetterReplay) -> dict[str, object]:
    cluster = replay.cluster
    address = [cluster.tenant.slug, cluster.slug, replay.consumer_group, replay.pk]
    how = (
        say("To the group’s retry topic, %(rate)s a second at most.", rate=replay.rate_per_second)
        if replay.target == ReplayTarget.RETRY_TOPIC
        else say("To the original topics, %(rate)s a second at most.", rate=replay.rate_per_second)
    )
    return {
        "replay": replay,
        "running": replay.state == ReplayState.RUNNING,
        "left": max(0, replay.total - replay.done),
        "percent": 100 * min(replay.done, replay.total) // max(1, replay.total),
        "outcomes": [
            {**one, "place": f"{one['broker_name']} / {one['queue_id']} / {one['offset']}"}
            for one in replay.outcomes[:OUTCOMES_SHOWN]
        ],
        "outcomes_more": max(0, len(replay.outcomes) - OUTCOMES_SHOWN),
        "can_replay": actor_can(request.user, "dead_letter.replay", replay.cluster.tenant),
        "cancel_words": say("Cancel the replay"),
        "gone_words": say("by retention, before their turn"),
        "how": how,
        "progress_url": reverse("console:dead-letter-replay", args=address),
        "cancel_url": reverse("console:dead-letter-replay-cancel", args=address),
        "continue_url": reverse("console:dead-letter-replay-continue", args=address),
        "cancel_act": act_of("POST", f"{replay.path}cancel/"),
        "continue_act": act_of("POST", f"{replay.path}continue/"),
        "can_continue": replay.state in (ReplayState.STOPPED, ReplayState.CANCELLED),
        "curl": act_of("GET", replay.path),
    }
