"""Pages of groups that elect their leader: choose, see what each step would do and stop, then do it.

Each page has two stages with one address: `?replica=` (or `?replicas=`) shows the preview, a POST there starts the work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.forms import Form
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_http_methods

from controlplane.clusters.selectors import cluster_get
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.cluster_pages import cluster_render
from controlplane.console.forms import Choice, TypedLossForm
from controlplane.console.pages import form_take_error, status_of
from controlplane.console.quorum_forms import ResizeForm, WhichReplicaForm
from controlplane.failover.membership.plan import ChangeKind
from controlplane.failover.membership.services import (
    Prefer,
    QuorumChange,
    Recover,
    Replace,
    Resize,
    Transfer,
    quorum_change_start,
    quorum_preview,
)
from controlplane.failover.models import Failover
from controlplane.failover.role_map import GroupRow, ReplicaRow, group_row
from controlplane.failover.selectors import group_get
from controlplane.provisioning.drivers import get_driver
from controlplane.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class _Page:
    """What the pages differ in. `change` and `body` are of a valid form."""

    verb: str
    heading: str
    lead: str
    button: str
    form: Callable[..., Form]
    change: Callable[[Any], QuorumChange]
    body: Callable[[Any], dict[str, object]]


def _transfer_form(group: GroupRow, data: QueryDict | None) -> Form:
    others = [replica for replica in group.replicas if replica.is_voter and replica.replica_id != group.master_id]
    return WhichReplicaForm(
        data, label=say("New leader"), choices=[(one.replica_id, _choice(one)) for one in others], no_one=None
    )


def _prefer_form(group: GroupRow, data: QueryDict | None) -> Form:
    voters = [replica for replica in group.replicas if replica.is_voter]
    return WhichReplicaForm(
        data,
        label=say("Preferred leader"),
        choices=[(one.replica_id, _choice(one)) for one in voters],
        no_one=Choice(say("No preference"), say("The elected leader stays.")),
    )


def _replace_form(group: GroupRow, data: QueryDict | None) -> Form:
    others = sorted(
        (replica for replica in group.replicas if replica.replica_id != group.master_id),
        key=lambda replica: (replica.role != "unknown", replica.replica_id),
    )
    return WhichReplicaForm(
        data, label=say("Replica to replace"), choices=[(one.replica_id, _choice(one)) for one in others], no_one=None
    )


def _recover_form(group: GroupRow, data: QueryDict | None) -> Form:
    left = [replica for replica in group.replicas if replica.is_voter is not False and replica.role != "unknown"]
    return WhichReplicaForm(
        data,
        label=say("Replica to go on with: the one that holds most"),
        choices=[(one.replica_id, _recover_choice(one)) for one in left],
        no_one=None,
    )


def _recover_choice(replica: ReplicaRow) -> Choice:
    if replica.end_offset is None:
        detail = say("%(address)s. Its log goes not known how far.", address=replica.address)
    else:
        detail = say(
            "%(address)s. Its log goes to %(end)s in epoch %(epoch)s.",
            address=replica.address,
            end=replica.end_offset,
            epoch=replica.epoch,
        )
    return Choice(say("Replica %(replica)s", replica=replica.replica_id), detail)


def _resize_form(group: GroupRow, data: QueryDict | None) -> Form:
    return ResizeForm(data)


def _choice(replica: ReplicaRow) -> Choice:
    if replica.role == "unknown":
        return Choice(
            say("Replica %(replica_id)s", replica_id=replica.replica_id),
            say("%(address)s. It does not answer.", address=replica.address),
        )
    if replica.role == "master":
        return Choice(
            say("Replica %(replica_id)s", replica_id=replica.replica_id),
            say("%(address)s. It leads now.", address=replica.address),
        )
    if replica.gap_bytes is None:
        detail = say("%(address)s. Not known how far behind.", address=replica.address)
    else:
        detail = say("%(address)s. %(gap)s bytes behind.", address=replica.address, gap=replica.gap_bytes)
    return Choice(say("Replica %(replica)s", replica=replica.replica_id), detail)


_TRANSFER = _Page(
    ChangeKind.TRANSFER,
    gettext_noop("Transfer the leadership of %(group)s"),
    say("Planned and without loss: the leader hands its role to a voter that holds all that it holds."),
    say("Transfer leadership"),
    _transfer_form,
    lambda form: Transfer(form.replica_id()),
    lambda form: {"target": form.replica_id()},
)
_PREFER = _Page(
    ChangeKind.PREFER,
    gettext_noop("Preferred leader of %(group)s"),
    say("The group gives the leadership to this replica whenever it is in sync, and works without it when it is not."),
    say("Set preferred leader"),
    _prefer_form,
    lambda form: Prefer(form.replica_id()),
    lambda form: {"replica": form.replica_id()},
)
_REPLACE = _Page(
    ChangeKind.REPLACE,
    gettext_noop("Replace a replica of %(group)s"),
    say("An empty replica takes the place of one that is lost. Sends and receives go on."),
    say("Replace replica"),
    _replace_form,
    lambda form: Replace(form.replica_id()),
    lambda form: {"replica": form.replica_id()},
)
_RECOVER = _Page(
    ChangeKind.RECOVER,
    gettext_noop("Recover %(group)s"),
    say(
        "Only when a majority of the group’s disks is gone for good. The replicas that are left"
        " go on alone; what only the lost ones held is lost. If one of those disks can be brought"
        " back, do that instead."
    ),
    say("Give up the lost replicas"),
    _recover_form,
    lambda form: Recover(form.replica_id()),
    lambda form: {"replica": form.replica_id()},
)
_RESIZE = _Page(
    "resize",
    gettext_noop("Number of replicas of %(group)s"),
    say("One voter at a time. Sends and receives go on."),
    say("Change the number"),
    _resize_form,
    lambda form: Resize(form.cleaned_data["replicas"]),
    lambda form: {"replicas": form.cleaned_data["replicas"]},
)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_transfer(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Hand the leadership over, after a preview."""
    return _page(request, tenant, cluster, group, _TRANSFER)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_prefer(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Say whom the group wants as its leader, after a preview."""
    return _page(request, tenant, cluster, group, _PREFER)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("group.promote")
def group_recover(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Go on without a lost majority, after a preview and with the group's name typed."""
    return _page(request, tenant, cluster, group, _RECOVER)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.grow")
def group_replace(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Replace a replica by an empty one, after a preview."""
    return _page(request, tenant, cluster, group, _REPLACE)


@require_http_methods(["GET", "HEAD", "POST"])
@tenant_page("cluster.grow")
def group_resize(request: ConsoleRequest, tenant: Tenant, cluster: str, group: str) -> HttpResponse:
    """Grow the group to five replicas, or shrink it to three, after a preview."""
    return _page(request, tenant, cluster, group, _RESIZE)


def _page(request: ConsoleRequest, tenant: Tenant, cluster_slug: str, group_name: str, page: _Page) -> HttpResponse:
    cluster = cluster_get(tenant, cluster_slug)
    group = group_get(cluster, group_name)
    driver = get_driver()
    chosen = page.form(group_row(group), request.GET if request.GET else None)
    posted = request.POST if request.method == "POST" else None
    loses = page is _RECOVER
    preview, confirm = None, TypedLossForm(posted, expected=group.name, needed=loses)
    if chosen.is_valid():
        change = page.change(chosen)
        if confirm.is_valid():
            try:
                operation = quorum_change_start(
                    actor=request.user,
                    cluster=cluster,
                    group=group,
                    change=change,
                    driver=driver,
                    confirm=group.name if loses else "",
                )
            except ApplicationError as error:
                form_take_error(confirm, error)
            else:
                timeline = Failover.objects.filter(operation=operation).first()
                if timeline is not None:
                    return redirect("console:failover", tenant.slug, cluster.slug, timeline.pk)
                return redirect("console:operation", tenant.slug, operation.pk)
        preview = quorum_preview(cluster=cluster, group=group, change=change, driver=driver)
    body = page.body(chosen) if preview is not None else {}
    if body and loses:
        body["confirm"] = group.name
    context = {
        "group": group,
        "change": page,
        "heading": say(page.heading, group=group.name),
        "form": chosen,
        "confirm_form": confirm,
        "preview": preview,
        "curl": act_of("POST", f"{cluster.path}groups/{group.name}/{page.verb}/", body) if body else "",
    }
    status = status_of(confirm) if preview is not None else status_of(chosen)
    return cluster_render(request, cluster, "console/quorum_change.html", context, page="overview", status=status)
