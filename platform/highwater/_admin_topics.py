"""Administration of topics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from highwater._admin_base import AdminBase, gather
from highwater._admin_models import QueueStats, TopicConfig, TopicLimit, TopicStats
from highwater._edge import read_body
from highwater._models import MessageQueue
from highwater._routes import TopicRoute
from highwater._validation import check_topic
from highwater.errors import ConfigurationError
from mqwire import bodies, names
from mqwire.codes import RequestCode
from mqwire.headers_namesrv import DeleteTopicFromNamesrvRequestHeader, PutKVConfigRequestHeader
from mqwire.headers_topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

_SYSTEM_TOPICS = frozenset(
    value for name, value in vars(names).items() if name.startswith(("RMQ_SYS_", "AUTO_CREATE_")) and value
)


def is_system_topic(topic: str) -> bool:
    """Whether the topic is RocketMQ's or Highwater's own: hide it unless asked."""
    return (
        topic in _SYSTEM_TOPICS
        or topic.startswith(
            (names.SYSTEM_TOPIC_PREFIX, names.RETRY_GROUP_TOPIC_PREFIX, names.DLQ_GROUP_TOPIC_PREFIX, names.LMQ_PREFIX)
        )
        or topic.endswith("_" + names.REPLY_TOPIC_POSTFIX)
    )


# Attributes that limit a topic. Of its quotas a broker reports the use, once there is any.
_LIMITS = (
    "reserve.time",
    "reserve.bytes",
    "quota.messages.per.second",
    "quota.bytes.per.second",
    "quota.stored.bytes",
    "quota.held.pulls",
)


class _Use(msgspec.Struct):
    quota: str
    name: str
    used: int
    limit: int


_USES: Final = msgspec.json.Decoder(list[_Use])


def _uses(quotas: str, topic: str) -> dict[str, tuple[int, int]]:
    """The quotas of a topic's sends and of what it stores, of a broker's list in JSON: (used, limit) by name."""
    return {
        use.quota: (use.used, use.limit)
        for use in _USES.decode(quotas)
        if use.quota.startswith(("quotaTopic", "quota.")) and use.name in (topic, f"{topic} (send)")
    }


class TopicAdmin(AdminBase):
    """Topics."""

    async def topic_list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of all topics that the name server knows, system topics included, sorted."""
        if cluster is None:
            response = await self._client.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            header = GetTopicsByClusterRequestHeader(cluster=cluster)
            response = await self._client.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, header)
        return tuple(sorted(read_body(response, bodies.TopicList).topic_list))

    async def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked now; raises NoRouteError."""
        self._client.routes.forget(topic)
        return await self._client.routes.get(topic)

    async def topic_config(self, topic: str, address: str) -> TopicConfig:
        """The topic as one broker keeps it; raises TopicNotFoundError."""
        response = await self._ask(address, RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
        config = read_body(response, bodies.TopicConfig)
        return TopicConfig(
            topic=config.topic_name,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            order=config.order,
            attributes=config.attributes,
        )

    async def create_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        address: str | None = None,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = 6,
        order: bool = False,
        attributes: Mapping[str, str | None] | None = None,
    ) -> tuple[str, ...]:
        """Create the topic, or change it, on every master of `cluster` or on the broker at `address`.

        Returns the addresses. `attributes` are RocketMQ's, such as {"message.type": "FIFO"}, and ours, such as
        {"reserve.bytes": "1000000"}; None removes one, and what is not named stays. Doing it again is harmless; after a failure
        some brokers may have it and others not.
        """
        check_topic(topic)
        if read_queue_nums < 1 or write_queue_nums < 0 or not 0 <= perm <= 15:
            raise ConfigurationError(
                f"a topic cannot have {read_queue_nums} read queues, {write_queue_nums} write queues and perm {perm}"
            )
        addresses = await self._masters(cluster, address)
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC_KEY_TOPIC,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=",".join(
                f"-{name}" if value is None else f"+{name}={value}" for name, value in (attributes or {}).items()
            )
            or None,
        )
        await gather(partial(self._ask, one, RequestCode.UPDATE_AND_CREATE_TOPIC, header) for one in addresses)
        if order and cluster is not None:
            brokers = (await self.cluster_info()).brokers(cluster)
            value = ";".join(f"{broker.broker_name}:{write_queue_nums}" for broker in brokers if broker.master_address)
            await self._client.ask_name_servers(
                RequestCode.PUT_KV_CONFIG,
                PutKVConfigRequestHeader(namespace=NAMESPACE_ORDER_TOPIC_CONFIG, key=topic, value=value),
            )
        self._client.routes.forget(topic)
        return addresses

    async def delete_topic(self, topic: str, *, cluster: str) -> None:
        """Delete the topic and its messages from every master of `cluster`, and its route. No topic: no error."""
        addresses = await self._masters(cluster)
        header = DeleteTopicRequestHeader(topic=topic)
        await gather(partial(self._ask, one, RequestCode.DELETE_TOPIC_IN_BROKER, header) for one in addresses)
        await self._client.ask_name_servers(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
        )
        self._client.routes.forget(topic)

    async def topic_stats(self, topic: str) -> TopicStats:
        """Each queue's first and next offset, and when it was last written to, from the masters."""
        route = await self.topic_route(topic)
        addresses = sorted(filter(None, (route.read_address(name) for name in route.brokers)))
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        responses = await gather(
            partial(self._ask, address, RequestCode.GET_TOPIC_STATS_INFO, header) for address in addresses
        )
        queues = [
            QueueStats(
                queue=MessageQueue(key.topic, key.broker_name, key.queue_id),
                min_offset=offset.min_offset,
                max_offset=offset.max_offset,
                last_update_timestamp_ms=offset.last_update_timestamp if offset.last_update_timestamp > 0 else None,
            )
            for response in responses
            for key, offset in read_body(response, bodies.TopicStatsTable).offset_table.items()
        ]
        return TopicStats(topic, tuple(sorted(queues, key=lambda stats: stats.queue)))

    async def topic_limits(self, topic: str) -> tuple[TopicLimit, ...]:
        """How long the topic keeps messages, and its quotas with their use, as the master of each broker group says, by broker.

        A group without a master is left out. Raises NoRouteError.
        """
        route = await self.topic_route(topic)
        masters = {name: address for name in sorted(route.brokers) if (address := route.master_address(name))}
        header = GetTopicConfigRequestHeader(topic=topic)
        configs = await gather(
            partial(self._ask, address, RequestCode.GET_TOPIC_CONFIG, header) for address in masters.values()
        )
        runtimes = await gather(
            partial(self._ask, address, RequestCode.GET_BROKER_RUNTIME_INFO) for address in masters.values()
        )
        found: list[TopicLimit] = []
        for name, config, runtime in zip(masters, configs, runtimes, strict=True):
            attributes = read_body(config, bodies.TopicConfig).attributes
            uses = _uses(read_body(runtime, bodies.KVTable).table.get("quotas", "[]"), topic)
            for attribute in _LIMITS:
                limit = attributes.get(attribute, "")
                if limit.isascii() and limit.isdigit() and attribute not in uses:
                    found.append(TopicLimit(name, attribute, int(limit), None))
            found += [TopicLimit(name, quota, limit, used) for quota, (used, limit) in uses.items()]
        return tuple(found)

    async def topic_groups(self, topic: str) -> tuple[str, ...]:
        """The groups that have consumed the topic, sorted."""
        route = await self.topic_route(topic)
        addresses = sorted(filter(None, (route.read_address(name) for name in route.brokers)))
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        responses = await gather(
            partial(self._ask, address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header) for address in addresses
        )
        groups = {group for response in responses for group in read_body(response, bodies.GroupList).group_list}
        return tuple(sorted(groups))
