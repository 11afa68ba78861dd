"""What keeps clusters apart on this machine, for its operators: users, limits, what of the disk is promised; what fits no row, and
what does not go on.
"""

import shutil
import uuid
from dataclasses import dataclass

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.limits import disk_of_broker
from controlplane.clusters.models import Cluster, Operation, Replica
from controlplane.clusters.selectors import operation_by_id
from controlplane.clusters.stuck_operations import operation_fail, operation_requeue
from controlplane.common.errors import ApplicationError, InvalidInput
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest
from controlplane.console.acts import Act, act_of, code_answer, form_values, wants_code
from controlplane.console.forms import OperationFailForm
from controlplane.console.pages import status_of, tell_done, tell_error
from controlplane.console.views.operator import operator_page, operator_render
from controlplane.provisioning.cgroups import hierarchies, io_limit, unlimited_reason
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.isolation import shared_user_reason
from controlplane.provisioning.leftovers import StuckOperation, leftovers_clear, leftovers_find
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class StuckRow:
    """An operation that does not go on, with what can be done about it. Each id is unique on the page."""

    stuck: StuckOperation
    form: OperationFailForm
    requeue: Act
    fail: Act
    requeue_id: str
    fail_id: str


@require_safe
@operator_page
def machine(request: ConsoleRequest) -> HttpResponse:
    """Show whether clusters have OS users and limits of their own, and how much of the disk brokers may take."""
    return _machine(request)


@require_POST
@operator_page
def operation_requeue_page(request: ConsoleRequest, operation: uuid.UUID) -> HttpResponse:
    """Send an operation's present step to the workers again."""
    try:
        operation_requeue(actor=request.user, operation=operation_by_id(operation))
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, gettext("It is in the queue again."))
    return redirect("console:operator-machine")


@require_POST
@operator_page
def operation_fail_page(request: ConsoleRequest, operation: uuid.UUID) -> HttpResponse:
    """End an operation as failed."""
    found = operation_by_id(operation)
    form = OperationFailForm(request.POST, auto_id=f"{found.pk}-%s")
    if wants_code(request):
        return code_answer(_fail_act(found, form))
    if form.is_valid():
        try:
            operation_fail(actor=request.user, operation=found, reason=form.cleaned_data["reason"])
        except ApplicationError as error:
            tell_error(request, error)
        else:
            tell_done(request, gettext("It is ended as failed; its tenant can retry it."))
        return redirect("console:operator-machine")
    return _machine(request, (found, form))


def _fail_act(operation: Operation, form: OperationFailForm) -> Act:
    return act_of("POST", f"/api/v1/operator/operations/{operation.pk}/fail/", form_values(form))


def _stuck_row(stuck: StuckOperation, refused: tuple[Operation, OperationFailForm] | None) -> StuckRow:
    pk = stuck.operation.pk
    form = OperationFailForm(auto_id=f"{pk}-%s") if refused is None or refused[0].pk != pk else refused[1]
    return StuckRow(
        stuck,
        form,
        act_of("POST", f"/api/v1/operator/operations/{pk}/requeue/"),
        _fail_act(stuck.operation, form),
        f"requeue-{pk}",
        f"fail-{pk}",
    )


def _machine(request: ConsoleRequest, refused: tuple[Operation, OperationFailForm] | None = None) -> HttpResponse:
    disk = shutil.disk_usage(settings.HIGHWATER_STATE_DIR)
    limits = [
        (
            disk_of_broker(tenant_limit(tenant, "stored_bytes")),
            Replica.objects.filter(group__cluster__tenant=tenant).count(),
        )
        for tenant in Tenant.objects.all()
    ]
    unlimited = sum(brokers for limit, brokers in limits if not limit)
    promised = sum(limit * brokers for limit, brokers in limits)
    try:
        leftovers, away = leftovers_find(get_driver()), ""
    except ApplicationError as error:
        leftovers, away = None, error.message
    context = {
        "leftovers": leftovers,
        "stuck": [] if leftovers is None else [_stuck_row(one, refused) for one in leftovers.stuck],
        "away": away,
        "curl_clear": act_of("POST", "/api/v1/operator/leftovers/", {}),
        "curl_delete": act_of("POST", "/api/v1/operator/leftovers/", {"delete_data": True}),
        "shared_user_reason": shared_user_reason(),
        "unlimited_reason": unlimited_reason(),
        "io_limit": io_limit(hierarchies()),
        "memory_bytes": settings.HIGHWATER_DAEMON_MEMORY_MIB * 1024 * 1024,
        "first_user": settings.HIGHWATER_DAEMON_USERS,
        "disk": disk,
        "promised": promised,
        "unlimited": unlimited,
        "is_overcommitted": unlimited > 0 or promised > disk.free,
        "clusters": Cluster.objects.count(),
        "brokers": Replica.objects.count(),
    }
    status = 200 if refused is None else status_of(refused[1])
    return operator_render(request, "console/operator/machine.html", context, "machine", status)


@require_POST
@operator_page
def folders_delete_page(request: ConsoleRequest) -> HttpResponse:
    """Delete the directories of no cluster, with all messages in them, once their number was typed: as many as were shown."""
    try:
        there = str(len(leftovers_find(get_driver()).folders))
        if request.POST.get("confirm", "").strip() != there:
            tell_error(request, InvalidInput.for_field("confirm", say("Type %(number)s.", number=there), "mismatch"))
            return redirect("console:operator-machine")
        found = leftovers_clear(actor=request.user, driver=get_driver(), data=True)
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(request, gettext("%(count)s directories were deleted.") % {"count": len(found.folders)})
    return redirect("console:operator-machine")


@require_POST
@operator_page
def leftovers_clear_page(request: ConsoleRequest) -> HttpResponse:
    """End the processes and free the ports that belong to no cluster, then show the page again."""
    try:
        found = leftovers_clear(actor=request.user, driver=get_driver())
    except ApplicationError as error:
        tell_error(request, error)
    else:
        tell_done(
            request,
            gettext("%(processes)s processes were ended, %(ports)s ports freed.")
            % {"processes": len(found.processes), "ports": len(found.ports)},
        )
    return redirect("console:operator-machine")
