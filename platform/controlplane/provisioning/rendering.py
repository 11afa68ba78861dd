"""Renders what daemons read: namesrv.conf and broker.conf in RocketMQ's properties format, plain_acl.yml in
RocketMQ 4's.

Pure functions: values in, text out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from highwater import AclAccount

_MEBIBYTE = 1024 * 1024
# RocketMQ's ConsumeQueue entry is 20 bytes; its default file holds 300,000 of them.
_CONSUME_QUEUE_ENTRY_BYTES = 20


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
class NameServerConfiguration:
    """Values of one namesrv.conf."""

    bind_address: str
    port: int
    acl_path: str


@dataclass(frozen=True, slots=True)
class BrokerConfiguration:
    """Values of one broker.conf. `control` signs the broker's own requests to name servers."""

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
    plan: Plan = Plan()


def render_namesrv_conf(configuration: NameServerConfiguration) -> str:
    """Return the text of namesrv.conf."""
    return render_properties(
        {
            "bindAddress": configuration.bind_address,
            "listenPort": configuration.port,
            "aclEnable": True,
            "aclConfigFile": configuration.acl_path,
        }
    )


def render_broker_conf(configuration: BrokerConfiguration) -> str:
    """Return the text of broker.conf."""
    plan = configuration.plan
    return render_properties(
        {
            "brokerClusterName": configuration.cluster_name,
            "brokerName": configuration.broker_name,
            "brokerId": configuration.broker_id,
            "brokerRole": configuration.broker_role,
            "flushDiskType": configuration.flush_disk_type,
            "namesrvAddr": ";".join(configuration.name_server_addresses),
            "brokerIP1": configuration.host,
            "bindAddress": configuration.bind_address,
            "listenPort": configuration.port,
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
            **_replication(configuration),
            "aclEnable": True,
            "aclConfigFile": configuration.acl_path,
            "innerClientAuthenticationCredentials": json.dumps(
                {"accessKey": configuration.control.access_key, "secretKey": configuration.control.secret_key},
                separators=(",", ":"),
            ),
        }
    )


def _replication(configuration: BrokerConfiguration) -> dict[str, str | int | bool]:
    """Keys of a group with slaves. haListenPort is left out: pulls use the ordinary listener."""
    if configuration.total_replicas == 1:
        return {}
    return {
        "totalReplicas": configuration.total_replicas,
        "inSyncReplicas": configuration.in_sync_replicas,
        "slaveReadEnable": True,
    }


def render_plain_acl(accounts: Sequence[AclAccount]) -> str:
    """Return the text of plain_acl.yml. No address is trusted by itself: every request must be signed."""
    document = {
        "globalWhiteRemoteAddresses": [],
        "accounts": [_account(account) for account in accounts],
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
