"""What all of administration stands on: the client's life, and finding the brokers that a change must reach."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import anyio

from highwater._admin_models import BrokerData, ClusterInfo
from highwater._client import ClientInstance, make_options
from highwater._edge import read_body
from highwater._models import Credentials
from highwater._settings import settings_from_env
from highwater._wait_budget import WaitBudget
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError
from highwater.sentences import say
from mqwire import bodies
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.header import CustomHeader

T = TypeVar("T")


class AdminBase:
    """Life and addresses. Use it in `async with`, or call start() and stop() in the same task."""

    def __init__(
        self,
        namesrv: str | Sequence[str],
        credentials: Credentials | None = None,
        timeout_ms: int = 3000,
        *,
        use_tls: bool | ssl.SSLContext = False,
        only_addresses: Collection[str] | None = None,
        patience_ms: int | None = None,
        wait_budget: WaitBudget | None = None,
    ) -> None:
        self._client = ClientInstance(
            # JSON headers: every broker and name server reads them, and administration is not in a hurry.
            make_options(
                namesrv,
                credentials=credentials,
                timeout_ms=timeout_ms,
                use_tls=use_tls,
                serialize_type="JSON",
                only_addresses=only_addresses,
                patience_ms=patience_ms,
                wait_budget=wait_budget,
            )
        )

    @classmethod
    def from_env(cls) -> Self:
        """Administration of the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, settings.credentials, use_tls=settings.use_tls)

    async def start(self) -> None:
        """Begin; connections are made when they are needed."""
        await self._client.start()

    async def stop(self) -> None:
        """Close the connections."""
        await self._client.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def cluster_info(self) -> ClusterInfo:
        """Every cluster and broker group that the name server knows."""
        response = await self._client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = read_body(response, bodies.ClusterInfo)
        return ClusterInfo(
            broker_addr_table={
                name: BrokerData(broker.cluster, broker.broker_name, dict(sorted(broker.broker_addrs.items())))
                for name, broker in sorted(info.broker_addr_table.items())
            },
            cluster_addr_table={
                cluster: tuple(sorted(names)) for cluster, names in sorted(info.cluster_addr_table.items())
            },
        )

    async def _ask(
        self, address: str, code: int, header: CustomHeader | None = None, *, body: bytes = b""
    ) -> RemotingCommand:
        return await self._client.invoke(address, self._client.request(code, header, body=body))

    async def _masters(self, cluster: str | None, address: str | None = None) -> tuple[str, ...]:
        """The brokers that a change goes to: one by its address, or every master of a cluster."""
        if (cluster is None) == (address is None):
            raise ConfigurationError("name either a cluster or the address of one broker")
        if address is not None:
            return (address,)
        info = await self.cluster_info()
        addresses = info.master_addresses(cluster)
        if not addresses:
            known = ", ".join(info.cluster_addr_table) or say("none")
            raise NoRouteError(
                say(
                    "cluster %(cluster)s has no master at the moment (known clusters: %(known)s)",
                    cluster=str(cluster),
                    known=known,
                )
            )
        return addresses

    async def _masters_of(self, address_or_cluster: str | None) -> tuple[str, ...]:
        """The same where one argument may be either; None is every master of every cluster."""
        if address_or_cluster is None:
            return (await self.cluster_info()).master_addresses()
        if ":" in address_or_cluster:
            return (address_or_cluster,)
        return await self._masters(address_or_cluster)


async def gather(calls: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """All results, in order, of calls that run at once; raises the first failure in order after all have ended."""
    pending = list(calls)
    results: dict[int, T] = {}
    failures: dict[int, HighwaterError] = {}

    async def run(index: int) -> None:
        try:
            results[index] = await pending[index]()
        except HighwaterError as error:
            failures[index] = error

    async with anyio.create_task_group() as tasks:
        for index in range(len(pending)):
            tasks.start_soon(run, index)
    if failures:
        raise failures[min(failures)]
    return [results[index] for index in range(len(pending))]
