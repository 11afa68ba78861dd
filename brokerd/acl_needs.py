"""What each request needs, as a table: the one place that says who may do what.

A request code that is not in the table needs an admin account. Resources are taken from the request itself; a request
whose resource only the store knows (VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK) is checked again by its processor, with
`AccessControl.refuses`. Source of the first half: PlainAccessResource and AclUtils.permission of 4.9; RocketMQ leaves
most of the second half to anyone with an account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from brokerd.acl_file import Permission
from mqwire.bodies import CheckClientRequestBody, HeartbeatData, LockBatchRequestBody
from mqwire.codes import RequestCode as Code
from mqwire.command import RemotingCommand


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
    topics = [fields.get("topic", ""), *fields.get("topicList", "").split(";")]
    return [
        Need(Kind.GROUP, fields.get("consumerGroup", ""), _SUB),
        *(Need(Kind.TOPIC, topic, _SUB) for topic in topics if topic),
    ]


def _heartbeat(request: RemotingCommand) -> list[Need]:
    """Each group that the client joins, and each topic that it subscribes to there."""
    needs = []
    for consumer in HeartbeatData.from_json(request.body).consumer_data_set:
        needs.append(Need(Kind.GROUP, consumer.group_name, _SUB))
        needs += [Need(Kind.TOPIC, data.topic, _SUB) for data in consumer.subscription_data_set]
    return needs


def _locks(request: RemotingCommand) -> list[Need]:
    body = LockBatchRequestBody.from_json(request.body)
    topics = dict.fromkeys(queue.topic for queue in body.mq_set)
    return [Need(Kind.GROUP, body.consumer_group or "", _SUB), *(Need(Kind.TOPIC, topic, _SUB) for topic in topics)]


def _client_config(request: RemotingCommand) -> list[Need]:
    body = CheckClientRequestBody.from_json(request.body)
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
    Code.QUERY_CONSUME_TIME_SPAN: _all(_group("group"), _topic("topic", _SUB)),
    # All others: Level.ADMIN.
}


def needs_of(request: RemotingCommand) -> list[Need] | Level:
    """What `request` needs. Raises RemoteProtocolError when its body cannot be read."""
    needs = NEEDS.get(request.code, Level.ADMIN)
    return needs if isinstance(needs, Level) else needs(request)
