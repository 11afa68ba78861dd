"""RouteInfoManager: what the name server knows of brokers and topics, in memory only.

Pure: no socket and no wall clock. The clock is passed in, a channel is whatever hashable thing stands for a connection.

Invariants (reliability.md, C7):
- A broker is alive while its last word is at most its timeout old, by the monotonic clock; `scan_not_active_brokers`
  drops the others.
- A connection that closes takes only those brokers with it whose *current* channel it is: a broker that has already
  come back over another connection stays.
- One address stands under one brokerId of one group, one brokerId has one address, and each of them is alive.
- The highest epoch that a group was ever registered with is kept while this process lives; brokerId 0 with a lower one
  is refused, and so is a second broker that claims brokerId 0 in the epoch of a live one.
- The master's end leaves the slaves' routes in place: consumers read on.

Source: RouteInfoManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from mqwire.bodies import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from mqwire.codes import PermName, ResponseCode
from mqwire.names import MASTER_ID

logger = logging.getLogger(__name__)

BROKER_CHANNEL_EXPIRED_TIME_MS: Final = 120_000
# A broker may ask for another patience (heartbeatTimeoutMillis), within reason.
_MIN_HEARTBEAT_TIMEOUT_MS: Final = 100
_MAX_HEARTBEAT_TIMEOUT_MS: Final = 3_600_000
# Bounds what peers can make this process remember; a hundred times the largest known clusters.
_MAX_BROKER_GROUPS: Final = 10_000


class RegistrationRefused(Exception):
    """A broker may not register so. `code` and the text are the answer's; `epoch`: the highest that has begun, if that is why."""

    def __init__(self, code: ResponseCode, remark: str, epoch: int | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Which broker speaks: the four fields that every request of a broker carries."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """A slave's answer about its group's master; None where there is none."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class _BrokerLiveInfo:
    identity: BrokerIdentity
    last_update_ms: float
    heartbeat_timeout_ms: int
    data_version: DataVersion
    channel: Hashable
    ha_server_addr: str
    filter_servers: list[str]
    epoch: int | None = None  # the one of its last registration


@dataclass(slots=True)
class _BrokerGroup:
    cluster_name: str
    zone_name: str | None = None
    enable_acting_master: bool = False
    broker_addrs: dict[int, str] = field(default_factory=dict)


class RouteInfoManager:
    """The registry. Every method is synchronous and leaves it consistent."""

    def __init__(
        self,
        clock_ms: Callable[[], float],
        *,
        broker_channel_expired_timeout_ms: int = BROKER_CHANNEL_EXPIRED_TIME_MS,
        delete_topic_with_broker_registration: bool = False,
    ) -> None:
        self._clock_ms = clock_ms
        self._expired_timeout_ms = broker_channel_expired_timeout_ms
        self._delete_absent_topics = delete_topic_with_broker_registration
        self._topic_queue_table: dict[str, dict[str, QueueData]] = {}
        self._topic_queue_mapping_table: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._broker_groups: dict[str, _BrokerGroup] = {}
        self._cluster_broker_names: dict[str, set[str]] = {}
        self._broker_live_table: dict[tuple[str, str], _BrokerLiveInfo] = {}
        self._highest_epochs: dict[tuple[str, str], int] = {}

    # --- brokers: registering, heartbeats, leaving -----------------------------------------------------------------

    def register_broker(
        self,
        broker: BrokerIdentity,
        topics: TopicConfigAndMappingSerializeWrapper,
        *,
        channel: Hashable,
        ha_server_addr: str = "",
        filter_servers: Iterable[str] = (),
        zone_name: str | None = None,
        heartbeat_timeout_ms: int | None = None,
        enable_acting_master: bool | None = None,
        epoch: int | None = None,
    ) -> RegisterBrokerResult:
        """A broker reports its whole state; the same report twice changes nothing but its last sign of life.

        Topics are taken from the master, or, while a group has none, from its slave of the lowest id. A broker that is
        new here and names but one topic is refused: RocketMQ's brokers register single topics so, and would never send
        the rest. Raises RegistrationRefused.
        """
        self._check_group(broker)
        self._check_epoch(broker, epoch)
        self._check_only_master(broker, epoch, ha_server_addr)
        self._leave_former_group(broker)
        group = self._broker_groups.get(broker.broker_name)
        known_addr = None if group is None else group.broker_addrs.get(broker.broker_id)
        if known_addr is not None and known_addr != broker.broker_addr:
            self._check_state_version(broker, known_addr, topics.data_version)
        if known_addr is None and len(topics.topic_config_table) == 1:
            raise RegistrationRefused(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {broker.broker_name} is not registered here and named a single topic;"
                " register with all topics first",
            )
        if epoch is not None:
            self._raise_epoch(broker, epoch)
        # A group may have one address for its leader: then the same address is another broker's in a new epoch.
        live = self._broker_live_table.get((broker.cluster_name, broker.broker_addr))
        registered_again = known_addr != broker.broker_addr or live is None or live.epoch != epoch
        group = self._join_group(broker)
        group.zone_name = zone_name
        group.enable_acting_master = bool(enable_acting_master)
        if broker.broker_id == min(group.broker_addrs):
            # Another broker's topics may have stood here before, whatever version this one registered with last.
            self._take_topics(broker, topics, registered_again=registered_again)
        self._remember_alive(broker, topics.data_version, channel, ha_server_addr, filter_servers, heartbeat_timeout_ms)
        self._broker_live_table[broker.cluster_name, broker.broker_addr].epoch = epoch
        if known_addr is None:
            logger.info(
                "registered: cluster=%s broker=%s id=%d address=%s topics=%d",
                broker.cluster_name, broker.broker_name, broker.broker_id, broker.broker_addr,
                len(topics.topic_config_table),
            )  # fmt: skip
        elif known_addr != broker.broker_addr:
            logger.warning(
                "address changed: cluster=%s broker=%s id=%d from=%s to=%s",
                broker.cluster_name, broker.broker_name, broker.broker_id, known_addr, broker.broker_addr,
            )  # fmt: skip
        return self._master_of(group, broker)

    def _check_group(self, broker: BrokerIdentity) -> None:
        group = self._broker_groups.get(broker.broker_name)
        if group is None and len(self._broker_groups) >= _MAX_BROKER_GROUPS:
            raise RegistrationRefused(
                ResponseCode.SYSTEM_BUSY,
                f"register broker failed: {_MAX_BROKER_GROUPS} broker groups are registered here",
            )
        if group is not None and group.cluster_name != broker.cluster_name:
            # Clients know a broker by its name alone: two groups of one name would be one to them.
            raise RegistrationRefused(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: the name {broker.broker_name} belongs to cluster {group.cluster_name} here;"
                " choose another brokerName",
            )

    def _check_epoch(self, broker: BrokerIdentity, epoch: int | None) -> None:
        highest = self.highest_epoch(broker.cluster_name, broker.broker_name)
        if broker.broker_id == MASTER_ID and highest is not None and (epoch or 0) < highest:
            live = self._broker_live_table.get((broker.cluster_name, broker.broker_addr))
            if live is None or (live.epoch or 0) < highest:
                # It was the master until now, perhaps: no client shall be sent to it any longer. Its address may be the
                # new master's by now, where the group has one for its leader.
                self.unregister_broker(broker)
            raise RegistrationRefused(
                ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
                f"broker {broker.broker_name} at {broker.broker_addr} claims brokerId 0 in epoch {epoch or 0},"
                f" but epoch {highest} has begun: it is no longer the master",
                highest,
            )

    def _check_only_master(self, broker: BrokerIdentity, epoch: int | None, ha_server_addr: str) -> None:
        """An epoch has one leader: the first that registered is kept while it lives. Epoch 0 is of brokers that have none."""
        group = self._broker_groups.get(broker.broker_name)
        if group is None or broker.broker_id != MASTER_ID or not epoch:
            return
        address = group.broker_addrs.get(MASTER_ID, "")
        live = self._broker_live_table.get((broker.cluster_name, address))
        if live is None or live.epoch != epoch:
            return
        # A leader moves to the group's leader port and away from it; its replication address, if it names one, stays.
        both_named = live.ha_server_addr and ha_server_addr
        if live.ha_server_addr == ha_server_addr if both_named else address == broker.broker_addr:
            return
        logger.error(
            "two masters of one epoch: cluster=%s broker=%s epoch=%d kept=%s refused=%s",
            broker.cluster_name, broker.broker_name, epoch, address, broker.broker_addr,
        )  # fmt: skip
        raise RegistrationRefused(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"broker {broker.broker_name} at {broker.broker_addr} claims brokerId 0 in epoch {epoch}, in which {address}"
            " leads already: stop one of the two, and see whether they share a brokerName by mistake",
        )

    def _leave_former_group(self, broker: BrokerIdentity) -> None:
        """A broker that was renamed keeps its address: under the former name it is no more."""
        former = self._broker_live_table.get((broker.cluster_name, broker.broker_addr))
        if former is not None and former.identity.broker_name != broker.broker_name:
            self.unregister_broker(former.identity)

    def _check_state_version(self, broker: BrokerIdentity, known_addr: str, data_version: DataVersion) -> None:
        known = self._broker_live_table.get((broker.cluster_name, known_addr))
        if known is not None and known.data_version.state_version > data_version.state_version:
            raise RegistrationRefused(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {known_addr} holds id {broker.broker_id} of {broker.broker_name}"
                f" with the newer state version {known.data_version.state_version}",
            )

    def _raise_epoch(self, broker: BrokerIdentity, epoch: int) -> None:
        key = (broker.cluster_name, broker.broker_name)
        if epoch > self._highest_epochs.get(key, -1):
            self._highest_epochs[key] = epoch

    def _join_group(self, broker: BrokerIdentity) -> _BrokerGroup:
        group = self._broker_groups.get(broker.broker_name)
        if group is None:
            group = self._broker_groups[broker.broker_name] = _BrokerGroup(broker.cluster_name)
            self._cluster_broker_names.setdefault(broker.cluster_name, set()).add(broker.broker_name)
        # A slave that became master (or the other way round) comes with the same address and another id.
        for other_id, address in list(group.broker_addrs.items()):
            if address == broker.broker_addr and other_id != broker.broker_id:
                del group.broker_addrs[other_id]
        displaced = group.broker_addrs.get(broker.broker_id)
        if displaced is not None and displaced != broker.broker_addr:
            self._broker_live_table.pop((broker.cluster_name, displaced), None)
        group.broker_addrs[broker.broker_id] = broker.broker_addr
        return group

    def _take_topics(
        self, broker: BrokerIdentity, wrapper: TopicConfigAndMappingSerializeWrapper, *, registered_again: bool
    ) -> None:
        name = broker.broker_name
        if self._delete_absent_topics and not wrapper.topic_queue_mapping_info_map:
            for topic in self._topics_of([name]):
                if topic not in wrapper.topic_config_table:
                    self._forget_topic_of(topic, name)
        changed = registered_again or self.is_broker_topic_config_changed(
            broker.cluster_name, broker.broker_addr, wrapper.data_version
        )
        for topic, config in wrapper.topic_config_table.items():
            # An unchanged version doesn't undo what wipe_write_perm_of_broker did.
            if changed or name not in self._topic_queue_table.get(topic, ()):
                self._topic_queue_table.setdefault(topic, {})[name] = _queue_data(name, config)
        if changed:
            for topic, info in wrapper.topic_queue_mapping_info_map.items():
                self._topic_queue_mapping_table.setdefault(topic, {})[info.bname or name] = info

    def _remember_alive(
        self,
        broker: BrokerIdentity,
        data_version: DataVersion,
        channel: Hashable,
        ha_server_addr: str,
        filter_servers: Iterable[str],
        heartbeat_timeout_ms: int | None,
    ) -> None:
        timeout_ms = self._expired_timeout_ms
        if heartbeat_timeout_ms is not None:
            timeout_ms = min(max(heartbeat_timeout_ms, _MIN_HEARTBEAT_TIMEOUT_MS), _MAX_HEARTBEAT_TIMEOUT_MS)
        self._broker_live_table[(broker.cluster_name, broker.broker_addr)] = _BrokerLiveInfo(
            identity=broker,
            last_update_ms=self._clock_ms(),
            heartbeat_timeout_ms=timeout_ms,
            data_version=data_version,
            channel=channel,
            ha_server_addr=ha_server_addr,
            filter_servers=list(filter_servers),
        )

    def _master_of(self, group: _BrokerGroup, broker: BrokerIdentity) -> RegisterBrokerResult:
        master_addr = group.broker_addrs.get(MASTER_ID)
        if broker.broker_id == MASTER_ID or master_addr is None:
            return RegisterBrokerResult()
        live = self._broker_live_table.get((broker.cluster_name, master_addr))
        if live is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(ha_server_addr=live.ha_server_addr, master_addr=master_addr)

    def heartbeat(self, broker: BrokerIdentity, epoch: int | None = None) -> None:
        """A sign of life. Raises RegistrationRefused for a broker that must register (again) first."""
        self._check_epoch(broker, epoch)
        if not self.touch(broker.cluster_name, broker.broker_addr):
            raise RegistrationRefused(
                ResponseCode.BROKER_NOT_EXIST,
                f"broker {broker.broker_name} at {broker.broker_addr} is not registered here; register it first",
            )
        if epoch is not None:
            self._raise_epoch(broker, epoch)

    def touch(self, cluster_name: str, broker_addr: str) -> bool:
        """Note a sign of life of a broker; False when it is not registered."""
        live = self._broker_live_table.get((cluster_name, broker_addr))
        if live is None:
            return False
        live.last_update_ms = self._clock_ms()
        return True

    def unregister_broker(self, broker: BrokerIdentity) -> bool:
        """Forget one broker, and its group's topics when it was the group's last; False when it was not known.

        As with Apache it is the address that counts, not the id: it may have changed its role since.
        """
        key = (broker.cluster_name, broker.broker_addr)
        live = self._broker_live_table.get(key)
        if live is None or live.identity.broker_name != broker.broker_name:
            return False
        del self._broker_live_table[key]
        group = self._broker_groups[broker.broker_name]
        for broker_id, address in list(group.broker_addrs.items()):
            # Its id may belong to another address by now.
            if address == broker.broker_addr:
                del group.broker_addrs[broker_id]
        if not group.broker_addrs:
            self._forget_group(broker.broker_name, group)
        return True

    def _forget_group(self, broker_name: str, group: _BrokerGroup) -> None:
        del self._broker_groups[broker_name]
        names = self._cluster_broker_names[group.cluster_name]
        names.discard(broker_name)
        if not names:
            del self._cluster_broker_names[group.cluster_name]
        for topic in self._topics_of([broker_name]):
            self._forget_topic_of(topic, broker_name)

    def scan_not_active_brokers(self) -> list[Hashable]:
        """Drop every broker that has been silent for longer than it may; the channels to close."""
        now_ms = self._clock_ms()
        expired = [
            live
            for live in self._broker_live_table.values()
            if now_ms - live.last_update_ms > live.heartbeat_timeout_ms
        ]
        for live in expired:
            logger.warning(
                "expired: cluster=%s broker=%s id=%d address=%s silent_ms=%d",
                live.identity.cluster_name, live.identity.broker_name, live.identity.broker_id,
                live.identity.broker_addr, now_ms - live.last_update_ms,
            )  # fmt: skip
            self.unregister_broker(live.identity)
        return [live.channel for live in expired]

    def on_channel_closed(self, channel: Hashable) -> list[BrokerIdentity]:
        """A connection is gone: forget the brokers whose current channel it is, and return which these were."""
        gone = [live.identity for live in self._broker_live_table.values() if live.channel == channel]
        for broker in gone:
            logger.warning(
                "connection closed: cluster=%s broker=%s id=%d address=%s",
                broker.cluster_name, broker.broker_name, broker.broker_id, broker.broker_addr,
            )  # fmt: skip
            self.unregister_broker(broker)
        return gone

    # --- what brokers ask ------------------------------------------------------------------------------------------

    def data_version_of(self, cluster_name: str, broker_addr: str) -> DataVersion | None:
        """The version of the topics that a broker registered with; None when it isn't registered."""
        live = self._broker_live_table.get((cluster_name, broker_addr))
        return None if live is None else live.data_version

    def is_broker_topic_config_changed(self, cluster_name: str, broker_addr: str, data_version: DataVersion) -> bool:
        """Whether a broker with this version of its topics should register them."""
        return self.data_version_of(cluster_name, broker_addr) != data_version

    def highest_epoch(self, cluster_name: str, broker_name: str) -> int | None:
        """The highest epoch that a member of the group has registered with; None when none named one."""
        return self._highest_epochs.get((cluster_name, broker_name))

    def broker_member_group(self, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
        """A group's addresses; none for a group that isn't known."""
        group = self._broker_groups.get(broker_name)
        known = group is not None and group.cluster_name == cluster_name
        addresses = dict(group.broker_addrs) if group is not None and known else {}
        return BrokerMemberGroup(cluster=cluster_name, broker_name=broker_name, broker_addrs=addresses)

    # --- topics ----------------------------------------------------------------------------------------------------

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> bool:
        """One topic on some brokers; False, and nothing changes, when one of them is not registered."""
        queues = list(queue_datas)
        if not queues or any(queue.broker_name not in self._broker_groups for queue in queues):
            return False
        table = self._topic_queue_table.setdefault(topic, {})
        for queue in queues:
            table[queue.broker_name] = queue
        return True

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget a topic, in one cluster or everywhere; brokers that still have it will register it again."""
        names = self._topic_queue_table.get(topic, {})
        in_cluster = names if cluster_name is None else self._cluster_broker_names.get(cluster_name, set())
        for broker_name in [name for name in names if name in in_cluster]:
            self._forget_topic_of(topic, broker_name)

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """No topic of the group may be written to, until add_write_perm_of_broker; how many topics that are."""
        return self._change_perm(broker_name, lambda perm: perm & ~PermName.WRITE)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Every topic of the group may be read and written; how many topics that are."""
        return self._change_perm(broker_name, lambda perm: perm | PermName.READ | PermName.WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of([broker_name])
        for topic in topics:
            table = self._topic_queue_table[topic]
            queue = table[broker_name]
            table[broker_name] = msgspec.structs.replace(queue, perm=change(queue.perm))
        return len(topics)

    def _topics_of(self, broker_names: Iterable[str]) -> list[str]:
        names = set(broker_names)
        return [topic for topic, table in self._topic_queue_table.items() if not names.isdisjoint(table)]

    def _forget_topic_of(self, topic: str, broker_name: str) -> None:
        for table in (self._topic_queue_table, self._topic_queue_mapping_table):
            by_broker = table.get(topic)
            if by_broker is not None:
                by_broker.pop(broker_name, None)
                if not by_broker:
                    del table[topic]

    # --- what clients ask ------------------------------------------------------------------------------------------

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """A topic's route, or None when no registered broker has it."""
        queues = self._topic_queue_table.get(topic)
        if not queues:
            return None
        filter_servers: dict[str, list[str]] = {}
        for name in queues:
            group = self._broker_groups[name]
            for address in group.broker_addrs.values():
                live = self._broker_live_table.get((group.cluster_name, address))
                if live is not None and live.filter_servers:
                    filter_servers[address] = live.filter_servers
        return TopicRouteData(
            queue_datas=[queues[name] for name in sorted(queues)],
            broker_datas=[self._broker_data(name) for name in sorted(queues)],
            filter_server_table=filter_servers,
            topic_queue_mapping_by_broker=self._topic_queue_mapping_table.get(topic),
        )

    def _broker_data(self, broker_name: str) -> BrokerData:
        group = self._broker_groups[broker_name]
        return BrokerData(
            cluster=group.cluster_name,
            broker_name=broker_name,
            broker_addrs=dict(sorted(group.broker_addrs.items())),
            zone_name=group.zone_name,
            enable_acting_master=group.enable_acting_master,
        )

    def all_cluster_info(self) -> ClusterInfo:
        """Every group with its addresses, and the groups of every cluster."""
        return ClusterInfo(
            broker_addr_table={name: self._broker_data(name) for name in sorted(self._broker_groups)},
            cluster_addr_table={
                cluster: sorted(names) for cluster, names in sorted(self._cluster_broker_names.items())
            },
        )

    def all_topic_list(self) -> TopicList:
        """Every topic that some broker has."""
        return TopicList(topic_list=sorted(self._topic_queue_table))

    def topics_by_cluster(self, cluster_name: str) -> TopicList:
        """The topics of one cluster's brokers; none for a cluster that isn't known."""
        return TopicList(topic_list=sorted(self._topics_of(self._cluster_broker_names.get(cluster_name, ()))))

    def system_topic_list(self) -> TopicList:
        """Clusters' and groups' names (each is a topic to its brokers), and a broker to ask for its own."""
        names = {*self._cluster_broker_names, *self._broker_groups}
        addresses = (addr for group in self._broker_groups.values() for addr in group.broker_addrs.values())
        return TopicList(topic_list=sorted(names), broker_addr=next(addresses, None))


def _queue_data(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
