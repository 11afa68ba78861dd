"""What each step of a promotion and of a switchover does. Every step may run twice, or from two workers, or again after
its worker was killed anywhere in it.

Nothing here decides by memory: rows say what was reserved and decided, replicas say what they are. What is decided is
fencing.py's and highwater/promotion.py's, in which order is order.py's, and what changes in the rows is rows.py's; here are the
requests, and the rows are read and written. Two epochs are reserved, by one worker of several: the fence, which the replicas
promise, and the one that is led in; each broker takes a promotion only from the fence.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from django.db import transaction
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.given_up import replicas_given_up
from controlplane.clusters.models import BrokerGroup, Cluster, Replica
from controlplane.clusters.operations import operation_was_retried
from controlplane.clusters.replica_remoting import Answer
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import bounded, from_sdk, say, say_all
from controlplane.failover.models import Failover, FailoverKind, GroupLeadership
from controlplane.failover.orders import Look, LookClosely, Pause, Result, carried_out
from controlplane.failover.promotion import order, rows
from controlplane.failover.promotion.agreement import agreement_holds
from controlplane.failover.promotion.order import TRY_AGAIN
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import (
    group_sample,
    hurried_timeouts_s,
    leader_note,
    rejoined_note,
)
from controlplane.failover.selectors import group_view
from controlplane.failover.timeline import timeline_add
from controlplane.failover.words import listed
from controlplane.provisioning.daemon_files import daemons_locked
from controlplane.provisioning.drivers.base import ProcessState
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.ports import leader_addresses
from controlplane.provisioning.processes import placed_replicas, replica_process_name
from controlplane.provisioning.steps import Step, StepContext
from controlplane.topics.services import topics_assert
from highwater.promotion import Ballot
from mqwire.bodies import ReplicaStatus

# Sends are held for so long at most: the master takes them again by itself should no one go on.
_FREEZE_MS = 10_000
_VERIFY_S = 4.0
_VERIFY_POLL_S = 0.02
_REJOIN_S = 40.0
TOPICS_S = 20.0
_STOPPED = (ProcessState.MISSING, ProcessState.STOPPED)


def failover_preflight(context: StepContext) -> None:
    """Look at every replica, and reserve an epoch above all that any replica has seen."""
    failover = present_failover(context)
    seen = _carried_out(context, failover, order.preflight)
    if seen is None:
        return
    held = say(
        "Replica %(replica_id)s holds the log to %(held_offset)s in epoch %(log_epoch)s",
        replica_id=seen.candidate.replica_id,
        held_offset=seen.candidate.held_offset,
        log_epoch=seen.candidate.log_epoch,
    )
    known = (
        ""
        if seen.former is None
        else say(
            "; replica %(replica_id)s was last known to end at %(end_offset)s",
            replica_id=seen.former.replica_id,
            end_offset=seen.former.end_offset,
        )
    )
    timeline_add(
        failover,
        "preflight",
        say("%(held)s%(known)s. Epoch %(epoch)s is reserved.", held=held, known=known, epoch=seen.ballot.epoch),
    )


def failover_drain(context: StepContext) -> None:
    """Hold sends until the candidate has everything."""
    failover = present_failover(context)
    end_offset = _carried_out(context, failover, order.drain)
    if end_offset is None:
        return
    _save(failover, drained_offset=end_offset)
    timeline_add(
        failover,
        "drained",
        say(
            "Replica %(candidate_id)s holds all %(end_offset)s bytes.",
            candidate_id=failover.candidate_id,
            end_offset=end_offset,
        ),
    )


def failover_fence(context: StepContext) -> None:
    """Fence the group, and decide for good who leads."""
    _carried_out(context, present_failover(context), order.fence)


def failover_promote(context: StepContext) -> None:
    """Have whom the promises decided for lead in the reserved epoch."""
    _carried_out(context, present_failover(context), order.promote)


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
        if (context.now - context.started_at).total_seconds() < TOPICS_S:
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
    its return is written when it is seen. It is not waited for while another group, whose promotion would wait, has no master.
    """
    failover = present_failover(context)
    cluster = context.cluster
    members = placed_replicas(cluster, failover.group_name)
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
    is_late = (context.now - context.started_at).total_seconds() >= _REJOIN_S
    if not is_late and not _others_without_master(cluster, failover.group_name):
        raise StepNotReady(
            say("Replica %(broker_id)s does not follow the new master yet.", broker_id=old.broker_id), delay_s=0.5
        )


def _others_without_master(cluster: Cluster, group_name: str) -> bool:
    others = BrokerGroup.objects.filter(cluster=cluster).exclude(name=group_name)
    views = (group_view(group).placed() for group in others.select_related("cluster"))
    return any(view.master is None and len(view.replicas) > 1 for view in views)


def _start_again(context: StepContext, replica: Replica) -> None:
    if replica.pk in replicas_given_up(context.cluster):
        return
    Replica.objects.filter(pk=replica.pk).update(fenced=False, updated_at=context.now)
    with daemons_locked(context.cluster, context.driver) as daemons:
        daemon = next(daemon for daemon in daemons if daemon.row == replica)
        context.driver.files_write(context.cluster.id, daemon.files)
        context.driver.process_start(daemon.process)


def present_failover(context: StepContext) -> Failover:
    """Return the failover that the operation works on: its newest."""
    found = Failover.objects.select_related("cluster__tenant", "operation").filter(operation=context.operation)
    return found.latest("created_at")


def replica_promoted(cluster: Cluster, group: str, address: str, request: order.Promote) -> Answer:
    """Carry out the request, with all that it says."""
    return replica_remoting.replica_promote(
        cluster,
        address,
        group=group,
        replica_id=request.replica_id,
        expected_epoch=request.ballot.fence,
        new_epoch=request.ballot.epoch,
        in_sync=request.in_sync,
        with_incomplete_log=request.with_incomplete_log,
        lacks_an_epoch=request.lacks_an_epoch,
    )


def group_now(context: StepContext) -> GroupView:
    """Ask every replica of the operation's group, and note what they say."""
    name = str(context.operation.metadata["group"])
    view = group_sample(context.cluster, name, context.driver, hurried=True)
    if view is None:
        raise StepFailed(say("The broker group %(name)s is gone.", name=name))
    return view.placed()


def _addresses(cluster: Cluster, group_name: str) -> dict[int, str]:
    return {replica.broker_id: replica.address for replica in placed_replicas(cluster, group_name)}


def _save(failover: Failover, **values: object) -> None:
    Failover.objects.filter(pk=failover.pk).update(**values, updated_at=timezone.now())
    failover.refresh_from_db()


def sends_stopped_note(failover: Failover) -> None:
    """Sends stop now, unless they had stopped before."""
    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=Coalesce("writes_stopped_at", timezone.now()))


def _carried_out(
    context: StepContext, failover: Failover, step: Callable[[order.Promotion], order.Order[Result]]
) -> Result:
    return carried_out(step(_promotion(failover)), _Execution(context, failover).carry_out)


def _promotion(failover: Failover) -> order.Promotion:
    reserved = failover.expected_epoch is not None and failover.new_epoch is not None
    return order.Promotion(
        candidate_id=failover.candidate_id,
        old_master_id=failover.old_master_id,
        begun_at=failover.created_at,
        may_lose=failover.confirmed_loss
        and agreement_holds(failover.created_at, timezone.now(), was_retried=_was_retried(failover)),
        drains=failover.kind == FailoverKind.SWITCHOVER,
        ballot=Ballot(failover.expected_epoch or 0, failover.new_epoch or 0) if reserved else None,
        decided_id=failover.decided_id,
        because=failover.lossless_because,
        lossless=bool(failover.lossless),
        may_lack=failover.may_lack,
    )


def _was_retried(failover: Failover) -> bool:
    return failover.operation is not None and operation_was_retried(failover.operation)


class _Execution:
    """One run of a step: what its order asks for (order.py), done by remoting, rows and the driver."""

    def __init__(self, context: StepContext, failover: Failover) -> None:
        self._context = context
        self._failover = failover
        self._held_at_s = time.monotonic()

    def carry_out(self, request: order.Request) -> object:
        """Return what the order wants to know."""
        context, failover = self._context, self._failover
        match request:
            case Look():
                return group_now(context)
            case LookClosely(replica_ids):
                asked = {replica_id: self._addresses[replica_id] for replica_id in replica_ids}
                answers = replica_remoting.replica_statuses(context.cluster, list(asked.values()))
                return {replica_id: answers[address].status for replica_id, address in asked.items()}
            case Pause(pause_s, until_s):
                time.sleep(pause_s)
                return time.monotonic() - self._held_at_s < until_s
            case order.Reserve(promotion, view):
                return self._reserve(promotion, view)
            case order.HoldSends(replica_id, epoch, hold):
                return self._hold_sends(replica_id, epoch, hold=hold)
            case order.Fence(replica_ids, epoch):
                return self._fence(replica_ids, epoch)
            case order.Stop(replica_id):
                replica_kill(context, failover.group_name, replica_id)
            case order.LetGo():
                self._let_go()
            case order.Decide(promotion, candidate_id, fenced):
                return self._decide(promotion, candidate_id, fenced)
            case order.Promote(replica_id):
                address = self._addresses[replica_id]
                return replica_promoted(context.cluster, failover.group_name, address, request)
            case order.NoteSendsStopped(stopped):
                if stopped:
                    sends_stopped_note(failover)
                else:
                    Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=None)
            case order.NoteGivenBack(status):
                leader_note(self._replica(status.replica_id), status)
                words = say(
                    "Replica %(former_id)s leads again, in epoch %(epoch)s.",
                    former_id=status.replica_id,
                    epoch=status.epoch,
                )
                timeline_add(failover, "given_back", words)
            case order.NoteLeader(promotion, status):
                self._note_leader(promotion, status)
        return None

    @cached_property
    def _addresses(self) -> dict[int, str]:
        return _addresses(self._context.cluster, self._failover.group_name)

    def _reserve(self, promotion: order.Promotion, view: GroupView) -> order.Promotion:
        with self._rows() as (failover, leadership):
            self._write(leadership, *rows.reserved(_promotion(failover), promotion, _group_row(leadership), view))
        self._failover.refresh_from_db()
        return _promotion(self._failover)

    @contextmanager
    def _rows(self) -> Iterator[tuple[Failover, GroupLeadership]]:
        """The promotion's row and its group's: what is read of them here is so until both are written."""
        failover = self._failover
        with transaction.atomic():
            groups = GroupLeadership.objects.select_for_update(of=("self",))
            leadership = groups.get(group__cluster=failover.cluster, group__name=failover.group_name)
            yield Failover.objects.select_for_update(of=("self",)).get(pk=failover.pk), leadership

    def _write(self, leadership: GroupLeadership, row: order.Promotion, group: rows.GroupRow, **values: object) -> None:
        """What rows.py has made of both, and `values` of the promotion's."""
        before, now = _group_row(leadership), timezone.now()
        assert row.ballot is not None, "reserved by now"
        Failover.objects.filter(pk=self._failover.pk).update(
            expected_epoch=row.ballot.fence,
            new_epoch=row.ballot.epoch,
            candidate_id=row.candidate_id,
            decided_id=row.decided_id,
            may_lack=row.may_lack,
            **values,
            updated_at=now,
        )
        if group == before:
            return
        leadership.epoch, leadership.asked_epoch = group.epoch, group.asked_epoch
        leadership.foreign_epoch = group.foreign_epoch
        if group.leader_id is not None and group.leader_id != before.leader_id:
            leadership.leader = self._replica(group.leader_id)
        if group.asked_id is not None and group.asked_id != before.asked_id:
            leadership.asked = self._replica(group.asked_id)
        leadership.save(update_fields=["epoch", "leader", "asked", "asked_epoch", "foreign_epoch", "updated_at"])

    def _hold_sends(self, replica_id: int, epoch: int, *, hold: bool) -> Answer:
        failover, for_ms = self._failover, _FREEZE_MS if hold else 0
        self._held_at_s = time.monotonic()
        answer = replica_remoting.replica_freeze_sends(
            failover.cluster, self._addresses[replica_id], group=failover.group_name, epoch=epoch, for_ms=for_ms
        )
        if hold and answer.status is not None:
            words = say(
                "Replica %(replica_id)s holds sends for %(freeze_ms)s s at most.",
                replica_id=replica_id,
                freeze_ms=_FREEZE_MS // 1000,
            )
            timeline_add(failover, "sends_held", words)
        return answer

    def _fence(self, replica_ids: Sequence[int], epoch: int) -> order.FenceAnswers:
        addresses = {one: self._addresses[one] for one in replica_ids if one in self._addresses}
        timeouts_s = hurried_timeouts_s(placed_replicas(self._context.cluster, self._failover.group_name))
        asked_at_s = time.time()
        answers = replica_remoting.replica_fences(
            self._context.cluster,
            list(addresses.values()),
            group=self._failover.group_name,
            epoch=epoch,
            timeouts_s=timeouts_s,
        )
        return order.FenceAnswers(asked_at_s, {one: answers[address] for one, address in addresses.items()})

    def _let_go(self) -> None:
        for replica in placed_replicas(self._context.cluster, self._failover.group_name):
            if replica.fenced:
                _start_again(self._context, replica)

    def _decide(self, promotion: order.Promotion, candidate_id: int, fenced: order.Fenced) -> order.Promotion:
        cleanness = fenced.decision.cleanness
        with self._rows() as (failover, leadership):
            row, group = rows.decided(_promotion(failover), promotion, _group_row(leadership), candidate_id, fenced)
            self._write(
                leadership,
                row,
                group,
                fence=fenced.fence,
                lossless=cleanness.clean,
                lossless_because=bounded(row.because, 512),
                bytes_at_risk=cleanness.bytes_at_risk,
                messages_at_risk=cleanness.messages_at_risk,
            )
        failover = self._failover
        failover.refresh_from_db()
        if not fenced.decision.gives_back:
            self._note_fenced(promotion, fenced)
        return _promotion(failover)

    def _note_fenced(self, promotion: order.Promotion, fenced: order.Fenced) -> None:
        failover, cleanness = self._failover, fenced.decision.cleanness
        words = {
            "none": say("No other replica led."),
            "demoted": say("It stepped down."),
            "stopped": _stopped_words(self._context, failover),
        }
        may_be_lost = (
            say("Messages may be lost, as was confirmed") if failover.confirmed_loss else say("Messages may be lost")
        )
        loss = say("Nothing acknowledged is lost") if cleanness.clean else may_be_lost
        asked_for = promotion.candidate_id
        instead = (
            ""
            if failover.candidate_id == asked_for
            else say("Replica %(asked_for)s would not have been clean.", asked_for=asked_for)
        )
        promised = listed([str(replica_id) for replica_id in fenced.promised_ids])
        timeline_add(
            failover,
            "fenced",
            say_all(
                words[fenced.fence],
                say("Epoch %(epoch)s was promised by %(promised)s.", epoch=failover.expected_epoch, promised=promised),
                say("%(loss)s: %(because)s", loss=loss, because=from_sdk(cleanness.because)),
                instead,
            ),
        )

    def _replica(self, replica_id: int) -> Replica:
        return Replica.objects.get(
            group__cluster=self._context.cluster, group__name=self._failover.group_name, broker_id=replica_id
        )

    def _note_leader(self, promotion: order.Promotion, status: ReplicaStatus | None) -> None:
        failover, candidate_id = self._failover, promotion.candidate_id
        assert promotion.ballot is not None, "it leads in its epoch"
        leader = self._replica(candidate_id)
        with self._rows() as (row, leadership):
            self._write(leadership, _promotion(row), rows.led(_group_row(leadership), promotion))
        if status is not None:
            leader_note(leader, status)
        timeline_add(
            failover,
            "promoted",
            say(
                "Replica %(candidate_id)s is the master (epoch %(new_epoch)s).",
                candidate_id=candidate_id,
                new_epoch=promotion.ballot.epoch,
            ),
        )


def _group_row(leadership: GroupLeadership) -> rows.GroupRow:
    leader, asked = leadership.leader, leadership.asked
    return rows.GroupRow(
        epoch=leadership.epoch,
        leader_id=None if leader is None else leader.broker_id,
        led_at=leadership.led_at,
        led_epoch=leadership.led_epoch,
        led_to_offset=leadership.led_to_offset,
        asked_id=None if asked is None else asked.broker_id,
        asked_epoch=leadership.asked_epoch,
        foreign_epoch=leadership.foreign_epoch,
    )


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
