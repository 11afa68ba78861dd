"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: orderly consumers hold their queues. Source: AdminBrokerProcessor.lockBatchMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from brokerd.acl import credential_of
from brokerd.acl_needs import locks_of
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.replies import Refusal, Reply
from mqwire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig
    from brokerd.rebalance_lock import RebalanceLockManager
    from brokerd.replica.replica import Replica
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

_CLIENT_ID_MAX_CHARACTERS: Final = 512


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    acl: AccessControl | None
    subscription_groups: SubscriptionGroupManager
    rebalance_locks: RebalanceLockManager
    replica: Replica
    topic_configs: TopicConfigManager


@answers_refusals
def lock_batch_mq(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Answers the queues that the client holds now, for 60 s; the others belong to another member.

    The master's locks alone keep others away. A client that takes a former one for it would hold what another has locked there.
    """
    if not broker.replica.leads:
        leader = broker.replica.leader_address or "not known here"
        raise Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"queues are locked at the master, which this replica is not: it is {leader}",
        )
    body = locks_of(request)
    name, client_id = _who(body)
    # Made as by a heartbeat, which may come after the first lock where a broker has joined the route in between.
    group = broker.subscription_groups.find_or_create(name, credential_of(broker.acl, request))
    if group is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {name[:128]!a}: create it first",
        )
    queues = [known for queue in body.mq_set if (known := _known(broker, queue)) is not None]
    locked = broker.rebalance_locks.try_lock_batch(group.group_name, queues, client_id)
    return request.reply(body=LockBatchResponseBody(lock_ok_mq_set=locked).to_json())


@answers_refusals
def unlock_batch_mq(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    body = locks_of(request)
    group, client_id = _who(body)
    broker.rebalance_locks.unlock_batch(group, body.mq_set, client_id)
    return request.reply()


def _known(broker: _Broker, queue: MessageQueue) -> MessageQueue | None:
    """The queue, with the broker's own texts in place of those that came with the request; None when there is none."""
    topic = broker.topic_configs.select(queue.topic)
    if (
        topic is None
        or queue.broker_name != broker.config.broker_name
        or not 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
    ):
        return None
    return MessageQueue(topic=topic.topic_name, broker_name=broker.config.broker_name, queue_id=queue.queue_id)


def _who(body: LockBatchRequestBody) -> tuple[str, str]:
    """The group and the client's id; raises Refusal for a lock of no one, and for an id that no client has."""
    if not body.consumer_group or not body.client_id:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "a lock needs consumerGroup and clientId in its body")
    if len(body.client_id) > _CLIENT_ID_MAX_CHARACTERS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"clientId of a lock has {len(body.client_id)} characters: at most {_CLIENT_ID_MAX_CHARACTERS} are allowed",
        )
    return body.consumer_group, body.client_id


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.LOCK_BATCH_MQ: lock_batch_mq,
    RequestCode.UNLOCK_BATCH_MQ: unlock_batch_mq,
}
