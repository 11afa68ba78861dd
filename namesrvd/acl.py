"""Who may register brokers and change settings here: the administrators of a plain_acl.yml.

RocketMQ's own name server knows no accounts. Ours reads the file of 4.x's brokers; with aclEnable=true every request
that changes something must carry the signature of an account with `admin: true`. Routes stay open: they hold nothing but
names, and clients ask for them before they have shown who they are.

White addresses of the file don't count here: an address is no proof.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import yaml

from mqwire.acl import ACCESS_KEY, signature_matches
from mqwire.command import RemotingCommand

_MAX_FILE_BYTES = 4 * 1024 * 1024


class AclConfigError(Exception):
    """plain_acl.yml cannot be used. The text tells which file and why."""


@dataclass(frozen=True, slots=True)
class _FileState:
    modified_ns: int
    size_bytes: int
    inode: int


class AdminAccounts:
    """The administrators' secrets by access key, read again when the file changes."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises AclConfigError."""
        self._path = path
        self._state = _state_of(path)
        self._secrets = _read_secrets(path)

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether it had.

        Raises AclConfigError when it can't be read any more; the accounts stay as they were, and the next call tries
        again.
        """
        state = _state_of(self._path)
        if state == self._state:
            return False
        self._secrets = _read_secrets(self._path)
        self._state = state
        return True

    def why_refused(self, request: RemotingCommand) -> str | None:
        """None when an administrator signed this request, else the remark to answer with.

        An unknown access key, one without admin rights and a wrong signature look alike.
        """
        access_key = request.ext_fields.get(ACCESS_KEY)
        if access_key is None:
            return "this request must be signed by an administrator: AccessKey is missing"
        secret_key = self._secrets.get(access_key)
        # The signature is computed for unknown keys too, so that the time tells nothing about them.
        matches = signature_matches(request, secret_key if secret_key is not None else "-")
        if secret_key is None or not matches:
            return "this request must be signed by an administrator: AccessKey or Signature does not match"
        return None


def _state_of(path: str) -> _FileState:
    try:
        status = os.stat(path)
    except OSError as error:
        raise AclConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return _FileState(status.st_mtime_ns, status.st_size, status.st_ino)


def _read_secrets(path: str) -> dict[str, str]:
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
    secrets: dict[str, str] = {}
    seen: set[str] = set()
    for number, account in enumerate(accounts, 1):
        access_key, secret_key = _keys_of(path, number, account)
        if access_key in seen:
            raise AclConfigError(f"{path}: accessKey {access_key} stands there twice")
        seen.add(access_key)
        if account.get("admin") is True:
            secrets[access_key] = secret_key
    return secrets


def _keys_of(path: str, number: int, account: Any) -> tuple[str, str]:
    if not isinstance(account, dict):
        raise AclConfigError(f"{path}: account {number} is not a mapping with accessKey and secretKey")
    access_key, secret_key = (account.get(name) for name in ("accessKey", "secretKey"))
    # YAML reads keys of digits as numbers.
    if isinstance(access_key, bool | None) or isinstance(secret_key, bool | None):
        raise AclConfigError(f"{path}: account {number} needs accessKey and secretKey")
    return str(access_key), str(secret_key)
