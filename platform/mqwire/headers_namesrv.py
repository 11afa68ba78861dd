"""Headers that the name server knows: registration, routes, KV configuration, permissions."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, Int64, TopicRequestHeader


class RegisterBrokerRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """REGISTER_BROKER (103). `body_crc32` 0 means unchecked. `epoch` is ours: the group's leadership, see README.

    `heartbeat_timeout_millis` is how long this broker may be silent; None leaves it to the name server.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 | None = 0
    epoch: Int64 | None = None


class RegisterBrokerResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The group's master, named to a slave that registers."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
    epoch: Int64 | None = None  # ours, with CONTROLLER_FENCED_MASTER_EPOCH: the highest one that has begun


class UnRegisterBrokerRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class BrokerHeartbeatRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """BROKER_HEARTBEAT (904)."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int64 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None  # RocketMQ's own spelling
    election_priority: Int32 | None = None


class QueryDataVersionRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """QUERY_DATA_VERSION (322); the body is the broker's DataVersion."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Whether the broker should register in full; the body is the DataVersion that the name server holds."""

    changed: bool


class GetRouteInfoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """REGISTER_TOPIC_IN_NAMESRV (217); the body is TopicRouteData."""

    topic: str


class DeleteTopicFromNamesrvRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV (216); no cluster name means from all clusters."""

    topic: str
    cluster_name: str | None = None


class PutKVConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """PUT_KV_CONFIG (100)."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_KV_CONFIG (101)."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The value, or none."""

    value: str | None = None


class DeleteKVConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """DELETE_KV_CONFIG (102)."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER (205)."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """How many topics lost the write permission."""

    wipe_topic_count: Int32


class AddWritePermOfBrokerRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """How many topics regained the write permission."""

    add_topic_count: Int32
