"""An account's own quotas in plain_acl.yml."""

from __future__ import annotations

import pytest

from brokerd import acl_file
from brokerd.acl_file import AclFileError
from brokerd.quotas import CredentialQuota
from mqwire.codes import ResponseCode
from tests.brokerd.acl_accounts import ACCOUNTS, MakeAclBroker, accounts_file
from tests.brokerd.test_acl_changes import put

ENTRY = {"accessKey": "alice-app", "secretKey": "alice-secret"}


def test_quotas_that_are_left_out_are_none() -> None:
    assert acl_file.account_from({**ENTRY, "quotaConnections": 7}).quota == CredentialQuota(connections=7)


def test_quotas_survive_being_written() -> None:
    account = acl_file.account_from({**ENTRY, "quotaMessagesPerSecond": 5, "quotaBytesPerSecond": "1024"})
    again = acl_file.parse(acl_file.dump(acl_file.AclFile(accounts={account.access_key: account})))
    assert again.accounts["alice-app"] == account


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", True, str(2**60), [1]])
def test_a_quota_that_is_none_makes_the_file_unusable_and_is_named(value: object) -> None:
    with pytest.raises(AclFileError, match="'alice-app': quotaHeldPulls is"):
        acl_file.account_from({**ENTRY, "quotaHeldPulls": value})


def test_a_change_of_the_account_leaves_its_quotas(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(
        ACCOUNTS.replace("secretKey: alice-secret", "secretKey: alice-secret\n    quotaHeldPulls: 3")
    )
    assert put(broker, "alice-app", topic_perms="orders=SUB").code == ResponseCode.SUCCESS
    assert broker.access_control.quotas == {"alice-app": CredentialQuota(held_pulls=3)}
    assert b"quotaHeldPulls: 3" in accounts_file(broker).read_bytes()
