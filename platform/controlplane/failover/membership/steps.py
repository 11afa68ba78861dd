"""What each step of a change of a group that elects its leader does. Every step may run twice, or from two workers, or again
after its worker was killed anywhere in it.

The group's log decides who counts and who leads. What is asked for, in which order, is order.py's; here are the requests and the
rows, in which nothing is remembered but replica ids.
"""

import time
from collections.abc import Sequence
from functools import cached_property

from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.given_up import recovery_asked_note, recovery_was_asked
from controlplane.clusters.models import BrokerGroup, Operation, Replica
from controlplane.common.errors import ApplicationError
from controlplane.common.logging import get_logger
from controlplane.common.sentences import from_sdk, say
from controlplane.failover.elections import epoch_record_time
from controlplane.failover.membership import order
from controlplane.failover.membership.plan import is_assigned_again, recovery_of
from controlplane.failover.membership.removal import leaving_carried_out, replica_stop
from controlplane.failover.membership.verdict import Electorate, electorate_of
from controlplane.failover.models import Failover, GroupLeadership
from controlplane.failover.orders import Look, LookClosely, Pause, Result, carried_out
from controlplane.failover.promotion.order import TRY_AGAIN, Fence, FenceAnswers, Promote
from controlplane.failover.promotion.steps import (
    TOPICS_S,
    failover_verify,
    group_now,
    present_failover,
    replica_promoted,
)
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.sampling import group_sample, leadership_raise
from controlplane.failover.timeline import timeline_add
from controlplane.failover.words import replica_names
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.processes import cluster_replicas, placed_replicas, replica_daemons
from controlplane.provisioning.steps import Step, StepContext, daemons_start, render_configuration
from controlplane.topics.services import topics_assert
from highwater.errors import HighwaterError, NoRouteError
from highwater.promotion import ballot_above
from highwater.recovery_order import LeadRecovered, PromiseRecovery, recovery_order
from mqwire.bodies import ReplicaStatus

_log = get_logger("controlplane.failover")


def quorum_look(context: StepContext) -> None:
    """Wait for a leader that takes sends: only it can change anything."""
    view, leader, electorate = _look(context)
    target = context.operation.metadata["target"]
    failover = Failover.objects.filter(operation=context.operation).first()
    if failover is None or leader.replica_id == target:
        return
    replica = view.replica(target)
    if replica is None or target not in electorate.voters:
        raise StepFailed(say("Replica %(target)s is no voter any more.", target=target), hint=TRY_AGAIN)
    behind = (
        say("an unknown distance")
        if replica.gap_bytes is None
        else say("%(gap_bytes)s bytes", gap_bytes=replica.gap_bytes)
    )
    timeline_add(
        failover,
        "looked",
        say(
            "Replica %(replica_id)s leads in epoch %(epoch)s, its log ends at %(end_offset)s;"
            " replica %(target)s is behind by %(behind)s.",
            replica_id=leader.replica_id,
            epoch=leader.epoch,
            end_offset=leader.end_offset,
            target=target,
            behind=behind,
        ),
    )


def quorum_transfer(context: StepContext) -> None:
    """Have the leader hand its role to the target. It waits within itself: each moment of it is outage."""
    failover = present_failover(context)
    _, leader, _ = _look(context, sends=False)
    target = failover.candidate_id
    if leader.replica_id != target:
        now = timezone.now()
        Failover.objects.filter(pk=failover.pk, writes_stopped_at=None).update(writes_stopped_at=now, updated_at=now)
        try:
            elected = _hand_over(context, leader, target, failover)
        except StepNotReady:
            Failover.objects.filter(pk=failover.pk).update(writes_stopped_at=None)
            raise
        epoch, expected = elected.epoch, leader.epoch
    else:  # the worker that asked was killed; or it came so by itself
        epoch, expected = leader.epoch or 0, failover.expected_epoch
    _look(context, sends=False)  # writes the new leader into the group's row, while this operation explains it
    Failover.objects.filter(pk=failover.pk).update(
        expected_epoch=expected, new_epoch=epoch, fence="none", updated_at=timezone.now()
    )
    elected_note(context, failover, target, epoch)


def quorum_step_aside(context: StepContext) -> None:
    """If the leader is to go, have it hand its role to a voter that stays."""
    _carried_out(context, order.step_aside(context.operation.metadata["removing"]))


def quorum_prefer(context: StepContext) -> None:
    """Write into the log whom the group wants as its leader."""
    wanted = context.operation.metadata["target"]
    _carried_out(context, order.prefer(wanted))
    BrokerGroup.objects.filter(cluster=context.cluster, name=_group(context)).update(
        preferred_leader=wanted, updated_at=timezone.now()
    )


def quorum_start_added(context: StepContext) -> None:
    """Start the new replicas, and wait until they accept connections. The others are left alone."""
    adding = _rows(context, "adding")
    daemons_start(
        context, [daemon for daemon in replica_daemons(context.cluster, context.driver) if daemon.row in adding]
    )


def quorum_observe(context: StepContext) -> None:
    """Name the new replicas to the leader, and wait until each pulls."""
    _carried_out(context, order.observe(_ids(context, "adding")))


def quorum_catch_up(context: StepContext) -> None:
    """Wait until the new replicas hold what the leader holds."""
    _carried_out(context, order.catch_up(_ids(context, "adding")))


def quorum_promote_added(context: StepContext) -> None:
    """Make the new replicas voters, one after the other."""
    _carried_out(context, order.make_voters(_ids(context, "adding")))


def quorum_remove(context: StepContext) -> None:
    """Take the votes of those that go, one after the other."""
    _carried_out(context, order.take_votes(context.operation.metadata["removing"]))


def quorum_stop_lost(context: StepContext) -> None:
    """Stop those that an operator gave up: with its old disk one of them could lead a group of its own.

    Not before a look: what was confirmed was of another moment, and they may have elected a leader since.
    """
    if not recovery_was_asked(context.operation):
        _require_lost(context)
    for row in _rows(context, "removing"):
        replica_stop(context, row)


def _require_lost(context: StepContext) -> None:
    """Raise StepFailed where any of those that an operator gave up answers with a disk that counted; an empty one is as lost."""
    name, metadata = _group(context), context.operation.metadata
    view = group_sample(context.cluster, name, context.driver)
    survivors = () if view is None else recovery_of(view, metadata["target"]).survivors
    if back := sorted(set(survivors).intersection(metadata["removing"])):
        words = say("Nothing was changed. Given up, but answering again: %(names)s.", names=replica_names(back))
        raise StepFailed(words, hint=TRY_AGAIN)


def quorum_recover(context: StepContext) -> None:
    """Have the chosen replica lead, with those that are left as the only voters, and wait until it takes sends."""
    name, metadata = _group(context), context.operation.metadata
    target, lost = metadata["target"], metadata["removing"]
    view = group_sample(context.cluster, name, context.driver)
    replica = None if view is None else view.replica(target)
    if view is None or replica is None:
        raise StepFailed(say("Replica %(target)s of %(name)s is gone.", target=target, name=name), hint=TRY_AGAIN)
    is_assigned = is_assigned_again(view, target)
    if replica.leads and (is_assigned or not set(lost) & set(electorate_of(view).voters)):
        recovery_asked_note(context.operation)
        if replica.accepts_sends is False and not is_assigned:
            raise StepNotReady(
                say(
                    "Replica %(target)s leads, but can confirm nothing yet: %(refusal)s.",
                    target=target,
                    refusal=replica.refusal,
                )
            )
        return
    if recovery_was_asked(context.operation) and _recovered_under(view, lost) is not None:
        return  # those that are left have elected another one since
    recovery = recovery_of(view, target)
    if recovery.problem is not None:
        words = say("Nothing was changed. %(problem)s", problem=from_sdk(recovery.problem))
        raise StepFailed(from_sdk(recovery.problem) if recovery_was_asked(context.operation) else words, hint=TRY_AGAIN)
    if set(recovery.lost) != set(lost):
        raise StepNotReady(
            say(
                "Voters %(lost)s do not answer now, and the loss of %(lost_2)s was confirmed.",
                lost=str(list(recovery.lost)),
                lost_2=lost,
            )
        )
    leadership = GroupLeadership.objects.get(group__cluster=context.cluster, group__name=name)
    ballot = ballot_above([leadership.epoch, *(one.epoch for one in view.replicas if one.epoch is not None)])
    if not leadership_raise(leadership, ballot.epoch, leadership.leader):
        raise StepNotReady(say("The group's epoch was raised by another request."), delay_s=0.2)
    if is_assigned:
        _carried_out(context, order.lead_assigned(view, recovery, target, ballot))
        raise StepNotReady(say("Replica %(target)s does not lead yet.", target=target), delay_s=0.2)
    try:
        carried_out(recovery_order(recovery, target, ballot), _Recovery(context).carry_out)
    except NoRouteError as refused:
        raise StepNotReady(from_sdk(refused.args[0]), delay_s=0.2) from refused
    raise StepNotReady(say("Replica %(target)s does not take sends yet.", target=target), delay_s=0.2)


def _recovered_under(view: GroupView, lost: Sequence[int]) -> ReplicaView | None:
    """Return who leads a group that elects without those that are lost, if it takes sends."""
    master = view.master
    if (
        master is None
        or not master.accepts_sends
        or view.elections_in_doubt
        or set(lost) & set(electorate_of(view).voters)
    ):
        return None
    return master


def quorum_topics(context: StepContext) -> None:
    """Have the leader of a recovered group know every topic: one may have been known to none but those that are lost.

    What can't be done in time does not fail what is done.
    """
    cluster, metadata = context.cluster, context.operation.metadata
    view = group_sample(cluster, _group(context), context.driver)
    leader = None if view is None else _recovered_under(view, metadata["removing"])
    leads = metadata["target"] if leader is None else leader.replica_id
    row = next((row for row in _replicas(context) if row.broker_id == leads), None)
    if row is None:
        return
    try:
        lacked = topics_assert(cluster, _group(context), row.address)
    except ApplicationError as error:
        if (context.now - context.started_at).total_seconds() < TOPICS_S:
            raise StepNotReady(
                say("The topics of the new leader could not be checked: %(message)s", message=error.message)
            ) from error
        _log.warning("the topics of a recovered leader could not be checked", error=error.message)
        return
    if lacked:
        _log.info("a recovered leader lacked topics", topics=sorted(lacked))


def quorum_forget(context: StepContext) -> None:
    """Stop those that count no more, and free their ports, their rows and their room."""
    _carried_out(context, order.leave(_ids(context, "removing")))


def _look(context: StepContext, *, sends: bool = True) -> tuple[GroupView, ReplicaView, Electorate]:
    return _carried_out(context, order.look(sends=sends))


def _hand_over(context: StepContext, leader: ReplicaView, target: int, failover: Failover) -> ReplicaStatus:
    """Have the role handed over; raises StepNotReady when the leader goes on."""
    execution = _Execution(context)
    carried_out(order.asked_to_hand_over(leader, target), execution.carry_out)
    timeline_add(
        failover,
        "sends_held",
        say(
            "Replica %(replica_id)s takes no sends until replica %(target)s leads.",
            replica_id=leader.replica_id,
            target=target,
        ),
    )
    return carried_out(order.handed_over(leader, target), execution.carry_out)


def _carried_out(context: StepContext, steps: order.Order[Result]) -> Result:
    return carried_out(steps, _Execution(context).carry_out)


class _Execution:
    """One run of a step: what its order asks for (order.py), done by remoting."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._asked_at_s = time.monotonic()

    def carry_out(self, request: order.Request) -> object:
        """Return what the order wants to know."""
        cluster, name = self._context.cluster, _group(self._context)
        match request:
            case Look():
                return group_now(self._context)
            case LookClosely(replica_ids):
                asked = {replica_id: self._addresses[replica_id] for replica_id in replica_ids}
                answers = replica_remoting.replica_statuses(cluster, list(asked.values()))
                return {replica_id: answers[address].status for replica_id, address in asked.items()}
            case Pause(pause_s, until_s):
                time.sleep(pause_s)
                return time.monotonic() - self._asked_at_s < until_s
            case order.Transfer(leader_id, target_id):
                self._asked_at_s = time.monotonic()
                address = self._addresses[leader_id]
                return replica_remoting.replica_transfer(cluster, address, group=name, target=target_id)
            case order.ChangeMembers(leader_id, change, replica_id):
                new = self._addresses[replica_id] if change == "addObserver" and replica_id is not None else None
                return replica_remoting.replica_members(
                    cluster,
                    self._addresses[leader_id],
                    group=name,
                    change=change,
                    replica_id=replica_id,
                    replica_address=new,
                )
            case order.StopForGood() | order.Forget() | order.Free():
                return leaving_carried_out(self._context, request)
            case order.NoteTarget(target_id):
                operation = self._context.operation
                metadata = {**operation.metadata, "target": target_id}
                Operation.objects.filter(pk=operation.pk).update(metadata=metadata, updated_at=timezone.now())
            case Fence(replica_ids, epoch):
                return self._fence(replica_ids, epoch)
            case order.NoteAsked(replica_id, ballot):
                recovery_asked_note(self._context.operation)
                row = next(row for row in _replicas(self._context) if row.broker_id == replica_id)
                groups = GroupLeadership.objects.filter(group=row.group, epoch=ballot.epoch)
                groups.update(asked=row, asked_epoch=ballot.epoch, updated_at=timezone.now())
            case Promote(replica_id):
                return replica_promoted(cluster, name, self._addresses[replica_id], request)
        return None

    def _fence(self, replica_ids: Sequence[int], epoch: int) -> FenceAnswers:
        asked_at_s = time.time()
        answers = replica_remoting.replica_fences(
            self._context.cluster,
            [self._addresses[replica_id] for replica_id in replica_ids],
            group=_group(self._context),
            epoch=epoch,
        )
        return FenceAnswers(asked_at_s, {one: answers[self._addresses[one]] for one in replica_ids})

    @cached_property
    def _addresses(self) -> dict[int, str]:
        return {row.broker_id: row.address for row in _replicas(self._context)}


class _Recovery:
    """One run of a recovery: what its order asks for, done by remoting."""

    def __init__(self, context: StepContext) -> None:
        self._context, self._name = context, _group(context)
        self._addresses = {row.broker_id: row.address for row in _replicas(context)}

    def carry_out(self, request: PromiseRecovery | LeadRecovered) -> ReplicaStatus | HighwaterError:
        """Return what the replica says then, or why it says nothing."""
        cluster, address = self._context.cluster, self._addresses[request.replica_id]
        match request:
            case PromiseRecovery():
                answer = replica_remoting.replica_recovery_promise(
                    cluster,
                    address,
                    group=self._name,
                    epoch=request.epoch,
                    leader_address=None
                    if request.leader_id == request.replica_id
                    else self._addresses[request.leader_id],
                    lost=request.lost,
                )
            case LeadRecovered():
                recovery_asked_note(self._context.operation)
                answer = replica_remoting.replica_promote(
                    cluster,
                    address,
                    group=self._name,
                    replica_id=request.replica_id,
                    expected_epoch=request.expected_epoch,
                    new_epoch=request.new_epoch,
                    lost=request.lost,
                )
        return NoRouteError(answer.error) if answer.status is None else answer.status


def elected_note(context: StepContext, failover: Failover, target: int, epoch: int) -> None:
    """Write into the timeline who was elected, and when it wrote the record of its epoch."""
    row = next(row for row in _replicas(context) if row.broker_id == target)
    status = replica_remoting.replica_statuses(context.cluster, [row.address])[row.address].status
    record = (
        None if status is None or status.epoch != epoch else epoch_record_time(context.cluster, row.address, status)
    )
    if record is None:
        words = say("Replica %(target)s is the leader (epoch %(epoch)s).", target=target, epoch=epoch)
    else:
        words = say(
            "Replica %(target)s is the leader (epoch %(epoch)s), whose record it wrote at %(time)s UTC by its clock.",
            target=target,
            epoch=epoch,
            time=f"{record:%H:%M:%S.%f}"[:-3],
        )
    timeline_add(failover, "elected", words)


def _group(context: StepContext) -> str:
    return str(context.operation.metadata["group"])


def _replicas(context: StepContext) -> list[Replica]:
    return placed_replicas(context.cluster, _group(context))


def _ids(context: StepContext, which: str) -> list[int]:
    return [row.broker_id for row in _rows(context, which)]


def _rows(context: StepContext, which: str) -> list[Replica]:
    """The rows of those that are added or removed; who is gone already is left out."""
    wanted = context.operation.metadata[which]
    rows = [replica for replica in cluster_replicas(context.cluster) if replica.group.name == _group(context)]
    return [replica for replica in rows if replica.broker_id in wanted]


STEPS: dict[str, Step] = {
    **{
        step.__name__: step
        for step in (
            quorum_look,
            quorum_transfer,
            quorum_step_aside,
            quorum_prefer,
            quorum_start_added,
            quorum_observe,
            quorum_catch_up,
            quorum_promote_added,
            quorum_remove,
            quorum_topics,
            quorum_forget,
            quorum_stop_lost,
            quorum_recover,
        )
    },
    # The same work, at another place of a workflow.
    "quorum_verify": failover_verify,
    "render_configuration_again": render_configuration,
}
