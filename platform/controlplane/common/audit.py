"""Writes the audit trail. Call it inside the transaction of the change, so that neither exists without the other."""

import uuid
from typing import Any

from controlplane.common.models import AuditEvent
from controlplane.common.request_context import current_request_context


def audit_event_record(
    *,
    actor: object,
    action: str,
    resource: str,
    tenant_id: uuid.UUID | None = None,
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add one event. `actor` is written as `str(actor)`; request id and address come from the current request, if
    any.
    """
    context = current_request_context()
    return AuditEvent.objects.create(
        tenant_id=tenant_id,
        actor=str(actor)[:254],
        action=action,
        resource=resource,
        details=details or {},
        request_id=context.request_id,
        address=context.address,
    )
