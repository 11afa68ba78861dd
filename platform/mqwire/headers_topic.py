"""Headers of a broker's topic administration."""

from __future__ import annotations

from mqwire.header import CustomHeader, Int32, TopicRequestHeader


class CreateTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC (17). `attributes` is RocketMQ's text form `+message.type=FIFO,-other`."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = False


class DeleteTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_TOPIC_CONFIG (351)."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """GET_TOPIC_STATS_INFO (202)."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """QUERY_TOPIC_CONSUME_BY_WHO (300): which groups read a topic."""

    topic: str


class GetAllTopicConfigRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_ALL_TOPIC_CONFIG (21), in pages since 5.3; a request without any field asks for everything."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class GetAllTopicConfigResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """How many topics there are over all pages."""

    total_topic_num: Int32


class GetTopicsByClusterRequestHeader(CustomHeader, frozen=True, kw_only=True):
    """GET_TOPICS_BY_CLUSTER (224), asked of the name server."""

    cluster: str
