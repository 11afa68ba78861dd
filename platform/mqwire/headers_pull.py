"""Headers of pulling, querying and viewing messages."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, Int64, TopicRequestHeader


class PullMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). `sys_flag` holds PullSysFlag bits."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None  # RocketMQ's own spelling


class PullMessageResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Answer to a pull; the body holds the records as they stand in the CommitLog."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


class QueryMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """QUERY_MESSAGE (12): by key, between two store times in milliseconds.

    The extension field `_UNIQUE_KEY_QUERY` = "true" says that `key` is a UNIQ_KEY.
    """

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None


class QueryMessageResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Up to when and where the index reaches. The last two are ours: Apache's brokers do not say them."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
    index_lag_bytes: Int64 | None = None  # of the log, which the index has yet to read
    index_enabled: bool | None = None


class ViewMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """VIEW_MESSAGE_BY_ID (33). `offset` is the CommitLog offset in bytes."""

    topic: str | None = None
    offset: Int64
