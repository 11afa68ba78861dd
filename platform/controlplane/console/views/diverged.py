"""Messages that a failover or a power cut took from a replica's log: look, compare, send again, put away."""

import uuid
from urllib.parse import quote, urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.clusters.models import Cluster
from controlplane.clusters.selectors import cluster_get
from controlplane.common.downloads import as_download
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of, code_answer, wants_code
from controlplane.console.cluster_pages import cluster_context
from controlplane.console.diverged_forms import CutDoneForm, CutResendForm
from controlplane.console.forms import TypedNameForm
from controlplane.console.pages import form_take_error, status_of, tell_done, tell_error, tenant_render
from controlplane.console.views.topic_parts import PREVIEW_BYTES
from controlplane.consumers.models import ReplayState
from controlplane.failover.diverged.apis import JSON_LINES
from controlplane.failover.diverged.cuts import SavedCut, cut_messages, saved_cut, saved_cuts
from controlplane.failover.diverged.resends import (
    resend_cancel,
    resend_continue,
    resend_get,
    resend_list,
    resend_start,
    resends_of,
)
from controlplane.failover.diverged.services import cut_delete, cut_export, cut_mark_done
from controlplane.failover.models import DivergedResend
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require
from controlplane.topics.bodies import BodyForm
from controlplane.topics.schemas import schema_exists

MESSAGES_SHOWN = 20
RESENDS_SHOWN = 20
OUTCOMES_SHOWN = 100
POSITION_DIGITS_MAX = 18


@require_safe
@tenant_page("failover.view")
def diverged_list_page(request: ConsoleRequest, tenant: Tenant, cluster: str) -> HttpResponse:
    """List what the replicas keep of what was cut from their logs."""
    found = cluster_get(tenant, cluster)
    context: dict[str, object] = {
        **cluster_context(request, found),
        "saved": None,
        "resends": resend_list(found)[:RESENDS_SHOWN],
        "can_read": actor_can(request.user, "message.browse", tenant),
        "as_of": timezone.now(),
        "curl": act_of("GET", f"{found.path}diverged/"),
    }
    try:
        context["saved"] = saved_cuts(actor=request.user, cluster=found)
    except ApplicationError as error:
        context["problem"] = error.message
    return tenant_render(request, tenant, "console/diverged.html", context, section="clusters", page="failovers")


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("message.browse")
def diverged_page(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replica: int, name: str
) -> HttpResponse:
    """Show messages of a saved cut beside what the group has; a POST sends those that were selected, or all."""
    found = cluster_get(tenant, cluster)
    form = CutResendForm(request.POST if request.method == "POST" else None)
    chosen = request.POST.getlist("position")
    if request.method == "POST" and wants_code(request):
        # The address may hold anything: whether there is such a file, a replica says, which the code of a form does not ask.
        path = f"{found.path}diverged/{quote(group, safe='')}/{replica}/{quote(name, safe='')}/resends/"
        return code_answer(act_of("POST", path, form.body_sent(chosen)))
    cut = saved_cut(actor=request.user, cluster=found, group=group, replica_id=replica, name=name)
    if request.method == "POST":
        actor_require(request.user, "message.send", tenant)
        if form.is_valid():
            try:
                resend = resend_start(actor=request.user, cut=cut, wish=form.wish(chosen))
            except ApplicationError as error:
                form_take_error(form, error)
            else:
                return redirect("console:diverged-resend", tenant.slug, found.slug, resend.pk)
    return _cut_render(request, cut, form, CutDoneForm())


def _cut_render(request: ConsoleRequest, cut: SavedCut, form: CutResendForm, done_form: CutDoneForm) -> HttpResponse:
    """The page of a saved cut; with what is wrong in one of its forms, it is answered so."""
    found, tenant = cut.cluster, cut.cluster.tenant
    chosen = request.POST.getlist("position")
    position = _position(request.GET.get("position", ""))
    body_as = _body_form(request.GET.get("body_as", ""))
    page = cut_messages(
        actor=request.user,
        cut=cut,
        position=position,
        limit=MESSAGES_SHOWN,
        body_limit_bytes=PREVIEW_BYTES,
        body_as=body_as,
    )
    protobuf, has_schema = BodyForm.PROTOBUF, schema_exists(found)
    query = {"position": position, "limit": MESSAGES_SHOWN, "body_as": body_as.value}
    context = {
        **cluster_context(request, found),
        "cut": cut,
        "cut_page": page,
        "position": position,
        "body_as": body_as.value,
        "body_forms": [(one.value, words) for one, words in _FORMS.items() if one is not protobuf or has_schema],
        "form": form,
        "done_form": done_form,
        "chosen": chosen,
        "resends": resends_of(cut)[:RESENDS_SHOWN],
        "can_send": actor_can(request.user, "message.send", tenant),
        "can_manage": actor_can(request.user, "diverged.manage", tenant),
        "as_of": timezone.now(),
        "curl": act_of("POST", f"{cut.path}resends/", form.body_sent(chosen)),
        "read_curl": act_of("GET", f"{cut.path}messages/?{urlencode(query)}"),
        "done_curl": act_of("POST", f"{cut.path}done/", {"done": cut.done is None}),
    }
    return tenant_render(
        request,
        tenant,
        "console/diverged_cut.html",
        context,
        section="clusters",
        page="failovers",
        status=max(status_of(form), status_of(done_form)),
    )


_FORMS = {
    BodyForm.AUTO: say("Automatic"),
    BodyForm.TEXT: say("Text"),
    BodyForm.JSON: "JSON",
    BodyForm.HEX: say("Hexadecimal"),
    BodyForm.BASE64: "Base64",
    BodyForm.PROTOBUF: "Protobuf",
}


@require_safe
@tenant_page("message.browse")
def diverged_file(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replica: int, name: str
) -> HttpResponse:
    """Return the cut's messages as JSON lines."""
    cut = saved_cut(
        actor=request.user, cluster=cluster_get(tenant, cluster), group=group, replica_id=replica, name=name
    )
    response = HttpResponse("".join(cut_export(actor=request.user, cut=cut)), content_type=JSON_LINES)
    return as_download(response, f"{cut.group_name}-{cut.replica_id}-{cut.name}", "jsonl")


@require_POST
@tenant_page("diverged.manage")
def diverged_done(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replica: int, name: str
) -> HttpResponse:
    """Mark a cut as done, or as open again."""
    found = cluster_get(tenant, cluster)
    form = CutDoneForm(request.POST)
    try:
        cut = saved_cut(actor=request.user, cluster=found, group=group, replica_id=replica, name=name)
        done = cut.done is None
        if done and not form.is_valid():
            return _cut_render(request, cut, CutResendForm(None), form)
        cut_mark_done(actor=request.user, cut=cut, done=done, note=form.note_typed())
        tell_done(request, gettext("It is marked as done.") if done else gettext("It is open again."))
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:diverged-list", tenant.slug, found.slug)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("diverged.manage")
def diverged_delete_page(
    request: ConsoleRequest, tenant: Tenant, cluster: str, group: str, replica: int, name: str
) -> HttpResponse:
    """Delete a saved cut after the group's name was typed."""
    found = cluster_get(tenant, cluster)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=group)
    cut = saved_cut(actor=request.user, cluster=found, group=group, replica_id=replica, name=name)
    if form.is_valid():
        try:
            cut_delete(actor=request.user, cut=cut, confirm=form.cleaned_data["typed"])
        except ApplicationError as error:
            form_take_error(form, error)
        else:
            tell_done(request, gettext("The messages are deleted from the replica’s disk."))
            return redirect("console:diverged-list", tenant.slug, found.slug)
    back = reverse("console:diverged-cut", args=[tenant.slug, found.slug, group, replica, name])
    context = {
        "form": form,
        "heading": gettext("Delete what was set aside on replica %(replica)s of %(group)s?")
        % {"replica": replica, "group": group},
        "consequence": gettext(
            "The file holds the only copy of these messages, unless you sent them again or downloaded them."
            " This can’t be undone."
        ),
        "verb": gettext("Delete"),
        "button": gettext("Delete messages"),
        "back": back,
        "crumbs": [
            {
                "url": reverse("console:diverged-list", args=[tenant.slug, found.slug]),
                "words": gettext("Diverged messages"),
            },
            {"url": back, "words": cut.name},
        ],
        "curl": act_of("DELETE", f"{cut.path}?{urlencode({'confirm': group})}"),
    }
    return tenant_render(request, tenant, "console/confirm.html", context, section="clusters", status=status_of(form))


@require_safe
@tenant_page("message.browse")
def diverged_resend_page(request: ConsoleRequest, tenant: Tenant, cluster: str, resend: uuid.UUID) -> HttpResponse:
    """Show how far a resend is, and its report. The part that changes asks for itself until the resend has ended."""
    found = cluster_get(tenant, cluster)
    context = {**cluster_context(request, found), **_report(request, found, resend_get(found, resend))}
    if request.htmx:
        return render(request, "console/parts/replay.html", {"tenant": tenant, **context})
    return tenant_render(request, tenant, "console/diverged_resend.html", context, section="clusters", page="failovers")


@require_POST
@tenant_page("message.send")
def diverged_resend_change(
    request: ConsoleRequest, tenant: Tenant, cluster: str, resend: uuid.UUID, act: str
) -> HttpResponse:
    """Cancel a resend, or go on with one that ended early."""
    found = cluster_get(tenant, cluster)
    made = resend_get(found, resend)
    try:
        if act == "cancel":
            resend_cancel(actor=request.user, resend=made)
            tell_done(request, gettext("The replay is cancelled. No further message is sent."))
        else:
            resend_continue(actor=request.user, resend=made)
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:diverged-resend", tenant.slug, found.slug, made.pk)


def _report(request: ConsoleRequest, cluster: Cluster, resend: DivergedResend) -> dict[str, object]:
    address = [cluster.tenant.slug, cluster.slug, resend.pk]
    return {
        "replay": resend,
        "running": resend.state == ReplayState.RUNNING,
        "left": max(0, resend.total - resend.done),
        "percent": 100 * min(resend.done, resend.total) // max(1, resend.total),
        "outcomes": [
            {**one, "place": f"{one['topic']} / {one['queue_id']} / {one['offset']}"}
            for one in resend.outcomes[:OUTCOMES_SHOWN]
        ],
        "outcomes_more": max(0, len(resend.outcomes) - OUTCOMES_SHOWN),
        "cancel_words": say("Cancel the resend"),
        "gone_words": say("the file was deleted before their turn"),
        "how": say("To the topics they were in, %(rate)s a second at most.", rate=resend.rate_per_second),
        "can_replay": actor_can(request.user, "message.send", cluster.tenant),
        "can_continue": resend.state in (ReplayState.STOPPED, ReplayState.CANCELLED),
        "progress_url": reverse("console:diverged-resend", args=address),
        "cancel_url": reverse("console:diverged-resend-cancel", args=address),
        "continue_url": reverse("console:diverged-resend-continue", args=address),
        "cancel_act": act_of("POST", f"{resend.path}cancel/"),
        "continue_act": act_of("POST", f"{resend.path}continue/"),
        "curl": act_of("GET", resend.path),
    }


def _position(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= POSITION_DIGITS_MAX else 0


def _body_form(text: str) -> BodyForm:
    return BodyForm(text) if text in {one.value for one in BodyForm} else BodyForm.AUTO
