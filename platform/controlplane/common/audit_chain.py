"""The audit trail's hash chain: each event holds the hash of its content and of its predecessor's hash.

A tenant has one chain, and the platform one for what belongs to no tenant. A row that was changed, deleted, added or moved leaves
an event whose hash does not match, or a number that is missing. Who may write every row can compute every hash again: that is
seen only by someone who noted the head elsewhere, which is why a check prints it.
"""

import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from controlplane.common.models import AuditChain, AuditEvent
from controlplane.common.sentences import say

# Of the events that belong to no tenant.
PLATFORM_CHAIN = uuid.UUID(int=0)
# A chain begins with the hash of nothing.
FIRST_HASH = "0" * 64
# A request checks so many of the newest; `manage.py verify_audit_trail` checks all.
CHECKED_IN_REQUEST_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """What a check found. `broken_sequence` is None where all that was checked is as it was written."""

    length: int
    head: str
    checked: int
    broken_sequence: int | None = None
    broken_event: uuid.UUID | None = None
    reason: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether nothing was found."""
        return self.broken_sequence is None


def chain_of(tenant_id: uuid.UUID | None) -> uuid.UUID:
    """Return the key of the chain of a tenant, or of the platform."""
    return tenant_id or PLATFORM_CHAIN


def chain_keys() -> list[uuid.UUID | None]:
    """Return the tenants that have events or a chain, in a fixed order; None stands for the platform and is always there."""
    tenants = set(AuditEvent.objects.values_list("tenant_id", flat=True).distinct())
    tenants |= set(AuditChain.objects.values_list("tenant_id", flat=True))
    return [None, *sorted(key for key in tenants if key is not None and key != PLATFORM_CHAIN)]


def event_hash(
    *,
    previous: str,
    event_id: uuid.UUID,
    created_at: datetime,
    tenant_id: uuid.UUID | None,
    sequence: int,
    actor: str,
    action: str,
    resource: str,
    details: dict[str, Any],
    request_id: str,
    address: str | None,
) -> str:
    """Return the SHA-256, in hexadecimal, of an event and its predecessor's hash. The same before and after the database."""
    content = [
        previous,
        str(event_id),
        created_at.astimezone(UTC).isoformat(timespec="microseconds"),
        str(chain_of(tenant_id)),
        sequence,
        actor,
        action,
        resource,
        _plain(json.loads(json.dumps(details))),
        request_id,
        address or "",
    ]
    text = json.dumps(content, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def hash_of(event: AuditEvent, previous: str) -> str:
    """Return the hash that the event must have after `previous`."""
    return event_hash(
        previous=previous,
        event_id=event.pk,
        created_at=event.created_at,
        tenant_id=event.tenant_id,
        sequence=event.sequence,
        actor=event.actor,
        action=event.action,
        resource=event.resource,
        details=event.details,
        request_id=event.request_id,
        address=event.address,
    )


def chain_check(tenant_id: uuid.UUID | None, *, newest: int | None = None) -> ChainCheck:
    """Check the chain, or its `newest` events, and name the first event that is not as it was written."""
    chain = chain_of(tenant_id)
    head = AuditChain.objects.filter(pk=chain).first() or AuditChain(pk=chain, length=0, head=FIRST_HASH)
    events = AuditEvent.objects.filter(tenant_id=tenant_id)
    first = 1 if newest is None else max(1, head.length - newest + 1)
    previous, checked = FIRST_HASH, 0
    if first > 1:
        before = events.filter(sequence=first - 1).first()
        if before is None:
            return ChainCheck(head.length, head.head, 0, first - 1, None, say("it is missing"))
        previous = before.hash
    for event in events.filter(sequence__gte=first, sequence__lte=head.length).order_by("sequence").iterator():
        wanted = first + checked
        if event.sequence > wanted:
            return ChainCheck(head.length, head.head, checked, wanted, None, say("it is missing"))
        if event.sequence < wanted:
            return _broken(head, checked, event, say("its number is there twice"))
        if hash_of(event, previous) != event.hash:
            return _broken(head, checked, event, say("it, or its place among the others, was changed"))
        previous, checked = event.hash, checked + 1
    if first + checked <= head.length:
        return ChainCheck(head.length, head.head, checked, first + checked, None, say("it is missing"))
    if previous != head.head:
        return ChainCheck(
            head.length, head.head, checked, head.length, None, say("its hash is not the one noted as the last")
        )
    if (stray := _outside(events, chain).first()) is not None:
        return _broken(head, checked, stray, say("it was never part of the chain"))
    return ChainCheck(head.length, head.head, checked)


def _outside(events: QuerySet[AuditEvent], chain: uuid.UUID) -> QuerySet[AuditEvent]:
    # One statement sees one state: an event that is written meanwhile comes with its chain's new length.
    length = Coalesce(Subquery(AuditChain.objects.filter(pk=chain).values("length")), 0)
    return events.filter(Q(sequence__gt=length) | Q(sequence__lt=1)).order_by("sequence", "id")


def _broken(head: AuditChain, checked: int, event: AuditEvent, reason: str) -> ChainCheck:
    return ChainCheck(head.length, head.head, checked, event.sequence, event.pk, reason)


def _plain(value: Any) -> Any:
    # PostgreSQL keeps numbers, not how they were written: 1e20 comes back as an integer.
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
