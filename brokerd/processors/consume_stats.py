"""Who is connected, and how far groups are: what mqadmin and the console ask. Source: AdminBrokerProcessor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals, existing_topic, reading_tables, seeing_all
from brokerd.replies import Refusal, Reply
from mqwire.bodies import (
    ConsumerConnection,
    ConsumeStats,
    GroupList,
    MessageQueue,
    OffsetWrapper,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicList,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import GetConsumerConnectionListRequestHeader, GetProducerConnectionListRequestHeader
from mqwire.headers_group import (
    GetConsumeStatsRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from mqwire.headers_offset import QueryConsumeTimeSpanRequestHeader
from mqwire.headers_topic import QueryTopicConsumeByWhoRequestHeader

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.processors.context import Clock, MetadataLog
    from brokerd.producer_manager import ProducerManager
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore
    from brokerd.topic_config import TopicConfigManager


# Each takes a broker some 3 us and 130 bytes, while others wait. One topic has 1,024 at most. The platform looks at all that there
# are, for alerts of each group.
LAGS_AT_ONCE_MAX: Final = 16_384


class _Broker(Protocol):
    """What these processors use of the broker."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager
    advertised_address: str
    replica: Replica

    @property
    def clock(self) -> Clock: ...

    @property
    def metadata_log(self) -> MetadataLog: ...


def get_consumer_connection_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """A group's members and subscriptions."""
    group = request.header(GetConsumerConnectionListRequestHeader).consumer_group
    info = broker.consumers.find(group)
    if info is None:
        return request.reply(
            ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group[:128]}] not online: start a consumer in it"
        )
    body = ConsumerConnection(
        connection_set=[channel.to_connection() for channel in info.channels],
        subscription_table=dict(info.subscriptions),
        subscription_variants=info.variants(),
        consume_type=info.consume_type,
        message_model=info.message_model,
        consume_from_where=info.consume_from_where,
    )
    return request.reply(body=body.to_json())


def get_producer_connection_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """A producer group's members."""
    group = request.header(GetProducerConnectionListRequestHeader).producer_group
    channels = broker.producers.channels(group)
    if not channels:
        return request.reply(
            ResponseCode.SYSTEM_ERROR, f"the producer group[{group[:128]}] not exist: no producer of it is connected"
        )
    return request.reply(body=ProducerConnection(connection_set=[c.to_connection() for c in channels]).to_json())


def get_all_producer_info(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The members of all producer groups; none is an empty table, no refusal."""
    now_ms, now_s = broker.clock.time_ms(), broker.clock.monotonic()
    table: dict[str, list[ProducerInfo]] = {}
    for group in broker.producers.groups():
        table[group] = []
        for channel in broker.producers.channels(group):
            connection = channel.to_connection()
            table[group].append(
                ProducerInfo(
                    client_id=connection.client_id,
                    remote_ip=f"/{connection.client_addr}",
                    language=connection.language,
                    version=connection.version,
                    last_update_timestamp=now_ms - round((now_s - channel.seen_s) * 1000),
                )
            )
    return request.reply(body=ProducerTableInfo(data=table).to_json())


@answers_refusals
def get_consume_stats(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Per queue of the topics that the group consumes: the queue's end, where the group goes on, and when its last one was stored.

    What retention has deleted can't be consumed any more, and is no lag.
    """
    header = request.header(GetConsumeStatsRequestHeader)
    seeing_all(broker.replica)
    reading_tables(broker.metadata_log)
    group = header.consumer_group
    table: dict[MessageQueue, OffsetWrapper] = {}
    known = ((topic, broker.topic_configs.select(topic)) for topic in _topics_of(broker, header))
    configs = {topic: config for topic, config in known if config is not None}
    queues = sum(config.read_queue_nums for config in configs.values())
    if queues > LAGS_AT_ONCE_MAX and not peer.is_platform:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR,
            f"group {group[:128]!a} is asked about in {queues} queues of {len(configs)} topics, at most {LAGS_AT_ONCE_MAX} queues"
            " are looked at together: name one topic (-t), or fewer of them",
        )
    for topic, config in configs.items():
        for queue_id in range(config.read_queue_nums):
            offset = max(broker.consumer_offsets.query(topic, group, queue_id), 0)
            stored_ms = broker.store.store_timestamp_of(topic, queue_id, offset - 1) if offset else 0
            offset = max(offset, broker.store.min_offset(topic, queue_id))
            queue = MessageQueue(topic=topic, broker_name=broker.config.broker_name, queue_id=queue_id)
            table[queue] = OffsetWrapper(
                broker_offset=broker.store.max_offset(topic, queue_id),
                consumer_offset=offset,
                pull_offset=offset,
                last_timestamp=max(stored_ms, 0),
            )
    return request.reply(body=ConsumeStats(offset_table=table).to_json())


def _topics_of(broker: _Broker, header: GetConsumeStatsRequestHeader) -> list[str]:
    if header.topic_list:
        return list(dict.fromkeys(topic for topic in header.topic_list.split(";") if topic))
    if header.topic:
        return [header.topic]
    topics = broker.consumer_offsets.topics_of(header.consumer_group)
    info = broker.consumers.find(header.consumer_group)
    # A group that is online but has not committed yet has a lag, too.
    return list(dict.fromkeys([*topics, *([] if info is None else info.subscriptions)]))


def query_topic_consume_by_who(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The groups that consume a topic: online, or with offsets in it."""
    topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
    groups = {*broker.consumers.groups_of_topic(topic), *broker.consumer_offsets.groups_of(topic)}
    return request.reply(body=GroupList(group_list=sorted(groups)).to_json())


def query_topics_by_consumer(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """The topics in which a group has offsets."""
    group = request.header(QueryTopicsByConsumerRequestHeader).group
    body = TopicList(topic_list=broker.consumer_offsets.topics_of(group), broker_addr=broker.advertised_address)
    return request.reply(body=body.to_json())


def query_subscription_by_consumer(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """What a group that is online subscribes to in a topic."""
    header = request.header(QuerySubscriptionByConsumerRequestHeader)
    subscription: SubscriptionData | None = broker.consumers.find_subscription(header.group, header.topic or "")
    if subscription is None:
        return request.reply(
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            f"group {header.group[:128]!a} is not online or does not subscribe to {str(header.topic)[:128]!a}",
        )
    return request.reply(body=subscription.to_json())


@answers_refusals
def query_consume_time_span(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """Per queue: the times that its messages cover, and where the group stands among them. Unknown times are -1."""
    header = request.header(QueryConsumeTimeSpanRequestHeader)
    seeing_all(broker.replica)
    reading_tables(broker.metadata_log)
    topic = header.topic
    config = existing_topic(broker.topic_configs, topic)
    store = broker.store
    spans = []
    for queue_id in range(config.write_queue_nums):
        max_offset = store.max_offset(topic, queue_id)
        offset = broker.consumer_offsets.query(topic, header.group, queue_id)
        consumed_ms = store.store_timestamp_of(topic, queue_id, offset - 1) if offset > 0 else -1
        newest_ms = store.store_timestamp_of(topic, queue_id, max_offset - 1) if max_offset else -1
        behind_ms = broker.clock.time_ms() - consumed_ms if consumed_ms >= 0 and offset < max_offset else 0
        spans.append(
            QueueTimeSpan(
                message_queue=MessageQueue(topic=topic, broker_name=broker.config.broker_name, queue_id=queue_id),
                min_time_stamp=store.store_timestamp_of(topic, queue_id, store.min_offset(topic, queue_id)),
                max_time_stamp=newest_ms,
                consume_time_stamp=consumed_ms,
                delay_time=max(behind_ms, 0),
            )
        )
    return request.reply(body=QueryConsumeTimeSpanBody(consume_time_span_set=spans).to_json())


HANDLERS: dict[RequestCode, Handler] = {
    RequestCode.GET_CONSUMER_CONNECTION_LIST: get_consumer_connection_list,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: get_producer_connection_list,
    RequestCode.GET_ALL_PRODUCER_INFO: get_all_producer_info,
    RequestCode.GET_CONSUME_STATS: get_consume_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: query_topic_consume_by_who,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: query_topics_by_consumer,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: query_subscription_by_consumer,
    RequestCode.QUERY_CONSUME_TIME_SPAN: query_consume_time_span,
}
