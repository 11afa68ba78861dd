"""Roles and what replicas hold: status, promote, demote, claim, freeze, and the messages that were cut.

All of them need an admin account (acl_needs.py). Source: replication.md, "Assigned leadership".
"""

from __future__ import annotations

from brokerd.dispatch_types import Handler, Reply
from brokerd.processors.context import Broker, Peer
from brokerd.processors.handler import answers_refusals
from brokerd.processors.refusal import Refusal
from brokerd.replica.replica import RoleRefused
from mqwire.bodies import DivergedFileList, FollowerStatus, QuorumStatus, ReplicaStatus
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import (
    DivergedReadRequestHeader,
    DivergedReadResponseHeader,
    ReplicaClaimRequestHeader,
    ReplicaClaimResponseHeader,
    ReplicaDemoteRequestHeader,
    ReplicaFreezeSendsRequestHeader,
    ReplicaPromoteRequestHeader,
)

_FREEZE_MAX_MS = 30_000
_READ_MAX_MESSAGES = 256


def replica_status(broker: Broker) -> ReplicaStatus:
    """What this replica is and holds."""
    replica = broker.replica
    store = broker.store
    settings = replica.settings
    now_s = broker.clock.monotonic()
    in_sync = replica.in_sync
    refusal = broker.refuses_sends()
    not_promotable = None if store.refusal is None else str(store.refusal)
    if not_promotable is None and not replica.leads:
        not_promotable = broker.follower.halted
    advertised = broker.advertised_id
    return ReplicaStatus(
        cluster=broker.config.broker_cluster_name,
        group=settings.group,
        replica_id=settings.replica_id,
        advertised_broker_id=-1 if advertised is None else advertised,
        address=settings.address,
        role="master" if replica.leads else "slave",
        mode=settings.mode_name,
        epoch=replica.epoch,
        log_epoch=replica.epochs.last_epoch,
        epoch_map=[(entry.epoch, entry.start_offset) for entry in replica.epochs.entries],
        min_offset=store.min_physical_offset,
        end_offset=store.end_offset,
        durable_offset=store.durable_offset,
        held_offset=replica.held_offset,
        confirm_offset=replica.confirm_offset,
        flush_disk_type=broker.config.flush_disk_type.value,
        in_sync_replicas=settings.surely_held_by,
        min_in_sync_replicas=settings.min_in_sync_replicas,
        in_sync=[]
        if in_sync is None
        else [settings.replica_id, *(key for key, follower in in_sync.followers.items() if follower.in_sync)],
        leader_address=replica.leader_address,
        accepts_sends=refusal is None,
        refusal=refusal,
        claims=replica.must_claim,
        promotable=not_promotable is None,
        not_promotable_because=not_promotable,
        log_may_be_incomplete=replica.saved.log_may_be_incomplete or store.damaged_from is not None,
        followers=[]
        if in_sync is None
        else [
            FollowerStatus(
                replica_id=follower.replica_id,
                address=replica.known_replicas.get(follower.replica_id, ""),
                end_offset=follower.end_offset,
                durable_offset=follower.durable_offset,
                gap_bytes=max(0, store.end_offset - in_sync.held_by(follower)),
                gap_messages=broker.messages_behind(in_sync.held_by(follower)),
                in_sync=follower.in_sync,
                last_pull_ms_ago=int((now_s - follower.last_pull_s) * 1000),
            )
            for follower in in_sync.followers.values()
        ],
        diverged_files=broker.diverged.count(),
        quorum=_quorum_status(broker),
        pending_mode=None if replica.modes.pending is None else replica.modes.pending.policy.mode,
        shows_below=settings.shows_below,
        in_sync_epoch=None if replica.lease is None else replica.lease[0],
        in_sync_for_ms=None if replica.lease is None else int((replica.lease[1] - now_s) * 1000),
        incarnation=replica.saved.incarnation,
        has_caught_up=replica.saved.joined,
        total_replicas=max(settings.total_replicas, 1 + len(replica.known_replicas)),
        voters=list(replica.members.voters),
    )


def _quorum_status(broker: Broker) -> QuorumStatus | None:
    replica = broker.replica
    elections = replica.elections
    if elections is None:
        return None
    voters = list(replica.members.voters)
    known = {replica.settings.replica_id, *replica.known_replicas}
    return QuorumStatus(
        state=elections.state.value,
        voted_for=replica.saved.voted_for,
        leader_id=elections.leader_id,
        voters=voters,
        observers=sorted(known.difference(voters)),
        preferred_leader=replica.members.preferred,
        change_pending=elections.change_pending,
        transferring_to=elections.transferring_to,
        not_electable_because=elections.why_not_electable(),
    )


def status(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_STATUS."""
    return request.reply(body=replica_status(broker).to_json())


@answers_refusals
def promote(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
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
            raise RoleRefused(
                "this group's leader is assigned, not elected: promote a replica, without naming any that are lost"
            )
        else:
            broker.replica.promote(header.expected_epoch, header.new_epoch, *now, _ids_in(header.in_sync))
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    if lost:
        broker.log_grew()
    elif not led or broker.replica.epoch != epoch:
        broker.role_changed()
    broker.finish_promotion(peer, request)
    return None


@answers_refusals
def demote(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_DEMOTE: the answer tells how far this replica's log goes, now that it takes no more."""
    header = request.header(ReplicaDemoteRequestHeader)
    _check_target(broker, header.group, broker.replica.settings.replica_id)
    led = broker.replica.leads
    try:
        broker.replica.step_down(header.epoch, header.leader_address)
    except RoleRefused as refused:
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(refused)) from refused
    if led:
        broker.role_changed()
    else:
        broker.leader_changed()
    return request.reply(body=replica_status(broker).to_json())


def claim(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """REPLICA_CLAIM: a restarted leader asks to lead again."""
    header = request.header(ReplicaClaimRequestHeader)
    replica = broker.replica
    granted, reason = True, ""
    before = (replica.leads, replica.must_claim)
    if header.group != replica.settings.group:
        granted, reason = False, f"this replica belongs to group {replica.settings.group}"
    else:
        try:
            replica.grant_claim(
                replica_id=header.replica_id,
                epoch=header.epoch,
                last_epoch=header.last_epoch,
                end_offset=header.end_offset,
                address=header.address,
            )
        except RoleRefused as refused:
            granted, reason = False, str(refused)
    if granted or (replica.leads, replica.must_claim) != before:  # it may claim in the claimant's place now
        broker.role_changed()
    answer = ReplicaClaimResponseHeader(
        granted=granted,
        reason=reason,
        epoch=replica.epoch,
        last_epoch=replica.epochs.last_epoch,
        end_offset=broker.store.end_offset,
    )
    return request.reply(header=answer)


@answers_refusals
def freeze_sends(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
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


def diverged_list(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """DIVERGED_LIST: the cuts that were kept."""
    return request.reply(body=DivergedFileList(files=broker.diverged.files()).to_json())


@answers_refusals
def diverged_read(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
    """DIVERGED_READ: records of one cut, as a pull's body has them."""
    header = request.header(DivergedReadRequestHeader)
    try:
        data, next_position, size = broker.diverged.read(
            header.file_name, header.position, max(1, min(header.max_messages, _READ_MAX_MESSAGES))
        )
    except FileNotFoundError as error:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, str(error)) from error
    return request.reply(header=DivergedReadResponseHeader(next_position=next_position, size=size), body=data)


def _ids_in(text: str) -> set[int]:
    return {int(part) for part in text.split(";") if part.isascii() and part.isdigit()}


def _check_target(broker: Broker, group: str, replica_id: int) -> None:
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
    HighwaterRequestCode.REPLICA_CLAIM: claim,
    HighwaterRequestCode.REPLICA_FREEZE_SENDS: freeze_sends,
    HighwaterRequestCode.DIVERGED_LIST: diverged_list,
    HighwaterRequestCode.DIVERGED_READ: diverged_read,
}
