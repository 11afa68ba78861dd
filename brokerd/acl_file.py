"""plain_acl.yml: RocketMQ 4's file of accounts.

    globalWhiteRemoteAddresses: []
    accounts:
      - accessKey: orders-app
        secretKey: at-least-seven-characters
        whiteRemoteAddress:
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: [orders=PUB|SUB, audit=PUB]
        groupPerms: [billing=SUB]
        quotaMessagesPerSecond: 500
      - accessKey: control-plane
        secretKey: at-least-seven-characters
        infrastructure: true

`infrastructure` is ours: the account of the control plane and the replicas. Where there is one, `admin: true` means
topics, groups, offsets and messages, and nothing of the machine. The quotas are ours, too: `quotaMessagesPerSecond`,
`quotaBytesPerSecond`, `quotaConnections` and `quotaHeldPulls` are what the account may take of this broker at most (quotas.py).
No request can give or take either: only this file can.

Sources: PlainAccessConfig, PlainPermissionManager and Permission of 4.9.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

import yaml

from brokerd.quotas import CREDENTIAL_QUOTAS, OWN_QUOTA_MAX, CredentialQuota
from brokerd.topic_validator import invalid_group, invalid_topic
from mqwire.acl import accounts_version
from mqwire.bodies import DataVersion

_KEY_MIN_LENGTH = 7  # RocketMQ's: "longer than 6"


class AclFileError(ValueError):
    """The accounts cannot be used; the text names the account and what is allowed."""


class Permission(IntFlag):
    """What an account may do with a topic or a group."""

    DENY = 0
    PUB = 1
    SUB = 2

    def __str__(self) -> str:
        return {0: "DENY", 1: "PUB", 2: "SUB", 3: "PUB|SUB"}[int(self)]


_PERMISSIONS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


def parse_permission(text: str) -> Permission:
    permission = _PERMISSIONS.get("".join(text.split()).upper())
    if permission is None:
        raise AclFileError(f"{text[:40]!a} is no permission: allowed is DENY, PUB, SUB or PUB|SUB")
    return permission


@dataclass(frozen=True, slots=True)
class Account:
    """One account. Topics and groups without an entry of their own have the default."""

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool = False
    infrastructure: bool = False
    white_remote_address: str = ""
    default_topic_perm: Permission = Permission.DENY
    default_group_perm: Permission = Permission.DENY
    topic_perms: Mapping[str, Permission] = field(default_factory=dict)
    group_perms: Mapping[str, Permission] = field(default_factory=dict)
    quota: CredentialQuota = field(default_factory=CredentialQuota)


@dataclass(frozen=True, slots=True)
class AclFile:
    """All of the file. `other` are members that are not ours; they are kept."""

    accounts: Mapping[str, Account]
    global_white_remote_addresses: tuple[str, ...] = ()
    data_version: DataVersion = field(default_factory=DataVersion)
    other: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_infrastructure(self) -> bool:
        """Whether an account is the infrastructure's. Without one, admin accounts rule all, as in RocketMQ."""
        return any(account.infrastructure for account in self.accounts.values())


def account_from(members: Mapping[str, Any]) -> Account:
    """One entry of `accounts`; raises AclFileError. Members that are missing have RocketMQ's defaults."""
    access_key = _text(members.get("accessKey"))
    secret_key = _text(members.get("secretKey"))
    for name, value in (("accessKey", access_key), ("secretKey", secret_key)):
        if len(value) < _KEY_MIN_LENGTH:
            shown = f"account {access_key[:60]!a}: " if access_key and name != "accessKey" else ""
            raise AclFileError(f"{shown}{name} must have at least {_KEY_MIN_LENGTH} characters")
    try:
        return Account(
            access_key=access_key,
            secret_key=secret_key,
            admin=_boolean(members.get("admin"), "admin"),
            infrastructure=_boolean(members.get("infrastructure"), "infrastructure"),
            white_remote_address=_text(members.get("whiteRemoteAddress")),
            default_topic_perm=parse_permission(_text(members.get("defaultTopicPerm")) or "DENY"),
            default_group_perm=parse_permission(_text(members.get("defaultGroupPerm")) or "DENY"),
            topic_perms=parse_permissions(members.get("topicPerms"), "topic"),
            group_perms=parse_permissions(members.get("groupPerms"), "group"),
            quota=CredentialQuota(*(_quota(members.get(name), name) for name in CREDENTIAL_QUOTAS)),
        )
    except AclFileError as error:
        raise AclFileError(f"account {access_key[:60]!a}: {error}") from None


def parse_permissions(entries: Any, kind: str) -> dict[str, Permission]:
    """`["name=PERM", ...]`, or None for none; raises AclFileError."""
    if entries is None:
        return {}
    if not isinstance(entries, (list, tuple)):
        raise AclFileError(f"{kind}Perms must be a list of name=DENY, name=PUB, name=SUB or name=PUB|SUB")
    permissions = {}
    for entry in entries:
        name, separator, permission = _text(entry).partition("=")
        name = name.strip()
        if not separator:
            raise AclFileError(f"{_text(entry)[:80]!a} in {kind}Perms is not of the form name=PUB|SUB")
        remark = invalid_topic(name) if kind == "topic" else invalid_group(name)
        if remark is not None:
            raise AclFileError(remark)
        permissions[name] = parse_permission(permission)
    return permissions


def parse(content: bytes) -> AclFile:
    """The file's content; raises AclFileError (a ValueError)."""
    try:
        document = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise AclFileError(f"it is not YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(document, dict):
        raise AclFileError("it must hold a map with the member accounts")
    entries = document.get("accounts") or []
    if not isinstance(entries, list):
        raise AclFileError("accounts must be a list")
    accounts: dict[str, Account] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise AclFileError("each entry of accounts must be a map with accessKey and secretKey")
        account = account_from(entry)
        if account.access_key in accounts:
            raise AclFileError(f"account {account.access_key[:60]!a} is there twice")
        accounts[account.access_key] = account
    addresses = document.get("globalWhiteRemoteAddresses") or []
    if not isinstance(addresses, list):
        raise AclFileError("globalWhiteRemoteAddresses must be a list")
    return AclFile(
        accounts=accounts,
        global_white_remote_addresses=tuple(_text(address) for address in addresses),
        data_version=_data_version(document.get("dataVersion"), content),
        other={
            str(name): value
            for name, value in document.items()
            if name not in ("accounts", "globalWhiteRemoteAddresses", "dataVersion")
        },
    )


def dump(file: AclFile) -> bytes:
    """The file's content, in RocketMQ's form."""
    document: dict[str, Any] = dict(file.other)
    document["globalWhiteRemoteAddresses"] = list(file.global_white_remote_addresses)
    document["accounts"] = [
        {
            "accessKey": account.access_key,
            "secretKey": account.secret_key,
            "whiteRemoteAddress": account.white_remote_address,
            "admin": account.admin,
            **({"infrastructure": True} if account.infrastructure else {}),
            "defaultTopicPerm": str(account.default_topic_perm),
            "defaultGroupPerm": str(account.default_group_perm),
            "topicPerms": [f"{name}={permission}" for name, permission in account.topic_perms.items()],
            "groupPerms": [f"{name}={permission}" for name, permission in account.group_perms.items()],
            **quota_members(account),
        }
        for account in file.accounts.values()
    ]
    version = file.data_version
    document["dataVersion"] = [{"counter": version.counter, "timestamp": version.timestamp}]
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text.encode()


def _data_version(entries: Any, content: bytes) -> DataVersion:
    """RocketMQ's list of one map; a file without one gets a version that changes with its content."""
    if isinstance(entries, list) and entries and isinstance(entries[0], dict):
        counter, timestamp = entries[0].get("counter"), entries[0].get("timestamp")
        if isinstance(counter, int) and isinstance(timestamp, int):
            return DataVersion(counter=counter, timestamp=timestamp)
    return DataVersion(counter=0, timestamp=accounts_version(content))


def _text(value: Any) -> str:
    """YAML reads `secretKey: 12345678` as a number and `accessKey: yes` as a truth value; both mean their text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()


def quota_members(account: Account) -> dict[str, int]:
    """The account's own quotas as the file has them; those that it has not are left out."""
    return {name: limit for name, limit in zip(CREDENTIAL_QUOTAS, account.quota, strict=True) if limit}


def _quota(value: Any, name: str) -> int:
    """A quota of an account, 0 when it has none; raises AclFileError."""
    text = _text(value)
    if not text:
        return 0
    if re.fullmatch(r"[0-9]{1,18}", text) and 1 <= int(text) <= OWN_QUOTA_MAX:
        return int(text)
    raise AclFileError(f"{name} is {text[:40]!a}: allowed is a whole number from 1 to {OWN_QUOTA_MAX}")


def _boolean(value: Any, name: str) -> bool:
    text = _text(value).lower() or "false"
    if text not in ("true", "false"):
        raise AclFileError(f"{name} is {text[:40]!a}: allowed is true or false")
    return text == "true"
