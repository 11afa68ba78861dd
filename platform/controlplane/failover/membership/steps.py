"""What each step of a change of a group that elects its leader does. Every step may run twice, or from two workers, or again
after its worker was killed anywhere in it.

The group's log decides who counts and who leads; a step asks the leader for one thing, unless that is so already, and looks
until a majority has confirmed it. Nothing here is remembered but replica ids.
"""

import time

from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Operation, Replica
from controlplane.common.sentences import from_sdk, say
from controlplane.failover.elections import epoch_record_time
from controlplane.failover.membership.plan import recovery_of, successor
from controlplane.failover.membership.removal import forgotten_by, replica_remove, replica_stop
from controlplane.failover.membership.verdict import Electorate, electorate_of, keeps_up
from controlplane.failover.models import Failover, GroupLeadership
from controlplane.failover.promotion.steps import failover_verify, present_failover
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.sampling import group_sample, leadership_raise
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning.errors import StepFailed, StepNotReady
from controlplane.provisioning.processes import cluster_replicas, replica_daemons
from controlplane.provisioning.steps import Step, StepContext, daemons_start, render_configuration
from highwater.promotion import ballot_above
from mqwire.bodies import ReplicaStatus

# A leader gives a transfer up after 1.5 s and goes on; an election of another takes three at most.
_TRANSFER_S = 6.0
_POLL_S = 0.02
_MEBIBYTE = 1024 * 1024
_TRY_AGAIN = say("Look at the group's replicas, and ask again.")


def quorum_look(context: StepContext) -> None:
    """Wait for a leader that takes sends: only it can change anything."""
    view, leader, electorate = _look(context)
    target = context.operation.metadata["target"]
    failover = Failover.objects.filter(operation=context.operation).first()
    if failover is None or leader.replica_id == target:
        return
    replica = view.replica(target)
    if replica is None or target not in electorate.voters:
        raise StepFailed(say("Replica %(target)s is no voter any more.", target=target), hint=_TRY_AGAIN)
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
    view, leader, _ = _look(context, sends=False)
    target = failover.candidate_id
    if leader.replica_id != target:
        now = timezone.now()
        Failover.objects.filter(pk=failover.pk, writes_stopped_at=None).update(writes_stopped_at=now, updated_at=now)
        try:
            elected = _hand_over(context, view, leader, target, failover)
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
    view, leader, electorate = _look(context)
    removing = context.operation.metadata["removing"]
    if leader.replica_id not in removing:
        return
    target = successor(view, electorate, removing)
    if target is None:
        raise StepNotReady(say("No remaining voter has caught up with the leader yet."), delay_s=1.0)
    Operation.objects.filter(pk=context.operation.pk).update(
        metadata={**context.operation.metadata, "target": target}, updated_at=timezone.now()
    )
    _hand_over(context, view, leader, target, None)
    _look(context, sends=False)


def quorum_prefer(context: StepContext) -> None:
    """Write into the log whom the group wants as its leader."""
    wanted = context.operation.metadata["target"]
    _, leader, electorate = _look(context)
    if electorate.preferred_leader != wanted:
        _change(context, leader, "prefer", wanted)
        raise StepNotReady(say("A majority has not confirmed it yet."), delay_s=0.2)
    _confirmed(electorate)
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
    view, leader, electorate = _look(context)
    for row in _rows(context, "adding"):
        if row.broker_id in electorate.voters:
            continue
        replica = view.replica(row.broker_id)
        if replica is None or replica.in_sync is None:
            _change(context, leader, "addObserver", row.broker_id, row.address)
            raise StepNotReady(say("Replica %(broker_id)s does not pull from the leader yet.", broker_id=row.broker_id))


def quorum_catch_up(context: StepContext) -> None:
    """Wait until the new replicas hold what the leader holds."""
    view, _, electorate = _look(context)
    for row in _rows(context, "adding"):
        replica = view.replica(row.broker_id)
        if row.broker_id in electorate.voters or (replica is not None and keeps_up(replica)):
            continue
        behind = None if replica is None else replica.gap_bytes
        words = (
            say("It does not pull just now.")
            if behind is None
            else say("It is %(behind)s MiB behind.", behind=f"{behind / _MEBIBYTE:.1f}")
        )
        raise StepNotReady(
            say("Replica %(broker_id)s has not caught up yet. %(words)s", broker_id=row.broker_id, words=words),
            delay_s=1.0,
        )


def quorum_promote_added(context: StepContext) -> None:
    """Make the new replicas voters, one after the other: each change waits for the one before it."""
    _, leader, electorate = _look(context)
    _confirmed(electorate)
    for row in _rows(context, "adding"):
        if row.broker_id not in electorate.voters:
            _change(context, leader, "addVoter", row.broker_id)
            raise StepNotReady(
                say("A majority has not confirmed replica %(broker_id)s as a voter yet.", broker_id=row.broker_id),
                delay_s=0.2,
            )


def quorum_remove(context: StepContext) -> None:
    """Take the votes of those that go, one after the other."""
    view, leader, electorate = _look(context)
    _confirmed(electorate)
    for replica_id in context.operation.metadata["removing"]:
        if replica_id not in electorate.voters:
            continue
        if replica_id == leader.replica_id:
            target = successor(view, electorate, context.operation.metadata["removing"])
            if target is None:
                raise StepNotReady(
                    say(
                        "Replica %(replica_id)s is the leader, and no remaining voter has caught up yet.",
                        replica_id=replica_id,
                    ),
                    delay_s=1.0,
                )
            _hand_over(context, view, leader, target, None)
            raise StepNotReady(say("Replica %(target)s leads now.", target=target), delay_s=0.2)
        _change(context, leader, "removeVoter", replica_id)
        raise StepNotReady(
            say("A majority has not confirmed that replica %(replica_id)s counts no more.", replica_id=replica_id),
            delay_s=0.2,
        )


def quorum_stop_lost(context: StepContext) -> None:
    """Stop those that an operator gave up: with its old disk one of them could lead a group of its own."""
    for row in _rows(context, "removing"):
        replica_stop(context, row)


def quorum_recover(context: StepContext) -> None:
    """Have the chosen replica lead, with those that are left as the only voters, and wait until it takes sends."""
    name, metadata = _group(context), context.operation.metadata
    target, lost = metadata["target"], metadata["removing"]
    view = group_sample(context.cluster, name, context.driver)
    replica = None if view is None else view.replica(target)
    if view is None or replica is None:
        raise StepFailed(say("Replica %(target)s of %(name)s is gone.", target=target, name=name), hint=_TRY_AGAIN)
    if replica.leads and not set(lost) & set(electorate_of(view).voters):
        if replica.accepts_sends is False:
            raise StepNotReady(
                say(
                    "Replica %(target)s leads, but can confirm nothing yet: %(refusal)s.",
                    target=target,
                    refusal=replica.refusal,
                )
            )
        return
    recovery = recovery_of(view, target)
    if recovery.problem is not None:
        raise StepFailed(say("Nothing was changed. %(problem)s", problem=from_sdk(recovery.problem)), hint=_TRY_AGAIN)
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
    address = next(row.address for row in _replicas(context) if row.broker_id == target)
    answer = replica_remoting.replica_promote(
        context.cluster,
        address,
        group=name,
        replica_id=target,
        expected_epoch=replica.epoch or 0,
        new_epoch=ballot.epoch,
        lost=lost,
    )
    error = "" if answer.status is not None else say(": %(error)s", error=answer.error)
    raise StepNotReady(
        say("Replica %(target)s does not take sends yet%(error)s.", target=target, error=error), delay_s=0.2
    )


def quorum_forget(context: StepContext) -> None:
    """Stop those that count no more, and free their ports, their rows and their room."""
    for row in _rows(context, "removing"):
        replica_remove(context, row, lambda gone: _have_forgotten(context, gone))


def _have_forgotten(context: StepContext, gone: Replica) -> None:
    """The leader first. A change of the mode into DLedger would wait for what one that is away keeps."""
    _, leader, _ = _look(context)
    rows = [row for row in _replicas(context) if row.broker_id not in context.operation.metadata["removing"]]
    rows.sort(key=lambda row: row.broker_id != leader.replica_id)
    forgotten_by(context.cluster, gone, [row.address for row in rows])


def _look(context: StepContext, *, sends: bool = True) -> tuple[GroupView, ReplicaView, Electorate]:
    """Ask every replica; return the group, its leader and who counts. Raises StepNotReady without a leader, and, with
    `sends`, while that one can confirm nothing.
    """
    name = _group(context)
    view = group_sample(context.cluster, name, context.driver)
    if view is None:
        raise StepFailed(say("The broker group %(name)s is gone.", name=name))
    leader = view.master
    if leader is None:
        raise StepNotReady(say("%(name)s has no leader right now.", name=name))
    if sends and leader.accepts_sends is False:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s leads, but can confirm nothing: %(refusal)s.",
                replica_id=leader.replica_id,
                refusal=leader.refusal,
            )
        )
    return view, leader, electorate_of(view)


def _hand_over(
    context: StepContext, view: GroupView, leader: ReplicaView, target: int, failover: Failover | None
) -> ReplicaStatus:
    """Ask for the transfer, and look closely until the target leads; raises StepNotReady when the leader goes on."""
    addresses = {row.broker_id: row.address for row in _replicas(context)}
    answer = replica_remoting.replica_transfer(
        context.cluster, addresses[leader.replica_id], group=view.name, target=target
    )
    if answer.status is None:
        raise StepNotReady(
            say(
                "Replica %(replica_id)s did not hand its role over: %(error)s",
                replica_id=leader.replica_id,
                error=answer.error,
            )
        )
    if failover is not None:
        timeline_add(
            failover,
            "sends_held",
            say(
                "Replica %(replica_id)s takes no sends until replica %(target)s leads.",
                replica_id=leader.replica_id,
                target=target,
            ),
        )
    deadline = time.monotonic() + _TRANSFER_S
    asked = [addresses[replica_id] for replica_id in (leader.replica_id, target)]
    while time.monotonic() < deadline:
        answers = replica_remoting.replica_statuses(context.cluster, asked)
        status = answers[addresses[target]].status
        if status is not None and status.role == "master" and status.epoch > (leader.epoch or 0):
            return status
        old = answers[addresses[leader.replica_id]].status
        gone_on = old is not None and old.role == "master" and old.quorum is not None
        if gone_on and old is not None and old.quorum is not None and old.quorum.transferring_to is None:
            raise StepNotReady(
                say(
                    "Replica %(target)s did not take over in time: replica %(replica_id)s goes on.",
                    target=target,
                    replica_id=leader.replica_id,
                )
            )
        time.sleep(_POLL_S)
    raise StepNotReady(say("Replica %(target)s does not lead yet.", target=target))


def _change(
    context: StepContext, leader: ReplicaView, change: str, replica_id: int | None, address: str | None = None
) -> None:
    """Ask the leader for one change; raises StepNotReady with its words when it refuses."""
    addresses = {row.broker_id: row.address for row in _replicas(context)}
    answer = replica_remoting.replica_members(
        context.cluster,
        addresses[leader.replica_id],
        group=_group(context),
        change=change,
        replica_id=replica_id,
        replica_address=address,
    )
    if answer.status is None:
        raise StepNotReady(
            say("Replica %(replica_id)s answered: %(error)s", replica_id=leader.replica_id, error=answer.error),
            delay_s=0.2,
        )


def _confirmed(electorate: Electorate) -> None:
    if electorate.change_pending:
        raise StepNotReady(say("A majority has not confirmed the last change of the voters yet."), delay_s=0.2)


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
    return [
        replica
        for replica in cluster_replicas(context.cluster)
        if replica.group.name == _group(context) and replica.port is not None
    ]


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
            quorum_forget,
            quorum_stop_lost,
            quorum_recover,
        )
    },
    # The same work, at another place of a workflow.
    "quorum_verify": failover_verify,
    "render_configuration_again": render_configuration,
}
