"""A quorum-led group's elections, and what an operator may ask its leader for. All of it needs an admin account."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.processors.replica_status import StatusSource, replica_status
from brokerd.quorum_commands import message_in, reply_to
from brokerd.replica.elections import Elections
from brokerd.replica.epoch_record import Policy
from brokerd.replica.errors import RoleRefused
from brokerd.replica.mode_change import LeaderSeen
from brokerd.replica.quorum_messages import BeginEpoch, Noted
from brokerd.replies import Refusal, Reply
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaMembersRequestHeader, ReplicaModeRequestHeader, ReplicaTransferRequestHeader
from mqwire.mode import Mode

if TYPE_CHECKING:
    from brokerd.processors.context import Elector

_CHANGES = "addObserver, addVoter, removeVoter, forget or prefer"


class _Broker(StatusSource, Protocol):
    """What these processors use of the broker."""

    @property
    def quorum(self) -> Elector: ...

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None: ...

    def log_grew(self) -> None: ...

    def forget_replica(self, replica_id: int) -> None: ...


@answers_refusals
def election(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_VOTE, REPLICA_BEGIN_EPOCH, REPLICA_END_EPOCH, REPLICA_CAMPAIGN."""
    message = message_in(request)
    if broker.replica.elections is None and isinstance(message, BeginEpoch) and message.group == _group(broker):
        # The group elected before this replica knew, or after it knew better: the epoch counts all the same.
        broker.saw_epoch(message.epoch, message.address)
        return reply_to(request, Noted(replica=broker.replica.settings.replica_id, epoch=broker.replica.epoch))
    elections = _elections(broker, _group(broker))
    answer = broker.quorum.answer(message)
    if answer is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, elections.why_not_electable() or "this replica promises nothing")
    return reply_to(request, answer)


@answers_refusals
def change_mode(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_MODE: answered when the change is written; it is in force when haStatus shows the mode."""
    header = request.header(ReplicaModeRequestHeader)
    _check_group(broker, header.group)
    policy = Policy(
        mode=_mode_named(header.mode),
        in_sync_replicas=header.in_sync_replicas,
        min_in_sync_replicas=header.min_in_sync_replicas,
    )
    seen = None
    if header.epoch is not None and header.end_offset is not None:
        seen = LeaderSeen(header.epoch, header.end_offset)
    try:
        broker.replica.modes.request(policy, broker.clock.monotonic(), broker.clock.time_ms(), seen)
    except RoleRefused as refused:
        code = ResponseCode.INVALID_PARAMETER if refused.for_good else ResponseCode.ILLEGAL_OPERATION
        raise Refusal(code, str(refused)) from refused
    broker.log_grew()
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def transfer(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_TRANSFER: answered when it is begun; it is done when the target leads in a higher epoch."""
    header = request.header(ReplicaTransferRequestHeader)
    elections = _elections(broker, header.group)
    try:
        elections.transfer(header.target, broker.clock.monotonic())
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def members(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_MEMBERS: in force when answered, and final when haStatus says that no change is pending."""
    header = request.header(ReplicaMembersRequestHeader)
    _check_group(broker, header.group)
    now = (broker.clock.monotonic(), broker.clock.time_ms())
    replica_id = header.replica_id
    if header.change == "forget" and replica_id is not None:  # of a group whose leader is assigned, too
        return _forgotten(broker, request, replica_id)
    elections = _elections(broker, header.group)
    try:
        if header.change == "prefer":
            elections.prefer(replica_id, *now)
        elif replica_id is None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"{header.change[:40]!a} needs a replicaId")
        elif header.change == "addObserver":
            _add_observer(broker, replica_id, header.address)
        elif header.change == "addVoter":
            elections.add_voter(replica_id, *now)
        elif header.change == "removeVoter":
            elections.remove_voter(replica_id, *now)
        else:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"change is {header.change[:40]!a}; it must be {_CHANGES}")
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    broker.log_grew()
    return request.reply(body=replica_status(broker).to_json())


def _add_observer(broker: _Broker, replica_id: int, address: str | None) -> None:
    """From now on it follows without a vote: it pulls, serves reads, and counts for nothing."""
    if address is None or not _is_address(address):  # all replicas remember it, and the one that leads asks there
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, "addObserver needs the address where the replica serves, as host:port"
        )
    replica = broker.replica
    if not replica.leads:
        raise RoleRefused(f"this replica does not lead; the leader is {replica.leader_address or 'not known here'}")
    if replica_id == replica.settings.replica_id or replica_id in replica.members.voters:
        raise RoleRefused(f"replica {replica_id} is a voter of the group already")
    replica.add_known_replica(replica_id, address)


def _is_address(text: str) -> bool:
    """Whether it can be asked, and stand in the list of replicas that a pull is answered with."""
    matched = re.fullmatch(r"[^\s;=]+:([0-9]{1,5})", text)
    return matched is not None and 0 < int(matched[1]) < 65536


def _mode_named(name: str) -> Mode:
    try:
        return Mode(name)
    except ValueError:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"{name[:32]!a} is no mode: name one of {', '.join(Mode)}"
        ) from None


def _group(broker: _Broker) -> str:
    return broker.replica.settings.group


def _check_group(broker: _Broker, group: str) -> None:
    settings = broker.replica.settings
    if group != settings.group:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"this is replica {settings.replica_id} of group {settings.group}, not of {group[:80]!a}",
        )


def _forgotten(broker: _Broker, request: RemotingCommand, replica_id: int) -> Reply:
    """A replica that does not count is gone for good. Asked of each replica, the leader first: the others follow its list."""
    replica = broker.replica
    if replica_id == replica.settings.replica_id:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"this is replica {replica_id} itself")
    if replica.elections is not None and replica_id in replica.members.voters:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"replica {replica_id} counts in the group: take its vote first")
    broker.forget_replica(replica_id)
    return request.reply(body=replica_status(broker).to_json())


def _elections(broker: _Broker, group: str) -> Elections:
    settings = broker.replica.settings
    _check_group(broker, group)
    if broker.replica.elections is None:
        raise Refusal(
            ResponseCode.ILLEGAL_OPERATION,
            f"group {group} does not elect its leader (mode {settings.mode}): promote a replica instead",
        )
    return broker.replica.elections


HANDLERS: dict[int, Handler] = {
    HighwaterRequestCode.REPLICA_VOTE: election,
    HighwaterRequestCode.REPLICA_BEGIN_EPOCH: election,
    HighwaterRequestCode.REPLICA_END_EPOCH: election,
    HighwaterRequestCode.REPLICA_CAMPAIGN: election,
    HighwaterRequestCode.REPLICA_TRANSFER: transfer,
    HighwaterRequestCode.REPLICA_MEMBERS: members,
    HighwaterRequestCode.REPLICA_MODE: change_mode,
}
