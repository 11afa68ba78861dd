"""What each step of a promotion and of a switchover does. Every step may run twice, or from two workers, or again after
its worker was killed anywhere in it.

Nothing here decides by memory: rows say what was reserved, replicas say what they are. Epochs are reserved by
compare-and-set, and each broker takes a promotion only from the epoch that the request names.
"""

import time

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.common.errors import ApplicationError
from controlplane.failover.decree import decree_refusal
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership
from controlplane.failover.sampling import group_sample, leadership_raise, rejoined_note
from controlplane.failover.timeline import timeline_add
from controlplane.failover.verdict import Cleanness, GroupView, ReplicaView, cleanness_of
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.processes import cluster_replicas, replica_daemons, replica_process_name
from controlplane.provisioning.steps import Step, StepContext
from controlplane.topics.services import topics_assert
from mqwire.bodies import ReplicaStatus

# Sends are held for so long at most: the master takes them again by itself should nobody go on.
_FREEZE_MS = 10_000
_DRAIN_S = 4.0
_DRAIN_POLL_S = 0.02
_VERIFY_S = 4.0
_VERIFY_POLL_S = 0.02
_REJOIN_S = 40.0
_TOPICS_S = 20.0
_STOPPED = (ProcessState.MISSING, ProcessState.STOPPED)
_TRY_AGAIN = "Look at the group's replicas, and ask again."


def failover_preflight(context: StepContext) -> None:
    """Look at every replica, and reserve an epoch above all that anybody has seen."""
    failover, view = _failover(context), _view(context)
    candidate = _answering(view, failover.candidate_id)
    if failover.new_epoch is not None:
        return
    if candidate.leads:
        raise StepFailed(f"Replica {candidate.replica_id} leads already.", hint=_TRY_AGAIN)
    if failover.kind == FailoverKind.SWITCHOVER and view.master is None:
        raise StepFailed("There is no master to switch from.", hint="Promote a replica instead.")
    _require_no_elections(view)
    leadership = GroupLeadership.objects.get(group__cluster=context.cluster, group__name=failover.group_name)
    seen = max([leadership.epoch, *(replica.epoch for replica in view.replicas if replica.epoch is not None)])
    _reserve(failover, leadership, seen + 1)
    former = view.former_master
    held = f"Replica {candidate.replica_id} holds the log to {candidate.held_offset} in epoch {candidate.log_epoch}"
    known = "" if former is None else f"; replica {former.replica_id} was last known to end at {former.end_offset}"
    timeline_add(failover, "preflight", f"{held}{known}. Epoch {seen + 1} is reserved.")


def failover_drain(context: StepContext) -> None:
    """Hold sends until the candidate has everything. The one step that waits within itself: each moment of it is outage."""
    failover, view = _failover(context), _view(context)
    if _is_done(failover, view):
        return
    master = view.master
    if master is None or master.replica_id == failover.candidate_id:
        raise StepFailed("The master is gone: nothing was switched.", hint="Promote a replica instead.")
    addresses = _addresses(context.cluster, failover.group_name)
    source, target = addresses[master.replica_id], addresses[failover.candidate_id]
    _stopped_now(failover)
    frozen = replica_remoting.replica_freeze_sends(
        context.cluster, source, group=failover.group_name, epoch=master.epoch or 0, for_ms=_FREEZE_MS
    )
    if frozen.status is None:
        raise StepNotReady(f"The master did not hold sends: {frozen.error}")
    timeline_add(failover, "sends_held", f"Replica {master.replica_id} holds sends for {_FREEZE_MS // 1000} s at most.")
    deadline = time.monotonic() + _DRAIN_S
    behind = 0
    while time.monotonic() < deadline:
        answers = replica_remoting.replica_statuses(context.cluster, [source, target])
        end, held = answers[source].status, answers[target].status
        if end is None or held is None:
            continue
        behind = end.end_offset - held.held_offset
        # What waits for its acknowledgement is drained too: nobody is told of a failure that was none.
        if behind <= 0 and end.confirm_offset >= end.end_offset:
            _save(failover, drained_offset=end.end_offset)
            timeline_add(failover, "drained", f"Replica {failover.candidate_id} holds all {end.end_offset} bytes.")
            return
        time.sleep(_DRAIN_POLL_S)
    replica_remoting.replica_freeze_sends(
        context.cluster, source, group=failover.group_name, epoch=master.epoch or 0, for_ms=0
    )
    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=None)
    raise StepFailed(
        f"Replica {failover.candidate_id} was still {behind} bytes behind after {_DRAIN_S:.0f} s."
        " The master takes sends again; nothing was switched.",
        hint="Wait until the replica is in sync, and ask again.",
    )


def failover_fence(context: StepContext) -> None:
    """Make sure that nobody else leads: demote who answers, stop who doesn't. Then say what would be lost for good."""
    failover, view = _failover(context), _view(context)
    if _is_done(failover, view):
        return
    if failover.new_epoch is None or failover.expected_epoch is None:
        raise StepFailed("No epoch was reserved.", hint=_TRY_AGAIN)
    _require_no_elections(view)
    addresses = _addresses(context.cluster, failover.group_name)
    fence = "none"
    demoted: ReplicaStatus | None = None
    for replica in view.replicas:
        if replica.replica_id == failover.candidate_id or not _may_lead(failover, replica):
            continue
        status = _demote(context, failover, replica, addresses)
        if status is None:
            _stop(context, failover, replica.replica_id)
            fence = "stopped"
        else:
            fence, demoted = ("stopped" if fence == "stopped" else "demoted"), status
    _stopped_now(failover)
    view = _view(context)
    _require_no_elections(view)  # by what they say behind the fence; giving the role back would be a decree, too
    cleanness = _cleanness(failover, view, demoted)
    if not cleanness.clean and not failover.confirmed_loss:
        _give_back(context, failover, demoted, addresses)
        raise StepFailed(
            f"Messages may be lost: {cleanness.because} Nobody has agreed to that.",
            hint="Ask again, and type the group's name to confirm the loss.",
        )
    _save(
        failover,
        fence=fence,
        lossless=cleanness.clean,
        lossless_because=cleanness.because,
        bytes_at_risk=cleanness.bytes_at_risk,
        messages_at_risk=cleanness.messages_at_risk,
    )
    words = {"none": "Nobody else led.", "demoted": "It stepped down.", "stopped": _stopped_words(context, failover)}
    loss = "Nothing acknowledged is lost" if cleanness.clean else "Messages may be lost, as was confirmed"
    timeline_add(failover, "fenced", f"{words[fence]} {loss}: {cleanness.because}")


def failover_promote(context: StepContext) -> None:
    """Have the candidate lead in the reserved epoch."""
    failover, view = _failover(context), _view(context)
    candidate = _answering(view, failover.candidate_id)
    if not _is_done(failover, view):
        if any(replica.leads for replica in view.replicas):
            raise StepFailed("Another replica leads: somebody else changed the group.", hint=_TRY_AGAIN)
        _require_no_elections(view)
        epoch = candidate.epoch or 0
        if failover.new_epoch is None or epoch >= failover.new_epoch:
            # The candidate has heard of a newer epoch in which nobody leads: take one above it.
            leadership = GroupLeadership.objects.get(group__cluster=context.cluster, group__name=failover.group_name)
            _reserve(failover, leadership, max(leadership.epoch, epoch) + 1)
        answer = replica_remoting.replica_promote(
            context.cluster,
            _addresses(context.cluster, failover.group_name)[failover.candidate_id],
            group=failover.group_name,
            replica_id=failover.candidate_id,
            expected_epoch=epoch,
            new_epoch=failover.new_epoch or 0,
        )
        if answer.status is None:
            raise StepNotReady(f"Replica {failover.candidate_id} was not promoted: {answer.error}")
    leader = Replica.objects.get(
        group__cluster=context.cluster, group__name=failover.group_name, broker_id=failover.candidate_id
    )
    GroupLeadership.objects.filter(group=leader.group, epoch=failover.new_epoch or 0).update(
        leader=leader, updated_at=timezone.now()
    )
    timeline_add(failover, "promoted", f"Replica {failover.candidate_id} leads in epoch {failover.new_epoch}.")


def failover_verify(context: StepContext) -> None:
    """Wait until the name servers send clients to the new master and it stores a message of ours, as a producer's. The
    second step that waits within itself: what it measures is an outage.
    """
    failover = _failover(context)
    address = _addresses(context.cluster, failover.group_name)[failover.candidate_id]
    deadline = time.monotonic() + _VERIFY_S
    while (waits_for := _not_verified(context, failover, address)) is not None:
        if time.monotonic() > deadline:
            raise StepNotReady(waits_for, delay_s=0.1)
        time.sleep(_VERIFY_POLL_S)


def _not_verified(context: StepContext, failover: Failover, address: str) -> str | None:
    """Look once; returns what is waited for, or None when the first write is written into the timeline."""
    status = replica_remoting.replica_statuses(context.cluster, [address])[address].status
    if status is None:
        return f"Replica {failover.candidate_id} does not answer."
    if status.epoch > (failover.new_epoch or 0):
        raise StepFailed(f"The group went on to epoch {status.epoch}.", hint=_TRY_AGAIN)
    if status.role != "master":
        return f"Replica {failover.candidate_id} does not lead yet."
    masters = replica_remoting.group_masters(context.cluster, failover.group_name)
    wrong = sorted(server for server, master in masters.items() if master is not None and master != address)
    if wrong or address not in masters.values():
        return f"The name servers do not tell of the new master yet: {masters}"
    timeline_add(failover, "registered", f"{address} is brokerId 0 of {failover.group_name}.")
    probe = replica_remoting.probe_send(context.cluster, address)
    if not probe.stored:
        return f"The new master does not take sends yet: {probe.answer}"
    now = timezone.now()
    Failover.objects.filter(pk=failover.pk, writes_back_at=None).update(writes_back_at=now, updated_at=now)
    failover.refresh_from_db()
    outage = "" if failover.outage_ms is None else f" No send was taken for {failover.outage_ms / 1000:.2f} s."
    timeline_add(failover, "first_write", f"A message of ours was answered {probe.answer}.{outage}", at=now)
    return None


def failover_topics(context: StepContext) -> None:
    """Have the new master know every topic: one that was made in the last moment may be known to nobody who is alive.

    Groups need no such thing: whoever consumes makes its own. What can't be told in time does not fail what is done.
    """
    failover = _failover(context)
    address = _addresses(context.cluster, failover.group_name)[failover.candidate_id]
    try:
        lacked = topics_assert(context.cluster, failover.group_name, address)
    except ApplicationError as error:
        if (context.now - context.started_at).total_seconds() < _TOPICS_S:
            raise StepNotReady(f"The new master could not be told of its topics: {error.message}") from error
        timeline_add(failover, "topics", f"The new master could not be told of its topics: {error.message}")
        return
    if lacked:
        timeline_add(failover, "topics", f"The new master did not know, and was told of: {', '.join(sorted(lacked))}.")


def failover_rejoin(context: StepContext) -> None:
    """Have those that were stopped run as slaves. An old master that does not come back in time does not fail what is done:
    its return is written when it is seen.
    """
    failover = _failover(context)
    cluster = context.cluster
    members = [replica for replica in cluster_replicas(cluster) if replica.group.name == failover.group_name]
    old = next((replica for replica in members if replica.broker_id == failover.old_master_id), None)
    for replica in members:
        if replica.broker_id != failover.candidate_id and (
            replica.fenced or (replica == old and failover.fence == "stopped")
        ):
            _start_again(context, replica)
            timeline_add(failover, "rejoining", f"Replica {replica.broker_id} is started as a slave.")
    if old is None or failover.old_master_id == failover.candidate_id:
        return
    status = replica_remoting.replica_statuses(cluster, [old.address])[old.address].status
    if status is not None and status.role == "slave" and status.log_epoch >= (failover.new_epoch or 0):
        rejoined_note(failover, status)
        return
    if (context.now - context.started_at).total_seconds() < _REJOIN_S:
        raise StepNotReady(f"Replica {old.broker_id} does not follow the new master yet.", delay_s=0.5)


def _may_lead(failover: Failover, replica: ReplicaView) -> bool:
    """Whether a replica other than the candidate may lead, as far as anybody knows."""
    if replica.leads or replica.replica_id == failover.old_master_id:
        return True
    # The last leader is the candidate itself: somebody who does not answer may have been promoted past us since.
    return not replica.answers and failover.old_master_id in (None, failover.candidate_id)


def _start_again(context: StepContext, replica: Replica) -> None:
    daemon = next(daemon for daemon in replica_daemons(context.cluster, context.driver) if daemon.row == replica)
    Replica.objects.filter(pk=replica.pk).update(fenced=False, updated_at=context.now)
    context.driver.files_write(context.cluster.id, daemon.files)
    context.driver.process_start(daemon.process)


def _failover(context: StepContext) -> Failover:
    return Failover.objects.select_related("cluster__tenant", "operation").get(operation=context.operation)


def _view(context: StepContext) -> GroupView:
    name = str(context.operation.metadata["group"])
    view = group_sample(context.cluster, name, context.driver)
    if view is None:
        raise StepFailed(f"The broker group {name} is gone.")
    return view


def _require_no_elections(view: GroupView) -> None:
    if (refusal := decree_refusal(view)) is not None:
        raise StepFailed(refusal, hint=_TRY_AGAIN)


def _answering(view: GroupView, replica_id: int) -> ReplicaView:
    replica = view.replica(replica_id)
    if replica is None or not replica.answers:
        raise StepNotReady(f"Replica {replica_id} does not answer.")
    return replica


def _is_done(failover: Failover, view: GroupView) -> bool:
    """Whether the candidate leads in the reserved epoch: whatever comes before has been done."""
    candidate = view.replica(failover.candidate_id)
    return candidate is not None and candidate.leads and candidate.epoch == failover.new_epoch


def _addresses(cluster: Cluster, group_name: str) -> dict[int, str]:
    replicas = [replica for replica in cluster_replicas(cluster) if replica.group.name == group_name]
    return {replica.broker_id: replica.address for replica in replicas}


def _save(failover: Failover, **values: object) -> None:
    Failover.objects.filter(pk=failover.pk).update(**values, updated_at=timezone.now())
    failover.refresh_from_db()


def _stopped_now(failover: Failover) -> None:
    """Sends stop now, unless they had stopped before."""
    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=Coalesce("writes_stopped_at", timezone.now()))


def _reserve(failover: Failover, leadership: GroupLeadership, epoch: int) -> None:
    """Take an epoch for this failover: by compare-and-set on the group's row, so that nobody else has it."""
    with transaction.atomic():
        if not leadership_raise(leadership, epoch, leadership.leader):
            raise StepNotReady("The group's epoch was raised by somebody else.", delay_s=0.2)
        won = Failover.objects.filter(pk=failover.pk, new_epoch=failover.new_epoch).update(
            expected_epoch=epoch - 1, new_epoch=epoch, updated_at=timezone.now()
        )
        if won != 1:
            raise StepNotReady("Another worker reserved an epoch.", delay_s=0.2)  # and undo the raise
    failover.refresh_from_db()


def _demote(
    context: StepContext, failover: Failover, replica: ReplicaView, addresses: dict[int, str]
) -> ReplicaStatus | None:
    """Have a replica that answers follow the candidate; None when it does not answer."""
    # The epoch of before, not the new one: who follows would tell the candidate of it, which must promise it first.
    epoch = max(failover.expected_epoch or 0, replica.epoch or 0)
    answer = replica_remoting.replica_demote(
        context.cluster,
        addresses[replica.replica_id],
        group=failover.group_name,
        epoch=epoch,
        leader_address=addresses[failover.candidate_id],
    )
    if answer.refused:
        raise StepNotReady(f"Replica {replica.replica_id} was not demoted: {answer.error}")
    return answer.status


def _stopped_words(context: StepContext, failover: Failover) -> str:
    stopped = Replica.objects.filter(group__cluster=context.cluster, group__name=failover.group_name, fenced=True)
    names = [f"replica {replica.broker_id}" for replica in stopped.order_by("broker_id")]
    return f"The process of {' and of '.join(names)} is stopped."


def _stop(context: StepContext, failover: Failover, replica_id: int) -> None:
    """Stop a process that does not answer, and confirm that it has ended; nobody starts it before it is let go."""
    cluster = context.cluster
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=cluster.pk)  # the health sampling starts processes under this lock
        Replica.objects.filter(group__cluster=cluster, group__name=failover.group_name, broker_id=replica_id).update(
            fenced=True, updated_at=context.now
        )
    replica = Replica.objects.select_related("group").get(
        group__cluster=cluster, group__name=failover.group_name, broker_id=replica_id
    )
    name = replica_process_name(cluster, replica)
    context.driver.process_remove(name)
    state = context.driver.process_statuses([name])[name].state
    if state not in _STOPPED:
        raise StepNotReady(f"The process of replica {replica_id} is {state}, not stopped yet.")


def _cleanness(failover: Failover, view: GroupView, demoted: ReplicaStatus | None) -> Cleanness:
    candidate = view.replica(failover.candidate_id)
    if failover.kind == FailoverKind.SWITCHOVER and demoted is not None and candidate is not None:
        missing = demoted.end_offset - (candidate.held_offset or 0)
        if missing <= 0:
            return Cleanness(True, "the candidate held all of the master's log before it stepped down.", 0, 0)
        return Cleanness(False, f"the master took sends again: the candidate is {missing} bytes behind.", missing, None)
    return cleanness_of(view, failover.candidate_id)


def _give_back(
    context: StepContext, failover: Failover, demoted: ReplicaStatus | None, addresses: dict[int, str]
) -> None:
    """Nothing is to be lost, so nothing is changed: a demoted master leads again, a stopped one is started."""
    Replica.objects.filter(group__cluster=context.cluster, group__name=failover.group_name, fenced=True).update(
        fenced=False, updated_at=context.now
    )
    if demoted is None or not demoted.promotable:
        return
    answer = replica_remoting.replica_promote(
        context.cluster,
        addresses[demoted.replica_id],
        group=failover.group_name,
        replica_id=demoted.replica_id,
        expected_epoch=demoted.epoch,
        new_epoch=failover.new_epoch or demoted.epoch + 1,
    )
    if answer.status is not None:
        timeline_add(
            failover, "given_back", f"Replica {demoted.replica_id} leads again, in epoch {answer.status.epoch}."
        )


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        failover_preflight,
        failover_drain,
        failover_fence,
        failover_promote,
        failover_verify,
        failover_topics,
        failover_rejoin,
    )
}
