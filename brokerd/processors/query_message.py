"""Offsets and single messages: GET_MAX_OFFSET, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME,
VIEW_MESSAGE_BY_ID. Sources: AdminBrokerProcessor, QueryMessageProcessor.

A queue that does not exist answers 0, as in RocketMQ: its tools ask before they look.
"""

from __future__ import annotations

from brokerd.acl_file import Permission
from brokerd.acl_needs import Kind
from brokerd.dispatch_types import Handler, Reply
from brokerd.processors.context import Broker, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.processors.refusal import Refusal
from brokerd.store import BoundaryType
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from mqwire.headers_pull import ViewMessageRequestHeader
from mqwire.message import decode_record


def get_max_offset(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """One more than the last offset that consumers may see: an acknowledged send is never missing."""
    header = request.header(GetMaxOffsetRequestHeader)
    return request.reply(
        header=GetMaxOffsetResponseHeader(offset=broker.store.max_offset(header.topic, header.queue_id))
    )


def get_min_offset(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    header = request.header(GetMinOffsetRequestHeader)
    offset = broker.store.min_offset(header.topic, header.queue_id)
    return request.reply(header=GetMinOffsetResponseHeader(offset=offset))


@answers_refusals
def search_offset_by_timestamp(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The first offset stored at the time or later (boundaryType LOWER), or the last stored then or earlier (UPPER)."""
    header = request.header(SearchOffsetRequestHeader)
    try:
        boundary = BoundaryType((header.boundary_type or "lower").lower())
    except ValueError:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"boundaryType is {str(header.boundary_type)[:40]!a}: allowed is LOWER or UPPER",
        ) from None
    offset = broker.store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
    return request.reply(header=SearchOffsetResponseHeader(offset=offset))


def get_earliest_msg_storetime(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """When the queue's first message that is left was stored; -1 when it has none."""
    header = request.header(GetEarliestMsgStoretimeRequestHeader)
    store = broker.store
    first = store.min_offset(header.topic, header.queue_id)
    timestamp_ms = store.store_timestamp_of(header.topic, header.queue_id, first)
    return request.reply(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms))


@answers_refusals
def view_message_by_id(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The record at a physical offset, which an offsetMsgId names."""
    header = request.header(ViewMessageRequestHeader)
    record = broker.store.message_at(header.offset) if header.offset >= 0 else None
    missing = Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {header.offset}: no message begins there, or it has been deleted; ask the"
        " broker that the message id names",
    )
    if record is None:
        raise missing
    if broker.acl is not None and broker.acl.refuses(request, Kind.TOPIC, decode_record(record).topic, Permission.SUB):
        # Someone else's message must look as if it were not there.
        raise missing
    return request.reply(body=record)


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_MAX_OFFSET: get_max_offset,
    RequestCode.GET_MIN_OFFSET: get_min_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset_by_timestamp,
    RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_msg_storetime,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message_by_id,
}
