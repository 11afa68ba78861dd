"""highwater: producers, consumers and administration for Highwater clusters and Apache RocketMQ.

Each class exists twice, with the same names and arguments: `Producer`, `PushConsumer` and `Admin` for ordinary code,
`AsyncProducer`, `AsyncPushConsumer` and `AsyncAdmin` for asyncio and trio. Only the names below are public.
"""

from highwater._admin import AsyncAdmin
from highwater._admin_models import (
    AclAccount,
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumeMessageDirectlyResult,
    ConsumerConnections,
    ConsumerProgress,
    ConsumerRunningInfo,
    MemberSubscription,
    ProcessQueueInfo,
    QueryResult,
    QueueProgress,
    QueueStats,
    SubscriptionGroup,
    TopicConfig,
    TopicLimit,
    TopicStats,
)
from highwater._admin_replica import DivergedMessages, GroupMember
from highwater._admin_topics import is_system_topic
from highwater._consumer import AsyncPushConsumer
from highwater._models import (
    ConsumeFrom,
    Credentials,
    Message,
    MessageQueue,
    ReceivedMessage,
    RetryLater,
    SendResult,
    SendStatus,
)
from highwater._network import trust_ca
from highwater._producer import AsyncProducer
from highwater._routes import TopicRoute
from highwater._sync_admin import Admin
from highwater._sync_consumer import PushConsumer
from highwater._sync_producer import Producer
from highwater.errors import (
    BrokerError,
    BusyError,
    ClientStateError,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    ConsumerOfflineError,
    ConsumerTooOldError,
    GroupNotFoundError,
    HighwaterError,
    MessageIllegalError,
    MessageRefusedError,
    NoRouteError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    ProtocolError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from mqwire.bodies import DivergedFile, FollowerStatus, QuorumStatus, ReplicaStatus

__all__ = [
    "AclAccount",
    "Admin",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPushConsumer",
    "BrokerData",
    "BrokerError",
    "BusyError",
    "ClientConnection",
    "ClientStateError",
    "ClusterInfo",
    "ConfigurationError",
    "ConnectError",
    "ConnectionLostError",
    "ConsumeFrom",
    "ConsumeMessageDirectlyResult",
    "ConsumerConnections",
    "ConsumerOfflineError",
    "ConsumerProgress",
    "ConsumerRunningInfo",
    "ConsumerTooOldError",
    "Credentials",
    "DivergedFile",
    "DivergedMessages",
    "FollowerStatus",
    "GroupMember",
    "GroupNotFoundError",
    "HighwaterError",
    "MemberSubscription",
    "Message",
    "MessageIllegalError",
    "MessageQueue",
    "MessageRefusedError",
    "NoRouteError",
    "NotFoundError",
    "NotSupportedError",
    "PermissionDeniedError",
    "ProcessQueueInfo",
    "Producer",
    "ProtocolError",
    "PushConsumer",
    "QueryResult",
    "QueueProgress",
    "QueueStats",
    "QuorumStatus",
    "ReceivedMessage",
    "ReplicaStatus",
    "RequestTimeoutError",
    "RetryLater",
    "SendResult",
    "SendStatus",
    "SubscriptionGroup",
    "TopicConfig",
    "TopicLimit",
    "TopicNotFoundError",
    "TopicRoute",
    "TopicStats",
    "is_system_topic",
    "trust_ca",
]
