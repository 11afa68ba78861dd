"""Writes: drills that are ordered for a window. Beat has each looked at while its window is open, and begins it once."""

import uuid
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor, TokenActor, actor_label
from controlplane.accounts.models import User
from controlplane.clusters.models import BrokerGroup, Cluster, ClusterMode, ClusterState
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, Conflict, InvalidInput, NotAllowed
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say, say_all
from controlplane.failover.drill.due import Skipped, Start, Window, due
from controlplane.failover.drill.plan import ALONE, DrillPlan
from controlplane.failover.drill.services import drill_begin, drill_preview
from controlplane.failover.errors import ConfirmationNeeded, NotPossible
from controlplane.failover.models import DrillFault, DrillWindow, DrillWindowState
from controlplane.failover.selectors import group_get
from controlplane.provisioning.drivers.base import Driver
from controlplane.tenants.rules import actor_require

_log = get_logger("controlplane.failover")

# It is looked at every 15 seconds: within less than this a busy worker could miss it.
SHORTEST = timedelta(minutes=5)
LONGEST = timedelta(days=7)
FARTHEST = timedelta(days=90)
# Each is a look at the group every 15 seconds.
WAITING_MAX = 20


def drill_window_create(
    *,
    actor: Actor,
    cluster: Cluster,
    group: BrokerGroup,
    opens_at: datetime,
    closes_at: datetime,
    gives_back: bool = False,
    fault: DrillFault = DrillFault.KILL,
    confirm: str = "",
) -> DrillWindow:
    """Order a drill that begins by itself within the window, as soon as the group is healthy and nothing else is in progress.

    Raises InvalidInput for a window that is over, too short, too long or too far away; NotPossible for a cluster whose groups have
    one replica; ConfirmationNeeded unless `confirm` is the group's name; Conflict when the cluster is being deleted, or too many
    drills wait.
    """
    actor_require(actor, "group.promote", cluster.tenant)
    _check(opens_at, closes_at, timezone.now())
    if confirm and confirm != group.name:
        raise InvalidInput.for_field("confirm", say("Type the group's name, %(group)s.", group=group.name), "mismatch")
    if cluster.mode == ClusterMode.SINGLE:
        raise NotPossible(ALONE)
    if not confirm:
        raise ConfirmationNeeded(
            say(
                "Within the window the leader of %(group)s is stopped: sends fail or wait for some seconds.",
                group=group.name,
            ),
            hint=say("Send `confirm` with the group's name, %(group)s, to order it.", group=group.name),
        )
    if cluster.state in (ClusterState.DELETION_PENDING, ClusterState.DELETING, ClusterState.DELETED):
        raise Conflict(say("The cluster is being deleted."), code="cluster_not_running")
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)  # of two requests, one is the last that fits
        if DrillWindow.objects.filter(cluster=cluster, state=DrillWindowState.WAITING).count() >= WAITING_MAX:
            raise Conflict(
                say("%(count)s drills of this cluster wait for their windows.", count=WAITING_MAX),
                code="too_many",
                hint=say("Cancel one that is not needed."),
            )
        window = DrillWindow.objects.create(
            cluster=cluster,
            group_name=group.name,
            fault=fault,
            gives_back=gives_back,
            opens_at=opens_at,
            closes_at=closes_at,
            requested_by=actor_label(actor),
            orderer=actor if isinstance(actor, User) else None,
            orderer_token=actor.token if isinstance(actor, TokenActor) else None,
            by_platform=isinstance(actor, SystemActor),
        )
        _record(
            actor,
            "drill_window.create",
            window,
            {
                "group": group.name,
                "fault": str(fault),
                "gives_back": gives_back,
                "opens_at": opens_at.isoformat(),
                "closes_at": closes_at.isoformat(),
            },
        )
    return window


def drill_window_cancel(*, actor: Actor, window: DrillWindow) -> DrillWindow:
    """Take the order back; asked again, it changes nothing. Raises Conflict when the drill has begun or was skipped."""
    actor_require(actor, "group.promote", window.cluster.tenant)
    with transaction.atomic():
        waiting = DrillWindow.objects.filter(pk=window.pk, state=DrillWindowState.WAITING)
        if waiting.update(state=DrillWindowState.CANCELLED, because="", updated_at=timezone.now()) == 1:
            _record(actor, "drill_window.cancel", window, {"group": window.group_name})
    window.refresh_from_db()
    if window.state == DrillWindowState.STARTED:
        raise Conflict(say("The drill has begun."), code="drill_begun", hint=say("It ends by itself."))
    if window.state == DrillWindowState.SKIPPED:
        raise Conflict(say("The drill was skipped: nothing of it is left to cancel."), code="drill_skipped")
    return window


def drill_windows_open(now: datetime) -> QuerySet[DrillWindow]:
    """Return what is to be looked at: windows that are open, and those that passed."""
    return DrillWindow.objects.filter(state=DrillWindowState.WAITING, opens_at__lte=now)


def drill_window_look(window_id: uuid.UUID, driver: Driver, now: datetime) -> DrillWindow | None:
    """Begin the window's drill, or note why it waits or was skipped; return the row, None when it waits for nothing any more."""
    found = drill_windows_open(now).select_related("cluster__tenant").filter(pk=window_id).first()
    if found is None:
        return None
    refusal = "" if now >= found.closes_at else _refusal(found)
    plan, problems = (None, ()) if refusal or now >= found.closes_at else _look(found, driver)
    decision = due(Window(found.opens_at, found.closes_at, found.because), now, problems, refusal)
    if isinstance(decision, Start) and plan is not None:
        try:
            return _begin(found, plan)
        except ApplicationError as error:  # something else began in this moment
            return _note(found, DrillWindowState.WAITING, error.message)
    if isinstance(decision, Skipped):
        _log.warning("an ordered drill was skipped", window=str(found.pk), group=found.group_name)
        return _note(found, DrillWindowState.SKIPPED, decision.because)
    return found if isinstance(decision, Start) else _note(found, DrillWindowState.WAITING, decision.because)


def _refusal(window: DrillWindow) -> str:
    try:
        _require_orderer(window)
    except NotAllowed as error:
        return error.message
    return ""


def _require_orderer(window: DrillWindow) -> None:
    """Raise NotAllowed unless who ordered the drill may order it still: since then they may have left, or have another role."""
    by = window.requested_by
    actor = _orderer(window)
    if actor is None:
        raise NotAllowed(say("%(by)s, who ordered this drill, has no access any more.", by=by))
    try:
        actor_require(actor, "group.promote", window.cluster.tenant)
    except NotAllowed as error:
        lost = say("%(by)s, who ordered this drill, may not any more.", by=by)
        raise NotAllowed(say_all(lost, error.message)) from error


def _orderer(window: DrillWindow) -> Actor | None:
    """Return who ordered it as they are now; None for a person or token that is gone or shut out."""
    token, person = window.orderer_token, window.orderer
    if token is not None:
        return TokenActor(token) if token.is_usable else None
    if person is not None:
        return person if person.is_active else None
    return SystemActor("schedule") if window.by_platform else None


def _look(window: DrillWindow, driver: Driver) -> tuple[DrillPlan | None, tuple[str, ...]]:
    """Return what would be done, and what forbids it."""
    try:
        group = group_get(window.cluster, window.group_name)
        plan = drill_preview(
            cluster=window.cluster,
            group=group,
            driver=driver,
            gives_back=window.gives_back,
            fault=DrillFault(window.fault),
        )
    except ApplicationError as error:  # the cluster is suspended, or the group is gone
        return None, (error.message,)
    return plan, plan.problems


def _begin(window: DrillWindow, plan: DrillPlan) -> DrillWindow | None:
    """Begin it once: who holds the row's lock finds it waiting or not at all. A failure gives it back as it was."""
    with transaction.atomic():
        row = DrillWindow.objects.select_for_update().filter(pk=window.pk, state=DrillWindowState.WAITING).first()
        if row is None:
            return None
        _require_orderer(row)  # the look at the group took a moment
        drill = drill_begin(
            actor=SystemActor(f"{window.requested_by} (scheduled)"),
            cluster=window.cluster,
            group=group_get(window.cluster, window.group_name),
            plan=plan,
            fault=DrillFault(window.fault),
        )
        row.drill, row.state, row.because = drill, DrillWindowState.STARTED, ""
        row.save(update_fields=["drill", "state", "because", "updated_at"])
        return row


def _note(window: DrillWindow, state: DrillWindowState, because: str) -> DrillWindow | None:
    with transaction.atomic():
        waiting = DrillWindow.objects.filter(pk=window.pk, state=DrillWindowState.WAITING)
        if waiting.update(state=state, because=because, updated_at=timezone.now()) != 1:
            return None
        if state == DrillWindowState.SKIPPED:
            _record(
                SystemActor("schedule"), "drill_window.skip", window, {"group": window.group_name, "because": because}
            )
    window.refresh_from_db()
    return window


def _check(opens_at: datetime, closes_at: datetime, now: datetime) -> None:
    if opens_at > now + FARTHEST:
        raise InvalidInput.for_field(
            "opens_at", say("Use a time at most %(days)s days away.", days=FARTHEST.days), "out_of_range"
        )
    if closes_at <= now:
        raise InvalidInput.for_field("closes_at", say("Use a time in the future."), "out_of_range")
    if not SHORTEST <= closes_at - opens_at <= LONGEST:
        raise InvalidInput.for_field(
            "closes_at",
            say(
                "Use a time %(minutes)s minutes to %(days)s days after the window opens.",
                minutes=SHORTEST.seconds // 60,
                days=LONGEST.days,
            ),
            "out_of_range",
        )


def _record(actor: Actor, action: str, window: DrillWindow, details: dict[str, object]) -> None:
    audit_event_record(
        actor=actor, action=action, resource=window.path, tenant_id=window.cluster.tenant_id, details=details
    )
