"""Damaged records fetched from any replica of the group that has them whole, whether it leads or not.

It need not lead: that its records are this log's is proven by the one that follows them (store/log_repair.py). So a group with
damage in several logs puts each of them right, though none of its replicas may be fit to lead before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.services.remoting_client import RequestFailed
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_replica import ReplicaRecordsRequestHeader

if TYPE_CHECKING:
    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S: Final = 3.0


class _Broker(Protocol):
    """What a repair uses of the broker."""

    replica: Replica

    def client_of(self, address: str, *, takes_records: bool = False) -> RemotingClient: ...


async def repair_from_peers(broker: _Broker, offset: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
    """Ask one replica after the other for the records from `offset` on, until `write` takes some; False: none had them.

    `write` raises ValueError or OSError for those that it does not take.
    """
    replica = broker.replica
    own_id = replica.settings.replica_id
    peers = {**replica.settings.peers, **replica.known_replicas}
    for address in dict.fromkeys(peers[key] for key in sorted(peers) if key != own_id):
        try:
            await write(await _records_of(broker, address, offset))
        except (RequestFailed, RemoteProtocolError, ValueError, OSError) as error:
            logger.warning("the damage at %d is not put right by the replica at %s: %s", offset, address, error)
        else:
            logger.warning(
                "the log was damaged at %d: put right with the records of the replica at %s", offset, address
            )
            return True
    return False


async def _records_of(broker: _Broker, address: str, offset: int) -> bytes:
    client = broker.client_of(address, takes_records=True)
    header = ReplicaRecordsRequestHeader(group=broker.replica.settings.group, offset=offset)
    try:
        reply = await client.request(
            RemotingCommand.request(HighwaterRequestCode.REPLICA_RECORDS, header), timeout_s=_REQUEST_TIMEOUT_S
        )
    finally:
        client.close()
    if reply.code != ResponseCode.SUCCESS:
        raise RequestFailed(f"{address} answered with code {reply.code}: {reply.remark}")
    return bytes(reply.body)
