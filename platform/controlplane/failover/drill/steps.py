"""What the steps of a drill do beside those of a promotion or a transfer, which they share. Every step may run twice, or from
two workers, or again after its worker was killed anywhere in it.

Should the group lose its leader's messages by this, nothing would be proven: so the promotion is judged again after the fence,
as any other, and given back unless it is clean.
"""

import time
from datetime import timedelta

from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Replica
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say, say_all
from controlplane.failover.drill.measurement import Measurement, measure, probes_of
from controlplane.failover.drill.plan import plan_drill
from controlplane.failover.drill.prober import GONE_AFTER, probe_number, prober_start
from controlplane.failover.membership.steps import elected_note, quorum_transfer
from controlplane.failover.models import Drill, DrillFault, Failover, FailoverKind
from controlplane.failover.promotion.steps import (
    failover_drain,
    failover_fence,
    failover_preflight,
    failover_promote,
    failover_rejoin,
    failover_topics,
    failover_verify,
    present_failover,
    replica_kill,
    sends_stopped_note,
)
from controlplane.failover.promotion.verdict import GroupView
from controlplane.failover.sampling import group_sample
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.processes import placed_replicas, replica_process_name
from controlplane.provisioning.steps import Step, StepContext
from highwater import MessageQueue
from mqwire.names import RMQ_SYS_PROBE

# So many probes are accepted before the leader is stopped, and so many after writes are back.
_PROBES_AROUND = 20
_AFTER_S = 10.0
_ELECTION_S = 5.0
_ELECTION_POLL_S = 0.02
_READ_BACK_S = 30.0
_PULLED_AT_ONCE = 32
_CUT_S = 15
_TRY_AGAIN = say("Look at the group's replicas, and start another drill once it is healthy.")


def drill_preflight(context: StepContext) -> None:
    """Look again, now that no other operation can begin; with assigned leaders, reserve the epoch, too."""
    drill, failover = _drill(context), present_failover(context)
    if failover.expected_epoch is not None:
        return
    view = _view(context, drill)
    plan = plan_drill(view, context.now, gives_back=drill.gives_back, fault=DrillFault(drill.fault))
    if plan.problems:
        raise StepFailed(say_all(say("Nothing was stopped."), *plan.problems), hint=_TRY_AGAIN)
    if plan.leader_id != drill.leader_id:
        raise StepFailed(
            say("Nothing was stopped: replica %(leader_id)s leads by now.", leader_id=plan.leader_id), hint=_TRY_AGAIN
        )
    if not view.elects:
        failover_preflight(context)
        return
    leader = view.master
    epoch = None if leader is None else leader.epoch
    Failover.objects.filter(pk=failover.pk).update(expected_epoch=epoch, updated_at=timezone.now())
    timeline_add(
        failover,
        "preflight",
        say(
            "Replica %(leader_id)s is the leader (epoch %(epoch)s). The others are in sync.",
            leader_id=drill.leader_id,
            epoch=epoch,
        ),
    )


def drill_probe(context: StepContext) -> None:
    """Have probes sent, and wait until enough of them are accepted: only then an outage can be seen."""
    drill = _drill(context)
    if drill.probing_started_at is None or _prober_is_gone(drill):
        prober_start(drill)
        raise StepNotReady(say("The first probe messages are sent."), delay_s=1.0)
    accepted = sum(probe.accepted for probe in probes_of(drill.probes))
    if accepted < _PROBES_AROUND:
        raise StepNotReady(
            say(
                "%(accepted)s of %(probes_around)s probe messages were accepted so far.",
                accepted=accepted,
                probes_around=_PROBES_AROUND,
            ),
            delay_s=0.5,
        )
    timeline_add(
        drill.failover, "probing", say("%(accepted)s probe messages were accepted before the fault.", accepted=accepted)
    )


def drill_fault(context: StepContext) -> None:
    """Cut the leader off, or suspend its process, and, unless it is to hang, kill it, without giving it the time to say
    good-bye. No one starts it before it is let go.
    """
    drill = _drill(context)
    row = next(row for row in _replicas(context, drill) if row.broker_id == drill.leader_id)
    Drill.objects.filter(pk=drill.pk, fault_at=None).update(fault_at=timezone.now())
    if drill.fault == DrillFault.CUT:
        _cut(context, drill, row)
        return
    # It stands still first: the supervisor's word for an end that is not followed by a restart begins by asking politely.
    context.driver.process_pause(replica_process_name(context.cluster, row))
    if drill.fault == DrillFault.KILL:
        _end_fault(context, drill)
    drill.refresh_from_db()
    if drill.fault == DrillFault.KILL:
        what = say("The process of replica %(replica)s was killed.", replica=drill.leader_id)
    else:
        what = say("The process of replica %(replica)s was suspended, and answers nothing.", replica=drill.leader_id)
    sends_stopped_note(drill.failover)
    Failover.objects.filter(pk=drill.failover_id).update(fence="stopped", updated_at=timezone.now())
    timeline_add(drill.failover, "fault", what, at=drill.fault_at)


def _cut(context: StepContext, drill: Drill, row: Replica) -> None:
    """Have the leader be cut off. One that does not answer is, by a former try of this step."""
    answer = replica_remoting.network_cut(
        context.cluster, row.address, group=drill.group_name, replica_id=drill.leader_id, for_ms=_CUT_S * 1000
    )
    if answer.refused:
        Drill.objects.filter(pk=drill.pk).update(fault_ended_at=timezone.now(), updated_at=timezone.now())
        raise StepFailed(say("Nothing was cut: %(error)s.", error=answer.error), hint=_TRY_AGAIN)
    drill.refresh_from_db()
    sends_stopped_note(drill.failover)
    what = say(
        "Replica %(leader_id)s is cut off from everyone for %(cut_s)s s, and runs on.",
        leader_id=drill.leader_id,
        cut_s=_CUT_S,
    )
    timeline_add(drill.failover, "fault", what, at=drill.fault_at)


def drill_elect(context: StepContext) -> None:
    """Wait until the group has elected another leader that takes sends. It waits within itself: each moment is outage."""
    drill, failover = _drill(context), present_failover(context)
    if failover.new_epoch is None:
        leader_id, epoch = _elected(context, drill, failover.expected_epoch or 0)
        Failover.objects.filter(pk=failover.pk, new_epoch=None).update(
            candidate_id=leader_id,
            new_epoch=epoch,
            lossless=True,
            lossless_because=say("the elected replica holds all that a majority had confirmed."),
            updated_at=timezone.now(),
        )
        failover.refresh_from_db()
    _view(context, drill)  # writes the new leader into the group's row, while this operation explains it
    elected_note(context, failover, failover.candidate_id, failover.new_epoch or 0)


def drill_end_fault(context: StepContext) -> None:
    """Kill a process that hangs, once writes are back: what is to follow must be started again. A cut ends by itself."""
    drill = _drill(context)
    if drill.fault == DrillFault.CUT and drill.failover.fence != "stopped":
        ends_at = (drill.fault_at or context.now) + timedelta(seconds=_CUT_S)
        if timezone.now() < ends_at:
            raise StepNotReady(say("Replica %(leader_id)s is still cut off.", leader_id=drill.leader_id), delay_s=1.0)
        Drill.objects.filter(pk=drill.pk).update(fault_ended_at=ends_at, updated_at=timezone.now())
        return
    _end_fault(context, drill)


def _end_fault(context: StepContext, drill: Drill) -> None:
    replica_kill(context, drill.group_name, drill.leader_id)
    Drill.objects.filter(pk=drill.pk).update(fault_ended_at=timezone.now(), updated_at=timezone.now())


def drill_judge(context: StepContext) -> None:
    """End the probing, read the probes back from who leads now, and write the report."""
    drill = _drill(context)
    if drill.judged_at is not None:
        return
    gone = _prober_is_gone(drill)
    if drill.probing_until is None:
        fault_ms = _fault_ms(drill)
        after = sum(probe.accepted and probe.answered_ms > (fault_ms or 0) for probe in probes_of(drill.probes))
        waited_s = (context.now - context.started_at).total_seconds()
        if after < _PROBES_AROUND and not gone and waited_s < _AFTER_S:
            raise StepNotReady(
                say(
                    "%(after)s of %(probes_around)s probe messages were accepted since the fault.",
                    after=after,
                    probes_around=_PROBES_AROUND,
                ),
                delay_s=0.5,
            )
        Drill.objects.filter(pk=drill.pk, probing_until=None).update(probing_until=context.now)
    if drill.probing_ended_at is None and not gone:
        raise StepNotReady(say("The last probe messages are answered."), delay_s=0.5)
    found = _numbers_found(context, drill)
    measured = measure(probes_of(drill.probes), _fault_ms(drill), found, ended_early=drill.probing_ended_at is None)
    _report(drill, measured)


def return_begin(context: StepContext) -> None:
    """Wait until the old leader follows closely, and write down that it is to lead again."""
    drill = _drill(context)
    rows = Failover.objects.filter(operation=context.operation).exclude(pk=drill.failover_id)
    if rows.exists():
        return
    view = _view(context, drill)
    old, leader = view.replica(drill.leader_id), view.master
    if leader is None or old is None or (leader is not old and not old.in_sync):
        raise StepNotReady(say("Replica %(leader_id)s has not caught up yet.", leader_id=drill.leader_id), delay_s=0.5)
    back = Failover.objects.create(
        operation=context.operation,
        cluster=context.cluster,
        group_name=drill.group_name,
        kind=FailoverKind.TRANSFER if view.elects else FailoverKind.SWITCHOVER,
        requested_by=drill.requested_by,
        candidate_id=drill.leader_id,
        old_master_id=leader.replica_id,
        bytes_at_risk=0,
        messages_at_risk=0,
        lossless=True if view.elects else None,
        lossless_because=say("the leader hands its role over only to a voter that holds all that it holds.")
        if view.elects
        else "",
    )
    timeline_add(
        back,
        "requested",
        say(
            "After a drill, by %(requested_by)s: the leadership back to its old leader.",
            requested_by=drill.requested_by,
        ),
    )


def _report(drill: Drill, measured: Measurement) -> None:
    now, outage = timezone.now(), measured.outage
    won = Drill.objects.filter(pk=drill.pk, judged_at=None).update(
        judged_at=now,
        verdict=measured.verdict,
        verdict_because=measured.because,
        rto_ms=None if outage is None else outage.lasted_ms,
        outage_from_ms=None if outage is None else outage.from_ms,
        probes_sent=measured.sent,
        probes_acknowledged=measured.acknowledged,
        probes_missing=measured.missing,
        updated_at=now,
    )
    if won == 1 and outage is not None and drill.probing_started_at is not None:
        Failover.objects.filter(pk=drill.failover_id).update(
            writes_stopped_at=drill.probing_started_at + timedelta(milliseconds=outage.from_ms),
            writes_back_at=drill.probing_started_at + timedelta(milliseconds=outage.to_ms),
            measured_how=say("Measured by probe messages, one every 50 ms."),
            updated_at=now,
        )
    if won == 1:
        timeline_add(drill.failover, "measured", measured.because, at=now)


def _numbers_found(context: StepContext, drill: Drill) -> set[int] | None:
    """Read the probe topic from the first probe on; None when that does not succeed in time."""
    if drill.first_queue_offset is None or drill.prober is None:
        return set()
    found: set[int] = set()
    queue = MessageQueue(RMQ_SYS_PROBE, drill.group_name, 0)
    offset = drill.first_queue_offset
    try:
        with cluster_admin(context.cluster) as admin:
            # Each pull brings one message at least, and no more were sent than this, but for the first write's.
            for _ in range(len(drill.probes) + _PULLED_AT_ONCE):
                messages = [one for one in admin.pull(queue, offset, _PULLED_AT_ONCE) if one.queue_offset >= offset]
                if not messages:
                    break
                numbers = (probe_number(drill.prober, message.body) for message in messages)
                found.update(number for number in numbers if number is not None)
                offset = messages[-1].queue_offset + 1
    except ApplicationError as error:
        if (context.now - context.started_at).total_seconds() < _READ_BACK_S:
            raise StepNotReady(
                say("The probe messages could not be read back yet: %(message)s", message=error.message)
            ) from error
        return None
    return found


def _elected(context: StepContext, drill: Drill, above: int) -> tuple[int, int]:
    """Look closely at the others until one leads in a newer epoch and takes sends; raises StepNotReady after a while."""
    rows = {row.address: row.broker_id for row in _replicas(context, drill) if row.broker_id != drill.leader_id}
    deadline = time.monotonic() + _ELECTION_S
    while time.monotonic() < deadline:
        for address, answer in replica_remoting.replica_statuses(context.cluster, list(rows)).items():
            status = answer.status
            if status is not None and status.role == "master" and status.epoch > above and status.accepts_sends:
                return rows[address], status.epoch
        time.sleep(_ELECTION_POLL_S)
    raise StepNotReady(say("No other replica has been elected yet."), delay_s=0.1)


def _fault_ms(drill: Drill) -> int | None:
    if drill.fault_at is None or drill.probing_started_at is None:
        return None
    return round((drill.fault_at - drill.probing_started_at) / timedelta(milliseconds=1))


def _prober_is_gone(drill: Drill) -> bool:
    return drill.probing_ended_at is None and (drill.probed_at is None or timezone.now() - drill.probed_at > GONE_AFTER)


def _drill(context: StepContext) -> Drill:
    return Drill.objects.select_related("cluster__tenant", "failover", "operation").get(operation=context.operation)


def _view(context: StepContext, drill: Drill) -> GroupView:
    view = group_sample(context.cluster, drill.group_name, context.driver)
    if view is None:
        raise StepFailed(say("The broker group %(group_name)s is gone.", group_name=drill.group_name))
    return view.placed()


def _replicas(context: StepContext, drill: Drill) -> list[Replica]:
    return placed_replicas(context.cluster, drill.group_name)


STEPS: dict[str, Step] = {
    **{
        step.__name__: step
        for step in (drill_preflight, drill_probe, drill_fault, drill_elect, drill_end_fault, drill_judge, return_begin)
    },
    # The same work, at another place of a workflow.
    "return_preflight": failover_preflight,
    "return_drain": failover_drain,
    "return_fence": failover_fence,
    "return_promote": failover_promote,
    "return_transfer": quorum_transfer,
    "return_verify": failover_verify,
    "return_topics": failover_topics,
    "return_rejoin": failover_rejoin,
}
