"""Headers about clients: heartbeats, membership, locks, and the requests that a broker sends to its clients."""

from __future__ import annotations

import msgspec

from mqwire.header import RpcRequestHeader, TopicRequestHeader


class HeartbeatRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """HEART_BEAT (34); the body is HeartbeatData."""


class UnregisterClientRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """UNREGISTER_CLIENT (35): a client leaves the groups that are named."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """NOTIFY_CONSUMER_IDS_CHANGED (40), broker to consumers, one-way: rebalance now."""

    consumer_group: str


class LockBatchMqRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """LOCK_BATCH_MQ (41); the body is LockBatchRequestBody."""


class UnlockBatchMqRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """UNLOCK_BATCH_MQ (42); the body is UnlockBatchRequestBody."""


class GetConsumerConnectionListRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO (307), handed on by the broker to the client that is named."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class GetConsumerStatusRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), handed on as GET_CONSUMER_STATUS_FROM_CLIENT (221), without `client_addr`.

    `client_addr` is a client id, whatever its name; without one every member of the group is asked.
    """

    topic: str
    group: str
    client_addr: str | None = None


class ConsumeMessageDirectlyResultRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY (309): one message to one client, now."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
