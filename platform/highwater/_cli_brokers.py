"""Verbs about brokers and name servers, with mqadmin's names and letters."""

from __future__ import annotations

from typing import Annotated

import typer

from highwater._cli_session import Session, verb
from highwater._sync_admin import Admin
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError

app = typer.Typer()

BrokerName = Annotated[str, typer.Option("-b", "--broker-name", help="The broker group's name.")]
Namespace = Annotated[str, typer.Option("-s", "--namespace")]
Key = Annotated[str, typer.Option("-k", "--key")]


@verb(app, "clusterList")
def cluster_list(
    session: Session,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster-name", help="Only this cluster.")] = None,
) -> None:
    """List clusters, broker groups and replicas, and what each is doing."""
    rows: list[list[object]] = []
    with session.admin() as admin:
        info = admin.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            raise NoRouteError(f"no cluster {cluster!r} is registered")
        for name in info.cluster_addr_table if cluster is None else [cluster]:
            for broker in info.brokers(name):
                for broker_id, address in broker.broker_addrs.items():
                    rows.append([name, broker.broker_name, broker_id, address, *_activity(admin, address)])
    columns = ["cluster", "broker", "id", "address", "version", "in_tps", "out_tps"]
    session.table(columns, rows)


def _activity(admin: Admin, address: str) -> tuple[str | None, str | None, str | None]:
    """Version and rates; unknown for a replica that does not answer, which must not hide the others."""
    try:
        info = admin.broker_runtime_info(address)
    except HighwaterError:
        return None, None, None

    def rate(*names: str) -> str | None:
        # Three averages, the newest first.
        text = next((info[name] for name in names if info.get(name)), "").split()
        return f"{float(text[0]):.2f}" if text else None

    return info.get("brokerVersionDesc"), rate("putTps"), rate("getTransferredTps", "getTransferedTps")


def _addresses(admin: Admin, broker: str | None, cluster: str | None) -> list[str]:
    if (broker is None) == (cluster is None):
        raise ConfigurationError("name either one broker with -b or a cluster with -c")
    if broker is not None:
        return [broker]
    groups = admin.cluster_info().brokers(cluster or "")
    if not groups:
        raise NoRouteError(f"no cluster {cluster!r} is registered")
    return [address for group in groups for address in group.broker_addrs.values()]


BrokerAddress = Annotated[
    str | None, typer.Option("-b", "--broker-addr", help="The broker at this address, host:port.")
]
ClusterName = Annotated[str | None, typer.Option("-c", "--cluster-name", help="Every replica of this cluster.")]


@verb(app, "brokerStatus")
def broker_status(session: Session, broker: BrokerAddress = None, cluster: ClusterName = None) -> None:
    """Show what a broker reports of itself."""
    with session.admin() as admin:
        found = {address: admin.broker_runtime_info(address) for address in _addresses(admin, broker, cluster)}
    _by_address(session, found)


@verb(app, "getBrokerConfig")
def get_broker_config(session: Session, broker: BrokerAddress = None, cluster: ClusterName = None) -> None:
    """Show a broker's configuration, every key in force."""
    with session.admin() as admin:
        found = {address: admin.broker_config(address) for address in _addresses(admin, broker, cluster)}
    _by_address(session, found)


def _by_address(session: Session, found: dict[str, dict[str, str]]) -> None:
    if len(found) == 1:
        session.values(next(iter(found.values())))
        return
    rows = [[address, name, value] for address, values in found.items() for name, value in values.items()]
    session.table(["address", "name", "value"], rows)


@verb(app, "updateBrokerConfig")
def update_broker_config(
    session: Session,
    broker: Annotated[str, typer.Option("-b", "--broker-addr", help="The broker at this address, host:port.")],
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value")],
) -> None:
    """Change one key of a running broker."""
    with session.admin() as admin:
        admin.update_broker_config(broker, {key: value})
    session.done(f"{key}={value} on {broker}", address=broker, key=key, value=value)


@verb(app, "wipeWritePerm")
def wipe_write_perm(session: Session, broker: BrokerName) -> None:
    """Send nothing more to a broker group; reading goes on."""
    with session.admin() as admin:
        count = admin.wipe_write_perm(broker)
    session.done(f"{count} topics of {broker} are no longer written to", broker=broker, topics=count)


@verb(app, "addWritePerm")
def add_write_perm(session: Session, broker: BrokerName) -> None:
    """Send to a broker group again."""
    with session.admin() as admin:
        count = admin.add_write_perm(broker)
    session.done(f"{count} topics of {broker} are written to again", broker=broker, topics=count)


@verb(app, "updateKvConfig")
def update_kv_config(
    session: Session, namespace: Namespace, key: Key, value: Annotated[str, typer.Option("-v", "--value")]
) -> None:
    """Set a value on every name server."""
    with session.admin() as admin:
        admin.put_kv_config(namespace, key, value)
    session.done(f"{namespace}/{key} is set", namespace=namespace, key=key, value=value)


@verb(app, "deleteKvConfig")
def delete_kv_config(session: Session, namespace: Namespace, key: Key) -> None:
    """Forget a value on every name server."""
    with session.admin() as admin:
        admin.delete_kv_config(namespace, key)
    session.done(f"{namespace}/{key} is gone", namespace=namespace, key=key)
