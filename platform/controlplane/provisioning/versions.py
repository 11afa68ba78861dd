"""Which version each daemon of a cluster runs, and which one a restart would run."""

from dataclasses import dataclass

from controlplane.clusters.models import Cluster
from controlplane.clusters.replica_remoting import daemon_versions
from controlplane.common.sentences import say
from controlplane.provisioning.processes import cluster_name_servers, placed_replicas
from mqwire.version import program_version

_PROGRAMS = {"name_server": "namesrvd", "broker": "brokerd"}


@dataclass(frozen=True, slots=True)
class DaemonVersion:
    """One daemon. `running` is None when it does not answer, and empty when it is too old to say."""

    name: str
    kind: str
    address: str
    running: str | None
    installed: str

    @property
    def is_outdated(self) -> bool | None:
        """Whether a restart would run another version; None when it is not known what runs."""
        return None if self.running is None else self.running != self.installed


def installed_version(kind: str) -> str:
    """Return the version that a restarted daemon would run: `name_server` or `broker`."""
    return program_version(_PROGRAMS[kind])


def versions_reported(cluster: Cluster) -> dict[str, str | None]:
    """Ask each daemon of the cluster, by its address; takes 1.5 s at most."""
    return daemon_versions(
        cluster,
        [replica.address for replica in placed_replicas(cluster)],
        [server.address for server in cluster_name_servers(cluster) if server.port is not None],
    )


def cluster_versions(cluster: Cluster) -> list[DaemonVersion]:
    """Return what each daemon runs, name servers first; takes 1.5 s at most."""
    reported = versions_reported(cluster) if cluster.is_running else {}
    servers = [
        (say("name server %(number)s", number=server.position + 1), "name_server", server.address)
        for server in cluster_name_servers(cluster)
        if server.port is not None
    ]
    brokers = [
        (f"{replica.group.name} #{replica.broker_id}", "broker", replica.address)
        for replica in placed_replicas(cluster)
    ]
    installed = {kind: installed_version(kind) for kind in _PROGRAMS}
    return [
        DaemonVersion(name, kind, address, reported.get(address), installed[kind])
        for name, kind, address in [*servers, *brokers]
    ]
