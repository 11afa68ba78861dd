"""Requests in, answers out: every code that the name server serves, without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import (
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from mqwire.codes import RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader
from mqwire.headers_broker import GetBrokerMemberGroupRequestHeader
from mqwire.headers_namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from mqwire.headers_topic import GetTopicsByClusterRequestHeader
from mqwire.message import body_crc
from mqwire.properties import parse_properties
from namesrvd.acl import Accounts
from namesrvd.config import NamesrvConfig
from namesrvd.kv_config import KVConfigManager
from namesrvd.processor import LISTING_CODES, OPEN_CODES, Outcome, Processor
from namesrvd.route_info import RouteInfoManager

BROKER: dict[str, Any] = {"cluster_name": "c", "broker_name": "a", "broker_addr": "10.0.0.1:10911"}
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
        topic_config_table={name: TopicConfig(topic_name=name) for name in ("orders", "TBW102")},
        data_version=DataVersion(counter=1),
    )
)


@dataclass
class NameServer:
    """A processor with all that belongs to it, and a clock."""

    config: NamesrvConfig = field(default_factory=NamesrvConfig)
    accounts: Accounts | None = None
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        self.routes = RouteInfoManager(lambda: self.now_ms)
        self.kv = KVConfigManager()
        self.processor = Processor(
            self.config, self.routes, self.kv, accounts=self.accounts, clock_ms=lambda: self.now_ms
        )

    def outcome(self, request: RemotingCommand, channel: int = 1) -> Outcome:
        outcome = self.processor.process(channel, request)
        assert outcome is not None
        return outcome

    def ask(self, code: int, header: CustomHeader | None = None, body: bytes = b"") -> RemotingCommand:
        request = RemotingCommand.request(code, header, body=body)
        reply = self.outcome(request).reply
        assert reply is not None
        assert reply.opaque == request.opaque
        assert reply.is_response
        return reply

    def register(self, *, broker_id: int = 0, epoch: int | None = None, body: bytes | None = None) -> RemotingCommand:
        return self.ask(
            RequestCode.REGISTER_BROKER,
            RegisterBrokerRequestHeader(**BROKER, ha_server_addr="10.0.0.1:10912", broker_id=broker_id, epoch=epoch),
            BODY.encode() if body is None else body,
        )


@pytest.fixture
def server() -> NameServer:
    return NameServer()


def route_of(server: NameServer, topic: str = "orders") -> TopicRouteData | None:
    reply = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    return TopicRouteData.from_json(reply.body) if reply.code == ResponseCode.SUCCESS else None


def test_an_unknown_code_is_not_supported(server: NameServer) -> None:
    for code in (0, 10, 9999, -1, 32767):
        reply = server.ask(code)
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert str(code) in (reply.remark or "")


def test_a_response_is_not_answered(server: NameServer) -> None:
    assert server.processor.process(1, RemotingCommand.request(105).reply()) is None


def test_a_oneway_request_is_served_but_not_answered(server: NameServer) -> None:
    request = RemotingCommand.request(
        RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key="k", value="v"), oneway=True
    )
    outcome = server.outcome(request)
    assert outcome.reply is None
    assert outcome.kv_changed
    assert server.kv.get("n", "k") == "v"


@pytest.mark.parametrize("kind", list(SerializeType))
def test_an_answer_has_its_requests_kind_of_header(server: NameServer, kind: SerializeType) -> None:
    request = RemotingCommand.request(105, GetRouteInfoRequestHeader(topic="x"), serialize_type=kind)
    reply = server.outcome(request).reply
    assert reply is not None
    assert reply.serialize_type == kind


def test_a_missing_field_is_named(server: NameServer) -> None:
    reply = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "GetRouteInfoRequestHeader" in (reply.remark or "")
    assert "topic" in (reply.remark or "")


# --- routes -----------------------------------------------------------------------------------------------------------


def test_a_missing_route_is_reported_in_rocketmqs_words_with_the_way_out(server: NameServer) -> None:
    reply = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders"))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert (reply.remark or "").startswith("No topic route info in name server for the topic: orders\n")
    assert "Create the topic first" in (reply.remark or "")


def test_a_registered_brokers_topics_are_routed(server: NameServer) -> None:
    assert server.register().code == ResponseCode.SUCCESS
    route = route_of(server)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}


def test_a_name_server_that_waits_says_that_it_is_not_ready() -> None:
    server = NameServer(NamesrvConfig(need_wait_for_service=True, wait_seconds_for_service=45))
    server.register()
    reply = server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders"))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "not ready" in (reply.remark or "")
    server.now_ms = 45_000
    assert route_of(server) is not None


@pytest.mark.parametrize(("enabled", "reported"), [(True, "a:4"), (False, None)])
def test_the_order_of_a_topic_is_reported_only_where_enabled(enabled: bool, reported: str | None) -> None:
    server = NameServer(NamesrvConfig(order_message_enable=enabled))
    server.register()
    server.kv.put("ORDER_TOPIC_CONFIG", "orders", "a:4")
    route = route_of(server)
    assert route is not None
    assert route.order_topic_conf == reported


# --- registration -----------------------------------------------------------------------------------------------------


def test_a_registered_broker_is_trusted(server: NameServer) -> None:
    header = RegisterBrokerRequestHeader(**BROKER, ha_server_addr="", broker_id=0)
    assert server.outcome(RemotingCommand.request(103, header, body=BODY.encode())).trusted
    assert not server.outcome(RemotingCommand.request(105, GetRouteInfoRequestHeader(topic="orders"))).trusted


def test_a_compressed_registration_counts(server: NameServer) -> None:
    header = RegisterBrokerRequestHeader(**BROKER, ha_server_addr="", broker_id=0, compressed=True)
    assert server.ask(RequestCode.REGISTER_BROKER, header, BODY.encode(compress=True)).code == ResponseCode.SUCCESS
    assert route_of(server) is not None


def test_a_registration_without_body_registers_the_broker_alone(server: NameServer) -> None:
    assert server.register(body=b"").code == ResponseCode.SUCCESS
    assert route_of(server) is None
    info = ClusterInfo.from_json(server.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert set(info.broker_addr_table) == {"a"}


@pytest.mark.parametrize(("change", "code"), [(0, ResponseCode.SUCCESS), (1, ResponseCode.SYSTEM_ERROR)])
def test_a_bodys_checksum_is_checked(server: NameServer, change: int, code: ResponseCode) -> None:
    body = BODY.encode()
    header = RegisterBrokerRequestHeader(**BROKER, ha_server_addr="", broker_id=0, body_crc32=body_crc(body) ^ change)
    assert server.ask(RequestCode.REGISTER_BROKER, header, body).code == code


def test_a_slave_gets_its_masters_address(server: NameServer) -> None:
    server.register()
    reply = server.ask(
        RequestCode.REGISTER_BROKER,
        RegisterBrokerRequestHeader(
            cluster_name="c", broker_name="a", broker_addr="10.0.0.2:1", ha_server_addr="", broker_id=1
        ),
        BODY.encode(),
    )
    assert reply.header(RegisterBrokerResponseHeader) == RegisterBrokerResponseHeader(
        ha_server_addr="10.0.0.1:10912", master_addr="10.0.0.1:10911"
    )


def test_a_broker_gets_the_ordered_topics(server: NameServer) -> None:
    assert server.register().body == b""
    server.kv.put("ORDER_TOPIC_CONFIG", "orders", "a:4")
    assert KVTable.from_json(server.register().body).table == {"orders": "a:4"}


def test_a_lower_epoch_is_fenced(server: NameServer) -> None:
    assert server.register(epoch=3).code == ResponseCode.SUCCESS
    reply = server.register(epoch=2)
    assert reply.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert "epoch 3" in (reply.remark or "")
    assert reply.header(RegisterBrokerResponseHeader).epoch == 3


BAD_IDENTITIES = [
    {"broker_addr": "10.0.0.1"},
    {"broker_addr": '10.0.0.1:1","1":"evil:2'},
    {"broker_addr": "a,b:1"},
    {"broker_addr": ""},
    {"broker_name": ""},
    {"broker_name": "a b"},
    {"broker_name": "x" * 256},
    {"broker_name": "a\nb"},
    {"cluster_name": 'c"'},
    {"broker_id": -1},
]


@pytest.mark.parametrize("change", BAD_IDENTITIES)
def test_names_that_clients_could_not_use_are_refused(server: NameServer, change: dict[str, str | int]) -> None:
    header = RegisterBrokerRequestHeader(**{**BROKER, "ha_server_addr": "", "broker_id": 0, **change})
    assert server.ask(RequestCode.REGISTER_BROKER, header, BODY.encode()).code == ResponseCode.SYSTEM_ERROR
    assert server.routes.all_cluster_info().broker_addr_table == {}


@pytest.mark.parametrize("body", [b"{", b"[]", b"\x00" * 10, b'{"topicConfigSerializeWrapper":1}'])
def test_a_damaged_registration_changes_nothing(server: NameServer, body: bytes) -> None:
    server.register()
    assert server.register(body=body).code == ResponseCode.SYSTEM_ERROR
    assert route_of(server) is not None


def test_unregistering_ends_the_route(server: NameServer) -> None:
    server.register()
    header = UnRegisterBrokerRequestHeader(**BROKER, broker_id=0)
    assert server.ask(RequestCode.UNREGISTER_BROKER, header).code == ResponseCode.SUCCESS
    assert route_of(server) is None
    assert server.ask(RequestCode.UNREGISTER_BROKER, header).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("broker_id", [0, None])
def test_heartbeats_are_taken_from_registered_brokers_only(server: NameServer, broker_id: int | None) -> None:
    header = BrokerHeartbeatRequestHeader(**BROKER, broker_id=broker_id)
    assert server.ask(RequestCode.BROKER_HEARTBEAT, header).code == ResponseCode.BROKER_NOT_EXIST
    server.register()
    assert server.ask(RequestCode.BROKER_HEARTBEAT, header).code == ResponseCode.SUCCESS


def test_a_data_version_is_compared_and_counts_as_a_sign_of_life(server: NameServer) -> None:
    header = QueryDataVersionRequestHeader(**BROKER, broker_id=0)
    unknown = server.ask(RequestCode.QUERY_DATA_VERSION, header, DataVersion(counter=1).to_json())
    assert unknown.header(QueryDataVersionResponseHeader).changed
    assert unknown.body == b""
    server.register()
    server.now_ms += 100_000
    same = server.ask(RequestCode.QUERY_DATA_VERSION, header, DataVersion(counter=1).to_json())
    assert not same.header(QueryDataVersionResponseHeader).changed
    assert DataVersion.from_json(same.body) == DataVersion(counter=1)
    server.now_ms += 100_000
    assert server.routes.scan_not_active_brokers() == []


# --- lists, topics, permissions -----------------------------------------------------------------------------------


def test_lists_are_reported(server: NameServer) -> None:
    server.register()
    all_topics = server.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    of_cluster = server.ask(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster="c"))
    system = server.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert TopicList.from_json(all_topics.body).topic_list == ["TBW102", "orders"]
    assert TopicList.from_json(of_cluster.body).topic_list == ["TBW102", "orders"]
    assert TopicList.from_json(system.body) == TopicList(topic_list=["a", "c"], broker_addr="10.0.0.1:10911")


def test_lists_can_be_disabled() -> None:
    server = NameServer(NamesrvConfig(enable_all_topic_list=False, enable_topic_list=False))
    for code, header in (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
        (RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader(cluster="c")),
    ):
        reply = server.ask(code, header)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert (reply.remark or "").startswith("disable")


def test_a_groups_members_are_reported(server: NameServer) -> None:
    server.register()
    reply = server.ask(
        RequestCode.GET_BROKER_MEMBER_GROUP, GetBrokerMemberGroupRequestHeader(cluster_name="c", broker_name="a")
    )
    group = GetBrokerMemberGroupResponseBody.from_json(reply.body).broker_member_group
    assert group == BrokerMemberGroup(cluster="c", broker_name="a", broker_addrs={0: "10.0.0.1:10911"})


def test_write_permission_is_wiped_and_added(server: NameServer) -> None:
    server.register()
    wiped = server.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader(broker_name="a"))
    assert wiped.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count == 2
    route = route_of(server)
    assert route is not None
    assert route.queue_datas[0].perm == 4
    added = server.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader(broker_name="a"))
    assert added.header(AddWritePermOfBrokerResponseHeader).add_topic_count == 2


def test_a_topic_is_deleted_and_registered(server: NameServer) -> None:
    server.register()
    header = DeleteTopicFromNamesrvRequestHeader(topic="orders", cluster_name="c")
    assert server.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, header).code == ResponseCode.SUCCESS
    assert route_of(server) is None
    queues = [QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2, perm=6)]
    reply = server.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RegisterTopicRequestHeader(topic="orders"),
        TopicRouteData(queue_datas=queues).to_json(),
    )
    assert reply.code == ResponseCode.SUCCESS
    assert route_of(server) is not None


def test_a_topic_of_an_unknown_broker_is_not_registered(server: NameServer) -> None:
    queues = [QueueData(broker_name="x", read_queue_nums=2, write_queue_nums=2, perm=6)]
    body = TopicRouteData(queue_datas=queues).to_json()
    reply = server.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, RegisterTopicRequestHeader(topic="orders"), body)
    assert reply.code == ResponseCode.SYSTEM_ERROR


# --- KV configuration -------------------------------------------------------------------------------------------------


def test_values_are_put_read_listed_and_deleted(server: NameServer) -> None:
    put = RemotingCommand.request(100, PutKVConfigRequestHeader(namespace="n", key="k", value="v"))
    assert server.outcome(put).kv_changed
    read = server.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="n", key="k"))
    assert read.header(GetKVConfigResponseHeader).value == "v"
    listed = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="n"))
    assert KVTable.from_json(listed.body).table == {"k": "v"}
    delete = RemotingCommand.request(102, DeleteKVConfigRequestHeader(namespace="n", key="k"))
    assert server.outcome(delete).kv_changed
    assert not server.outcome(delete).kv_changed


def test_missing_values_are_reported_in_rocketmqs_words(server: NameServer) -> None:
    one = server.ask(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace="n", key="k"))
    every = server.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader(namespace="n"))
    assert (one.code, one.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n Key: k")
    assert (every.code, every.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n")


def test_the_kv_configuration_cannot_be_filled_up(server: NameServer) -> None:
    value = "x" * 1_000_000
    codes = [
        server.ask(
            RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace="n", key=str(number), value=value)
        ).code
        for number in range(6)
    ]
    assert codes[0] == ResponseCode.SUCCESS
    assert codes[-1] == ResponseCode.SYSTEM_ERROR


def test_the_configuration_is_answered_as_properties(server: NameServer) -> None:
    reply = server.ask(RequestCode.GET_NAMESRV_CONFIG)
    values = {entry.key: entry.value for entry in parse_properties(bytes(reply.body))}
    assert values["listenPort"] == "9876"
    assert values["orderMessageEnable"] == "false"


# --- administrators -----------------------------------------------------------------------------------------------


ADMIN = SessionCredentials("root", "rootsecret")
TENANT = SessionCredentials("tenant", "tenantsecret")
ACL_FILE = """
accounts:
  - accessKey: root
    secretKey: rootsecret
    admin: true
  - accessKey: tenant
    secretKey: tenantsecret
    admin: false
"""


@pytest.fixture
def guarded(tmp_path: Path) -> NameServer:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACL_FILE)
    return NameServer(accounts=Accounts(str(path)))


def request_of(code: int) -> RemotingCommand:
    """A well-formed request of each code."""
    every = {
        **BROKER, "broker_id": "0", "topic": "orders", "cluster": "c", "namespace": "n", "key": "k", "value": "v",
        "haServerAddr": "", "clusterName": "c", "brokerName": "a", "brokerAddr": "10.0.0.1:10911", "brokerId": "0",
    }  # fmt: skip
    bodies = {
        RequestCode.REGISTER_BROKER: BODY.encode(),
        RequestCode.QUERY_DATA_VERSION: DataVersion().to_json(),
        RequestCode.REGISTER_TOPIC_IN_NAMESRV: TopicRouteData().to_json(),
    }
    return RemotingCommand.request(code, ext_fields=every, body=bodies.get(RequestCode(code), b""))


SIGNERS = [
    pytest.param(None, False, id="nobody"),
    pytest.param(SessionCredentials("root", "wrong"), False, id="wrong secret"),
    pytest.param(SessionCredentials("unknown", "rootsecret"), False, id="unknown key"),
    pytest.param(TENANT, False, id="no administrator"),
    pytest.param(ADMIN, True, id="administrator"),
]


@pytest.mark.parametrize(("signer", "allowed"), SIGNERS)
def test_only_administrators_change_anything(
    guarded: NameServer, signer: SessionCredentials | None, allowed: bool
) -> None:
    for code in sorted(guarded.processor.codes):
        request = request_of(code)
        if signer is not None:
            sign_request(request, signer)
        outcome = guarded.outcome(request)
        assert outcome.reply is not None
        refused = outcome.reply.code == ResponseCode.NO_PERMISSION
        may_list = code in LISTING_CODES and signer in (ADMIN, TENANT)
        assert refused is not (allowed or may_list or code in OPEN_CODES), code
        changes = code not in OPEN_CODES | LISTING_CODES
        assert outcome.trusted is (allowed and changes and outcome.reply.code == ResponseCode.SUCCESS), code
    if not allowed:
        assert guarded.routes.all_cluster_info().broker_addr_table == {}
        assert guarded.kv.get("n", "k") is None


def test_unknown_keys_and_wrong_secrets_look_alike(guarded: NameServer) -> None:
    remarks = set()
    for signer in (SessionCredentials("root", "wrong"), SessionCredentials("nobody", "x"), TENANT):
        request = request_of(RequestCode.PUT_KV_CONFIG)
        sign_request(request, signer)
        reply = guarded.outcome(request).reply
        assert reply is not None
        remarks.add(reply.remark)
    assert len(remarks) == 1


def test_unknown_codes_stay_unknown_whoever_asks(guarded: NameServer) -> None:
    assert guarded.ask(9999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
