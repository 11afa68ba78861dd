"""The administrators of a plain_acl.yml: read, refused when broken, read again when changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqwire.acl import SessionCredentials, sign_request
from mqwire.command import RemotingCommand
from namesrvd.acl import Accounts, AclConfigError

ACCOUNT = "  - {{accessKey: {key}, secretKey: {secret}, admin: {admin}}}\n"


def write(path: Path, *accounts: tuple[str, str, bool]) -> None:
    path.write_text(
        "accounts:\n" + "".join(ACCOUNT.format(key=k, secret=s, admin=str(a).lower()) for k, s, a in accounts)
    )


def refused(accounts: Accounts, key: str, secret: str) -> bool:
    request = RemotingCommand.request(103)
    sign_request(request, SessionCredentials(key, secret))
    return accounts.why_refused(request) is not None


def test_administrators_are_let_in_and_no_one_else(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    write(path, ("root", "rootsecret", True), ("12345678", "87654321", True), ("tenant", "tenantsecret", False))
    accounts = Accounts(str(path))
    assert not refused(accounts, "root", "rootsecret")
    assert not refused(accounts, "12345678", "87654321")
    assert refused(accounts, "tenant", "tenantsecret")
    assert refused(accounts, "root", "tenantsecret")
    assert refused(accounts, "-", "-")
    assert "AccessKey is missing" in (accounts.why_refused(RemotingCommand.request(103)) or "")


def test_white_addresses_are_no_proof(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text("globalWhiteRemoteAddresses: ['*']\naccounts: []\n")
    assert Accounts(str(path)).why_refused(RemotingCommand.request(103)) is not None


def test_a_changed_file_counts_once_it_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    write(path, ("root", "former", True))
    accounts = Accounts(str(path))
    assert not accounts.refresh()
    write(path, ("root", "longer-later", True))
    assert accounts.refresh()
    assert refused(accounts, "root", "former")
    assert not refused(accounts, "root", "longer-later")


def test_a_file_that_broke_leaves_the_accounts_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    write(path, ("root", "rootsecret", True))
    accounts = Accounts(str(path))
    path.write_text("accounts: {")
    for _ in range(2):
        with pytest.raises(AclConfigError):
            accounts.refresh()
    assert not refused(accounts, "root", "rootsecret")
    os.unlink(path)
    with pytest.raises(AclConfigError):
        accounts.refresh()
    assert not refused(accounts, "root", "rootsecret")


BROKEN = [
    pytest.param("accounts: {", "is not YAML", id="no yaml"),
    pytest.param("", "list named accounts", id="empty"),
    pytest.param("[]", "list named accounts", id="a list"),
    pytest.param("accounts: 5", "list named accounts", id="a number"),
    pytest.param("accounts: [5]", "account 1 is not a mapping", id="a number as account"),
    pytest.param("accounts: [{accessKey: a}]", "account 1 needs", id="no secret"),
    pytest.param("accounts: [{accessKey: a, secretKey: b}, {accessKey: a, secretKey: c}]", "twice", id="a key twice"),
    pytest.param("!!python/object/apply:os.system [true]", "is not YAML", id="an object of python"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_a_broken_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    with pytest.raises(AclConfigError, match=message):
        Accounts(str(path))


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(AclConfigError, match="cannot be read"):
        Accounts(str(tmp_path / "plain_acl.yml"))
