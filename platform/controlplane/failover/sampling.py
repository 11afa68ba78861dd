"""Asks a cluster's replicas who they are, and writes down what they say. Called by beat, by the pre-flight and by each
step of a failover, so that all of them decide on the same rows.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, Replica
from controlplane.clusters.replica_remoting import Answer
from controlplane.common.logging import get_logger
from controlplane.failover.elections import election_note
from controlplane.failover.models import Failover, GroupLeadership, ReplicaSample
from controlplane.failover.selectors import group_view
from controlplane.failover.timeline import timeline_add
from controlplane.failover.verdict import GroupView
from controlplane.provisioning.drivers.base import Driver, ProcessState, ProcessStatus
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.processes import cluster_replicas, replica_process_name
from highwater.promotion import disk_that_counts
from mqwire.bodies import FollowerStatus, ReplicaStatus

_log = get_logger("controlplane.failover")

_ENDED = (ProcessState.STOPPED, ProcessState.EXITED, ProcessState.FATAL, ProcessState.BACKOFF, ProcessState.MISSING)


def cluster_sample(cluster: Cluster, driver: Driver) -> list[GroupView]:
    """Write one sample of every replica and who leads; return the groups as they are then, by name."""
    replicas = [replica for replica in cluster_replicas(cluster) if replica.port is not None]
    asked_at = timezone.now()
    answers = replica_remoting.replica_statuses(cluster, [replica.address for replica in replicas])
    silent = [replica for replica in replicas if answers[replica.address].status is None]
    processes = _process_statuses(cluster, silent, driver)
    by_group: dict[BrokerGroup, list[Replica]] = {}
    for replica in replicas:
        by_group.setdefault(replica.group, []).append(replica)
    views = []
    for group, members in by_group.items():
        try:
            with transaction.atomic():
                told = {replica: answers[replica.address] for replica in members}
                _write_group(group, told, processes, asked_at)
                views.append(group_view(group))
        except IntegrityError:  # the cluster was deleted meanwhile
            _log.info("group is gone", group=str(group))
    return views


def group_sample(cluster: Cluster, group_name: str, driver: Driver) -> GroupView | None:
    """The same; return one group, None when it is gone."""
    return next((view for view in cluster_sample(cluster, driver) if view.name == group_name), None)


def fences_release(cluster: Cluster) -> None:
    """Let go of replicas that a failover stopped and could not have rejoin: the health sampling starts them again. As
    slaves, or asking the others first: they have seen that they led.
    """
    if not Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).exists():
        Replica.objects.filter(group__cluster=cluster, fenced=True).update(fenced=False, updated_at=timezone.now())


def leadership_raise(leadership: GroupLeadership, epoch: int, leader: Replica | None) -> bool:
    """Raise the epoch if no one did since `leadership` was read; tells whether this call won."""
    won = GroupLeadership.objects.filter(pk=leadership.pk, epoch=leadership.epoch, epoch__lt=epoch).update(
        epoch=epoch, leader=leader, updated_at=timezone.now()
    )
    return won == 1


def _write_group(
    group: BrokerGroup,
    answers: Mapping[Replica, Answer],
    processes: Mapping[Replica, ProcessStatus],
    asked_at: datetime,
) -> None:
    leadership, _ = GroupLeadership.objects.get_or_create(group=group)
    known = {replica: answer.status for replica, answer in answers.items() if answer.status is not None}
    leading = {replica: status for replica, status in known.items() if status.role == "master"}
    leader = max(leading, key=lambda replica: leading[replica].epoch, default=None)
    followers: dict[int, FollowerStatus] = {}
    if leader is not None:
        followers = {follower.replica_id: follower for follower in leading[leader].followers}
        epoch = leading[leader].epoch
        if epoch > leadership.epoch:
            if leadership_raise(leadership, epoch, leader):
                _log.info("leader", group=group.name, replica=leader.broker_id, epoch=epoch)
                if group.cluster.elects_leaders and leadership.epoch:
                    election_note(group, leadership, leader, known)
        elif epoch == leadership.epoch and leadership.leader_id != leader.pk:
            GroupLeadership.objects.filter(pk=leadership.pk, epoch=epoch).update(
                leader=leader, updated_at=timezone.now()
            )
    for replica, answer in answers.items():
        if answer.status is not None:
            follower = None if leader is None or replica == leader else followers.get(replica.broker_id)
            gap_is_known = leader is not None or answer.status.quorum is not None
            _write_answer(replica, answer.status, follower, asked_at, gap_is_known=gap_is_known)
        else:
            _write_silence(replica, answer.error, processes.get(replica))
    if leader is not None:
        # After the samples: who is silent by them was so when this one led.
        GroupLeadership.objects.filter(pk=leadership.pk, leader=leader).update(
            led_at=timezone.now(), led_epoch=leading[leader].epoch, led_to_offset=leading[leader].end_offset
        )
        _note_rejoined(group, leading[leader].epoch, known)


def _write_answer(
    replica: Replica, status: ReplicaStatus, follower: FollowerStatus | None, asked_at: datetime, *, gap_is_known: bool
) -> None:
    now = timezone.now()
    leads = status.role == "master"
    # Without a master the gap stays as the last one told it: that many messages may be lost.
    gap = (0, 0) if leads else (None, None) if follower is None else (follower.gap_bytes, follower.gap_messages)
    remembered = ReplicaSample.objects.filter(replica=replica).values_list("disk", flat=True).first() or ""
    lease = {}  # of one that was restarted what it said before stays true
    if status.in_sync_for_ms is not None:
        until = asked_at + timedelta(milliseconds=status.in_sync_for_ms)
        lease = {"in_sync_epoch": status.in_sync_epoch, "in_sync_until": until}
    disk = disk_that_counts(remembered, status.incarnation, has_caught_up=status.has_caught_up)
    ReplicaSample.objects.update_or_create(
        replica=replica,
        defaults={
            "sampled_at": now,
            "last_seen_at": now,
            "unreachable_since": None,
            "process_ended_at": None,
            "error": "",
            "role": status.role,
            "epoch": status.epoch,
            "log_epoch": status.log_epoch,
            "end_offset": status.end_offset,
            "durable_offset": status.durable_offset,
            "held_offset": status.held_offset,
            "confirm_offset": status.confirm_offset,
            **({"gap_bytes": gap[0], "gap_messages": gap[1]} if gap_is_known else {}),
            "in_sync": True if leads else None if follower is None else follower.in_sync,
            "accepts_sends": status.accepts_sends,
            "refusal": (status.refusal or "")[:512],
            "claims": status.claims,
            "promotable": status.promotable,
            "not_promotable_because": (status.not_promotable_because or "")[:512],
            "diverged_files": status.diverged_files,
            **lease,
            "log_may_be_incomplete": status.log_may_be_incomplete,
            "shows_below": status.shows_below,
            "disk": disk,
            "disk_is_new": disk != status.incarnation,
            "quorum": None if status.quorum is None else msgspec.to_builtins(status.quorum),
            "last_pull_at": None if follower is None else now - timedelta(milliseconds=follower.last_pull_ms_ago),
        },
    )


def _write_silence(replica: Replica, error: str, process: ProcessStatus | None) -> None:
    now = timezone.now()
    sample, _ = ReplicaSample.objects.get_or_create(replica=replica, defaults={"sampled_at": now})
    sample.sampled_at = now
    sample.error = error[:512]
    sample.unreachable_since = sample.unreachable_since or now
    if process is not None and _has_ended(process, sample.last_seen_at):
        # A supervisor that tries again tells the end of the last try: the first end is when it went away.
        sample.process_ended_at = sample.process_ended_at or process.stopped_at or now
    # The gap of before is of before; what it held then is kept, for that is what may be lost.
    sample.in_sync = None
    sample.accepts_sends = None
    sample.claims = None
    sample.save()


def _has_ended(process: ProcessStatus, last_seen_at: datetime | None) -> bool:
    """Whether the process that last answered is gone; one that is tried again and again may run at the moment."""
    if process.state in _ENDED:
        return True
    return process.started_at is not None and last_seen_at is not None and process.started_at > last_seen_at


def _process_statuses(cluster: Cluster, silent: list[Replica], driver: Driver) -> dict[Replica, ProcessStatus]:
    if not silent:
        return {}
    names = {replica: replica_process_name(cluster, replica) for replica in silent}
    try:
        found = driver.process_statuses(list(names.values()))
    except DriverError as error:
        _log.warning("the driver does not answer", error=str(error))
        return {}
    return {replica: found[name] for replica, name in names.items()}


def _note_rejoined(group: BrokerGroup, epoch: int, known: Mapping[Replica, ReplicaStatus]) -> None:
    """Complete the timelines of failovers that did not wait for their old master's return."""
    waiting = Failover.objects.filter(
        cluster=group.cluster_id, group_name=group.name, rejoined_at=None, writes_back_at__isnull=False
    )
    for failover in waiting:
        status = next((told for replica, told in known.items() if replica.broker_id == failover.old_master_id), None)
        if status is not None and status.role == "slave" and status.log_epoch >= (failover.new_epoch or epoch):
            rejoined_note(failover, status)


def rejoined_note(failover: Failover, status: ReplicaStatus) -> None:
    """Write that the old master follows the new one."""
    now = timezone.now()
    if Failover.objects.filter(pk=failover.pk, rejoined_at=None).update(rejoined_at=now, updated_at=now) == 1:
        kept = f" {status.diverged_files} saved cut(s) of its log are kept." if status.diverged_files else ""
        detail = f"Replica {status.replica_id} follows in epoch {status.log_epoch}.{kept}"
        timeline_add(failover, "rejoined", detail, at=now)
