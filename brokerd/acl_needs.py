"""What each request needs, as a table: the one place that says who may do what.

Each code that the broker serves is in the table (the dispatcher checks it at the start). Resources are taken from the
request itself; a request whose resource only the store knows (VIEW_MESSAGE_BY_ID, CONSUME_MESSAGE_DIRECTLY,
CONSUMER_SEND_MSG_BACK) is checked again by its processor, with `AccessControl.refuses`. Source of the first half:
PlainAccessResource and AclUtils.permission of 4.9; RocketMQ leaves most of the second half to anyone with an account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from brokerd.acl_file import Permission
from mqwire.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody
from mqwire.codes import HighwaterRequestCode as OwnCode
from mqwire.codes import RequestCode as Code
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError

# Of topics that one request names. Each takes a broker some 10 us, while others wait. No client has as many.
SUBSCRIPTIONS_MAX: Final = 4096
LOCKS_AT_ONCE_MAX: Final = 8192
TAGS_MAX: Final = 4096  # of one subscription: each pull that waits keeps them all


class Kind(Enum):
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Need:
    """One resource that a request touches; `permission` with several bits means any one of them."""

    kind: Kind
    name: str
    permission: Permission


class Level(Enum):
    """Needs that are not about a resource."""

    AUTHENTICATED = "an account"
    ADMIN = "an admin account"
    INFRASTRUCTURE = "the infrastructure's account"


Needs: TypeAlias = Callable[[RemotingCommand], list[Need]]

_PUB: Final = Permission.PUB
_SUB: Final = Permission.SUB
_ANY: Final = Permission.PUB | Permission.SUB


def _topic(field: str, permission: Permission) -> Needs:
    return lambda request: [Need(Kind.TOPIC, request.ext_fields.get(field, ""), permission)]


def _group(field: str, permission: Permission = _SUB) -> Needs:
    return lambda request: [Need(Kind.GROUP, request.ext_fields.get(field, ""), permission)]


def _all(*parts: Needs) -> Needs:
    return lambda request: [need for part in parts for need in part(request)]


def _optional(field: str, part: Needs) -> Needs:
    """Only if the request has the field."""
    return lambda request: part(request) if request.ext_fields.get(field) else []


def _consume_stats(request: RemotingCommand) -> list[Need]:
    fields = request.ext_fields
    topics = dict.fromkeys((fields.get("topic", ""), *fields.get("topicList", "").split(";")))
    if len(topics) > SUBSCRIPTIONS_MAX:
        raise RemoteProtocolError(
            f"topicList names {len(topics)} topics, at most {SUBSCRIPTIONS_MAX} are looked at: ask for less"
        )
    return [
        Need(Kind.GROUP, fields.get("consumerGroup", ""), _SUB),
        *(Need(Kind.TOPIC, topic, _SUB) for topic in topics if topic),
    ]


def _heartbeat(request: RemotingCommand) -> list[Need]:
    """Each group that the client joins, and each topic that it subscribes to there."""
    needs = []
    for consumer in heartbeat_of(request).consumer_data_set:
        needs.append(Need(Kind.GROUP, consumer.group_name, _SUB))
        needs += [Need(Kind.TOPIC, data.topic, _SUB) for data in consumer.subscription_data_set]
    return needs


def heartbeat_of(request: RemotingCommand) -> HeartbeatData:
    """A HEART_BEAT's body; raises RemoteProtocolError, also where it names so many topics that others would wait."""
    data = HeartbeatData.from_client(request.body)
    subscriptions = [one for consumer in data.consumer_data_set for one in consumer.subscription_data_set]
    if len(subscriptions) > SUBSCRIPTIONS_MAX:
        raise RemoteProtocolError(
            f"the heartbeat names {len(subscriptions)} subscriptions, at most {SUBSCRIPTIONS_MAX} are taken: use several client"
            " instances"
        )
    tags = max((max(len(one.tags_set), len(one.code_set)) for one in subscriptions), default=0)
    if tags > TAGS_MAX:
        raise RemoteProtocolError(
            f"a subscription names {tags} tags, at most {TAGS_MAX} are taken: subscribe to fewer, or to *"
        )
    return data


def locks_of(request: RemotingCommand) -> LockBatchRequestBody:
    """The body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ; raises RemoteProtocolError, also for so many queues that others would wait."""
    body = LockBatchRequestBody.from_client(request.body)
    if len(body.mq_set) > LOCKS_AT_ONCE_MAX:
        raise RemoteProtocolError(
            f"{len(body.mq_set)} queues at once: at most {LOCKS_AT_ONCE_MAX} are locked or unlocked so"
        )
    return body


def _locks(request: RemotingCommand) -> list[Need]:
    body = locks_of(request)
    topics = dict.fromkeys(queue.topic for queue in body.mq_set)
    return [Need(Kind.GROUP, body.consumer_group or "", _SUB), *(Need(Kind.TOPIC, topic, _SUB) for topic in topics)]


def _client_config(request: RemotingCommand) -> list[Need]:
    body = CheckClientRequestBody.from_client(request.body)
    return [Need(Kind.GROUP, body.group, _SUB)] if body.group else []


_GROUP_AND_TOPIC: Final = _all(_group("consumerGroup"), _topic("topic", _SUB))

NEEDS: Final[Mapping[int, Needs | Level]] = {
    # Sending. A message to a retry topic is a consumer's own retry: retry topics count as their groups.
    Code.SEND_MESSAGE: _topic("topic", _PUB),
    Code.SEND_MESSAGE_V2: _topic("b", _PUB),
    Code.SEND_BATCH_MESSAGE: _topic("b", _PUB),
    Code.SEND_REPLY_MESSAGE: _topic("topic", _PUB),
    Code.SEND_REPLY_MESSAGE_V2: _topic("b", _PUB),
    Code.END_TRANSACTION: Level.AUTHENTICATED,
    # Consuming.
    Code.PULL_MESSAGE: _GROUP_AND_TOPIC,
    Code.LITE_PULL_MESSAGE: _GROUP_AND_TOPIC,
    Code.CONSUMER_SEND_MSG_BACK: _group("group"),
    Code.QUERY_CONSUMER_OFFSET: _GROUP_AND_TOPIC,
    Code.UPDATE_CONSUMER_OFFSET: _GROUP_AND_TOPIC,
    Code.GET_CONSUMER_LIST_BY_GROUP: _group("consumerGroup"),
    Code.LOCK_BATCH_MQ: _locks,
    Code.UNLOCK_BATCH_MQ: _locks,
    Code.GET_MAX_OFFSET: _topic("topic", _ANY),
    Code.GET_MIN_OFFSET: _topic("topic", _ANY),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _topic("topic", _ANY),
    Code.GET_EARLIEST_MSG_STORETIME: _topic("topic", _ANY),
    Code.QUERY_MESSAGE: _topic("topic", _SUB),
    Code.VIEW_MESSAGE_BY_ID: Level.AUTHENTICATED,
    # Being a client.
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _optional("consumerGroup", _group("consumerGroup")),
    Code.CHECK_CLIENT_CONFIG: _client_config,
    # Looking at one's own topics and groups.
    Code.GET_TOPIC_CONFIG: _topic("topic", _ANY),
    Code.GET_TOPIC_STATS_INFO: _topic("topic", _ANY),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _group("group"),
    Code.GET_CONSUME_STATS: _consume_stats,
    Code.GET_CONSUMER_CONNECTION_LIST: _group("consumerGroup"),
    Code.QUERY_TOPICS_BY_CONSUMER: _group("group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _group("group"),
    # Asking a member of one's own group; whose message a member may be given, its processor checks.
    Code.GET_CONSUMER_RUNNING_INFO: _group("consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: _group("consumerGroup"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _all(_group("group"), _topic("topic", _SUB)),
    Code.QUERY_CONSUME_TIME_SPAN: _all(_group("group"), _topic("topic", _SUB)),
    # A tenant's administration: its topics, groups, offsets and messages, and looks at what carries them.
    Code.UPDATE_AND_CREATE_TOPIC: Level.ADMIN,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: Level.ADMIN,
    Code.DELETE_TOPIC_IN_BROKER: Level.ADMIN,
    Code.GET_ALL_TOPIC_CONFIG: Level.ADMIN,
    Code.GET_TOPIC_CONFIG_LIST: Level.ADMIN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Level.ADMIN,
    Code.CLEAN_UNUSED_TOPIC: Level.ADMIN,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Level.ADMIN,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Level.ADMIN,
    Code.DELETE_SUBSCRIPTIONGROUP: Level.ADMIN,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Level.ADMIN,
    Code.GET_PRODUCER_CONNECTION_LIST: Level.ADMIN,
    Code.GET_ALL_PRODUCER_INFO: Level.ADMIN,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: Level.ADMIN,
    Code.GET_ALL_CONSUMER_OFFSET: Level.ADMIN,
    Code.GET_ALL_DELAY_OFFSET: Level.ADMIN,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: Level.ADMIN,
    Code.CLONE_GROUP_OFFSET: Level.ADMIN,
    Code.GET_BROKER_CONFIG: Level.ADMIN,
    Code.UPDATE_BROKER_CONFIG: Level.ADMIN,  # its processor checks each key
    Code.GET_BROKER_RUNTIME_INFO: Level.ADMIN,
    Code.VIEW_BROKER_STATS_DATA: Level.ADMIN,
    OwnCode.REPLICA_STATUS: Level.ADMIN,
    OwnCode.DIVERGED_LIST: Level.ADMIN,
    OwnCode.DIVERGED_READ: Level.ADMIN,
    OwnCode.DIVERGED_DELETE: Level.ADMIN,
    # The machine's: accounts, replication, who leads, metering.
    Code.UPDATE_AND_CREATE_ACL_CONFIG: Level.INFRASTRUCTURE,
    Code.DELETE_ACL_CONFIG: Level.INFRASTRUCTURE,
    Code.GET_BROKER_CLUSTER_ACL_INFO: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_PULL: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_RECORDS: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_PROMOTE: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_DEMOTE: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_FREEZE_SENDS: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_RECLAIM: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_VOTE: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_BEGIN_EPOCH: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_END_EPOCH: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_CAMPAIGN: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_TRANSFER: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_MEMBERS: Level.INFRASTRUCTURE,
    OwnCode.REPLICA_MODE: Level.INFRASTRUCTURE,
    OwnCode.NETWORK_CUT: Level.INFRASTRUCTURE,
    OwnCode.METERING_REPORT: Level.INFRASTRUCTURE,
    OwnCode.METERING_CLOSE: Level.INFRASTRUCTURE,
}

# What a refused administrator is to do instead.
_INSTEAD: Final[Mapping[int, str]] = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG: "create and change credentials in the console or by the REST API",
    Code.DELETE_ACL_CONFIG: "delete credentials in the console or by the REST API",
    OwnCode.REPLICA_PROMOTE: "promote in the console or by the REST API",
    OwnCode.REPLICA_DEMOTE: "switch over in the console or by the REST API",
    OwnCode.REPLICA_TRANSFER: "transfer the leadership in the console or by the REST API",
    OwnCode.REPLICA_MEMBERS: "change the number of replicas in the console or by the REST API",
    OwnCode.NETWORK_CUT: "start a failover drill in the console or by the REST API",
    OwnCode.REPLICA_MODE: "change the cluster's mode in the console or by the REST API",
}


def instead_of(code: int) -> str:
    """What an administrator does instead of a request that only the infrastructure's account may make."""
    return _INSTEAD.get(code, "the console and the REST API do what tenants need of it")


def needs_of(request: RemotingCommand) -> list[Need] | Level:
    """What `request` needs; a code that is not served, an admin account. Raises RemoteProtocolError when its body cannot be
    read.
    """
    needs = NEEDS.get(request.code, Level.ADMIN)
    return needs if isinstance(needs, Level) else needs(request)
