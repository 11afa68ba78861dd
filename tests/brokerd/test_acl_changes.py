"""Accounts that are changed at run time, by requests."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import yaml

from brokerd.acl_file import Permission
from mqwire.acl import SessionCredentials
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from tests.brokerd.acl_accounts import ACCOUNTS, ADMIN, ALICE, SEND_FIELDS, MakeAclBroker, accounts_file, code_of
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer


def put(
    broker: BrokerUnderTest, access_key: str, *, signed_as: SessionCredentials | None = ADMIN, **members: Any
) -> RemotingCommand:
    header = CreateAccessConfigRequestHeader(access_key=access_key, **members)
    fields = header.to_ext_fields()
    if "admin" not in members:
        fields.pop("admin", None)
    return broker.ask(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ext_fields=fields, signed_as=signed_as)


def delete(
    broker: BrokerUnderTest, access_key: str, *, signed_as: SessionCredentials | None = ADMIN
) -> RemotingCommand:
    header = DeleteAccessConfigRequestHeader(access_key=access_key)
    return broker.ask(RequestCode.DELETE_ACL_CONFIG, header, signed_as=signed_as)


BOB = SessionCredentials("bob-app", "bob-secret")


def test_a_new_account_is_served_at_once_and_after_a_crash(acl_broker: BrokerUnderTest) -> None:
    fields = {"topic": "bobs", "queueId": "0"}
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields, signed_as=BOB) == ResponseCode.NO_PERMISSION
    assert put(acl_broker, "bob-app", secret_key="bob-secret", topic_perms="bobs=PUB").code == ResponseCode.SUCCESS
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields, signed_as=BOB) == ResponseCode.SUCCESS
    acl_broker.crash()
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields, signed_as=BOB) == ResponseCode.SUCCESS


def test_a_change_leaves_what_it_does_not_name(acl_broker: BrokerUnderTest) -> None:
    put(acl_broker, "alice-app", topic_perms="orders=SUB,other=PUB")
    account = acl_broker.access_control.accounts["alice-app"]
    assert account.secret_key == "alice-secret"
    assert dict(account.topic_perms) == {"orders": Permission.SUB, "other": Permission.PUB}
    assert dict(account.group_perms) == {"alice-group": Permission.SUB, "idle": Permission.DENY}


def test_a_changed_admin_flag_counts_only_when_it_is_sent(acl_broker: BrokerUnderTest) -> None:
    put(acl_broker, "alice-app", admin=True)
    put(acl_broker, "alice-app", default_topic_perm="PUB")
    assert acl_broker.access_control.accounts["alice-app"].admin


def test_a_deleted_account_is_refused_at_once(acl_broker: BrokerUnderTest) -> None:
    assert delete(acl_broker, "alice-app").code == ResponseCode.SUCCESS
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, {"topic": "orders"}) == ResponseCode.NO_PERMISSION


def test_a_permission_that_was_used_and_is_taken_away_is_refused_at_once(acl_broker: BrokerUnderTest) -> None:
    fields = {**SEND_FIELDS, "b": "orders"}
    assert code_of(acl_broker, RequestCode.SEND_MESSAGE_V2, fields, body=b"x") == ResponseCode.SUCCESS
    put(acl_broker, "alice-app", topic_perms="orders=SUB")
    assert code_of(acl_broker, RequestCode.SEND_MESSAGE_V2, fields, body=b"x") == ResponseCode.NO_PERMISSION


def test_one_accounts_permission_is_not_anothers(acl_broker: BrokerUnderTest) -> None:
    fields = {**SEND_FIELDS, "b": "orders"}
    put(acl_broker, "bob-app", secret_key="bob-secret")
    assert code_of(acl_broker, RequestCode.SEND_MESSAGE_V2, fields, body=b"x") == ResponseCode.SUCCESS
    refused = code_of(acl_broker, RequestCode.SEND_MESSAGE_V2, fields, body=b"x", signed_as=BOB)
    assert refused == ResponseCode.NO_PERMISSION


def connected(broker: BrokerUnderTest, credentials: SessionCredentials = ALICE) -> RecordingPeer:
    """A connection that has shown this account."""
    peer = RecordingPeer()
    fields = {"topic": "orders", "queueId": "0"}
    broker.request(RequestCode.GET_MAX_OFFSET, ext_fields=fields, signed_as=credentials, peer=peer)
    assert peer.proven
    return peer


def test_connections_of_a_deleted_account_are_ended(acl_broker: BrokerUnderTest) -> None:
    alices, operators = connected(acl_broker), connected(acl_broker, ADMIN)
    delete(acl_broker, "alice-app")
    assert alices.closed
    assert not operators.closed


def test_connections_that_showed_the_secret_that_an_account_had_are_ended(acl_broker: BrokerUnderTest) -> None:
    peer = connected(acl_broker)
    put(acl_broker, "alice-app", secret_key="another-secret")
    assert peer.closed


def test_connections_of_an_account_whose_permissions_change_stay(acl_broker: BrokerUnderTest) -> None:
    peer = connected(acl_broker)
    put(acl_broker, "alice-app", topic_perms="orders=SUB")
    assert not peer.closed


def test_connections_of_an_account_that_the_file_has_no_more_are_ended(acl_broker: BrokerUnderTest) -> None:
    peer = connected(acl_broker)
    file = accounts_file(acl_broker)
    file.write_text(file.read_text().replace("alice-app", "another-app"))
    acl_broker.access_control.reload_if_changed()
    assert peer.closed


def test_connections_of_an_account_that_rules_the_machine_no_more_are_ended(acl_broker: BrokerUnderTest) -> None:
    put(acl_broker, "alice-app", admin=True)
    peer = connected(acl_broker)
    assert peer.is_platform
    put(acl_broker, "alice-app", admin=False)
    assert peer.closed


def test_a_stranger_that_is_refused_over_and_over_fills_no_log(
    acl_broker: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "brokerd")
    peer = RecordingPeer()
    for _ in range(100):
        acl_broker.request(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "orders", "queueId": "0"}, peer=peer)
    assert len([record for record in caplog.records if "is refused" in record.getMessage()]) == 1


def test_deleting_a_missing_account_is_harmless(acl_broker: BrokerUnderTest) -> None:
    assert delete(acl_broker, "missing").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"secret_key": "short"}, "at least 7"),
        ({}, "give it a secretKey"),
        ({"secret_key": "long-enough", "topic_perms": "orders=ALL"}, "no permission"),
        ({"secret_key": "long-enough", "default_topic_perm": "yes"}, "no permission"),
        ({"secret_key": "long-enough", "group_perms": "a b=SUB"}, "illegal characters"),
    ],
)
def test_a_bad_account_is_refused_and_changes_nothing(
    acl_broker: BrokerUnderTest, members: dict[str, Any], reason: str
) -> None:
    before = accounts_file(acl_broker).read_bytes()
    reply = put(acl_broker, "carol-app", **members)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reason in (reply.remark or "")
    assert accounts_file(acl_broker).read_bytes() == before


@pytest.mark.parametrize("change", ["delete", "demote"])
def test_the_last_admin_account_stays(acl_broker: BrokerUnderTest, change: str) -> None:
    reply = delete(acl_broker, "operator") if change == "delete" else put(acl_broker, "operator", admin=False)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert "last admin account" in (reply.remark or "")


def test_an_ordinary_account_changes_no_accounts(acl_broker: BrokerUnderTest) -> None:
    assert put(acl_broker, "alice-app", admin=True, signed_as=ALICE).code == ResponseCode.NO_PERMISSION
    assert delete(acl_broker, "operator", signed_as=ALICE).code == ResponseCode.NO_PERMISSION


def test_a_change_raises_the_version_that_is_answered(acl_broker: BrokerUnderTest) -> None:
    def version() -> str:
        return acl_broker.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, signed_as=ADMIN).ext_fields["version"]

    before = version()
    put(acl_broker, "bob-app", secret_key="bob-secret")
    assert version() != before


def test_a_change_keeps_white_lists_and_members_that_are_not_ours(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(ACCOUNTS + "remark: keep me\n")
    put(broker, "bob-app", secret_key="bob-secret")
    document = yaml.safe_load(accounts_file(broker).read_text())
    assert document["remark"] == "keep me"
    assert document["globalWhiteRemoteAddresses"] == ["127.0.0.1", "10.*.*.*"]


def test_a_change_that_cannot_be_written_does_not_count(
    acl_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("brokerd.config_file.store", full)
        assert put(acl_broker, "bob-app", secret_key="bob-secret").code == ResponseCode.SYSTEM_ERROR
    assert "bob-app" not in acl_broker.access_control.accounts


def test_an_own_change_is_not_taken_for_one_by_hand(acl_broker: BrokerUnderTest) -> None:
    put(acl_broker, "bob-app", secret_key="bob-secret")
    assert not acl_broker.access_control.reload_if_changed()


def test_without_access_control_accounts_cannot_be_changed(broker: BrokerUnderTest) -> None:
    reply = put(broker, "bob-app", secret_key="bob-secret", signed_as=None)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "aclEnable=true" in (reply.remark or "")
