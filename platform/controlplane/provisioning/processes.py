"""From a cluster's rows to the daemons that are to run: names, files and command lines."""

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings

from controlplane.clusters.broker_keys import properties_of
from controlplane.clusters.configuration import wanted_values
from controlplane.clusters.credential_quotas import quota_members
from controlplane.clusters.credential_services import acl_account, credentials_in_force
from controlplane.clusters.limits import broker_quota_keys
from controlplane.clusters.models import (
    Cluster,
    ClusterMode,
    NameServer,
    Replica,
    in_sync_replicas_of,
)
from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import PROCESS_PREFIX, DaemonProcess, Driver
from controlplane.provisioning.isolation import cluster_user
from controlplane.provisioning.ports import leader_ports
from controlplane.provisioning.rendering import (
    METERING_INTERVAL_MS,
    BrokerConfiguration,
    ElectedGroup,
    NameServerConfiguration,
    TlsPaths,
    dleger_peers,
    render_broker_conf,
    render_namesrv_conf,
    render_plain_acl,
)
from highwater import AclAccount

# Of each daemon, in its folder.
CERT_FILE, KEY_FILE, CA_FILE = "tls.pem", "tls.key", "ca.pem"
ACCOUNTS_FILE = "plain_acl.yml"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon with the row that it serves. `files` are what it reads, by path relative to the cluster's directory."""

    row: NameServer | Replica
    process: DaemonProcess
    files: dict[str, str]
    data_dir: str


def name_server_process_name(cluster: Cluster, server: NameServer) -> str:
    """Return the process's name at the driver; unique over all clusters."""
    return f"{PROCESS_PREFIX}{cluster.id.hex[:12]}-namesrv-{server.position}"


def replica_process_name(cluster: Cluster, replica: Replica) -> str:
    """Return the process's name at the driver; unique over all clusters."""
    return f"{PROCESS_PREFIX}{cluster.id.hex[:12]}-{replica.group.name}-{replica.broker_id}"


def broker_noun(replica: Replica) -> str:
    """Return what a sentence calls the broker; its replica id only where there are several."""
    name = replica.group.name
    if replica.group.cluster.is_replicated:
        return say("The broker %(name)s (replica %(replica)s)", name=name, replica=replica.broker_id)
    return say("The broker %(name)s", name=name)


def cluster_name_servers(cluster: Cluster) -> list[NameServer]:
    """Return the name servers as the database has them now."""
    return list(NameServer.objects.filter(cluster=cluster))


def cluster_replicas(cluster: Cluster) -> list[Replica]:
    """Return the replicas of all groups as the database has them now, by group and replica id."""
    return list(
        Replica.objects.filter(group__cluster=cluster)
        .select_related("group__cluster")
        .order_by("group__name", "broker_id")
    )


def placed_replicas(cluster: Cluster, group_name: str | None = None) -> list[Replica]:
    """Return the replicas that have a port, of one group or of all. Others have never run: their start waits, or has failed."""
    replicas = [replica for replica in cluster_replicas(cluster) if replica.port is not None]
    return [replica for replica in replicas if group_name in (None, replica.group.name)]


def cluster_process_names(cluster: Cluster) -> list[str]:
    """Return the names of all the cluster's processes, in the order in which they are to be stopped: brokers first."""
    return [
        *(replica_process_name(cluster, replica) for replica in cluster_replicas(cluster)),
        *(name_server_process_name(cluster, server) for server in cluster_name_servers(cluster)),
    ]


def process_names_of(clusters: Iterable[Cluster]) -> set[str]:
    """Return the names of all processes of many clusters."""
    ids = {cluster.pk: cluster for cluster in clusters}
    replicas = Replica.objects.filter(group__cluster__in=ids).select_related("group")
    servers = NameServer.objects.filter(cluster__in=ids)
    return {
        *(replica_process_name(ids[replica.group.cluster_id], replica) for replica in replicas),
        *(name_server_process_name(ids[server.cluster_id], server) for server in servers),
    }


def name_server_daemons(cluster: Cluster, driver: Driver) -> list[Daemon]:
    """Return the name servers as they are to run. Ports must have been allocated."""
    control = acl_account(cluster.credentials.get(is_control=True))
    accounts, user = _accounts(cluster, control), cluster_user(cluster)
    daemons = []
    for server in cluster_name_servers(cluster):
        folder = f"namesrv-{server.position}"
        path = driver.cluster_dir(cluster.id) / folder
        text = render_namesrv_conf(
            NameServerConfiguration(
                bind_address=server.host,
                port=_port(server),
                acl_path=str(path / ACCOUNTS_FILE),
                kv_config_path=str(path / "kvConfig.json"),
                tls=_tls_paths(cluster, path),
            )
        )
        daemons.append(
            Daemon(
                row=server,
                process=DaemonProcess(
                    name=name_server_process_name(cluster, server),
                    cluster_id=cluster.id,
                    command=[*_command("namesrvd"), "-c", str(path / "namesrv.conf")],
                    configuration=text,
                    user=user,
                ),
                files={f"{folder}/namesrv.conf": text, **_account_files(folder, accounts)},
                data_dir=str(path),
            )
        )
    return daemons


def replica_daemons(cluster: Cluster, driver: Driver) -> list[Daemon]:
    """Return the brokers as they are to run, without those that have no port: what was to start them waits, or has failed."""
    control = acl_account(cluster.credentials.get(is_control=True))
    accounts = _accounts(cluster, control)
    addresses = [server.address for server in cluster_name_servers(cluster)]
    daemons = []
    replicas = cluster_replicas(cluster)
    sizes = Counter(replica.group_id for replica in replicas if replica.port is not None)
    at_leader_ports = leader_ports(cluster.id)
    user = cluster_user(cluster)
    chosen = properties_of(wanted_values(cluster), replicated=cluster.is_replicated)
    for replica in replicas:
        if replica.port is None:
            continue
        folder = f"{replica.group.name}-{replica.broker_id}"
        path = driver.cluster_dir(cluster.id) / folder
        configuration = BrokerConfiguration(
            cluster_name=cluster.slug,
            broker_name=replica.group.name,
            broker_id=replica.broker_id,
            broker_role=_role_of(replica, cluster.mode),
            flush_disk_type=cluster.flush_disk_type,
            name_server_addresses=addresses,
            host=replica.host,
            bind_address=replica.host,
            port=_port(replica),
            store_path=str(path / "store"),
            acl_path=str(path / ACCOUNTS_FILE),
            control=control,
            total_replicas=sizes[replica.group_id],
            in_sync_replicas=cluster.in_sync_replicas,
            elected=_elected_group(replica, replicas) if cluster.elects_leaders else None,
            leader_port=at_leader_ports.get(replica.group_id),
            metering_interval_ms=settings.HIGHWATER_METERING_INTERVAL_MS,
            tls=_tls_paths(cluster, path),
            quotas=broker_quota_keys(cluster.tenant),
            chosen=chosen,
        )
        text = render_broker_conf(configuration)
        daemons.append(
            Daemon(
                row=replica,
                process=DaemonProcess(
                    name=replica_process_name(cluster, replica),
                    cluster_id=cluster.id,
                    command=[*_command("brokerd"), "-c", str(path / "broker.conf")],
                    configuration=_restarting_configuration(replica, configuration),
                    user=user,
                ),
                files={f"{folder}/broker.conf": text, **_account_files(folder, accounts)},
                data_dir=str(path),
            )
        )
    return daemons


def _restarting_configuration(replica: Replica, configuration: BrokerConfiguration) -> str:
    """Return the part of broker.conf whose change restarts the broker.

    A group that grows or shrinks is not restarted: it reads totalReplicas when it next starts, and dLegerPeers and
    preferredLeaderId are in its log. Only before its foundation do peers count. meteringIntervalMs waits for a start, too, and so
    does leaderListenPort, which a group gets when it grows.
    """
    founded = replica.group.cluster.mode_at_creation
    elects = founded == ClusterMode.DLEDGER
    alone = founded in (ClusterMode.SINGLE, ClusterMode.MULTI)
    lasting = replace(
        configuration,
        # A changed mode is in the log, too.
        broker_role=_role_of(replica, founded),
        in_sync_replicas=in_sync_replicas_of(founded),
        elected=ElectedGroup({}) if elects else None,
        # What has come or gone since is in the epoch files: as sure, and without a restart.
        total_replicas=1 if alone else 2,
        leader_port=None,
        metering_interval_ms=METERING_INTERVAL_MS,
        quotas={},  # changed while it runs
        chosen={},  # changed while it runs, or by a restart of one after another
    )
    return f"{render_broker_conf(lasting)}{replica.group.founding_peers if elects else ''}"


def _role_of(replica: Replica, mode: str) -> str:
    """Its role at a first start in this mode: that decides which replica leads an older log."""
    if mode == ClusterMode.DLEDGER:
        return ""
    if replica.broker_role in ("", "SLAVE"):
        return "SLAVE"
    return "SYNC_MASTER" if mode == ClusterMode.SYNC else "ASYNC_MASTER"


def _elected_group(replica: Replica, replicas: list[Replica]) -> ElectedGroup:
    group = [other for other in replicas if other.group_id == replica.group_id and other.port is not None]
    peers = {other.broker_id: other.address for other in group}
    preferred = replica.group.preferred_leader
    return ElectedGroup(peers, preferred if preferred in peers else None)


def founding_peers(replicas: list[Replica]) -> str:
    """Return dLegerPeers of a group that is founded by these replicas, all of which have ports."""
    return dleger_peers({replica.broker_id: replica.address for replica in replicas})


def cluster_daemons(cluster: Cluster, driver: Driver) -> list[Daemon]:
    """Return all daemons in the order in which they start: name servers first."""
    return [*name_server_daemons(cluster, driver), *replica_daemons(cluster, driver)]


def _accounts(cluster: Cluster, control: AclAccount) -> str:
    """Return the text of the file of accounts."""
    credentials = credentials_in_force(cluster).order_by("created_at")
    quotas = {credential.access_key: quota_members(credential) for credential in credentials}
    return render_plain_acl(control, [acl_account(credential) for credential in credentials], quotas)


def _account_files(folder: str, accounts: str) -> dict[str, str]:
    """Return the accounts and the backup that a daemon falls back to: it must not keep a secret that was deleted."""
    return {f"{folder}/{ACCOUNTS_FILE}": accounts, f"{folder}/{ACCOUNTS_FILE}.bak": accounts}


def _tls_paths(cluster: Cluster, folder: Path) -> TlsPaths | None:
    if not cluster.tls_ca:
        return None
    return TlsPaths(str(folder / CERT_FILE), str(folder / KEY_FILE), str(folder / CA_FILE))


def _command(daemon: str) -> list[str]:
    return [*(settings.HIGHWATER_DAEMON_COMMANDS.get(daemon) or (sys.executable, "-m", daemon))]


def _port(row: NameServer | Replica) -> int:
    if row.port is None:
        raise ValueError(f"{row} has no port yet")
    return row.port
