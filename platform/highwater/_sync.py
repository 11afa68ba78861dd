"""Producer and PushConsumer: the synchronous twins, with the same names and arguments (a test compares them)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from highwater._consumer import AsyncPushConsumer
from highwater._handler_threads import HandlerThreads
from highwater._models import ConsumeFrom, Credentials, Message, MessageQueue, ReceivedMessage, SendResult
from highwater._portal import SyncClient
from highwater._producer import AsyncProducer
from highwater._selector import QueueSelector
from highwater._settings import settings_from_env
from highwater._validation import MAX_MESSAGE_BYTES
from highwater.errors import ConfigurationError

Handler = Callable[[ReceivedMessage], None]
HandlerT = TypeVar("HandlerT", bound=Handler)


class Producer(SyncClient[AsyncProducer]):
    """Sends messages to a cluster. Use it in `with`, or call start() and stop().

    `namesrv` is `host:port;host:port` or a list; options carry RocketMQ's names and defaults. Every method raises only
    HighwaterError. One producer serves any number of threads at once.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str = "DEFAULT_PRODUCER",
        *,
        credentials: Credentials | None = None,
        timeout_ms: int = 3000,
        retry_times_when_send_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        compress_msg_body_over_howmuch: int = 4096,
        compress_type: str = "ZLIB",
        max_message_size: int = MAX_MESSAGE_BYTES,
        default_topic_queue_nums: int = 4,
        send_latency_fault_enable: bool = True,
        send_msg_max_timeout_per_request_ms: int = -1,
        poll_name_server_interval_ms: int = 30_000,
        heartbeat_broker_interval_ms: int = 30_000,
        use_tls: bool | ssl.SSLContext = False,
        serialize_type: str = "ROCKETMQ",
    ) -> None:
        super().__init__(
            AsyncProducer(
                namesrv,
                group,
                credentials=credentials,
                timeout_ms=timeout_ms,
                retry_times_when_send_failed=retry_times_when_send_failed,
                retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
                compress_msg_body_over_howmuch=compress_msg_body_over_howmuch,
                compress_type=compress_type,
                max_message_size=max_message_size,
                default_topic_queue_nums=default_topic_queue_nums,
                send_latency_fault_enable=send_latency_fault_enable,
                send_msg_max_timeout_per_request_ms=send_msg_max_timeout_per_request_ms,
                poll_name_server_interval_ms=poll_name_server_interval_ms,
                heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
                use_tls=use_tls,
                serialize_type=serialize_type,
            )
        )

    @classmethod
    def from_env(cls, group: str = "DEFAULT_PRODUCER") -> Self:
        """A producer for the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, group, credentials=settings.credentials, use_tls=settings.use_tls)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        queue_selector: QueueSelector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message; the result tells where it lies and how safe it is.

        Without `queue` or `queue_selector` (called with the topic's queues and the message) queues take turns, and a
        failed send is tried again on another broker; with one of them it is tried again on that queue. Trying again may
        store a message twice. Raises the last try's error, or RequestTimeoutError after `timeout_ms` over all tries.
        """
        return self._run(self._twin.send, message, queue=queue, queue_selector=queue_selector, timeout_ms=timeout_ms)

    def send_ordered(
        self, message: Message, sharding_key: str | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message so that all of the same sharding key go to one queue, in the order of the calls.

        The key is kept with the message. All clients of the cluster, in any language, map a key to the same queue.
        """
        return self._run(self._twin.send_ordered, message, sharding_key, timeout_ms=timeout_ms)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; they get consecutive offsets of one queue, all or none.

        They must agree in topic and wait_store_msg_ok, must not be delayed, and together must not exceed
        max_message_size. The result's ids are joined by commas, see SendResult.message_ids.
        """
        return self._run(self._twin.send_batch, messages, queue=queue, timeout_ms=timeout_ms)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        queue_selector: QueueSelector | None = None,
    ) -> None:
        """Send one message and await no answer: nothing tells whether the broker took it."""
        self._run(self._twin.send_oneway, message, queue=queue, queue_selector=queue_selector)

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic can be sent to, in order."""
        return self._run(self._twin.publish_queues, topic)


class PushConsumer(SyncClient[AsyncPushConsumer]):
    """Consumes topics as a member of `group`. Use it in `with`, or call start() and stop().

    Handlers are plain functions and run in threads of their own, up to `consume_threads` at once. One that returns
    acknowledges its message; one that raises gets it again later (RetryLater says when), up to `max_reconsume_times`,
    after which the message goes to the topic `%DLQ%group`. A message may come more than once.

    With `orderly` each queue's messages come one after the other, and a failing one holds its queue back. `consume_from`
    (and `consume_timestamp_ms`) says where a group begins that has no offsets stored yet. The other options carry
    RocketMQ's names and defaults.
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
    ) -> None:
        super().__init__(
            AsyncPushConsumer(
                namesrv,
                group,
                credentials=credentials,
                timeout_ms=timeout_ms,
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
                drain_timeout_ms=drain_timeout_ms,
                persist_consumer_offset_interval_ms=persist_consumer_offset_interval_ms,
                rebalance_interval_ms=rebalance_interval_ms,
                poll_name_server_interval_ms=poll_name_server_interval_ms,
                heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
                use_tls=use_tls,
                serialize_type=serialize_type,
            )
        )
        self._threads = HandlerThreads(f"highwater-{group}")

    @classmethod
    def from_env(cls, group: str) -> Self:
        """A consumer of the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, group, credentials=settings.credentials, use_tls=settings.use_tls)

    def stop(self) -> None:
        """As the asynchronous twin's, and end the background threads. Harmless when done twice, or never started."""
        super().stop()
        self._threads.stop()

    def subscribe(self, topic: str, expression: str = "*", *, handler: Handler) -> None:
        """Give the messages of `topic` whose tag fits `expression` (`*`, or `tagA || tagB`) to `handler`.

        Before start(), or while running: the group's other members should subscribe to the same.
        """
        if not callable(handler):
            raise ConfigurationError("handler must be a function that takes a ReceivedMessage")

        async def in_thread(message: ReceivedMessage) -> None:
            await self._threads.run(handler, message)

        self._run_plain(self._twin.subscribe, topic, expression, handler=in_thread)

    def on(self, topic: str, *, tags: str = "*") -> Callable[[HandlerT], HandlerT]:
        """Decorator form of subscribe(): `@consumer.on("orders", tags="paid || shipped")`."""

        def decorate(handler: HandlerT) -> HandlerT:
            self.subscribe(topic, tags, handler=handler)
            return handler

        return decorate

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`; its queues are given back with the next rebalance."""
        self._run_plain(self._twin.unsubscribe, topic)

    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member works on at the moment, sorted."""
        return self._run_plain(self._twin.assigned_queues)

    @property
    def client_id(self) -> str:
        """This member's name in the group."""
        return self._twin.client_id
