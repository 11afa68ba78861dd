"""What each step of a rolling restart does. Every step may run twice, or from two workers, or again after its worker was killed
anywhere in it: a daemon whose process began after the note that it is to be stopped has been restarted.

At no time is more than one daemon away by our doing, and none is taken away while its group is not whole. One run of a step
restarts one daemon, so that it ends well before the time that a task may take; the next run goes on with the next one, or ends a
cancelled operation.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from django.utils import timezone

from controlplane.clusters.models import NameServer, Replica
from controlplane.clusters.operations import operation_is_cancelled
from controlplane.clusters.remoting import control_credentials
from controlplane.clusters.replica_remoting import GroupProducer
from controlplane.clusters.tls import cluster_tls
from controlplane.common.sentences import say
from controlplane.failover.membership.steps import quorum_transfer
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.promotion.steps import (
    failover_drain,
    failover_fence,
    failover_preflight,
    failover_promote,
    failover_rejoin,
    failover_topics,
    failover_verify,
    present_failover,
)
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.rolling.plan import in_turn, problem_of, successor_of
from controlplane.failover.rolling.report import (
    Entry,
    entries_begin,
    entries_of,
    entry_note,
    metadata_note,
    moment,
)
from controlplane.failover.rolling.watch import SendWatch
from controlplane.failover.sampling import cluster_sample, group_sample
from controlplane.failover.timeline import timeline_add
from controlplane.provisioning import probe
from controlplane.provisioning.daemon_files import daemons_locked
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from controlplane.provisioning.errors import StepCancelled, StepFailed, StepNotReady
from controlplane.provisioning.ports import leader_addresses
from controlplane.provisioning.processes import (
    Daemon,
    cluster_name_servers,
    cluster_replicas,
    name_server_daemons,
    placed_replicas,
    replica_daemons,
)
from controlplane.provisioning.steps import Step, StepContext, daemons_await, require_in_progress
from controlplane.provisioning.versions import installed_version, versions_reported

# A step waits within itself while a daemon is away: what it measures is an outage. Counted from the beginning of the step's run.
_RUN_S = 25.0
_POLL_S = 0.2
_LEADERLESS_FOR = timedelta(seconds=15)
# A change of the leader that is decided leaves the group without one until its candidate leads; longer, and the candidate is lost.
_DECIDED_FOR = timedelta(seconds=60)
_ALIVE = (ProcessState.RUNNING, ProcessState.STARTING)
_RETRY = say("Look at the group's replicas, and retry the operation: it goes on with the daemons that are left.")


def roll_look(context: StepContext) -> None:
    """Look at every daemon; refuse unless each group is whole."""
    if operation_is_cancelled(context.operation):
        raise StepCancelled
    views = _whole_groups(context)
    reported = versions_reported(context.cluster)
    entries = [_entry(server, "name_server", "", None, reported) for server in cluster_name_servers(context.cluster)]
    rows = {(row.group.name, row.broker_id): row for row in cluster_replicas(context.cluster)}
    for view in views:
        for replica in in_turn(view):
            row = rows[view.name, replica.replica_id]
            entries.append(_entry(row, "broker", view.name, replica.replica_id, reported))
    entries_begin(context.operation, entries)
    _forget_stops_not_made(context)
    metadata_note(context.operation, sends_wait=False)


def _forget_stops_not_made(context: StepContext) -> None:
    """Of daemons that a try which was ended had noted and did not stop any more: one of them may lead by now."""
    cluster, driver = context.cluster, context.driver
    daemons = {
        str(one.row.pk): one for one in [*name_server_daemons(cluster, driver), *replica_daemons(cluster, driver)]
    }
    statuses = driver.process_statuses([daemon.process.name for daemon in daemons.values()])
    for entry in entries_of(context.operation):
        stopped_at, daemon = moment(entry["stopped_at"]), daemons.get(entry["row"])
        if stopped_at is None or entry["back_at"] is not None or daemon is None:
            continue
        status = statuses[daemon.process.name]
        if status.state in _ALIVE and status.started_at is not None and not _has_begun_since(status, stopped_at):
            entry_note(context.operation, daemon.row.pk, stopped_at=None)


def roll_name_servers(context: StepContext) -> None:
    """Restart the name servers, one after another: the next waits until every broker has registered with this one again."""
    for entry in _due(context, "name_server"):
        daemons = name_server_daemons(context.cluster, context.driver)
        _restart(context, entry, daemons, lambda: _unregistered(context))
        _next_in_another_run(context, "name_server", entry)


def roll_followers(context: StepContext) -> None:
    """Restart every replica that does not lead another, one after another: the next waits until this one has caught up."""
    for entry in _due(context, "broker"):
        view = _view(context, entry["group"])
        leads = view.master is not None and view.master.replica_id == entry["replica"]
        if entry["stopped_at"] is None and leads and len(view.replicas) > 1:
            continue
        _restart_replica(context, entry)
        _next_in_another_run(context, "broker", entry)


def roll_leaders(context: StepContext) -> None:
    """Move each leadership to a follower that was restarted, then restart who led."""
    for entry in _due(context, "broker"):
        _require_leaders(context)
        if entry["stopped_at"] is None:
            _step_aside(context, entry)
        _restart_replica(context, entry)
        _next_in_another_run(context, "broker", entry)


def roll_verify(context: StepContext) -> None:
    """Check that every group is whole, and note which version each daemon runs now."""
    _whole_groups(context, wait=True)
    reported = versions_reported(context.cluster)
    for entry in entries_of(context.operation):
        version = reported.get(entry["address"])
        if version is None:
            raise StepNotReady(say("%(daemon)s does not say which version it runs.", daemon=entry["name"]))
        entry_note(context.operation, _row_id(entry), version_after=version)
        if context.operation.metadata["purpose"] == "upgrade" and version != installed_version(entry["kind"]):
            raise StepFailed(
                say(
                    "%(daemon)s runs %(version)s, not what is installed.", daemon=entry["name"], version=version or "?"
                ),
                hint=say("Ask for the upgrade again: the installed version has changed meanwhile."),
            )


def _due(context: StepContext, kind: str) -> list[Entry]:
    """Return the daemons that are to be restarted yet: of a cancelled operation the one that is under way. Raises StepCancelled
    when none is.
    """
    left = _left(context, kind)
    if not left or not operation_is_cancelled(context.operation):
        return left
    begun = [entry for entry in left if _is_under_way(context, entry)]
    if not begun:
        raise StepCancelled
    return begun


def _is_under_way(context: StepContext, entry: Entry) -> bool:
    """Whether the daemon was stopped, or its leadership has begun to move: a change half done would leave no leader."""
    moves = Failover.objects.filter(
        operation=context.operation, group_name=entry["group"], old_master_id=entry["replica"]
    )
    return entry["stopped_at"] is not None or (entry["replica"] is not None and moves.exists())


def _next_in_another_run(context: StepContext, kind: str, entry: Entry) -> None:
    if _left(context, kind):
        raise StepNotReady(say("%(daemon)s is back; the next one follows.", daemon=entry["name"]), delay_s=0)


def _restart_replica(context: StepContext, entry: Entry) -> None:
    group = entry["group"]
    if entry["stopped_at"] is None and (problem := problem_of(_view(context, group))) is not None:
        raise StepNotReady(problem)
    daemons = replica_daemons(context.cluster, context.driver)
    with _Watching(context, entry):
        _restart(context, entry, daemons, lambda: _behind(context, entry))


def _restart(context: StepContext, entry: Entry, daemons: list[Daemon], waits_for: Callable[[], str | None]) -> None:
    """Stop the daemon in good order, start it with its present files, and wait until `waits_for` has nothing to say."""
    daemon = next(daemon for daemon in daemons if str(daemon.row.pk) == entry["row"])
    stopped_at = moment(entry["stopped_at"])
    if stopped_at is None:
        require_in_progress(context)
        stopped_at = timezone.now()
        entry_note(context.operation, daemon.row.pk, stopped_at=stopped_at.isoformat())
    _start_anew(context, daemon, stopped_at)
    since_its_stop = replace(context, started_at=stopped_at)
    while (waiting := _not_back(since_its_stop, daemon, waits_for)) is not None:
        if (timezone.now() - context.now).total_seconds() > _RUN_S:
            raise StepNotReady(waiting)
        time.sleep(_POLL_S)
    entry_note(context.operation, daemon.row.pk, back_at=timezone.now().isoformat())


def _start_anew(context: StepContext, daemon: Daemon, stopped_at: datetime) -> None:
    """Stop the daemon and start it, unless it was started after `stopped_at`. The cluster's row is locked meanwhile: neither a
    promotion's fence nor a suspension slips in between, and a worker whose operation was ended starts nothing.
    """
    with daemons_locked(context.cluster, context.driver) as daemons:
        require_in_progress(context)
        daemon = next(one for one in daemons if one.row == daemon.row)  # keys may have been deleted since it was read
        status = context.driver.process_statuses([daemon.process.name])[daemon.process.name]
        if not (status.state in _ALIVE and _has_begun_since(status, stopped_at)):
            context.driver.process_remove(daemon.process.name)
            context.driver.files_write(context.cluster.id, daemon.files)
            context.driver.process_start(daemon.process)


def _has_begun_since(status: ProcessStatus, stopped_at: datetime) -> bool:
    # Supervisors give whole seconds, rounded down.
    return status.started_at is not None and status.started_at > stopped_at - timedelta(seconds=1)


def _not_back(context: StepContext, daemon: Daemon, waits_for: Callable[[], str | None]) -> str | None:
    try:
        daemons_await(context, [daemon])  # it fails when the log says why
    except StepNotReady as reason:
        return reason.message
    return waits_for()


def _step_aside(context: StepContext, entry: Entry) -> None:
    """If this replica leads and is not alone, have another lead: a switchover, or a transfer where leaders are elected."""
    group = entry["group"]
    view = _view(context, group)
    moving = Failover.objects.filter(operation=context.operation, group_name=group).first()
    if len(view.replicas) == 1:
        return
    leader = view.master
    if leader is not None and leader.replica_id != entry["replica"]:
        if moving is None:
            return
        if entry["leadership_moved_to"] is not None or not _came_about(moving, leader, view):
            if not view.elects:
                failover_rejoin(_since(context, moving))
            return
    elif moving is None or not _goes_on(context, moving, view):
        moving = _failover_begin(context, view, _target(context, view))
        entry_note(context.operation, _row_id(entry), leadership_moved_to=None)
    metadata_note(context.operation, group=group, target=moving.candidate_id, sends_wait=True)
    try:
        with _Watching(context, entry):
            _move(_since(context, moving), view)
    finally:
        moving.refresh_from_db()
        waiting = moving.writes_stopped_at is not None and moving.writes_back_at is None
        metadata_note(context.operation, sends_wait=waiting)
    entry_note(context.operation, _row_id(entry), leadership_moved_to=moving.candidate_id)
    if not view.elects:
        failover_rejoin(_since(context, moving))


def _move(moved: StepContext, view: GroupView) -> None:
    """Change the leader; what is done already is left as it is."""
    if view.elects:
        quorum_transfer(moved)
        failover_verify(moved)
        return
    failover_preflight(moved)
    if present_failover(moved).decided_id is None:
        failover_drain(moved)
    failover_fence(moved)
    failover_promote(moved)
    failover_verify(moved)
    failover_topics(moved)


def _came_about(moving: Failover, leader: ReplicaView, view: GroupView) -> bool:
    """Whether who leads now does so by this change. A switchover's epoch was reserved; a transfer's may not have been seen yet."""
    epochs = (leader.epoch, None) if view.elects else (leader.epoch,)
    return moving.candidate_id == leader.replica_id and moving.new_epoch in epochs


def _require_leaders(context: StepContext) -> None:
    """Raise StepFailed when a group of several replicas has had no leader for a while: only once this operation is over another
    one may promote. A change of ours that was just decided is gone on with.
    """
    open_changes = Failover.objects.filter(operation=context.operation, decided_id__isnull=False, writes_back_at=None)
    now = timezone.now()
    if any(now - max(change.updated_at, context.started_at) < _DECIDED_FOR for change in open_changes):
        return
    for view in cluster_sample(context.cluster, context.driver):
        lasts = view.led_at is None or timezone.now() - view.led_at > _LEADERLESS_FOR
        if view.master is None and len(view.replicas) > 1 and lasts:
            raise _leader_lost(view)


def _leader_lost(view: GroupView) -> StepFailed:
    return StepFailed(say("%(group)s has lost its leader meanwhile.", group=view.name), hint=_RETRY)


def _goes_on(context: StepContext, moving: Failover, view: GroupView) -> bool:
    """Whether a change of the leader that was begun is gone on with: decided for good, or begun by this try of the step."""
    if moving.writes_back_at is not None:
        return False
    if view.master is None:
        return moving.decided_id is not None
    return moving.created_at >= context.started_at


def _target(context: StepContext, view: GroupView) -> int:
    if (problem := problem_of(view)) is not None:
        raise StepNotReady(problem)
    entries = [entry for entry in entries_of(context.operation) if entry["group"] == view.name]
    restarted = {entry["replica"] for entry in entries if entry["replica"] is not None and entry["back_at"]}
    target = successor_of(view, restarted)
    if target is None:
        raise StepNotReady(say("No follower of %(group)s can take over yet.", group=view.name))
    return target


def _since(context: StepContext, moving: Failover) -> StepContext:
    """Return the context with the times of one change of the leader: each has its own limits."""
    return replace(context, started_at=moving.created_at)


def _failover_begin(context: StepContext, view: GroupView, target: int) -> Failover:
    leader = view.master
    moving = Failover.objects.create(
        operation=context.operation,
        cluster=context.cluster,
        group_name=view.name,
        kind=FailoverKind.TRANSFER if view.elects else FailoverKind.SWITCHOVER,
        requested_by=context.operation.requested_by,
        candidate_id=target,
        old_master_id=None if leader is None else leader.replica_id,
        bytes_at_risk=0,
        messages_at_risk=0,
        lossless=True if view.elects else None,
        lossless_because=say("the leader hands its role over only to a voter that holds all that it holds.")
        if view.elects
        else "",
    )
    words = say(
        "By %(requested_by)s: the leadership moves before its replica is restarted.",
        requested_by=context.operation.requested_by,
    )
    timeline_add(moving, "requested", words)
    return moving


class _Watching:
    """Measures a group's refused sends meanwhile, and adds them to the daemon's entry, however it ends."""

    def __init__(self, context: StepContext, entry: Entry) -> None:
        self._context, self._entry = context, entry
        cluster = context.cluster
        self._watch = SendWatch(GroupProducer.of(cluster, entry["group"], leader_addresses(cluster.pk)))

    def __enter__(self) -> None:
        self._watch.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._watch.refused_since is not None:  # so that the spell's end is seen, where it ends with the work
            time.sleep(3 * _POLL_S)
        self._watch.__exit__(None, None, None)
        entry_note(self._context.operation, _row_id(self._entry), more_refused_ms=self._watch.refused_ms)


def _whole_groups(context: StepContext, *, wait: bool = False) -> list[GroupView]:
    views = [view.placed() for view in cluster_sample(context.cluster, context.driver)]
    problem = next((problem for view in views if (problem := problem_of(view)) is not None), None)
    if problem is None:
        return views
    if wait:
        raise StepNotReady(problem)
    raise StepFailed(problem, hint=_RETRY)


def _view(context: StepContext, group: str) -> GroupView:
    view = group_sample(context.cluster, group, context.driver)
    if view is None:
        raise StepFailed(say("The broker group %(name)s is gone.", name=group))
    return view.placed()


def _behind(context: StepContext, entry: Entry) -> str | None:
    """Return what a group whose replica was restarted waits for: to be whole, and known to every name server.

    Raises StepFailed when it has had no leader for a while: only once this operation is over another one may promote.
    """
    view = _view(context, entry["group"])
    leaderless = view.master is None and len(view.replicas) > 1
    stopped_at = moment(_fresh(context, entry)["stopped_at"])
    if leaderless and stopped_at is not None and timezone.now() - stopped_at > _LEADERLESS_FOR:
        raise _leader_lost(view)
    return problem_of(view) or _unregistered(context)


def _fresh(context: StepContext, entry: Entry) -> Entry:
    return next(one for one in entries_of(context.operation) if one["row"] == entry["row"])


def _unregistered(context: StepContext) -> str | None:
    """Return which name server does not know every broker; None when all do."""
    cluster = context.cluster
    wanted = {replica.address for replica in placed_replicas(cluster)}
    for answer in probe.registrations(
        cluster.name_server_addresses,
        control_credentials(cluster),
        wanted,
        leader_addresses(cluster.pk),
        tls=cluster_tls(cluster),
    ):
        if answer.error or wanted - answer.addresses:
            return say(
                "The name server %(name_server)s does not know every broker yet.", name_server=answer.name_server
            )
    return None


def _left(context: StepContext, kind: str) -> list[Entry]:
    return [entry for entry in entries_of(context.operation) if entry["kind"] == kind and entry["back_at"] is None]


def _entry(
    row: NameServer | Replica, kind: str, group: str, replica: int | None, reported: dict[str, str | None]
) -> Entry:
    name = f"{group} #{replica}" if isinstance(row, Replica) else say("name server %(number)s", number=row.position + 1)
    return Entry(
        name=str(name),
        kind=kind,
        row=str(row.pk),
        group=group,
        replica=replica,
        address=row.address,
        version_before=reported.get(row.address),
        version_after=None,
        stopped_at=None,
        back_at=None,
        leadership_moved_to=None,
        sends_refused_ms=0,
    )


def _row_id(entry: Entry) -> uuid.UUID:
    return uuid.UUID(entry["row"])


STEPS: dict[str, Step] = {
    step.__name__: step for step in (roll_look, roll_name_servers, roll_followers, roll_leaders, roll_verify)
}
