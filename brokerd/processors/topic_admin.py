"""Topics: create and update, delete, list, and what their queues hold. Source: AdminBrokerProcessor."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import msgspec

from brokerd.metadata_record import MetadataRecord
from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, changing_tables, existing_topic, not_written, seeing_all
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from brokerd.topic_config import invalid_topic_config, merge_attributes
from brokerd.topic_retention import RESERVE_TIME, kept_too_long
from brokerd.topic_validator import invalid_topic
from mqwire.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    MessageQueue,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from mqwire.names import LMQ_PREFIX

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.processors.context import MetadataLog
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

# BrokerConfig.splitMetadataSize: the most topics or groups in one page.
PAGE_SIZE_MAX = 2000


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    replica: Replica

    @property
    def metadata_log(self) -> MetadataLog: ...

    def register_soon(self) -> None: ...


@answers_refusals
def update_and_create_topic(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Answered when as many replicas hold it as a message needs; name servers are notified at once."""
    changing_tables(broker.metadata_log)
    header = request.header(CreateTopicRequestHeader)
    config = TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=_attributes(broker, header.topic, header.attributes),
    )
    _put(broker, peer, [config])
    return broker.metadata_log.answer(request.reply())


@answers_refusals
def update_and_create_topic_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Several topics, all or none."""
    changing_tables(broker.metadata_log)
    configs = []
    for config in CreateTopicListRequestBody.from_client(request.body).topic_config_list:
        text = ",".join(
            name if name.startswith("-") else f"+{name.removeprefix('+')}={value}"
            for name, value in config.attributes.items()
        )
        configs.append(msgspec.structs.replace(config, attributes=_attributes(broker, config.topic_name, text)))
    if not configs:
        raise Refusal(ResponseCode.INVALID_PARAMETER, "the list of topics is empty")
    _put(broker, peer, configs)
    return broker.metadata_log.answer(request.reply())


def _attributes(broker: _Broker, topic: str, text: str | None) -> dict[str, str]:
    known = broker.topic_configs.select(topic)
    before = {} if known is None else known.attributes
    try:
        merged = merge_attributes(before, text)
    except ValueError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
    if merged.get(RESERVE_TIME) != before.get(RESERVE_TIME):
        remark = kept_too_long(merged, broker.config.file_reserved_time_hours)
        if remark is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return merged


def _put(broker: _Broker, peer: Peer, configs: list[TopicConfig]) -> None:
    for config in configs:
        remark = invalid_topic_config(config)
        if remark is None and (
            broker.topic_configs.is_system_topic(config.topic_name) or config.topic_name.startswith(LMQ_PREFIX)
        ):
            remark = f"The topic[{config.topic_name}] is conflict with system topic: choose another name."
        if remark is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    try:
        changed = broker.topic_configs.put_all(configs)
    except StoreError as error:
        raise not_written(error) from error
    if changed:
        logger.info("%s puts topics: %s", peer.remote_address[0], ", ".join(config.topic_name for config in configs))
        broker.register_soon()


@answers_refusals
def delete_topic_in_broker(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The topic's configuration, messages and all groups' offsets in it; harmless when it is gone already."""
    changing_tables(broker.metadata_log)
    topic = request.header(DeleteTopicRequestHeader).topic
    remark = invalid_topic(topic)
    if remark is None and broker.topic_configs.is_system_topic(topic):
        remark = f"The topic[{topic}] is conflict with system topic: it is the broker's own and stays."
    if remark is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    try:
        # The record first: where it is not written, nothing has changed; where it is, every replica does the rest.
        deleted = broker.topic_configs.delete([topic])
        if not deleted and topic in broker.store.topics():  # a delayed message came when the topic was gone already
            broker.metadata_log.write(MetadataRecord(deleted_topics=[topic]))
    except StoreError as error:
        raise not_written(error) from error
    broker.consumer_offsets.remove_topic(topic)
    try:
        broker.metadata_log.forget_messages(topic)
    except (OSError, StoreError) as error:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"topic {topic} is deleted, but its messages are not yet ({error}), and it cannot be made again before they are: see to"
            " the broker's disk, and it is done within seconds",
        ) from error
    if deleted:
        logger.warning("%s deletes topic %s", peer.remote_address[0], topic)
        broker.register_soon()
    return broker.metadata_log.answer(request.reply())


def get_all_topic_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """All topics, or a page of them (5.3 and later ask for pages)."""
    header = request.header(GetAllTopicConfigRequestHeader)
    table: Mapping[str, TopicConfig] = broker.topic_configs.table
    version = broker.topic_configs.data_version
    names = page(sorted(table), header.data_version, version, header.topic_seq, header.max_topic_num)
    body = TopicConfigAndMappingSerializeWrapper(
        topic_config_table={name: table[name] for name in names}, data_version=version
    )
    return request.reply(header=GetAllTopicConfigResponseHeader(total_topic_num=len(table)), body=body.to_json())


def page(
    names: list[str], data_version: str | None, current: DataVersion, first: int | None, count: int | None
) -> list[str]:
    """Which of `names` a paged request is for: all when it asks for no page, the first page when the table changed."""
    if data_version is None and first is None and count is None:
        return names
    begin = max(first or 0, 0)
    try:
        if not data_version or DataVersion.from_client(data_version.encode()) != current:
            begin = 0
    except RemoteProtocolError:
        begin = 0
    size = min(PAGE_SIZE_MAX, PAGE_SIZE_MAX if count is None else max(count, 0))
    return names[begin : begin + size]


@answers_refusals
def get_topic_config(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """One topic."""
    config = existing_topic(broker.topic_configs, request.header(GetTopicConfigRequestHeader).topic)
    return request.reply(body=config.to_json())


def get_system_topic_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The topics that are the broker's own."""
    return request.reply(body=TopicList(topic_list=broker.topic_configs.system_topics()).to_json())


@answers_refusals
def get_topic_stats_info(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Per queue: first and next offset, and when the last message was stored (0: never, or it is gone)."""
    topic = request.header(GetTopicStatsInfoRequestHeader).topic
    seeing_all(broker.replica)
    config = existing_topic(broker.topic_configs, topic)
    store = broker.store
    table = {}
    for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
        max_offset = store.max_offset(topic, queue_id)
        timestamp_ms = store.store_timestamp_of(topic, queue_id, max_offset - 1) if max_offset else 0
        queue = MessageQueue(topic=topic, broker_name=broker.config.broker_name, queue_id=queue_id)
        table[queue] = TopicOffset(
            min_offset=store.min_offset(topic, queue_id),
            max_offset=max_offset,
            last_update_timestamp=max(timestamp_ms, 0),
        )
    return request.reply(body=TopicStatsTable(offset_table=table).to_json())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: update_and_create_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: update_and_create_topic_list,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete_topic_in_broker,
    RequestCode.GET_ALL_TOPIC_CONFIG: get_all_topic_config,
    RequestCode.GET_TOPIC_CONFIG_LIST: get_all_topic_config,
    RequestCode.GET_TOPIC_CONFIG: get_topic_config,
    RequestCode.GET_TOPIC_STATS_INFO: get_topic_stats_info,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: get_system_topic_list,
}
