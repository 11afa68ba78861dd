"""Pages that let a consumer group go on elsewhere, and take it back.

Both have two stages with one address: a GET shows what would change queue by queue, a POST there does it.
"""

import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say, say_count
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import Act, act_of
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.forms import ConfirmForm
from controlplane.console.group_forms import OffsetResetForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.consumers.models import OffsetReset
from controlplane.consumers.reset_plan import ResetPlan
from controlplane.consumers.selectors import group_path, reset_get
from controlplane.consumers.services import Target, reset_make, reset_preview, reset_undo, undo_preview
from controlplane.insight.outlook import group_outlook
from controlplane.tenants.models import Tenant
from controlplane.topics.names import topic_name_is_system

QUEUES_SHOWN_MAX = 200


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("offset.reset")
def group_reset(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """`?topic=&target=` shows the preview; a POST there resets the offsets."""
    found = cluster_get(tenant, cluster)
    live = group_outlook(found, group).live
    topics = sorted(live.topics, key=topic_name_is_system)  # its own first
    # Of the only topic: where there are more, they would not be those of the one that is chosen.
    own = [name for name in topics if not topic_name_is_system(name)]
    now = [
        f"{one.broker_name}:{one.queue_id}:{one.consumer_offset}"
        for one in live.queues or ()
        if [one.topic] == own and one.consumer_offset >= 0
    ]
    form = OffsetResetForm(request.GET or None, topics=topics, offsets=now)
    plan: ResetPlan | None = None
    line: Act | None = None
    if form.is_valid():
        topic, target = str(form.cleaned_data["topic"]), form.wanted()
        try:
            if request.method == "POST":
                made = reset_make(actor=request.user, cluster=found, group=group, topic=topic, target=target)
                _tell(request, made)
                return redirect("console:lag-group", tenant.slug, found.slug, group)
            plan = reset_preview(cluster=found, group=group, topic=topic, target=target)
        except ApplicationError as error:
            form_take_error(form, error)
        line = act_of("POST", f"{group_path(found, group)}offset-resets/", _body(topic, target))
    context = {
        **cluster_context(request, found),
        "group": group,
        "topics": topics,
        "form": form,
        "confirm_form": ConfirmForm(),
        **_plan_context(plan),
        "curl": line,
    }
    return tenant_render(
        request, tenant, "console/offset_reset.html", context, section="clusters", page="lag", status=status_of(form)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("offset.reset")
def group_reset_undo(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, reset: uuid.UUID
) -> HttpResponse:
    """Show what undoing would do; a POST does it."""
    found = cluster_get(tenant, cluster)
    made = reset_get(found, group, reset)
    try:
        if request.method == "POST":
            _tell(request, reset_undo(actor=request.user, reset=made))
            return redirect("console:lag-group", tenant.slug, found.slug, group)
        plan = undo_preview(made)
    except ApplicationError as error:
        tell_error(request, error)
        return redirect("console:lag-group", tenant.slug, found.slug, group)
    context = {
        **cluster_context(request, found),
        "group": group,
        "undoes": made,
        "confirm_form": ConfirmForm(),
        **_plan_context(plan),
        "curl": act_of("POST", f"{made.path}undo/", {}),
    }
    return tenant_render(request, tenant, "console/offset_reset.html", context, section="clusters", page="lag")


def _plan_context(plan: ResetPlan | None) -> dict[str, object]:
    if plan is None:
        return {"plan": None}
    return {
        "plan": plan,
        "queues": plan.queues[:QUEUES_SHOWN_MAX],
        "queues_more": max(0, len(plan.queues) - QUEUES_SHOWN_MAX),
    }


def _tell(request: ConsoleRequest, made: OffsetReset) -> None:
    done = sum(one["outcome"] == "done" for one in made.queues)
    if done == len(made.queues):
        tell_done(
            request,
            say_count(
                "%(count)s queue was reset. Members that are connected go there at once, Go’s client within 40 seconds.",
                "%(count)s queues were reset. Members that are connected go there at once, Go’s client within 40 seconds.",
                done,
            ),
        )
    else:
        first = next(one["error"] for one in made.queues if one["outcome"] != "done")
        tell_error(
            request,
            ApplicationError(
                say("%(done)s of %(all)s queues were reset.", done=done, all=len(made.queues)),
                hint=say("The first of the others: %(problem)s", problem=first),
            ),
        )


def _body(topic: str, target: Target) -> dict[str, Any]:
    return {"topic": topic, "target": str(target.kind), **target.details}
