"""Dead letters of a group: what its members never managed to consume. Reading moves no offset."""

import csv
import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.audit import audit_event_record
from controlplane.common.spreadsheets import spreadsheet_text
from controlplane.consumers.replay_plan import original_topic
from controlplane.consumers.selectors import group_path
from controlplane.tenants.rules import actor_require
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES, ShownBody
from controlplane.topics.browse import newest_messages
from controlplane.topics.gateway import browsed_message
from controlplane.topics.looks import look_require
from controlplane.topics.masking import Sight
from controlplane.topics.masking_rules import sight_of
from highwater import Admin, MessageQueue, NoRouteError, ReceivedMessage
from highwater._admin_models import QueueStats
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX

BROWSE_MAX = 100
EXPORT_MAX = 5000
_SECONDS_MAX = 10.0
_BYTES_MAX = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter. `broker_name`, `queue_id` and `queue_offset` are its place among the dead letters."""

    broker_name: str
    queue_id: int
    queue_offset: int
    topic: str
    died_at: datetime
    born_at: datetime | None
    tries: int
    tags: str
    keys: tuple[str, ...]
    message_id: str
    offset_message_id: str
    body: ShownBody
    masked: tuple[str, ...]

    @property
    def place(self) -> str:
        """Its place as one word, for forms."""
        return f"{self.broker_name}:{self.queue_id}:{self.queue_offset}"


# Of a file: its place, what is known of it, and its body with how that is written.
_OWN = tuple(one.name for one in fields(DeadLetter) if one.name != "body")
_COLUMNS = (*_OWN, "body", "body_encoding", "body_truncated")


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Newest first. `total` counts all that are stored; `complete` is False when reading stopped at its bounds."""

    messages: list[DeadLetter]
    total: int
    complete: bool


def dead_letter_queues(admin: Admin, group: str) -> tuple[QueueStats, ...]:
    """Return the queues of the group's dead-letter topic: none before its first dead letter."""
    try:
        return admin.topic_stats(DLQ_GROUP_TOPIC_PREFIX + group).queues
    except NoRouteError:
        return ()


def dead_letters(
    *,
    actor: Actor,
    cluster: Cluster,
    group: str,
    limit: int = 50,
    body_limit_bytes: int = 200,
    limit_max: int = BROWSE_MAX,
    decodes: bool = True,
) -> DeadLetters:
    """Return the group's newest dead letters. Raises NotAllowed, TooOften, Conflict, BrokerRefused, BrokerUnreachable."""
    actor_require(actor, "message.browse", cluster.tenant)
    look_require(actor, cluster.tenant)
    sight = sight_of(actor, cluster, decodes=decodes)
    with cluster_admin(cluster) as admin:
        queues = dead_letter_queues(admin, group)

        def pull(queue: MessageQueue, offset: int, count: int) -> list[_Read]:
            return [_Read.of(message, sight, body_limit_bytes) for message in admin.pull(queue, offset, count)]

        newest = newest_messages(
            [(one.queue, one.min_offset, one.max_offset) for one in queues],
            pull,
            limit=max(1, min(limit, limit_max)),
            budget_bytes=_BYTES_MAX,
            deadline=time.monotonic() + _SECONDS_MAX,
        )
    return DeadLetters(
        [read.shown for read in newest.messages], sum(one.message_count for one in queues), newest.complete
    )


def dead_letters_export(*, actor: Actor, cluster: Cluster, group: str, as_csv: bool) -> Iterator[str]:
    """Return the newest 5000 dead letters as lines of CSV or JSON, read before the first is given out.

    A body has its first 64 KiB, with `body_truncated` where that is not all. Raises as `dead_letters`.
    """
    found = dead_letters(
        actor=actor,
        cluster=cluster,
        group=group,
        limit=EXPORT_MAX,
        body_limit_bytes=BODY_SHOWN_MAX_BYTES,
        limit_max=EXPORT_MAX,
        decodes=False,
    )
    audit_event_record(
        actor=actor,
        action="dead_letter.export",
        resource=f"{group_path(cluster, group)}dead-letters/",
        tenant_id=cluster.tenant_id,
        details={"messages": len(found.messages), "complete": found.complete},
    )
    rows = [_row(one) for one in found.messages]
    return _csv(rows) if as_csv else (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _row(letter: DeadLetter) -> dict[str, object]:
    values = {name: getattr(letter, name) for name in _OWN}
    values["keys"], values["masked"] = list(letter.keys), list(letter.masked)
    values["queue_offset"] = str(letter.queue_offset)
    values |= {"died_at": letter.died_at.isoformat(), "born_at": letter.born_at and letter.born_at.isoformat()}
    body = letter.body
    return {**values, "body": body.text, "body_encoding": body.encoding, "body_truncated": body.truncated}


def _csv(rows: list[dict[str, object]]) -> Iterator[str]:
    yield _line(list(_COLUMNS))
    for row in rows:
        yield _line([_cell(row[column]) for column in _COLUMNS])


def _line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def _cell(value: object) -> str:
    """What is not known is empty."""
    if value is None:
        return ""
    return spreadsheet_text(" ".join(value) if isinstance(value, list) else str(value))


def dead_letter(message: ReceivedMessage, sight: Sight, body_limit_bytes: int) -> DeadLetter:
    """Return a message of a dead-letter topic as it is shown."""
    shown = browsed_message(message, sight, body_limit_bytes)
    return DeadLetter(
        broker_name=shown.broker_name,
        queue_id=shown.queue_id,
        queue_offset=shown.queue_offset,
        topic=original_topic(message),
        died_at=shown.stored_at,
        born_at=shown.born_at,
        tries=shown.reconsume_times,
        tags=shown.tags,
        keys=shown.keys,
        message_id=shown.message_id,
        offset_message_id=shown.offset_message_id,
        body=shown.body,
        masked=shown.masked,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """A dead letter with what the merge needs."""

    store_timestamp_ms: int
    queue_offset: int
    size_bytes: int
    shown: DeadLetter

    @classmethod
    def of(cls, message: ReceivedMessage, sight: Sight, body_limit_bytes: int) -> "_Read":
        shown = dead_letter(message, sight, body_limit_bytes)
        return cls(message.store_timestamp_ms, message.queue_offset, len(message.body), shown)
