"""GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY: handed on to the member of a group that they name.
INVOKE_BROKER_TO_GET_CONSUMER_STATUS: where one member, or each, is in a topic by its own word.

Sources: AdminBrokerProcessor.callConsumer, getConsumerRunningInfo, consumeMessageDirectly, getConsumerStatus;
Broker2Client.getConsumeStatus. Differences: the client is sent the request's own fields only, RocketMQ sends it the
administrator's access key and signature too; a message id must name the very record that is found; the message must be one
that the requester may read; a client id that is not online is an error, where RocketMQ answers with an empty table.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.acl_file import Permission
from brokerd.acl_needs import Kind
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.processors.query_message import count_as_pulled
from brokerd.replies import Refusal, Reply
from mqwire import fastjson
from mqwire.bodies import GetConsumerStatusBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from mqwire.message import decode_record, parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brokerd.acl import AccessControl
    from brokerd.client_calls import ClientCalls
    from brokerd.client_channel import ClientChannel
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.processors.context import Clock
    from brokerd.quotas import Quotas
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

_V3_1_8_SNAPSHOT: Final = 62  # MQVersion; older clients do not know these requests
_SHOWN_CHARACTERS: Final = 128  # of names in remarks


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumers: ConsumerManager
    client_calls: ClientCalls
    acl: AccessControl | None
    quotas: Quotas

    @property
    def clock(self) -> Clock: ...


@answers_refusals
def get_consumer_running_info(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """How one member of a group is doing, by its own word: queues, progress, settings and, if asked for, its threads."""
    header = request.header(GetConsumerRunningInfoRequestHeader)
    channel = _member(broker, header.consumer_group, header.client_id)
    only = GetConsumerRunningInfoRequestHeader(
        consumer_group=header.consumer_group, client_id=header.client_id, jstack_enable=header.jstack_enable
    )
    _call(broker, peer, request, channel, header.consumer_group, RemotingCommand.request(request.code, only))
    return None


@answers_refusals
def consume_message_directly(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """One message to one member of a group, now; no offset moves by it. The member says what became of it."""
    header = request.header(ConsumeMessageDirectlyResultRequestHeader)
    channel = _member(broker, header.consumer_group, header.client_id or "")
    record = _message(broker, request, header.msg_id or "")
    topic = None if header.topic is None else broker.topic_configs.select(header.topic)
    group = broker.subscription_groups.select(header.consumer_group)
    only = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=header.consumer_group,
        client_id=header.client_id,
        msg_id=header.msg_id,
        broker_name=broker.config.broker_name,
        topic=header.topic,
        topic_sys_flag=None if topic is None else topic.topic_sys_flag,
        group_sys_flag=None if group is None else group.group_sys_flag,
    )
    _call(
        broker, peer, request, channel, header.consumer_group, RemotingCommand.request(request.code, only, body=record)
    )
    return None


@answers_refusals
def get_consumer_status(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The offsets of a topic's queues that members hold themselves, by client id. Who does not answer is left out."""
    header = request.header(GetConsumerStatusRequestHeader)
    if header.client_addr:
        channels = {header.client_addr: _member(broker, header.group, header.client_addr)}
    else:
        info = broker.consumers.find(header.group)
        channels = {} if info is None else {channel.client_id: channel for channel in info.channels}
    if not channels:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"No Any Consumer online in the consumer group: [{header.group[:_SHOWN_CHARACTERS]}]",
        )
    if request.is_oneway:
        return None
    only = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group)
    asked = {
        client_id: (channel.peer, RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, only))
        for client_id, channel in channels.items()
        if broker.client_calls.refusal(channel.peer) is None
    }
    asked = dict(itertools.islice(asked.items(), broker.client_calls.room))
    if not asked:
        raise Refusal(
            ResponseCode.SYSTEM_BUSY, "no member is asked: each has yet to answer or to read; try again in a moment"
        )
    broker.client_calls.call_each(
        asked,
        requester=peer,
        request=request,
        read=_status_of,
        combine=_status_body,
        now_s=broker.clock.monotonic(),
    )
    return None


def _status_of(answer: RemotingCommand) -> bytes:
    """One member's offsets, as a body; raises RemoteProtocolError."""
    return fastjson.dumps(GetConsumerStatusBody.from_client(bytes(answer.body)).message_queue_table)


def _status_body(statuses: Mapping[str, bytes]) -> bytes:
    """GetConsumerStatusBody of all of them."""
    members = b",".join(fastjson.dumps(client_id) + b":" + status for client_id, status in statuses.items())
    return b'{"messageQueueTable":{},"consumerTable":{' + members + b"}}"


def _member(broker: _Broker, group: str, client_id: str) -> ClientChannel:
    """The member's connection; raises Refusal when it is not online or too old."""
    info = broker.consumers.find(group)
    channel = None if info is None else info.find_channel(client_id)
    if channel is None:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{group[:_SHOWN_CHARACTERS]}> <{client_id[:_SHOWN_CHARACTERS]}> not online",
        )
    if channel.version < _V3_1_8_SNAPSHOT:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"The Consumer <{client_id[:_SHOWN_CHARACTERS]}> Version <{channel.version}> too low to finish,"
            " please upgrade it to V3_1_8_SNAPSHOT",
        )
    return channel


def _message(broker: _Broker, request: RemotingCommand, message_id: str) -> bytes:
    """The record that an offsetMsgId names; raises Refusal when there is none that the requester may read."""
    try:
        store_host, offset = parse_offset_message_id(message_id)
    except RemoteProtocolError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"{error}: give the message's offsetMsgId") from error
    missing = Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"can not find message {message_id}: this broker has none of that id, or has deleted it; ask the broker that the"
        " id names",
    )
    record = broker.store.message_at(offset) if offset >= 0 else None
    if record is None:
        raise missing
    message = decode_record(record)
    # Another broker's id may be an offset here as well: that message must not be handled in the other's place.
    if message.store_host != store_host:
        raise missing
    if broker.acl is not None and broker.acl.refuses(request, Kind.TOPIC, message.topic, Permission.SUB):
        # Someone else's message must look as if it were not there.
        raise missing
    count_as_pulled(broker, request, message.topic, [record])
    return record


def _call(
    broker: _Broker, peer: Peer, request: RemotingCommand, channel: ClientChannel, group: str, command: RemotingCommand
) -> None:
    """Raises Refusal when the client is behind with what it has to read or to answer."""
    called = f"consumer <{group[:_SHOWN_CHARACTERS]}> <{channel.client_id[:_SHOWN_CHARACTERS]}>"
    if request.is_oneway:
        return
    behind = broker.client_calls.refusal(channel.peer)
    if behind is not None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, f"{called} is not asked: {behind}; try again in a moment")
    broker.client_calls.call(
        channel.peer, command, called=called, requester=peer, request=request, now_s=broker.clock.monotonic()
    )


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: get_consumer_running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_message_directly,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: get_consumer_status,
}
