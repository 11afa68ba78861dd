"""A broker's topics: configuration and statistics."""

from __future__ import annotations

import msgspec

from mqwire.bodies.base import Body, MessageQueue
from mqwire.bodies.data_version import DataVersion
from mqwire.bodies.route import TopicQueueMappingInfo
from mqwire.errors import RemoteProtocolError
from mqwire.first_decode import convert
from mqwire.header import Int32, Int64


class TopicConfig(Body, frozen=True, kw_only=True):
    """One topic of one broker. `perm` holds PermName bits. Source: TopicConfig."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}

    def encode(self) -> str:
        """The line of blank-separated values of which a compressed registration is made (TopicConfig.encode)."""
        attributes = msgspec.json.encode(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm}"
            f" {self.topic_filter_type} {attributes}"
        )

    @classmethod
    def decode(cls, line: str) -> TopicConfig:
        """Inverse of `encode`; raises RemoteProtocolError. RocketMQ's form has no topicSysFlag and no order."""
        values = line.split(" ", 5)
        if len(values) < 5:
            raise RemoteProtocolError(f"TopicConfig: {line[:100]!r} has fewer than five values")
        fields: dict[str, object] = dict(
            zip(("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType"), values, strict=False)
        )
        try:
            if len(values) == 6 and values[5]:
                fields["attributes"] = msgspec.json.decode(values[5], type=dict[str, str])
            topic: TopicConfig = convert(fields, cls)
            return topic
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"TopicConfig: {error} in {line[:100]!r}") from error


class TopicConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """All topics of a broker, by name. Source: TopicConfigSerializeWrapper."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, frozen=True, kw_only=True):
    """The same with 5.x's static-topic mappings. Source: TopicConfigAndMappingSerializeWrapper."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    mapping_data_version: DataVersion = DataVersion()


class CreateTopicListRequestBody(Body, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC_LIST. Source: CreateTopicListRequestBody."""

    topic_config_list: list[TopicConfig] = []


class TopicOffset(Body, frozen=True, kw_only=True):
    """One queue's reach; the timestamp is milliseconds, 0 when the queue is empty. Source: TopicOffset."""

    min_offset: Int64 = 0
    max_offset: Int64 = 0
    last_update_timestamp: Int64 = 0


class TopicStatsTable(Body, frozen=True, kw_only=True):
    """GET_TOPIC_STATS_INFO's answer. Source: TopicStatsTable."""

    topic_put_tps: float = 0.0
    offset_table: dict[MessageQueue, TopicOffset] = {}
