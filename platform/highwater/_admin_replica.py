"""Administration of replicated broker groups: who leads, who holds what, promotion and demotion, messages that were cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from highwater._admin_base import AdminBase, gather
from highwater._edge import read_body, read_header, read_records
from highwater._models import ReceivedMessage
from highwater._pull import received
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError
from mqwire.bodies import DivergedFile, DivergedFileList, ReplicaStatus
from mqwire.codes import HighwaterRequestCode
from mqwire.headers_replica import (
    DivergedReadRequestHeader,
    DivergedReadResponseHeader,
    ReplicaDemoteRequestHeader,
    ReplicaFreezeSendsRequestHeader,
    ReplicaMembersRequestHeader,
    ReplicaModeRequestHeader,
    ReplicaPromoteRequestHeader,
    ReplicaTransferRequestHeader,
)
from mqwire.names import MASTER_ID


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A replica of a broker group: what it told of itself, or why it told nothing.

    `broker_id` is what it is registered as, None when the name servers don't know it and another replica named it.
    """

    address: str
    broker_id: int | None
    status: ReplicaStatus | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class DivergedMessages:
    """Messages of one saved cut; `next_position` is where to read on, None at its end."""

    messages: tuple[ReceivedMessage, ...]
    next_position: int | None


class ReplicaAdmin(AdminBase):
    """Replicas. Everything here needs an admin account where access control is on."""

    async def replica_status(self, address: str) -> ReplicaStatus:
        """One replica's role, epoch and log, and its followers while it leads."""
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_STATUS), ReplicaStatus)

    async def group_status(self, group: str) -> tuple[GroupMember, ...]:
        """Every replica of a broker group that the name servers know or another replica names, by address.

        One that does not answer is listed with the error. Raises NoRouteError for a group of which nothing is registered.
        """
        data = (await self.cluster_info()).broker_addr_table.get(group)
        if data is None or not data.broker_addrs:
            raise NoRouteError(f"no replica of broker group {group!r} is registered")
        ids: dict[str, int | None] = {address: broker_id for broker_id, address in data.broker_addrs.items()}
        members: dict[str, GroupMember] = {}
        asked: set[str] = set()
        while missing := [address for address in ids if address not in asked]:
            asked.update(missing)
            for member in await gather(partial(self._member, address, ids[address]) for address in missing):
                asked.add(member.address)
                if member.broker_id is not None or member.address not in members:
                    members[member.address] = member
                if member.status is not None:
                    for address in _named_by(member.status):
                        ids.setdefault(address, None)
        return tuple(members[address] for address in sorted(members))

    async def _member(self, address: str, broker_id: int | None) -> GroupMember:
        try:
            status = await self.replica_status(address)
        except HighwaterError as error:
            return GroupMember(address, broker_id, None, str(error))
        # The leader may be registered with the group's leader port, but it is known by its own address.
        own = status.address if broker_id == MASTER_ID and status.role == "master" else address
        return GroupMember(own or address, broker_id, status)

    async def promote(
        self, address: str, group: str, replica_id: int, *, expected_epoch: int, new_epoch: int
    ) -> ReplicaStatus:
        """Make the replica the group's master in `new_epoch`, if it is in `expected_epoch` now; safe to repeat.

        It does not look at the other replicas: fence the old master first. Raises BrokerError when it is refused.
        """
        header = ReplicaPromoteRequestHeader(
            group=group, replica_id=replica_id, expected_epoch=expected_epoch, new_epoch=new_epoch
        )
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_PROMOTE, header), ReplicaStatus)

    async def demote(self, address: str, group: str, *, epoch: int, leader_address: str | None = None) -> ReplicaStatus:
        """Make the replica stop leading, because the group is, or is about to be, in `epoch`; safe to repeat.

        The answer says how far its log goes. `leader_address` tells it whom to follow.
        """
        header = ReplicaDemoteRequestHeader(group=group, epoch=epoch, leader_address=leader_address)
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_DEMOTE, header), ReplicaStatus)

    async def freeze_sends(self, address: str, group: str, *, epoch: int, for_ms: int) -> ReplicaStatus:
        """Have the master refuse sends for so long, so that a slave can draw level; 0 takes them again at once."""
        header = ReplicaFreezeSendsRequestHeader(group=group, epoch=epoch, for_millis=for_ms)
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_FREEZE_SENDS, header), ReplicaStatus)

    async def transfer_leadership(self, address: str, group: str, target: int) -> ReplicaStatus:
        """Ask the leader of a quorum-led group to hand its role to `target` once that one is level; begun when answered.

        It is done when the target leads in a higher epoch. Raises BrokerError when it is refused.
        """
        header = ReplicaTransferRequestHeader(group=group, target=target)
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_TRANSFER, header), ReplicaStatus)

    async def change_members(
        self, address: str, group: str, change: str, replica_id: int | None, *, replica_address: str | None = None
    ) -> ReplicaStatus:
        """Ask the leader of a quorum-led group for one change of who counts; in force at once, final when nothing is pending.

        `change` is addObserver (with `replica_address`), addVoter, removeVoter or prefer (None: nobody in particular); forget,
        of a replica that is gone for good, is taken by each replica of any group.
        Raises BrokerError when it is refused: one change waits for the one before it.
        """
        header = ReplicaMembersRequestHeader(group=group, change=change, replica_id=replica_id, address=replica_address)
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_MEMBERS, header), ReplicaStatus)

    async def change_mode(
        self, address: str, group: str, mode: str, *, in_sync_replicas: int = 1, min_in_sync_replicas: int = 1
    ) -> ReplicaStatus:
        """Ask a group's leader for another mode: single, async, sync or dledger, one step at a time; written when answered.

        It is in force when `replica_status` shows it, on each replica by itself. Raises BrokerError when it is refused.
        """
        header = ReplicaModeRequestHeader(
            group=group,
            mode=mode,
            in_sync_replicas=in_sync_replicas,
            min_in_sync_replicas=min_in_sync_replicas,
        )
        return read_body(await self._ask(address, HighwaterRequestCode.REPLICA_MODE, header), ReplicaStatus)

    async def diverged_list(self, address: str) -> tuple[DivergedFile, ...]:
        """What a replica cut from its log because its leader never had it, oldest first."""
        response = await self._ask(address, HighwaterRequestCode.DIVERGED_LIST)
        return tuple(read_body(response, DivergedFileList).files)

    async def diverged_read(
        self, address: str, name: str, *, position: int = 0, max_messages: int = 32
    ) -> DivergedMessages:
        """Messages of one saved cut; raises NotFoundError for a name that is not in diverged_list()."""
        header = DivergedReadRequestHeader(file_name=name, position=position, max_messages=max_messages)
        response = await self._ask(address, HighwaterRequestCode.DIVERGED_READ, header)
        answer = read_header(response, DivergedReadResponseHeader)
        return DivergedMessages(
            tuple(received(record) for record in read_records(response)),
            answer.next_position if answer.next_position < answer.size else None,
        )


def _named_by(status: ReplicaStatus) -> list[str]:
    addresses = [follower.address for follower in status.followers]
    return [address for address in (status.leader_address, *addresses) if address]


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """What a promotion would do, by what the replicas said a moment ago.

    `lost_bytes` is what the candidate lacks of the longest log that is known: what an unclean promotion loses.
    `clean_because` or `unclean_because` tells which it is.
    """

    candidate: ReplicaStatus
    master: ReplicaStatus | None
    expected_epoch: int
    new_epoch: int
    lost_bytes: int
    lost_messages: int | None
    unclean_because: str | None


def plan_promotion(members: tuple[GroupMember, ...], group: str, replica_id: int) -> PromotionPlan:
    """Pure: whether promoting `replica_id` can lose a message that was acknowledged (replication.md: clean)."""
    statuses = [member.status for member in members if member.status is not None]
    by_id: Mapping[int, ReplicaStatus] = {status.replica_id: status for status in statuses}
    candidate = by_id.get(replica_id)
    if candidate is None:
        known = ", ".join(str(one) for one in sorted(by_id)) or "none"
        raise NoRouteError(f"replica {replica_id} of {group} does not answer (those that do: {known})")
    if any(status.quorum is not None for status in statuses):
        raise ConfigurationError(f"{group} elects its leader (mode dledger): use transferLeadership instead of promote")
    leaders = [status for status in statuses if status.role == "master" and status.replica_id != replica_id]
    master = max(leaders, key=lambda status: status.epoch, default=None)
    ahead = [
        status
        for status in statuses
        if (status.log_epoch, status.end_offset) > (candidate.log_epoch, candidate.end_offset)
    ]
    longest = max((status.end_offset for status in ahead), default=candidate.end_offset)
    lost_bytes = max(0, longest - candidate.end_offset)
    lost_messages = 0 if not ahead else None
    if master is not None:
        for follower in master.followers:
            if follower.replica_id == replica_id and ahead:
                lost_messages = follower.gap_messages
    unclean = None
    if not candidate.promotable:
        unclean = f"the candidate says that it must not lead: {candidate.not_promotable_because}"
    elif master is None:
        # With a master that answers the plan is to drain it first: then nothing is lost.
        total = max(len(members) + (0 if any(member.status is None for member in members) else 1), 2)
        needed = total - candidate.in_sync_replicas + 1
        if ahead:
            unclean = f"replica {ahead[0].replica_id} has a longer log: promote that one, or lose what only it has"
        elif candidate.mode != "sync" or len(statuses) < needed:
            unclean = "the master does not answer: what only it has is lost"
    return PromotionPlan(
        candidate=candidate,
        master=master,
        expected_epoch=candidate.epoch,
        new_epoch=max(status.epoch for status in statuses) + 1,
        lost_bytes=lost_bytes,
        lost_messages=lost_messages,
        unclean_because=unclean,
    )
