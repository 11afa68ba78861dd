"""Asks a cluster's replicas who they are, and writes down what they say. Called by beat, by the pre-flight and by each
step of a failover, so that all of them decide on the same rows.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.given_up import replicas_given_up
from controlplane.clusters.models import BrokerGroup, Cluster, Health, Operation, OperationState, Replica
from controlplane.clusters.replica_remoting import Answer
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say, say_all, say_count
from controlplane.failover.elections import election_note
from controlplane.failover.models import Failover, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.samples import (
    GroupLook,
    LeaderNews,
    LeaderRow,
    answer_noted,
    leader_seen,
    leading_noted,
    looked_at,
    silence_noted,
)
from controlplane.failover.selectors import group_view, replica_view
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.drivers.base import Driver, ProcessState, ProcessStatus
from controlplane.provisioning.errors import DriverError
from controlplane.provisioning.processes import broker_noun, placed_replicas, replica_process_name
from mqwire.bodies import ReplicaStatus

_log = get_logger("controlplane.failover")

_HURRIED_S = 1.0
_SILENT_S = 0.3


def cluster_sample(cluster: Cluster, driver: Driver, *, hurried: bool = False) -> list[GroupView]:
    """Write one sample of every replica and who leads; return the groups as they are then, by name. `hurried`: for a promotion."""
    replicas = placed_replicas(cluster)
    asked_at = timezone.now()
    answers = replica_remoting.replica_statuses(
        cluster, [replica.address for replica in replicas], timeouts_s=hurried_timeouts_s(replicas) if hurried else {}
    )
    silent = [replica for replica in replicas if answers[replica.address].status is None]
    processes = _process_statuses(cluster, silent, driver)
    by_group: dict[BrokerGroup, list[Replica]] = {}
    for replica in replicas:
        by_group.setdefault(replica.group, []).append(replica)
    views = []
    for group, members in by_group.items():
        try:
            with transaction.atomic():
                by_replica = {replica: answers[replica.address] for replica in members}
                _write_group(group, by_replica, processes, asked_at)
                views.append(group_view(group))
        except IntegrityError:  # the cluster was deleted meanwhile
            _log.info("group is gone", group=str(group))
    return views


def group_sample(cluster: Cluster, group_name: str, driver: Driver, *, hurried: bool = False) -> GroupView | None:
    """The same; return one group, None when it is gone."""
    views = cluster_sample(cluster, driver, hurried=hurried)
    return next((view for view in views if view.name == group_name), None)


def hurried_timeouts_s(replicas: Collection[Replica]) -> dict[str, float]:
    """Return how long each is waited for by a promotion, which asks four times: as long as no one leads, each wait is outage, and
    who was silent when it was last asked is most likely silent again.
    """
    silent = ReplicaSample.objects.filter(replica__in=replicas, unreachable_since__isnull=False)
    silent_ids = set(silent.values_list("replica_id", flat=True))
    return {replica.address: _SILENT_S if replica.pk in silent_ids else _HURRIED_S for replica in replicas}


def fences_release(cluster: Cluster) -> None:
    """Let go of replicas that a failover stopped and could not have rejoin: the health sampling starts them again. As
    slaves, or asking the others first: they have seen that they led. Not those that an operator gave up for good.
    """
    fenced = Replica.objects.filter(group__cluster=cluster, fenced=True)
    if not fenced.exists():
        return
    with transaction.atomic():
        # Replicas are fenced under this lock: what an operation that begins now fences stays so.
        Cluster.objects.select_for_update().filter(pk=cluster.pk).first()
        if not Operation.objects.filter(cluster=cluster, state=OperationState.IN_PROGRESS).exists():
            fences_lift(cluster, fenced)


def fences_lift(cluster: Cluster, rows: Iterable[Replica]) -> None:
    """Let these be started again, but for those that an operator gave up for good."""
    given_up = replicas_given_up(cluster)
    lifted = [row.pk for row in rows if row.pk not in given_up]
    Replica.objects.filter(pk__in=lifted, fenced=True).update(fenced=False, updated_at=timezone.now())


def leadership_raise(leadership: GroupLeadership, epoch: int, leader: Replica | None) -> bool:
    """Raise the epoch if no one did since `leadership` was read; returns whether this call won."""
    won = GroupLeadership.objects.filter(pk=leadership.pk, epoch=leadership.epoch, epoch__lt=epoch).update(
        epoch=epoch, leader=leader, updated_at=timezone.now()
    )
    return won == 1


def leader_note(leader: Replica, status: ReplicaStatus) -> None:
    """Note what a leader says, if the group's row names it: this is how far its log went when it was last seen leading."""
    if status.role == "master":
        GroupLeadership.objects.filter(group=leader.group, leader=leader).update(
            **leading_noted(status, timezone.now())
        )


def _write_group(
    group: BrokerGroup,
    answers: Mapping[Replica, Answer],
    processes: Mapping[Replica, ProcessStatus],
    asked_at: datetime,
) -> None:
    leadership, _ = GroupLeadership.objects.get_or_create(group=group)
    known = {replica: answer.status for replica, answer in answers.items() if answer.status is not None}
    look = looked_at(known, _leader_row(leadership, answers))
    leader, leading = look.leader, look.leading
    if _write_leader(leadership, look, answers) and leader is not None and leading is not None:
        _log.info("leader", group=group.name, replica=leader.broker_id, epoch=leading.epoch)
        # One that is resumed elects again: no one was cut off by that.
        if group.cluster.is_running and group.cluster.elects_leaders and leadership.epoch:
            election_note(group, leadership, leader, known)
    for replica, answer in answers.items():
        if answer.status is not None:
            _write_answer(replica, answer.status, leading, asked_at)
            _health_outdated(replica, asked_at)
        else:
            _write_silence(replica, answer.error, processes.get(replica))
    if leader is not None and leading is not None:
        leader_note(leader, leading)
        _note_rejoined(group, leading.epoch, known)


def _write_leader(leadership: GroupLeadership, look: GroupLook[Replica], members: Iterable[Replica]) -> bool:
    """Write into the group's row whom a look has found leading, by what `leadership` has read of it; returns whether its epoch is
    a newer one by that.
    """
    if look.news is LeaderNews.KNOWN:
        return False
    members = tuple(members)
    locked = GroupLeadership.objects.select_for_update().filter(pk=leadership.pk).first()
    if locked is None:
        return False
    before = _leader_row(locked, members)
    after = leader_seen(before, _leader_row(leadership, members), look)
    if after == before:
        return False
    GroupLeadership.objects.filter(pk=locked.pk).update(
        epoch=after.epoch, leader=after.leader, updated_at=timezone.now()
    )
    return after.epoch > before.epoch


def _leader_row(leadership: GroupLeadership, members: Iterable[Replica]) -> LeaderRow[Replica]:
    return LeaderRow(
        epoch=leadership.epoch,
        leader=next((replica for replica in members if replica.pk == leadership.leader_id), None),
        led_epoch=leadership.led_epoch,
        asked_epoch=leadership.asked_epoch,
    )


def _write_answer(replica: Replica, status: ReplicaStatus, leader: ReplicaStatus | None, asked_at: datetime) -> None:
    sample = ReplicaSample.objects.filter(replica=replica).first()
    values = answer_noted(
        status,
        leader,
        known=replica_view(replica, sample).known_disk,
        asked_at=asked_at,
        now=timezone.now(),
    )
    quorum = None if status.quorum is None else msgspec.to_builtins(status.quorum)
    ReplicaSample.objects.update_or_create(replica=replica, defaults={**values, "quorum": quorum})


def _health_outdated(replica: Replica, asked_at: datetime) -> None:
    """Whose process did not run at the last look at the daemons, and answers since, is not down any more. Whether name servers
    know it says the next look, which comes every ten seconds.
    """
    if replica.health != Health.DOWN or replica.process_state == ProcessState.RUNNING:
        return
    Replica.objects.filter(pk=replica.pk, health=Health.DOWN, sampled_at__lt=asked_at).update(
        health=Health.UNKNOWN,
        health_message=say("%(noun)s answers again.", noun=broker_noun(replica)),
        updated_at=timezone.now(),
    )


def _write_silence(replica: Replica, error: str, process: ProcessStatus | None) -> None:
    now = timezone.now()
    sample, _ = ReplicaSample.objects.get_or_create(replica=replica, defaults={"sampled_at": now})
    values = silence_noted(
        process,
        unreachable_since=sample.unreachable_since,
        last_seen_at=sample.last_seen_at,
        process_ended_at=sample.process_ended_at,
        ran_unseen=sample.ran_unseen,
        now=now,
    )
    ReplicaSample.objects.update_or_create(replica=replica, defaults={**values, "error": error[:512]})


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
        status = next((found for replica, found in known.items() if replica.broker_id == failover.old_master_id), None)
        if status is not None and status.role == "slave" and status.log_epoch >= (failover.new_epoch or epoch):
            rejoined_note(failover, status)


def rejoined_note(failover: Failover, status: ReplicaStatus) -> None:
    """Write that the old master follows the new one."""
    now = timezone.now()
    if Failover.objects.filter(pk=failover.pk, rejoined_at=None).update(rejoined_at=now, updated_at=now) == 1:
        kept = (
            say_count(
                "%(count)s saved cut of its log is kept.",
                "%(count)s saved cuts of its log are kept.",
                status.diverged_files,
            )
            if status.diverged_files
            else ""
        )
        detail = say_all(
            say("Replica %(replica)s follows in epoch %(epoch)s.", replica=status.replica_id, epoch=status.log_epoch),
            kept,
        )
        timeline_add(failover, "rejoined", detail, at=now)
