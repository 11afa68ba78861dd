"""The registry under a clock that the test turns."""

from __future__ import annotations

import pytest

from mqwire.bodies import (
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from mqwire.codes import ResponseCode
from namesrvd.route_info import BrokerIdentity, RegisterBrokerResult, RegistrationRefused, RouteInfoManager

EXPIRED_MS = 120_000
SYSTEM_TOPICS = ("TBW102", "SELF_TEST_TOPIC")


class Clock:
    def __init__(self) -> None:
        self.now_ms = 5_000.0

    def __call__(self) -> float:
        return self.now_ms


def broker(name: str = "a", broker_id: int = 0, *, cluster: str = "c", port: int | None = None) -> BrokerIdentity:
    return BrokerIdentity(
        cluster, name, broker_id, f"10.0.0.{ord(name[0]) % 100}:{10911 + broker_id if port is None else port}"
    )


def topics(*names: str, version: int = 1, perm: int = 6, queues: int = 4) -> TopicConfigAndMappingSerializeWrapper:
    configs = {
        name: TopicConfig(topic_name=name, perm=perm, read_queue_nums=queues, write_queue_nums=queues)
        for name in (*names, *SYSTEM_TOPICS)
    }
    return TopicConfigAndMappingSerializeWrapper(topic_config_table=configs, data_version=DataVersion(counter=version))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> RouteInfoManager:
    return RouteInfoManager(clock)


def addresses(routes: RouteInfoManager, topic: str = "orders") -> dict[str, dict[int, str]] | None:
    route = routes.pickup_topic_route_data(topic)
    return None if route is None else {data.broker_name: data.broker_addrs for data in route.broker_datas}


def perms(routes: RouteInfoManager, topic: str = "orders") -> dict[str, int]:
    route = routes.pickup_topic_route_data(topic)
    return {} if route is None else {queue.broker_name: queue.perm for queue in route.queue_datas}


# --- registering -----------------------------------------------------------------------------------------------------


def test_a_fresh_name_server_knows_no_route(routes: RouteInfoManager) -> None:
    assert routes.pickup_topic_route_data("orders") is None
    assert routes.all_topic_list().topic_list == []
    assert routes.all_cluster_info().cluster_addr_table == {}


def test_a_registered_topic_has_a_route(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("b"), topics("orders", queues=8, perm=4), channel=2)
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.queue_datas == [
        QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6),
        QueueData(broker_name="b", read_queue_nums=8, write_queue_nums=8, perm=4),
    ]
    assert addresses(routes) == {"a": {0: "10.0.0.97:10911"}, "b": {0: "10.0.0.98:10911"}}


def test_a_topic_is_not_routed_to_brokers_that_do_not_have_it(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("b"), topics("paid"), channel=2)
    assert set(addresses(routes) or {}) == {"a"}


def test_slaves_stand_beside_their_master_in_the_order_of_their_ids(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 2), topics("orders"), channel=1)
    routes.register_broker(broker("a", 0), topics("orders"), channel=2)
    routes.register_broker(broker("a", 1), topics("orders"), channel=3)
    assert list((addresses(routes) or {})["a"]) == [0, 1, 2]


def test_a_slave_gets_its_masters_address(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0), topics("orders"), channel=1, ha_server_addr="10.0.0.97:10912")
    answer = routes.register_broker(broker("a", 1), topics("orders"), channel=2)
    assert answer == RegisterBrokerResult(ha_server_addr="10.0.0.97:10912", master_addr="10.0.0.97:10911")


def test_a_master_and_a_slave_without_master_get_no_address(routes: RouteInfoManager) -> None:
    assert routes.register_broker(broker("a", 1), topics("orders"), channel=2) == RegisterBrokerResult()
    assert routes.register_broker(broker("a", 0), topics("orders"), channel=1) == RegisterBrokerResult()


def test_registering_twice_changes_nothing(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    before = routes.pickup_topic_route_data("orders")
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    assert routes.pickup_topic_route_data("orders") == before


def test_a_new_version_brings_new_queues(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("a"), topics("orders", version=2, queues=16), channel=1)
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 16


def test_a_slaves_topics_do_not_count_beside_its_master(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0), topics("orders"), channel=1)
    routes.register_broker(broker("a", 1), topics("orders", "stale"), channel=2)
    assert routes.pickup_topic_route_data("stale") is None


def test_a_slaves_topics_count_while_there_is_no_master(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 1), topics("orders"), channel=1)
    assert addresses(routes) == {"a": {1: "10.0.0.97:10912"}}


def test_a_single_topic_of_an_unknown_broker_is_refused(routes: RouteInfoManager) -> None:
    single = TopicConfigAndMappingSerializeWrapper(topic_config_table={"t": TopicConfig(topic_name="t")})
    with pytest.raises(RegistrationRefused, match="all topics first") as caught:
        routes.register_broker(broker("a"), single, channel=1)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert routes.all_cluster_info().broker_addr_table == {}


def test_a_single_topic_of_a_known_broker_is_added(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    single = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={"t": TopicConfig(topic_name="t")}, data_version=DataVersion(counter=2)
    )
    routes.register_broker(broker("a"), single, channel=1)
    assert {"t", "orders"} <= set(routes.all_topic_list().topic_list)


@pytest.mark.parametrize(("delete", "left"), [(False, True), (True, False)])
def test_absent_topics_are_deleted_only_where_asked_for(clock: Clock, delete: bool, left: bool) -> None:
    routes = RouteInfoManager(clock, delete_topic_with_broker_registration=delete)
    routes.register_broker(broker("a"), topics("orders", "gone"), channel=1)
    routes.register_broker(broker("b"), topics("gone"), channel=2)
    routes.register_broker(broker("a"), topics("orders", version=2), channel=1)
    assert ("a" in (addresses(routes, "gone") or {})) is left
    assert "b" in (addresses(routes, "gone") or {})


def test_a_group_name_of_another_cluster_is_refused(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", cluster="c"), topics("orders"), channel=1)
    with pytest.raises(RegistrationRefused, match="belongs to cluster c"):
        routes.register_broker(broker("a", cluster="d", port=1), topics("orders"), channel=2)


def test_static_topics_are_reported(routes: RouteInfoManager) -> None:
    info = TopicQueueMappingInfo(topic="orders", bname="a", total_queues=4)
    wrapper = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=topics("orders").topic_config_table, topic_queue_mapping_info_map={"orders": info}
    )
    routes.register_broker(broker("a"), wrapper, channel=1)
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": info}


def test_filter_servers_are_reported_by_address(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1, filter_servers=["10.0.0.9:1"])
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.filter_server_table == {"10.0.0.97:10911": ["10.0.0.9:1"]}


# --- data versions -----------------------------------------------------------------------------------------------------


def test_an_unknown_broker_should_register(routes: RouteInfoManager) -> None:
    assert routes.is_broker_topic_config_changed("c", "10.0.0.97:10911", DataVersion())
    assert routes.data_version_of("c", "10.0.0.97:10911") is None


def test_a_broker_should_register_when_its_version_differs(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders", version=3), channel=1)
    assert not routes.is_broker_topic_config_changed("c", "10.0.0.97:10911", DataVersion(counter=3))
    assert routes.is_broker_topic_config_changed("c", "10.0.0.97:10911", DataVersion(counter=4))
    assert routes.is_broker_topic_config_changed("c", "10.0.0.97:10911", DataVersion(counter=3, timestamp=1))


def test_an_older_state_version_does_not_take_an_id_over(routes: RouteInfoManager) -> None:
    newer = TopicConfigAndMappingSerializeWrapper(
        topic_config_table=topics("orders").topic_config_table, data_version=DataVersion(state_version=2)
    )
    routes.register_broker(broker("a"), newer, channel=1)
    with pytest.raises(RegistrationRefused, match="newer state version 2"):
        routes.register_broker(broker("a", port=99), topics("orders"), channel=2)
    assert addresses(routes) == {"a": {0: "10.0.0.97:10911"}}


# --- silence and closed connections -----------------------------------------------------------------------------------


def test_a_silent_broker_lives_for_exactly_120_seconds(routes: RouteInfoManager, clock: Clock) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel="one")
    clock.now_ms += EXPIRED_MS
    assert routes.scan_not_active_brokers() == []
    assert addresses(routes) is not None
    clock.now_ms += 1
    assert routes.scan_not_active_brokers() == ["one"]
    assert addresses(routes) is None


def test_every_sign_of_life_counts_again(routes: RouteInfoManager, clock: Clock) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    for _ in range(5):
        clock.now_ms += EXPIRED_MS - 1
        routes.heartbeat(broker("a"))
        assert routes.scan_not_active_brokers() == []
        clock.now_ms += EXPIRED_MS - 1
        assert routes.touch("c", "10.0.0.97:10911")
        assert routes.scan_not_active_brokers() == []
        clock.now_ms += EXPIRED_MS - 1
        routes.register_broker(broker("a"), topics("orders"), channel=1)
        assert routes.scan_not_active_brokers() == []


def test_a_broker_may_ask_for_another_patience(routes: RouteInfoManager, clock: Clock) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1, heartbeat_timeout_ms=10_000)
    clock.now_ms += 10_001
    assert routes.scan_not_active_brokers() == [1]


@pytest.mark.parametrize("asked_ms", [-1, 0, 2**63 - 1])
def test_patience_has_bounds(routes: RouteInfoManager, clock: Clock, asked_ms: int) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1, heartbeat_timeout_ms=asked_ms)
    clock.now_ms += 50
    assert routes.scan_not_active_brokers() == []
    clock.now_ms += 3_600_001
    assert routes.scan_not_active_brokers() == [1]


def test_the_end_of_the_master_leaves_the_slaves_route(routes: RouteInfoManager, clock: Clock) -> None:
    routes.register_broker(broker("a", 0), topics("orders"), channel=1)
    clock.now_ms += 60_000
    routes.register_broker(broker("a", 1), topics("orders"), channel=2)
    clock.now_ms += 60_001
    assert routes.scan_not_active_brokers() == [1]
    assert addresses(routes) == {"a": {1: "10.0.0.97:10912"}}


def test_the_end_of_a_groups_last_broker_ends_its_topics(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("b"), topics("orders", "paid"), channel=2)
    assert routes.unregister_broker(broker("b"))
    assert set(addresses(routes) or {}) == {"a"}
    assert routes.pickup_topic_route_data("paid") is None
    assert routes.all_cluster_info().cluster_addr_table == {"c": ["a"]}
    assert routes.unregister_broker(broker("a"))
    assert routes.all_topic_list().topic_list == []
    assert routes.all_cluster_info().cluster_addr_table == {}


def test_unregistering_an_unknown_broker_changes_nothing(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    assert not routes.unregister_broker(broker("b"))
    assert not routes.unregister_broker(broker("a", port=1))
    assert not routes.unregister_broker(broker("a", cluster="d"))
    assert addresses(routes) is not None


def test_a_closed_connection_takes_its_brokers_with_it(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("b"), topics("orders"), channel=2)
    assert routes.on_channel_closed(1) == [broker("a")]
    assert set(addresses(routes) or {}) == {"b"}


def test_a_closed_connection_takes_no_broker_that_came_back_over_another(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel="old")
    routes.register_broker(broker("a"), topics("orders"), channel="new")
    assert routes.on_channel_closed("old") == []
    assert addresses(routes) is not None
    assert routes.on_channel_closed("new") == [broker("a")]
    assert addresses(routes) is None


def test_a_heartbeat_of_an_unknown_broker_has_it_register(routes: RouteInfoManager) -> None:
    with pytest.raises(RegistrationRefused, match="register it first") as caught:
        routes.heartbeat(broker("a"))
    assert caught.value.code == ResponseCode.BROKER_NOT_EXIST


# --- roles and epochs -------------------------------------------------------------------------------------------------


def test_a_slave_that_became_master_stands_there_once(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 1, port=7), topics("orders"), channel=1)
    routes.register_broker(broker("a", 0, port=7), topics("orders"), channel=1)
    assert addresses(routes) == {"a": {0: "10.0.0.97:7"}}


def test_a_new_masters_topics_replace_the_former_masters(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders", queues=4), channel=1)
    routes.register_broker(broker("a", 1, port=2), topics("orders", queues=8), channel=2)
    routes.register_broker(broker("a", 0, port=2), topics("orders", queues=8), channel=2)
    route = routes.pickup_topic_route_data("orders")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 8


def test_a_displaced_masters_connection_ends_without_harm(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel="old")
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel="new")
    assert routes.on_channel_closed("old") == []
    assert addresses(routes) == {"a": {0: "10.0.0.97:2"}}


def test_a_renamed_broker_leaves_no_route_under_its_former_name(routes: RouteInfoManager) -> None:
    routes.register_broker(BrokerIdentity("c", "former", 0, "h:1"), topics("orders"), channel=1)
    routes.register_broker(BrokerIdentity("c", "later", 0, "h:1"), topics("orders"), channel=1)
    assert addresses(routes) == {"later": {0: "h:1"}}


def test_the_highest_epoch_is_kept(routes: RouteInfoManager) -> None:
    assert routes.highest_epoch("c", "a") is None
    routes.register_broker(broker("a", 0), topics("orders"), channel=1, epoch=4)
    routes.register_broker(broker("a", 1), topics("orders"), channel=2, epoch=3)
    assert routes.highest_epoch("c", "a") == 4
    assert routes.highest_epoch("c", "b") is None


@pytest.mark.parametrize("stale_epoch", [None, 0, 4])
def test_a_master_of_a_lower_epoch_is_refused(routes: RouteInfoManager, stale_epoch: int | None) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=4)
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2, epoch=5)
    with pytest.raises(RegistrationRefused, match="epoch 5 has begun") as caught:
        routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=stale_epoch)
    assert caught.value.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert addresses(routes) == {"a": {0: "10.0.0.97:2"}}


def test_a_former_master_may_come_back_as_slave(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2, epoch=5)
    routes.register_broker(broker("a", 1, port=1), topics("orders"), channel=1, epoch=4)
    assert addresses(routes) == {"a": {0: "10.0.0.97:2", 1: "10.0.0.97:1"}}


def test_a_master_that_learns_of_a_higher_epoch_by_refusal_is_routed_to_no_longer(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=4)
    routes.register_broker(broker("a", 1, port=2), topics("orders"), channel=2, epoch=5)
    with pytest.raises(RegistrationRefused):
        routes.heartbeat(broker("a", 0, port=1), epoch=4)
    assert addresses(routes) == {"a": {1: "10.0.0.97:2"}}


def test_epochs_survive_the_group(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2, epoch=5)
    routes.on_channel_closed(2)
    with pytest.raises(RegistrationRefused):
        routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=4)
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=6)


def test_one_address_for_whoever_leads_is_the_next_masters_whatever_the_former_one_says(
    routes: RouteInfoManager,
) -> None:
    routes.register_broker(broker("a", 0, port=9), topics("orders"), channel=1, epoch=4)
    routes.register_broker(broker("a", 0, port=9), topics("bills"), channel=2, epoch=5)
    with pytest.raises(RegistrationRefused, match="epoch 5 has begun"):
        routes.register_broker(broker("a", 0, port=9), topics("orders"), channel=1, epoch=4)
    routes.on_channel_closed(1)
    assert addresses(routes) == {"a": {0: "10.0.0.97:9"}}
    routes.on_channel_closed(2)
    assert addresses(routes) is None


def test_a_second_master_of_the_same_epoch_is_refused_and_the_first_is_kept(
    routes: RouteInfoManager, caplog: pytest.LogCaptureFixture
) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1, epoch=4)
    with pytest.raises(RegistrationRefused, match=r"in epoch 4, in which 10\.0\.0\.97:1 leads already") as caught:
        routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2, epoch=4)
    assert caught.value.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    assert "two masters of one epoch" in caplog.text
    assert addresses(routes) == {"a": {0: "10.0.0.97:1"}}
    routes.on_channel_closed(1)
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2, epoch=4)


def test_a_master_may_move_to_the_leader_port_within_its_epoch(routes: RouteInfoManager) -> None:
    def register(port: int, ha_port: int) -> None:
        identity = broker("a", 0, port=port)
        routes.register_broker(identity, topics("orders"), channel=1, epoch=4, ha_server_addr=f"h:{ha_port}")

    register(1, 11)
    register(9, 11)
    assert addresses(routes) == {"a": {0: "10.0.0.97:9"}}
    with pytest.raises(RegistrationRefused, match="leads already"):
        register(9, 12)  # another one behind the same leader port


def test_brokers_without_epochs_replace_each_other_as_in_rocketmq(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=1), topics("orders"), channel=1)
    routes.register_broker(broker("a", 0, port=2), topics("orders"), channel=2)
    assert addresses(routes) == {"a": {0: "10.0.0.97:2"}}


def test_the_next_masters_topics_count_at_the_same_address(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", 0, port=9), topics("orders"), channel=1, epoch=4)
    routes.wipe_write_perm_of_broker("a")
    routes.register_broker(broker("a", 0, port=9), topics("orders"), channel=2, epoch=5)
    assert perms(routes) == {"a": 6}


def test_a_refused_registration_raises_no_epoch(routes: RouteInfoManager) -> None:
    single = TopicConfigAndMappingSerializeWrapper(topic_config_table={"t": TopicConfig(topic_name="t")})
    with pytest.raises(RegistrationRefused):
        routes.register_broker(broker("a"), single, channel=1, epoch=9)
    assert routes.highest_epoch("c", "a") is None


# --- topics and permissions -----------------------------------------------------------------------------------------


def test_write_permission_is_wiped_and_added_for_one_group(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.register_broker(broker("b"), topics("orders"), channel=2)
    assert routes.wipe_write_perm_of_broker("a") == 1 + len(SYSTEM_TOPICS)
    assert perms(routes) == {"a": 4, "b": 6}
    assert routes.add_write_perm_of_broker("a") == 1 + len(SYSTEM_TOPICS)
    assert perms(routes) == {"a": 6, "b": 6}
    assert routes.wipe_write_perm_of_broker("unknown") == 0


def test_a_registration_of_the_same_version_does_not_undo_a_wipe(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.wipe_write_perm_of_broker("a")
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    assert perms(routes) == {"a": 4}


def test_deleting_a_topic_ends_its_route_in_one_cluster_or_everywhere(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a", cluster="c"), topics("orders"), channel=1)
    routes.register_broker(broker("b", cluster="d"), topics("orders"), channel=2)
    routes.delete_topic("orders", "c")
    assert set(addresses(routes) or {}) == {"b"}
    routes.delete_topic("orders", "unknown")
    assert set(addresses(routes) or {}) == {"b"}
    routes.delete_topic("orders")
    assert addresses(routes) is None
    routes.delete_topic("never was")


def test_a_deleted_topic_returns_with_a_broker_that_still_has_it(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    routes.delete_topic("orders")
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    assert addresses(routes) is not None


def test_a_single_topic_can_be_registered_on_known_brokers_only(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    queue = QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)
    stranger = QueueData(broker_name="x", read_queue_nums=1, write_queue_nums=1, perm=6)
    assert routes.register_topic("paid", [queue])
    assert not routes.register_topic("other", [queue, stranger])
    assert not routes.register_topic("none", [])
    assert set(routes.all_topic_list().topic_list) == {"orders", "paid", *SYSTEM_TOPICS}


# --- lists ------------------------------------------------------------------------------------------------------------


def test_clusters_list_their_groups(routes: RouteInfoManager) -> None:
    routes.register_broker(broker("b", cluster="c"), topics("orders"), channel=1)
    routes.register_broker(broker("a", cluster="c"), topics("orders"), channel=2)
    routes.register_broker(broker("z", cluster="d"), topics("paid"), channel=3)
    info = routes.all_cluster_info()
    assert info.cluster_addr_table == {"c": ["a", "b"], "d": ["z"]}
    assert info.broker_addr_table["z"].broker_addrs == {0: broker("z").broker_addr}
    assert routes.topics_by_cluster("d").topic_list == sorted(["paid", *SYSTEM_TOPICS])
    assert routes.topics_by_cluster("unknown").topic_list == []
    assert routes.broker_member_group("d", "z").broker_addrs == {0: broker("z").broker_addr}
    assert routes.broker_member_group("c", "z").broker_addrs == {}


def test_system_topics_are_the_names_of_clusters_and_groups(routes: RouteInfoManager) -> None:
    assert routes.system_topic_list().broker_addr is None
    routes.register_broker(broker("a"), topics("orders"), channel=1)
    assert routes.system_topic_list().topic_list == ["a", "c"]
    assert routes.system_topic_list().broker_addr == broker("a").broker_addr
