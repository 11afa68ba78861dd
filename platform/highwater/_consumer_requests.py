"""What brokers ask of a consumer: to rebalance, to go to other offsets, to report its state, to consume one message."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from highwater._assignment import Assignment
from highwater._client import ClientInstance
from highwater._consume_service import MessageHandling
from highwater._edge import read_body, read_header, read_records
from highwater._models import MessageQueue
from highwater._offset_store import OffsetStore
from highwater._process_queue import ProcessQueue
from highwater._pull import received
from highwater._queue_locks import LOCK_MAX_LIVE_SECONDS
from highwater._stacks import stacks_text
from highwater.errors import ProtocolError
from mqwire import bodies
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)

logger = logging.getLogger("highwater")


class ConsumerRequests:
    """Handlers of the requests that a broker sends to a member of a group (ClientRemotingProcessor)."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        assignment: Assignment,
        offsets: OffsetStore,
        handling: MessageHandling,
        subscription_data: Callable[[], list[bodies.SubscriptionData]],
    ) -> None:
        self._client = client
        self._group = group
        self._assignment = assignment
        self._offsets = offsets
        self._handling = handling
        self._subscription_data = subscription_data
        self._started_ms = time.time_ns() // 1_000_000

    def register(self) -> None:
        """Serve from now on."""
        remoting = self._client.remoting
        remoting.handle(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._ids_changed)
        remoting.handle(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset_offset)
        remoting.handle(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._consumer_status)
        remoting.handle(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        remoting.handle(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume_directly)

    async def _ids_changed(self, address: str, request: RemotingCommand) -> None:
        header = read_header(request, NotifyConsumerIdsChangedRequestHeader)
        if header.consumer_group == self._group:
            logger.info("%s says that the members of group %s changed", address, self._group)
            self._assignment.wake()

    async def _reset_offset(self, address: str, request: RemotingCommand) -> RemotingCommand:
        try:
            table = read_body(request, bodies.ResetOffsetBody).offset_table
            offsets = {MessageQueue(key.topic, key.broker_name, key.queue_id): value for key, value in table.items()}
        except ProtocolError:
            # Brokers that take us for a C++ client write a list instead.
            items = read_body(request, bodies.ResetOffsetBodyForC).offset_table
            offsets = {MessageQueue(item.topic, item.broker_name, item.queue_id): item.offset for item in items}
        logger.info("%s resets %d queues of group %s", address, len(offsets), self._group)
        await self._assignment.reset(offsets)
        return request.reply()

    async def _consumer_status(self, address: str, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields.get("topic")
        table = {
            _wire_queue(queue): offset for queue, offset in self._offsets.all().items() if topic in (None, queue.topic)
        }
        return request.reply(body=bodies.GetConsumerStatusBody(message_queue_table=table).to_json())

    async def _running_info(self, address: str, request: RemotingCommand) -> RemotingCommand:
        header = read_header(request, GetConsumerRunningInfoRequestHeader)
        if header.consumer_group != self._group:
            return self._of_another_group(request, header.consumer_group)
        settings = self._handling.settings
        info = bodies.ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self._client.options.namesrv),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CLIENT_VERSION": "highwater-python",
                "PROP_THREADPOOL_CORE_SIZE": str(settings.consume_threads),
                "PROP_CONSUMEORDERLY": "true" if settings.orderly else "false",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "consumeFromWhere": settings.consume_from.value,
                "messageModel": "CLUSTERING",
            },
            subscription_set=self._subscription_data(),
            mq_table={
                _wire_queue(window.queue): self._queue_info(window) for window in self._assignment.process_queues()
            },
            jstack=stacks_text() if header.jstack_enable else None,
        )
        return request.reply(body=info.to_json())

    @staticmethod
    def _of_another_group(request: RemotingCommand, group: str) -> RemotingCommand:
        return request.reply(ResponseCode.SYSTEM_ERROR, f"this client is not in group {group}")

    def _queue_info(self, window: ProcessQueue) -> bodies.ProcessQueueInfo:
        first = window.commit_offset or 0
        return bodies.ProcessQueueInfo(
            commit_offset=self._offsets.get(window.queue) or 0,
            cached_msg_min_offset=first if window.count else 0,
            cached_msg_max_offset=first + window.span if window.count else 0,
            cached_msg_count=window.count,
            cached_msg_size_in_mib=window.size_bytes // (1024 * 1024),
            locked=window.locked_until > 0,
            last_lock_timestamp=0 if window.locked_until == 0 else self._lock_time_ms(window),
            droped=window.dropped,
            last_pull_timestamp=window.last_pull_ms,
            last_consume_timestamp=window.last_consume_ms,
        )

    @staticmethod
    def _lock_time_ms(window: ProcessQueue) -> int:
        age_seconds = time.monotonic() - (window.locked_until - LOCK_MAX_LIVE_SECONDS)
        return time.time_ns() // 1_000_000 - int(age_seconds * 1000)

    async def _consume_directly(self, address: str, request: RemotingCommand) -> RemotingCommand:
        header = read_header(request, ConsumeMessageDirectlyResultRequestHeader)
        records = read_records(request)
        if header.consumer_group != self._group or not records:
            return self._of_another_group(request, header.consumer_group)
        started = time.monotonic()
        message = received(records[0], broker_name=header.broker_name or "")
        later = await self._handling.try_once(message)
        result = bodies.ConsumeMessageDirectlyResult(
            order=self._handling.settings.orderly,
            auto_commit=True,
            consume_result="CR_SUCCESS" if later is None else "CR_LATER",
            remark=None if later is None else str(later),
            spent_time_mills=int((time.monotonic() - started) * 1000),
        )
        return request.reply(body=result.to_json())


def _wire_queue(queue: MessageQueue) -> bodies.MessageQueue:
    return bodies.MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
