"""The rows of the console's tests, as plain functions: see `World`."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.test import Client
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.clusters.credential_services import credential_rows_create
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    CredentialState,
    Health,
    NameServer,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.workflows import WORKFLOWS
from controlplane.common.schema import EXAMPLES
from controlplane.tenants.models import Membership, Role, Tenant
from controlplane.topics.models import Topic, TopicSchema, TopicState

PASSWORD = "a-long-enough-password"
SCREENSHOTS = Path(settings.ROOT_DIR) / ".local" / "screenshots"


@dataclass
class World:
    """Alice owns a tenant, Bob is her teammate, Victor may only look, Charlie is an outsider.

    Their cluster has rows but no daemons: pages must be whole without a cluster that answers.
    """

    alice: User
    bob: User
    victor: User
    charlie: User
    tenant: Tenant
    foreign_tenant: Tenant
    cluster: Cluster

    def client(self, user: User | None) -> Client:
        """A test client that is logged in as the user, or as no one."""
        client = Client()
        if user is not None:
            client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        return client

    def path(self, rest: str = "") -> str:
        """An address of the tenant."""
        return f"/t/{self.tenant.slug}/{rest}"

    def cluster_path(self, rest: str = "") -> str:
        """An address of the cluster."""
        return self.path(f"clusters/{self.cluster.slug}/{rest}")


def make_user(name: str) -> User:
    return User.objects.create_user(f"{name}@example.com", PASSWORD)


def make_world() -> World:
    alice, bob, victor, charlie = (make_user(name) for name in ("alice", "bob", "victor", "charlie"))
    tenant = Tenant.objects.create(slug="acme", name="Acme Trading")
    foreign_tenant = Tenant.objects.create(slug="globex", name="Globex")
    for user, role in ((alice, Role.OWNER), (bob, Role.DEVELOPER), (victor, Role.VIEWER)):
        Membership.objects.create(tenant=tenant, user=user, role=role)
    Membership.objects.create(tenant=foreign_tenant, user=charlie, role=Role.OWNER)
    return World(alice, bob, victor, charlie, tenant, foreign_tenant, make_cluster(tenant, "orders"))


def make_cluster(tenant: Tenant, slug: str, state: ClusterState = ClusterState.RUNNING) -> Cluster:
    """A cluster's rows as provisioning leaves them; its ports lead nowhere."""
    cluster = Cluster.objects.create(tenant=tenant, slug=slug, name=slug, state=state)
    now = timezone.now()
    sample = {
        "health": Health.HEALTHY,
        "health_since": now - timedelta(hours=3),
        "sampled_at": now,
        "process_state": "RUNNING",
        "process_started_at": now - timedelta(hours=3),
    }
    running = sample if state == ClusterState.RUNNING else {}
    # Each cluster of a test gets its own host: a port may be given out once per host. Nothing listens on any of them.
    host = f"127.0.0.{Cluster.objects.count() + 1}"
    NameServer.objects.create(cluster=cluster, position=0, host=host, port=2, **running)
    group = BrokerGroup.objects.create(cluster=cluster, name="broker-a")
    Replica.objects.create(group=group, host=host, port=3, **running)
    credential_rows_create(cluster)
    if state == ClusterState.RUNNING:
        cluster.credentials.update(state=CredentialState.ACTIVE)
    return cluster


def make_operation(cluster: Cluster, state: OperationState, done: int) -> Operation:
    """An operation that created the cluster, with its first `done` steps completed."""
    error = {"cause": "Port 20017 is in use by another program.", "hint": "Stop that program, then retry.", "step": ""}
    now = timezone.now()
    operation = Operation.objects.create(
        tenant=cluster.tenant,
        cluster=cluster,
        type=OperationType.CLUSTER_CREATE,
        state=state,
        resource=cluster.path,
        requested_by="alice@example.com",
        error=error if state == OperationState.FAILED else None,
        finished_at=None if state == OperationState.IN_PROGRESS else now,
    )
    current = StepState.FAILED if state == OperationState.FAILED else StepState.RUNNING
    for position, definition in enumerate(WORKFLOWS[OperationType.CLUSTER_CREATE]):
        step_state = StepState.COMPLETED if position < done else current if position == done else StepState.PENDING
        OperationStep.objects.create(
            operation=operation,
            position=position,
            name=definition.name,
            state=step_state,
            started_at=None if step_state == StepState.PENDING else now - timedelta(seconds=2),
            finished_at=now if step_state in (StepState.COMPLETED, StepState.FAILED) else None,
            message=error["cause"] if step_state == StepState.FAILED else "",
        )
    return operation


def make_topic(cluster: Cluster, name: str, state: TopicState = TopicState.ACTIVE) -> Topic:
    return Topic.objects.create(cluster=cluster, name=name, state=state, description=f"What {name} are for")


def make_schema(topic: Topic) -> TopicSchema:
    """The schema of the API's example: `message Order { string id = 1; int64 cents = 2; }` of the package `shop`."""
    example = EXAMPLES["TopicSchemaSetRequest"]
    return TopicSchema.objects.create(
        topic=topic,
        descriptor_set=base64.b64decode(example["descriptor_set"]),
        message=example["message"],
        made_by="alice@example.com",
    )
