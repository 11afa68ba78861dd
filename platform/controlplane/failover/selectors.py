"""Reads: groups with their role maps, failovers with their timelines."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterMode,
    Operation,
    OperationState,
    OperationType,
    Replica,
)
from controlplane.common.errors import NotFound
from controlplane.failover.mode_plan import replicas_surely_holding
from controlplane.failover.models import Failover, GroupLeadership, ReplicaSample
from controlplane.failover.promotion_safety import promotion_refusal
from controlplane.failover.quorum_verdict import Electorate, electorate_of, verdict_of
from controlplane.failover.timeline import TITLES
from controlplane.failover.verdict import GroupView, ReplicaView, Verdict
from mqwire.bodies import QuorumStatus
from mqwire.first_decode import convert


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A replica of the role map. `role` is `unknown` while it does not answer; then what it held is of `last_seen_at`."""

    replica_id: int
    address: str
    fenced: bool
    role: str = "unknown"
    epoch: int | None = None
    end_offset: int | None = None
    held_offset: int | None = None
    gap_bytes: int | None = None
    gap_messages: int | None = None
    in_sync: bool | None = None
    accepts_sends: bool | None = None
    claims: bool | None = None
    promotable: bool | None = None
    not_promotable_because: str = ""
    diverged_files: int | None = None
    last_seen_at: datetime | None = None
    unreachable_since: datetime | None = None
    # Of a group that elects its leader; None in any other, and while it is not known.
    election_state: str | None = None
    is_voter: bool | None = None
    voted_for: int | None = None
    confirm_offset: int | None = None
    last_pull_at: datetime | None = None
    not_electable_because: str = ""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A broker group of the role map, with the verdict on it. `electorate` is of a group that elects its leader."""

    name: str
    epoch: int | None
    master_id: int | None
    verdict: Verdict
    replicas: list[ReplicaRow]
    sampled_at: datetime | None
    electorate: Electorate | None = None

    @property
    def state(self) -> str:
        return self.verdict.state

    @property
    def sentences(self) -> list[str]:
        return list(self.verdict.sentences)


def group_get(cluster: Cluster, name: str) -> BrokerGroup:
    """Return one broker group of the cluster; raises NotFound."""
    group = BrokerGroup.objects.filter(cluster=cluster, name=name).first()
    if group is None:
        raise NotFound("There is no such broker group.")
    return group


def group_rows(cluster: Cluster) -> list[GroupRow]:
    """Return the role map: every group with its replicas, as of the last sample."""
    return [group_row(group) for group in BrokerGroup.objects.filter(cluster=cluster).order_by("name")]


def group_row(group: BrokerGroup) -> GroupRow:
    """Return one group of the role map."""
    view, now = group_view(group), timezone.now()
    leadership = GroupLeadership.objects.filter(group=group).first()
    has_master = view.master is not None
    electorate = electorate_of(view) if view.elects and promotion_refusal(view) is not None else None
    rows = [_replica_row(replica, sample, electorate, has_master=has_master) for replica, sample in _samples(group)]
    verdict = verdict_of(view, now)
    sampled = [replica.sampled_at for replica in view.replicas if replica.sampled_at is not None]
    epoch = None if leadership is None or leadership.epoch == 0 else leadership.epoch
    return GroupRow(group.name, epoch, verdict.master_id, verdict, rows, min(sampled, default=None), electorate)


def group_view(group: BrokerGroup) -> GroupView:
    """Return the group's last samples as the detector wants them."""
    leadership = GroupLeadership.objects.filter(group=group).select_related("leader").first()
    leader = None if leadership is None else leadership.leader
    return GroupView(
        name=group.name,
        in_sync_replicas=replicas_surely_holding(group.cluster.mode, mode_changes_hanging(group.cluster)),
        leader_id=None if leader is None else leader.broker_id,
        led_at=None if leadership is None else leadership.led_at,
        led_epoch=None if leadership is None else leadership.led_epoch,
        led_to_offset=None if leadership is None else leadership.led_to_offset,
        replicas=[_replica_view(replica, sample) for replica, sample in _samples(group)],
        elects=group.cluster.elects_leaders,
        elections_in_doubt=elections_in_doubt(group.cluster),
    )


def mode_changes_hanging(cluster: Cluster) -> list[tuple[str, str]]:
    """Return (from, to) of each change of the mode that has begun since the last that was completed: one that is under way,
    and those that failed.
    """
    return [(change.metadata["from"], change.metadata["to"]) for change in _changes_hanging(cluster)]


def elections_in_doubt(cluster: Cluster) -> bool:
    """Whether a change into or out of dledger has asked a leader for it, and is not completed."""
    return any(
        ClusterMode.DLEDGER in (change.metadata["from"], change.metadata["to"]) and _has_asked(change)
        for change in _changes_hanging(cluster)
    )


def _changes_hanging(cluster: Cluster) -> list[Operation]:
    changes = Operation.objects.filter(cluster=cluster, type=OperationType.CLUSTER_MODE).order_by("-started_at")
    return list(takewhile(lambda change: change.state != OperationState.COMPLETED, changes.iterator(chunk_size=20)))


def _has_asked(change: Operation) -> bool:
    """Whether a worker has ever begun the step that asks for dledger, or the first one after it. A retry counts on."""
    asks = ["mode_change"] if change.metadata["to"] == ClusterMode.DLEDGER else ["mode_pass", "mode_change"]
    return change.steps.filter(name__in=asks, attempts__gt=0).exists()


def failover_list(cluster: Cluster) -> QuerySet[Failover]:
    """Return the cluster's failovers with their timelines."""
    return (
        Failover.objects.filter(cluster=cluster)
        .select_related("operation", "cluster__tenant")
        .prefetch_related("timeline")
    )


def failover_get(cluster: Cluster, failover_id: uuid.UUID) -> Failover:
    """Return one failover of the cluster; raises NotFound."""
    failover = failover_list(cluster).filter(pk=failover_id).first()
    if failover is None:
        raise NotFound("There is no such failover.")
    return failover


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One line: `after_ms` counts from the first line."""

    name: str
    title: str
    happened_at: datetime
    after_ms: int
    detail: str


def timeline_of(failover: Failover) -> list[TimelineLine]:
    """Return the lines in order of time."""
    steps = sorted(failover.timeline.all(), key=lambda step: (step.happened_at, step.created_at))
    return [
        TimelineLine(
            step.name,
            TITLES.get(step.name, step.name),
            step.happened_at,
            round((step.happened_at - steps[0].happened_at).total_seconds() * 1000),
            step.detail,
        )
        for step in steps
    ]


def _samples(group: BrokerGroup) -> list[tuple[Replica, ReplicaSample | None]]:
    samples = {sample.replica_id: sample for sample in ReplicaSample.objects.filter(replica__group=group)}
    return [(replica, samples.get(replica.pk)) for replica in Replica.objects.filter(group=group).order_by("broker_id")]


def _replica_view(replica: Replica, sample: ReplicaSample | None) -> ReplicaView:
    if sample is None:
        return ReplicaView(replica_id=replica.broker_id)
    return ReplicaView(
        replica_id=replica.broker_id,
        sampled_at=sample.sampled_at,
        last_seen_at=sample.last_seen_at,
        unreachable_since=sample.unreachable_since,
        process_ended_at=sample.process_ended_at,
        role=sample.role,
        epoch=sample.epoch,
        log_epoch=sample.log_epoch,
        end_offset=sample.end_offset,
        held_offset=sample.held_offset,
        gap_bytes=sample.gap_bytes,
        gap_messages=sample.gap_messages,
        in_sync=sample.in_sync,
        accepts_sends=sample.accepts_sends,
        refusal=sample.refusal,
        claims=sample.claims,
        promotable=sample.promotable,
        not_promotable_because=sample.not_promotable_because,
        disk_is_new=sample.disk_is_new,
        log_may_be_incomplete=sample.log_may_be_incomplete,
        shows_below=sample.shows_below,
        in_sync_epoch=sample.in_sync_epoch,
        in_sync_until=sample.in_sync_until,
        quorum=_quorum_told(sample),
    )


def _quorum_told(sample: ReplicaSample) -> QuorumStatus | None:
    return None if sample.quorum is None else convert(sample.quorum, QuorumStatus)


def _replica_row(
    replica: Replica, sample: ReplicaSample | None, electorate: Electorate | None, *, has_master: bool
) -> ReplicaRow:
    address = "" if replica.port is None else replica.address
    voters = () if electorate is None else electorate.voters
    is_voter = replica.broker_id in voters if voters else None
    if sample is None:
        return ReplicaRow(replica.broker_id, address, replica.fenced, is_voter=is_voter)
    answers = sample.answers
    quorum = _quorum_told(sample)
    return ReplicaRow(
        replica_id=replica.broker_id,
        address=address,
        role=sample.role if answers else "unknown",
        epoch=sample.epoch,
        end_offset=sample.end_offset,
        held_offset=sample.held_offset,
        gap_bytes=sample.gap_bytes if answers and has_master else None,
        gap_messages=sample.gap_messages if answers and has_master else None,
        in_sync=sample.in_sync,
        accepts_sends=sample.accepts_sends,
        claims=sample.claims,
        promotable=sample.promotable if answers else None,
        not_promotable_because=sample.not_promotable_because if answers else "",
        diverged_files=sample.diverged_files,
        last_seen_at=sample.last_seen_at,
        unreachable_since=sample.unreachable_since,
        fenced=replica.fenced,
        election_state=quorum.state if quorum is not None and answers else None,
        is_voter=is_voter,
        voted_for=quorum.voted_for if quorum is not None and answers else None,
        confirm_offset=sample.confirm_offset,
        last_pull_at=sample.last_pull_at if answers else None,
        not_electable_because=(quorum.not_electable_because or "") if quorum is not None and answers else "",
    )
