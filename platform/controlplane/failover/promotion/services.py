"""Writes: who leads a group. A request is checked against a fresh look at every replica, then becomes an operation; the
workers do the rest (steps.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor, actor_label
from controlplane.clusters.models import BrokerGroup, Cluster, FailoverPolicy, Operation, OperationState, OperationType
from controlplane.clusters.operations import operation_interrupt, operation_start, operation_yields
from controlplane.clusters.remoting import require_running
from controlplane.clusters.selectors import is_watched
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say, say_all
from controlplane.failover.errors import ConfirmationNeeded, NotPromotable
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.promotion.automatic import promotion_to_begin
from controlplane.failover.promotion.safety import promotion_refusal
from controlplane.failover.promotion.verdict import (
    Cleanness,
    GroupView,
    ReplicaView,
    candidates_ranked,
    claim_words,
    cleanness_of,
    is_dead,
)
from controlplane.failover.sampling import group_sample
from controlplane.failover.timeline import timeline_add
from controlplane.failover.words import listed
from controlplane.provisioning.drivers.base import Driver
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require

_log = get_logger("controlplane.failover")

_WISHES: dict[str, Callable[[int], str]] = {
    FailoverKind.PROMOTE: lambda replica: say("promote replica %(replica)s", replica=replica),
    FailoverKind.SWITCHOVER: lambda replica: say("switch to replica %(replica)s", replica=replica),
    FailoverKind.AUTOMATIC: lambda replica: say("promote replica %(replica)s", replica=replica),
    FailoverKind.REPEAT: lambda replica: say("have replica %(replica)s lead again", replica=replica),
    FailoverKind.DRILL: lambda replica: say("a drill, after which replica %(replica)s leads", replica=replica),
}

# A failed automatic promotion is not repeated at once: an operator should look.
_AUTOMATIC_PAUSE_S = 60.0
# Their changes of leaders share the operation's end: it fails so that a group that lost its leader can be helped.
_ROLLING = (OperationType.CLUSTER_RESTART, OperationType.CLUSTER_UPGRADE)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What would happen. Offsets and gaps in bytes of the CommitLog; unknown is None.

    `problems` forbid it; `confirmation_needed` says that the group's name must be typed, because `cleanness` isn't.
    """

    group: str
    kind: str
    candidate: ReplicaView | None
    old_master: ReplicaView | None
    new_epoch: int | None
    fence: str
    cleanness: Cleanness
    problems: tuple[str, ...]
    looked_at: datetime
    led_at: datetime | None = None
    claim_words: str = ""

    @property
    def confirmation_needed(self) -> bool:
        return not self.problems and not self.cleanness.clean

    @property
    def possible(self) -> bool:
        return not self.problems


def failover_preflight(
    *, view: GroupView | None, kind: FailoverKind, candidate_id: int | None, now: datetime
) -> Preflight:
    """Say what a promotion or switchover of this group, as it was just sampled, would do. Pure.

    Without `candidate_id` the best one is taken: the highest (last epoch, held offset).
    """
    if view is None:
        return _impossible("", kind, say("There is no such broker group."), now)
    if (refusal := promotion_refusal(view)) is not None:
        return _impossible(view.name, kind, refusal, now)
    if len(view.replicas) < 2:
        cause = say(
            "The group has one replica: there is no replica to promote. While its broker runs, the"
            " modes async, sync and dledger add others (POST …/mode/)."
        )
        return _impossible(view.name, kind, cause, now)
    ranked = candidates_ranked(view)
    candidate = view.replica(candidate_id) if candidate_id is not None else next(iter(ranked), None)
    master, former = view.master, view.former_master
    if candidate is None:
        cause = (
            say("No replica can be promoted.")
            if candidate_id is None
            else say("There is no replica %(candidate_id)s.", candidate_id=candidate_id)
        )
        return _impossible(view.name, kind, cause, now)
    problems = [
        *_candidate_problems(candidate),
        *(_switchover_problems(master, candidate) if kind == FailoverKind.SWITCHOVER else ()),
    ]
    if kind == FailoverKind.SWITCHOVER:
        cleanness = Cleanness(True, say("sends pause until the candidate has caught up, so nothing is lost."), 0, 0)
        fence: str = say("The master refuses sends until the candidate has caught up, then steps down.")
    else:
        cleanness = cleanness_of(view, candidate.replica_id)
        fence = _fence_words(view, candidate, former, now)
    epochs = [replica.epoch for replica in view.replicas if replica.epoch is not None]
    return Preflight(
        group=view.name,
        kind=kind,
        candidate=candidate,
        old_master=former,
        new_epoch=max(epochs) + 1 if epochs else None,
        fence=fence,
        cleanness=cleanness,
        problems=tuple(problems),
        looked_at=now,
        led_at=view.led_at,
        claim_words=claim_words(view),
    )


def group_preflight(
    *, cluster: Cluster, group: BrokerGroup, kind: FailoverKind, candidate_id: int | None, driver: Driver
) -> Preflight:
    """Look at every replica now, and say what would happen. Raises Conflict unless the cluster runs, or its suspension or
    resumption has failed: without a leader neither goes on.
    """
    if not is_watched(cluster):
        require_running(cluster)
    view = group_sample(cluster, group.name, driver, hurried=True)
    placed = None if view is None else view.placed()
    return failover_preflight(view=placed, kind=kind, candidate_id=candidate_id, now=timezone.now())


def failover_start(
    *,
    actor: Actor,
    cluster: Cluster,
    group: BrokerGroup,
    kind: FailoverKind,
    driver: Driver,
    candidate_id: int | None = None,
    confirm: str = "",
) -> Failover:
    """Start the operation that makes the candidate the group's master.

    Raises NotPromotable, ConfirmationNeeded when messages may be lost and `confirm` is not the group's name, Conflict
    when the cluster isn't running or another operation on it is in progress: of two requests at once, one wins.
    """
    actor_require(actor, "group.promote", cluster.tenant)
    preflight = group_preflight(cluster=cluster, group=group, kind=kind, candidate_id=candidate_id, driver=driver)
    if preflight.problems or preflight.candidate is None:
        raise NotPromotable(say_all(*preflight.problems))
    confirmed = confirm == group.name
    if confirm and not confirmed:
        raise InvalidInput.for_field("confirm", say("Type the group's name, %(group)s.", group=group.name), "mismatch")
    if preflight.confirmation_needed and not confirmed:
        raise ConfirmationNeeded(
            say("Messages may be lost: %(because)s", because=preflight.cleanness.because),
            hint=say("Send `confirm` with the group's name, %(group)s, to go on all the same.", group=group.name),
            extra={
                "bytes_at_risk": _text(preflight.cleanness.bytes_at_risk),
                "messages_at_risk": _text(preflight.cleanness.messages_at_risk),
            },
        )
    if preflight.confirmation_needed:
        factor_require(actor, "group.promote_with_loss", cluster.tenant)
    # Where nothing was to be lost nothing was agreed to: what the fence finds then is asked about first.
    return _start(actor, cluster, group, preflight, confirmed_loss=preflight.confirmation_needed)


def automatic_failover(cluster: Cluster, view: GroupView, driver: Driver) -> Failover | None:
    """Act by ourselves if nothing acknowledged is lost (automatic.py), and no one else does; called with each sample."""
    now = timezone.now()
    when_lossless = cluster.failover_policy == FailoverPolicy.AUTOMATIC_WHEN_LOSSLESS
    view = view.placed()
    promotion = promotion_to_begin(view, now, when_lossless=when_lossless)
    if promotion is None:
        return None
    running = Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).first()
    if running is not None and not operation_yields(running):
        return None
    changes = Failover.objects.filter(cluster=cluster, group_name=view.name).select_related("operation")
    last = changes.order_by("-created_at").first()
    if (
        last is not None
        and last.state == OperationState.FAILED
        and (last.operation is None or last.operation.type not in _ROLLING)
        and (now - last.updated_at).total_seconds() < _AUTOMATIC_PAUSE_S
    ):
        return None
    group = BrokerGroup.objects.get(cluster=cluster, name=view.name)
    try:
        return failover_start(
            actor=SystemActor("failover"),
            cluster=cluster,
            group=group,
            kind=FailoverKind.REPEAT if promotion.repeats else FailoverKind.AUTOMATIC,
            driver=driver,
            candidate_id=promotion.candidate_id,
        )
    except ApplicationError as error:  # another worker was quicker, or it is not clean on a second look
        _log.info("no automatic promotion", group=view.name, cause=error.message)
        return None


def _start(
    actor: Actor, cluster: Cluster, group: BrokerGroup, preflight: Preflight, *, confirmed_loss: bool
) -> Failover:
    candidate, old_master = preflight.candidate, preflight.old_master
    assert candidate is not None
    is_switchover = preflight.kind == FailoverKind.SWITCHOVER
    with transaction.atomic():
        if not is_switchover and (old_master is None or not old_master.leads or old_master.cannot_serve):
            who = say("Highwater itself") if isinstance(actor, SystemActor) else actor_label(actor)
            cause = say("%(group)s had no master, and %(who)s asked for one.", group=group.name, who=who)
            operation_interrupt(cluster, say("Interrupted: %(cause)s", cause=cause))
        operation = operation_start(
            actor=actor,
            cluster=cluster,
            operation_type=OperationType.GROUP_SWITCHOVER if is_switchover else OperationType.GROUP_PROMOTE,
            resource=f"{cluster.path}groups/{group.name}/",
            metadata={"group": group.name, "candidate": candidate.replica_id},
        )
        stopped_at = None
        if not is_switchover and old_master is not None and not old_master.answers:
            stopped_at = old_master.process_ended_at or old_master.last_seen_at
        elif old_master is not None and old_master.claims:
            stopped_at = preflight.led_at
        failover = Failover.objects.create(
            operation=operation,
            cluster=cluster,
            group_name=group.name,
            kind=preflight.kind,
            requested_by=actor_label(actor),
            candidate_id=candidate.replica_id,
            old_master_id=None if old_master is None else old_master.replica_id,
            confirmed_loss=confirmed_loss,
            bytes_at_risk=preflight.cleanness.bytes_at_risk,
            messages_at_risk=preflight.cleanness.messages_at_risk,
            writes_stopped_at=stopped_at,
        )
        if old_master is not None and not old_master.answers and old_master.unreachable_since is not None:
            what = say("Replica %(replica_id)s did not answer.", replica_id=old_master.replica_id)
            timeline_add(failover, "detected", what, at=old_master.unreachable_since)
        if old_master is not None and old_master.claims:
            timeline_add(failover, "claim_blocked", preflight.claim_words)
        wish = _WISHES[failover.kind](candidate.replica_id)
        timeline_add(failover, "requested", say("By %(asked_by)s: %(wish)s.", asked_by=failover.asked_by, wish=wish))
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=operation.resource,
            tenant_id=cluster.tenant_id,
            details={
                "candidate": candidate.replica_id,
                "clean": preflight.cleanness.clean,
                "confirmed_loss": confirmed_loss,
            },
        )
    return failover


def _impossible(group: str, kind: FailoverKind, cause: str, now: datetime) -> Preflight:
    return Preflight(group, kind, None, None, None, "", Cleanness(False, cause), (cause,), now)


def _candidate_problems(candidate: ReplicaView) -> list[str]:
    name = say("Replica %(replica_id)s", replica_id=candidate.replica_id)
    if not candidate.answers:
        return [say("%(name)s does not answer.", name=name)]
    if candidate.leads:
        return [say("%(name)s is already the master.", name=name)]
    if candidate.quorum is not None:
        return [
            say("%(name)s still elects: it can't be promoted before the change of the mode has reached it.", name=name)
        ]
    if not candidate.promotable:
        return [
            say(
                "%(name)s can't lead: %(not_promotable_because)s.",
                name=name,
                not_promotable_because=candidate.not_promotable_because or say("it gives no reason"),
            )
        ]
    return []


def _switchover_problems(master: ReplicaView | None, candidate: ReplicaView) -> list[str]:
    if master is None:
        return [say("There is no master to switch from: promote a replica instead.")]
    if master is not candidate and not candidate.in_sync:
        return [
            say("Replica %(replica_id)s is not in sync: wait until it has caught up.", replica_id=candidate.replica_id)
        ]
    return []


def _fence_words(view: GroupView, candidate: ReplicaView, former: ReplicaView | None, now: datetime) -> str:
    if former is None or former is candidate:
        silent = [replica for replica in view.silent if replica is not candidate]
        if not silent:
            return say("No other replica leads: there is nothing to fence.")
        names = listed([say("replica %(ids)s", ids=replica.replica_id) for replica in silent])
        return say(
            "The process of %(names)s, which may lead unseen, is stopped, and that is confirmed, first.", names=names
        )
    if former.leads:
        return say(
            "Replica %(replica_id)s is alive and leads: it is demoted first. A switchover would lose nothing.",
            replica_id=former.replica_id,
        )
    if is_dead(former, now) or not former.answers:
        return say(
            "Replica %(replica_id)s does not answer: its process is stopped, and that is confirmed, first.",
            replica_id=former.replica_id,
        )
    return say("Replica %(replica_id)s answers as a slave: it is sent the new epoch.", replica_id=former.replica_id)


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
