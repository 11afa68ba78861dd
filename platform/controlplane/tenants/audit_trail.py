"""Who changed what in a tenant, searched and as CSV."""

import csv
import io
import json
from datetime import datetime

from django.db.models import Q, QuerySet

from controlplane.common.errors import Conflict
from controlplane.common.models import AuditEvent
from controlplane.common.sentences import say
from controlplane.common.spreadsheets import spreadsheet_text
from controlplane.tenants.models import Tenant

# A file is made in memory: more is taken in parts, by time.
CSV_EVENTS_MAX = 50_000
_COLUMNS = ("time", "actor", "action", "resource", "details", "address", "request_id", "sequence", "hash")


def audit_events(
    tenant: Tenant, *, search: str = "", since: datetime | None = None, until: datetime | None = None
) -> QuerySet[AuditEvent]:
    """Return the events in [since, until), newest first, in whose actor, action, resource or request id `search` stands."""
    found = AuditEvent.objects.filter(tenant_id=tenant.pk).order_by("-created_at", "-id")
    if search:
        found = found.filter(
            Q(actor__icontains=search)
            | Q(action__icontains=search)
            | Q(resource__icontains=search)
            | Q(request_id=search)
        )
    if since is not None:
        found = found.filter(created_at__gte=since)
    if until is not None:
        found = found.filter(created_at__lt=until)
    return found


def audit_csv(events: QuerySet[AuditEvent]) -> bytes:
    """Return the events as CSV. Raises Conflict when there are more than 50,000."""
    if events[CSV_EVENTS_MAX : CSV_EVENTS_MAX + 1].exists():
        raise Conflict(
            say("There are more than %(csv_events_max)s events.", csv_events_max=CSV_EVENTS_MAX),
            code="too_many",
            hint=say("Ask for a shorter time, in parts."),
        )
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for event in events.iterator():
        row = (
            event.created_at.isoformat(),
            event.actor,
            event.action,
            event.resource,
            json.dumps(event.details, ensure_ascii=False, sort_keys=True),
            event.address or "",
            event.request_id,
            str(event.sequence),
            event.hash,
        )
        writer.writerow([spreadsheet_text(value) for value in row])
    return out.getvalue().encode()
