"""The addresses that the control plane connects to for a cluster: those of its rows, whatever a name server or a message's id says.

Leader ports are leased by provisioning, a layer above: it registers itself at its start.
"""

import uuid
from collections.abc import Callable

from controlplane.clusters.models import Cluster, Replica

LeaderAddresses = Callable[[uuid.UUID], frozenset[str]]

_registered: list[LeaderAddresses] = []


def leader_addresses_register(leader_addresses: LeaderAddresses) -> None:
    """Have `leader_addresses` asked for `host:port` of a cluster's leader ports from now on."""
    _registered[:] = [leader_addresses]


def broker_addresses(cluster: Cluster) -> frozenset[str]:
    """Return `host:port` of each replica and each leader port of the cluster."""
    replicas = Replica.objects.filter(group__cluster=cluster, port__isnull=False)
    return frozenset(replica.address for replica in replicas) | _registered[0](cluster.pk)
