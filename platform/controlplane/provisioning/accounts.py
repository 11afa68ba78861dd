"""Brings a cluster's accounts from the rows to every daemon, and sees that they count there.

The rows are the truth. Each daemon reads plain_acl.yml again before it answers which version is in force, so that an
answer with the written file's version proves that a deleted key is refused and a new one let in from then on.
"""

from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import credentials_end
from controlplane.clusters.models import Cluster, Credential, CredentialState
from controlplane.clusters.replica_remoting import accounts_versions
from controlplane.common.errors import BrokerUnreachable
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.provisioning.daemon_files import daemons_locked
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.drivers.base import Driver, ProcessState, ProcessStatus
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.processes import ACCOUNTS_FILE, Daemon, cluster_daemons
from mqwire.acl import accounts_version

_log = get_logger("controlplane.accounts")

# These run no program that could let a client in; they read the file when they start.
_AT_REST = (ProcessState.STOPPED, ProcessState.EXITED, ProcessState.FATAL, ProcessState.MISSING)
_TRIES = 2  # another worker may have written a newer file in between


def accounts_distribute(cluster: Cluster, driver: Driver | None = None) -> Distribution:
    """Write every daemon's accounts, and ask each that runs whether they are in force.

    Raises BrokerUnreachable when the driver does not answer: then nothing has been written.
    """
    chosen = driver or get_driver()
    try:
        statuses = chosen.process_statuses([daemon.process.name for daemon in cluster_daemons(cluster, chosen)])
        for _ in range(_TRIES):
            daemons = _write(cluster, chosen)
            missing = _unconfirmed(cluster, daemons, statuses)
            if not missing:
                break
    except DriverError as error:
        raise BrokerUnreachable(
            say("The machine of the cluster does not answer: %(error)s", error=str(error)),
            hint=say("Look at the cluster's health, and try again."),
        ) from error
    running = [daemon for daemon in daemons if _may_serve(daemon, statuses)]
    return Distribution(len(running) - len(missing), tuple(str(daemon.row) for daemon in missing))


def accounts_reconcile(
    cluster: Cluster, daemons: list[Daemon], statuses: dict[str, ProcessStatus], driver: Driver
) -> None:
    """Bring accounts that differ from the rows back in line, end keys whose time is over, and finish deletions that a daemon had
    missed.
    """
    if not credentials_end(cluster) and not _unconfirmed(cluster, daemons, statuses):
        _deletions_finish(cluster)
        return
    distribution = accounts_distribute(cluster, driver)
    if distribution.missing:
        _log.warning("accounts not confirmed", cluster=str(cluster), daemons=", ".join(distribution.missing))
    else:
        _deletions_finish(cluster)


def _write(cluster: Cluster, driver: Driver) -> list[Daemon]:
    with daemons_locked(cluster, driver) as daemons:
        for daemon in daemons:
            driver.files_write(cluster.pk, _account_files(daemon))
    return daemons


def _account_files(daemon: Daemon) -> dict[str, str]:
    """The accounts and their backup, which hold the same."""
    return {path: text for path, text in daemon.files.items() if f"/{ACCOUNTS_FILE}" in path}


def _may_serve(daemon: Daemon, statuses: dict[str, ProcessStatus]) -> bool:
    status = statuses.get(daemon.process.name)
    return status is None or status.state not in _AT_REST


def _unconfirmed(cluster: Cluster, daemons: list[Daemon], statuses: dict[str, ProcessStatus]) -> list[Daemon]:
    asked = [daemon for daemon in daemons if _may_serve(daemon, statuses)]
    versions = accounts_versions(cluster, [daemon.row.address for daemon in asked])
    return [
        daemon
        for daemon in asked
        if versions[daemon.row.address] != accounts_version(next(iter(_account_files(daemon).values())).encode())
    ]


def _deletions_finish(cluster: Cluster) -> None:
    Credential.objects.filter(cluster=cluster, state=CredentialState.DELETING).delete()
