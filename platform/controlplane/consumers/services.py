"""Consumer groups as the brokers know them, and resets of their offsets: look first, reset queue by queue, undo.

A broker applies a reset at once, whether members are connected or not, and sends each to the new place by the answer to its pull.
Commits until then don't count.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster
from controlplane.clusters.remarks import error_words
from controlplane.clusters.remoting import cluster_admin
from controlplane.clusters.waiting import waits_bounded
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import Conflict, InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.consumers.models import OffsetReset, ResetTarget
from controlplane.consumers.replay_plan import Place
from controlplane.consumers.replays import places_of
from controlplane.consumers.reset_plan import QueueNow, QueueReset, ResetPlan, exact_offsets, plan_to, shifted
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require
from highwater import Admin, MessageQueue
from highwater.errors import BrokerError, HighwaterError, NoRouteError, TimeSpentError

SHIFT_MAX = 10**12
OFFSETS_MAX = 1000
# A reset asks for each queue: one that has begun is not cut short where other requests would be.
_RESET_TOTAL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where to. `at` is of TIME, `shift` of SHIFT (below 0: back), `source_group` of GROUP, `offsets` of OFFSETS: each
    `broker:queue:offset`, the queues that are not named stay where they are.
    """

    kind: ResetTarget
    at: datetime | None = None
    shift: int | None = None
    source_group: str = ""
    offsets: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise InvalidInput when what its kind needs is missing."""
        if self.kind == ResetTarget.TIME and self.at is None:
            raise InvalidInput.for_field("at", say("Say from which time on."), "required")
        if self.kind == ResetTarget.SHIFT and (not self.shift or abs(self.shift) > SHIFT_MAX):
            raise InvalidInput.for_field("shift", say("Say by how many messages, below 0 for back."), "required")
        if self.kind == ResetTarget.GROUP and not self.source_group:
            raise InvalidInput.for_field("source_group", say("Say which group's offsets to take."), "required")
        if self.kind == ResetTarget.OFFSETS:
            self.wanted_places()

    def wanted_places(self) -> tuple[Place, ...]:
        """Return the offsets of OFFSETS; raises InvalidInput."""
        if not self.offsets:
            raise InvalidInput.for_field(
                "offsets", say("Give broker:queue:offset of each queue that is to move."), "required"
            )
        if len(self.offsets) > OFFSETS_MAX:
            raise InvalidInput.for_field("offsets", say("At most %(most)s.", most=OFFSETS_MAX), "max_length")
        found = places_of(self.offsets, field="offsets")
        named = Counter((one.broker_name, one.queue_id) for one in found)
        for (broker_name, queue_id), times in named.items():
            if times > 1:
                raise InvalidInput.for_field(
                    "offsets",
                    say("Queue %(queue)s of %(broker)s is named twice.", queue=queue_id, broker=broker_name),
                    "invalid",
                )
        return found

    @property
    def details(self) -> dict[str, Any]:
        """Its parameter, as a reset keeps it."""
        match self.kind:
            case ResetTarget.TIME:
                return {"at": self.at.isoformat() if self.at else None}
            case ResetTarget.SHIFT:
                return {"shift": self.shift}
            case ResetTarget.GROUP:
                return {"source_group": self.source_group}
            case ResetTarget.OFFSETS:
                return {"offsets": list(self.offsets)}
            case _:
                return {}


def reset_preview(*, cluster: Cluster, group: str, topic: str, target: Target) -> ResetPlan:
    """Return what the reset would do now. Changes nothing. Raises InvalidInput, NotFound, Conflict, BrokerUnreachable."""
    target.check()
    with waits_bounded(_RESET_TOTAL_MS), cluster_admin(cluster) as admin:
        return _plan(admin, cluster, group, topic, target)


def reset_make(*, actor: Actor, cluster: Cluster, group: str, topic: str, target: Target) -> OffsetReset:
    """Reset the group's offsets in one topic; the result says of each queue what became of it.

    Raises NotAllowed, InvalidInput, NotFound, Conflict when nothing would change, BrokerUnreachable.
    """
    actor_require(actor, "offset.reset", cluster.tenant)
    factor_require(actor, "offset.reset", cluster.tenant)
    target.check()
    with waits_bounded(_RESET_TOTAL_MS), cluster_admin(cluster) as admin:
        plan = _plan(admin, cluster, group, topic, target)
        reset = _record(actor, cluster, group, topic, plan, target.kind, target.details)
        _apply(admin, reset)
    return reset


def undo_preview(reset: OffsetReset) -> ResetPlan:
    """Return what undoing would do now. Raises Conflict when it was undone already."""
    _require_undoable(reset)
    with waits_bounded(_RESET_TOTAL_MS), cluster_admin(reset.cluster) as admin:
        return _undo_plan(admin, reset)


def reset_undo(*, actor: Actor, reset: OffsetReset) -> OffsetReset:
    """Take the group back to where it was before the reset, whatever it has consumed since.

    Messages that retention has deleted meanwhile can't come back: such a queue goes to its first message.
    Raises NotAllowed, Conflict, BrokerUnreachable.
    """
    actor_require(actor, "offset.reset", reset.cluster.tenant)
    factor_require(actor, "offset.reset", reset.cluster.tenant)
    _require_undoable(reset)
    with waits_bounded(_RESET_TOTAL_MS), cluster_admin(reset.cluster) as admin:
        plan = _undo_plan(admin, reset)
        with transaction.atomic():
            locked = OffsetReset.objects.select_for_update().get(pk=reset.pk)
            _require_undoable(locked)
            undo = _record(
                actor, reset.cluster, reset.consumer_group, reset.topic, plan, ResetTarget.UNDO, {}, undoes=locked
            )
        _apply(admin, undo)
    return undo


def _plan(admin: Admin, cluster: Cluster, group: str, topic: str, target: Target) -> ResetPlan:
    names = admin.group_list(cluster=cluster.slug)
    if group not in names:
        raise NotFound(say("The brokers know no consumer group of this name."))
    now = _queues_now(admin, group, topic)
    wanted: dict[MessageQueue, int | None]
    match target.kind:
        case ResetTarget.EARLIEST:
            wanted = {one.queue: one.min_offset for one in now}
        case ResetTarget.LATEST:
            wanted = {one.queue: one.max_offset for one in now}
        case ResetTarget.SHIFT:
            wanted = shifted(now, target.shift or 0)
        case ResetTarget.GROUP:
            if target.source_group not in names:
                raise InvalidInput.for_field(
                    "source_group", say("The brokers know no consumer group of this name."), "not_found"
                )
            wanted = dict(_offsets(admin, target.source_group, topic))
        case ResetTarget.TIME:
            assert target.at is not None, "checked before"
            timestamp_ms = int(target.at.timestamp() * 1000)
            wanted = {one.queue: admin.search_offset(one.queue, timestamp_ms) for one in now}
        case ResetTarget.OFFSETS:
            wanted = exact_offsets(now, target.wanted_places())
        case ResetTarget.UNDO:
            raise InvalidInput.for_field("target", say("A reset is undone at its own address."), "invalid")
    return plan_to(now, wanted)


def _undo_plan(admin: Admin, reset: OffsetReset) -> ResetPlan:
    now = _queues_now(admin, reset.consumer_group, reset.topic)
    before = {
        MessageQueue(reset.topic, one["broker_name"], one["queue_id"]): one["before"]
        for one in reset.queues
        if one["outcome"] != "failed"
    }
    return plan_to([one for one in now if one.queue in before], before)


def _queues_now(admin: Admin, group: str, topic: str) -> list[QueueNow]:
    offsets = _offsets(admin, group, topic)
    try:
        stats = admin.topic_stats(topic)
    except NoRouteError:
        raise InvalidInput.for_field("topic", say("The brokers know no topic of this name."), "not_found") from None
    return [QueueNow(one.queue, one.min_offset, one.max_offset, offsets.get(one.queue)) for one in stats.queues]


def _offsets(admin: Admin, group: str, topic: str) -> dict[MessageQueue, int]:
    return {one.queue: one.consumer_offset for one in admin.consumer_progress(group, topic=topic).queues}


def _record(
    actor: Actor,
    cluster: Cluster,
    group: str,
    topic: str,
    plan: ResetPlan,
    kind: ResetTarget,
    details: dict[str, Any],
    undoes: OffsetReset | None = None,
) -> OffsetReset:
    if not plan.queues:
        raise Conflict(
            say("Nothing would change: the group is there already, or has no offset to go from."),
            code="nothing_to_reset",
        )
    with transaction.atomic():
        reset = OffsetReset.objects.create(
            cluster=cluster,
            consumer_group=group,
            topic=topic,
            target=kind,
            details=details,
            queues=[_row(one) for one in plan.queues],
            made_by=str(actor)[:254],
            undoes=undoes,
        )
        audit_event_record(
            actor=actor,
            action="offset.reset" if undoes is None else "offset.undo",
            resource=reset.path,
            tenant_id=cluster.tenant_id,
            details={
                "group": group,
                "topic": topic,
                "target": kind,
                **details,
                "again": plan.again,
                "skipped": plan.skipped,
            },
        )
    return reset


def _row(one: QueueReset) -> dict[str, Any]:
    return {
        "broker_name": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "before": one.before,
        "after": one.after,
        "outcome": "unknown",
        "error": say("not asked yet"),
    }


def _apply(admin: Admin, reset: OffsetReset) -> None:
    silent: dict[str, str] = {}
    for one in reset.queues:
        if one["broker_name"] in silent:  # each queue would wait as long as the first
            one["outcome"], one["error"] = "failed", say("not asked: %(problem)s", problem=silent[one["broker_name"]])
            continue
        queue = MessageQueue(reset.topic, one["broker_name"], one["queue_id"])
        try:
            admin.reset_offset(reset.consumer_group, queue, one["after"])
        except (BrokerError, TimeSpentError) as error:
            one["outcome"], one["error"] = "failed", error_words(error)
        except HighwaterError as error:
            one["outcome"], one["error"] = "unknown", error_words(error)
            silent[one["broker_name"]] = one["error"]
        else:
            one["outcome"], one["error"] = "done", ""
    reset.save(update_fields=["queues", "updated_at"])


def _require_undoable(reset: OffsetReset) -> None:
    if OffsetReset.objects.filter(undoes=reset).exists():
        raise Conflict(say("This reset was undone already."), code="already_undone")
    if all(one["outcome"] == "failed" for one in reset.queues):
        raise Conflict(say("This reset changed nothing: every broker refused."), code="nothing_to_undo")
