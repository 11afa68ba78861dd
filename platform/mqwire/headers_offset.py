"""Headers of queue offsets and consumer offsets. Offsets count messages of one queue, timestamps are milliseconds."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, Int64, RpcRequestHeader, TopicRequestHeader


class QueryConsumerOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The group's next offset."""

    offset: Int64


class UpdateConsumerOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """UPDATE_CONSUMER_OFFSET (15), mostly one-way."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP (29). `boundary_type` is LOWER (the default) or UPPER, in either case."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


class SearchOffsetResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The first offset at or after the time (LOWER)."""

    offset: Int64


class GetMaxOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_MAX_OFFSET (30)."""

    topic: str
    queue_id: Int32
    committed: bool = True


class GetMaxOffsetResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The offset that the next message will have."""

    offset: Int64


class GetMinOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_MIN_OFFSET (31)."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """The oldest offset that is still stored."""

    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_EARLIEST_MSG_STORETIME (32)."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Store time of the oldest message, -1 when there is none."""

    timestamp: Int64


class ResetOffsetRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and, to the client, RESET_CONSUMER_CLIENT_OFFSET (220).

    `timestamp` -1 means the end. `offset` with `queue_id` >= 0 sets one queue to exactly that offset.
    """

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    # False: queues are only set back. Go's client leaves it out and expects the broker to go on.
    is_force: bool | None = None


class CloneGroupOffsetRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """CLONE_GROUP_OFFSET (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeTimeSpanRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str
