"""CONSUMER_SEND_MSG_BACK: a message that a consumer could not process comes again later, or goes to the dead letters.

The copy goes to %RETRY%group with delay level 3 + times consumed before, or to %DLQ%group once it was consumed
maxReconsumeTimes times. Source: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from brokerd.acl import credential_of
from brokerd.acl_file import Permission
from brokerd.acl_needs import Kind
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, not_written
from brokerd.replica.in_sync import SendVerdict
from brokerd.replies import AfterDurable, Refusal, Reply
from brokerd.store import DiskFullError, MessageIllegalError, MessageToStore, StoreError
from mqwire.codes import PermName, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from mqwire.message import StoredMessage, decode_record, pack_host, properties_to_string, tags_code
from mqwire.names import (
    DLQ_GROUP_TOPIC_PREFIX,
    PROPERTY_CRC32,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    RETRY_GROUP_TOPIC_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from brokerd.acl import AccessControl
    from brokerd.processors.context import DelayedMessages
    from brokerd.quotas import Quotas
    from brokerd.replica.replica import Replica
    from brokerd.store import AppendResult, MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from mqwire.bodies import SubscriptionGroupConfig

logger = logging.getLogger(__name__)

_DLQ_QUEUES_PER_GROUP = 1
_FIRST_RETRY_DELAY_LEVEL = 3
_HAS_UNIT_SUB = 1 << 1
_MASTER_ALONE = "the copy is on the master alone: too few slaves are in sync (inSyncReplicas)"


class _Broker(Protocol):
    """What these processors use of the broker."""

    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    acl: AccessControl | None
    quotas: Quotas
    random: Random
    replica: Replica

    @property
    def schedule(self) -> DelayedMessages: ...

    def append(
        self, messages: Sequence[MessageToStore], *, counted_for: str | None = None, any_size: bool = False
    ) -> list[AppendResult]: ...

    def refuses_sends(self) -> str | None: ...

    def register_soon(self) -> None: ...


@answers_refusals
def consumer_send_msg_back(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Answered once the copy is held as a message must be, or by the master alone while slaves are away: the consumer then counts
    the message as consumed.
    """
    header = request.header(ConsumerSendMsgBackRequestHeader)
    credential = credential_of(broker.acl, request)
    group = _existing(broker.subscription_groups.find_or_imagine(header.group, credential), header)
    refusal = broker.refuses_sends()
    if refusal is not None:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
    if group.retry_queue_nums <= 0:
        return request.reply()  # the group asks for no retries
    message = _look_up(broker, request, header)
    # Only now: what gives back no message makes no group.
    group = _existing(broker.subscription_groups.find_or_create(header.group, credential), header)
    # A negative maximum is what some clients send for "as the group says".
    asked_max = header.max_reconsume_times
    max_reconsume_times = group.retry_max_times if asked_max is None or asked_max < 0 else asked_max
    is_dead = header.delay_level < 0 or message.reconsume_times >= max_reconsume_times
    if is_dead:
        queue_nums, topic = _DLQ_QUEUES_PER_GROUP, DLQ_GROUP_TOPIC_PREFIX + header.group
    else:
        queue_nums, topic = group.retry_queue_nums, RETRY_GROUP_TOPIC_PREFIX + header.group
    _ensure_topic(broker, topic, queue_nums, _HAS_UNIT_SUB if header.unit_mode and not is_dead else 0)
    again = _copy(message, header, topic, broker.random.randrange(queue_nums), is_dead=is_dead)
    if broker.quotas.are_set and (remark := broker.quotas.send_refusal(credential, topic)) is not None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    try:
        stored = broker.schedule.transform_on_send(again)
        result = broker.append([stored], counted_for=credential, any_size=True)[0]
    except MessageIllegalError as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, error.reason) from error
    except DiskFullError as error:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"{error}; the message stays where it is") from error
    except StoreError as error:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"the store takes no messages: {error}") from error
    if broker.quotas.are_set:
        broker.quotas.sent(credential, topic, 1, len(again.body))
    if is_dead:
        logger.info("message %s of group %s goes to its dead letters", message.offset_message_id, header.group)
    end_offset = result.physical_offset + result.size_bytes
    if broker.replica.verdict(end_offset) is SendVerdict.SLAVE_NOT_AVAILABLE:
        # As a commit is answered then. Clients take any other code for a failure, and give the message back again: each try would
        # leave two copies, or more, for as long as slaves are away.
        return request.reply(remark=_MASTER_ALONE)
    return AfterDurable(request.reply(), end_offset)


def _existing(
    group: SubscriptionGroupConfig | None, header: ConsumerSendMsgBackRequestHeader
) -> SubscriptionGroupConfig:
    if group is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, {header.group[:128]!a}: create it first",
        )
    return group


def _look_up(broker: _Broker, request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader) -> StoredMessage:
    record = broker.store.message_at(header.offset, expired_too=True) if header.offset >= 0 else None
    if record is None:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {header.offset}: no message begins there, or it has been deleted",
        )
    message = decode_record(record)
    if broker.acl is not None:
        # The offset may be anyone's message: only what the account may read can come to its retry topic.
        for topic in {message.topic, message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)}:
            remark = broker.acl.refuses(request, Kind.TOPIC, topic, Permission.SUB)
            if remark is not None:
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
    return message


def _ensure_topic(broker: _Broker, topic: str, queue_nums: int, sys_flag: int) -> None:
    known = broker.topic_configs.select(topic)
    try:
        config = broker.topic_configs.create_for_send_back(topic, queue_nums, sys_flag=sys_flag)
    except StoreError as error:
        raise not_written(error) from error
    if config is not known:
        broker.register_soon()
    if not config.perm & PermName.WRITE:
        raise Refusal(
            ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden: its permission lacks write"
        )


def _copy(
    message: StoredMessage,
    header: ConsumerSendMsgBackRequestHeader,
    topic: str,
    queue_id: int,
    *,
    is_dead: bool,
) -> MessageToStore:
    properties = dict(message.properties)
    properties.pop(PROPERTY_CRC32, None)  # it belongs to the record that was read
    properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
    origin_topic = properties.setdefault(PROPERTY_RETRY_TOPIC, message.topic)
    origin_id = properties.get(PROPERTY_ORIGIN_MESSAGE_ID) or message.offset_message_id
    properties[PROPERTY_ORIGIN_MESSAGE_ID] = origin_id
    if is_dead:
        properties[PROPERTY_DLQ_ORIGIN_TOPIC] = origin_topic
        properties[PROPERTY_DLQ_ORIGIN_MESSAGE_ID] = origin_id
    else:
        level = header.delay_level or _FIRST_RETRY_DELAY_LEVEL + message.reconsume_times
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
    return MessageToStore(
        topic=topic,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=pack_host(*message.born_host),
        reconsume_times=message.reconsume_times + 1,
        prepared_transaction_offset=0,
        body=message.body,
        properties=properties_to_string(properties).encode("utf-8", "surrogatepass"),
        tags_code=tags_code(properties[PROPERTY_TAGS]) if PROPERTY_TAGS in properties else 0,
    )


HANDLERS: dict[RequestCode, Handler] = {RequestCode.CONSUMER_SEND_MSG_BACK: consumer_send_msg_back}
