"""A restarted leader reclaims leadership: it looks for a leader, finds every replica, then asks each of them to agree.

It looks before it asks, like the pre-vote of the Raft thesis (section 9.6): a reclaim that cannot succeed, because a replica
is away or another one leads, raises no one's epoch and disturbs no leader. What an answer means, and which replica may lead, is
decided in brokerd/replica/replica.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.replica.epoch_record import LACKS_NOTHING, Lacks
from brokerd.replica.replica import RoleRefused
from brokerd.services.remoting_client import RequestFailed
from brokerd.services.replica_lookup import registered_members, replica_status_of
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaReclaimRequestHeader, ReplicaReclaimResponseHeader

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.services.replica_metadata import MetadataFollower
    from brokerd.store import MessageStore
    from mqwire.bodies import ReplicaStatus

logger = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S: Final = 3.0
_FIRST_FENCE: Final = 4  # of the first promotion: they are numbered by four (highwater/promotion.py)


class _Broker(Protocol):
    """What a reclaim uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    replica: Replica
    store: MessageStore
    advertised_address: str

    def client_of(self, address: str) -> RemotingClient: ...

    def leader_changed(self) -> None: ...

    def replicated(self, *, has_data: bool) -> None: ...

    def role_changed(self) -> None: ...

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None: ...


class LeaderReclaim:
    """One attempt at a time, by the follower's loop, while the replica `must_reclaim`."""

    def __init__(self, broker: _Broker, metadata: MetadataFollower) -> None:
        self._broker = broker
        self._metadata = metadata

    async def attempt(self) -> None:
        """Lead again, or follow the one that leads.

        Raises RequestFailed when a replica does not answer, RoleRefused when one refuses, StoreError when the own log
        cannot be written.
        """
        broker = self._broker
        replica = broker.replica
        if broker.store.refusal is not None:
            raise broker.store.refusal
        others = await self._find_all()
        if not replica.must_reclaim:
            return  # a promotion or another's reclaim came meanwhile
        if self._follow_leader_among(others):
            return
        if replica.modes.pending is not None:
            electing = {key: status.incarnation for key, (status, _) in others.items() if status.quorum is not None}
            replica.modes.heard_electors(electing)
            broker.replicated(has_data=False)  # where a majority elects by now, this one is of it
            if not replica.must_reclaim:
                return
        self._check_complete(others)
        # Before anyone agrees: failing later would leave the agreement behind.
        committed = [await self._metadata.offsets_at(address) for _, address in others.values()]
        epoch = replica.begin_reclaim(max((status.epoch for status, _ in others.values()), default=0))
        try:
            # The longest log first: if it refuses, it reclaims in this one's place, and no other was asked.
            answers = [
                await self._ask(replica_id, others[replica_id][1], epoch)
                for replica_id in sorted(others, key=lambda key: _log_of(others[key][0]), reverse=True)
            ]
        finally:
            replica.end_reclaim()
        lacks = LACKS_NOTHING
        if not self._is_founding(others):
            # One of those may have led since, and shown what it has lost; or this one, before its disk was replaced.
            all_lacks = [replica.lacks_of_leader(replica.epochs.last_epoch), *answers]
            lacks = Lacks(shown=any(one.shown for one in all_lacks), an_epoch=any(one.an_epoch for one in all_lacks))
        replica.reclaimed(epoch, broker.clock.monotonic(), broker.clock.time_ms(), lacks=lacks)
        if replica.saved.lacks_shown_from is None:  # else what they committed may be of messages that are lost
            for offsets in committed:
                self._metadata.merge(offsets)
        broker.role_changed()

    def _is_founding(self, others: dict[int, tuple[ReplicaStatus, str]]) -> bool:
        """No disk has anything, and no one has been promoted: new disks are no replacements of others."""
        statuses = [status for status, _ in others.values()]
        highest = max([self._broker.replica.epoch, *(status.epoch for status in statuses)])
        return highest < _FIRST_FENCE and not any(
            [self._broker.store.end_offset, *(status.end_offset for status in statuses)]
        )

    async def _find_all(self) -> dict[int, tuple[ReplicaStatus, str]]:
        """What each other replica reports, and where; those that moved or were never seen are looked up."""
        broker = self._broker
        replica = broker.replica
        found: dict[int, tuple[ReplicaStatus, str]] = {}
        await self._ask_who(replica.known_replicas.values(), found)
        if replica.unknown_replicas or replica.known_replicas.keys() - found.keys():
            listed = {address for members in await registered_members(broker) for address in members.values()}
            tried = {replica.settings.address, *replica.known_replicas.values()}
            more = sorted(listed - tried)
            await self._ask_who(more, found)
            # One of them may be the group's leader port: a replica is known by its own address.
            found.update({key: (status, status.address) for key, (status, address) in found.items() if address in more})
            if broker.config.ha_master_address and broker.config.ha_master_address not in tried:
                await self._ask_who([broker.config.ha_master_address], found)
        for replica_id, (_, address) in found.items():
            replica.add_known_replica(replica_id, address)
        return found

    async def _ask_who(self, addresses: Iterable[str], found: dict[int, tuple[ReplicaStatus, str]]) -> None:
        async with trio.open_nursery() as nursery:
            for address in dict.fromkeys(addresses):
                nursery.start_soon(self._ask_who_one, address, found)

    async def _ask_who_one(self, address: str, found: dict[int, tuple[ReplicaStatus, str]]) -> None:
        try:
            status = await replica_status_of(self._broker, address)
        except (RequestFailed, ValueError) as error:  # ValueError: what is listed is no address
            logger.debug("nothing of the group at %s: %s", address, error)
            return
        if status.replica_id != self._broker.replica.settings.replica_id:
            found[status.replica_id] = (status, address)

    def _follow_leader_among(self, others: dict[int, tuple[ReplicaStatus, str]]) -> bool:
        """Follow a replica that leads in an epoch not below this one's: it was promoted meanwhile. Returns whether there is one."""
        broker = self._broker
        leaders = [
            (status.epoch, address)
            for status, address in others.values()
            if status.role == "master" and status.epoch >= broker.replica.epoch
        ]
        if not leaders:
            return False
        epoch, address = max(leaders)
        broker.replica.step_down(epoch, address)
        logger.info("group %s: %s leads in epoch %d", broker.replica.settings.group, address, epoch)
        broker.leader_changed()
        return True

    def _check_complete(self, others: dict[int, tuple[ReplicaStatus, str]]) -> None:
        replica = self._broker.replica
        silent = {key: address for key, address in replica.known_replicas.items() if key not in others}
        if silent:
            who = ", ".join(f"{replica_id} at {address}" for replica_id, address in sorted(silent.items()))
            raise RequestFailed(
                f"this replica led before, and does not lead again without every other one's agreement: no answer from {who};"
                " start it, or promote one"
            )
        if replica.unknown_replicas:
            raise RequestFailed(
                f"{replica.unknown_replicas} of the group's replicas (totalReplicas) were never seen and are not registered:"
                " this one does not lead without their agreement; start them, or promote one"
            )

    async def _ask(self, replica_id: int, address: str, epoch: int) -> Lacks:
        """Returns what this one's log may lack of what the one that agrees has held."""
        broker = self._broker
        replica = broker.replica
        header = ReplicaReclaimRequestHeader(
            group=replica.settings.group,
            replica_id=replica.settings.replica_id,
            epoch=epoch,
            last_epoch=replica.epochs.last_epoch,
            end_offset=broker.store.end_offset,
            address=replica.settings.address,
        )
        client = broker.client_of(address)
        try:
            reply = await client.request(
                RemotingCommand.request(HighwaterRequestCode.REPLICA_RECLAIM, header), timeout_s=_REQUEST_TIMEOUT_S
            )
        finally:
            client.close()
        if reply.code != ResponseCode.SUCCESS:
            raise RequestFailed(f"replica {replica_id} answered the reclaim with code {reply.code}: {reply.remark}")
        answer = reply.header(ReplicaReclaimResponseHeader)
        if not answer.granted:
            replica.end_reclaim()
            broker.saw_epoch(answer.epoch, None)
            raise RoleRefused(f"replica {replica_id} does not agree that this one leads again: {answer.reason}")
        return Lacks(shown=answer.lacks_shown, an_epoch=answer.lacks_an_epoch)


def _log_of(status: ReplicaStatus) -> tuple[int, int]:
    return status.log_epoch, status.end_offset
