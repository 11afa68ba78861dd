"""HEART_BEAT, UNREGISTER_CLIENT and CHECK_CLIENT_CONFIG: who the clients are. Source: ClientManageProcessor."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from brokerd.acl import credential_of
from brokerd.acl_needs import heartbeat_of
from brokerd.client_channel import ClientChannel
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.producer_manager import PRODUCERS_BYTES_MAX
from brokerd.quotas import QuotaReached
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from brokerd.topic_validator import GROUP_MAX_LENGTH
from mqwire.bodies import CheckClientRequestBody, ConsumerData, HeartbeatData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import UnregisterClientRequestHeader
from mqwire.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.producer_manager import ProducerManager
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

# MixAll: what the answer to a heartbeat says to clients that can send version 2 of it.
_SUPPORTS_HEARTBEAT_V2 = "IS_SUPPORT_HEART_BEAT_V2"
_SUBSCRIPTION_CHANGED = "IS_SUB_CHANGE"

_CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
_HAS_UNIT_SUB = 1 << 1  # TopicSysFlag: consumers of several units read this retry topic

# One client instance with more groups than this is a mistake or an attack: each may create a group and a topic.
_GROUPS_PER_CLIENT_MAX = 1024
_CLIENT_ID_MAX_CHARACTERS = 512


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    acl: AccessControl | None

    def register_soon(self) -> None: ...


@answers_refusals
def heart_beat(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Registers the client in its groups, making groups and retry topics where that is allowed."""
    data = heartbeat_of(request)
    if len(data.consumer_data_set) + len(data.producer_data_set) > _GROUPS_PER_CLIENT_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the heartbeat names {len(data.consumer_data_set) + len(data.producer_data_set)} groups, at most"
            f" {_GROUPS_PER_CLIENT_MAX} are taken: use several client instances",
        )
    _check_names(data)
    _create_groups(broker, request, [consumer for consumer in data.consumer_data_set if not consumer.unit_mode])
    # A client of version 1 sends everything each time, and need not ask whether it has to.
    subscriptions_changed = data.heartbeat_fingerprint == 0
    for consumer in data.consumer_data_set:
        if consumer.consume_type == _CONSUME_ACTIVELY and broker.config.reject_pull_consumer_enable:
            continue
        subscriptions_changed |= _register_consumer(broker, peer, request, data, consumer)
    for producer in data.producer_data_set:
        if not broker.producers.register(producer.group_name, _channel(peer, request, data.client_id)):
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"the memberships of all producers would take more than the {PRODUCERS_BYTES_MAX} bytes that this broker keeps:"
                " use fewer producer groups, or give clients shorter ids",
            )
    return request.reply(
        ext_fields={
            _SUPPORTS_HEARTBEAT_V2: "true",
            _SUBSCRIPTION_CHANGED: "true" if subscriptions_changed else "false",
        }
    )


def _check_names(data: HeartbeatData) -> None:
    """Raise Refusal for names that no client gives: the broker would keep them for minutes."""
    if len(data.client_id) > _CLIENT_ID_MAX_CHARACTERS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the client's id has {len(data.client_id)} characters: at most {_CLIENT_ID_MAX_CHARACTERS} are allowed",
        )
    for producer in data.producer_data_set:
        if len(producer.group_name) > GROUP_MAX_LENGTH:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"a producer group's name has {len(producer.group_name)} characters: at most {GROUP_MAX_LENGTH} are allowed",
            )


def _create_groups(broker: _Broker, request: RemotingCommand, consumers: list[ConsumerData]) -> None:
    """Groups and retry topics of one heartbeat, with one write each: the fsync of each of hundreds would hold up everyone."""
    groups = broker.subscription_groups
    names = [
        consumer.group_name
        for consumer in consumers
        if consumer.consume_type != _CONSUME_ACTIVELY or not broker.config.reject_pull_consumer_enable
    ]
    try:
        refusal = groups.create_missing(names, credential_of(broker.acl, request))
        if refusal is not None:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{refusal}: delete groups that no one uses, or use fewer")
        known = [group for group in map(groups.select, names) if group is not None]
        queues = {RETRY_GROUP_TOPIC_PREFIX + group.group_name: group.retry_queue_nums for group in known}
        if broker.topic_configs.create_retry_topics({topic: count for topic, count in queues.items() if count > 0}):
            broker.register_soon()
    except QuotaReached as error:
        raise Refusal(ResponseCode.SYSTEM_BUSY, str(error)) from error
    except StoreError as error:  # of a slave, say: the master makes them
        logger.debug("groups are not created yet: %s", error)


def _register_consumer(
    broker: _Broker, peer: Peer, request: RemotingCommand, data: HeartbeatData, consumer: ConsumerData
) -> bool:
    """Returns whether the client must send its subscriptions (again)."""
    name = consumer.group_name
    group = broker.subscription_groups.find_or_create(name, credential_of(broker.acl, request))
    if group is None:
        # As in RocketMQ: the client learns it from its first pull, whose error it shows to its user.
        logger.info("heartbeat of %s: group %a does not exist", data.client_id, name[:128])
        return False
    if group.retry_queue_nums > 0:
        _ensure_retry_topic(broker, consumer, group.retry_queue_nums)
    changed = False
    subscriptions = None
    if data.heartbeat_fingerprint != 0:
        changed = broker.consumers.fingerprint_changed(name, data.heartbeat_fingerprint)
    if not data.without_sub:
        subscriptions = consumer.subscription_data_set
    elif broker.consumers.find(name) is None:
        changed = True  # this broker has restarted: it knows no subscription to go on with
    words = (consumer.consume_type, consumer.message_model, consumer.consume_from_where)
    channel = _channel(peer, request, data.client_id)
    remark = broker.consumers.too_much(name, channel, words, subscriptions)
    if remark is not None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    broker.consumers.register(
        name,
        channel,
        consume_type=consumer.consume_type,
        message_model=consumer.message_model,
        consume_from_where=consumer.consume_from_where,
        subscriptions=subscriptions,
        notify=group.notify_consumer_ids_changed_enable,
    )
    return changed


def _ensure_retry_topic(broker: _Broker, consumer: ConsumerData, queue_nums: int) -> None:
    topics = broker.topic_configs
    retry_topic = RETRY_GROUP_TOPIC_PREFIX + consumer.group_name
    known = topics.select(retry_topic)
    order = any(topics.is_order_topic(data.topic) for data in consumer.subscription_data_set)
    sys_flag = _HAS_UNIT_SUB if consumer.unit_mode else 0
    try:
        changed = topics.create_for_send_back(retry_topic, queue_nums, order=order, sys_flag=sys_flag) is not known
    except StoreError as error:  # of a slave, say: the master makes it
        logger.debug("topic %s is not created yet: %s", retry_topic, error)
        return
    if changed:
        broker.register_soon()


def _channel(peer: Peer, request: RemotingCommand, client_id: str) -> ClientChannel:
    return ClientChannel(peer, client_id, request.language, request.version)


def unregister_client(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """A client stops in an orderly way: its groups' other members share its queues at once."""
    header = request.header(UnregisterClientRequestHeader)
    if header.producer_group is not None:
        broker.producers.unregister(header.producer_group, peer)
    if header.consumer_group is not None:
        group = broker.subscription_groups.select(header.consumer_group)
        notify = group is None or group.notify_consumer_ids_changed_enable
        broker.consumers.unregister(header.consumer_group, peer, notify=notify)
    return request.reply()


def check_client_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Whether this broker understands a subscription's filter expression."""
    subscription = CheckClientRequestBody.from_client(request.body).subscription_data
    if subscription is not None and subscription.expression_type not in ("", "TAG"):
        return request.reply(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by"
            f" {subscription.expression_type[:40]!a}: subscribe with tags",
        )
    return request.reply()


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.HEART_BEAT: heart_beat,
    RequestCode.UNREGISTER_CLIENT: unregister_client,
    RequestCode.CHECK_CLIENT_CONFIG: check_client_config,
}
