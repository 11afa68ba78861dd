"""Trace records of a producer's sends and a consumer's deliveries, written to a trace topic beside the client's work.

They are a report, not the work: what can't be sent, or is more than waits, is dropped and counted in the log.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from dataclasses import replace

import anyio

from highwater._client import ClientInstance
from highwater._models import Message, ReceivedMessage, SendResult
from highwater._validation import check_topic
from highwater.errors import HighwaterError, NoRouteError
from mqwire.codes import RequestCode
from mqwire.errors import RemoteProtocolError
from mqwire.headers_send import SendMessageRequestHeader
from mqwire.message import parse_offset_message_id, properties_to_string
from mqwire.names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DEFAULT_TRACE_REGION_ID,
    KEY_SEPARATOR,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
)
from mqwire.trace_records import TraceKind, TraceRecord, write_traces

logger = logging.getLogger("highwater")

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
_INTERVAL_MS = 500
_WAITING_MAX = 4096
_RECORDS_MAX = 100  # of one trace message, as in Java's client
_KEYS_MAX_BYTES = 16 * 1024
_CLOSE_TIMEOUT_S = 3.0
_NORMAL, _DELAY = 0, 3  # MessageType
SUCCESS, TIME_OUT, EXCEPTION, FAILED = 0, 1, 2, 4  # ConsumeReturnType


class Tracer:
    """Collects the records of one client and sends them each half second, over its connections."""

    def __init__(self, client: ClientInstance, group: str, topic: str) -> None:
        check_topic(topic)
        self._client = client
        self._group = group
        self._topic = topic
        self._waiting: deque[TraceRecord] = deque()
        self._dropped = 0
        self._sends = 0

    def start(self) -> None:
        """Begin; the client has been started."""
        self._client.every(_INTERVAL_MS, self.flush)

    async def close(self) -> None:
        """Send what waits, within 3 s; call it before the client stops."""
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await self.flush()

    # -- sends

    def of_message(self, message: Message, message_id: str) -> tuple[TraceRecord, ...]:
        """The record of a message that is about to be sent: none of one that is itself a trace message."""
        if message.topic == self._topic:
            return ()
        record = TraceRecord(
            TraceKind.PUB,
            message_id,
            region=DEFAULT_TRACE_REGION_ID,
            group=self._group,
            topic=message.topic,
            tags=message.tags or "",
            keys=KEY_SEPARATOR.join(message.keys),
            body_size_bytes=len(message.body),
            message_type=_DELAY if message.delay_time_level else _NORMAL,
        )
        return (record,)

    def sent(self, records: tuple[TraceRecord, ...], began_ms: int, result: SendResult | None) -> None:
        """What became of a send; None when it failed."""
        offset_ids = [""] if result is None else result.offset_message_id.split(",")
        cost_ms = max(0, _now_ms() - began_ms)
        for position, record in enumerate(records):
            offset_id = offset_ids[position] if position < len(offset_ids) else ""
            self._add(
                replace(
                    record,
                    timestamp_ms=began_ms,
                    cost_ms=cost_ms,
                    region=(result and result.region_id) or record.region,
                    store_host=_store_host(offset_id),
                    offset_message_id=offset_id,
                    is_success=result is not None,
                )
            )

    # -- deliveries

    def begin(self, message: ReceivedMessage) -> TraceRecord | None:
        """Record that a message goes to its handler; None for one whose broker wants no tracing."""
        if not message.message_id or message.properties.get(PROPERTY_TRACE_SWITCH) == "false":
            return None
        record = TraceRecord(
            TraceKind.SUB_BEFORE,
            message.message_id,
            timestamp_ms=_now_ms(),
            region=message.properties.get(PROPERTY_MSG_REGION, DEFAULT_TRACE_REGION_ID),
            group=self._group,
            request_id=uuid.uuid4().hex,
            retried=message.reconsume_times,
            keys=KEY_SEPARATOR.join(message.keys),
        )
        self._add(record)
        return record

    def end(self, begun: TraceRecord, code: int) -> None:
        """Record how the delivery ended; `code` is ConsumeReturnType's."""
        now_ms = _now_ms()
        self._add(
            TraceRecord(
                TraceKind.SUB_AFTER,
                begun.message_id,
                timestamp_ms=now_ms,
                group=self._group,
                request_id=begun.request_id,
                cost_ms=max(0, now_ms - (begun.timestamp_ms or now_ms)),
                is_success=code == SUCCESS,
                keys=begun.keys,
                code=code,
            )
        )

    # -- sending them

    async def flush(self) -> None:
        """Send all that waits."""
        dropped, self._dropped = self._dropped, 0
        if dropped:
            logger.warning("%d trace records were dropped: they come faster than they can be sent", dropped)
        while self._waiting:
            records, keys = self._take()
            try:
                await self._send(write_traces(records), keys)
            except HighwaterError as error:
                hint = ": is traceTopicEnable on?" if isinstance(error, NoRouteError) else ""
                logger.warning("%d trace records could not be sent%s: %s", len(records), hint, error)
                return  # the others wait for the next turn

    def _add(self, record: TraceRecord) -> None:
        if len(self._waiting) >= _WAITING_MAX:
            self._dropped += 1
            return
        self._waiting.append(record)

    def _take(self) -> tuple[list[TraceRecord], str]:
        """The next records, with the keys by which their message is found."""
        records: list[TraceRecord] = []
        keys: dict[str, None] = {}
        size = 0
        while self._waiting and len(records) < _RECORDS_MAX and size < _KEYS_MAX_BYTES:
            record = self._waiting.popleft()
            records.append(record)
            for key in (record.message_id, *record.keys.split(KEY_SEPARATOR)):
                if key and key not in keys and size + len(key.encode()) <= _KEYS_MAX_BYTES:
                    keys[key] = None
                    size += len(key.encode()) + 1
        return records, KEY_SEPARATOR.join(keys)

    async def _send(self, body: bytes, keys: str) -> None:
        route = await self._client.routes.get(self._topic)
        queues = route.publish_queues
        if not queues:
            raise NoRouteError(f"topic {self._topic!r} has no queue that can be written to at the moment")
        self._sends += 1
        queue = queues[self._sends % len(queues)]
        header = SendMessageRequestHeader(
            producer_group=TRACE_GROUP,
            topic=self._topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=1,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=_now_ms(),
            flag=0,
            properties=properties_to_string({PROPERTY_KEYS: keys}),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=queue.broker_name,
        )
        address = await self._client.master_address(self._topic, queue.broker_name)
        request = self._client.request(RequestCode.SEND_MESSAGE_V2, header.to_v2(), body=body)
        await self._client.invoke(address, request)


def _store_host(offset_message_id: str) -> str:
    try:
        (host, port), _ = parse_offset_message_id(offset_message_id)
    except RemoteProtocolError:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
