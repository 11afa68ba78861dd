"""Writes: clusters. A change that needs daemons writes rows and an operation; the workers do the rest."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.credential_services import credential_rows_create
from controlplane.clusters.labels import labels_check
from controlplane.clusters.limits import limits_check
from controlplane.clusters.models import (
    REPLICATED_MODES,
    BrokerGroup,
    Cluster,
    ClusterMode,
    FailoverPolicy,
    FlushType,
    NameServer,
    Operation,
    OperationType,
    Replica,
)
from controlplane.clusters.operations import operation_start
from controlplane.clusters.remoting import require_running
from controlplane.clusters.sizes import GROUPS_MAX, REPLICAS_MAX, VOTERS
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput, PreconditionFailed
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require
from controlplane.tenants.services import slug_check


def cluster_create(
    *,
    actor: Actor,
    tenant: Tenant,
    slug: str,
    name: str = "",
    mode: str = ClusterMode.SINGLE,
    flush_disk_type: str | None = None,
    groups: int | None = None,
    replicas: int | None = None,
    failover_policy: str = FailoverPolicy.MANUAL,
    labels: Mapping[str, str] | None = None,
) -> tuple[Cluster, Operation]:
    """Write the cluster's rows and start the operation that provisions it.

    `groups` and `replicas` (per group, the master included) default to the least that the mode allows; the flush type to
    SYNC_FLUSH for DLedger, whose majority then answers for disks, otherwise to ASYNC_FLUSH. Raises InvalidInput, Conflict
    when the tenant has a cluster of this name.
    """
    actor_require(actor, "cluster.create", tenant)
    slug_check("slug", slug)
    if mode not in ClusterMode.values:
        raise InvalidInput.for_field("mode", f"Use one of {', '.join(ClusterMode.values)}.", "invalid_choice")
    if flush_disk_type is None:
        flush_disk_type = FlushType.SYNC_FLUSH if mode == ClusterMode.DLEDGER else FlushType.ASYNC_FLUSH
    if flush_disk_type not in FlushType.values:
        raise InvalidInput.for_field("flush_disk_type", f"Use one of {', '.join(FlushType.values)}.", "invalid_choice")
    _policy_check(failover_policy, mode)
    shape = Shape.of(ClusterMode(mode), groups, replicas)
    with transaction.atomic():
        try:
            with transaction.atomic():
                cluster = Cluster.objects.create(
                    tenant=tenant,
                    slug=slug,
                    name=name_check("name", name) or slug,
                    mode=mode,
                    flush_disk_type=flush_disk_type,
                    failover_policy=failover_policy,
                    labels=labels_check(labels or {}),
                )
        except IntegrityError:
            raise Conflict(
                say("This tenant has a cluster called `%(slug)s` already.", slug=slug), code="slug_taken"
            ) from None
        for position in range(shape.name_servers):
            NameServer.objects.create(cluster=cluster, position=position, host=settings.HIGHWATER_ADVERTISED_HOST)
        for position in range(shape.groups):
            group_rows_create(cluster, position, shape.replicas)
        limits_check(tenant)
        credential_rows_create(cluster)
        operation = operation_start(actor=actor, cluster=cluster, operation_type=OperationType.CLUSTER_CREATE)
        audit_event_record(
            actor=actor,
            action="cluster.create",
            resource=cluster.path,
            tenant_id=tenant.pk,
            details={
                "mode": mode,
                "flush_disk_type": flush_disk_type,
                "groups": shape.groups,
                "replicas": shape.replicas,
                "failover_policy": failover_policy,
            },
        )
    return cluster, operation


@dataclass(frozen=True, slots=True)
class Shape:
    """How many daemons a cluster has: broker groups, replicas in each (the master included), name servers."""

    groups: int
    replicas: int
    name_servers: int

    @classmethod
    def of(cls, mode: ClusterMode, groups: int | None, replicas: int | None) -> "Shape":
        """Fill in what was left out; raises InvalidInput naming the field for what the mode does not have."""
        replicated = mode in REPLICATED_MODES
        least_groups = 2 if mode == ClusterMode.MULTI else 1
        most_groups = 1 if mode == ClusterMode.SINGLE else GROUPS_MAX
        least_replicas, most_replicas = (2, REPLICAS_MAX) if replicated else (1, 1)
        if mode == ClusterMode.DLEDGER:
            least_replicas, most_replicas = VOTERS
        groups = least_groups if groups is None else groups
        replicas = least_replicas if replicas is None else replicas
        if not least_groups <= groups <= most_groups:
            raise _groups_out_of_range(mode, least_groups, most_groups)
        if mode == ClusterMode.DLEDGER and replicas not in VOTERS:
            raise InvalidInput.for_field(
                "replicas", say("Mode `dledger` has 3 or 5 replicas per group."), "out_of_range"
            )
        if not least_replicas <= replicas <= most_replicas:
            raise _replicas_out_of_range(mode, least_replicas, most_replicas)
        return cls(groups, replicas, 1 if mode == ClusterMode.SINGLE else 2)


def _groups_out_of_range(mode: ClusterMode, least: int, most: int) -> InvalidInput:
    if most == 1:
        message = say("Mode `%(mode)s` has exactly 1 broker group.", mode=mode.value)
    else:
        message = say(
            "Mode `%(mode)s` has %(least)s to %(most)s broker groups.", mode=mode.value, least=least, most=most
        )
    return InvalidInput.for_field("groups", message, "out_of_range")


def _replicas_out_of_range(mode: ClusterMode, least: int, most: int) -> InvalidInput:
    if most == 1:
        message = say("Mode `%(mode)s` has exactly 1 replica per group.", mode=mode.value)
    else:
        message = say(
            "Mode `%(mode)s` has %(least)s to %(most)s replicas per group.", mode=mode.value, least=least, most=most
        )
    return InvalidInput.for_field("replicas", message, "out_of_range")


def _policy_check(policy: str, mode: str) -> None:
    if policy not in FailoverPolicy.values:
        raise InvalidInput.for_field(
            "failover_policy", f"Use one of {', '.join(FailoverPolicy.values)}.", "invalid_choice"
        )
    if mode == ClusterMode.DLEDGER and policy != FailoverPolicy.MANUAL:
        words = say("Groups of the mode `dledger` elect their leaders themselves: leave the policy out.")
        raise InvalidInput.for_field("failover_policy", words, "invalid_choice")


def group_rows_create(cluster: Cluster, position: int, replicas: int) -> BrokerGroup:
    """Write the rows of one broker group: `broker-a` is the first, and replica 0 its first master."""
    group = BrokerGroup.objects.create(
        cluster=cluster, name=f"broker-{'abcdefgh'[position]}", replica_ids_used=replicas
    )
    master = "SYNC_MASTER" if cluster.mode == ClusterMode.SYNC else "ASYNC_MASTER"
    for broker_id in range(replicas):
        role = "" if cluster.elects_leaders else master if broker_id == 0 else "SLAVE"
        Replica.objects.create(
            group=group,
            broker_id=broker_id,
            broker_role=role,
            host=settings.HIGHWATER_ADVERTISED_HOST,
        )
    return group


class Growth(StrEnum):
    """What a cluster grows by."""

    GROUP = "group"
    REPLICA = "replica"


def may_add_group(cluster: Cluster) -> bool:
    """Whether this cluster may get one more broker group, as far as its mode and its size say."""
    return cluster.mode != ClusterMode.SINGLE and len(cluster.broker_groups.all()) < GROUPS_MAX


def cluster_grow(*, actor: Actor, cluster: Cluster, by: str = Growth.GROUP) -> Operation:
    """Add a broker group like the others, or one more slave to every group, and start the operation that provisions it.
    Topics are spread to a new group; a new slave fetches its master's log while that goes on serving.

    Raises InvalidInput for what the mode does not have, Conflict when the cluster isn't running, has the most already, or
    has another operation in progress.
    """
    actor_require(actor, "cluster.grow", cluster.tenant)
    require_running(cluster)
    if by not in list(Growth):
        raise InvalidInput.for_field("by", f"Use one of {', '.join(Growth)}.", "invalid_choice")
    if cluster.mode == ClusterMode.SINGLE:
        words = say(
            "A single-master cluster has one broker. Change its mode first, to async, sync or dledger: POST …/mode/."
        )
        raise InvalidInput.for_field("by", words, "invalid")
    if by == Growth.REPLICA and not cluster.is_replicated:
        words = say(
            "Groups of the mode `%(mode)s` have no slaves. The modes async and sync add them: POST …/mode/.",
            mode=cluster.mode,
        )
        raise InvalidInput.for_field("by", words, "invalid")
    if by == Growth.REPLICA and cluster.elects_leaders:
        words = say("A group that elects its leader grows from 3 to 5 replicas: POST …/groups/{group}/resize/.")
        raise InvalidInput.for_field("by", words, "invalid")
    with transaction.atomic():
        locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
        require_running(locked)
        if by == Growth.GROUP:
            added: dict[str, object] = {"group": _add_group(locked).name}
        else:
            added = {"replica": _add_replicas(locked)}
        limits_check(cluster.tenant)
        operation = operation_start(
            actor=actor, cluster=cluster, operation_type=OperationType.CLUSTER_GROW, metadata=added
        )
        audit_event_record(
            actor=actor,
            action="cluster.grow",
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details=added,
        )
    return operation


def _add_group(cluster: Cluster) -> BrokerGroup:
    groups = list(cluster.broker_groups.all())
    if len(groups) >= GROUPS_MAX:
        raise Conflict(
            say("A cluster has at most %(groups_max)s broker groups.", groups_max=GROUPS_MAX), code="too_many"
        )
    replicas = groups[0].replicas.count()
    if cluster.elects_leaders:  # one that is just being replaced, grown or shrunk is no measure
        replicas = max(VOTERS) if replicas >= max(VOTERS) else min(VOTERS)
    return group_rows_create(cluster, len(groups), replicas)


def _add_replicas(cluster: Cluster) -> int:
    """One more slave for every group, under the next replica id, which is returned: one that no group has used."""
    groups = list(cluster.broker_groups.all())
    if max(len(group.replicas.all()) for group in groups) >= REPLICAS_MAX:
        raise Conflict(
            say("A broker group has at most %(replicas_max)s replicas.", replicas_max=REPLICAS_MAX),
            code="too_many",
            hint=say("Groups that elect their leader may have five: POST …/mode/ with mode dledger."),
        )
    next_id = max(replica_id_next(group) for group in groups)
    for group in groups:
        Replica.objects.get_or_create(
            group=group,
            broker_id=next_id,
            defaults={"broker_role": "SLAVE", "host": settings.HIGHWATER_ADVERTISED_HOST},
        )
        BrokerGroup.objects.filter(pk=group.pk).update(replica_ids_used=next_id + 1, updated_at=timezone.now())
    return next_id


def replica_id_next(group: BrokerGroup) -> int:
    """Return the first replica id that the group has not used: an id is never a second replica's."""
    return max([group.replica_ids_used, *(replica.broker_id + 1 for replica in group.replicas.all())])


def cluster_update(
    *,
    actor: Actor,
    cluster: Cluster,
    name: str | None = None,
    failover_policy: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> Cluster:
    """Change the display name, the failover policy or the labels, all of these; None leaves as it is.

    Raises PreconditionFailed when the row changed since `cluster` was read.
    """
    actor_require(actor, "cluster.update", cluster.tenant)
    name = cluster.name if name is None else name_check("name", name)
    failover_policy = cluster.failover_policy if failover_policy is None else failover_policy
    labels = cluster.labels if labels is None else labels_check(labels)
    if not name:
        raise InvalidInput.for_field("name", say("A name is needed."), "required")
    _policy_check(failover_policy, cluster.mode)
    after = {"name": name, "failover_policy": failover_policy, "labels": dict(labels)}
    changes = changes_between({field: getattr(cluster, field) for field in after}, after)
    with transaction.atomic():
        now = timezone.now()
        won = Cluster.objects.filter(pk=cluster.pk, updated_at=cluster.updated_at).update(**after, updated_at=now)
        if won != 1:
            raise PreconditionFailed(say("The cluster was changed in the meantime."))
        audit_event_record(
            actor=actor,
            action="cluster.update",
            resource=cluster.path,
            tenant_id=cluster.tenant_id,
            details={**after, "changes": changes},
        )
    cluster.refresh_from_db()
    return cluster
