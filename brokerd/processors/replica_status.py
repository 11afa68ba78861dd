"""What a replica reports of itself: its role, its log, its followers (REPLICA_STATUS, and the answer to each change of them)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mqwire.bodies import FollowerStatus, QuorumStatus, ReplicaStatus

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig
    from brokerd.processors.context import Clock, Follower
    from brokerd.replica.diverged import DivergedMessages
    from brokerd.replica.replica import Replica
    from brokerd.store import MessageStore


class StatusSource(Protocol):
    """What a status is made from."""

    config: BrokerConfig
    store: MessageStore
    replica: Replica
    diverged: DivergedMessages

    @property
    def follower(self) -> Follower: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def advertised_id(self) -> int | None: ...

    def messages_behind(self, offset: int) -> int | None: ...

    def refuses_sends(self) -> str | None: ...


def replica_status(broker: StatusSource) -> ReplicaStatus:
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
        mode=settings.mode,
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
        claims=replica.must_reclaim,
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
                incarnation=follower.incarnation,
            )
            for follower in in_sync.followers.values()
        ],
        diverged_files=broker.diverged.count(),
        quorum=_quorum_status(broker),
        pending_mode=None if replica.modes.pending is None else replica.modes.pending.policy.mode,
        shows_below=settings.shows_below,
        led_last_epoch=replica.led_last_epoch,
        in_sync_epoch=None if replica.lease is None else replica.lease[0],
        in_sync_for_ms=None if replica.lease is None else int((replica.lease[1] - now_s) * 1000),
        incarnation=replica.saved.incarnation,
        has_caught_up=replica.saved.joined,
        total_replicas=max(settings.total_replicas, 1 + len(replica.known_replicas)),
        voters=list(replica.members.voters),
    )


def _quorum_status(broker: StatusSource) -> QuorumStatus | None:
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
        has_caught_up=replica.saved.joined,
    )
