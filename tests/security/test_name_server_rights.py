"""A tenant's admin key rules its topics and nothing of the machine: on name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqwire.acl import SessionCredentials, accounts_version
from mqwire.bodies import DataVersion
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from namesrvd.acl import Accounts
from namesrvd.config import NamesrvConfig
from namesrvd.kv_config import KVConfigManager
from namesrvd.processor import LISTING_CODES, OPEN_CODES, Processor
from namesrvd.route_info import RouteInfoManager
from tests.brokerd.broker_under_test import FIRST_MS
from tests.security.accounts import ACCOUNTS, PLATFORM, PROGRAM, TENANT_ADMIN, signed

MACHINE_CODES = [
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
]
ORDER = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:4"}


class NameServer:
    """A processor with accounts, without sockets."""

    def __init__(self, path: Path, config: NamesrvConfig | None = None) -> None:
        self.path = path
        path.write_text(ACCOUNTS)
        self.processor = Processor(
            config or NamesrvConfig(),
            RouteInfoManager(lambda: 0.0),
            KVConfigManager(),
            accounts=Accounts(str(path), lambda: FIRST_MS),
            clock_ms=lambda: 0.0,
        )

    def answer(self, request: RemotingCommand, *, has_certificate: bool = False) -> RemotingCommand:
        outcome = self.processor.process("a connection", request, has_certificate=has_certificate)
        assert outcome is not None
        assert outcome.reply is not None
        return outcome.reply


@pytest.fixture
def name_server(tmp_path: Path) -> NameServer:
    return NameServer(tmp_path / "plain_acl.yml")


@pytest.mark.parametrize("code", MACHINE_CODES)
def test_a_tenants_admin_key_is_refused_what_rules_the_machine(name_server: NameServer, code: int) -> None:
    reply = name_server.answer(signed(code, TENANT_ADMIN))
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "is for the platform itself" in (reply.remark or "")


@pytest.mark.parametrize("code", MACHINE_CODES)
def test_the_infrastructure_is_let_in(name_server: NameServer, code: int) -> None:
    assert name_server.answer(signed(code, PLATFORM, version=2)).code != ResponseCode.NO_PERMISSION


def test_where_certificates_are_asked_for_the_infrastructure_is_let_in_with_one_only(tmp_path: Path) -> None:
    asking = NamesrvConfig(tls_server_cert_path="tls.pem", tls_server_need_client_auth="optional")
    name_server = NameServer(tmp_path / "plain_acl.yml", asking)
    for code in MACHINE_CODES:
        without = name_server.answer(signed(code, PLATFORM, version=2))
        assert without.code == ResponseCode.NO_PERMISSION
        assert "takes a certificate of this cluster's CA" in (without.remark or "")
        request = signed(code, PLATFORM, version=2)
        assert name_server.answer(request, has_certificate=True).code != ResponseCode.NO_PERMISSION
        unsigned = RemotingCommand.request(code)
        assert name_server.answer(unsigned, has_certificate=True).code == ResponseCode.NO_PERMISSION
    for code in (*LISTING_CODES, *OPEN_CODES, RequestCode.GET_NAMESRV_CONFIG):
        assert name_server.answer(signed(code, TENANT_ADMIN)).code != ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("code", sorted(LISTING_CODES))
def test_nothing_is_listed_unsigned(name_server: NameServer, code: int) -> None:
    for request in (RemotingCommand.request(code), signed(code, SessionCredentials("tenant-app", "guessed"))):
        reply = name_server.answer(request)
        assert (reply.code, bytes(reply.body)) == (ResponseCode.NO_PERMISSION, b"")
        assert "must be signed by an account" in (reply.remark or "")


@pytest.mark.parametrize("code", sorted(LISTING_CODES))
def test_each_account_of_the_cluster_lists(name_server: NameServer, code: int) -> None:
    requests = [signed(code, PROGRAM), signed(code, TENANT_ADMIN), signed(code, PLATFORM, version=2)]
    assert {name_server.answer(request).code == ResponseCode.NO_PERMISSION for request in requests} == {False}


def test_each_code_is_open_a_tenants_or_the_infrastructures(name_server: NameServer) -> None:
    tenants = {RequestCode.DELETE_TOPIC_IN_NAMESRV, RequestCode.GET_NAMESRV_CONFIG}
    assert name_server.processor.codes == {*OPEN_CODES, *LISTING_CODES, *tenants, *MACHINE_CODES}


def test_mqadmins_delete_topic_goes_on_working(name_server: NameServer) -> None:
    fields = {"topic": "orders"}
    assert name_server.answer(signed(RequestCode.DELETE_TOPIC_IN_NAMESRV, TENANT_ADMIN, fields)).code == 0
    fields = {"namespace": ORDER["namespace"], "key": "orders"}
    assert name_server.answer(signed(RequestCode.DELETE_KV_CONFIG, TENANT_ADMIN, fields)).code == 0


def test_mqadmins_update_order_conf_goes_on_working(name_server: NameServer) -> None:
    assert name_server.answer(signed(RequestCode.PUT_KV_CONFIG, TENANT_ADMIN, dict(ORDER))).code == 0


def test_a_tenant_writes_to_no_other_namespace(name_server: NameServer) -> None:
    fields = {**ORDER, "namespace": "PROJECT_CONFIG"}
    reply = name_server.answer(signed(RequestCode.PUT_KV_CONFIG, TENANT_ADMIN, fields))
    assert reply.code == ResponseCode.NO_PERMISSION


def test_a_tenants_program_changes_nothing(name_server: NameServer) -> None:
    for code in (*MACHINE_CODES, RequestCode.DELETE_TOPIC_IN_NAMESRV):
        assert name_server.answer(signed(code, PROGRAM)).code == ResponseCode.NO_PERMISSION


def test_a_recorded_registration_is_refused(name_server: NameServer) -> None:
    recorded = signed(RequestCode.UNREGISTER_BROKER, PLATFORM, version=2)
    assert name_server.answer(recorded).code != ResponseCode.NO_PERMISSION
    assert name_server.answer(recorded).code == ResponseCode.NO_PERMISSION


def test_the_infrastructure_signs_by_version_2_only(name_server: NameServer) -> None:
    reply = name_server.answer(signed(RequestCode.REGISTER_BROKER, PLATFORM, version=1))
    assert "version 2" in (reply.remark or "")


def test_a_deleted_key_is_refused_once_the_written_files_version_is_answered(name_server: NameServer) -> None:
    left = "\n".join(line for line in ACCOUNTS.splitlines() if "tenant-admin" not in line)
    name_server.path.write_text(left)
    reply = name_server.answer(signed(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, PLATFORM, version=2))
    version = DataVersion.from_json(reply.ext_fields["version"].encode())
    assert version.timestamp == accounts_version(left.encode())
    reply = name_server.answer(signed(RequestCode.DELETE_TOPIC_IN_NAMESRV, TENANT_ADMIN, {"topic": "orders"}))
    assert reply.code == ResponseCode.NO_PERMISSION
