"""Writes: changes of groups that elect their leader. A request is planned on a fresh look at every replica, then becomes an
operation; the workers do the rest (steps.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor, actor_label
from controlplane.clusters.given_up import replicas_given_up
from controlplane.clusters.limits import limits_check
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationType, Replica
from controlplane.clusters.operations import operation_interrupt_for_recovery, operation_start
from controlplane.clusters.remoting import require_running
from controlplane.clusters.selectors import is_watched
from controlplane.clusters.services import replica_id_next
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say, say_all
from controlplane.failover.errors import ConfirmationNeeded, NotPossible
from controlplane.failover.membership.plan import (
    ChangeKind,
    QuorumPlan,
    plan_prefer,
    plan_recover,
    plan_replace,
    plan_resize,
    plan_transfer,
)
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import group_sample
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.drivers.base import Driver
from controlplane.tenants.rules import actor_require
from controlplane.tenants.sensitive import factor_require


@dataclass(frozen=True, slots=True)
class Transfer:
    """Hand the leadership over; to the best of the others when `target` is None."""

    target: int | None = None


@dataclass(frozen=True, slots=True)
class Prefer:
    """Whom the group wants as its leader; None for no one in particular."""

    replica_id: int | None


@dataclass(frozen=True, slots=True)
class Replace:
    """Put an empty replica in the place of this one."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Have so many replicas; `remove` names those that go when it shrinks."""

    replicas: int
    remove: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Recover:
    """Go on with the voters that are left, led by this one: a majority of the disks is gone for good."""

    replica_id: int


QuorumChange = Transfer | Prefer | Replace | Resize | Recover


def change_permission(change: QuorumChange) -> str:
    """Return the permission that a change needs."""
    return "group.promote" if isinstance(change, (Transfer, Prefer, Recover)) else "cluster.grow"


def quorum_preview(*, cluster: Cluster, group: BrokerGroup, change: QuorumChange, driver: Driver) -> QuorumPlan:
    """Look at every replica now, and say what the change would do. Raises Conflict unless the cluster is running; a recovery also
    goes on where a suspension or resumption has failed: without a leader neither is ever completed.
    """
    if not (isinstance(change, Recover) and is_watched(cluster)):
        require_running(cluster)
    view = group_sample(cluster, group.name, driver)
    return _plan(view or GroupView(name=group.name, in_sync_replicas=1, replicas=(), elects=True), group, change)


def quorum_change_start(
    *, actor: Actor, cluster: Cluster, group: BrokerGroup, change: QuorumChange, driver: Driver, confirm: str = ""
) -> Operation:
    """Start the operation that changes the group. A recovery ends another change of a group that waits for a leader, or its turn.

    Raises NotPossible with the causes, ConfirmationNeeded when something is lost and `confirm` is not the group's name,
    Conflict when the cluster isn't running or another operation on it is in progress: of two requests at once, one wins.
    """
    actor_require(actor, change_permission(change), cluster.tenant)
    if isinstance(change, Recover):
        factor_require(actor, "group.recover", cluster.tenant)
    plan = quorum_preview(cluster=cluster, group=group, change=change, driver=driver)
    if plan.problems:
        raise NotPossible(say_all(*plan.problems))
    if confirm and confirm != group.name:
        raise InvalidInput.for_field("confirm", say("Type the group's name, %(group)s.", group=group.name), "mismatch")
    if plan.loss and not confirm:
        raise ConfirmationNeeded(
            plan.loss,
            hint=say("Send `confirm` with the group's name, %(group)s, to go on all the same.", group=group.name),
        )
    with transaction.atomic():
        if plan.kind == ChangeKind.RECOVER:
            _make_way(actor, cluster, group)
        operation = operation_start(
            actor=actor,
            cluster=cluster,
            operation_type=OperationType(f"group.{plan.kind}"),
            resource=f"{cluster.path}groups/{group.name}/",
            metadata={
                "group": group.name,
                "target": plan.target,
                "adding": list(plan.adding),
                "removing": list(plan.removing),
            },
        )
        for replica_id in plan.adding:
            Replica.objects.get_or_create(
                group=group,
                broker_id=replica_id,
                defaults={"broker_role": "", "host": settings.HIGHWATER_ADVERTISED_HOST},
            )
        if plan.kind != ChangeKind.REPLACE:
            limits_check(cluster.tenant)
        if plan.adding:
            used = max(group.replica_ids_used, max(plan.adding) + 1)
            BrokerGroup.objects.filter(pk=group.pk).update(replica_ids_used=used, updated_at=timezone.now())
        if plan.kind == ChangeKind.TRANSFER and plan.target is not None:
            _transfer_row(actor, cluster, plan, plan.target, operation)
        audit_event_record(
            actor=actor,
            action=str(operation.type),
            resource=operation.resource,
            tenant_id=cluster.tenant_id,
            details={
                "target": plan.target,
                "adding": list(plan.adding),
                "removing": list(plan.removing),
                **({"confirmed_loss": plan.loss} if plan.loss else {}),
            },
        )
    return operation


def _make_way(actor: Actor, cluster: Cluster, group: BrokerGroup) -> None:
    """End the change that the recovery must not wait for. Replicas that it was to add, and that have no port yet, go with it."""
    cause = say(
        "%(group)s had lost a majority of its disks, and %(who)s asked for its recovery.",
        group=group.name,
        who=actor_label(actor),
    )
    ended = operation_interrupt_for_recovery(cluster, say("Interrupted: %(cause)s", cause=cause))
    if ended is not None:
        name, adding = ended.metadata["group"], ended.metadata["adding"]
        added = Replica.objects.filter(group__cluster=cluster, group__name=name, broker_id__in=adding)
        added.filter(port=None).delete()


def _plan(view: GroupView, group: BrokerGroup, change: QuorumChange) -> QuorumPlan:
    now = timezone.now()
    next_id = replica_id_next(group)
    match change:
        case Transfer(target):
            return plan_transfer(view, target, now)
        case Prefer(replica_id):
            return plan_prefer(view, replica_id, now)
        case Replace(replica_id):
            return plan_replace(view, replica_id, next_id, now)
        case Recover(replica_id):
            return plan_recover(view, replica_id, now)
        case Resize(replicas, remove):
            lost = Replica.objects.filter(group=group, pk__in=replicas_given_up(group.cluster))
            given_up = set(lost.values_list("broker_id", flat=True))
            return plan_resize(view, replicas, next_id, now, remove, given_up=given_up)


def _transfer_row(actor: Actor, cluster: Cluster, plan: QuorumPlan, target: int, operation: Operation) -> None:
    failover = Failover.objects.create(
        operation=operation,
        cluster=cluster,
        group_name=plan.group,
        kind=FailoverKind.TRANSFER,
        requested_by=actor_label(actor),
        candidate_id=target,
        old_master_id=plan.leader_id,
        bytes_at_risk=0,
        messages_at_risk=0,
        lossless=True,
        lossless_because=say("the leader hands its role over only to a voter that holds all that it holds."),
    )
    timeline_add(
        failover,
        "requested",
        say("By %(actor)s: the leadership to replica %(target)s.", actor=actor_label(actor), target=target),
    )
