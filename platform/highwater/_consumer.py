"""AsyncPushConsumer: handlers get the messages of a group's share of the queues."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import anyio

from highwater._assignment import Assignment
from highwater._client import ClientInstance, make_options
from highwater._consume_service import (
    ConcurrentConsumeService,
    ConsumeService,
    MessageHandling,
    NoHandlerError,
    OrderlyConsumeService,
)
from highwater._consume_settings import ConsumeSettings
from highwater._consumer_requests import ConsumerRequests
from highwater._models import ConsumeFrom, Credentials, MessageQueue, ReceivedMessage
from highwater._offset_store import OffsetStore
from highwater._pull import Subscription, parse_expression
from highwater._puller import Puller
from highwater._queue_locks import LOCK_RENEW_INTERVAL_MS, QueueLocks
from highwater._settings import settings_from_env
from highwater._tracing import Tracer
from highwater._validation import check_group, check_topic
from highwater.errors import ClientStateError, ConfigurationError, HighwaterError
from mqwire.bodies import ConsumerData, SubscriptionData
from mqwire.message import tags_code
from mqwire.names import RETRY_GROUP_TOPIC_PREFIX, RMQ_SYS_TRACE_TOPIC

logger = logging.getLogger("highwater")

AsyncHandler = Callable[[ReceivedMessage], Awaitable[None]]
AsyncHandlerT = TypeVar("AsyncHandlerT", bound=AsyncHandler)


class AsyncPushConsumer:
    """Consumes topics as a member of `group`. Use it in `async with`, or call start() and stop() in the same task.

    A handler that returns acknowledges its message; one that raises gets it again later (RetryLater says when), up to
    `max_reconsume_times`, after which the message goes to the topic `%DLQ%group`. A message may come more than once.

    With `orderly` each queue's messages come one after the other, and a failing one holds its queue back; otherwise up
    to `consume_threads` handlers run at once. `consume_from` (and `consume_timestamp_ms`) says where a group begins
    that has no offsets stored yet. `enable_msg_trace` has it write trace records of each delivery to `trace_topic`. The
    other options carry RocketMQ's names and defaults.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        *,
        credentials: Credentials | None = None,
        timeout_ms: int = 3000,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        orderly: bool = False,
        consume_threads: int = 20,
        pull_batch_size: int = 32,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue_mib: int = 100,
        consume_concurrently_max_span: int = 2000,
        max_reconsume_times: int = -1,
        suspend_current_queue_time_ms: int = 1000,
        consume_timeout_min: float = 15,
        drain_timeout_ms: int = 10_000,
        persist_consumer_offset_interval_ms: int = 5000,
        rebalance_interval_ms: int = 20_000,
        poll_name_server_interval_ms: int = 30_000,
        heartbeat_broker_interval_ms: int = 30_000,
        use_tls: bool | ssl.SSLContext = False,
        serialize_type: str = "ROCKETMQ",
        enable_msg_trace: bool = False,
        trace_topic: str = RMQ_SYS_TRACE_TOPIC,
    ) -> None:
        check_group(group)
        self._settings = ConsumeSettings(
            consume_from=consume_from,
            consume_timestamp_ms=consume_timestamp_ms,
            orderly=orderly,
            consume_threads=consume_threads,
            pull_batch_size=pull_batch_size,
            pull_threshold_for_queue=pull_threshold_for_queue,
            pull_threshold_size_for_queue_mib=pull_threshold_size_for_queue_mib,
            consume_concurrently_max_span=consume_concurrently_max_span,
            max_reconsume_times=max_reconsume_times,
            suspend_current_queue_time_ms=suspend_current_queue_time_ms,
            consume_timeout_min=consume_timeout_min,
            persist_consumer_offset_interval_ms=persist_consumer_offset_interval_ms,
            rebalance_interval_ms=rebalance_interval_ms,
            drain_timeout_ms=drain_timeout_ms,
        )
        self._client = ClientInstance(
            make_options(
                namesrv,
                credentials=credentials,
                timeout_ms=timeout_ms,
                use_tls=use_tls,
                poll_name_server_interval_ms=poll_name_server_interval_ms,
                heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
                serialize_type=serialize_type,
            )
        )
        self._group = group
        self._tracer = Tracer(self._client, group, trace_topic) if enable_msg_trace else None
        self._handlers: dict[str, AsyncHandler] = {}
        retry_topic = RETRY_GROUP_TOPIC_PREFIX + group
        self._subscriptions: dict[str, Subscription] = {retry_topic: parse_expression(retry_topic, "*", _now_ms())}
        self._client.consumer_data = self._consumer_data
        self._offsets = OffsetStore(self._client, group)
        self._service: ConsumeService | None = None
        self._assignment: Assignment | None = None
        self._rebalancing: anyio.CancelScope | None = None

    @classmethod
    def from_env(cls, group: str) -> Self:
        """A consumer of the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, group, credentials=settings.credentials, use_tls=settings.use_tls)

    # -- subscribing

    def subscribe(self, topic: str, expression: str = "*", *, handler: AsyncHandler) -> None:
        """Give the messages of `topic` whose tag fits `expression` (`*`, or `tagA || tagB`) to `handler`.

        Before start(), or while running: the group's other members should subscribe to the same.
        """
        check_topic(topic)
        if not callable(handler):
            raise ConfigurationError("handler must be a function that takes a ReceivedMessage")
        self._handlers[topic] = handler
        self._subscriptions[topic] = parse_expression(topic, expression, _now_ms())
        self._subscriptions_changed()

    def on(self, topic: str, *, tags: str = "*") -> Callable[[AsyncHandlerT], AsyncHandlerT]:
        """Decorator form of subscribe(): `@consumer.on("orders", tags="paid || shipped")`."""

        def decorate(handler: AsyncHandlerT) -> AsyncHandlerT:
            self.subscribe(topic, tags, handler=handler)
            return handler

        return decorate

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`; its queues are given back with the next rebalance."""
        if self._handlers.pop(topic, None) is not None:
            del self._subscriptions[topic]
            self._subscriptions_changed()

    def _subscriptions_changed(self) -> None:
        assignment = self._assignment
        if assignment is not None:

            async def report() -> None:
                await self._client.send_heartbeats()
                assignment.wake()

            self._client.spawn(report)

    # -- life

    async def start(self) -> None:
        """Join the group; messages may arrive before this returns.

        A topic that does not exist yet, or a broker that is away, is waited for. Raises what waiting can't fix, such
        as PermissionDeniedError; and ClientStateError when nothing was subscribed to.
        """
        if not self._handlers:
            raise ClientStateError("nothing is subscribed to: call subscribe() before start()")
        await self._client.start()
        try:
            await self._join()
        except BaseException:
            await self._client.stop()
            raise

    async def _join(self) -> None:
        client, settings = self._client, self._settings
        handling = MessageHandling(client, self._group, settings, self._offsets, self._handle, self._tracer)
        service: ConsumeService = (
            OrderlyConsumeService(handling) if settings.orderly else ConcurrentConsumeService(handling)
        )
        puller = Puller(client, self._group, settings, self._offsets, self._subscriptions, service.submit)
        locks = QueueLocks(client, self._group) if settings.orderly else None
        assignment = Assignment(
            client,
            self._group,
            self._offsets,
            self._subscriptions,
            puller,
            service,
            locks,
            interval_ms=settings.rebalance_interval_ms,
        )
        ConsumerRequests(client, self._group, assignment, self._offsets, handling, self._subscription_data).register()
        for topic in list(self._handlers):
            try:
                await client.routes.get(topic)
            except HighwaterError as error:
                if not error.retryable:
                    raise
                logger.warning("group %s begins without topic %s: %s", self._group, topic, error)
        client.routes.on_change(assignment.route_changed)
        for failure in await client.try_heartbeats():
            if not failure.retryable:
                raise failure
        self._service, self._assignment = service, assignment
        service.start()
        if self._tracer is not None:
            self._tracer.start()
        self._rebalancing = client.spawn(assignment.run)
        client.every(settings.persist_consumer_offset_interval_ms, self._offsets.persist)
        if locks is not None:
            client.every(LOCK_RENEW_INTERVAL_MS, assignment.renew_locks)

    async def stop(self) -> None:
        """Leave the group: fetch no more, await the handlers that run, store the offsets, unregister from the brokers."""
        assignment, service = self._assignment, self._service
        if assignment is not None and service is not None and self._rebalancing is not None:
            self._assignment = None
            with anyio.CancelScope(shield=True):
                await assignment.stop_rebalancing()
                self._rebalancing.cancel()
                assignment.stop_pulling()
                await service.drain()
                # Each of its requests has an end of its own; what could not be stored is logged there.
                await assignment.release()
            if self._tracer is not None:
                await self._tracer.close()
        await self._client.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # -- looking

    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member works on at the moment, sorted."""
        if self._assignment is None:
            return ()
        return tuple(sorted(window.queue for window in self._assignment.process_queues()))

    @property
    def client_id(self) -> str:
        """This member's name in the group."""
        return self._client.client_id

    async def _handle(self, message: ReceivedMessage) -> None:
        handler = self._handlers.get(message.topic)
        if handler is None:
            raise NoHandlerError(f"nothing is subscribed to topic {message.topic!r} any more")
        await handler(message)

    def _consumer_data(self) -> list[ConsumerData]:
        return [
            ConsumerData(
                group_name=self._group,
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where=self._settings.consume_from.value,
                subscription_data_set=self._subscription_data(),
            )
        ]

    def _subscription_data(self) -> list[SubscriptionData]:
        return [
            SubscriptionData(
                topic=subscription.topic,
                sub_string=subscription.expression,
                tags_set=sorted(subscription.tags),
                code_set=sorted(tags_code(tag) for tag in subscription.tags),
                sub_version=subscription.version,
                expression_type="TAG",
            )
            for subscription in self._subscriptions.values()
        ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
