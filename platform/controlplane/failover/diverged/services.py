"""What is done with a saved cut: taken away as a file, marked as done, deleted."""

import json
from collections.abc import Iterator
from typing import Any

from django.db import transaction

from controlplane.accounts.actors import Actor
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict
from controlplane.common.sentences import say
from controlplane.consumers.models import ReplayState
from controlplane.failover.diverged.cuts import CutMessage, SavedCut, cut_messages
from controlplane.failover.diverged.resends import resends_of
from controlplane.failover.models import DivergedDone
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES

EXPORT_MAX = 5000
_PAGE = 256


def cut_export(*, actor: Actor, cut: SavedCut) -> Iterator[str]:
    """Return the first 5000 messages as lines of JSON, read before the first is given out. A body has its first 64 KiB.

    Raises as `cut_messages`.
    """
    found: list[CutMessage] = []
    position: int | None = 0
    while position is not None and len(found) < EXPORT_MAX:
        page = cut_messages(
            actor=actor,
            cut=cut,
            position=position,
            limit=min(_PAGE, EXPORT_MAX - len(found)),
            body_limit_bytes=BODY_SHOWN_MAX_BYTES,
            limit_max=_PAGE,
            compares=False,
            decodes=False,
        )
        found += page.messages
        position = page.next_position
    audit_event_record(
        actor=actor,
        action="diverged.export",
        resource=cut.path,
        tenant_id=cut.cluster.tenant_id,
        details={"messages": len(found), "complete": position is None},
    )
    return (json.dumps(_row(one), ensure_ascii=False) + "\n" for one in found)


def _row(one: CutMessage) -> dict[str, object]:
    message = one.message
    return {
        "position": str(one.position),
        "topic": one.topic,
        "queue_id": message.queue_id,
        "queue_offset": str(message.queue_offset),
        "born_at": message.born_at and message.born_at.isoformat(),
        "stored_at": message.stored_at.isoformat(),
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        "body": message.body.text,
        "body_encoding": message.body.encoding,
        "body_truncated": message.body.truncated,
        "masked": list(message.masked),
    }


def cut_mark_done(*, actor: Actor, cut: SavedCut, done: bool, note: str = "") -> None:
    """Note that someone has dealt with the cut, or take that back. The file stays. Raises NotAllowed."""
    actor_require(actor, "diverged.manage", cut.cluster.tenant)
    which: dict[str, Any] = {
        "cluster": cut.cluster,
        "group_name": cut.group_name,
        "replica_id": cut.replica_id,
        "file_name": cut.name,
    }
    with transaction.atomic():
        if done:
            DivergedDone.objects.update_or_create(**which, defaults={"note": note[:500], "made_by": str(actor)[:254]})
        else:
            DivergedDone.objects.filter(**which).delete()
        audit_event_record(
            actor=actor,
            action="diverged.done" if done else "diverged.reopen",
            resource=cut.path,
            tenant_id=cut.cluster.tenant_id,
            details={"note": note[:500]},
        )


def cut_delete(*, actor: Actor, cut: SavedCut, confirm: str) -> None:
    """Delete the file from the replica's disk for good; `confirm` is the group's name.

    Raises NotAllowed, FactorNeeded, Conflict without the confirmation or while messages of it are being sent, NotFound,
    BrokerRefused, BrokerUnreachable.
    """
    tenant = cut.cluster.tenant
    actor_require(actor, "diverged.manage", tenant)
    if confirm != cut.group_name:
        raise Conflict(
            say("This deletes the only copy of these messages. Confirm with the group's name."),
            code="confirmation_needed",
            extra={"confirm": cut.group_name, "messages": str(cut.messages)},
        )
    factor_require(actor, "diverged.delete", tenant)
    if resends_of(cut).filter(state=ReplayState.RUNNING).exists():
        raise Conflict(
            say("Messages of this file are being sent again."),
            code="resend_in_progress",
            hint=say("Wait until it has ended, or cancel it."),
        )
    # Noted first: what is gone can't be read again.
    audit_event_record(
        actor=actor,
        action="diverged.delete",
        resource=cut.path,
        tenant_id=tenant.pk,
        details={"messages": cut.messages, "size_bytes": cut.size_bytes, "topics": dict(cut.topics[:20])},
    )
    with cluster_admin(cut.cluster) as admin:
        admin.diverged_delete(cut.address, cut.name)
    DivergedDone.objects.filter(
        cluster=cut.cluster, group_name=cut.group_name, replica_id=cut.replica_id, file_name=cut.name
    ).delete()
