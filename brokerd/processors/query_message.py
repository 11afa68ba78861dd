"""Offsets and single messages: GET_MAX_OFFSET, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME,
VIEW_MESSAGE_BY_ID, QUERY_MESSAGE. Sources: AdminBrokerProcessor, QueryMessageProcessor.

A queue that does not exist answers 0, as in RocketMQ: its tools ask before they look.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.acl import credential_of
from brokerd.acl_file import Permission
from brokerd.acl_needs import Kind
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, knowing_offsets
from brokerd.replies import Refusal, Reply
from brokerd.store import QUERY_READ_MAX_BYTES, BoundaryType, QueryResult, StoreError
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
from mqwire.headers_pull import QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader
from mqwire.message import decode_record
from mqwire.names import UNIQUE_MSG_QUERY_FLAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig
    from brokerd.processors.context import Clock, Follower
    from brokerd.quotas import Quotas
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore
    from brokerd.unproven_offsets import UnprovenOffsets

_INDEX_OF_TAGS: Final = "T"  # of RocketMQ 5.5; it would make each message's tag another entry


class _Counting(Protocol):
    acl: AccessControl | None
    quotas: Quotas


class _Broker(_Counting, Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    replica: Replica

    unproven_offsets: UnprovenOffsets

    @property
    def follower(self) -> Follower: ...

    @property
    def clock(self) -> Clock: ...


@answers_refusals
def get_max_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """One more than the last offset that consumers may see: an acknowledged send is never missing."""
    header = request.header(GetMaxOffsetRequestHeader)
    knowing_offsets(broker.replica, broker.follower, broker.clock)
    offset = broker.store.max_offset(header.topic, header.queue_id)
    broker.unproven_offsets.told_beginning(peer.id, header.topic, header.queue_id, offset)
    return request.reply(header=GetMaxOffsetResponseHeader(offset=offset))


@answers_refusals
def get_min_offset(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    header = request.header(GetMinOffsetRequestHeader)
    knowing_offsets(broker.replica, broker.follower, broker.clock)
    offset = broker.store.min_offset(header.topic, header.queue_id)
    return request.reply(header=GetMinOffsetResponseHeader(offset=offset))


@answers_refusals
def search_offset_by_timestamp(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The first offset stored at the time or later (boundaryType LOWER), or the last stored then or earlier (UPPER)."""
    header = request.header(SearchOffsetRequestHeader)
    knowing_offsets(broker.replica, broker.follower, broker.clock)
    try:
        boundary = BoundaryType((header.boundary_type or "lower").lower())
    except ValueError:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"boundaryType is {str(header.boundary_type)[:40]!a}: allowed is LOWER or UPPER",
        ) from None
    offset = broker.store.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
    broker.unproven_offsets.told_beginning(peer.id, header.topic, header.queue_id, offset)
    return request.reply(header=SearchOffsetResponseHeader(offset=offset))


def get_earliest_msg_storetime(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """When the queue's first message that is left was stored; -1 when it has none."""
    header = request.header(GetEarliestMsgStoretimeRequestHeader)
    store = broker.store
    first = store.min_offset(header.topic, header.queue_id)
    timestamp_ms = store.store_timestamp_of(header.topic, header.queue_id, first)
    return request.reply(header=GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms))


@answers_refusals
def view_message_by_id(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
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
    count_as_pulled(broker, request, decode_record(record).topic, [record])
    return request.reply(body=record)


@answers_refusals
def query_message(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The newest messages of a topic with a key or, with `_UNIQUE_KEY_QUERY`, with a UNIQ_KEY; in the log's order.

    The index follows the log by moments, and further when the broker is busy: what it has not read yet is not found, and
    the remark says so. At most maxMsgsNumBatch messages and 15 MiB of them, and 32 MiB are read to find them.
    """
    header = request.header(QueryMessageRequestHeader)
    config = broker.config
    if header.index_type == _INDEX_OF_TAGS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, "tags are not indexed here: query by key or by UNIQ_KEY, or pull by tag"
        )
    if not header.key:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, "the key is empty: name one of the message's keys or its UNIQ_KEY"
        )
    unique = (request.ext_fields or {}).get(UNIQUE_MSG_QUERY_FLAG, "").lower() == "true"
    count_as_pulled(broker, request, header.topic, ())
    count_max = min(config.default_query_max_num if unique else header.max_num, config.max_msgs_num_batch)
    try:
        result = broker.store.queries.query(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp, unique=unique
        )
    except (OSError, StoreError) as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the message index cannot be read: {error}") from error
    answer = QueryMessageResponseHeader(
        index_last_update_timestamp=result.index_last_update_timestamp_ms,
        index_last_update_phyoffset=result.index_last_update_physical_offset,
        index_lag_bytes=result.lag_bytes,
        index_enabled=config.message_index_enable,
    )
    if not result.records:
        return request.reply(ResponseCode.QUERY_NOT_FOUND, _why_not_found(broker, result), header=answer)
    count_as_pulled(broker, request, header.topic, result.records)
    return request.reply(header=answer, body=b"".join(result.records))


def count_as_pulled(broker: _Counting, request: RemotingCommand, topic: str, records: Sequence[bytes]) -> None:
    """Take what is handed out of the quotas of pulls: looking is no way around them. Raises Refusal when one is used up."""
    quotas = broker.quotas
    if not quotas.are_set:
        return
    credential = credential_of(broker.acl, request)
    remark = quotas.pull_refusal(credential, topic)
    if remark is not None:
        raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
    quotas.pulled(credential, topic, len(records), sum(map(len, records)))


def _why_not_found(broker: _Broker, result: QueryResult) -> str:
    reasons = ["can not find message, maybe time range not correct"]
    if not broker.config.message_index_enable:
        reasons.append("this broker indexes no messages (messageIndexEnable=false)")
    elif result.lag_bytes:
        reasons.append(f"the index has yet to read the last {result.lag_bytes} bytes of the log")
    if result.is_given_up:
        reasons.append(
            f"after {QUERY_READ_MAX_BYTES // 2**20} MiB of newer messages that share the key's hash it looked no further: give an"
            " earlier end of the time range"
        )
    earliest_ms = broker.store.earliest_store_time_ms
    if earliest_ms > 0:
        reasons.append(f"messages stored before {_utc(earliest_ms)} have been deleted, if there were any")
    return "; ".join(reasons)


def _utc(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_MAX_OFFSET: get_max_offset,
    RequestCode.GET_MIN_OFFSET: get_min_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: search_offset_by_timestamp,
    RequestCode.GET_EARLIEST_MSG_STORETIME: get_earliest_msg_storetime,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message_by_id,
    RequestCode.QUERY_MESSAGE: query_message,
}
