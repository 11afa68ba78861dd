"""Rows of a replicated cluster that runs, by its rows only."""

from __future__ import annotations

from controlplane.clusters.models import Cluster, ClusterState, CredentialState, NameServer, Replica
from controlplane.clusters.services import cluster_create
from controlplane.tenants.models import Tenant
from tests.controlplane.world import SYSTEM


def make_replicated(tenant: Tenant, slug: str, mode: str, replicas: int = 2, policy: str = "manual") -> Cluster:
    """A cluster of one group, as provisioning leaves it; nothing listens on its ports."""
    cluster, operation = cluster_create(
        actor=SYSTEM, tenant=tenant, slug=slug, mode=mode, replicas=replicas, failover_policy=policy
    )
    operation.steps.update(state="completed")
    type(operation).objects.filter(pk=operation.pk).update(state="completed")
    host = f"127.0.1.{Cluster.objects.count()}"
    for position, server in enumerate(NameServer.objects.filter(cluster=cluster)):
        NameServer.objects.filter(pk=server.pk).update(host=host, port=2 + position)
    for replica in Replica.objects.filter(group__cluster=cluster):
        Replica.objects.filter(pk=replica.pk).update(host=host, port=10 + replica.broker_id)
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.RUNNING)
    cluster.credentials.update(state=CredentialState.ACTIVE)
    return Cluster.objects.select_related("tenant").get(pk=cluster.pk)
