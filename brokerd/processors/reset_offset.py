"""INVOKE_BROKER_TO_RESET_OFFSET and CLONE_GROUP_OFFSET: offsets are set on the server, for groups online or not.

A reset is answered when as many replicas hold it as a message needs. Members that are online are sent there by the answers to
their pulls, which end their wait for messages; no commit counts until one pulls from there. RocketMQ does so too with
useServerSideResetOffset, its default, and then sends no RESET_CONSUMER_CLIENT_OFFSET either; but it answers only one pull of
each queue so, and takes commits from then on. Source: AdminBrokerProcessor.resetOffsetInner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import (
    answers_refusals,
    changing_tables,
    consumable_topic,
    existing_group,
    knowing_offsets,
    not_written,
)
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from mqwire.bodies import MessageQueue, ResetOffsetBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brokerd.config import BrokerConfig
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.processors.context import Clock, Follower, MetadataLog
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

_LATEST = -1  # a negative timestamp asks for the queue's end


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    replica: Replica

    @property
    def follower(self) -> Follower: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def metadata_log(self) -> MetadataLog: ...

    def offsets_reset(self, topic: str, group: str, queue_ids: Iterable[int]) -> None: ...


@answers_refusals
def reset_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """To an offset (one queue), or to a time (one queue or all). Answers the new offset of each queue."""
    changing_tables(broker.metadata_log)
    knowing_offsets(broker.replica, broker.follower, broker.clock)
    header = request.header(ResetOffsetRequestHeader)
    topic, group = header.topic, header.group
    config = consumable_topic(broker.topic_configs, topic)
    existing_group(broker.subscription_groups, group)
    if header.queue_id >= config.read_queue_nums:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queue {header.queue_id} of topic {topic} does not exist: it has {config.read_queue_nums} read queues",
        )
    if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
        targets = {header.queue_id: _checked(broker, topic, header.queue_id, header.offset)}
    else:
        queue_ids = [header.queue_id] if header.queue_id >= 0 else list(range(config.read_queue_nums))
        targets = {queue_id: _at_time(broker, topic, queue_id, header.timestamp) for queue_id in queue_ids}
    if not targets:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic} has no read queues: there is nothing to reset")
    # Requests for one queue say False without meaning it.
    staying = _in_front(broker, topic, group, targets) if header.is_force is False and header.queue_id < 0 else {}
    resets = {queue_id: offset for queue_id, offset in targets.items() if queue_id not in staying}
    if resets:
        logger.warning("%s resets group %s in topic %s", peer.remote_address[0], group, topic)
        try:
            broker.consumer_offsets.reset(topic, group, resets)
        except StoreError as error:
            raise not_written(error) from error
        broker.offsets_reset(topic, group, resets)
    table = {
        MessageQueue(topic=topic, broker_name=broker.config.broker_name, queue_id=queue_id): offset
        for queue_id, offset in {**targets, **staying}.items()
    }
    return broker.metadata_log.answer(request.reply(body=ResetOffsetBody(offset_table=table).to_json()))


def _checked(broker: _Broker, topic: str, queue_id: int, offset: int) -> int:
    first, end = broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id)
    if not first <= offset <= end:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"Target offset {offset} not in consume queue range [{first}-{end}] of queue {queue_id}",
        )
    return offset


def _at_time(broker: _Broker, topic: str, queue_id: int, timestamp_ms: int) -> int:
    if timestamp_ms <= _LATEST:
        return broker.store.max_offset(topic, queue_id)
    return broker.store.offset_by_time(topic, queue_id, timestamp_ms)


def _in_front(broker: _Broker, topic: str, group: str, targets: dict[int, int]) -> dict[int, int]:
    """The group's offsets in the queues where it is at the target or in front of it: there it would pass over messages."""
    offsets = {queue_id: broker.consumer_offsets.query(topic, group, queue_id) for queue_id in targets}
    return {queue_id: offset for queue_id, offset in offsets.items() if 0 <= offset <= targets[queue_id]}


@answers_refusals
def clone_group_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Gives one group the offsets of another, in one topic or in all."""
    changing_tables(broker.metadata_log)
    header = request.header(CloneGroupOffsetRequestHeader)
    existing_group(broker.subscription_groups, header.dest_group)
    topics = [header.topic] if header.topic else broker.consumer_offsets.topics_of(header.src_group)
    for topic in topics:
        consumable_topic(broker.topic_configs, topic)
    logger.warning(
        "%s clones the offsets of group %s to %s", peer.remote_address[0], header.src_group, header.dest_group
    )
    try:
        for topic in topics:
            cloned = broker.consumer_offsets.clone(header.src_group, header.dest_group, topic)
            broker.offsets_reset(topic, header.dest_group, cloned)
    except StoreError as error:
        raise not_written(error) from error
    return broker.metadata_log.answer(request.reply())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset,
    RequestCode.CLONE_GROUP_OFFSET: clone_group_offset,
}
