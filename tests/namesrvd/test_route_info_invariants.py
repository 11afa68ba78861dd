"""Whatever brokers, operators and time do in whatever order, the registry stays consistent (route_info.py's list)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqwire.bodies import DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper
from namesrvd.route_info import BrokerIdentity, RegistrationRefused, RouteInfoManager

TOPICS = ["t0", "t1", "t2"]
identities = st.builds(
    BrokerIdentity,
    st.sampled_from(["c", "d"]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.sampled_from(["h:1", "h:2", "h:3"]),
)
wrappers = st.builds(
    lambda names, version: TopicConfigAndMappingSerializeWrapper(
        topic_config_table={name: TopicConfig(topic_name=name) for name in names},
        data_version=DataVersion(counter=version),
    ),
    st.sets(st.sampled_from(TOPICS)),
    st.integers(1, 2),
)
channels = st.integers(1, 3)
epochs = st.none() | st.integers(0, 3)


class Registry(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.routes = RouteInfoManager(lambda: self.now_ms)
        self.highest: dict[tuple[str, str], int] = {}
        self.last_word_ms: dict[tuple[str, str], float] = {}

    @rule(broker=identities, wrapper=wrappers, channel=channels, epoch=epochs)
    def register(
        self, broker: BrokerIdentity, wrapper: TopicConfigAndMappingSerializeWrapper, channel: int, epoch: int | None
    ) -> None:
        key = (broker.cluster_name, broker.broker_name)
        try:
            self.routes.register_broker(broker, wrapper, channel=channel, epoch=epoch)
        except RegistrationRefused:
            return
        highest = self.highest.get(key)
        assert not (broker.broker_id == 0 and highest is not None and (epoch or 0) < highest)
        if epoch is not None:
            self.highest[key] = max(epoch, self.highest.get(key, epoch))
        self.last_word_ms[(broker.cluster_name, broker.broker_addr)] = self.now_ms
        group = self.routes.broker_member_group(*key).broker_addrs
        assert group[broker.broker_id] == broker.broker_addr

    @rule(broker=identities, epoch=epochs)
    def heartbeat(self, broker: BrokerIdentity, epoch: int | None) -> None:
        try:
            self.routes.heartbeat(broker, epoch)
        except RegistrationRefused:
            return
        key = (broker.cluster_name, broker.broker_name)
        if epoch is not None:
            self.highest[key] = max(epoch, self.highest.get(key, epoch))
        self.last_word_ms[(broker.cluster_name, broker.broker_addr)] = self.now_ms

    @rule(broker=identities)
    def unregister(self, broker: BrokerIdentity) -> None:
        self.routes.unregister_broker(broker)

    @rule(channel=channels)
    def close(self, channel: int) -> None:
        self.routes.on_channel_closed(channel)
        assert self.routes.on_channel_closed(channel) == []

    @rule(seconds=st.sampled_from([1, 30, 119, 121]))
    def wait(self, seconds: int) -> None:
        self.now_ms += seconds * 1000
        self.routes.scan_not_active_brokers()
        assert self.routes.scan_not_active_brokers() == []

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, "c", "d"]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.routes.delete_topic(topic, cluster)

    @rule(name=st.sampled_from(["a", "b"]))
    def wipe(self, name: str) -> None:
        self.routes.wipe_write_perm_of_broker(name)

    @invariant()
    def every_group_has_a_living_broker_and_every_address_one_id(self) -> None:
        info = self.routes.all_cluster_info()
        for name, group in info.broker_addr_table.items():
            assert group.broker_addrs
            assert len(set(group.broker_addrs.values())) == len(group.broker_addrs)
            assert name in info.cluster_addr_table[group.cluster]
            for address in group.broker_addrs.values():
                assert self.routes.data_version_of(group.cluster, address) is not None

    @invariant()
    def an_address_of_a_cluster_belongs_to_one_group(self) -> None:
        seen = [
            (group.cluster, address)
            for group in self.routes.all_cluster_info().broker_addr_table.values()
            for address in group.broker_addrs.values()
        ]
        assert len(seen) == len(set(seen))

    @invariant()
    def routes_lead_to_registered_groups_only(self) -> None:
        groups = self.routes.all_cluster_info().broker_addr_table
        for topic in self.routes.all_topic_list().topic_list:
            route = self.routes.pickup_topic_route_data(topic)
            assert route is not None
            assert {queue.broker_name for queue in route.queue_datas} <= set(groups)
            assert [data.broker_name for data in route.broker_datas] == [
                queue.broker_name for queue in route.queue_datas
            ]

    @invariant()
    def no_broker_is_kept_beyond_its_time(self) -> None:
        for group in self.routes.all_cluster_info().broker_addr_table.values():
            for address in group.broker_addrs.values():
                assert self.now_ms - self.last_word_ms[(group.cluster, address)] <= 121_000

    @invariant()
    def the_highest_epochs_are_those_that_were_registered(self) -> None:
        for (cluster, name), epoch in self.highest.items():
            assert self.routes.highest_epoch(cluster, name) == epoch


TestRegistry = Registry.TestCase
TestRegistry.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
