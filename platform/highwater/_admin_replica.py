"""Administration of replicated broker groups: who leads, who holds what, promotion and demotion, messages that were cut."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from highwater._admin_base import AdminBase, gather
from highwater._edge import read_body, read_header, read_records
from highwater._models import ReceivedMessage
from highwater._pull import received
from highwater.errors import ConfigurationError, HighwaterError, NoRouteError, ProtocolError
from highwater.promotion import (
    Ballot,
    Cleanness,
    FormerLeader,
    Group,
    Standing,
    ballot_drawn,
    cleanness_of,
    electors_in_doubt,
)
from highwater.sentences import say
from mqwire import replica_requests
from mqwire.bodies import DivergedFile, DivergedFileList, ReplicaStatus
from mqwire.codes import HighwaterRequestCode
from mqwire.headers_replica import (
    DivergedDeleteRequestHeader,
    DivergedReadRequestHeader,
    DivergedReadResponseHeader,
)
from mqwire.names import MASTER_ID
from mqwire.replica_requests import ReplicaRequest


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A replica of a broker group: what it reported of itself, or why there is no report.

    `broker_id` is what it is registered as, None when the name servers don't know it and another replica named it.
    """

    address: str
    broker_id: int | None
    status: ReplicaStatus | None
    error: str | None = None


# A broker looks through 4 MiB of a saved cut for each.
_DIVERGED_LOOKS = 16


@dataclass(frozen=True, slots=True)
class DivergedMessages:
    """Messages of one saved cut, and where in it each begins; `next_position` is where to read on, None at its end.

    With no messages and a `next_position` the broker has not looked through the file so far yet: ask again.
    """

    messages: tuple[ReceivedMessage, ...]
    positions: tuple[int, ...]
    next_position: int | None


class ReplicaAdmin(AdminBase):
    """Replicas. Everything here needs an admin account where access control is on."""

    async def replica_status(self, address: str) -> ReplicaStatus:
        """One replica's role, epoch and log, and its followers while it leads."""
        return await self._status(address, replica_requests.STATUS)

    async def _status(self, address: str, request: ReplicaRequest) -> ReplicaStatus:
        return read_body(await self._ask(address, request.code, request.header), ReplicaStatus)

    async def group_status(self, group: str, addresses: Sequence[str] = ()) -> tuple[GroupMember, ...]:
        """Every replica of a broker group that the name servers know or another replica names, by address, and those at
        `addresses`: one with brokerId 0 that knows no leader, or waits to lead again, is registered nowhere.

        One that does not answer is listed with the error. Raises NoRouteError for a group of which nothing is registered or named,
        ConfigurationError for an address of another group's.
        """
        data = (await self.cluster_info()).broker_addr_table.get(group)
        ids: dict[str, int | None] = dict.fromkeys(addresses)
        if data is not None:
            ids.update((address, broker_id) for broker_id, address in data.broker_addrs.items())
        if not ids:
            raise NoRouteError(say("no replica of broker group %(group)s is registered", group=group))
        members: dict[str, GroupMember] = {}
        asked: set[str] = set()
        while missing := [address for address in ids if address not in asked]:
            asked.update(missing)
            for member in await gather(partial(self._member, address, ids[address]) for address in missing):
                asked.add(member.address)
                if member.broker_id is not None or member.address not in members:
                    members[member.address] = member
                if member.status is not None:
                    if member.status.group != group and member.broker_id is None:
                        raise ConfigurationError(
                            f"the broker at {member.address} is of group {member.status.group}, not of {group}"
                        )
                    for address in _named_by(member.status):
                        ids.setdefault(address, None)
        return tuple(members[address] for address in sorted(members))

    async def _member(self, address: str, broker_id: int | None) -> GroupMember:
        try:
            status = await self.replica_status(address)
        except HighwaterError as error:
            return GroupMember(address, broker_id, None, str(error))
        # The leader may be registered with the group's leader port, but it is known by its own address; so is who was named.
        is_own = broker_id is not None and not (broker_id == MASTER_ID and status.role == "master")
        own = address if is_own else status.address
        return GroupMember(own or address, broker_id, status)

    async def promote(
        self,
        address: str,
        group: str,
        replica_id: int,
        *,
        expected_epoch: int,
        new_epoch: int,
        in_sync: Sequence[int] = (),
        with_incomplete_log: bool = False,
        lacks_an_epoch: bool = False,
        lost: Sequence[int] = (),
    ) -> ReplicaStatus:
        """Make the replica the group's master in `new_epoch`, if it is in `expected_epoch` now; safe to repeat.

        It does not look at the other replicas: fence the old master first. `in_sync` are those that follow in a moment: readers
        are shown nothing new before they do. `with_incomplete_log`: although its log may lack records at its end. `lacks_an_epoch`:
        someone may have led in one of which its log has nothing: see highwater/promotion.py. A group that elects its leader takes
        it only with `lost`, those of its voters that are gone for good, a majority: see judge_recovery() there. Raises
        BrokerError when it is refused.
        """
        request = replica_requests.promote(
            group,
            replica_id,
            expected_epoch=expected_epoch,
            new_epoch=new_epoch,
            in_sync=in_sync,
            with_incomplete_log=with_incomplete_log,
            lacks_an_epoch=lacks_an_epoch,
            lost=lost,
        )
        return await self._status(address, request)

    async def demote(
        self, address: str, group: str, *, epoch: int, leader_address: str | None = None, lost: Sequence[int] = ()
    ) -> ReplicaStatus:
        """Make the replica stop leading, because the group is, or is about to be, in `epoch`; safe to repeat.

        The answer says how far its log goes. `leader_address` is the replica to follow. With `lost`, of a group that elects, it
        promises that epoch to a recovery without these, by which the one at `leader_address`, or itself, is to lead.
        """
        request = replica_requests.demote(group, epoch=epoch, leader_address=leader_address, lost=lost)
        return await self._status(address, request)

    async def freeze_sends(self, address: str, group: str, *, epoch: int, for_ms: int) -> ReplicaStatus:
        """Have the master refuse sends for so long, so that a slave can catch up; 0 takes them again at once."""
        return await self._status(address, replica_requests.freeze_sends(group, epoch=epoch, for_ms=for_ms))

    async def transfer_leadership(self, address: str, group: str, target: int) -> ReplicaStatus:
        """Ask the leader of a quorum-led group to hand its role to `target` once it has caught up; begun when answered.

        It is done when the target leads in a higher epoch. Raises BrokerError when it is refused.
        """
        return await self._status(address, replica_requests.transfer(group, target))

    async def change_members(
        self, address: str, group: str, change: str, replica_id: int | None, *, replica_address: str | None = None
    ) -> ReplicaStatus:
        """Ask the leader of a quorum-led group for one change of who counts; in force at once, final when nothing is pending.

        `change` is addObserver (with `replica_address`), addVoter, removeVoter or prefer (None: no one in particular); forget,
        of a replica that is gone for good, is taken by each replica of any group.
        Raises BrokerError when it is refused: one change waits for the one before it.
        """
        request = replica_requests.change_members(group, change, replica_id, replica_address=replica_address)
        return await self._status(address, request)

    async def change_mode(
        self,
        address: str,
        group: str,
        mode: str,
        *,
        in_sync_replicas: int = 1,
        min_in_sync_replicas: int = 1,
        leader: ReplicaStatus | None = None,
    ) -> ReplicaStatus:
        """Ask a group's leader for another mode: single, async, sync or dledger, one step at a time; written when answered.

        It is in force when `replica_status` shows it, on each replica by itself. `leader` is what that said of the leader: a
        request that arrives when the group has been changed since is refused. Raises BrokerError when it is refused.
        """
        request = replica_requests.change_mode(
            group,
            mode,
            in_sync_replicas=in_sync_replicas,
            min_in_sync_replicas=min_in_sync_replicas,
            leader=leader,
        )
        return await self._status(address, request)

    async def diverged_list(self, address: str) -> tuple[DivergedFile, ...]:
        """What a replica cut from its log because its leader never had it, oldest first."""
        response = await self._ask(address, HighwaterRequestCode.DIVERGED_LIST)
        return tuple(read_body(response, DivergedFileList).files)

    async def diverged_read(
        self, address: str, name: str, *, position: int = 0, max_messages: int = 32
    ) -> DivergedMessages:
        """Messages of one saved cut; raises NotFoundError for a name that is not in diverged_list()."""
        header = DivergedReadRequestHeader(file_name=name, position=position, max_messages=max_messages)
        for _ in range(_DIVERGED_LOOKS):
            response = await self._ask(address, HighwaterRequestCode.DIVERGED_READ, header)
            answer = read_header(response, DivergedReadResponseHeader)
            records = read_records(response)
            if records or answer.next_position >= answer.size:
                break
        positions = tuple(int(one) for one in answer.positions.split(";") if one.isascii() and one.isdigit())
        if len(positions) != len(records):
            raise ProtocolError(f"{address} sent {len(positions)} positions of {len(records)} messages")
        return DivergedMessages(
            tuple(received(record) for record in records),
            positions,
            answer.next_position if answer.next_position < answer.size else None,
        )

    async def diverged_delete(self, address: str, name: str) -> None:
        """Remove one saved cut from a replica's disk for good; raises NotFoundError for a name that it does not have."""
        await self._ask(address, HighwaterRequestCode.DIVERGED_DELETE, DivergedDeleteRequestHeader(file_name=name))


def _named_by(status: ReplicaStatus) -> list[str]:
    addresses = [follower.address for follower in status.followers]
    return [address for address in (status.leader_address, *addresses) if address]


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """What a promotion would do, by what the replicas said a moment ago; highwater/promotion.py has the rule and the order.

    `cleanness` is a forecast: with a master that answers it is drained first, and the promises decide. `addresses` are of those
    that answer, by replica id.
    """

    candidate: ReplicaStatus
    master: ReplicaStatus | None
    group: Group
    ballot: Ballot
    cleanness: Cleanness
    addresses: Mapping[int, str]


def plan_promotion(
    members: tuple[GroupMember, ...], group: str, replica_id: int, random: Random | None = None
) -> PromotionPlan:
    """Pure but for `random`, which draws the epochs: whether promoting `replica_id` can lose what was acknowledged.

    Raises NoRouteError when it does not answer, ConfigurationError when no one may be promoted, whatever loss is agreed to:
    in a group that elects its leader, or of which so many may still elect that they could be a majority.
    """
    statuses = [member.status for member in members if member.status is not None]
    by_id = {status.replica_id: status for status in statuses}
    candidate = by_id.get(replica_id)
    if candidate is None:
        known = ", ".join(str(one) for one in sorted(by_id)) or "none"
        raise NoRouteError(f"replica {replica_id} of {group} does not answer (those that do: {known})")
    if candidate.quorum is not None:
        raise ConfigurationError(f"{group} elects its leader (mode dledger): use transferLeadership instead of promote")
    if doubtful := electors_in_doubt(statuses):
        raise ConfigurationError(
            f"replicas {', '.join(map(str, doubtful))} of {group} elected its leader once and may still do so: promoting one"
            " could make two leaders of one epoch. Bring them back, so that they say how they act; or promote in the console,"
            " which knows whether the change of the mode was completed"
        )
    leaders = [status for status in statuses if status.role == "master" and status.replica_id != replica_id]
    master = max(leaders, key=lambda status: status.epoch, default=None)
    rule = _group_of(statuses, master)
    answers = {key: Standing.of(status) for key, status in by_id.items()}
    if master is not None:  # it is drained first
        answers[replica_id] = replace(
            answers[replica_id],
            log_epoch=master.log_epoch,
            held_offset=master.held_offset,
            end_offset=master.end_offset,
        )
    cleanness = cleanness_of(rule, answers, replica_id, at_risk=_lacking(candidate, statuses))
    if not candidate.promotable:
        because = say(
            "%(name)s says that it must not lead: %(why)s.",
            name=say("replica %(ids)s", ids=replica_id),
            why=str(candidate.not_promotable_because),
        )
        cleanness = Cleanness(False, because)
    return PromotionPlan(
        candidate=candidate,
        master=master,
        group=rule,
        ballot=ballot_drawn((status.epoch for status in statuses), random or Random()),
        cleanness=cleanness,
        addresses={key: status.address for key, status in by_id.items()},
    )


def _group_of(statuses: Sequence[ReplicaStatus], master: ReplicaStatus | None) -> Group:
    """The group by the word of those that answer: the weakest of them says on how many replicas a record is."""
    ids = _replica_ids((), statuses)
    in_sync_replicas = _copies(statuses)
    former = None
    if master is not None:
        newest = all(status.epoch <= master.epoch for status in statuses)
        # With one copy a silent replica may lead by now, and acknowledge alone: without rows, only its answer rules that out.
        all_answer = in_sync_replicas > 1 or len(ids) == len(statuses)
        former = FormerLeader(replica_id=master.replica_id, epoch=master.epoch, no_one_since=newest and all_answer)
    # Who is silent, or has lost what it knew, may have led in any that another one has heard of.
    heard = max((status.epoch for status in statuses), default=0)
    may_have_led = {**dict.fromkeys(ids, heard), **_led_by_their_logs(statuses)}
    return Group(replica_ids=ids, in_sync_replicas=in_sync_replicas, former=former, may_have_led=may_have_led)


def group_by_promises(group: Group, statuses: Sequence[ReplicaStatus]) -> Group:
    """The plan's group by the word of those that have promised since: its mode and its replicas may have changed in between.

    A replica that is told late of a mode with one copy says so in its promise, and its plan counted on more.
    """
    ids = _replica_ids(group.replica_ids, statuses)
    in_sync_replicas = min(group.in_sync_replicas, _copies(statuses)) if statuses else group.in_sync_replicas
    former = group.former
    if former is not None and in_sync_replicas == 1 and group.in_sync_replicas > 1:
        former = replace(former, no_one_since=former.no_one_since and len(ids) == len(statuses))
    may_have_led = {**group.may_have_led, **_led_by_their_logs(statuses)}
    return replace(group, replica_ids=ids, in_sync_replicas=in_sync_replicas, former=former, may_have_led=may_have_led)


def _led_by_their_logs(statuses: Sequence[ReplicaStatus]) -> dict[int, int]:
    """The newest epoch that each of these can have led in, by its log, where that lacks nothing."""
    return {one.replica_id: one.log_epoch for one in statuses if one.has_caught_up and not one.log_may_be_incomplete}


def _replica_ids(known: Collection[int], statuses: Sequence[ReplicaStatus]) -> set[int]:
    """The replicas of a group; a negative id is of one of which no one knows the id."""
    ids = {one for one in known if one >= 0}
    ids.update(status.replica_id for status in statuses)
    ids.update(follower.replica_id for status in statuses for follower in status.followers)
    total = max(2, len(known), len(ids), *(status.total_replicas for status in statuses))
    ids.update(-missing for missing in range(1, total - len(ids) + 1))
    return ids


def _copies(statuses: Sequence[ReplicaStatus]) -> int:
    """On how many replicas an acknowledged record surely is, by the weakest of these."""
    settled = all(status.mode == "sync" and status.pending_mode is None for status in statuses)
    return min(status.in_sync_replicas for status in statuses) if settled else 1


def _lacking(candidate: ReplicaStatus, statuses: Sequence[ReplicaStatus]) -> tuple[int | None, int | None]:
    """What the candidate lacks of the longest log that is known, in bytes and, if a master says so, in messages."""
    ahead = [one for one in statuses if (one.log_epoch, one.end_offset) > (candidate.log_epoch, candidate.end_offset)]
    if not ahead:
        return None, None
    gaps = [
        follower.gap_messages
        for one in ahead
        for follower in one.followers
        if follower.replica_id == candidate.replica_id and one.role == "master"
    ]
    return max(0, max(one.end_offset for one in ahead) - candidate.end_offset), next(iter(gaps), None)
