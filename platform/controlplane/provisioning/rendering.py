"""Renders what daemons read: namesrv.conf and broker.conf in RocketMQ's properties format, plain_acl.yml in
RocketMQ 4's.

Pure functions: values in, text out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import yaml

from highwater import AclAccount

_MEBIBYTE = 1024 * 1024
# RocketMQ's ConsumeQueue entry is 20 bytes; its default file holds 300,000 of them.
_CONSUME_QUEUE_ENTRY_BYTES = 20


METERING_INTERVAL_MS = 60_000  # brokers' own default, which is not written


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of a cluster. Files are created whole, so that a small cluster should have small ones."""

    commit_log_file_bytes: int = 64 * _MEBIBYTE
    consume_queue_file_entries: int = 30_000
    index_file_slots: int = 500_000
    index_file_entries: int = 2_000_000
    file_reserved_hours: int = 72
    message_max_bytes: int = 4 * _MEBIBYTE


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """The PEM files of one daemon: its certificate and key, and the cluster's CA."""

    cert_path: str
    key_path: str
    ca_path: str


@dataclass(frozen=True, slots=True)
class NameServerConfiguration:
    """Values of one namesrv.conf. Without `tls` the port speaks plain text only."""

    bind_address: str
    port: int
    acl_path: str
    kv_config_path: str
    tls: TlsPaths | None = None


@dataclass(frozen=True, slots=True)
class ElectedGroup:
    """What a replica of a group that elects its leader reads of it: RocketMQ's DLedger keys.

    `peers` is replica id -> host:port of those that are to count; the log's own record of them wins once there is one.
    """

    peers: Mapping[int, str]
    preferred_leader: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerConfiguration:
    """Values of one broker.conf. `control` signs the broker's own requests to name servers. With `elected`, no
    leader is assigned, and broker_role is not written.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_role: str
    flush_disk_type: str
    name_server_addresses: Sequence[str]
    host: str
    bind_address: str
    port: int
    store_path: str
    acl_path: str
    control: AclAccount
    total_replicas: int = 1
    in_sync_replicas: int = 1
    elected: ElectedGroup | None = None
    leader_port: int | None = None
    plan: Plan = Plan()
    metering_interval_ms: int = METERING_INTERVAL_MS
    tls: TlsPaths | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    # What the tenant set: it comes instead of what is written otherwise.
    chosen: Mapping[str, str] = field(default_factory=dict)


def render_namesrv_conf(configuration: NameServerConfiguration) -> str:
    """Return the text of namesrv.conf."""
    return render_properties(
        {
            "bindAddress": configuration.bind_address,
            "listenPort": configuration.port,
            "aclEnable": True,
            "aclConfigFile": configuration.acl_path,
            # Its default is in the home of whom it runs as: one file for all clusters, or a folder that it may not enter.
            "kvConfigPath": configuration.kv_config_path,
            **_tls(configuration.tls),
        }
    )


def _own_tls(paths: TlsPaths | None) -> dict[str, str | int | bool]:
    """A broker's own connections, to name servers and to other replicas: over TLS, with its certificate, to this cluster only."""
    if paths is None:
        return {}
    return {
        "tls.enable": True,
        "tls.client.certPath": paths.cert_path,
        "tls.client.keyPath": paths.key_path,
        "tls.client.trustCertPath": paths.ca_path,
    }


def _tls(paths: TlsPaths | None) -> dict[str, str | int | bool]:
    """Plain text and TLS share each port; a client's certificate, where it shows one, must be of this cluster's CA."""
    if paths is None:
        return {}
    return {
        "tls.server.mode": "permissive",
        "tls.server.certPath": paths.cert_path,
        "tls.server.keyPath": paths.key_path,
        "tls.server.trustCertPath": paths.ca_path,
        "tls.server.need.client.auth": "optional",
    }


def render_broker_conf(configuration: BrokerConfiguration) -> str:
    """Return the text of broker.conf."""
    plan = configuration.plan
    return render_properties(
        {
            "brokerClusterName": configuration.cluster_name,
            "brokerName": configuration.broker_name,
            **_role(configuration),
            "flushDiskType": configuration.flush_disk_type,
            "namesrvAddr": ";".join(configuration.name_server_addresses),
            "brokerIP1": configuration.host,
            "bindAddress": configuration.bind_address,
            "listenPort": configuration.port,
            **({} if configuration.leader_port is None else {"leaderListenPort": configuration.leader_port}),
            "storePathRootDir": configuration.store_path,
            "storePathCommitLog": f"{configuration.store_path}/commitlog",
            "mappedFileSizeCommitLog": plan.commit_log_file_bytes,
            "mappedFileSizeConsumeQueue": plan.consume_queue_file_entries * _CONSUME_QUEUE_ENTRY_BYTES,
            "maxHashSlotNum": plan.index_file_slots,
            "maxIndexNum": plan.index_file_entries,
            "maxMessageSize": plan.message_max_bytes,
            "deleteWhen": "04",
            "fileReservedTime": plan.file_reserved_hours,
            # Topics are made in the console or by the API, where they are counted and listed.
            "autoCreateTopicEnable": False,
            "autoCreateSubscriptionGroup": True,
            # Where clients with tracing on write what became of their messages.
            "traceTopicEnable": True,
            **_replication(configuration),
            **_metering(configuration),
            **configuration.quotas,
            **_tls(configuration.tls),
            **_own_tls(configuration.tls),
            "aclEnable": True,
            "aclConfigFile": configuration.acl_path,
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": configuration.control.access_key, "secretKey": configuration.control.secret_key},
                separators=(",", ":"),
            ),
            **configuration.chosen,
        }
    )


def _role(configuration: BrokerConfiguration) -> dict[str, str | int | bool]:
    if configuration.elected is not None:  # the id is dLegerSelfId's
        return {}
    return {"brokerId": configuration.broker_id, "brokerRole": configuration.broker_role}


def dleger_peers(peers: Mapping[int, str]) -> str:
    """Return RocketMQ's dLegerPeers: `n0-host:port;n1-host:port`, by replica id."""
    return ";".join(f"n{replica_id}-{address}" for replica_id, address in sorted(peers.items()))


def _replication(configuration: BrokerConfiguration) -> dict[str, str | int | bool]:
    """Keys of a group with slaves. haListenPort is left out: pulls and votes use the ordinary listener."""
    elected = configuration.elected
    if elected is not None:
        preferred = elected.preferred_leader
        return {
            "enableDLegerCommitLog": True,
            "dLegerGroup": configuration.broker_name,
            "dLegerPeers": dleger_peers(elected.peers),
            "dLegerSelfId": f"n{configuration.broker_id}",
            **({} if preferred is None else {"preferredLeaderId": f"n{preferred}"}),
            "slaveReadEnable": True,
        }
    if configuration.total_replicas == 1:
        return {}
    return {
        "totalReplicas": configuration.total_replicas,
        "inSyncReplicas": configuration.in_sync_replicas,
        "slaveReadEnable": True,
    }


def _metering(configuration: BrokerConfiguration) -> dict[str, str | int | bool]:
    interval_ms = configuration.metering_interval_ms
    return {} if interval_ms == METERING_INTERVAL_MS else {"meteringIntervalMs": interval_ms}


def render_plain_acl(
    control: AclAccount, accounts: Sequence[AclAccount], quotas: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> str:
    """Return the text of plain_acl.yml: the infrastructure's account, and the tenant's. No address is trusted by itself:
    every request must be signed. `quotas` are accounts' own, by access key and by the member that says so.
    """
    document = {
        "globalWhiteRemoteAddresses": [],
        "accounts": [
            {**_account(control), "infrastructure": True},
            *({**_account(account), **quotas.get(account.access_key, {})} for account in accounts),
        ],
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def render_properties(values: Mapping[str, str | int | bool]) -> str:
    """Return lines of Java's properties format, escaped as java.util.Properties.load reads them."""
    return "".join(f"{key}={_property_value(value)}\n" for key, value in values.items())


def _property_value(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    if any(character in text for character in "\r\n"):
        raise ValueError("a property can't hold a line break")
    escaped = text.replace("\\", "\\\\")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t") else escaped


def _account(account: AclAccount) -> dict[str, object]:
    entry: dict[str, object] = {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": None,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
    }
    if account.topic_perms:
        entry["topicPerms"] = [f"{topic}={perm}" for topic, perm in sorted(account.topic_perms.items())]
    if account.group_perms:
        entry["groupPerms"] = [f"{group}={perm}" for group, perm in sorted(account.group_perms.items())]
    return entry
