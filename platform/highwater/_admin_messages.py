"""Looking at messages without consuming them."""

from __future__ import annotations

import heapq
from functools import partial

from highwater._admin_base import AdminBase, gather
from highwater._admin_models import QueryResult
from highwater._edge import read_header, read_records
from highwater._models import MessageQueue, ReceivedMessage
from highwater._offsets import earliest_store_time_ms, max_offset, min_offset, search_offset
from highwater._pull import PullStatus, Subscription, pull, pull_request, received
from highwater.errors import ConfigurationError, NotFoundError
from highwater.trace_story import TraceStory, trace_story
from mqwire.codes import RequestCode, ResponseCode
from mqwire.errors import RemoteProtocolError
from mqwire.headers_pull import QueryMessageRequestHeader, QueryMessageResponseHeader, ViewMessageRequestHeader
from mqwire.message import parse_offset_message_id
from mqwire.names import RMQ_SYS_TRACE_TOPIC, TOOLS_CONSUMER_GROUP, UNIQUE_MSG_QUERY_FLAG
from mqwire.trace_records import read_traces

# A broker answers one pull with at most 32 messages or 256 KiB, whatever is asked for.
PULL_BATCH = 32
MAX_TIMESTAMP_MS = 2**63 - 1
# Bodies of one answer, unfolded: a message of 16 KiB may hold 16 MiB of zeros.
_ENOUGH_BYTES = 32 * 1024 * 1024
_TRACES_MAX = 64


class MessageAdmin(AdminBase):
    """Messages and queue offsets."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        return await max_offset(self._client, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        return await min_offset(self._client, queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset whose message was stored at `timestamp_ms` or later."""
        return await search_offset(self._client, queue, timestamp_ms)

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the queue's oldest message was stored; None if it holds none."""
        return await earliest_store_time_ms(self._client, queue)

    async def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, group: str | None = None
    ) -> list[ReceivedMessage]:
        """Messages from `offset` on, at most 32 or as many as the broker hands out at once; none at the queue's end.

        Fewer where their bodies are large: the last is the one with which they reach 32 MiB.

        An offset that the queue no longer has, or not yet, gives the messages from the nearest one that it has. No
        group's progress is touched; `group` is for access control alone, RocketMQ's TOOLS_CONSUMER by default.
        """
        address = await self._client.read_address(queue.topic, queue.broker_name)
        for _ in range(2):
            request = pull_request(
                self._client,
                group or TOOLS_CONSUMER_GROUP,
                queue,
                offset,
                subscription=Subscription(queue.topic),
                max_messages=max_messages,
            )
            result = await pull(self._client, address, request, queue, enough_bytes=_ENOUGH_BYTES)
            if result.status is not PullStatus.OFFSET_ILLEGAL or result.next_begin_offset == offset:
                break
            offset = result.next_begin_offset
        return list(result.messages[:max_messages])

    async def newest_messages(self, topic: str, limit: int = 32) -> list[ReceivedMessage]:
        """The topic's newest messages over all its queues, newest first."""
        if limit < 1:
            raise ConfigurationError(f"limit is {limit}; it must be 1 or more")
        self._client.routes.forget(topic)
        route = await self._client.routes.get(topic)
        tails = await gather(partial(self._tail, queue, limit) for queue in route.subscribe_queues)
        return heapq.nlargest(
            limit,
            (message for tail in tails for message in tail),
            key=lambda message: (message.store_timestamp_ms, message.queue, message.queue_offset),
        )

    async def _tail(self, queue: MessageQueue, limit: int) -> list[ReceivedMessage]:
        end = await max_offset(self._client, queue)
        position = max(end - limit, await min_offset(self._client, queue))
        messages: list[ReceivedMessage] = []
        while position < end:
            batch = await self.pull(queue, position, min(PULL_BATCH, end - position))
            if not batch:
                break
            messages += batch
            position = batch[-1].queue_offset + 1
        return messages

    async def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message that an offsetMsgId names, from the broker whose address is in it.

        Raises NotFoundError when no message starts there, ConfigurationError for text that isn't an offsetMsgId.
        """
        try:
            (host, port), offset = parse_offset_message_id(message_id)
        except RemoteProtocolError as error:
            raise ConfigurationError(str(error)) from error
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        header = ViewMessageRequestHeader(topic=topic, offset=offset)
        response = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        records = read_records(response)
        if not records:
            raise NotFoundError(0, f"no message starts at offset {offset}", address)
        return received(records[0])

    async def messages_by_key(
        self, topic: str, key: str, *, limit: int = 32, begin_ms: int = 0, end_ms: int = MAX_TIMESTAMP_MS
    ) -> list[ReceivedMessage]:
        """Messages with this key, stored between the two times, newest first. None: an empty list."""
        result = await self.query_messages(topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
        return [message for message in result.messages if key in message.keys][:limit]

    async def message_by_unique_key(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """The message with this client id (UNIQ_KEY, SendResult.message_id); None when no index knows it."""
        result = await self.query_messages(topic, message_id, unique=True)
        return result.messages[0] if result.messages else None

    async def message_traces(
        self, message_id: str, *, trace_topic: str = RMQ_SYS_TRACE_TOPIC, sender: str | None = None
    ) -> TraceStory:
        """What clients with tracing on recorded of the message with this client's id (UNIQ_KEY): empty when none did.

        With `sender`, the address that the message came from (`ReceivedMessage.born_host`), it says which sends were recorded
        elsewhere. The newest 64 trace messages of each broker that name it are read. Raises NoRouteError for a trace topic that
        is not there, and as `query_messages`.
        """
        found = await self.query_messages(trace_topic, message_id, limit=_TRACES_MAX)
        records = [
            (message.born_host[0], record)
            for message in found.messages
            for record in read_traces(message.body, about=message_id)[0]
        ]
        return trace_story(message_id, records, sender=sender)

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        limit: int = 32,
        begin_ms: int = 0,
        end_ms: int = MAX_TIMESTAMP_MS,
        unique: bool = False,
    ) -> QueryResult:
        """Messages with this key or client id (UNIQ_KEY; with `unique` that only), stored between the two times.

        Each broker of the topic is asked; it answers from its message index, which follows the log by moments, with 64
        messages at most. Bodies stay compressed after the one with which they reach 32 MiB. Raises what a broker that can't be
        asked raises: "not found" is only said by those who looked.
        """
        if limit < 1:
            raise ConfigurationError(f"limit is {limit}; it must be 1 or more")
        route = await self._client.routes.refresh(topic)
        header = QueryMessageRequestHeader(
            topic=topic, key=key, max_num=limit, begin_timestamp=begin_ms, end_timestamp=end_ms
        )
        found: dict[str, ReceivedMessage] = {}
        size_bytes = 0
        remarks: dict[str, str] = {}
        unindexed: list[str] = []
        lag_bytes = 0
        for broker_name in route.brokers:
            address = route.read_address(broker_name)
            if address is None:
                continue
            request = self._client.request(
                RequestCode.QUERY_MESSAGE, header, ext_fields={UNIQUE_MSG_QUERY_FLAG: "true"} if unique else None
            )
            response = await self._client.invoke(address, request, accept=(ResponseCode.QUERY_NOT_FOUND,))
            index = read_header(response, QueryMessageResponseHeader)
            lag_bytes = max(lag_bytes, index.index_lag_bytes or 0)
            if response.code == ResponseCode.QUERY_NOT_FOUND:
                remarks[broker_name] = response.remark or ""
                if index.index_enabled is False:
                    unindexed.append(broker_name)
                continue
            for record in read_records(response):
                message = received(record, broker_name=broker_name, unfolds=size_bytes < _ENOUGH_BYTES)
                size_bytes += len(message.body)
                # The index holds hashes: others may share one. The record's own topic: a retry is read under its first one.
                if record.topic == topic and (message.message_id == key or (not unique and key in message.keys)):
                    found[message.offset_message_id] = message
        newest_first = sorted(found.values(), key=lambda message: message.store_timestamp_ms, reverse=True)
        return QueryResult(tuple(newest_first[:limit]), remarks, lag_bytes, tuple(unindexed))
