"""Roles and what replicas hold: status, promote, demote, reclaim, freeze, and the messages that were truncated.

All of them need an admin account (acl_needs.py). Source: replication.md, "Assigned leadership".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from brokerd.processors.context import Handler, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.processors.replica_status import StatusSource, replica_status
from brokerd.replica.replica import RoleRefused
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from mqwire.bodies import DivergedFileList
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import (
    DivergedDeleteRequestHeader,
    DivergedReadRequestHeader,
    DivergedReadResponseHeader,
    NetworkCutRequestHeader,
    ReplicaDemoteRequestHeader,
    ReplicaFreezeSendsRequestHeader,
    ReplicaPromoteRequestHeader,
    ReplicaReclaimRequestHeader,
    ReplicaReclaimResponseHeader,
    ReplicaRecordsRequestHeader,
)

if TYPE_CHECKING:
    from brokerd.processors.context import Elector, MetadataLog

_ASSIGNED = "this group's leader is assigned, not elected: promote a replica, without naming any that are lost"
_FREEZE_MAX_MS = 30_000
_CUT_MAX_MS = 60_000
_READ_MAX_MESSAGES = 256
_RECORDS_BYTES = 256 * 1024


class _Broker(StatusSource, Protocol):
    """What these processors use of the broker."""

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def quorum(self) -> Elector: ...

    def role_changed(self) -> None: ...

    def leader_changed(self) -> None: ...

    def log_grew(self) -> None: ...

    def finish_promotion(self, peer: Peer, request: RemotingCommand) -> None: ...

    def cut_network(self, for_s: float) -> bool: ...


def status(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_STATUS."""
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def promote(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_PROMOTE: answered when the epoch record is held and the name servers know."""
    header = request.header(ReplicaPromoteRequestHeader)
    _check_target(broker, header.group, header.replica_id)
    led = broker.replica.leads
    epoch = broker.replica.epoch
    now = (broker.clock.monotonic(), broker.clock.time_ms())
    lost, elections = _ids_in(header.lost), broker.replica.elections
    try:
        if lost and elections is not None:
            broker.quorum.take(elections.recover(lost, header.expected_epoch, header.new_epoch, *now))
        elif lost:
            raise RoleRefused(_ASSIGNED)
        else:
            epochs, in_sync = (header.expected_epoch, header.new_epoch), _ids_in(header.in_sync)
            lossy = {"with_incomplete_log": header.with_incomplete_log, "lacks_an_epoch": header.lacks_an_epoch}
            broker.replica.promote(*epochs, *now, in_sync, **lossy)
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    if lost:
        broker.log_grew()
    elif not led or broker.replica.epoch != epoch:
        broker.role_changed()
    broker.finish_promotion(peer, request)
    return None


@answers_refusals
def demote(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_DEMOTE: the answer says how far this replica's log goes, now that it takes no more."""
    header = request.header(ReplicaDemoteRequestHeader)
    _check_target(broker, header.group, broker.replica.settings.replica_id)
    led = broker.replica.leads
    lost, elections = _ids_in(header.lost), broker.replica.elections
    try:
        if lost and elections is not None:
            now_s = broker.clock.monotonic()
            broker.quorum.take(elections.promise_recovery(lost, header.epoch, header.leader_address, now_s))
            return request.reply(body=replica_status(broker).to_json())
        if lost:
            raise RoleRefused(_ASSIGNED)
        broker.replica.step_down(header.epoch, header.leader_address)
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    if led:
        broker.role_changed()
    else:
        broker.leader_changed()
    return request.reply(body=replica_status(broker).to_json())


def reclaim(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_RECLAIM: a restarted leader asks to lead again."""
    header = request.header(ReplicaReclaimRequestHeader)
    replica = broker.replica
    granted, reason = True, ""
    before = (replica.leads, replica.must_reclaim)
    if header.group != replica.settings.group:
        granted, reason = False, f"this replica belongs to group {replica.settings.group}"
    else:
        try:
            replica.grant_reclaim(
                replica_id=header.replica_id,
                epoch=header.epoch,
                last_epoch=header.last_epoch,
                end_offset=header.end_offset,
                address=header.address,
            )
        except RoleRefused as refused:
            granted, reason = False, str(refused)
    if granted or (replica.leads, replica.must_reclaim) != before:  # it may reclaim leadership in the other's place now
        broker.role_changed()
    lacks = replica.lacks_of_leader(header.last_epoch)
    answer = ReplicaReclaimResponseHeader(
        granted=granted,
        lacks_shown=lacks.shown,
        lacks_an_epoch=lacks.an_epoch,
        reason=reason,
        epoch=replica.epoch,
        last_epoch=replica.epochs.last_epoch,
        end_offset=broker.store.end_offset,
    )
    return request.reply(header=answer)


@answers_refusals
def freeze_sends(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_FREEZE_SENDS: a planned switchover drains; without a sequel sends thaw by themselves."""
    header = request.header(ReplicaFreezeSendsRequestHeader)
    _check_target(broker, header.group, broker.replica.settings.replica_id)
    if not 0 <= header.for_millis <= _FREEZE_MAX_MS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"forMillis is {header.for_millis}: allowed is 0 to {_FREEZE_MAX_MS}"
        )
    broker.metadata_log.write_last_offsets()
    try:
        broker.replica.freeze_sends(header.epoch, broker.clock.monotonic() + header.for_millis / 1000)
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def network_cut(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """NETWORK_CUT: be cut off from everyone, from the answer on and for so long: a drill. It ends by itself, or with the broker."""
    header = request.header(NetworkCutRequestHeader)
    _check_target(broker, header.group, header.replica_id)
    if not 1 <= header.for_millis <= _CUT_MAX_MS:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER, f"forMillis is {header.for_millis}: allowed is 1 to {_CUT_MAX_MS}"
        )
    if not broker.cut_network(header.for_millis / 1000):
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, "this replica is cut off already, or stopping")
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def records(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_RECORDS: what this log has there, whoever leads; the caller sees to it that it is what its own log had."""
    header = request.header(ReplicaRecordsRequestHeader)
    store = broker.store
    _check_group(broker, header.group)
    if not store.min_physical_offset <= header.offset < store.end_offset:
        raise Refusal(
            ResponseCode.QUERY_NOT_FOUND,
            f"this log has {store.min_physical_offset} to {store.end_offset}, not {header.offset}",
        )
    try:
        return request.reply(body=store.records_and_next(header.offset, _RECORDS_BYTES))
    except (StoreError, OSError) as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"reading failed: {error}") from error


def diverged_list(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """DIVERGED_LIST: the cuts that were kept."""
    return request.reply(body=DivergedFileList(files=broker.diverged.files()).to_json())


@answers_refusals
def diverged_read(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """DIVERGED_READ: records of one cut, as a pull's body has them."""
    header = request.header(DivergedReadRequestHeader)
    try:
        found = broker.diverged.read(
            header.file_name, max(0, header.position), max(1, min(header.max_messages, _READ_MAX_MESSAGES))
        )
    except FileNotFoundError as error:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
    return request.reply(
        header=DivergedReadResponseHeader(
            next_position=found.next_position, size=found.size, positions=";".join(map(str, found.positions))
        ),
        body=found.data,
    )


@answers_refusals
def diverged_delete(broker: _Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """DIVERGED_DELETE: one cut goes for good."""
    header = request.header(DivergedDeleteRequestHeader)
    try:
        broker.diverged.delete(header.file_name)
    except FileNotFoundError as error:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
    return request.reply()


def _ids_in(text: str) -> set[int]:
    return {int(part) for part in text.split(";") if part.isascii() and part.isdigit()}


def _check_group(broker: _Broker, group: str) -> None:
    own = broker.replica.settings.group
    if group != own:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"this is a replica of group {own}, not of {group[:80]!a}")


def _check_target(broker: _Broker, group: str, replica_id: int) -> None:
    settings = broker.replica.settings
    if (group, replica_id) != (settings.group, settings.replica_id):
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"this is replica {settings.replica_id} of group {settings.group}, not {replica_id} of {group[:80]!a}",
        )


HANDLERS: dict[int, Handler] = {
    HighwaterRequestCode.REPLICA_STATUS: status,
    HighwaterRequestCode.REPLICA_PROMOTE: promote,
    HighwaterRequestCode.REPLICA_DEMOTE: demote,
    HighwaterRequestCode.REPLICA_RECLAIM: reclaim,
    HighwaterRequestCode.REPLICA_FREEZE_SENDS: freeze_sends,
    HighwaterRequestCode.NETWORK_CUT: network_cut,
    HighwaterRequestCode.REPLICA_RECORDS: records,
    HighwaterRequestCode.DIVERGED_LIST: diverged_list,
    HighwaterRequestCode.DIVERGED_READ: diverged_read,
    HighwaterRequestCode.DIVERGED_DELETE: diverged_delete,
}
