"""Writes: incidents and maintenance, by operators of the platform only."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.status.models import Impact, Incident, IncidentState, IncidentUpdate, Maintenance, Part, WorkerBeat

TITLE_LENGTH_MAX = 120
TEXT_LENGTH_MAX = 2000
_WINDOW_MAX = timedelta(days=7)


def incident_open(
    *, actor: Actor, title: str, text: str, impact: str, parts: Sequence[str], state: str = IncidentState.INVESTIGATING
) -> Incident:
    """Announce an incident to everyone. Raises InvalidInput, and NotFound for who does not run the platform."""
    operator_require(actor)
    if state == IncidentState.RESOLVED:
        raise InvalidInput.for_field("state", say("An incident begins open. Add an update when it is resolved."))
    with transaction.atomic():
        incident = Incident.objects.create(
            title=_title(title), impact=Impact(impact), parts=_parts(parts), state=IncidentState(state)
        )
        IncidentUpdate.objects.create(incident=incident, state=incident.state, text=_text(text))
        _record(actor, "incident.open", incident.path, {"title": incident.title, "parts": incident.parts})
    return incident


def incident_update(*, actor: Actor, incident: Incident, state: str, text: str) -> IncidentUpdate:
    """Add what is new. `resolved` ends the incident for good: Conflict for one that is resolved."""
    operator_require(actor)
    with transaction.atomic():
        resolved_at = timezone.now() if state == IncidentState.RESOLVED else None
        is_open = Incident.objects.filter(pk=incident.pk, resolved_at=None)
        if is_open.update(state=IncidentState(state), resolved_at=resolved_at, updated_at=timezone.now()) != 1:
            raise Conflict(say("This incident is resolved."), code="incident_resolved", hint=say("Open another one."))
        update = IncidentUpdate.objects.create(incident=incident, state=state, text=_text(text))
        _record(actor, "incident.update", incident.path, {"state": str(state)})
    return update


def maintenance_plan(
    *, actor: Actor, title: str, text: str, parts: Sequence[str], starts_at: datetime, ends_at: datetime
) -> Maintenance:
    """Announce a window. Raises InvalidInput."""
    operator_require(actor)
    now = timezone.now()
    if not starts_at < ends_at or ends_at <= now:
        raise InvalidInput.for_field("ends_at", say("Maintenance ends after its start, and not in the past."))
    if ends_at - starts_at > _WINDOW_MAX:
        raise InvalidInput.for_field("ends_at", say("Maintenance takes at most %(days)s days.", days=_WINDOW_MAX.days))
    with transaction.atomic():
        window = Maintenance.objects.create(
            title=_title(title), text=_text(text), parts=_parts(parts), starts_at=starts_at, ends_at=ends_at
        )
        _record(actor, "maintenance.plan", window.path, {"title": window.title, "parts": window.parts})
    return window


def maintenance_cancel(*, actor: Actor, maintenance: Maintenance) -> None:
    """Take a window back, or end it early. Conflict for one that is over."""
    operator_require(actor)
    now = timezone.now()
    with transaction.atomic():
        ahead = Maintenance.objects.filter(pk=maintenance.pk, cancelled_at=None, ends_at__gt=now)
        if ahead.update(cancelled_at=now, updated_at=now) != 1:
            raise Conflict(say("This maintenance is over."), code="maintenance_over")
        _record(actor, "maintenance.cancel", maintenance.path, {"title": maintenance.title})


def worker_beat(queue: str) -> None:
    """Note that a worker of the queue lives."""
    WorkerBeat.objects.update_or_create(queue=queue, defaults={"beaten_at": timezone.now()})


def _title(title: str) -> str:
    name = name_check("title", title)
    if not 1 <= len(name) <= TITLE_LENGTH_MAX:
        raise InvalidInput.for_field("title", say("Use 1 to %(most)s characters.", most=TITLE_LENGTH_MAX))
    return name


def _text(text: str) -> str:
    if not 1 <= len(text.strip()) <= TEXT_LENGTH_MAX:
        raise InvalidInput.for_field("text", say("Use 1 to %(most)s characters.", most=TEXT_LENGTH_MAX))
    return text.strip()


def _parts(parts: Sequence[str]) -> list[str]:
    if not parts or not set(parts) <= set(Part.values):
        raise InvalidInput.for_field("parts", say("Use one or more of %(names)s.", names=", ".join(Part.values)))
    return [part for part in Part.values if part in parts]


def _record(actor: Actor, action: str, resource: str, details: dict[str, Any]) -> None:
    audit_event_record(actor=actor, action=action, resource=resource, details=details)
