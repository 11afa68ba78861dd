"""Pulling: one request for messages of one queue, and its answer as the consumer understands it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from highwater._client import ClientInstance
from highwater._edge import read_header, read_records
from highwater._models import MessageQueue, ReceivedMessage
from mqwire.codes import MessageSysFlag, PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.compression import decompress
from mqwire.errors import RemoteProtocolError
from mqwire.headers_pull import PullMessageRequestHeader, PullMessageResponseHeader
from mqwire.message import StoredMessage
from mqwire.names import (
    KEY_SEPARATOR,
    MASTER_ID,
    PROPERTY_KEYS,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
    RETRY_GROUP_TOPIC_PREFIX,
)

logger = logging.getLogger("highwater")

# How long a broker may hold a pull that finds nothing, and how long we wait for it (RocketMQ's own two numbers).
BROKER_SUSPEND_MAX_MS = 15_000
PULL_TIMEOUT_WHEN_SUSPENDED_MS = 30_000


class PullStatus(Enum):
    """What a pull found."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants of one topic. `tags` is empty for everything ("*").

    `version` is the time of the last change in milliseconds; brokers compare it with the heartbeat's.
    """

    topic: str
    expression: str = "*"
    tags: frozenset[str] = frozenset()
    version: int = 0

    def accepts(self, message: ReceivedMessage) -> bool:
        """Whether the tag is really wanted: brokers compare hashes only."""
        return not self.tags or (message.tags is not None and message.tags in self.tags)


def parse_expression(topic: str, expression: str, version: int) -> Subscription:
    """A subscription from `*` or `tagA || tagB` (FilterAPI.buildSubscriptionData)."""
    text = expression.strip()
    if text in ("", "*"):
        return Subscription(topic, "*", frozenset(), version)
    tags = frozenset(tag.strip() for tag in text.split("||") if tag.strip())
    return Subscription(topic, text, tags, version)


@dataclass(frozen=True, slots=True)
class PullResult:
    """An answer: `next_begin_offset` is where to go on, `messages` what the subscription wants of what was found."""

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[ReceivedMessage, ...] = ()
    suggested_broker_id: int = MASTER_ID


def pull_request(
    client: ClientInstance,
    group: str,
    queue: MessageQueue,
    offset: int,
    *,
    subscription: Subscription,
    max_messages: int,
    commit_offset: int | None = None,
    suspend_ms: int = 0,
) -> RemotingCommand:
    """The request. `commit_offset` also stores the group's offset, `suspend_ms` lets the broker wait for messages."""
    sys_flag = PullSysFlag.SUBSCRIPTION
    if commit_offset is not None:
        sys_flag |= PullSysFlag.COMMIT_OFFSET
    if suspend_ms > 0:
        sys_flag |= PullSysFlag.SUSPEND
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_messages,
        sys_flag=sys_flag,
        commit_offset=commit_offset or 0,
        suspend_timeout_millis=suspend_ms,
        subscription=subscription.expression,
        sub_version=subscription.version,
        expression_type="TAG",
        bname=queue.broker_name,
    )
    return client.request(RequestCode.PULL_MESSAGE, header)


async def pull(
    client: ClientInstance,
    address: str,
    request: RemotingCommand,
    queue: MessageQueue,
    *,
    enough_bytes: int | None = None,
) -> PullResult:
    """Send a pull and read the answer; every message that was found is in it, whatever its tag.

    With `enough_bytes` the messages end with the one whose body, unfolded, makes them so large: a few KiB may unfold to 16 MiB.
    """
    suspended = int(request.ext_fields.get("suspendTimeoutMillis", "0")) > 0
    timeout_ms = PULL_TIMEOUT_WHEN_SUSPENDED_MS if suspended else None
    response = await client.invoke(address, request, timeout_ms, accept=tuple(_STATUS))
    header = read_header(response, PullMessageResponseHeader)
    messages = _received_all(read_records(response), queue, enough_bytes) if response.body else ()
    return PullResult(
        status=_STATUS[response.code],
        next_begin_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
        messages=messages,
        suggested_broker_id=header.suggest_which_broker_id,
    )


def _received_all(
    records: Iterable[StoredMessage], queue: MessageQueue, enough_bytes: int | None
) -> tuple[ReceivedMessage, ...]:
    messages: list[ReceivedMessage] = []
    size_bytes = 0
    for record in records:
        messages.append(received(record, queue))
        size_bytes += len(messages[-1].body)
        if enough_bytes is not None and size_bytes >= enough_bytes:
            break
    return tuple(messages)


def received(
    record: StoredMessage, queue: MessageQueue | None = None, broker_name: str = "", *, unfolds: bool = True
) -> ReceivedMessage:
    """A record as consumers see it: decompressed, under the topic that it was sent to.

    A body that can't be decompressed is handed on as it is, with its sysFlag saying so: a reader of the dead-letter
    topic must be able to see it. So is every one unless it `unfolds`.
    """
    properties = record.properties
    body, sys_flag = record.body, record.sys_flag
    if unfolds and sys_flag & MessageSysFlag.COMPRESSED:
        try:
            body = decompress(body, sys_flag)
            sys_flag &= ~(MessageSysFlag.COMPRESSED | MessageSysFlag.COMPRESSION_MASK)
        except RemoteProtocolError as error:
            logger.warning("the body of message %s stays compressed: %s", record.offset_message_id, error)
    topic = record.topic
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        topic = properties.get(PROPERTY_RETRY_TOPIC, topic)
    offset_message_id = record.offset_message_id
    keys = properties.get(PROPERTY_KEYS, "")
    return ReceivedMessage(
        topic=topic,
        body=body,
        tags=properties.get(PROPERTY_TAGS),
        keys=tuple(filter(None, keys.split(KEY_SEPARATOR))),
        properties=properties,
        message_id=properties.get(PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, offset_message_id),
        offset_message_id=offset_message_id,
        queue=queue or MessageQueue(record.topic, broker_name, record.queue_id),
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        flag=record.flag,
        sys_flag=sys_flag,
        size_bytes=record.size_bytes,
    )
