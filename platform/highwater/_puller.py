"""Puller: keeps one queue's window filled by long polling, until the queue is taken away."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import anyio

from highwater._client import ClientInstance
from highwater._consume_settings import ConsumeSettings
from highwater._models import ConsumeFrom, MessageQueue, ReceivedMessage
from highwater._offset_store import OffsetStore
from highwater._offsets import max_offset, search_offset
from highwater._process_queue import ProcessQueue
from highwater._pull import BROKER_SUSPEND_MAX_MS, PullResult, PullStatus, Subscription, pull, pull_request
from highwater.errors import BrokerError, BusyError, HighwaterError
from mqwire.codes import ResponseCode
from mqwire.names import MASTER_ID, RETRY_GROUP_TOPIC_PREFIX

logger = logging.getLogger("highwater")

# RocketMQ waits 3 s after any failure; one second finds a restarted broker sooner and is still gentle.
PAUSE_AFTER_FAILURE_SECONDS = 1.0
PAUSE_WHEN_BROKER_BUSY_SECONDS = 0.1
PAUSE_WHEN_FULL_SECONDS = 0.02
PAUSE_WHEN_UNSUBSCRIBED_SECONDS = 0.1
MEBIBYTE = 1024 * 1024

Submit = Callable[[ProcessQueue, list[ReceivedMessage]], None]


class Puller:
    """Pulls for all queues of one consumer, each in a task of its own."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        settings: ConsumeSettings,
        offsets: OffsetStore,
        subscriptions: Mapping[str, Subscription],
        submit: Submit,
    ) -> None:
        self._client = client
        self._group = group
        self._settings = settings
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._submit = submit
        self._suggested_broker_ids: dict[MessageQueue, int] = {}

    async def run(self, process_queue: ProcessQueue) -> int | None:
        """Pull until the queue is dropped.

        Returns the offset to start again from when the broker no longer has, or not yet again has, what was asked for:
        the window must then begin again.
        """
        queue = process_queue.queue
        offset = await self._first_offset(process_queue)
        while offset is not None and not process_queue.dropped:
            if self._is_full(process_queue):
                await anyio.sleep(PAUSE_WHEN_FULL_SECONDS)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if subscription is None:
                # Just unsubscribed: the next rebalance takes the queue away, unless it is subscribed to again by then.
                await anyio.sleep(PAUSE_WHEN_UNSUBSCRIBED_SECONDS)
                continue
            try:
                result = await self._pull(queue, offset, subscription)
            except HighwaterError as error:
                await self._pause_after(queue, error)
                continue
            process_queue.last_pull_ms = time.time_ns() // 1_000_000
            if process_queue.dropped:
                return None
            if result.status is PullStatus.OFFSET_ILLEGAL:
                logger.warning(
                    "group %s was at offset %d of %s, which holds %d to %d, and was moved to %d",
                    self._group, offset, queue, result.min_offset, result.max_offset, result.next_begin_offset,
                )  # fmt: skip
                return result.next_begin_offset
            if self._subscriptions.get(queue.topic) is not subscription:
                continue  # what it passed over, or brought, is for another subscription: look again with the one of now
            self._take(process_queue, result, subscription)
            offset = result.next_begin_offset
        return None

    def _take(self, process_queue: ProcessQueue, result: PullResult, subscription: Subscription) -> None:
        wanted = [message for message in result.messages if subscription.accepts(message)]
        new = process_queue.put(wanted, result.next_begin_offset)
        if new:
            self._submit(process_queue, new)
        elif process_queue.count == 0:
            # Nothing to wait for: what the filter passed over is finished, too.
            self._offsets.advance(process_queue.queue, result.next_begin_offset)

    def _is_full(self, process_queue: ProcessQueue) -> bool:
        settings = self._settings
        return (
            process_queue.count > settings.pull_threshold_for_queue
            or process_queue.size_bytes > settings.pull_threshold_size_for_queue_mib * MEBIBYTE
            or (not settings.orderly and process_queue.span > settings.consume_concurrently_max_span)
        )

    async def _pull(self, queue: MessageQueue, offset: int, subscription: Subscription) -> PullResult:
        broker_id = self._suggested_broker_ids.get(queue, MASTER_ID)
        address = await self._client.read_address(queue.topic, queue.broker_name, broker_id)
        route = self._client.routes.cached(queue.topic)
        at_master = route is not None and route.master_address(queue.broker_name) == address
        finished = self._offsets.get(queue)
        request = pull_request(
            self._client,
            self._group,
            queue,
            offset,
            subscription=subscription,
            max_messages=self._settings.pull_batch_size,
            commit_offset=finished if at_master and finished else None,  # a slave doesn't keep the group's offsets
            suspend_ms=BROKER_SUSPEND_MAX_MS,
        )
        try:
            result = await pull(self._client, address, request, queue)
        except HighwaterError:
            # The replica that was suggested may be gone: the next try is the master's.
            self._suggested_broker_ids.pop(queue, None)
            raise
        self._suggested_broker_ids[queue] = result.suggested_broker_id
        return result

    async def _pause_after(self, queue: MessageQueue, error: HighwaterError) -> None:
        code = error.response_code if isinstance(error, BrokerError) else None
        if code in (ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST):
            # A broker that was restarted has forgotten us; it gets a heartbeat right away.
            logger.info("%s does not know the subscription of group %s yet: %s", queue, self._group, error)
            await self._client.send_heartbeats()
        else:
            logger.warning("pulling from %s for group %s failed: %s", queue, self._group, error)
            await self._client.look_for_master(queue.topic, error)
        busy = isinstance(error, BusyError) or code == ResponseCode.POLLING_FULL
        await anyio.sleep(PAUSE_WHEN_BROKER_BUSY_SECONDS if busy else PAUSE_AFTER_FAILURE_SECONDS)

    # -- where to begin

    async def _first_offset(self, process_queue: ProcessQueue) -> int | None:
        """Where the group left off, else where it is set to begin; asked until there is an answer."""
        queue = process_queue.queue
        while not process_queue.dropped:
            try:
                stored = self._offsets.get(queue)
                if stored is None:
                    stored = await self._offsets.read(queue)
                offset = await self._default_offset(queue) if stored is None else stored
            except HighwaterError as error:
                logger.warning("the offset of group %s in %s is not known yet: %s", self._group, queue, error)
                await self._client.look_for_master(queue.topic, error)
                await anyio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
                continue
            process_queue.put((), offset)
            self._offsets.advance(queue, offset)
            return offset
        return None

    async def _default_offset(self, queue: MessageQueue) -> int:
        """RebalancePushImpl.computePullFromWhere for a group without a stored offset."""
        # Retries are never passed over: they were this group's before it had offsets here.
        if queue.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return 0
        consume_from = self._settings.consume_from
        if consume_from is ConsumeFrom.LAST_OFFSET:
            return await max_offset(self._client, queue)
        if consume_from is ConsumeFrom.TIMESTAMP:
            return await search_offset(self._client, queue, self._settings.consume_timestamp_ms or 0)
        return 0
