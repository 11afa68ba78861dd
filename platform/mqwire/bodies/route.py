"""What a name server answers: routes, clusters, lists."""

from __future__ import annotations

import msgspec

from mqwire.bodies.base import Body
from mqwire.header import Int32, Int64


class QueueData(Body, frozen=True, kw_only=True):
    """How many queues of the topic one broker group has. Source: QueueData."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(Body, frozen=True, kw_only=True):
    """One broker group's addresses `host:port` by brokerId; 0 is the master. Source: BrokerData."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}
    zone_name: str | None = None
    enable_acting_master: bool = False


class TopicQueueMappingInfo(Body, frozen=True, kw_only=True):
    """A static topic's logical queues on one broker; carried, not served. Source: TopicQueueMappingInfo."""

    topic: str | None = None
    scope: str | None = None
    total_queues: Int32 = 0
    bname: str | None = None
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = {}


class TopicRouteData(Body, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC's answer. Source: TopicRouteData.

    `order_topic_conf` is `broker:queues;broker:queues` for topics that are ordered over all brokers.
    """

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_INFO's answer: broker groups by name, their names by cluster. Source: ClusterInfo."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class TopicList(Body, frozen=True, kw_only=True):
    """Topic names; `broker_addr` is some broker to ask for its own system topics. Source: TopicList."""

    topic_list: list[str] = []
    broker_addr: str | None = None


class KVTable(Body, frozen=True, kw_only=True):
    """Names and values: runtime information, a KV namespace. Source: KVTable."""

    table: dict[str, str] = {}


class BrokerMemberGroup(Body, frozen=True, kw_only=True):
    """One broker group's addresses by brokerId. Source: BrokerMemberGroup."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = {}


class GetBrokerMemberGroupResponseBody(Body, frozen=True, kw_only=True):
    """GET_BROKER_MEMBER_GROUP's answer. Source: GetBrokerMemberGroupResponseBody."""

    broker_member_group: BrokerMemberGroup | None = msgspec.field(default=None)
