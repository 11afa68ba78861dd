"""Reads: groups as they were last seen, failovers with their timelines."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Replica,
)
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.failover.mode_changes import elections_in_doubt, mode_changes_hanging, replicas_surely_holding
from controlplane.failover.models import Drill, DrillWindow, Failover, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.timeline import TITLES
from mqwire.bodies import QuorumStatus
from mqwire.first_decode import convert


def group_get(cluster: Cluster, name: str) -> BrokerGroup:
    """Return one broker group of the cluster; raises NotFound."""
    group = BrokerGroup.objects.filter(cluster=cluster, name=name).first()
    if group is None:
        raise NotFound(say("There is no such broker group."))
    return group


def group_view(group: BrokerGroup) -> GroupView:
    """Return the group's last samples as the detector wants them."""
    leadership = GroupLeadership.objects.filter(group=group).select_related("leader", "asked").first()
    leader = None if leadership is None else leadership.leader
    asked = None if leadership is None else leadership.asked
    return GroupView(
        name=group.name,
        in_sync_replicas=replicas_surely_holding(group.cluster.mode, mode_changes_hanging(group.cluster)),
        leader_id=None if leader is None else leader.broker_id,
        led_at=None if leadership is None else leadership.led_at,
        led_epoch=None if leadership is None else leadership.led_epoch,
        led_to_offset=None if leadership is None else leadership.led_to_offset,
        asked_id=None if asked is None else asked.broker_id,
        asked_epoch=None if leadership is None else leadership.asked_epoch,
        foreign_epoch=None if leadership is None else leadership.foreign_epoch,
        epoch=0 if leadership is None else leadership.epoch,
        replicas=[replica_view(replica, sample) for replica, sample in samples_of(group)],
        elects=group.cluster.elects_leaders,
        elections_in_doubt=elections_in_doubt(group.cluster),
    )


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
        raise NotFound(say("There is no such failover."))
    return failover


def drill_list(cluster: Cluster) -> QuerySet[Drill]:
    """Return the cluster's drills with their timelines, without the single probes."""
    found = Drill.objects.filter(cluster=cluster).defer("probes")
    return found.select_related("operation", "cluster__tenant", "failover").prefetch_related("failover__timeline")


def drill_get(cluster: Cluster, drill_id: uuid.UUID) -> Drill:
    """Return one drill of the cluster; raises NotFound."""
    drill = drill_list(cluster).filter(pk=drill_id).first()
    if drill is None:
        raise NotFound(say("There is no such failover drill."))
    return drill


def drill_window_list(cluster: Cluster) -> QuerySet[DrillWindow]:
    """Return the drills that were ordered for a window, with what became of them."""
    return DrillWindow.objects.filter(cluster=cluster).select_related("cluster__tenant")


def drill_window_get(cluster: Cluster, window_id: uuid.UUID) -> DrillWindow:
    """Return one ordered drill of the cluster; raises NotFound."""
    window = drill_window_list(cluster).filter(pk=window_id).first()
    if window is None:
        raise NotFound(say("There is no such ordered drill."))
    return window


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


def samples_of(group: BrokerGroup) -> list[tuple[Replica, ReplicaSample | None]]:
    """Return the replicas of the group, by their ids, each with its last sample."""
    samples = {sample.replica_id: sample for sample in ReplicaSample.objects.filter(replica__group=group)}
    return [(replica, samples.get(replica.pk)) for replica in Replica.objects.filter(group=group).order_by("broker_id")]


def replica_view(replica: Replica, sample: ReplicaSample | None) -> ReplicaView:
    """Return a replica as it was last seen."""
    if sample is None:
        return ReplicaView(replica_id=replica.broker_id, is_placed=replica.port is not None)
    return ReplicaView(
        replica_id=replica.broker_id,
        is_placed=replica.port is not None,
        sampled_at=sample.sampled_at,
        last_seen_at=sample.last_seen_at,
        unreachable_since=sample.unreachable_since,
        process_ended_at=sample.process_ended_at,
        ran_unseen=sample.ran_unseen,
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
        disk=sample.disk,
        disk_is_new=sample.disk_is_new,
        disk_epoch=sample.disk_epoch,
        disk_offset=sample.disk_offset,
        log_may_be_incomplete=sample.log_may_be_incomplete,
        shows_below=sample.shows_below,
        led_last_epoch=sample.led_last_epoch,
        surely_held_by=sample.surely_held_by,
        follower_ids=sample.follower_ids or (),
        in_sync_epoch=sample.in_sync_epoch,
        in_sync_until=sample.in_sync_until,
        quorum=quorum_reported(sample),
    )


def quorum_reported(sample: ReplicaSample) -> QuorumStatus | None:
    """Return what a replica of a group that elects its leader said of it; None of any other."""
    return None if sample.quorum is None else convert(sample.quorum, QuorumStatus)
