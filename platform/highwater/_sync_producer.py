"""Producer: the synchronous twin of AsyncProducer. Generated; change that one instead.

Made by platform/generate_sync_clients.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Sequence
from typing import Self

from highwater._models import Credentials, Message, MessageQueue, SendResult
from highwater._portal import SyncClient
from highwater._producer import AsyncProducer
from highwater._selector import QueueSelector
from highwater._settings import settings_from_env
from highwater._validation import MAX_MESSAGE_BYTES
from highwater._wait_budget import WaitBudget
from mqwire.names import RMQ_SYS_TRACE_TOPIC


class Producer(SyncClient[AsyncProducer]):
    """Sends messages to a cluster. Use it in `with`, or call start() and stop().

    `namesrv` is `host:port;host:port` or a list; options carry RocketMQ's names and defaults. Every method raises only
    HighwaterError. One producer serves any number of threads at once. `enable_msg_trace` has it write a trace record of each
    send, beside it, to `trace_topic`. With `only_addresses` (`host:port`) it connects to these and the name servers alone, whatever
    routes say. What it waits for answers counts against `wait_budget`; when that is spent, sends raise TimeSpentError.
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
        poll_name_server_interval_ms: int = 30000,
        heartbeat_broker_interval_ms: int = 30000,
        use_tls: bool | ssl.SSLContext = False,
        serialize_type: str = "ROCKETMQ",
        enable_msg_trace: bool = False,
        trace_topic: str = RMQ_SYS_TRACE_TOPIC,
        only_addresses: Collection[str] | None = None,
        wait_budget: WaitBudget | None = None,
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
                enable_msg_trace=enable_msg_trace,
                trace_topic=trace_topic,
                only_addresses=only_addresses,
                wait_budget=wait_budget,
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
        """Send one message; the result says where it is stored and how safe it is.

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
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic in one request; they get consecutive offsets of one queue, all or none.

        They must agree in topic and wait_store_msg_ok, must not be delayed, and together must not exceed
        max_message_size. The result's ids are joined by commas, see SendResult.message_ids.
        """
        return self._run(self._twin.send_batch, messages, queue=queue, timeout_ms=timeout_ms)

    def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, queue_selector: QueueSelector | None = None
    ) -> None:
        """Send one message and await no answer: nothing says whether the broker took it."""
        self._run(self._twin.send_oneway, message, queue=queue, queue_selector=queue_selector)

    def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic can be sent to, in order."""
        return self._run(self._twin.publish_queues, topic)
