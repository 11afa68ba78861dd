"""What administration returns: frozen, with RocketMQ's own nouns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from highwater._models import MessageQueue, ReceivedMessage
from mqwire.names import MASTER_ID


@dataclass(frozen=True, slots=True)
class BrokerData:
    """One broker group: its replicas' addresses by brokerId, 0 being the master."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    @property
    def master_address(self) -> str | None:
        """The master's address; None while the group has none."""
        return self.broker_addrs.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """All broker groups that the name server knows, by name, and the names of each cluster's groups."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, tuple[str, ...]]

    def brokers(self, cluster: str) -> tuple[BrokerData, ...]:
        """A cluster's broker groups, sorted by name; none for a cluster that is unknown."""
        names = self.cluster_addr_table.get(cluster, ())
        return tuple(self.broker_addr_table[name] for name in sorted(names) if name in self.broker_addr_table)

    def master_addresses(self, cluster: str | None = None) -> tuple[str, ...]:
        """The masters of one cluster, or of all."""
        groups = self.broker_addr_table.values() if cluster is None else self.brokers(cluster)
        addresses = (group.master_address for group in groups)
        return tuple(sorted(address for address in addresses if address is not None))


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Messages of a key, newest first. `remarks` says, by broker name, why a broker found none.

    `index_lag_bytes` is how much of its log the slowest index has yet to read, `unindexed` names those brokers that found
    none and keep no index. Apache's brokers say neither.
    """

    messages: tuple[ReceivedMessage, ...]
    remarks: Mapping[str, str] = field(default_factory=dict)
    index_lag_bytes: int = 0
    unindexed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A topic as one broker keeps it. `perm`: 6 read and write, 4 read, 2 write."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicLimit:
    """A limit of a topic on one broker, by its attribute or its key in broker.conf, with what is used of it.

    `used` of a rate is the last whole second's, of stored bytes what the broker last counted; None for what it doesn't tell.
    """

    broker_name: str
    name: str
    limit: int
    used: int | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue's reach. `last_update_timestamp_ms` is None for a queue that holds nothing."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_update_timestamp_ms: int | None

    @property
    def message_count(self) -> int:
        """How many messages it holds."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic's queues, sorted."""

    topic: str
    queues: tuple[QueueStats, ...]

    @property
    def message_count(self) -> int:
        """How many messages it holds."""
        return sum(queue.message_count for queue in self.queues)


@dataclass(frozen=True, slots=True)
class SubscriptionGroup:
    """A consumer group as one broker keeps it."""

    group: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue. `last_timestamp_ms` is the store time of what it consumed last, None if nothing."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp_ms: int | None

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet."""
        return max(0, self.broker_offset - self.consumer_offset)

    @property
    def inflight(self) -> int:
        """How many messages are fetched and not acknowledged."""
        return max(0, self.pull_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class ConsumerProgress:
    """A group's progress, queue by queue, sorted; retry topics included."""

    group: str
    queues: tuple[QueueProgress, ...]
    consume_tps: float

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet, over all queues."""
        return sum(queue.lag for queue in self.queues)


@dataclass(frozen=True, slots=True, order=True)
class ClientConnection:
    """A client of a group. `version` is the ordinal of RocketMQ's MQVersion."""

    client_id: str
    client_addr: str
    language: str
    version: int


@dataclass(frozen=True, slots=True, order=True)
class MemberSubscription:
    """One topic as a member of a group subscribes to it."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    """A group's members; `subscriptions` maps topics to expressions. All empty when no one is connected.

    `member_subscriptions` has each member's own, by client id. Brokers of Apache RocketMQ don't report it, and Highwater's
    keep it within bounds: a client that is connected may be missing.
    """

    group: str
    connections: tuple[ClientConnection, ...] = ()
    subscriptions: Mapping[str, str] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    member_subscriptions: Mapping[str, tuple[MemberSubscription, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessQueueInfo:
    """A queue as the member that reads it reports it: what it has fetched and not finished. Offsets are None while that is nothing.

    `commit_offset` is where the member itself stands; the brokers hear of it each few seconds. Times are None for never.
    """

    queue: MessageQueue
    commit_offset: int
    cached_messages: int
    cached_mebibytes: int
    cached_min_offset: int | None
    cached_max_offset: int | None
    locked: bool
    dropped: bool
    last_pull_timestamp_ms: int | None
    last_consume_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class ConsumerRunningInfo:
    """How a member of a group is doing, by its own word. `properties` are its client's settings, by that client's names.

    `stack` is what its threads do, as its language writes it; None when it was not asked, or does not say.
    """

    group: str
    client_id: str
    properties: Mapping[str, str] = field(default_factory=dict)
    subscriptions: tuple[MemberSubscription, ...] = ()
    queues: tuple[ProcessQueueInfo, ...] = ()
    stack: str | None = None

    @property
    def cached_messages(self) -> int:
        """How many messages it has fetched and not finished."""
        return sum(queue.cached_messages for queue in self.queues)


@dataclass(frozen=True, slots=True)
class ConsumeMessageDirectlyResult:
    """What became of a message that a member handled on request. `consume_result` is CMResult's name, such as CR_SUCCESS,
    CR_LATER or CR_THROW_EXCEPTION; `remark` the member's words on a failure.
    """

    consume_result: str
    remark: str | None
    order: bool
    auto_commit: bool
    spent_ms: int


@dataclass(frozen=True, slots=True)
class AclAccount:
    """An account of a broker's ACL (plain_acl.yml). Permissions are DENY, PUB, SUB or PUB|SUB.

    `topic_perms` and `group_perms` map names to permissions and go before the defaults. `admin` may do everything.
    """

    access_key: str
    secret_key: str = field(repr=False)
    admin: bool = False
    default_topic_perm: str = "PUB|SUB"
    default_group_perm: str = "SUB"
    topic_perms: Mapping[str, str] = field(default_factory=dict)
    group_perms: Mapping[str, str] = field(default_factory=dict)
    white_remote_address: str = ""
