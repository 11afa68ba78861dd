"""Clients of a broker: heartbeats, connections, queue locks, what a client reports of itself."""

from __future__ import annotations

import msgspec

from mqwire.bodies.base import Body, MessageQueue
from mqwire.header import Int32, Int64


class SubscriptionData(Body, frozen=True, kw_only=True):
    """One topic of a consumer's subscription. Source: SubscriptionData.

    `code_set` are the tags' hashes as the client computed them; `sub_version` grows with each change.
    """

    class_filter_mode: bool = False
    topic: str
    sub_string: str
    tags_set: list[str] = []
    code_set: list[Int32] = []
    sub_version: Int64 = 0
    expression_type: str = "TAG"


class ProducerData(Body, frozen=True, kw_only=True):
    """A producer group that the client belongs to. Source: ProducerData."""

    group_name: str


class ConsumerData(Body, frozen=True, kw_only=True):
    """A consumer group that the client belongs to. Source: ConsumerData.

    `consume_type` is CONSUME_PASSIVELY (push), CONSUME_ACTIVELY (pull) or CONSUME_POP, `message_model` CLUSTERING or
    BROADCASTING, `consume_from_where` CONSUME_FROM_LAST_OFFSET, CONSUME_FROM_FIRST_OFFSET or CONSUME_FROM_TIMESTAMP.
    """

    group_name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True, kw_only=True):
    """HEART_BEAT's body. Source: HeartbeatData.

    A client of version 2 of the heartbeat sends a fingerprint, and its subscriptions only when they have changed.
    """

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


class CheckClientRequestBody(Body, frozen=True, kw_only=True):
    """CHECK_CLIENT_CONFIG: is this subscription's filter expression understood? Source: CheckClientRequestBody."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class GetConsumerListByGroupResponseBody(Body, frozen=True, kw_only=True):
    """The ids of a group's members. Source: GetConsumerListByGroupResponseBody."""

    consumer_id_list: list[str] = []


class LockBatchRequestBody(Body, frozen=True, kw_only=True):
    """LOCK_BATCH_MQ: who asks for which queues. Source: LockBatchRequestBody."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class LockBatchResponseBody(Body, frozen=True, kw_only=True):
    """The queues that were locked. Source: LockBatchResponseBody."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(name="lockOKMQSet", default_factory=list)


class UnlockBatchRequestBody(Body, frozen=True, kw_only=True):
    """UNLOCK_BATCH_MQ. Source: UnlockBatchRequestBody."""

    consumer_group: str | None = None
    client_id: str | None = None
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = []


class Connection(Body, frozen=True, kw_only=True):
    """One client of a group. `language` is a LanguageCode's name. Source: body.Connection."""

    client_id: str
    client_addr: str
    language: str
    version: Int32


class ReportedSubscription(Body, frozen=True, kw_only=True):
    """One topic as a member subscribes to it."""

    topic: str
    sub_string: str
    expression_type: str = "TAG"


class SubscriptionVariant(Body, frozen=True, kw_only=True):
    """Members of a group that subscribe alike, letter by letter, and to what."""

    client_ids: list[str] = []
    subscriptions: list[ReportedSubscription] = []


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST's answer. Source: ConsumerConnection.

    `subscription_table` is what the last heartbeat said for all. `subscription_variants` is Highwater's own, which other
    clients ignore: what each member reported; a member whose words the broker has not kept is in none.
    """

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    subscription_variants: list[SubscriptionVariant] | None = None
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST's answer. Source: ProducerConnection."""

    connection_set: list[Connection] = []


class ProducerInfo(Body, frozen=True, kw_only=True):
    """A producer in GET_ALL_PRODUCER_INFO's answer; `last_update_timestamp` is when its last heartbeat came, in milliseconds.

    Source: ProducerInfo.
    """

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")  # a Java address: with a slash before it and the port behind
    language: str
    version: Int32
    last_update_timestamp: Int64


class ProducerTableInfo(Body, frozen=True, kw_only=True):
    """GET_ALL_PRODUCER_INFO's answer: producers by group. Source: ProducerTableInfo."""

    data: dict[str, list[ProducerInfo]] = {}


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    """A queue that a consumer works on. Source: ProcessQueueInfo."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int64 = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False  # RocketMQ's own spelling
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """A consumer's rates for one topic; times are milliseconds. Source: ConsumeStatus."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO's answer, made by the client. Source: ConsumerRunningInfo."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY's answer. `consume_result` is CMResult's name, Go writes its number."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | int | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
