"""Questions about a queue's own offsets, for consumers and administration."""

from __future__ import annotations

from highwater._client import ClientInstance
from highwater._edge import read_header
from highwater._models import MessageQueue
from mqwire.codes import RequestCode
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


async def max_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset that the queue's next message will have."""
    address = await client.read_address(queue.topic, queue.broker_name)
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    response = await client.invoke(address, client.request(RequestCode.GET_MAX_OFFSET, header))
    return read_header(response, GetMaxOffsetResponseHeader).offset


async def min_offset(client: ClientInstance, queue: MessageQueue) -> int:
    """The offset of the oldest message that is still stored."""
    address = await client.read_address(queue.topic, queue.broker_name)
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    response = await client.invoke(address, client.request(RequestCode.GET_MIN_OFFSET, header))
    return read_header(response, GetMinOffsetResponseHeader).offset


async def search_offset(client: ClientInstance, queue: MessageQueue, timestamp_ms: int) -> int:
    """The first offset whose message was stored at `timestamp_ms` or later."""
    address = await client.read_address(queue.topic, queue.broker_name)
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
    )
    response = await client.invoke(address, client.request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))
    return read_header(response, SearchOffsetResponseHeader).offset


async def earliest_store_time_ms(client: ClientInstance, queue: MessageQueue) -> int | None:
    """When the oldest message was stored; None for an empty queue."""
    address = await client.read_address(queue.topic, queue.broker_name)
    header = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
    response = await client.invoke(address, client.request(RequestCode.GET_EARLIEST_MSG_STORETIME, header))
    timestamp = read_header(response, GetEarliestMsgStoretimeResponseHeader).timestamp
    return None if timestamp < 0 else timestamp
