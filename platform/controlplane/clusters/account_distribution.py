"""How accounts get from the rows to a cluster's daemons: what credential services ask for, and provisioning does.

Provisioning knows the machines where the daemons' files are, and is a layer above: it registers itself at its start.
"""

from collections.abc import Callable
from dataclasses import dataclass

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_place


@dataclass(frozen=True, slots=True)
class Distribution:
    """Where the accounts of the rows are in force now: how many daemons confirmed it, and the names of those that did not
    though they run. A daemon that does not run has the file for its next start.
    """

    confirmed: int
    missing: tuple[str, ...]


Distribute = Callable[[Cluster], Distribution]

_registered: list[Distribute] = []


def distribution_register(distribute: Distribute) -> None:
    """Have `distribute` bring accounts to daemons from now on."""
    _registered[:] = [distribute]


def accounts_distribute(cluster: Cluster) -> Distribution:
    """Bring the cluster's accounts, as the rows have them, to all its daemons.

    Raises BrokerUnreachable when nothing could be written, or when too many requests wait for clusters.
    """
    with cluster_place(cluster):
        return _registered[0](cluster)
