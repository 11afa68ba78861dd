"""Offsets of groups and queues. Offsets count messages of one queue, timestamps are milliseconds."""

from __future__ import annotations

from mqwire.bodies.base import Body, MessageQueue
from mqwire.bodies.data_version import DataVersion
from mqwire.header import Int32, Int64


class ConsumerOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_CONSUMER_OFFSET's answer: `topic@group` -> queue -> offset. Source: ConsumerOffsetSerializeWrapper."""

    offset_table: dict[str, dict[Int32, Int64]] = {}
    reset_count_table: dict[str, dict[Int32, Int64]] | None = None  # ours: how often each offset was reset
    losses: list[int] | None = (
        None  # ours: where leaders began whose log may have lacked what consumers had read, in bytes
    )
    data_version: DataVersion | None = None


class DelayOffsetSerializeWrapper(Body, frozen=True, kw_only=True):
    """GET_ALL_DELAY_OFFSET's answer: delay level -> offset. Source: DelayOffsetSerializeWrapper."""

    offset_table: dict[Int32, Int64] = {}
    data_version: DataVersion | None = None


class OffsetWrapper(Body, frozen=True, kw_only=True):
    """How far a group is in one queue; `last_timestamp` is the store time of what it consumed last."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    pull_offset: Int64 = 0
    last_timestamp: Int64 = 0


class ConsumeStats(Body, frozen=True, kw_only=True):
    """GET_CONSUME_STATS's answer. Source: ConsumeStats."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class ResetOffsetBody(Body, frozen=True, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET's body and INVOKE_BROKER_TO_RESET_OFFSET's answer. Source: ResetOffsetBody."""

    offset_table: dict[MessageQueue, Int64] = {}


class MessageQueueForC(Body, frozen=True, kw_only=True):
    """A queue with its offset: C++ clients can't read objects as names. Source: MessageQueueForC."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


class ResetOffsetBodyForC(Body, frozen=True, kw_only=True):
    """ResetOffsetBody for C++ clients. Source: ResetOffsetBodyForC."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body, frozen=True, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT's answer: the client's own offsets. Source: GetConsumerStatusBody."""

    message_queue_table: dict[MessageQueue, Int64] = {}
    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}


class QueryCorrectionOffsetBody(Body, frozen=True, kw_only=True):
    """QUERY_CORRECTION_OFFSET's answer. Source: QueryCorrectionOffsetBody."""

    correction_offsets: dict[Int32, Int64] = {}


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """What times a queue covers and where the group is. Source: QueueTimeSpan."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0


class QueryConsumeTimeSpanBody(Body, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN's answer. Source: QueryConsumeTimeSpanBody."""

    consume_time_span_set: list[QueueTimeSpan] = []
