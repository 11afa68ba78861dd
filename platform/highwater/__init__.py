"""highwater: producers, consumers and administration for Highwater clusters and Apache RocketMQ.

Each class exists twice, with the same names and arguments: `Producer`, `PushConsumer` and `Admin` for ordinary code,
`AsyncProducer`, `AsyncPushConsumer` and `AsyncAdmin` for asyncio and trio. Only the names below are public.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from highwater._public import *

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
    "TimeSpentError",
    "TopicConfig",
    "TopicLimit",
    "TopicNotFoundError",
    "TopicRoute",
    "TopicStats",
    "WaitBudget",
    "is_system_topic",
    "trust_ca",
]

if not typing.TYPE_CHECKING:  # a type checker would believe that any name is here

    def __getattr__(name: str) -> object:
        """Load what is public when the first of it is asked for: half of the command line does without it."""
        if name == "errors":  # the one module of ours that programs are told to look into
            return importlib.import_module("highwater.errors")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = importlib.import_module("highwater._public")
        globals().update({each: getattr(public, each) for each in __all__})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
