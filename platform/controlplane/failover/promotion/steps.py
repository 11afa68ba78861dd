"""What each step of a promotion and of a switchover does. Every step may run twice, or from two workers, or again after
its worker was killed anywhere in it.

Nothing here decides by memory: rows say what was reserved and decided, replicas say what they are. What is decided is
fencing.py's and highwater/promotion.py's, in which order is order.py's; here are the requests and the rows. Two epochs are
reserved by compare-and-set: the fence, which the replicas promise, and the one that is led in; each broker takes a promotion
only from the fence.
"""

import time
from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.replica_remoting import Answer
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import bounded, from_sdk, say, say_all
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership
from controlplane.failover.promotion.fencing import has_promised_newer, next_ballot, promised_ids
from controlplane.failover.promotion.order import (
    CONFIRM,
    TRY_AGAIN,
    Fence,
    FenceAnswers,
    Look,
    NoteSendsStopped,
    Promotion,
    Request,
    Stop,
    carried_out,
    fence_and_decide,
    require_no_elections,
)
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.sampling import group_sample, leadership_raise, rejoined_note
from controlplane.failover.timeline import timeline_add
from controlplane.failover.words import listed
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.ports import leader_addresses
from controlplane.provisioning.processes import cluster_replicas, replica_daemons, replica_process_name
from controlplane.provisioning.steps import Step, StepContext
from controlplane.topics.services import topics_assert
from highwater.promotion import Ballot, is_drained

# Sends are held for so long at most: the master takes them again by itself should no one go on.
_FREEZE_MS = 10_000
_DRAIN_S = 4.0
_DRAIN_POLL_S = 0.02
_VERIFY_S = 4.0
_VERIFY_POLL_S = 0.02
_REJOIN_S = 40.0
_TOPICS_S = 20.0
_STOPPED = (ProcessState.MISSING, ProcessState.STOPPED)


def failover_preflight(context: StepContext) -> None:
    """Look at every replica, and reserve an epoch above all that any replica has seen."""
    failover, view = present_failover(context), _view(context)
    candidate = _answering(view, failover.candidate_id)
    if failover.new_epoch is not None:
        return
    if candidate.leads:
        raise StepFailed(
            say("Replica %(replica_id)s is already the master.", replica_id=candidate.replica_id), hint=TRY_AGAIN
        )
    if failover.kind == FailoverKind.SWITCHOVER and view.master is None:
        raise StepFailed(say("There is no master to switch from."), hint=say("Promote a replica instead."))
    require_no_elections(view)
    ballot = _reserve(failover, _leadership(failover), view)
    former = view.former_master
    held = say(
        "Replica %(replica_id)s holds the log to %(held_offset)s in epoch %(log_epoch)s",
        replica_id=candidate.replica_id,
        held_offset=candidate.held_offset,
        log_epoch=candidate.log_epoch,
    )
    known = (
        ""
        if former is None
        else say(
            "; replica %(replica_id)s was last known to end at %(end_offset)s",
            replica_id=former.replica_id,
            end_offset=former.end_offset,
        )
    )
    timeline_add(
        failover,
        "preflight",
        say("%(held)s%(known)s. Epoch %(epoch)s is reserved.", held=held, known=known, epoch=ballot.epoch),
    )


def failover_drain(context: StepContext) -> None:
    """Hold sends until the candidate has everything. The one step that waits within itself: each moment of it is outage."""
    failover, view = present_failover(context), _view(context)
    if _is_done(failover, view):
        return
    master = view.master
    if master is None or master.replica_id == failover.candidate_id:
        raise StepFailed(say("The master is gone: nothing was switched."), hint=say("Promote a replica instead."))
    addresses = _addresses(context.cluster, failover.group_name)
    source, target = addresses[master.replica_id], addresses[failover.candidate_id]
    sends_stopped_note(failover)
    frozen = replica_remoting.replica_freeze_sends(
        context.cluster, source, group=failover.group_name, epoch=master.epoch or 0, for_ms=_FREEZE_MS
    )
    if frozen.status is None:
        raise StepNotReady(say("The master did not hold sends: %(error)s", error=frozen.error))
    timeline_add(
        failover,
        "sends_held",
        say(
            "Replica %(replica_id)s holds sends for %(freeze_ms)s s at most.",
            replica_id=master.replica_id,
            freeze_ms=_FREEZE_MS // 1000,
        ),
    )
    deadline = time.monotonic() + _DRAIN_S
    behind = 0
    while time.monotonic() < deadline:
        answers = replica_remoting.replica_statuses(context.cluster, [source, target])
        end, held = answers[source].status, answers[target].status
        if end is None or held is None:
            continue
        behind = end.end_offset - held.held_offset
        if is_drained(end_offset=end.end_offset, confirm_offset=end.confirm_offset, held_offset=held.held_offset):
            _save(failover, drained_offset=end.end_offset)
            timeline_add(
                failover,
                "drained",
                say(
                    "Replica %(candidate_id)s holds all %(end_offset)s bytes.",
                    candidate_id=failover.candidate_id,
                    end_offset=end.end_offset,
                ),
            )
            return
        time.sleep(_DRAIN_POLL_S)
    replica_remoting.replica_freeze_sends(
        context.cluster, source, group=failover.group_name, epoch=master.epoch or 0, for_ms=0
    )
    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=None)
    raise StepFailed(
        say(
            "Replica %(candidate_id)s was still %(behind)s bytes behind after %(drain_s)s s. The"
            " master takes sends again; nothing was switched.",
            candidate_id=failover.candidate_id,
            behind=behind,
            drain_s=f"{_DRAIN_S:.0f}",
        ),
        hint=say("Wait until the replica is in sync, and ask again."),
    )


def failover_fence(context: StepContext) -> None:
    """Have every replica promise the fence, stop who may lead and does not answer, and decide for good who leads."""
    failover, view = present_failover(context), _view(context)
    if _is_done(failover, view):
        return
    if failover.new_epoch is None or failover.expected_epoch is None:
        raise StepFailed(say("No epoch was reserved."), hint=TRY_AGAIN)
    if failover.decided_id is None:
        _fence_and_decide(context, failover, view)
    if failover.decided_id != failover.candidate_id:
        _give_back(context, failover)


def failover_promote(context: StepContext) -> None:
    """Have whom the promises decided for lead in the reserved epoch."""
    failover, view = present_failover(context), _view(context)
    if not _is_done(failover, view):
        if any(replica.leads for replica in view.replicas):
            raise StepFailed(say("Another replica leads: someone else changed the group."), hint=TRY_AGAIN)
        require_no_elections(view)
        candidate = _answering(view, failover.candidate_id)
        if failover.decided_id is None or has_promised_newer(candidate, failover.expected_epoch or 0):
            _reserve(failover, _leadership(failover), view)
            _fence_and_decide(context, failover, view)
            if failover.decided_id != failover.candidate_id:
                _give_back(context, failover)
        answer = _promote(failover, failover.candidate_id, promised_ids(view, failover.expected_epoch or 0))
        if answer.status is None:
            raise StepNotReady(
                say(
                    "Replica %(candidate_id)s was not promoted: %(error)s",
                    candidate_id=failover.candidate_id,
                    error=answer.error,
                )
            )
    leader = Replica.objects.get(
        group__cluster=context.cluster, group__name=failover.group_name, broker_id=failover.candidate_id
    )
    GroupLeadership.objects.filter(group=leader.group, epoch=failover.new_epoch or 0).update(
        leader=leader, updated_at=timezone.now()
    )
    timeline_add(
        failover,
        "promoted",
        say(
            "Replica %(candidate_id)s is the master (epoch %(new_epoch)s).",
            candidate_id=failover.candidate_id,
            new_epoch=failover.new_epoch,
        ),
    )


def failover_verify(context: StepContext) -> None:
    """Wait until the name servers send clients to the new master and it stores a message of ours, as a producer's. The
    second step that waits within itself: what it measures is an outage.
    """
    failover = present_failover(context)
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
        return say("Replica %(candidate_id)s does not answer.", candidate_id=failover.candidate_id)
    if status.epoch > (failover.new_epoch or 0):
        raise StepFailed(say("The group went on to epoch %(epoch)s.", epoch=status.epoch), hint=TRY_AGAIN)
    if status.role != "master":
        return say("Replica %(candidate_id)s does not lead yet.", candidate_id=failover.candidate_id)
    masters = replica_remoting.group_masters(context.cluster, failover.group_name, leader_addresses(context.cluster.pk))
    wrong = sorted(server for server, master in masters.items() if master is not None and master != address)
    if wrong or address not in masters.values():
        return say("The name servers do not name the new master yet: %(masters)s", masters=str(masters))
    timeline_add(
        failover,
        "registered",
        say("%(address)s is brokerId 0 of %(group_name)s.", address=address, group_name=failover.group_name),
    )
    probe = replica_remoting.probe_send(context.cluster, address)
    if not probe.stored:
        return say("The new master does not take sends yet: %(answer)s", answer=probe.answer)
    now = timezone.now()
    Failover.objects.filter(pk=failover.pk, writes_back_at=None).update(writes_back_at=now, updated_at=now)
    failover.refresh_from_db()
    outage = ""
    if failover.outage_ms is not None and failover.kind != FailoverKind.DRILL:  # a drill's probes measure it better
        outage = say("No send was taken for %(seconds)s s.", seconds=f"{failover.outage_ms / 1000:.2f}")
    timeline_add(
        failover,
        "first_write",
        say_all(say("A message of ours was answered %(answer)s.", answer=probe.answer), outage),
        at=now,
    )
    return None


def failover_topics(context: StepContext) -> None:
    """Have the new master know every topic: one that was made in the last moment may be known to no one who is alive.

    Groups need no such thing: consumers make their own. What can't be done in time does not fail what is done.
    """
    failover = present_failover(context)
    address = _addresses(context.cluster, failover.group_name)[failover.candidate_id]
    try:
        lacked = topics_assert(context.cluster, failover.group_name, address)
    except ApplicationError as error:
        if (context.now - context.started_at).total_seconds() < _TOPICS_S:
            raise StepNotReady(
                say("The topics of the new master could not be checked: %(message)s", message=error.message)
            ) from error
        timeline_add(
            failover,
            "topics",
            say("The topics of the new master could not be checked: %(message)s", message=error.message),
        )
        return
    if lacked:
        timeline_add(
            failover,
            "topics",
            say("The new master lacked topics, which were created: %(join)s.", join=", ".join(sorted(lacked))),
        )


def failover_rejoin(context: StepContext) -> None:
    """Have those that were stopped run as slaves. An old master that does not come back in time does not fail what is done:
    its return is written when it is seen.
    """
    failover = present_failover(context)
    cluster = context.cluster
    members = [replica for replica in cluster_replicas(cluster) if replica.group.name == failover.group_name]
    old = next((replica for replica in members if replica.broker_id == failover.old_master_id), None)
    for replica in members:
        if replica.broker_id != failover.candidate_id and (
            replica.fenced or (replica == old and failover.fence == "stopped")
        ):
            _start_again(context, replica)
            timeline_add(
                failover, "rejoining", say("Replica %(broker_id)s is started as a slave.", broker_id=replica.broker_id)
            )
    if old is None or failover.old_master_id == failover.candidate_id:
        return
    status = replica_remoting.replica_statuses(cluster, [old.address])[old.address].status
    if status is not None and status.role == "slave" and status.log_epoch >= (failover.new_epoch or 0):
        rejoined_note(failover, status)
        return
    if (context.now - context.started_at).total_seconds() < _REJOIN_S:
        raise StepNotReady(
            say("Replica %(broker_id)s does not follow the new master yet.", broker_id=old.broker_id), delay_s=0.5
        )


def _start_again(context: StepContext, replica: Replica) -> None:
    daemon = next(daemon for daemon in replica_daemons(context.cluster, context.driver) if daemon.row == replica)
    Replica.objects.filter(pk=replica.pk).update(fenced=False, updated_at=context.now)
    context.driver.files_write(context.cluster.id, daemon.files)
    context.driver.process_start(daemon.process)


def present_failover(context: StepContext) -> Failover:
    """Return the failover that the operation works on: its newest."""
    found = Failover.objects.select_related("cluster__tenant", "operation").filter(operation=context.operation)
    return found.latest("created_at")


def _view(context: StepContext) -> GroupView:
    name = str(context.operation.metadata["group"])
    view = group_sample(context.cluster, name, context.driver)
    if view is None:
        raise StepFailed(say("The broker group %(name)s is gone.", name=name))
    return view


def _answering(view: GroupView, replica_id: int) -> ReplicaView:
    replica = view.replica(replica_id)
    if replica is None or not replica.answers:
        raise StepNotReady(say("Replica %(replica_id)s does not answer.", replica_id=replica_id))
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


def sends_stopped_note(failover: Failover) -> None:
    """Sends stop now, unless they had stopped before."""
    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=Coalesce("writes_stopped_at", timezone.now()))


def _reserve(failover: Failover, leadership: GroupLeadership, view: GroupView) -> Ballot:
    """Take two epochs above all that anyone has seen: by compare-and-set on the group's row, so that no one else has them."""
    ballot = next_ballot(view, leadership.epoch)
    with transaction.atomic():
        if not leadership_raise(leadership, ballot.epoch, leadership.leader):
            raise StepNotReady(say("The group's epoch was raised by another request."), delay_s=0.2)
        won = Failover.objects.filter(pk=failover.pk, new_epoch=failover.new_epoch).update(
            expected_epoch=ballot.fence, new_epoch=ballot.epoch, decided_id=None, updated_at=timezone.now()
        )
        if won != 1:
            raise StepNotReady(say("Another worker reserved an epoch."), delay_s=0.2)  # and undo the raise
    failover.refresh_from_db()
    return ballot


def _fence_and_decide(context: StepContext, failover: Failover, view: GroupView) -> None:
    ballot = Ballot(failover.expected_epoch or 0, failover.new_epoch or 0)
    fenced = carried_out(
        fence_and_decide(_promotion(failover), ballot, view), lambda request: _carry_out(context, failover, request)
    )
    decision, fence = fenced.decision, fenced.fence
    if decision.leader_id is None:
        _start_stopped(context, failover)
        raise StepFailed(
            say(
                "Messages may be lost: %(because)s No one has agreed to that.",
                because=from_sdk(decision.cleanness.because),
            ),
            hint=CONFIRM,
        )
    wanted_id = failover.candidate_id if decision.gives_back else decision.leader_id
    won = Failover.objects.filter(pk=failover.pk, new_epoch=ballot.epoch, decided_id=None).update(
        decided_id=decision.leader_id,
        candidate_id=wanted_id,
        fence=fence,
        lossless=decision.cleanness.clean,
        lossless_because=bounded(from_sdk(decision.cleanness.because), 512),
        bytes_at_risk=decision.cleanness.bytes_at_risk,
        messages_at_risk=decision.cleanness.messages_at_risk,
        updated_at=timezone.now(),
    )
    if won != 1:
        raise StepNotReady(say("Another worker has decided."), delay_s=0.1)
    asked_for = failover.candidate_id
    failover.refresh_from_db()
    if decision.gives_back:
        return
    words = {
        "none": say("No other replica led."),
        "demoted": say("It stepped down."),
        "stopped": _stopped_words(context, failover),
    }
    may_be_lost = (
        say("Messages may be lost, as was confirmed") if failover.confirmed_loss else say("Messages may be lost")
    )
    loss = say("Nothing acknowledged is lost") if decision.cleanness.clean else may_be_lost
    instead = (
        "" if wanted_id == asked_for else say("Replica %(asked_for)s would not have been clean.", asked_for=asked_for)
    )
    promised = listed([str(replica_id) for replica_id in fenced.promised_ids])
    timeline_add(
        failover,
        "fenced",
        say_all(
            words[fence],
            say("Epoch %(epoch)s was promised by %(promised)s.", epoch=ballot.fence, promised=promised),
            say("%(loss)s: %(because)s", loss=loss, because=from_sdk(decision.cleanness.because)),
            instead,
        ),
    )


def _promotion(failover: Failover) -> Promotion:
    return Promotion(
        candidate_id=failover.candidate_id,
        old_master_id=failover.old_master_id,
        begun_at=failover.created_at,
        may_lose=failover.confirmed_loss,
        may_choose=failover.kind != FailoverKind.SWITCHOVER,
    )


def _carry_out(context: StepContext, failover: Failover, request: Request) -> object:
    """Do what the order of a promotion asks for, and return what it wants to know (order.py)."""
    match request:
        case Look():
            return _view(context)
        case Fence(replica_ids, epoch):
            known = _addresses(context.cluster, failover.group_name)
            addresses = {replica_id: known[replica_id] for replica_id in replica_ids if replica_id in known}
            asked_at_s = time.time()
            answers = replica_remoting.replica_fences(
                context.cluster, list(addresses.values()), group=failover.group_name, epoch=epoch
            )
            return FenceAnswers(asked_at_s, {one: answers[address] for one, address in addresses.items()})
        case Stop(replica_id):
            replica_kill(context, failover.group_name, replica_id)
        case NoteSendsStopped():
            sends_stopped_note(failover)
    return None


def _promote(failover: Failover, replica_id: int, in_sync: Sequence[int] = ()) -> Answer:
    return replica_remoting.replica_promote(
        failover.cluster,
        _addresses(failover.cluster, failover.group_name)[replica_id],
        group=failover.group_name,
        replica_id=replica_id,
        expected_epoch=failover.expected_epoch or 0,
        new_epoch=failover.new_epoch or 0,
        in_sync=in_sync,
    )


def _leadership(failover: Failover) -> GroupLeadership:
    return GroupLeadership.objects.get(group__cluster=failover.cluster, group__name=failover.group_name)


def _stopped_words(context: StepContext, failover: Failover) -> str:
    stopped = Replica.objects.filter(group__cluster=context.cluster, group__name=failover.group_name, fenced=True)
    text: str = ""
    for replica in stopped.order_by("-broker_id"):
        name = say("replica %(ids)s", ids=replica.broker_id)
        text = say("%(first)s and of %(second)s", first=name, second=text) if text else name
    return say("The process of %(names)s is stopped.", names=text)


def replica_kill(context: StepContext, group_name: str, replica_id: int) -> None:
    """Kill a process, and confirm that it has ended; no one starts it before it is let go."""
    cluster = context.cluster
    with transaction.atomic():
        Cluster.objects.select_for_update().get(pk=cluster.pk)  # the health sampling starts processes under this lock
        Replica.objects.filter(group__cluster=cluster, group__name=group_name, broker_id=replica_id).update(
            fenced=True, updated_at=context.now
        )
    replica = Replica.objects.select_related("group").get(
        group__cluster=cluster, group__name=group_name, broker_id=replica_id
    )
    name = replica_process_name(cluster, replica)
    if context.driver.process_statuses([name])[name].state is ProcessState.MISSING:
        return  # a step before this one did it
    context.driver.process_kill(name)
    state = context.driver.process_statuses([name])[name].state
    if state not in _STOPPED:
        raise StepNotReady(
            say(
                "The process of replica %(replica_id)s is %(state)s, not stopped yet.",
                replica_id=replica_id,
                state=state,
            )
        )


def _give_back(context: StepContext, failover: Failover) -> None:
    """Nothing is to be lost, so nothing is changed: who led last leads again, what was stopped is started."""
    former_id = failover.decided_id
    assert former_id is not None, "decided before"
    answer = _promote(failover, former_id)
    if answer.status is None and not answer.refused:
        raise StepNotReady(
            say("Replica %(former_id)s does not lead again yet: %(error)s", former_id=former_id, error=answer.error),
            delay_s=0.3,
        )
    _start_stopped(context, failover)
    if answer.status is not None:
        timeline_add(
            failover,
            "given_back",
            say(
                "Replica %(former_id)s leads again, in epoch %(epoch)s.", former_id=former_id, epoch=answer.status.epoch
            ),
        )
    raise StepFailed(
        say("Messages may be lost: %(because)s No one has agreed to that.", because=failover.lossless_because),
        hint=CONFIRM,
    )


def _start_stopped(context: StepContext, failover: Failover) -> None:
    """Let go of what was stopped: as slaves, or asking the others first, for they have seen that they led."""
    for replica in cluster_replicas(context.cluster):
        if replica.group.name == failover.group_name and replica.fenced:
            _start_again(context, replica)


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
