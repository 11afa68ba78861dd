"""The broker's word to its name servers: registered with every one of them, again each period, and gone on stop.

Each name server has a task and a connection of its own, so that one that is slow or dead delays no other.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.services.remoting_client import RemotingClient, RequestFailed
from mqwire.bodies import RegisterBrokerBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_namesrv import (
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from mqwire.message import body_crc

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.5
_MAX_RETRY_S: Final = 10.0
_ROLE_LOOK_PERIOD_S: Final = 0.5
_LEADER_PORT_PATIENCE_S: Final = 1.0
_UNREGISTER_TIMEOUT_S: Final = 2.0


class _LeaderPort(Protocol):
    async def settled(self) -> None: ...


class _Broker(Protocol):
    """What the registration uses of the broker."""

    config: BrokerConfig
    replica: Replica
    topic_configs: TopicConfigManager
    advertised_address: str
    ha_address: str

    @property
    def advertised_id(self) -> int | None: ...

    @property
    def registered_address(self) -> str: ...

    @property
    def leader_port(self) -> _LeaderPort: ...

    def client_of(self, address: str) -> RemotingClient: ...

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None: ...


class RegistrationService:
    """Keeps one broker registered with all of its name servers."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._changed: dict[str, trio.Event] = {}
        self._clients: dict[str, RemotingClient] = {}
        self.registered: set[str] = set()
        # Under which brokerId and address each name server knows this broker: they change with the role.
        self._registered_as: dict[str, tuple[int, str]] = {}
        self._reregistered = trio.Event()

    def register_soon(self) -> None:
        """Notify all name servers of a change (a new topic) without waiting for the period."""
        for event in self._changed.values():
            event.set()

    def role_changed(self) -> None:
        """Another brokerId or epoch is to be registered, now."""
        self.register_soon()

    async def until_registered(self, timeout_s: float) -> bool:
        """Wait until every name server that was reachable knows the current role; False when that takes too long."""
        with trio.move_on_after(timeout_s):
            while any(self._registered_as.get(address) != self._present for address in self.registered):
                self._reregistered = trio.Event()
                await self._reregistered.wait()
            return True
        return False

    @property
    def _present(self) -> tuple[int | None, str]:
        return self._broker.advertised_id, self._broker.registered_address

    async def run(self) -> None:
        """Register until cancelled."""
        async with trio.open_nursery() as nursery:
            for address in self._broker.config.namesrv_addr:
                nursery.start_soon(self._keep_registered, address)

    async def _keep_registered(self, address: str) -> None:
        client = self._broker.client_of(address)
        self._clients[address] = client
        delay_s = _FIRST_RETRY_S
        while True:
            changed = self._changed[address] = trio.Event()
            # So that clients are not given an address that is another one in a moment.
            with trio.move_on_after(_LEADER_PORT_PATIENCE_S):
                await self._broker.leader_port.settled()
            broker_id = self._broker.advertised_id
            if broker_id is None:  # it learns its role from the other replicas
                with trio.move_on_after(_ROLE_LOOK_PERIOD_S):
                    await changed.wait()
                continue
            try:
                await self._register(client, broker_id)
            except RequestFailed as error:
                self.registered.discard(address)
                logger.warning("name server %s: %s; trying again in %.1f s", address, error, delay_s)
                with trio.move_on_after(delay_s):
                    await changed.wait()
                delay_s = min(delay_s * 2, _MAX_RETRY_S)
                continue
            delay_s = _FIRST_RETRY_S
            if address not in self.registered:
                self.registered.add(address)
                logger.info("registered with name server %s", address)
            with trio.move_on_after(self._broker.config.register_name_server_period_ms / 1000):
                # A lost connection is a lost registration: the name server drops the broker when it closes.
                await client.closed_or(changed)

    async def _register(self, client: RemotingClient, broker_id: int) -> None:
        broker = self._broker
        config = broker.config
        broker_addr = broker.registered_address
        before = self._registered_as.get(client.address)
        if before is not None and before[0] != broker_id:
            await self._take_out(client, *before)
        body = RegisterBrokerBody(topic_config_serialize_wrapper=broker.topic_configs.to_wrapper()).to_json()
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=broker_addr,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=broker.ha_address,
            broker_id=broker_id,
            compressed=False,
            body_crc32=body_crc(body),
            epoch=broker.replica.epoch,
        )
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body=body)
        reply = await client.request(request, timeout_s=config.register_broker_timeout_ms / 1000)
        if reply.code == ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH and header.epoch == broker.replica.epoch:
            # Another replica leads in a higher epoch, of which at least the next one is sure: acknowledge nothing more.
            named = reply.header(RegisterBrokerResponseHeader).epoch or 0
            broker.saw_epoch(max(named, broker.replica.epoch + 1), None)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestFailed(f"refused the registration with code {reply.code}: {reply.remark}")
        self._registered_as[client.address] = (broker_id, broker_addr)
        self._reregistered.set()

    async def unregister(self) -> None:
        """Take the broker out of every name server that answers in time."""
        async with trio.open_nursery() as nursery:
            for address in sorted(self.registered):
                nursery.start_soon(self._unregister, address)

    async def _take_out(self, client: RemotingClient, broker_id: int, broker_addr: str) -> None:
        broker = self._broker
        config = broker.config
        if broker_addr != broker.advertised_address and not broker.replica.leads:
            # The leader port is the next leader's, who may have registered it by now; until then clients shall wait there.
            self._registered_as.pop(client.address, None)
            return
        header = UnRegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=broker_addr,
            cluster_name=config.broker_cluster_name,
            broker_id=broker_id,
        )
        await client.request(
            RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header), timeout_s=_UNREGISTER_TIMEOUT_S
        )
        self._registered_as.pop(client.address, None)

    async def _unregister(self, address: str) -> None:
        before = self._registered_as.get(address)
        if before is None:
            return
        client = self._broker.client_of(address)
        try:
            await self._take_out(client, *before)
        except RequestFailed as error:
            logger.warning("name server %s: could not unregister: %s", address, error)
        finally:
            client.close()
