"""GET_CONSUMER_LIST_BY_GROUP, QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET. Source: ConsumerManageProcessor."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import (
    answers_refusals,
    changing_tables,
    consumable_topic,
    existing_group,
    knowing_offsets,
    not_written,
    reading_tables,
)
from brokerd.replica.in_sync import SendVerdict
from brokerd.replies import AfterOffsets, Refusal, Reply
from brokerd.store import StoreError
from mqwire.bodies import GetConsumerListByGroupResponseBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import GetConsumerListByGroupRequestHeader
from mqwire.headers_offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.message import PHYSICAL_OFFSET_POSITION

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.processors.context import Clock, Follower, MetadataLog, StrandedPulls
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from brokerd.unproven_offsets import UnprovenOffsets

logger = logging.getLogger(__name__)

_MEMORY_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    unproven_offsets: UnprovenOffsets
    consumers: ConsumerManager
    replica: Replica

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def stranded_pulls(self) -> StrandedPulls: ...

    @property
    def follower(self) -> Follower: ...

    @property
    def clock(self) -> Clock: ...


def get_consumer_list_by_group(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The members of a group, from which each of them computes its share of the queues."""
    group = request.header(GetConsumerListByGroupRequestHeader).consumer_group
    info = broker.consumers.find(group)
    if info is None:
        return request.reply(
            ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group[:128]!a}: none of it has sent a heartbeat"
        )
    members = [] if broker.stranded_pulls.hides_members_from(request.language) else info.client_ids()
    return request.reply(body=GetConsumerListByGroupResponseBody(consumer_id_list=members).to_json())


@answers_refusals
def query_consumer_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Where the group goes on in a queue; QUERY_NOT_FOUND lets the client decide by its consumeFromWhere."""
    header = request.header(QueryConsumerOffsetRequestHeader)
    knowing_offsets(broker.replica, broker.follower, broker.clock)
    reading_tables(broker.metadata_log)
    offset = broker.consumer_offsets.query(header.topic, header.consumer_group, header.queue_id)
    if offset < 0:
        if not broker.replica.leads:
            # With QUERY_NOT_FOUND the consumer would start where its consumeFromWhere says, perhaps after messages.
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"this replica is a slave, has lost its master, and knows no offset of group {header.consumer_group} in"
                f" queue {header.queue_id} of {header.topic}; the master may: ask again when there is one",
            )
        if header.set_zero_if_not_found is False or not _starts_at_zero(broker, header.topic, header.queue_id):
            return request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                f"group {header.consumer_group} has no offset in queue {header.queue_id} of {header.topic}: it has"
                " not consumed there yet",
            )
        offset = 0
    reply = request.reply(header=QueryConsumerOffsetResponseHeader(offset=offset))
    return _once_held(broker, reply, header) if broker.replica.leads else reply


def _once_held(broker: _Broker, reply: RemotingCommand, header: QueryConsumerOffsetRequestHeader) -> Reply:
    """What is answered here does not fall with a failover: it waits until it is held, unless too few replicas are in sync."""
    log = broker.metadata_log
    if broker.consumer_offsets.is_unwritten(header.topic, header.consumer_group, header.queue_id):
        try:
            log.write_offsets()
        except StoreError as error:
            raise Refusal(not_written(error).code, str(error)) from error
    return log.answer(reply) if broker.replica.verdict(log.end_offset) is SendVerdict.WAIT else reply


def _starts_at_zero(broker: _Broker, topic: str, queue_id: int) -> bool:
    """Whether a new group gets all of a young topic, whatever its consumeFromWhere says.

    A topic is young while its first message is there and so recent that it would be in memory: RocketMQ's rule, which
    spares a consumer that starts after its producer from missing the first messages.
    """
    store = broker.store
    if store.min_offset(topic, queue_id) > 0 or store.max_offset(topic, queue_id) == 0:
        return False
    first = store.get_messages(topic, queue_id, 0, 1, 1)
    if not first.chunks:
        return False
    record = first.chunks[0]
    physical_offset = int.from_bytes(record[PHYSICAL_OFFSET_POSITION : PHYSICAL_OFFSET_POSITION + 8], "big")
    in_memory_bytes = _MEMORY_BYTES * broker.config.access_message_in_memory_max_ratio // 100
    return store.end_offset - physical_offset <= in_memory_bytes


@answers_refusals
def update_consumer_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """A group's progress. It is never lowered (resets do that), and never put past the queue's end.

    An answer waits until as many replicas hold the offset as a message needs. What most clients send, a commit without an
    answer, is written to the log within half a second.
    """
    header = request.header(UpdateConsumerOffsetRequestHeader)
    topic, group, queue_id, offset = header.topic, header.consumer_group, header.queue_id, header.commit_offset
    existing_group(broker.subscription_groups, group)
    config = consumable_topic(broker.topic_configs, topic)
    if not 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queue {queue_id} of topic {topic} does not exist: it has {config.read_queue_nums} read queues",
        )
    if offset < 0:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the offset {offset} is negative: commit 0 or more")
    offsets = broker.consumer_offsets
    if not broker.replica.leads and (request.is_oneway or not broker.follower.hears_leader):
        offsets.hint(topic, group, queue_id, offset)  # for the leader, when it is back
    changing_tables(broker.metadata_log)
    if offsets.has_reset(topic, group, queue_id):
        return request.reply(remark="Offset has been previously reset: this commit is not taken, pull again")
    end_offset = broker.store.queue_end_offset(topic, queue_id) or 0
    if offset > end_offset:
        # It has read messages that a promotion truncated. To take the end for it would pass over those that took their place.
        logger.warning(
            "%s commits offset %d of group %s in %s, queue %d, which ends at %d: not taken",
            *(peer.remote_address[0], offset, group, topic, queue_id, end_offset),
        )
        return request.reply(
            remark=f"offset {offset} is past the end of queue {queue_id} of topic {topic}, {end_offset}: this commit is not"
            " taken, pull again"
        )
    if not broker.unproven_offsets.is_proven(topic, group, queue_id, offset):
        broker.unproven_offsets.refused(topic, group, queue_id)
        return request.reply(
            remark=f"the messages of queue {queue_id} of topic {topic} in front of {offset} may be others than those that were"
            " consumed, which a promotion has lost: this commit is not taken, pull again"
        )
    refusal = offsets.refusal(topic, group, (queue_id,))
    if refusal is not None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, refusal)
    remark = None
    if not offsets.commit(topic, group, queue_id, offset, peer.remote_address[0]):
        remark = f"offset {offset} is lower than what the group has committed, which stays: reset it to go back"
    return AfterOffsets(request.reply(remark=remark))


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: get_consumer_list_by_group,
    RequestCode.QUERY_CONSUMER_OFFSET: query_consumer_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: update_consumer_offset,
}
