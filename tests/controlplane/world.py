"""The rows that tests of the control plane start from, and a client to ask for them.

Alice owns the tenant `acme`, Bob is her teammate (a member), Charlie is an outsider who owns `globex`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone

from controlplane.accounts.actors import SystemActor
from controlplane.accounts.models import User
from controlplane.alerts.models import Alert, AlertState
from controlplane.clusters.credential_services import credential_rows_create
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    CredentialState,
    NameServer,
    Operation,
    OperationType,
    Replica,
)
from controlplane.clusters.operations import operation_start
from controlplane.consumers.models import DeadLetterReplay, OffsetReset, ReplayState, ReplayTarget, ResetTarget
from controlplane.failover.models import DivergedResend, DrillWindow
from controlplane.tenants.models import Membership, Role, Tenant

SYSTEM = SystemActor("test")


class Json(Client):
    """Django's test client that speaks JSON, with a session or a bearer token."""

    def __init__(self, user: User | None = None, token: str = "", **options: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(headers=headers, **options)
        if user is not None:
            self.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send JSON; `headers` with underscores for hyphens."""
        data = "" if body is None else json.dumps(body)
        return self.generic(
            method,
            path,
            data,
            content_type="application/json",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )


@dataclass
class World:
    """The rows that most tests start from. The cluster runs by its row only: nothing listens on its ports."""

    alice: User
    bob: User
    charlie: User
    acme: Tenant
    globex: Tenant
    cluster: Cluster

    @property
    def people(self) -> dict[str, User | None]:
        return {"owner": self.alice, "teammate": self.bob, "outsider": self.charlie, "anonymous": None}


def make_world() -> World:
    alice, bob, charlie = (User.objects.create_user(f"{name}@example.com") for name in ("alice", "bob", "charlie"))
    acme = Tenant.objects.create(slug="acme", name="Acme")
    globex = Tenant.objects.create(slug="globex", name="Globex")
    Membership.objects.create(tenant=acme, user=alice, role=Role.OWNER)
    Membership.objects.create(tenant=acme, user=bob, role=Role.DEVELOPER)
    Membership.objects.create(tenant=globex, user=charlie, role=Role.OWNER)
    return World(alice, bob, charlie, acme, globex, make_cluster(acme, "orders"))


def make_cluster(tenant: Tenant, slug: str, state: ClusterState = ClusterState.RUNNING) -> Cluster:
    """A cluster's rows. One that runs has ports on which nothing listens, on a host of its own."""
    cluster = Cluster.objects.create(tenant=tenant, slug=slug, name=slug, state=state)
    host = f"127.0.0.{Cluster.objects.count() + 1}"
    running = state == ClusterState.RUNNING
    NameServer.objects.create(cluster=cluster, position=0, host=host, port=2 if running else None)
    group = BrokerGroup.objects.create(cluster=cluster, name="broker-a")
    Replica.objects.create(group=group, host=host, port=3 if running else None)
    credential_rows_create(cluster)
    if running:
        cluster.credentials.update(state=CredentialState.ACTIVE)
    return cluster


def make_operation(
    tenant: Tenant, slug: str, operation_type: OperationType = OperationType.CLUSTER_CREATE
) -> Operation:
    """A cluster that was just asked for, with its operation."""
    cluster = make_cluster(tenant, slug, ClusterState.REQUESTED)
    return operation_start(actor=SYSTEM, cluster=cluster, operation_type=operation_type)


def offset_reset(cluster: Cluster, group: str = "billing", topic: str = "payments") -> OffsetReset:
    """A reset of two queues to their end, both done."""
    queues = [
        {"broker_name": "broker-a", "queue_id": queue, "before": 3, "after": 9, "outcome": "done", "error": ""}
        for queue in (0, 1)
    ]
    return OffsetReset.objects.create(
        cluster=cluster,
        consumer_group=group,
        topic=topic,
        target=ResetTarget.LATEST,
        queues=queues,
        made_by="alice@example.com",
    )


def alert_of(cluster: Cluster, kind: str = "disk_used", **changes: Any) -> Alert:
    """An alert that fires."""
    now = timezone.now()
    values: dict[str, Any] = {
        "kind": kind,
        "subject": "",
        "state": AlertState.FIRING,
        "value": 95,
        "threshold": 85,
        "since": now,
        "known_at": now,
        "fired_at": now,
    }
    return Alert.objects.create(cluster=cluster, **{**values, **changes})


def drill_window(cluster: Cluster, **changes: Any) -> DrillWindow:
    """A drill of broker-a that is ordered for the next two hours."""
    now = datetime.now(UTC)
    values: dict[str, Any] = {
        "group_name": "broker-a",
        "opens_at": now,
        "closes_at": now + timedelta(hours=2),
        "requested_by": "alice@example.com",
        "orderer": User.objects.get(email="alice@example.com"),
    }
    return DrillWindow.objects.create(cluster=cluster, **{**values, **changes})


def diverged_resend(cluster: Cluster, state: ReplayState = ReplayState.RUNNING, **changes: Any) -> DivergedResend:
    """A resend of four messages that replica 0 of broker-a set aside, of which two were sent."""
    values: dict[str, Any] = {
        "group_name": "broker-a",
        "replica_id": 0,
        "file_name": "cut-00000000000000004096",
        "rate_per_second": 10,
        "stop_after_failures": 2,
        "ranges": [{"next": 2048, "end": 4096}],
        "total": 4,
        "sent": 2,
        "made_by": "alice@example.com",
    }
    return DivergedResend.objects.create(cluster=cluster, state=state, **{**values, **changes})


def dead_letter_replay(cluster: Cluster, state: ReplayState = ReplayState.RUNNING, **changes: Any) -> DeadLetterReplay:
    """A replay of ten dead letters of the group billing, of which two were sent."""
    values: dict[str, Any] = {
        "consumer_group": "billing",
        "target": ReplayTarget.RETRY_TOPIC,
        "rate_per_second": 10,
        "stop_after_failures": 2,
        "stop_after_new_dead": 5,
        "dead_at_start": 10,
        "ranges": [{"broker_name": "broker-a", "queue_id": 0, "next": 2, "end": 10}],
        "total": 10,
        "sent": 2,
        "made_by": "alice@example.com",
    }
    return DeadLetterReplay.objects.create(cluster=cluster, state=state, **{**values, **changes})
