"""AccessControl: RocketMQ 4's access control (PlainAccess), with five differences.

- White lists never stand in for a signature (reliability.md D17): an address is no identity.
- A client that may not touch a topic or a group gets the same answer whether it exists or not.
- What is not allowed is refused: the broker's own topics, which hold everyone's delayed messages, are read by admin
  accounts only and written by no one but the infrastructure.
- Where an account is the infrastructure's (acl_file.py), an admin account rules a tenant's things and not the machine,
  and the infrastructure's own requests are signed by version 2 (mqwire/acl.py). Where clients are asked for certificates,
  it rules the machine over connections that showed one; over others it is an account as its members say.
- An unknown account and a wrong signature get the same remark, and take the same time.

Refusals are answered with NO_PERMISSION (16), which stock clients show to their users.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from brokerd import acl_file, config_file
from brokerd.acl_file import Account, AclFile, AclFileError, Permission
from brokerd.acl_needs import NEEDS, Kind, Level, Need, instead_of, needs_of
from brokerd.clock import SystemClock
from brokerd.config import BrokerConfig
from brokerd.quotas import CredentialQuota
from brokerd.topic_validator import invalid_topic, is_brokers_own
from mqwire import names
from mqwire.acl import ACCESS_KEY, SIGNATURE, SIGNATURE_VERSION, SignatureVerifier, signature_matches
from mqwire.addresses import network_of
from mqwire.bodies import DataVersion
from mqwire.codes import HighwaterRequestCode, RequestCode
from mqwire.command import RemotingCommand
from mqwire.strangers_log import StrangersLog
from mqwire.trace_records import TraceKind, TraceSubject, trace_subjects

logger = logging.getLogger("brokerd.acl")

_SEND_TOPIC_FIELDS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
_SENDERS_MAX: Final = 10_000
# Compared against when the account is unknown, so that the answer takes as long as for a wrong signature.
_NOBODYS_SECRET = "no account has this secret"  # noqa: S105  # it lets no one in
_REPEATABLE: Final = "the infrastructure's account takes signatures of version 2 only: this one could be repeated"


class AccessControl:
    """The accounts of `aclConfigFile`, and what they may do. `clock_ms` is the wall clock, for the DataVersion.

    Reads the file at once. Raises UnreadableConfigFile when it is missing or bad: that must mean neither an open broker
    nor a locked one that looks healthy.
    """

    def __init__(self, config: BrokerConfig, clock_ms: Callable[[], int] | None = None) -> None:
        self._path = config.acl_config_file
        self._clock_ms = clock_ms or SystemClock().time_ms
        self._verifier = SignatureVerifier(self._clock_ms)
        self._infrastructure_is_apart = False
        self._asks_for_certificates = config.asks_for_certificates
        self._file = AclFile(accounts={})
        # Who may send to which topic, as found before: sends are most of what is checked. Of the accounts in force only.
        self._senders: set[tuple[str, str]] = set()
        # The accounts' own quotas, by access key; one mapping for life, whose content follows the accounts in force.
        self.quotas: dict[str, CredentialQuota] = {}
        self._refusals = StrangersLog(logger, self._clock_ms)
        # Called when other accounts are in force, with the access keys whose connections showed what is no account any more.
        self.on_change: Callable[[Set[str]], None] = lambda ended: None
        self._seen = self._fingerprint()
        loaded = config_file.load(self._path, acl_file.parse)
        if loaded is None:
            raise config_file.UnreadableConfigFile(
                f"{self._path} does not exist: write it with at least one account whose admin is true, name another in"
                " aclConfigFile, or set aclEnable=false"
            )
        self._take(loaded[0])
        if loaded[1] is not None:
            logger.error("%s: using the backup, which lacks the last change", loaded[1])

    def reload_if_changed(self) -> bool:
        """Takes over a file that was changed by hand; one that cannot be used is logged, and the old accounts stay."""
        self._refusals.sum_up()
        seen = self._fingerprint()
        if seen is None or seen == self._seen:
            return False
        self._seen = seen
        try:
            file = acl_file.parse(config_file.read_file(self._path))
        except (OSError, AclFileError) as error:
            logger.error("%s cannot be used, the former accounts stay: %s", self._path, error)
            return False
        self._take(file)
        logger.info("%s: %d accounts", self._path, len(file.accounts))
        return True

    def _take(self, file: AclFile) -> None:
        listed = file.global_white_remote_addresses or any(
            account.white_remote_address for account in file.accounts.values()
        )
        if listed:
            logger.warning("%s: white lists are kept but let no one in without a signature", self._path)
        if not any(account.admin or account.infrastructure for account in file.accounts.values()):
            logger.warning("%s: no account has admin: true, so no one can administer this broker", self._path)
        self._put_in_force(file)

    def _put_in_force(self, file: AclFile) -> None:
        # An account that says the same stays the same object: `check_again` goes by that.
        known, standings = self._file.accounts, self._standings()
        accounts = {key: known[key] if known.get(key) == new else new for key, new in file.accounts.items()}
        self._file = dataclasses.replace(file, accounts=accounts)
        self._infrastructure_is_apart = file.has_infrastructure
        self._senders.clear()
        self.quotas.clear()
        self.quotas.update({key: account.quota for key, account in file.accounts.items() if any(account.quota)})
        self._verifier.forget(set(file.accounts))
        now = self._standings()
        self.on_change({key for key, standing in standings.items() if now.get(key) != standing})

    def _standings(self) -> dict[str, tuple[str, bool]]:
        """What a connection has shown that showed an account: that it knows the secret, and whether it is the platform's."""
        return {
            key: (account.secret_key, self._rules_the_machine(account, has_certificate=True))
            for key, account in self._file.accounts.items()
        }

    def _fingerprint(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    @property
    def data_version(self) -> DataVersion:
        return self._file.data_version

    @property
    def path(self) -> str:
        return self._path

    @property
    def accounts(self) -> Mapping[str, Account]:
        """By access key. They hold secrets: never answer or log them."""
        return self._file.accounts

    # --- checks ---

    def check(
        self, request: RemotingCommand, remote_address: tuple[str, int], *, has_certificate: bool = False
    ) -> str | None:
        """Whether the request may be served: None when it may, else the remark of the refusal. `has_certificate`: its
        connection showed one that was checked.

        Raises RemoteProtocolError when a body that names resources cannot be read.
        """
        fields = request.ext_fields
        account = self._file.accounts.get(fields.get(ACCESS_KEY, ""))
        if account is None:
            return self._not_authenticated(request, account, remote_address)
        if SIGNATURE_VERSION in fields:
            cause = self._verifier.why_refused(request, account.secret_key)
            if cause is not None:
                return self._not_authenticated(request, account, remote_address, cause)
        elif not signature_matches(request, account.secret_key):
            return self._not_authenticated(request, account, remote_address)
        elif account.infrastructure:
            return _REPEATABLE
        return self._lacks(request, account, has_certificate)

    def check_again(
        self,
        request: RemotingCommand,
        remote_address: tuple[str, int],
        account_then: Account | None,
        *,
        has_certificate: bool = False,
    ) -> str | None:
        """As `check`, of a request that it let pass when `account_then` was the account of its access key. Costs one look-up
        while that is the account still.

        The signature is as good as it was while the secret is the same; one of version 2 would pass `check` no second time.
        """
        fields = request.ext_fields
        account = self._file.accounts.get(fields.get(ACCESS_KEY, ""))
        if account is account_then and account is not None:
            return None
        if account is None or account_then is None or account.secret_key != account_then.secret_key:
            return self._not_authenticated(request, account, remote_address)
        if account.infrastructure and SIGNATURE_VERSION not in fields:
            return _REPEATABLE
        return self._lacks(request, account, has_certificate)

    def _lacks(self, request: RemotingCommand, account: Account, has_certificate: bool) -> str | None:
        """What the account of an authentic request lacks for it, as a remark; None when nothing."""
        fields = request.ext_fields
        if self._rules_the_machine(account, has_certificate):
            return None
        topic_field = _SEND_TOPIC_FIELDS.get(request.code)
        topic = "" if topic_field is None else fields.get(topic_field, "")
        if topic_field is not None:
            if (account.access_key, topic) in self._senders:
                return None
            if topic == names.RMQ_SYS_TRACE_TOPIC and topic not in account.topic_perms:
                return None  # what each record is about decides: `refuses_traces`
        needs = needs_of(request)
        if needs is Level.AUTHENTICATED:
            return None
        if needs is Level.INFRASTRUCTURE:
            if account.infrastructure:
                return (
                    f"request code {request.code} takes a certificate of this cluster's CA beside the signature:"
                    " connect with TLS and show one"
                )
            return (
                f"request code {request.code} is for the platform itself, not for {account.access_key}:"
                f" {instead_of(request.code)}"
            )
        if needs is Level.ADMIN:
            if account.admin:
                return None
            return f"request code {request.code} needs an admin account, which {account.access_key} is not"
        for need in needs:
            remark = _refused(account, need)
            if remark is not None:
                return remark
        if topic_field is not None and len(self._senders) < _SENDERS_MAX and invalid_topic(topic) is None:
            self._senders.add((account.access_key, topic))
        return None

    def refuses(self, request: RemotingCommand, kind: Kind, name: str, permission: Permission) -> str | None:
        """For processors: whether a request that `check` has passed may also touch this resource."""
        account = self._file.accounts.get(request.ext_fields.get(ACCESS_KEY, ""))
        if account is None:
            return "the account of this request no longer exists"
        # What is asked for here is another look at what `check` let pass: a certificate gives no more of it.
        rules = self._rules_the_machine(account, has_certificate=True)
        return None if rules else _refused(account, Need(kind, name, permission))

    def refuses_traces(self, request: RemotingCommand, body: bytes) -> str | None:
        """For processors: whether a request that `check` has passed may write this, unfolded, to RMQ_SYS_TRACE_TOPIC.

        Any account may write records of its own sends, to topics that it may send to, and of deliveries in its groups. What cannot
        be read, or is no record at all, is for those with a permission for that topic. Raises RemoteProtocolError for too many.
        """
        account = self._file.accounts.get(request.ext_fields.get(ACCESS_KEY, ""))
        if account is None:
            return "the account of this request no longer exists"
        if account.admin or account.infrastructure or names.RMQ_SYS_TRACE_TOPIC in account.topic_perms:
            return None
        subjects = trace_subjects(body)
        if not subjects:
            return f"{account.access_key} may send trace records to {names.RMQ_SYS_TRACE_TOPIC}, and this body is none"
        # The end of a delivery names its group in newer clients only.
        unnamed = TraceSubject(TraceKind.SUB_AFTER, "")
        if unnamed in subjects and not _receives(account):
            return f"{account.access_key} may receive in no group, and a trace record is about the end of a delivery"
        needs = {
            Need(Kind.GROUP, name, Permission.SUB)
            if kind in (TraceKind.SUB_BEFORE, TraceKind.SUB_AFTER)
            else Need(Kind.TOPIC, name, Permission.PUB)
            for kind, name in subjects - {unnamed}
        }
        return next(filter(None, (_refused(account, need) for need in needs)), None)

    def is_infrastructure(self, request: RemotingCommand, *, has_certificate: bool) -> bool:
        """For processors: whether a request that `check` has passed may touch what belongs to the machine."""
        account = self._file.accounts.get(request.ext_fields.get(ACCESS_KEY, ""))
        return account is not None and self._rules_the_machine(account, has_certificate)

    def _rules_the_machine(self, account: Account, has_certificate: bool) -> bool:
        if account.infrastructure:
            return has_certificate or not self._asks_for_certificates
        return account.admin and not self._infrastructure_is_apart

    def _not_authenticated(
        self,
        request: RemotingCommand,
        account: Account | None,
        remote_address: tuple[str, int],
        cause: str = "the key or its secret is wrong",
    ) -> str:
        access_key = request.ext_fields.get(ACCESS_KEY, "")
        ip, line = remote_address[0], "request %d of %s is refused: access key %a"
        self._refusals.info(network_of(ip), line, request.code, ip, access_key[:60])
        if not access_key or SIGNATURE not in request.ext_fields:
            return "No accessKey is configured: this broker takes signed requests only; give the client an ACL hook"
        if account is None:
            signature_matches(request, _NOBODYS_SECRET)
        return f"Check signature failed for accessKey={access_key[:60]!a}: {cause}"

    # --- changes at run time (UPDATE_AND_CREATE_ACL_CONFIG, DELETE_ACL_CONFIG) ---

    def put_account(self, members: Mapping[str, Any]) -> None:
        """Makes an account or changes the given members of one; raises AclFileError, OSError (nothing changed then).

        `members` are the file's: accessKey, secretKey, admin, defaultTopicPerm, topicPerms, ... A member that is None
        stays as it is.
        """
        access_key = str(members.get("accessKey") or "")
        known = self._file.accounts.get(access_key)
        merged = {} if known is None else _members(known)
        merged.update({name: value for name, value in members.items() if value is not None})
        if known is None and not merged.get("secretKey"):
            raise AclFileError(f"account {access_key[:60]!a} is new: give it a secretKey")
        account = acl_file.account_from(merged)
        self._write({**self._file.accounts, access_key: account}, known)

    def delete_account(self, access_key: str) -> bool:
        """Removes an account; returns whether it was there. Raises AclFileError, OSError (nothing changed then)."""
        known = self._file.accounts.get(access_key)
        if known is None:
            return False
        self._write({key: value for key, value in self._file.accounts.items() if key != access_key}, known)
        return True

    def _write(self, accounts: Mapping[str, Account], changed: Account | None) -> None:
        if changed is not None and changed.infrastructure:
            raise AclFileError(
                f"{changed.access_key[:60]!a} is the infrastructure's account: it is changed in {self._path}, by hand"
            )
        if changed is not None and changed.admin and not self._is_administered(accounts):
            raise AclFileError(
                f"{changed.access_key[:60]!a} is the last admin account: without it no one could administer this"
                " broker; make another one first"
            )
        version = self._file.data_version.next_version(self._clock_ms())
        file = dataclasses.replace(self._file, accounts=dict(accounts), data_version=version)
        content = acl_file.dump(file)
        config_file.store(self._path, content)
        config_file.store_backup(self._path, content)
        self._seen = self._fingerprint()
        self._put_in_force(file)

    @staticmethod
    def _is_administered(accounts: Mapping[str, Account]) -> bool:
        return any(account.admin or account.infrastructure for account in accounts.values())


def credential_of(acl: AccessControl | None, request: RemotingCommand) -> str:
    """Whose a checked request is, by access key; "" without access control, where every client may claim anything."""
    return "" if acl is None else request.ext_fields.get(ACCESS_KEY, "")


def is_platforms(acl: AccessControl | None, request: RemotingCommand, *, has_certificate: bool) -> bool:
    """Whether a checked request is a replica's or the control plane's; without access control, whether only they make such ones."""
    if acl is None:
        return NEEDS.get(request.code) is Level.INFRASTRUCTURE or request.code == HighwaterRequestCode.REPLICA_STATUS
    return acl.is_infrastructure(request, has_certificate=has_certificate)


def _receives(account: Account) -> bool:
    """Whether it may receive in some group."""
    return any(perm & Permission.SUB for perm in (account.default_group_perm, *account.group_perms.values()))


def _refused(account: Account, need: Need) -> str | None:
    """The remark when `account` lacks `need`."""
    kind, name = need.kind, need.name
    if account.admin:
        closed = kind is Kind.TOPIC and is_brokers_own(name)
        if not closed or need.permission & Permission.SUB:
            return None
        return f"topic {name[:128]!a} is the broker's own: no one but the broker writes to it"
    granted = None
    if kind is Kind.TOPIC:
        granted = account.topic_perms.get(name)
        if granted is not None and is_brokers_own(name):
            granted &= Permission.SUB  # whatever a tenant grants its keys: what lies there is metered for no one
        for prefix in (names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX):
            if granted is None and name.startswith(prefix):
                # Retry and dead-letter topics belong to their group: who may consume in it may read and write them. The group's own
                # name may begin like such a topic.
                kind, name = Kind.GROUP, name[len(prefix) :]
                need = Need(kind, name, Permission.SUB)
                break
    if kind is Kind.GROUP:
        granted = account.group_perms.get(name, account.default_group_perm)
    elif granted is None:
        granted = Permission.DENY if is_brokers_own(name) else account.default_topic_perm
    if granted & need.permission:
        return None
    wanted = str(need.permission).replace("|", " or ")
    return f"{account.access_key} has no {wanted} permission for {kind.value} {name[:128]!a}"


def _members(account: Account) -> dict[str, Any]:
    return {
        "accessKey": account.access_key,
        "secretKey": account.secret_key,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "infrastructure": account.infrastructure,
        "defaultTopicPerm": str(account.default_topic_perm),
        "defaultGroupPerm": str(account.default_group_perm),
        "topicPerms": [f"{name}={permission}" for name, permission in account.topic_perms.items()],
        "groupPerms": [f"{name}={permission}" for name, permission in account.group_perms.items()],
        **acl_file.quota_members(account),
    }
