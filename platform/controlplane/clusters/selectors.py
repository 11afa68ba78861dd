"""Reads. Every one starts from a tenant or from the actor, so that a foreign row looks exactly like an absent one."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Exists, OuterRef, Prefetch, Q, QuerySet, Value
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.fair_operations import waiting_words
from controlplane.clusters.models import (
    LEADERSHIP,
    BrokerGroup,
    Cluster,
    ClusterState,
    Credential,
    Health,
    NameServer,
    Operation,
    OperationState,
    OperationStep,
    Replica,
    StepState,
)
from controlplane.clusters.workflows import step_title
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.tenants.models import Membership, Tenant
from controlplane.tenants.rules import actor_require, actor_roles
from controlplane.tenants.sensitive import entry_require


def cluster_list(tenant: Tenant) -> QuerySet[Cluster]:
    """Return the tenant's clusters that are not deleted, with their parts."""
    return (
        Cluster.objects.filter(tenant=tenant)
        .exclude(state=ClusterState.DELETED)
        .select_related("tenant")
        .prefetch_related("name_servers", Prefetch("broker_groups", BrokerGroup.objects.prefetch_related("replicas")))
    )


def clusters_watched() -> QuerySet[Cluster]:
    """Return the clusters of which is known who leads: those that run, and those whose suspension or resumption has failed and left
    brokers behind. What is to be done about these depends on it, and may be a promotion.
    """
    at_work = Operation.objects.filter(cluster=OuterRef("pk"), state=OperationState.IN_PROGRESS)
    left = Q(state__in=(ClusterState.SUSPENDING, ClusterState.RESUMING)) & ~Exists(at_work)
    return Cluster.objects.filter(Q(state=ClusterState.RUNNING) | left).select_related("tenant")


def is_watched(cluster: Cluster) -> bool:
    """Return whether the cluster is among them."""
    return cluster.is_running or clusters_watched().filter(pk=cluster.pk).exists()


def cluster_get(tenant: Tenant, slug: str) -> Cluster:
    """Return one cluster of the tenant; raises NotFound."""
    cluster = cluster_list(tenant).filter(slug=slug).first()
    if cluster is None:
        raise NotFound(say("There is no such cluster."))
    return cluster


def credential_list(cluster: Cluster) -> QuerySet[Credential]:
    """Return the cluster's credentials without the control plane's own. `known_to_former_members` of each has the addresses of
    people who made it or saw its secret, and are no members any more.
    """
    members = Membership.objects.filter(tenant=cluster.tenant_id).values("user")
    former = Q(knowers__isnull=False) & ~Q(knowers__user__in=members)
    found = cluster.credentials.filter(is_control=False).select_related("cluster__tenant", "replaced_by")
    return found.annotate(
        known_to_former_members=ArrayAgg(
            "knowers__user__email", filter=former, order_by="knowers__user__email", default=Value([])
        )
    )


def credential_get(cluster: Cluster, access_key: str) -> Credential:
    """Return one credential; raises NotFound. The control plane's own looks absent."""
    credential = credential_list(cluster).filter(access_key=access_key).first()
    if credential is None:
        raise NotFound(say("There is no such credential."))
    return credential


def operation_list(tenant: Tenant, cluster: Cluster | None = None) -> QuerySet[Operation]:
    """Return the tenant's operations with their steps, those of one cluster when given."""
    operations = Operation.objects.filter(tenant=tenant).select_related("tenant", "cluster")
    if cluster is not None:
        operations = operations.filter(cluster=cluster)
    return operations.prefetch_related("steps")


def operation_get(actor: Actor, operation_id: uuid.UUID) -> Operation:
    """Return an operation of any tenant that the actor belongs to; raises NotFound, FactorNeeded as `entry_require`."""
    operation = (
        Operation.objects.filter(pk=operation_id)
        .select_related("tenant", "cluster__tenant")
        .prefetch_related("steps")
        .first()
    )
    if operation is None or not actor_roles(actor, operation.tenant):
        raise NotFound(say("There is no such operation."))
    entry_require(actor, operation.tenant)
    actor_require(actor, "operation.view", operation.tenant)
    return operation


def operation_by_id(operation_id: uuid.UUID) -> Operation:
    """Return any tenant's operation; raises NotFound. For operators only."""
    operations = Operation.objects.select_related("tenant", "cluster__tenant").prefetch_related("steps")
    operation = operations.filter(pk=operation_id).first()
    if operation is None:
        raise NotFound(say("There is no such operation."))
    return operation


def operation_latest(cluster: Cluster) -> Operation | None:
    """Return the cluster's newest operation, changes of who leads left out: they have timelines, and change no cluster."""
    operations = operation_list(cluster.tenant, cluster).exclude(type__in=LEADERSHIP)
    return operations.order_by("-created_at").first()


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as people see it."""

    name: str
    title: str
    state: str
    attempts: int
    message: str
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class OperationView:
    """An operation's progress: `progress_percent` counts completed steps."""

    steps: list[StepView]
    progress_percent: int


def operation_view(operation: Operation) -> OperationView:
    """Return the steps with their titles, and how far the operation is."""
    rows: list[OperationStep] = sorted(operation.steps.all(), key=lambda step: step.position)
    waits = waiting_words(operation) if operation.waits and operation.state == OperationState.IN_PROGRESS else ""
    steps = [
        StepView(
            name=step.name,
            title=step_title(operation, step.name),
            state=step.state,
            attempts=step.attempts,
            message=waits if waits and step.position == 0 else step.message,
            started_at=step.started_at,
            finished_at=step.finished_at,
        )
        for step in rows
    ]
    done = sum(step.state == StepState.COMPLETED for step in rows)
    return OperationView(steps, 100 * done // len(rows) if rows else 100)


# Six samples were missed: the workers are away, and no one knows.
HEALTH_STALE_AFTER = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The cluster's health as of the last sample.

    `sentences` say what is wrong or not known, one per daemon; empty when all is well. `sampled_at` is the oldest sample, None
    before the first: then, and when it is older than a minute, `status` is `unknown`, never `healthy`.
    """

    status: str
    sentences: list[str]
    since: datetime | None
    sampled_at: datetime | None


def cluster_health(cluster: Cluster) -> ClusterHealth:
    """Return the worst health of the cluster's daemons."""
    processes: list[NameServer | Replica] = [
        *cluster.name_servers.all(),
        *(replica for group in cluster.broker_groups.all() for replica in group.replicas.all()),
    ]
    if not cluster.is_running or not processes:
        return ClusterHealth(Health.UNKNOWN, [], None, None)
    samples = [process.sampled_at for process in processes]
    sampled_at = None if None in samples else min(time for time in samples if time is not None)
    if sampled_at is not None and timezone.now() - sampled_at > HEALTH_STALE_AFTER:
        return ClusterHealth(
            Health.UNKNOWN, [say("There is no recent data about this cluster.")], sampled_at, sampled_at
        )
    down = [process for process in processes if process.health == Health.DOWN]
    if down:
        since = min((process.health_since for process in down if process.health_since is not None), default=None)
        return ClusterHealth(Health.DOWN, [process.health_message for process in down], since, sampled_at)
    if unknown := [process for process in processes if process.health == Health.UNKNOWN]:
        said = [process.health_message for process in unknown if process.health_message]
        return ClusterHealth(Health.UNKNOWN, said, None, sampled_at)
    # Where the platform was away, too, no sample saw the restart.
    moments = [moment for process in processes for moment in (process.health_since, process.process_started_at)]
    since = max((moment for moment in moments if moment is not None), default=None)
    return ClusterHealth(Health.HEALTHY, [], since, sampled_at)
