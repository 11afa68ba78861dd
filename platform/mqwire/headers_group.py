"""Headers of a broker's subscription-group administration."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, RpcRequestHeader, TopicRequestHeader


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP (207); `clean_offset` also forgets the group's consumer offsets."""

    group_name: str
    clean_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class GetAllSubscriptionGroupRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), in pages since 5.3; without any field: everything."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """How many groups there are over all pages."""

    total_group_num: Int32


class GetConsumeStatsRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_CONSUME_STATS (208); no topic asks for every topic of the group. `topic_list` is joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryTopicsByConsumerRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER (343)."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345)."""

    group: str
    topic: str | None = None
