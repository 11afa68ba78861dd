"""INVOKE_BROKER_TO_RESET_OFFSET and CLONE_GROUP_OFFSET: offsets are set on the server, for groups online or not.

A reset is answered when as many replicas hold it as a message needs, and holds until the group's next pull of each queue,
whose answer sends the client there; commits until then do not count. Source: AdminBrokerProcessor.resetOffsetInner.
"""

from __future__ import annotations

import logging

from brokerd.dispatch_types import Handler, Reply
from brokerd.processors.context import Broker, Peer
from brokerd.processors.handler import answers_refusals, changing_tables, existing_group, existing_topic, not_written
from brokerd.processors.refusal import Refusal
from brokerd.store import StoreError
from mqwire.bodies import MessageQueue, ResetOffsetBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader

logger = logging.getLogger(__name__)

_LATEST = -1  # a negative timestamp asks for the queue's end


@answers_refusals
def reset_offset(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """To an offset (one queue), or to a time (one queue or all). Answers the new offset of each queue."""
    changing_tables(broker)
    header = request.header(ResetOffsetRequestHeader)
    topic, group = header.topic, header.group
    config = existing_topic(broker, topic)
    existing_group(broker, group)
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
    logger.warning("%s resets group %s in topic %s", peer.remote_address[0], group, topic)
    try:
        broker.consumer_offsets.reset(topic, group, targets)
    except StoreError as error:
        raise not_written(error) from error
    table = {
        MessageQueue(topic=topic, broker_name=broker.config.broker_name, queue_id=queue_id): offset
        for queue_id, offset in targets.items()
    }
    return broker.metadata_log.answer(request.reply(body=ResetOffsetBody(offset_table=table).to_json()))


def _checked(broker: Broker, topic: str, queue_id: int, offset: int) -> int:
    first, end = broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id)
    if not first <= offset <= end:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"Target offset {offset} not in consume queue range [{first}-{end}] of queue {queue_id}",
        )
    return offset


def _at_time(broker: Broker, topic: str, queue_id: int, timestamp_ms: int) -> int:
    if timestamp_ms <= _LATEST:
        return broker.store.max_offset(topic, queue_id)
    return broker.store.offset_by_time(topic, queue_id, timestamp_ms)


@answers_refusals
def clone_group_offset(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Gives one group the offsets of another, in one topic or in all."""
    changing_tables(broker)
    header = request.header(CloneGroupOffsetRequestHeader)
    existing_group(broker, header.dest_group)
    topics = [header.topic] if header.topic else broker.consumer_offsets.topics_of(header.src_group)
    for topic in topics:
        existing_topic(broker, topic)
    logger.warning(
        "%s clones the offsets of group %s to %s", peer.remote_address[0], header.src_group, header.dest_group
    )
    try:
        for topic in topics:
            broker.consumer_offsets.clone(header.src_group, header.dest_group, topic)
    except StoreError as error:
        raise not_written(error) from error
    return broker.metadata_log.answer(request.reply())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset,
    RequestCode.CLONE_GROUP_OFFSET: clone_group_offset,
}
