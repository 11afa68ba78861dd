"""Administration of consumer groups: configuration, members, progress, offsets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from highwater._admin_base import gather
from highwater._admin_models import (
    ClientConnection,
    ConsumerConnections,
    ConsumerProgress,
    MemberSubscription,
    QueueProgress,
    SubscriptionGroup,
)
from highwater._admin_topics import TopicAdmin
from highwater._edge import read_body, read_header
from highwater._models import MessageQueue
from highwater._validation import check_group
from highwater.errors import BrokerError, ConsumerOfflineError, NoRouteError
from mqwire import bodies
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_client import GetConsumerConnectionListRequestHeader, GetProducerConnectionListRequestHeader
from mqwire.headers_group import DeleteSubscriptionGroupRequestHeader, GetConsumeStatsRequestHeader
from mqwire.headers_offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX

# RocketMQ's word for "the end of the queue" in an offset reset.
RESET_TO_END = -1


class GroupAdmin(TopicAdmin):
    """Consumer groups."""

    async def group_list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of the consumer groups on the masters of `cluster`, or of all clusters, sorted."""
        addresses = (await self.cluster_info()).master_addresses(cluster)
        tables = await gather(partial(self.group_configs, address) for address in addresses)
        return tuple(sorted({name for table in tables for name in table}))

    async def group_configs(self, address: str) -> Mapping[str, SubscriptionGroup]:
        """All consumer groups of one broker, by name."""
        response = await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = read_body(response, bodies.SubscriptionGroupWrapper).subscription_group_table
        return {name: _group(config) for name, config in sorted(table.items())}

    async def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        address: str | None = None,
        consume_enable: bool = True,
        consume_from_min_enable: bool = True,
        consume_broadcast_enable: bool = True,
        consume_message_orderly: bool = False,
        retry_queue_nums: int = 1,
        retry_max_times: int = 16,
        broker_id: int = 0,
        which_broker_when_consume_slowly: int = 1,
        notify_consumer_ids_changed_enable: bool = True,
        attributes: Mapping[str, str | None] | None = None,
    ) -> tuple[str, ...]:
        """Create the group, or change it, on every master of `cluster` or on the broker at `address`; returns those.

        `attributes` are changes in RocketMQ's form without its sign, such as {"priority.factor": "2"}; None removes one.
        """
        check_group(group)
        config = bodies.SubscriptionGroupConfig(
            group_name=group,
            consume_enable=consume_enable,
            consume_from_min_enable=consume_from_min_enable,
            consume_broadcast_enable=consume_broadcast_enable,
            consume_message_orderly=consume_message_orderly,
            retry_queue_nums=retry_queue_nums,
            retry_max_times=retry_max_times,
            broker_id=broker_id,
            which_broker_when_consume_slowly=which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=notify_consumer_ids_changed_enable,
            attributes={
                f"-{name}" if value is None else f"+{name}": value or "" for name, value in (attributes or {}).items()
            },
        )
        addresses = await self._masters(cluster, address)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await gather(partial(self._ask, one, code, body=config.to_json()) for one in addresses)
        return addresses

    async def delete_group(self, group: str, *, cluster: str, clean_offset: bool = True) -> None:
        """Delete the group from every master of `cluster`; `clean_offset` also its offsets, retry and dead letters."""
        addresses = await self._masters(cluster)
        header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean_offset)
        await gather(partial(self._ask, one, RequestCode.DELETE_SUBSCRIPTIONGROUP, header) for one in addresses)
        if clean_offset:
            for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
                await self.delete_topic(prefix + group, cluster=cluster)

    async def _group_addresses(self, group: str) -> tuple[str, ...]:
        """The brokers that may know the group: those of its retry topic, or all masters if it has none yet."""
        try:
            route = await self.topic_route(RETRY_GROUP_TOPIC_PREFIX + group)
        except NoRouteError:
            return (await self.cluster_info()).master_addresses()
        return tuple(sorted(filter(None, (route.read_address(name) for name in route.brokers))))

    async def consumer_progress(self, group: str, *, topic: str | None = None) -> ConsumerProgress:
        """How far the group is in each queue that it has consumed, of one topic or of all."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        responses = await gather(
            partial(self._ask, address, RequestCode.GET_CONSUME_STATS, header)
            for address in await self._group_addresses(group)
        )
        stats = [read_body(response, bodies.ConsumeStats) for response in responses]
        queues = [
            QueueProgress(
                queue=MessageQueue(key.topic, key.broker_name, key.queue_id),
                broker_offset=offset.broker_offset,
                consumer_offset=offset.consumer_offset,
                pull_offset=offset.pull_offset,
                last_timestamp_ms=offset.last_timestamp if offset.last_timestamp > 0 else None,
            )
            for one in stats
            for key, offset in one.offset_table.items()
        ]
        return ConsumerProgress(
            group=group,
            queues=tuple(sorted(queues, key=lambda progress: progress.queue)),
            consume_tps=sum(one.consume_tps for one in stats),
        )

    async def consumer_connections(self, group: str) -> ConsumerConnections:
        """The group's members that are connected now, and what they subscribe to."""
        connections: set[ClientConnection] = set()
        subscriptions: dict[str, str] = {}
        reported: dict[str, set[MemberSubscription]] = {}
        last: bodies.ConsumerConnection | None = None
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        for address in await self._group_addresses(group):
            try:
                response = await self._ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except ConsumerOfflineError:
                continue
            last = read_body(response, bodies.ConsumerConnection)
            connections.update(map(_connection, last.connection_set))
            subscriptions.update({topic: data.sub_string for topic, data in last.subscription_table.items()})
            for variant in last.subscription_variants or ():
                mine = {
                    MemberSubscription(one.topic, one.sub_string, one.expression_type) for one in variant.subscriptions
                }
                for client_id in variant.client_ids:
                    reported.setdefault(client_id, set()).update(mine)
        if last is None:
            return ConsumerConnections(group)
        return ConsumerConnections(
            group=group,
            connections=tuple(sorted(connections)),
            subscriptions=dict(sorted(subscriptions.items())),
            consume_type=last.consume_type,
            message_model=last.message_model,
            consume_from_where=last.consume_from_where,
            member_subscriptions={client_id: tuple(sorted(mine)) for client_id, mine in reported.items()},
        )

    async def producer_connections(self, group: str, topic: str) -> tuple[ClientConnection, ...]:
        """The producers of a group that are connected to the topic's brokers now, sorted."""
        route = await self.topic_route(topic)
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        connections: set[ClientConnection] = set()
        for address in sorted(filter(None, (route.master_address(name) for name in route.brokers))):
            try:
                response = await self._ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
            except BrokerError as error:
                # Apache's way of saying that it has no such producer.
                if error.response_code == ResponseCode.SYSTEM_ERROR:
                    continue
                raise
            connections.update(map(_connection, read_body(response, bodies.ProducerConnection).connection_set))
        return tuple(sorted(connections))

    async def reset_offset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Set the group to the first message stored at `timestamp_ms` or later (-1: to the end) in every queue.

        Members that are connected go there at once (Go's client: within 40 s). Without `force` a queue is only ever set back.
        Returns the offsets. Raises NoRouteError where a broker group has no master, before any is asked.
        """
        route = await self.topic_route(topic)
        header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp_ms, is_force=force)
        addresses = [await self._client.master_address(topic, name) for name in route.brokers]
        responses = await gather(
            partial(self._ask, address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            for address in sorted(addresses)
        )
        offsets = {
            MessageQueue(key.topic, key.broker_name, key.queue_id): offset
            for response in responses
            for key, offset in read_body(response, bodies.ResetOffsetBody).offset_table.items()
        }
        return dict(sorted(offsets.items()))

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group to `offset` in one queue, online or not; members that are connected go there at once (Go's: within 40 s).

        Refused outside of what the queue holds. Unlike `set_consumer_offset`, members' commits until then don't count.
        """
        address = await self._client.master_address(queue.topic, queue.broker_name)
        header = ResetOffsetRequestHeader(
            topic=queue.topic,
            group=group,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=RESET_TO_END,
            is_force=True,
        )
        await self._ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The group's stored offset in one queue; None if it has none."""
        address = await self._client.read_address(queue.topic, queue.broker_name)
        header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        request = self._client.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        response = await self._client.invoke(address, request, accept=(ResponseCode.QUERY_NOT_FOUND,))
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read_header(response, QueryConsumerOffsetResponseHeader).offset

    async def set_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset in one queue; members that are connected will overwrite it."""
        address = await self._client.master_address(queue.topic, queue.broker_name)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _connection(connection: bodies.Connection) -> ClientConnection:
    return ClientConnection(connection.client_id, connection.client_addr, connection.language, connection.version)


def _group(config: bodies.SubscriptionGroupConfig) -> SubscriptionGroup:
    return SubscriptionGroup(
        group=config.group_name,
        consume_enable=config.consume_enable,
        consume_from_min_enable=config.consume_from_min_enable,
        consume_broadcast_enable=config.consume_broadcast_enable,
        consume_message_orderly=config.consume_message_orderly,
        retry_queue_nums=config.retry_queue_nums,
        retry_max_times=config.retry_max_times,
        broker_id=config.broker_id,
        which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
        notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
        attributes=config.attributes,
    )
