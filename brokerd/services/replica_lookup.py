"""The members of this broker's group: what the name servers list, and what a replica reports of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from brokerd.services.remoting_client import RequestFailed
from mqwire.bodies import ClusterInfo, ReplicaStatus
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient

_REQUEST_TIMEOUT_S: Final = 3.0


class _Broker(Protocol):
    """What a look-up of replicas uses of the broker."""

    config: BrokerConfig
    replica: Replica
    advertised_address: str

    def client_of(self, address: str) -> RemotingClient: ...


async def registered_members(broker: _Broker) -> list[dict[int, str]]:
    """brokerId -> address of this group, as each name server that answers has it."""
    found: list[dict[int, str]] = []
    for namesrv in broker.config.namesrv_addr:
        client = broker.client_of(namesrv)
        try:
            reply = await client.request(
                RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO), timeout_s=_REQUEST_TIMEOUT_S
            )
            group = ClusterInfo.from_json(reply.body).broker_addr_table.get(broker.replica.settings.group)
        except (RequestFailed, RemoteProtocolError):
            continue
        finally:
            client.close()
        if group is not None:
            found.append(group.broker_addrs)
    return found


async def own_address_at(broker: _Broker, address: str) -> str | None:
    """The own address of the replica that is registered at `address`, which may be the group's leader port.

    None when none of the group answers there.
    """
    if address in (broker.advertised_address, *broker.replica.known_replicas.values()):
        return address
    try:
        return (await replica_status_of(broker, address)).address
    except (RequestFailed, ValueError):  # ValueError: what is listed is no address
        return None


async def replica_status_of(broker: _Broker, address: str) -> ReplicaStatus:
    """What the replica at `address` reports of itself; raises RequestFailed when none of this group answers there."""
    client = broker.client_of(address)
    try:
        reply = await client.request(
            RemotingCommand.request(HighwaterRequestCode.REPLICA_STATUS), timeout_s=_REQUEST_TIMEOUT_S
        )
    finally:
        client.close()
    if reply.code != ResponseCode.SUCCESS:
        raise RequestFailed(f"{address} answered with code {reply.code}: {reply.remark}")
    try:
        status = ReplicaStatus.from_json(reply.body)
    except RemoteProtocolError as error:
        raise RequestFailed(f"{address} does not say what it is: {error}") from error
    if status.group != broker.replica.settings.group:
        raise RequestFailed(f"{address} belongs to group {status.group}")
    return status
