"""Who may register brokers, change settings and list names here: the accounts of a plain_acl.yml.

RocketMQ's own name server knows no accounts. Ours reads the file of 4.x's brokers; with aclEnable=true every request
that changes something must carry the signature of an account with `admin: true`, and every one that lists names that of
any account: stock clients sign what they ask name servers, too. Where an account has `infrastructure: true` (the control
plane's and the brokers' own), registrations and settings are for that one alone, and administrators are left with what
belongs to their topics. The route of a topic that is named stays open, so that a client without a key learns from the
broker what it lacks, and not that there is no such topic.

White addresses of the file don't count here: an address is no proof.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import yaml

from mqwire.acl import ACCESS_KEY, SIGNATURE_VERSION, SignatureVerifier, accounts_version, signature_matches
from mqwire.bodies import DataVersion
from mqwire.command import RemotingCommand

_MAX_FILE_BYTES = 4 * 1024 * 1024


class AclConfigError(Exception):
    """plain_acl.yml cannot be used. The text names the file and the reason."""


@dataclass(frozen=True, slots=True)
class _FileState:
    modified_ns: int
    size_bytes: int
    inode: int


class Rights(IntEnum):
    """What a request takes; each includes those before it."""

    ANY_ACCOUNT = 0
    ADMINISTRATOR = 1
    INFRASTRUCTURE = 2


_WHOSE: Final = {
    Rights.ANY_ACCOUNT: "an account",
    Rights.ADMINISTRATOR: "an administrator",
    Rights.INFRASTRUCTURE: "an administrator",
}


@dataclass(frozen=True, slots=True)
class _Account:
    secret_key: str = field(repr=False)
    rights: Rights


@dataclass(frozen=True, slots=True)
class _File:
    accounts: dict[str, _Account]
    version: DataVersion
    infrastructure_is_apart: bool


class Accounts:
    """The accounts by access key, read again when the file changes. `clock_ms` is the wall clock."""

    def __init__(self, path: str, clock_ms: Callable[[], int] | None = None) -> None:
        """Read the file. Raises AclConfigError."""
        self._path = path
        self._state = _state_of(path)
        self._file = _read(path)
        self._verifier = SignatureVerifier() if clock_ms is None else SignatureVerifier(clock_ms)

    @property
    def data_version(self) -> DataVersion:
        """Changes with the file's content."""
        return self._file.version

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether it had.

        Raises AclConfigError when it can't be read any more; the accounts stay as they were, and the next call tries
        again.
        """
        state = _state_of(self._path)
        if state == self._state:
            return False
        self._file = _read(self._path)
        self._state = state
        self._verifier.forget(set(self._file.accounts))
        return True

    def why_refused(
        self, request: RemotingCommand, needed: Rights = Rights.ADMINISTRATOR, *, lacks_certificate: bool = False
    ) -> str | None:
        """None when an account with the rights signed this request, else the remark to answer with. Where no account is the
        infrastructure's, its rights are the administrators'. With `lacks_certificate` the infrastructure is no more than one.

        An unknown access key, one without the rights and a wrong signature look alike.
        """
        must = f"this request must be signed by {_WHOSE[needed]}"
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            return f"{must}: AccessKey is missing"
        account = self._file.accounts.get(access_key)
        if account is None or account.rights < min(needed, Rights.ADMINISTRATOR):
            # A signature is computed for unknown keys too, so that the time reveals nothing about them.
            signature_matches(request, "-")
            return f"{must}: AccessKey or Signature does not match"
        if SIGNATURE_VERSION in request.ext_fields:
            cause = self._verifier.why_refused(request, account.secret_key)
            if cause is not None:
                return f"{must}: AccessKey or Signature does not match; {cause}"
        elif not signature_matches(request, account.secret_key):
            return f"{must}: AccessKey or Signature does not match"
        elif account.rights == Rights.INFRASTRUCTURE:
            return "the infrastructure's account takes signatures of version 2 only: this one could be repeated"
        if needed > account.rights and self._file.infrastructure_is_apart:
            return (
                f"request code {request.code} is for the platform itself, not for {access_key[:60]}: brokers register"
                " themselves, and the console and the REST API do what tenants need of it"
            )
        if lacks_certificate and needed == Rights.INFRASTRUCTURE and self._file.infrastructure_is_apart:
            return (
                f"request code {request.code} takes a certificate of this cluster's CA beside the signature:"
                " connect with TLS and show one"
            )
        return None


def _state_of(path: str) -> _FileState:
    try:
        status = os.stat(path)
    except OSError as error:
        raise AclConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return _FileState(status.st_mtime_ns, status.st_size, status.st_ino)


def _read(path: str) -> _File:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise AclConfigError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
        document = yaml.safe_load(content)
    except OSError as error:
        raise AclConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise AclConfigError(f"{path} is not YAML: {error}") from error
    accounts = (document or {}).get("accounts") if isinstance(document or {}, dict) else None
    if not isinstance(accounts, list):
        raise AclConfigError(f"{path} must hold a list named accounts")
    known: dict[str, _Account] = {}
    for number, account in enumerate(accounts, 1):
        access_key, secret_key = _keys_of(path, number, account)
        if access_key in known:
            raise AclConfigError(f"{path}: accessKey {access_key} stands there twice")
        known[access_key] = _Account(secret_key, _rights_of(account))
    return _File(
        known,
        DataVersion(counter=0, timestamp=accounts_version(content)),
        any(account.rights == Rights.INFRASTRUCTURE for account in known.values()),
    )


def _rights_of(account: dict[str, Any]) -> Rights:
    if account.get("infrastructure") is True:
        return Rights.INFRASTRUCTURE
    return Rights.ADMINISTRATOR if account.get("admin") is True else Rights.ANY_ACCOUNT


def _keys_of(path: str, number: int, account: Any) -> tuple[str, str]:
    if not isinstance(account, dict):
        raise AclConfigError(f"{path}: account {number} is not a mapping with accessKey and secretKey")
    access_key, secret_key = (account.get(name) for name in ("accessKey", "secretKey"))
    # YAML reads keys of digits as numbers.
    if isinstance(access_key, bool | None) or isinstance(secret_key, bool | None):
        raise AclConfigError(f"{path}: account {number} needs accessKey and secretKey")
    return str(access_key), str(secret_key)
