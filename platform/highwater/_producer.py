"""AsyncProducer: sends messages, and turns to another broker when one fails."""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

import anyio

from highwater._client import ClientInstance, make_options
from highwater._edge import read_header
from highwater._fault import FaultStrategy
from highwater._host import local_address
from highwater._models import Credentials, Message, MessageQueue, SendResult, SendStatus
from highwater._routes import TopicRoute, route_for_new_topic
from highwater._selector import QueueSelector, select_by_hash
from highwater._settings import settings_from_env
from highwater._tracing import Tracer
from highwater._validation import MAX_MESSAGE_BYTES, check_group, check_message, check_topic, message_properties
from highwater._wait_budget import WaitBudget
from highwater.errors import (
    BrokerError,
    ConfigurationError,
    HighwaterError,
    MessageIllegalError,
    NoRouteError,
    RequestTimeoutError,
)
from highwater.sentences import say
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.compression import CompressionType, compress
from mqwire.headers_send import SendMessageRequestHeader, SendMessageResponseHeader
from mqwire.message import BatchItem, encode_batch_body, properties_to_string
from mqwire.names import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_TRACE_TOPIC
from mqwire.trace_records import TraceRecord
from mqwire.unique_key import UniqueKeyGenerator

logger = logging.getLogger("highwater")

_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}
# When the broker that just failed is the only one left, hurrying would only meet the same failure.
SAME_BROKER_PAUSE_SECONDS = 0.1
_CLOCKS_DIFFER_MS = 20  # the event loop's, by which a send ends, and ours


@dataclass(frozen=True, slots=True)
class _Outgoing:
    """A message, or a batch, ready for the wire but for its queue."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    sys_flag: int = 0
    flag: int = 0
    batch: bool = False
    traces: tuple[TraceRecord, ...] = ()


class AsyncProducer:
    """Sends messages to a cluster. Use it in `async with`, or call start() and stop() in the same task.

    `namesrv` is `host:port;host:port` or a list; options carry RocketMQ's names and defaults. Every method raises only
    HighwaterError. One producer serves any number of tasks at once. `enable_msg_trace` has it write a trace record of each
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
        poll_name_server_interval_ms: int = 30_000,
        heartbeat_broker_interval_ms: int = 30_000,
        use_tls: bool | ssl.SSLContext = False,
        serialize_type: str = "ROCKETMQ",
        enable_msg_trace: bool = False,
        trace_topic: str = RMQ_SYS_TRACE_TOPIC,
        only_addresses: Collection[str] | None = None,
        wait_budget: WaitBudget | None = None,
    ) -> None:
        check_group(group)
        if retry_times_when_send_failed < 0:
            raise ConfigurationError(
                f"retry_times_when_send_failed is {retry_times_when_send_failed}; it must be 0 or more"
            )
        try:
            self._compression = CompressionType[compress_type.upper()]
        except KeyError:
            raise ConfigurationError(f"compress_type is {compress_type!r}; it must be ZLIB, LZ4 or ZSTD") from None
        self._client = ClientInstance(
            make_options(
                namesrv,
                credentials=credentials,
                timeout_ms=timeout_ms,
                use_tls=use_tls,
                poll_name_server_interval_ms=poll_name_server_interval_ms,
                heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
                serialize_type=serialize_type,
                only_addresses=only_addresses,
                wait_budget=wait_budget,
            )
        )
        self._client.producer_groups.add(group)
        self._group = group
        self._timeout_ms = timeout_ms
        self._tries = 1 + retry_times_when_send_failed
        self._retry_not_store_ok = retry_another_broker_when_not_store_ok
        self._compress_over = compress_msg_body_over_howmuch
        self._max_message_size = max_message_size
        self._default_topic_queue_nums = default_topic_queue_nums
        self._max_timeout_per_request_ms = send_msg_max_timeout_per_request_ms
        self._fault = FaultStrategy(enabled=send_latency_fault_enable, first_index=random.randrange(1 << 16))
        self._looked_for: set[str] = set()  # topics whose masters are being looked for, as the time for a send was over
        self._unique_keys = UniqueKeyGenerator(local_address())
        self._tracer = Tracer(self._client, group, trace_topic) if enable_msg_trace else None

    @classmethod
    def from_env(cls, group: str = "DEFAULT_PRODUCER") -> Self:
        """A producer for the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, group, credentials=settings.credentials, use_tls=settings.use_tls)

    async def start(self) -> None:
        """Begin; connections are made with the first send."""
        await self._client.start()
        if self._tracer is not None:
            self._tracer.start()

    async def stop(self) -> None:
        """Unregister from the brokers, close the connections, end all tasks."""
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

    # -- sending

    async def send(
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
        return await self._send(self._prepare(message), self._choose(message, queue, queue_selector), timeout_ms)

    async def send_ordered(
        self, message: Message, sharding_key: str | None = None, *, timeout_ms: int | None = None
    ) -> SendResult:
        """Send one message so that all of the same sharding key go to one queue, in the order of the calls.

        The key is kept with the message. All clients of the cluster, in any language, map a key to the same queue.
        """
        key = message.sharding_key if sharding_key is None else sharding_key
        if key is None:
            raise MessageIllegalError("send_ordered needs a sharding key, on the message or as an argument")
        message = replace(message, sharding_key=key)
        return await self._send(
            self._prepare(message), lambda queues: select_by_hash(queues, key), timeout_ms, ordered=True
        )

    async def send_batch(
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
        outgoing = self._prepare_batch(messages)
        return await self._send(outgoing, None if queue is None else lambda _queues: queue, timeout_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        queue_selector: QueueSelector | None = None,
    ) -> None:
        """Send one message and await no answer: nothing says whether the broker took it."""
        outgoing = self._prepare(message)
        choose = self._choose(message, queue, queue_selector)
        with anyio.move_on_after(self._timeout_ms / 1000):
            route = await self._publish_route(outgoing.topic)
            target = self._select(route, choose, None)
            address = await self._client.master_address(outgoing.topic, target.broker_name)
            await self._client.invoke_oneway(address, self._request(outgoing, target, oneway=True))
            return
        raise RequestTimeoutError(f"the message was not handed over within {self._timeout_ms} ms")

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that messages of this topic can be sent to, in order."""
        check_topic(topic)
        return (await self._publish_route(topic)).publish_queues

    # -- making requests

    def _prepare(self, message: Message) -> _Outgoing:
        check_message(message, self._max_message_size)
        message_id = message.message_id or self._unique_keys.next_key()
        properties = properties_to_string(message_properties(message, message_id))
        body, sys_flag = message.body, 0
        if len(body) > self._compress_over >= 0:
            body, sys_flag = compress(body, self._compression)
        traces = () if self._tracer is None else self._tracer.of_message(message, message_id)
        return _Outgoing(message.topic, body, properties, message_id, sys_flag, message.flag, traces=traces)

    def _prepare_batch(self, messages: Sequence[Message]) -> _Outgoing:
        if not messages:
            raise MessageIllegalError("a batch needs at least one message")
        first = messages[0]
        items: list[BatchItem] = []
        message_ids: list[str] = []
        traces: list[TraceRecord] = []
        for message in messages:
            check_message(message, self._max_message_size)
            if message.topic != first.topic or message.wait_store_msg_ok != first.wait_store_msg_ok:
                raise MessageIllegalError("the messages of a batch must agree in topic and wait_store_msg_ok")
            if message.delay_time_level:
                raise MessageIllegalError("a message in a batch cannot be delayed")
            message_ids.append(message.message_id or self._unique_keys.next_key())
            properties = properties_to_string(message_properties(message, message_ids[-1]))
            items.append(BatchItem(message.flag, message.body, properties.encode()))
            if self._tracer is not None:
                traces += self._tracer.of_message(message, message_ids[-1])
        body = encode_batch_body(items)
        if len(body) > self._max_message_size:
            raise MessageIllegalError(
                f"the batch has {len(body)} bytes; at most {self._max_message_size} are allowed (max_message_size)"
            )
        batch_properties = message_properties(
            Message(first.topic, b"-", wait_store_msg_ok=first.wait_store_msg_ok), self._unique_keys.next_key()
        )
        properties = properties_to_string(batch_properties)
        return _Outgoing(first.topic, body, properties, ",".join(message_ids), batch=True, traces=tuple(traces))

    def _request(self, outgoing: _Outgoing, queue: MessageQueue, *, oneway: bool = False) -> RemotingCommand:
        header = SendMessageRequestHeader(
            producer_group=self._group,
            topic=outgoing.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=self._default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=outgoing.batch,
            bname=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if outgoing.batch else RequestCode.SEND_MESSAGE_V2
        return self._client.request(code, header.to_v2(), body=outgoing.body, oneway=oneway)

    # -- choosing

    def _choose(
        self, message: Message, queue: MessageQueue | None, selector: QueueSelector | None
    ) -> Callable[[Sequence[MessageQueue]], MessageQueue] | None:
        if queue is not None:
            if queue.topic != message.topic:
                raise MessageIllegalError(f"queue {queue} is of another topic than the message, {message.topic!r}")
            return lambda _queues: queue
        if selector is not None:
            return lambda queues: selector(queues, message)
        return None

    async def _publish_route(self, topic: str) -> TopicRoute:
        """The topic's route, or for a topic that does not exist the route on which a broker would create it."""
        routes = self._client.routes
        _ = self._client.tasks
        try:
            route = await routes.get(topic)
        except NoRouteError as missing:
            try:
                default_route = await routes.get(AUTO_CREATE_TOPIC_KEY_TOPIC)
            except HighwaterError:
                raise missing from None
            route = route_for_new_topic(topic, default_route, self._default_topic_queue_nums)
            if not route.publish_queues:
                raise missing from None
            return route
        if not route.publish_queues:
            route = await routes.refresh(topic)
        if not route.publish_queues:
            raise NoRouteError(say("topic %(topic)s has no queue that can be written to at the moment", topic=topic))
        return route

    def _select(
        self,
        route: TopicRoute,
        choose: Callable[[Sequence[MessageQueue]], MessageQueue] | None,
        last_broker_name: str | None,
    ) -> MessageQueue:
        if choose is not None:
            return choose(route.publish_queues)
        return self._fault.select(route.topic, route.publish_queues, _now_ms(), last_broker_name)

    # -- trying

    async def _send(
        self,
        outgoing: _Outgoing,
        choose: Callable[[Sequence[MessageQueue]], MessageQueue] | None,
        timeout_ms: int | None,
        *,
        ordered: bool = False,
    ) -> SendResult:
        if self._tracer is None:
            return await self._send_with_tries(outgoing, choose, timeout_ms, ordered=ordered)
        began_ms = time.time_ns() // 1_000_000
        result: SendResult | None = None
        try:
            result = await self._send_with_tries(outgoing, choose, timeout_ms, ordered=ordered)
            return result
        finally:
            self._tracer.sent(outgoing.traces, began_ms, result)

    async def _send_with_tries(
        self,
        outgoing: _Outgoing,
        choose: Callable[[Sequence[MessageQueue]], MessageQueue] | None,
        timeout_ms: int | None,
        *,
        ordered: bool,
    ) -> SendResult:
        timeout = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = _now_ms() + timeout
        last_broker: str | None = None
        result: SendResult | None = None
        failure: HighwaterError | None = None
        chosen: MessageQueue | None = None
        with anyio.move_on_after(timeout / 1000):
            for attempt in range(self._tries):
                route = await self._publish_route(outgoing.topic)
                # An ordered message stays with the queue of its first try, even if the route changes in between.
                queue = chosen if ordered and chosen is not None else self._select(route, choose, last_broker)
                chosen = queue
                if queue.broker_name == last_broker:
                    await anyio.sleep(SAME_BROKER_PAUSE_SECONDS * attempt)
                last_broker = queue.broker_name
                try:
                    result = await self._try(outgoing, route, queue, deadline_ms, last_try=attempt + 1 == self._tries)
                except HighwaterError as error:
                    failure = error
                    if not error.retryable:
                        break
                    logger.info("send %d of %d to %s failed: %s", attempt + 1, self._tries, queue.broker_name, error)
                    await self._client.look_for_master(outgoing.topic, error)
                    continue
                if result.status is SendStatus.SEND_OK or not self._retry_not_store_ok:
                    return result
        # A result that is not SEND_OK is still a stored message: it says more than a later try's failure.
        if result is not None:
            return result
        timed_out = RequestTimeoutError(f"the message was not sent within {timeout} ms")
        has_no_answer = failure is None or isinstance(failure, RequestTimeoutError)
        if has_no_answer and outgoing.topic not in self._looked_for:
            # A broker that stands still may have a successor too. The time is over, so the look is for the next send.
            self._looked_for.add(outgoing.topic)
            self._client.spawn(partial(self._look_for_master, outgoing.topic, timed_out))
        raise failure or timed_out

    async def _look_for_master(self, topic: str, error: HighwaterError) -> None:
        """One look at a time for a topic, however many sends to it have failed."""
        try:
            await self._client.look_for_master(topic, error, at_once=True)
        finally:
            self._looked_for.discard(topic)

    async def _try(
        self, outgoing: _Outgoing, route: TopicRoute, queue: MessageQueue, deadline_ms: float, *, last_try: bool
    ) -> SendResult:
        started_ms = _now_ms()
        left_ms = deadline_ms - started_ms
        if left_ms <= 0:
            raise RequestTimeoutError("no time was left for another try")
        if 0 < self._max_timeout_per_request_ms < left_ms and not last_try:
            left_ms = self._max_timeout_per_request_ms
        broker = queue.broker_name
        address = route.master_address(broker) or await self._client.master_address(outgoing.topic, broker)
        try:
            request = self._request(outgoing, queue)
            response = await self._client.invoke(address, request, left_ms, accept=tuple(_STATUS))
        except BrokerError as error:
            if error.retryable:
                self._fault.failed(broker, _now_ms(), reachable=True)
            else:
                self._fault.succeeded(broker, _now_ms() - started_ms, _now_ms())
            raise
        except HighwaterError:
            self._fault.failed(broker, _now_ms(), reachable=False)
            raise
        except anyio.get_cancelled_exc_class():
            # The whole send's time may end a moment before this request's. A caller who ends it earlier says nothing of the broker.
            if _now_ms() >= deadline_ms - _CLOCKS_DIFFER_MS:
                self._fault.failed(broker, _now_ms(), reachable=False)
            raise
        now_ms = _now_ms()
        self._fault.succeeded(broker, now_ms - started_ms, now_ms)
        return _result(response, outgoing, queue)


def _result(response: RemotingCommand, outgoing: _Outgoing, queue: MessageQueue) -> SendResult:
    header = read_header(response, SendMessageResponseHeader)
    return SendResult(
        status=_STATUS[response.code],
        message_id=outgoing.message_id,
        offset_message_id=header.msg_id,
        queue=MessageQueue(outgoing.topic, queue.broker_name, header.queue_id),
        queue_offset=header.queue_offset,
        transaction_id=header.transaction_id,
        region_id=header.region_id,
    )


def _now_ms() -> float:
    return time.monotonic() * 1000
