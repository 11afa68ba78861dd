"""ClientInstance: what every producer, consumer and admin stands on.

It owns the task group, the connections, the name servers and the routes, and sends brokers its heartbeats. Each
public object has one of its own; nothing is shared between them and nothing runs before start().
"""

from __future__ import annotations

import itertools
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
from anyio.abc import TaskGroup

from highwater._host import local_address
from highwater._models import Credentials
from highwater._network import NetworkBackend
from highwater._remoting import RemotingClient
from highwater._routes import NameServers, RouteTable, TopicRoute, parse_name_servers
from highwater._wait_budget import WaitBudget
from highwater.errors import (
    BrokerError,
    ClientStateError,
    ConfigurationError,
    ConnectError,
    HighwaterError,
    NoRouteError,
    broker_error,
)
from mqwire.bodies import ConsumerData, HeartbeatData, ProducerData
from mqwire.codes import RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader
from mqwire.headers_client import HeartbeatRequestHeader, UnregisterClientRequestHeader

logger = logging.getLogger("highwater")

_instance_numbers = itertools.count(1)
# While a group has no master its route is asked for this often at most.
_LOOK_INTERVAL_S = 0.3


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """What producers, consumers and admins have in common. Defaults are RocketMQ's ClientConfig."""

    namesrv: tuple[str, ...]
    credentials: Credentials | None = None
    timeout_ms: int = 3000
    poll_name_server_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    tls: ssl.SSLContext | None = None
    serialize_type: SerializeType = SerializeType.ROCKETMQ
    backend: NetworkBackend | None = None
    only_addresses: frozenset[str] | None = None
    patience_ms: int | None = None
    wait_budget: WaitBudget | None = None


def make_options(
    namesrv: str | Sequence[str],
    *,
    credentials: Credentials | None,
    timeout_ms: int,
    use_tls: bool | ssl.SSLContext,
    poll_name_server_interval_ms: int = 30_000,
    heartbeat_broker_interval_ms: int = 30_000,
    serialize_type: SerializeType | str = SerializeType.ROCKETMQ,
    only_addresses: Collection[str] | None = None,
    patience_ms: int | None = None,
    wait_budget: WaitBudget | None = None,
) -> ClientOptions:
    """The options of one client, checked; raises ConfigurationError.

    With `only_addresses` it connects to these and the name servers alone. `patience_ms` is all the time that it waits, over its
    whole life, for answers that do not come; an address that left one request unanswered is not asked again then. `wait_budget` is
    all the time that it waits for answers, these or not, together with the other clients that were given the same one.
    """
    for name, value in (
        ("timeout_ms", timeout_ms),
        ("poll_name_server_interval_ms", poll_name_server_interval_ms),
        ("heartbeat_broker_interval_ms", heartbeat_broker_interval_ms),
    ):
        if value <= 0:
            raise ConfigurationError(f"{name} is {value}; it must be above 0")
    if isinstance(serialize_type, str):
        try:
            serialize_type = SerializeType[serialize_type.upper()]
        except KeyError:
            raise ConfigurationError(f"serialize_type is {serialize_type!r}; it must be ROCKETMQ or JSON") from None
    tls = ssl.create_default_context() if use_tls is True else use_tls or None
    name_servers = parse_name_servers(namesrv)
    return ClientOptions(
        namesrv=name_servers,
        credentials=credentials,
        timeout_ms=timeout_ms,
        poll_name_server_interval_ms=poll_name_server_interval_ms,
        heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
        tls=tls,
        serialize_type=serialize_type,
        only_addresses=None if only_addresses is None else frozenset({*name_servers, *only_addresses}),
        patience_ms=patience_ms,
        wait_budget=wait_budget,
    )


class ClientInstance:
    """One client of a cluster, as brokers see it. Start and stop it in the same task."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        # ClientConfig.buildMQClientId; the number and the time distinguish the clients of one process and of its forks.
        self.client_id = f"{local_address()}@{os.getpid()}#{next(_instance_numbers)}#{time.time_ns():x}"
        self.producer_groups: set[str] = set()
        self.consumer_data: Callable[[], list[ConsumerData]] = list
        self._tasks: TaskGroup | None = None
        self._remoting: RemotingClient | None = None
        self._name_servers: NameServers | None = None
        self._routes: RouteTable | None = None
        self._stopped = False
        self._registered: set[str] = set()
        self._looked_at_s: dict[str, float] = {}

    # -- life

    async def start(self) -> None:
        """Open the task group and begin the periodic work. Connects to no one yet."""
        if self._tasks is not None or self._stopped:
            raise ClientStateError("this client was started before; make a new one")
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        options = self.options
        self._remoting = RemotingClient(
            tasks,
            credentials=options.credentials,
            tls=options.tls,
            backend=options.backend,
            on_connected=self._connected,
            only_addresses=options.only_addresses,
            patience_ms=options.patience_ms,
            wait_budget=options.wait_budget,
        )
        self._name_servers = NameServers(self._remoting, options.namesrv)
        self._routes = RouteTable(self._name_servers, timeout_ms=options.timeout_ms)
        self.every(options.poll_name_server_interval_ms, self._routes.refresh_all)
        self.every(options.heartbeat_broker_interval_ms, self.send_heartbeats)

    async def stop(self) -> None:
        """Say goodbye to the brokers, end all tasks and close all connections. Harmless when done twice."""
        tasks = self._tasks
        if tasks is None or self._stopped:
            return
        self._stopped = True
        try:
            with anyio.move_on_after(self.options.timeout_ms / 1000, shield=True):
                await self._unregister()
            with anyio.move_on_after(2, shield=True):
                await self.remoting.aclose()
        finally:
            tasks.cancel_scope.cancel()
            # Without the caller's exception: a task group would wrap it into a group.
            await tasks.__aexit__(None, None, None)

    @property
    def tasks(self) -> TaskGroup:
        """The group that the client's tasks live in."""
        if self._tasks is None:
            raise ClientStateError("the client has not been started: use it in a with-block, or call start() first")
        if self._stopped:
            raise ClientStateError("the client was stopped")
        return self._tasks

    @property
    def remoting(self) -> RemotingClient:
        """The connections."""
        if self._remoting is None:
            raise ClientStateError("the client has not been started: use it in a with-block, or call start() first")
        return self._remoting

    @property
    def name_servers(self) -> NameServers:
        """The name servers."""
        if self._name_servers is None:
            raise ClientStateError("the client has not been started: use it in a with-block, or call start() first")
        return self._name_servers

    @property
    def routes(self) -> RouteTable:
        """The routes."""
        if self._routes is None:
            raise ClientStateError("the client has not been started: use it in a with-block, or call start() first")
        return self._routes

    def spawn(self, work: Callable[[], Awaitable[None]]) -> anyio.CancelScope:
        """Run `work` beside, in the scope that is returned; whatever it raises is logged and ends nothing else."""
        scope = anyio.CancelScope()

        async def guarded() -> None:
            with scope:
                try:
                    await work()
                except HighwaterError as error:
                    logger.warning("%s", error)
                except Exception:  # a bug here must not take the whole client down with it
                    logger.exception("a background task failed")

        self.tasks.start_soon(guarded)
        return scope

    def every(self, interval_ms: float, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` each `interval_ms` until the client stops; failures are logged and the next turn comes."""

        async def loop() -> None:
            while True:
                await anyio.sleep(interval_ms / 1000)
                try:
                    await work()
                except HighwaterError as error:
                    logger.warning("%s", error)
                except Exception:  # as in spawn
                    logger.exception("a periodic task failed")

        self.tasks.start_soon(loop)

    # -- requests

    def request(
        self,
        code: int,
        header: CustomHeader | None = None,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        oneway: bool = False,
    ) -> RemotingCommand:
        """A request in the serialization that this client is set to use."""
        return RemotingCommand.request(
            code,
            header,
            ext_fields=ext_fields,
            body=body,
            oneway=oneway,
            serialize_type=self.options.serialize_type,
        )

    async def invoke(
        self, address: str, request: RemotingCommand, timeout_ms: float | None = None, *, accept: Sequence[int] = ()
    ) -> RemotingCommand:
        """The answer, if its code is SUCCESS or in `accept`; raises the fitting BrokerError for any other code."""
        _ = self.tasks  # says so when the client does not run
        response = await self.remoting.invoke(address, request, timeout_ms or self.options.timeout_ms)
        if response.code != ResponseCode.SUCCESS and response.code not in accept:
            raise broker_error(response.code, response.remark, address)
        return response

    async def invoke_oneway(self, address: str, request: RemotingCommand) -> None:
        """Send without awaiting an answer."""
        _ = self.tasks
        await self.remoting.invoke_oneway(address, request, self.options.timeout_ms)

    async def ask_name_server(
        self, code: int, header: CustomHeader | None = None, *, body: bytes = b"", accept: Sequence[int] = ()
    ) -> RemotingCommand:
        """The answer of one name server; the next one is asked when it does not answer."""
        _ = self.tasks
        response = await self.name_servers.invoke(
            lambda: RemotingCommand.request(code, header, body=body), self.options.timeout_ms
        )
        if response.code != ResponseCode.SUCCESS and response.code not in accept:
            raise broker_error(response.code, response.remark, "the name server")
        return response

    async def ask_name_servers(
        self, code: int, header: CustomHeader | None = None, *, body: bytes = b""
    ) -> list[RemotingCommand]:
        """The answers of all name servers; raises the first failure."""
        _ = self.tasks
        return await self.name_servers.invoke_all(
            lambda: RemotingCommand.request(code, header, body=body), self.options.timeout_ms
        )

    # -- being known to brokers

    def _connected(self, address: str) -> None:
        """A connection to a broker is new: it must hear of us before it can name us to anyone."""
        if address not in self.options.namesrv and not self._stopped and self._has_members():
            self.spawn(partial(self._beat, address))

    async def _beat(self, address: str) -> None:
        await self._heartbeat(address)  # which logs what goes wrong; there is a next time

    def _has_members(self) -> bool:
        return bool(self.producer_groups or self.consumer_data())

    def heartbeat_addresses(self, route: TopicRoute) -> list[str]:
        """Masters for producers; for consumers every replica, since each may be pulled from."""
        with_replicas = bool(self.consumer_data())
        return [
            address
            for broker_name, replicas in route.brokers.items()
            for address in (replicas.values() if with_replicas else filter(None, [route.master_address(broker_name)]))
        ]

    async def send_heartbeats(self) -> None:
        """Send a heartbeat to every broker of every known route. One that can't be reached is logged and tried again next time."""
        await self.try_heartbeats()

    async def try_heartbeats(self) -> list[HighwaterError]:
        """The same; returns what went wrong, too."""
        if not self._has_members():
            return []
        addresses = {address for route in self.routes.known() for address in self.heartbeat_addresses(route)}
        failures: list[HighwaterError] = []

        async def beat(address: str) -> None:
            failure = await self._heartbeat(address)
            if failure is not None:
                failures.append(failure)

        async with anyio.create_task_group() as tasks:
            for address in sorted(addresses):
                tasks.start_soon(beat, address)
        return failures

    async def _heartbeat(self, address: str) -> HighwaterError | None:
        consumers = self.consumer_data()
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.producer_groups)],
            consumer_data_set=consumers,
        )
        # JSON whatever the option says: all brokers read it, and it is not on the hot path.
        request = RemotingCommand.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body=body.to_json())
        # Before the answer: a broker may have heard of us even if we never hear of it.
        self._registered.add(address)
        try:
            await self.invoke(address, request)
        except HighwaterError as error:
            logger.warning("no heartbeat to %s: %s", address, error)
            if isinstance(error, ConnectError):
                self._registered.discard(address)
            return error
        return None

    async def _unregister(self) -> None:
        groups = [(group, None) for group in sorted(self.producer_groups)]
        headers = [
            UnregisterClientRequestHeader(client_id=self.client_id, producer_group=producer_group)
            for producer_group, _ in groups
        ] + [
            UnregisterClientRequestHeader(client_id=self.client_id, consumer_group=data.group_name)
            for data in self.consumer_data()
        ]

        async def unregister(address: str) -> None:
            for header in headers:
                request = RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header)
                try:
                    await self.remoting.invoke(address, request, self.options.timeout_ms)
                except HighwaterError as error:
                    logger.info("%s did not hear that the client leaves: %s", address, error)

        async with anyio.create_task_group() as tasks:
            for address in sorted(self._registered):
                tasks.start_soon(unregister, address)

    # -- finding brokers

    async def master_address(self, topic: str, broker_name: str) -> str:
        """The master of a broker group of a topic; asks for the route again before it raises NoRouteError."""
        route = await self.routes.get(topic)
        address = route.master_address(broker_name)
        if address is None:
            address = (await self.routes.refresh(topic)).master_address(broker_name)
        if address is None:
            raise NoRouteError(f"broker group {broker_name!r} of topic {topic!r} has no master at the moment")
        return address

    async def read_address(self, topic: str, broker_name: str, broker_id: int = 0) -> str:
        """A replica to read from; asks for the route again before it raises NoRouteError."""
        route = await self.routes.get(topic)
        address = route.read_address(broker_name, broker_id)
        if address is None:
            address = (await self.routes.refresh(topic)).read_address(broker_name, broker_id)
        if address is None:
            raise NoRouteError(f"no replica of broker group {broker_name!r} of topic {topic!r} is registered")
        return address

    async def look_for_master(self, topic: str, error: HighwaterError, *, at_once: bool = False) -> None:
        """A broker that is gone or is no master may have a successor: ask now, not at the next poll of the routes.

        `at_once`: also a moment after the last look, which the caller's time may have cut short.
        """
        if isinstance(error, BrokerError) and error.response_code != ResponseCode.SERVICE_NOT_AVAILABLE:
            return
        now_s = anyio.current_time()
        if not at_once and now_s - self._looked_at_s.get(topic, float("-inf")) < _LOOK_INTERVAL_S:
            return
        self._looked_at_s[topic] = now_s
        try:
            await self.routes.refresh(topic)
        except HighwaterError as failure:
            logger.info("the route of topic %s was not refreshed: %s", topic, failure)
