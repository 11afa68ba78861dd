"""The progress of long work: a page that follows it, the part that htmx asks for each second, and retrying."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST, require_safe

from controlplane.clusters.models import ClusterState, Operation, OperationState, OperationType, StepState
from controlplane.clusters.operations import CANCELLABLE, CANCELLED_BY, operation_cancel, operation_retry
from controlplane.clusters.selectors import StepView, operation_list, operation_view
from controlplane.common.errors import ApplicationError, NotFound
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.pages import tell_error, tenant_render
from controlplane.console.pills import pill_of
from controlplane.failover.rolling.report import Entry, entries_of, moment
from controlplane.insight.deletion_steps import UNREAD
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_can, actor_require

_HEADINGS: dict[OperationType, str] = {
    OperationType.CLUSTER_DELETE: gettext_noop("Deleting %(name)s"),
    OperationType.CLUSTER_SUSPEND: gettext_noop("Suspending %(name)s"),
    OperationType.CLUSTER_RESUME: gettext_noop("Starting %(name)s again"),
    OperationType.CLUSTER_GROW: gettext_noop("Growing %(name)s"),
    OperationType.CLUSTER_RESTART: gettext_noop("Restarting %(name)s"),
    OperationType.CLUSTER_UPGRADE: gettext_noop("Upgrading %(name)s"),
    OperationType.CLUSTER_CA: gettext_noop("Renewing the CA of %(name)s"),
    OperationType.GROUP_PROMOTE: gettext_noop("Promoting a replica of %(name)s"),
    OperationType.GROUP_SWITCHOVER: gettext_noop("Switching the master of %(name)s"),
    OperationType.GROUP_TRANSFER: gettext_noop("Transferring the leadership of %(name)s"),
    OperationType.GROUP_DRILL: gettext_noop("Failover drill of %(name)s"),
    OperationType.GROUP_PREFER: gettext_noop("Preferring a leader of %(name)s"),
    OperationType.GROUP_REPLACE: gettext_noop("Replacing a replica of %(name)s"),
    OperationType.GROUP_GROW: gettext_noop("Growing a group of %(name)s"),
    OperationType.GROUP_SHRINK: gettext_noop("Shrinking a group of %(name)s"),
    OperationType.GROUP_RECOVER: gettext_noop("Recovering a group of %(name)s"),
}
_DONE = {
    OperationType.CLUSTER_DELETE: say("The cluster is deleted"),
    OperationType.CLUSTER_SUSPEND: say("The cluster is suspended"),
    OperationType.CLUSTER_RESUME: say("The cluster is running"),
    OperationType.CLUSTER_GROW: say("The cluster has grown"),
    OperationType.CLUSTER_MODE: say("Every group is as it was asked for"),
    OperationType.CLUSTER_RESTART: say("Every daemon was restarted"),
    OperationType.CLUSTER_UPGRADE: say("Every daemon runs the installed version"),
    OperationType.CLUSTER_CA: say("Every daemon uses its new files"),
    OperationType.GROUP_PROMOTE: say("The replica leads"),
    OperationType.GROUP_SWITCHOVER: say("The replica leads"),
    OperationType.GROUP_TRANSFER: say("The replica leads"),
    OperationType.GROUP_DRILL: say("The drill is over; its report is written"),
    OperationType.GROUP_PREFER: say("The preferred leader is written into the log"),
    OperationType.GROUP_REPLACE: say("The new replica counts, the old one is gone"),
    OperationType.GROUP_GROW: say("The new replicas count"),
    OperationType.GROUP_SHRINK: say("The group is smaller"),
    OperationType.GROUP_RECOVER: say("The replica leads; give the group its replicas back (Number of replicas)"),
}


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step as shown. `took` is how long it took, or has taken so far; None before it started."""

    name: str
    title: str
    state: str
    words: str
    message: str
    started_at: datetime | None
    took: timedelta | None


@dataclass(frozen=True, slots=True)
class DaemonRow:
    """A daemon of a rolling restart as shown. `refused_ms` is for how long its group took no sends meanwhile."""

    name: str
    state: str
    version_before: str
    version_after: str
    away: timedelta | None
    moved_to: int | None
    refused_ms: int | None


@require_safe
@tenant_page("operation.view")
def operation_page(request: ConsoleRequest, tenant: Tenant, operation: uuid.UUID) -> HttpResponse:
    """Show the steps with their states and times; the page updates itself while the work goes on."""
    found = _operation(tenant, operation)
    context = {**_progress(request, found), "heading": _heading(found), "curl": act_of("GET", found.path)}
    return tenant_render(request, tenant, "console/operation.html", context, section="clusters")


@require_safe
@tenant_page("operation.view")
def operation_progress(request: ConsoleRequest, tenant: Tenant, operation: uuid.UUID) -> HttpResponse:
    """Return the steps alone. The answer stops asking by itself once the operation is over."""
    context = {"tenant": tenant, "is_partial": True, **_progress(request, _operation(tenant, operation))}
    return render(request, "console/parts/progress.html", context)


@require_POST
@tenant_page("operation.view")
def operation_retry_page(request: ConsoleRequest, tenant: Tenant, operation: uuid.UUID) -> HttpResponse:
    """Run a failed operation again, and show its progress."""
    found = _operation(tenant, operation)
    actor_require(request.user, "operation.retry", tenant)
    try:
        operation_retry(actor=request.user, operation=found)
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:operation", tenant.slug, found.pk)


@require_POST
@tenant_page("operation.view")
def operation_cancel_page(request: ConsoleRequest, tenant: Tenant, operation: uuid.UUID) -> HttpResponse:
    """Cancel a rolling restart or upgrade, and show how it ends."""
    found = _operation(tenant, operation)
    actor_require(request.user, "operation.cancel", tenant)
    try:
        operation_cancel(actor=request.user, operation=found)
    except ApplicationError as error:
        tell_error(request, error)
    return redirect("console:operation", tenant.slug, found.pk)


def _operation(tenant: Tenant, operation_id: uuid.UUID) -> Operation:
    operation = operation_list(tenant).filter(pk=operation_id).first()
    if operation is None:
        raise NotFound(say("There is no such operation."))
    return operation


def _progress(request: ConsoleRequest, operation: Operation) -> dict[str, object]:
    is_running = operation.state == OperationState.IN_PROGRESS
    rows = [_step_row(step, operation.state) for step in operation_view(operation).steps]
    end = operation.finished_at or timezone.now()
    return {
        "operation": operation,
        "steps": rows,
        "running": is_running,
        "words": _words(operation, rows),
        "took": end - operation.started_at,
        "unread": list(operation.metadata.get(UNREAD, {}).values()),
        "daemons": [_daemon_row(entry, operation) for entry in entries_of(operation)],
        "cancelled_by": operation.metadata.get(CANCELLED_BY),
        "can_cancel": operation.type in CANCELLABLE and actor_can(request.user, "operation.cancel", operation.tenant),
        "cancel_act": act_of("POST", f"{operation.path}cancel/"),
        "is_deletion": operation.cluster.state == ClusterState.DELETED,
        "retry_act": act_of("POST", f"{operation.path}retry/"),
        "can_retry": operation.type != OperationType.GROUP_DRILL
        and actor_can(request.user, "operation.retry", operation.tenant),
    }


def _step_row(step: StepView, operation_state: str) -> StepRow:
    state: str = step.state
    if state == StepState.PENDING and operation_state == OperationState.CANCELLED:
        state = "skipped"
    # A step that waits goes back to pending between its looks; to people it is still the one that runs.
    elif state == StepState.PENDING and operation_state == OperationState.IN_PROGRESS and step.started_at:
        state = StepState.RUNNING
    end = step.finished_at or timezone.now()
    took = None if step.started_at is None else end - step.started_at
    words = say("Running") if state == StepState.RUNNING else pill_of(state).words
    return StepRow(step.name, step.title, state, words, step.message, step.started_at, took)


def _daemon_row(entry: Entry, operation: Operation) -> DaemonRow:
    stopped, back = moment(entry["stopped_at"]), moment(entry["back_at"])
    state = "pending" if stopped is None else "in_progress" if back is None else "completed"
    if stopped is None and operation.state == OperationState.CANCELLED:
        state = "skipped"
    return DaemonRow(
        name=entry["name"],
        state=state,
        version_before=entry["version_before"] or "",
        version_after=entry["version_after"] or "",
        away=None if stopped is None or back is None else back - stopped,
        moved_to=entry["leadership_moved_to"],
        refused_ms=entry["sends_refused_ms"] if entry["group"] and back is not None else None,
    )


def _heading(operation: Operation) -> str:
    name, metadata = operation.cluster.name, operation.metadata
    if operation.type == OperationType.CLUSTER_MODE:
        if metadata["from"] != metadata["to"]:
            return say(
                "Changing %(name)s from %(before)s to %(after)s",
                name=name,
                before=metadata["from"],
                after=metadata["to"],
            )
        if metadata.get("adding"):
            return say("Adding replicas to %(name)s", name=name)
        return say("Removing replicas of %(name)s", name=name)
    return say(_HEADINGS.get(OperationType(operation.type), gettext_noop("Creating %(name)s")), name=name)


def _words(operation: Operation, rows: list[StepRow]) -> str:
    """Return one line for the eye and for screen readers, which hear it whenever it changes."""
    done = sum(row.state == StepState.COMPLETED for row in rows)
    match operation.state:
        case OperationState.COMPLETED:
            if rows and rows[-1].name == "mark_deletion_pending":
                return say("The cluster is stopped, and can still be restored")
            return _DONE.get(OperationType(operation.type), say("The cluster is running"))
        case OperationState.CANCELLED:
            daemons = entries_of(operation)
            done = sum(entry["back_at"] is not None for entry in daemons)
            return say("Cancelled after %(done)s of %(daemons)s daemons", done=done, daemons=len(daemons))
        case OperationState.FAILED:
            return say("Failed after %(done)s of %(rows)s steps", done=done, rows=len(rows))
        case _ if operation.waits:
            return say("Waits for its turn")
        case _:
            return say("Step %(done)s of %(rows)s", done=min(done + 1, len(rows)), rows=len(rows))
