"""A tenant's admin key rules its topics, groups, offsets and messages, and nothing of the machine: on brokers."""

from __future__ import annotations

import pytest

from brokerd.acl_needs import NEEDS, Level
from brokerd.config import HOT_KEYS, TENANTS_HOT_KEYS
from brokerd.processors import HANDLERS
from mqwire.bodies import TopicConfig
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from mqwire.headers_topic import CreateTopicRequestHeader
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METADATA, RMQ_SYS_METERING, RMQ_SYS_PROBE, RMQ_SYS_SCHEDULE_TOPIC
from tests.brokerd.acl_accounts import ACCOUNTS as STANDALONE_ACCOUNTS
from tests.brokerd.acl_accounts import ADMIN as STANDALONE_ADMIN
from tests.brokerd.acl_accounts import SEND_FIELDS, MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.security.accounts import PLATFORM, PROGRAM, TENANT_ADMIN, ask, signed

MACHINE_CODES = sorted(code for code, needs in NEEDS.items() if needs is Level.INFRASTRUCTURE)
WRITERS_OF_OFFSETS = [
    *(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.PULL_MESSAGE),
]
TENANTS_CODES = sorted(code for code, needs in NEEDS.items() if needs is Level.ADMIN)


def test_each_code_that_is_served_says_who_may_use_it() -> None:
    assert not HANDLERS.keys() - NEEDS.keys()


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        HighwaterRequestCode.REPLICA_PULL,
        HighwaterRequestCode.REPLICA_RECORDS,
        HighwaterRequestCode.REPLICA_PROMOTE,
        HighwaterRequestCode.REPLICA_DEMOTE,
        HighwaterRequestCode.REPLICA_VOTE,
        HighwaterRequestCode.REPLICA_MODE,
        HighwaterRequestCode.REPLICA_MEMBERS,
        HighwaterRequestCode.METERING_REPORT,
        HighwaterRequestCode.NETWORK_CUT,
    ],
)
def test_what_rules_the_machine_is_listed_as_the_infrastructures(code: int) -> None:
    assert code in MACHINE_CODES


@pytest.mark.parametrize("code", MACHINE_CODES)
def test_a_tenants_admin_key_is_refused_with_what_to_use_instead(platform_broker: BrokerUnderTest, code: int) -> None:
    reply = ask(platform_broker, code, TENANT_ADMIN)
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "is for the platform itself" in (reply.remark or "")
    assert "REST API" in (reply.remark or "")


@pytest.mark.parametrize("code", TENANTS_CODES)
def test_a_tenants_admin_key_keeps_what_belongs_to_topics_groups_and_offsets(
    platform_broker: BrokerUnderTest, code: int
) -> None:
    remark = ask(platform_broker, code, TENANT_ADMIN).remark or ""
    assert "is for the platform" not in remark
    assert "admin account" not in remark


@pytest.mark.parametrize("code", [*MACHINE_CODES, *TENANTS_CODES])
def test_a_tenants_program_has_neither(platform_broker: BrokerUnderTest, code: int) -> None:
    assert ask(platform_broker, code, PROGRAM).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("key", sorted(HOT_KEYS - TENANTS_HOT_KEYS))
def test_keys_that_bind_or_size_are_not_a_tenants_to_change(platform_broker: BrokerUnderTest, key: str) -> None:
    reply = ask(platform_broker, RequestCode.UPDATE_BROKER_CONFIG, TENANT_ADMIN, body=f"{key}=1".encode())
    assert reply.code == ResponseCode.NO_PERMISSION
    assert platform_broker.config.leader_listen_port == 0


def test_the_leaders_port_is_among_them() -> None:
    assert "leaderListenPort" in HOT_KEYS - TENANTS_HOT_KEYS


def test_a_tenant_changes_keys_of_its_topics(platform_broker: BrokerUnderTest) -> None:
    body = b"autoCreateTopicEnable=false"
    assert ask(platform_broker, RequestCode.UPDATE_BROKER_CONFIG, TENANT_ADMIN, body=body).code == ResponseCode.SUCCESS
    assert not platform_broker.config.auto_create_topic_enable


def test_the_control_plane_changes_every_hot_key(platform_broker: BrokerUnderTest) -> None:
    body = b"maxTransferCountOnMessageInMemory=16"
    assert ask(platform_broker, RequestCode.UPDATE_BROKER_CONFIG, PLATFORM, body=body).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("access_key", [PLATFORM.access_key, TENANT_ADMIN.access_key])
def test_no_request_of_a_tenant_deletes_or_changes_an_account(
    platform_broker: BrokerUnderTest, access_key: str
) -> None:
    delete = DeleteAccessConfigRequestHeader(access_key=access_key)
    change = CreateAccessConfigRequestHeader(access_key=access_key, secret_key="another-secret", admin=True)
    before = dict(platform_broker.access_control.accounts)
    assert ask(platform_broker, RequestCode.DELETE_ACL_CONFIG, TENANT_ADMIN, header=delete).code != 0
    assert ask(platform_broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, TENANT_ADMIN, header=change).code != 0
    assert dict(platform_broker.access_control.accounts) == before


def test_the_infrastructures_account_is_changed_by_no_request_at_all(platform_broker: BrokerUnderTest) -> None:
    delete = DeleteAccessConfigRequestHeader(access_key=PLATFORM.access_key)
    change = CreateAccessConfigRequestHeader(access_key=PLATFORM.access_key, secret_key="another-secret")
    for code, header in ((RequestCode.DELETE_ACL_CONFIG, delete), (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, change)):
        reply = ask(platform_broker, code, PLATFORM, header=header)
        assert reply.code == ResponseCode.INVALID_PARAMETER
        assert "infrastructure" in (reply.remark or "")
    assert platform_broker.access_control.accounts[PLATFORM.access_key].secret_key == PLATFORM.secret_key


def test_no_request_makes_an_account_the_infrastructures(platform_broker: BrokerUnderTest) -> None:
    fields = {"accessKey": "another-key", "secretKey": "another-secret", "infrastructure": "true"}
    ask(platform_broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, PLATFORM, fields=fields)
    assert not platform_broker.access_control.accounts["another-key"].infrastructure


def answer(broker: BrokerUnderTest, code: int, *, has_certificate: bool, body: bytes = b"") -> RemotingCommand:
    """The answer to the infrastructure's own request."""
    peer = RecordingPeer()
    peer.has_certificate = has_certificate
    return broker.answer(signed(code, PLATFORM, version=2, body=body), peer)


def test_the_infrastructures_key_rules_nothing_of_the_machine_without_a_certificate(
    asking_broker: BrokerUnderTest,
) -> None:
    replies = [answer(asking_broker, code, has_certificate=False) for code in MACHINE_CODES]
    assert {reply.code for reply in replies} == {ResponseCode.NO_PERMISSION}
    assert all("takes a certificate of this cluster's CA" in (reply.remark or "") for reply in replies)
    body = b"maxTransferCountOnMessageInMemory=16"
    reply = answer(asking_broker, RequestCode.UPDATE_BROKER_CONFIG, has_certificate=False, body=body)
    assert reply.code == ResponseCode.NO_PERMISSION


def test_without_a_certificate_it_reads_the_metering_as_the_jobs_do(asking_broker: BrokerUnderTest) -> None:
    asking_broker.create_topic(RMQ_SYS_METERING, queues=1)
    fields = {"topic": RMQ_SYS_METERING, "queueId": "0"}
    for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
        assert asking_broker.answer(signed(code, PLATFORM, fields, version=2)).code == ResponseCode.SUCCESS
    fields |= {"consumerGroup": "jobs", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "subVersion": "0"}
    fields |= {"suspendTimeoutMillis": "0", "subscription": "*", "commitOffset": "0"}
    pulled = asking_broker.answer(signed(RequestCode.PULL_MESSAGE, PLATFORM, fields, version=2))
    assert pulled.code != ResponseCode.NO_PERMISSION
    sent = {**SEND_FIELDS, "b": RMQ_SYS_METERING}
    forged = asking_broker.answer(signed(RequestCode.SEND_MESSAGE_V2, PLATFORM, sent, body=b"forged", version=2))
    assert forged.code == ResponseCode.NO_PERMISSION


def test_with_a_certificate_it_does(asking_broker: BrokerUnderTest) -> None:
    accounts = answer(asking_broker, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, has_certificate=True)
    body = b"maxTransferCountOnMessageInMemory=16"
    configured = answer(asking_broker, RequestCode.UPDATE_BROKER_CONFIG, has_certificate=True, body=body)
    assert (accounts.code, configured.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)


def test_a_certificate_stands_in_for_no_account(asking_broker: BrokerUnderTest) -> None:
    peer = RecordingPeer()
    peer.has_certificate = True
    for code in MACHINE_CODES:
        assert asking_broker.answer(RemotingCommand.request(code), peer).code == ResponseCode.NO_PERMISSION
        assert asking_broker.answer(signed(code, TENANT_ADMIN), peer).code == ResponseCode.NO_PERMISSION


def test_a_tenants_keys_need_no_certificate(asking_broker: BrokerUnderTest) -> None:
    asking_broker.create_topic("orders")
    fields = {**SEND_FIELDS, "b": "orders"}
    assert ask(asking_broker, RequestCode.SEND_MESSAGE_V2, PROGRAM, fields=fields, body=b"x").code == 0
    assert ask(asking_broker, RequestCode.GET_BROKER_CONFIG, TENANT_ADMIN).code == 0


def test_a_file_keeps_its_infrastructure_account_through_a_change(platform_broker: BrokerUnderTest) -> None:
    header = CreateAccessConfigRequestHeader(access_key="another-key", secret_key="another-secret")
    assert ask(platform_broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, PLATFORM, header=header).code == 0
    platform_broker.crash()
    assert platform_broker.access_control.accounts[PLATFORM.access_key].infrastructure


@pytest.mark.parametrize("topic", [RMQ_SYS_EPOCH, RMQ_SYS_METERING, RMQ_SYS_PROBE, "rmq_sys_anything"])
def test_a_tenants_admin_key_writes_to_no_topic_of_the_brokers_own(
    platform_broker: BrokerUnderTest, topic: str
) -> None:
    fields = {**SEND_FIELDS, "b": topic}
    reply = ask(platform_broker, RequestCode.SEND_MESSAGE_V2, TENANT_ADMIN, fields=fields, body=b"forged")
    assert reply.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("topic", [RMQ_SYS_METERING, RMQ_SYS_METADATA, RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_PROBE])
@pytest.mark.parametrize("code", WRITERS_OF_OFFSETS)
def test_a_tenants_admin_key_writes_no_offset_in_a_topic_of_the_brokers_own(
    platform_broker: BrokerUnderTest, topic: str, code: int
) -> None:
    platform_broker.broker.topic_configs.put(
        TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6)
    )
    platform_broker.create_group("g")
    fields = {"topic": topic, "group": "g", "consumerGroup": "g", "queueId": "0", "commitOffset": "0", "offset": "0"}
    fields |= {"timestamp": "-1", "isForce": "true", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "5"}
    fields |= {"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"}
    ask(platform_broker, code, TENANT_ADMIN, fields=fields)
    assert platform_broker.broker.consumer_offsets.query_all(topic, "g") == {}


def test_a_tenants_admin_key_makes_topics_and_sends(platform_broker: BrokerUnderTest) -> None:
    header = CreateTopicRequestHeader(
        topic="orders",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    assert ask(platform_broker, RequestCode.UPDATE_AND_CREATE_TOPIC, TENANT_ADMIN, header=header).code == 0
    fields = {**SEND_FIELDS, "b": "orders"}
    assert ask(platform_broker, RequestCode.SEND_MESSAGE_V2, TENANT_ADMIN, fields=fields, body=b"x").code == 0


def test_without_an_infrastructure_account_an_administrator_rules_all_as_in_rocketmq(
    make_acl_broker: MakeAclBroker,
) -> None:
    broker = make_acl_broker(STANDALONE_ACCOUNTS)
    header = CreateAccessConfigRequestHeader(access_key="another-key", secret_key="another-secret")
    assert ask(broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, STANDALONE_ADMIN, header=header).code == 0


def test_a_deleted_accounts_secret_is_in_no_file(platform_broker: BrokerUnderTest) -> None:
    header = DeleteAccessConfigRequestHeader(access_key=PROGRAM.access_key)
    assert ask(platform_broker, RequestCode.DELETE_ACL_CONFIG, PLATFORM, header=header).code == 0
    path = platform_broker.access_control.path
    for name in (path, path + ".bak"):
        with open(name, encoding="utf-8") as file:
            assert PROGRAM.secret_key not in file.read(), name


def test_a_file_that_was_written_counts_when_its_version_is_answered(platform_broker: BrokerUnderTest) -> None:
    path = platform_broker.access_control.path
    with open(path, "a", encoding="utf-8") as file:
        file.write("  - {accessKey: added-by-hand, secretKey: added-secret}\n")
    assert ask(platform_broker, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, PLATFORM).code == 0
    assert "added-by-hand" in platform_broker.access_control.accounts
