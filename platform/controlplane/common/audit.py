"""Writes the audit trail. Call it inside the transaction of the change, so that neither exists without the other,
and as its last step: the tenant's other changes wait from here to the transaction's end.
"""

import re
import uuid
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from controlplane.common.audit_chain import FIRST_HASH, chain_of, hash_of
from controlplane.common.models import AuditChain, AuditEvent
from controlplane.common.request_context import current_request_context

# NUL and lone surrogates: PostgreSQL's jsonb refuses them.
_NOT_STORABLE = re.compile(r"[\x00\ud800-\udfff]")


def audit_event_record(
    *,
    actor: object,
    action: str,
    resource: str,
    tenant_id: uuid.UUID | None = None,
    details: dict[str, Any] | None = None,
) -> AuditEvent:
    """Add one event. `actor` is written as `str(actor)`; request id and address come from the current request, if
    any. Characters in `details` that the database refuses are replaced by U+FFFD.
    """
    context = current_request_context()
    with transaction.atomic(savepoint=False):
        chain = _chain_lock(chain_of(tenant_id))
        event = AuditEvent(
            tenant_id=tenant_id,
            actor=str(actor)[:254],
            action=action,
            resource=resource,
            details=_storable(details or {}),
            request_id=context.request_id,
            address=context.address,
            sequence=chain.length + 1,
        )
        event.hash = hash_of(event, chain.head)
        event.save(force_insert=True)
        AuditChain.objects.filter(pk=chain.pk).update(length=event.sequence, head=event.hash)
    return event


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return [old, new] of each value of `after` that was another one, by name: an event's `changes`."""
    return {name: [before.get(name), new] for name, new in after.items() if before.get(name) != new}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _NOT_STORABLE.sub("\ufffd", value) if _NOT_STORABLE.search(value) else value
    if isinstance(value, dict):
        return {_storable(name): _storable(part) for name, part in value.items()}
    return [_storable(part) for part in value] if isinstance(value, list | tuple) else value


def _chain_lock(key: uuid.UUID) -> AuditChain:
    chains = AuditChain.objects.select_for_update().filter(pk=key)
    if (chain := chains.first()) is not None:
        return chain
    AuditChain.objects.bulk_create([AuditChain(pk=key, head=FIRST_HASH)], ignore_conflicts=True)
    return chains.get()
