"""Topic routes: where a topic's queues and their brokers are.

The pure half turns a name server's TopicRouteData into a TopicRoute; RouteTable keeps the routes of the topics in use
and refreshes them; NameServers asks one name server and turns to the next when it does not answer.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from highwater._models import MessageQueue
from highwater._network import parse_address
from highwater._remoting import RemotingClient
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError, broker_error
from highwater.sentences import say
from mqwire.bodies import TopicRouteData
from mqwire.codes import PermName, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_namesrv import GetRouteInfoRequestHeader
from mqwire.names import MASTER_ID

logger = logging.getLogger("highwater")


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's queues, and the addresses of the brokers that hold them: broker name -> brokerId -> address.

    `publish_queues` are those with the write permission whose broker has a master, `subscribe_queues` those with the
    read permission; both in RocketMQ's order. `ordered` says that an order configuration fixed the queues.
    """

    topic: str
    publish_queues: tuple[MessageQueue, ...]
    subscribe_queues: tuple[MessageQueue, ...]
    brokers: dict[str, dict[int, str]] = field(hash=False)
    ordered: bool = False

    def master_address(self, broker_name: str) -> str | None:
        """The master's address, or None while the broker group has no master."""
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def read_address(self, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
        """The address of this replica, else the master's, else any replica's: every replica can serve reads."""
        replicas = self.brokers.get(broker_name)
        if not replicas:
            return None
        return replicas.get(broker_id) or replicas.get(MASTER_ID) or replicas[min(replicas)]

    def any_address(self) -> str | None:
        """A broker to ask about groups: a master if there is one."""
        names = list(self.brokers)
        random.shuffle(names)
        for name in names:
            address = self.master_address(name)
            if address is not None:
                return address
        return next((self.read_address(name) for name in names), None)


def route_from_data(topic: str, data: TopicRouteData) -> TopicRoute:
    """MQClientInstance.topicRouteData2TopicPublishInfo and ...SubscribeInfo."""
    brokers = {broker.broker_name: dict(broker.broker_addrs) for broker in data.broker_datas if broker.broker_addrs}
    subscribe = [
        MessageQueue(topic, queue_data.broker_name, queue_id)
        for queue_data in data.queue_datas
        if queue_data.perm & PermName.READ
        for queue_id in range(queue_data.read_queue_nums)
    ]
    ordered = bool(data.order_topic_conf)
    if data.order_topic_conf:
        publish = _ordered_queues(topic, data.order_topic_conf)
    else:
        publish = [
            MessageQueue(topic, queue_data.broker_name, queue_id)
            for queue_data in data.queue_datas
            if queue_data.perm & PermName.WRITE and MASTER_ID in brokers.get(queue_data.broker_name, {})
            for queue_id in range(queue_data.write_queue_nums)
        ]
    return TopicRoute(topic, tuple(sorted(publish)), tuple(sorted(subscribe)), brokers, ordered)


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    """The queues that `brokerA:8;brokerB:8` names; they stay the same while a broker is away, and so does the order."""
    queues: list[MessageQueue] = []
    for part in filter(None, order_topic_conf.split(";")):
        broker_name, _, count = part.partition(":")
        if count.strip().isdigit():
            queues += (MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count)))
    return queues


def route_for_new_topic(topic: str, default_route: TopicRoute, queue_nums: int) -> TopicRoute:
    """A route to topic that does not exist yet, from the template topic's: the broker creates it on the first send."""

    def rename(queues: Sequence[MessageQueue]) -> tuple[MessageQueue, ...]:
        return tuple(replace(queue, topic=topic) for queue in queues if queue.queue_id < queue_nums)

    return TopicRoute(
        topic, rename(default_route.publish_queues), rename(default_route.subscribe_queues), default_route.brokers
    )


def parse_name_servers(namesrv: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses in `host:port;host:port` (also with commas), or in a list of such; raises ConfigurationError."""
    texts = [namesrv] if isinstance(namesrv, str) else list(namesrv)
    addresses = [part.strip() for text in texts for part in text.replace(",", ";").split(";") if part.strip()]
    if not addresses:
        raise ConfigurationError("no name server address was given; it should read host:port;host:port")
    for address in addresses:
        parse_address(address)
    return tuple(dict.fromkeys(addresses))


class NameServers:
    """The name servers, of which one is asked until it fails."""

    def __init__(self, remoting: RemotingClient, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)
        self._remoting = remoting
        # Clients spread over the name servers by chance, as RocketMQ's do.
        self._current = random.randrange(len(self.addresses))

    async def invoke(
        self, make_request: Callable[[], RemotingCommand], timeout_ms: float, *, unless: int | None = None
    ) -> RemotingCommand:
        """The first name server's answer; the time is shared between the tries.

        An answer with the code `unless` is returned only when every name server that answers says so: one that has just
        been started knows less than the others. Raises the last try's error when none answers.
        """
        deadline = anyio.current_time() + timeout_ms / 1000
        count = len(self.addresses)
        failure: HighwaterError | None = None
        second_best: RemotingCommand | None = None
        number = self._current
        for attempt in range(count):
            address = self.addresses[number]
            left_ms = (deadline - anyio.current_time()) * 1000
            if attempt and left_ms <= 0:
                break
            try:
                response = await self._remoting.invoke(address, make_request(), left_ms / (count - attempt))
            except HighwaterError as error:
                if not error.retryable:
                    raise
                failure = error
                logger.info("name server %s did not answer: %s", address, error)
            else:
                if response.code != unless:
                    return response
                second_best = response
            # Others are asking at the same time: each asks every name server, and one failure turns all to the next, once.
            if self._current == number:
                self._current = (number + 1) % count
            number = (number + 1) % count
        if second_best is not None:
            return second_best
        assert failure is not None
        raise failure

    async def invoke_all(self, make_request: Callable[[], RemotingCommand], timeout_ms: float) -> list[RemotingCommand]:
        """Every name server's answer, for changes: they don't know each other. Raises the first error."""
        responses = []
        for address in self.addresses:
            response = await self._remoting.invoke(address, make_request(), timeout_ms)
            if response.code != ResponseCode.SUCCESS:
                raise broker_error(response.code, response.remark, address)
            responses.append(response)
        return responses


class RouteTable:
    """The routes of the topics in use."""

    def __init__(self, name_servers: NameServers, *, timeout_ms: float) -> None:
        self._name_servers = name_servers
        self._timeout_ms = timeout_ms
        self._routes: dict[str, TopicRoute] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._listeners: list[Callable[[TopicRoute], None]] = []

    def on_change(self, listener: Callable[[TopicRoute], None]) -> None:
        """Call `listener` with each route that is new or differs from the one before."""
        self._listeners.append(listener)

    def cached(self, topic: str) -> TopicRoute | None:
        """The route as it is known, without asking."""
        return self._routes.get(topic)

    def known(self) -> list[TopicRoute]:
        """All routes that are known."""
        return list(self._routes.values())

    def adopt(self, route: TopicRoute) -> None:
        """Remember a route that was made here (a topic that a broker will create on the first send)."""
        self._routes.setdefault(route.topic, route)

    def forget(self, topic: str) -> None:
        """Ask again at the next use."""
        self._routes.pop(topic, None)

    async def get(self, topic: str) -> TopicRoute:
        """The topic's route, asked for once. Raises NoRouteError, or what kept all name servers from answering."""
        route = self._routes.get(topic)
        if route is not None:
            return route
        async with self._locks.setdefault(topic, anyio.Lock()):
            return self._routes.get(topic) or await self._fetch(topic)

    async def refresh(self, topic: str) -> TopicRoute:
        """Ask now. When the name servers no longer know a topic that was known, the old route stays: they may have been
        restarted a moment ago, and a broker refuses a topic that is really gone."""
        async with self._locks.setdefault(topic, anyio.Lock()):
            try:
                return await self._fetch(topic)
            except NoRouteError:
                known = self._routes.get(topic)
                if known is None:
                    raise
                logger.info("no name server knows topic %s any more; its last route stays in use", topic)
                return known

    async def refresh_all(self) -> None:
        """Refresh every known route; failures are logged and the old routes stay."""
        for topic in list(self._routes):
            try:
                await self.refresh(topic)
            except HighwaterError as error:
                logger.warning("the route of topic %s was not refreshed: %s", topic, error)

    async def _fetch(self, topic: str) -> TopicRoute:
        response = await self._name_servers.invoke(
            lambda: RemotingCommand.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True),
            ),
            self._timeout_ms,
            unless=ResponseCode.TOPIC_NOT_EXIST,
        )
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRouteError(say("no name server knows topic %(topic)s", topic=topic))
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response.code, response.remark, "the name server")
        route = route_from_data(topic, TopicRouteData.from_json(bytes(response.body)))
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        if changed:
            for listener in self._listeners:
                listener(route)
        return route


RouteLookup = Callable[[str], Awaitable[TopicRoute]]
