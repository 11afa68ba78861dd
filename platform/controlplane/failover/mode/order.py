"""The order of a change of the mode, and of a removal: what to do next, by what the replicas say. Pure, without Django's rows,
sockets or a clock.

The steps of a change are orders (../orders.py): the Celery steps (steps.py) carry their requests out by remoting, the
simulation (tests/sim/mode_operator.py) on its network.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from controlplane.clusters.replica_answer import Answer
from controlplane.common.sentences import say
from controlplane.failover.membership.order import Forget, Free, StopForGood, forgotten
from controlplane.failover.membership.verdict import LAST_MOMENT_BYTES, keeps_up
from controlplane.failover.orders import Result
from controlplane.failover.promotion.verdict import GroupState, GroupView, ReplicaView, judge
from controlplane.failover.words import listed
from controlplane.provisioning.errors import StepFailed, StepNotReady
from mqwire.bodies import ReplicaStatus
from mqwire.mode import Mode

# A broker's, or a cluster's, where several groups of one replica have one, too.
ModeName = TypeVar("ModeName", bound=str)

_MEBIBYTE = 1024 * 1024
_ADDING = ("allocate_ports", "render_configuration", "mode_start_added", "mode_catch_up", "mode_update_masters")
TRY_AGAIN = say("Look at the role map, and retry when every replica has caught up.")


def mode_stations(path: Sequence[ModeName]) -> list[tuple[ModeName, tuple[ModeName, ...]]]:
    """Return each mode on the way with those that are accepted in its place: its own and all that come after it."""
    return [(mode, tuple(path[position:])) for position, mode in enumerate(path)]


def change_steps(
    *, modes: int, adds: bool, removes: bool, leaves_alone: bool = False, becomes_alone: bool = False
) -> set[str]:
    """Return the names of the workflow's steps that a change has which goes through so many `modes`, none where only replicas come
    or go. `leaves_alone`, `becomes_alone`: from groups of one replica, or to such.
    """
    steps = {"mode_look", "mode_note", "render_configuration_again"}
    # Replicas of a change that failed may be there that never ran, or have not caught up.
    if adds or leaves_alone:
        steps.update(_ADDING)
    if modes > 1:
        steps.add("mode_pass")
    if modes:
        steps.add("mode_change")
    if removes:
        steps.add("mode_remove" if becomes_alone else "mode_remove_last")
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSeen:
    """What one replica says of the mode that it acts by."""

    replica_id: int
    mode: str
    pending_mode: str | None
    leads: bool
    epoch: int

    @classmethod
    def of(cls, status: ReplicaStatus) -> "ModeSeen":
        """What its status says."""
        return cls(
            replica_id=status.replica_id,
            mode=status.mode,
            pending_mode=status.pending_mode,
            leads=status.role == "master",
            epoch=status.epoch,
        )


@dataclass(frozen=True, slots=True)
class ModeMove:
    """What to do next. `done`: all act by the mode. Else `ask`: the leader, for the mode; and wait for `waits_for`."""

    done: bool = False
    ask: int | None = None
    waits_for: tuple[int, ...] = ()


def mode_move(seen: Iterable[ModeSeen], accepted: Collection[str]) -> ModeMove:
    """Return the next move to a mode; `accepted` are its name and those of the modes that come after it. All that stay answer."""
    ordered = sorted(seen, key=lambda one: one.replica_id)
    others = tuple(one.replica_id for one in ordered if one.mode not in accepted)
    leader = max((one for one in ordered if one.leads), key=lambda one: one.epoch, default=None)
    if not others and leader is not None and leader.pending_mode not in (None, *accepted):
        return ModeMove(waits_for=(leader.replica_id,))  # of a change that was given up: it may still come into force
    if not others:
        return ModeMove(done=True)
    if leader is None or leader.pending_mode is not None or leader.mode in accepted:
        return ModeMove(waits_for=others)
    return ModeMove(ask=leader.replica_id, waits_for=others)


@dataclass(frozen=True, slots=True)
class LookAtGroups:
    """Ask every replica of the cluster. Answered by what each says, None where it does not, by id, by group."""


@dataclass(frozen=True, slots=True)
class LookAndNote:
    """Ask every replica of the cluster, and note what they say. Answered by GroupsNoted."""


@dataclass(frozen=True, slots=True)
class GroupsNoted:
    """Every group of the cluster, as it was noted `at` a moment."""

    views: Sequence[GroupView]
    at: datetime


@dataclass(frozen=True, slots=True)
class LeadAlone:
    """Have the only replica of a group lead in the epoch after the one that it knows of. Answered by an Answer."""

    group: str
    replica_id: int
    epoch: int
    with_incomplete_log: bool


@dataclass(frozen=True, slots=True)
class ChangeMode:
    """Have the group's leader write the mode, with RocketMQ's inSyncReplicas of it. Answered by an Answer."""

    group: str
    leader: ReplicaStatus
    mode: Mode
    in_sync_replicas: int


@dataclass(frozen=True, slots=True)
class NoteMode:
    """Write the new mode into the cluster's row."""


@dataclass(frozen=True, slots=True)
class SettleRemoval:
    """Write down who goes, by group, before anyone is stopped: as planned, but for these leaders, in whose place another goes.
    Answered by what was written down the first time.
    """

    leaders: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NoteEnd:
    """Write down where the leader's log ended, in bytes, when the one that leaves had stopped. Answered by what was written down
    the first time.
    """

    group: str
    replica_id: int
    end_offset: int


Request = (
    LookAtGroups
    | LookAndNote
    | LeadAlone
    | ChangeMode
    | NoteMode
    | SettleRemoval
    | StopForGood
    | Forget
    | NoteEnd
    | Free
)
Order = Generator[Request, Any, Result]
Answers = Mapping[str, Mapping[int, ReplicaStatus | None]]
Statuses = Mapping[str, Mapping[int, ReplicaStatus]]
Going = Mapping[str, Collection[int]]


def look(going: Going) -> Order[Statuses]:
    """Return what every replica says, by id, by group; StepNotReady while one that is not `going` does not answer.

    One that is silent may act by any mode of the way until now: the next change would leave it behind by two.
    """
    groups: Answers = yield LookAtGroups()
    answering: dict[str, dict[int, ReplicaStatus]] = {}
    for name, statuses in groups.items():
        answering[name] = {}
        for replica_id, status in statuses.items():
            if status is not None:
                answering[name][replica_id] = status
            elif replica_id not in going.get(name, ()):
                raise StepNotReady(
                    say("Replica %(broker_id)s of %(name)s does not answer.", broker_id=replica_id, name=name),
                    delay_s=1.0,
                )
    return answering


def begin(going: Going, *, adds: bool) -> Order[None]:
    """Wait until every group has a leader, and every replica that stays answers. Where the change `adds` some, no replica is waited
    for: these start later.
    """
    if adds:
        answers: Answers = yield LookAtGroups()
        groups: Statuses = {name: _answering(statuses) for name, statuses in answers.items()}
    else:
        groups = yield from look(going)
    for name, statuses in groups.items():
        leader_of(name, statuses)


def catch_up(going: Going) -> Order[None]:
    """Wait until every replica that stays holds what its leader holds."""
    noted: GroupsNoted = yield LookAndNote()
    for view in noted.views:
        if view.master is None:
            raise StepNotReady(say("%(group)s has no leader right now.", group=view.name), delay_s=1.0)
        for replica in view.replicas:
            if replica is view.master or replica.replica_id in going.get(view.name, ()) or keeps_up(replica):
                continue
            raise StepNotReady(
                say(
                    "Replica %(replica_id)s of %(group)s has not caught up yet. %(words)s",
                    replica_id=replica.replica_id,
                    group=view.name,
                    words=_behind_words(replica),
                ),
                delay_s=0.5,
            )


def _behind_words(replica: ReplicaView) -> str:
    if replica.gap_bytes is None:
        return say("It does not pull yet.")
    return say("It is %(behind)s MiB behind.", behind=f"{replica.gap_bytes / _MEBIBYTE:.1f}")


def leader_of(name: str, statuses: Mapping[int, ReplicaStatus]) -> ReplicaStatus:
    """Return who leads the group: of several, which epochs will soon end, the newest; StepNotReady when no one does."""
    leading = [status for status in statuses.values() if status.role == "master"]
    if not leading:
        raise StepNotReady(say("%(name)s has no leader right now.", name=name))
    return max(leading, key=lambda status: status.epoch)


def in_sync_replicas_to_ask(mode: Mode, wanted: int, *, voters: int) -> int:
    """Return the inSyncReplicas to ask for in this mode: `wanted`, or a majority of those that elected the leader until now.

    Voters that have not heard of the change yet may elect another leader, and the broker takes no less. So the cluster's row may
    say less than is true, never more.
    """
    return max(wanted, voters // 2 + 1) if mode == Mode.SYNC else wanted


def pass_through(
    stations: Iterable[tuple[Mode, Collection[Mode]]], going: Going, in_sync_replicas_of: Callable[[Mode], int]
) -> Order[None]:
    """Have every group go through these modes, each with those that are accepted in its place, whatever becomes of those `going`.
    `in_sync_replicas_of` a mode is what the cluster's row says of it.

    Done when every replica of every group acts by one of the last ones: only then is the next station asked for, so that no
    group is two modes ahead of another, nor a replica of its leader.
    """
    for mode, accepted in stations:
        for name, statuses in (yield from look(going)).items():
            move = mode_move(map(ModeSeen.of, statuses.values()), accepted)
            if move.done:
                continue
            if move.ask is None:
                leader_of(name, statuses)
            else:
                leader = statuses[move.ask]
                voters = 0 if leader.quorum is None else len(leader.quorum.voters)
                in_sync = in_sync_replicas_to_ask(mode, in_sync_replicas_of(mode), voters=voters)
                answer: Answer = yield ChangeMode(name, leader, mode, in_sync)
                if answer.refused_for_good:
                    raise StepFailed(say("%(name)s: %(error)s", name=name, error=answer.error), hint=TRY_AGAIN)
                if answer.status is None:
                    raise StepNotReady(
                        say(
                            "Replica %(ask)s of %(name)s answered: %(error)s",
                            ask=move.ask,
                            name=name,
                            error=answer.error,
                        ),
                        delay_s=0.3,
                    )
            raise StepNotReady(
                say(
                    "In %(name)s replica %(names)s does not act by the mode %(wanted)s yet.",
                    name=name,
                    names=listed([str(replica_id) for replica_id in move.waits_for]),
                    wanted=mode,
                ),
                delay_s=0.3,
            )


def change(
    stations: Sequence[tuple[Mode, Collection[Mode]]], going: Going, in_sync_replicas_of: Callable[[Mode], int]
) -> Order[None]:
    """Have every group be in the last mode, as `pass_through` does; one of a single replica leads alone first."""
    if any(mode == Mode.SINGLE for mode, _ in stations):
        yield from _lead_alone()
    yield from pass_through(stations, going, in_sync_replicas_of)


def _lead_alone() -> Order[None]:
    """Have the only replica of a group lead if it was restarted just now, and waits for others that are gone."""
    groups: Answers = yield LookAtGroups()
    for name, answers in groups.items():
        claiming = next((status for status in _answering(answers).values() if status.claims), None)
        if claiming is None or claiming.quorum is not None or len(answers) > 1:
            continue
        # No other replica is left that could hold more.
        incomplete = claiming.log_may_be_incomplete
        answer: Answer = yield LeadAlone(name, claiming.replica_id, claiming.epoch, with_incomplete_log=incomplete)
        if answer.status is None:
            raise StepNotReady(
                say(
                    "Replica %(replica_id)s of %(name)s does not lead again yet: %(error)s",
                    replica_id=claiming.replica_id,
                    name=name,
                    error=answer.error,
                )
            )


def note() -> Order[None]:
    """Write down the new mode, and learn the groups' epochs before a leader is assigned one."""
    yield NoteMode()
    yield LookAndNote()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """How far one replica's log goes, in bytes of the CommitLog: its end, and what it holds as its flush type promises."""

    replica_id: int
    log_epoch: int
    end_offset: int
    held_offset: int

    @classmethod
    def of(cls, status: ReplicaStatus) -> "LogSeen":
        """What its status says."""
        return cls(
            replica_id=status.replica_id,
            log_epoch=status.log_epoch,
            end_offset=status.end_offset,
            held_offset=status.held_offset,
        )


def staying_behind(staying: Iterable[LogSeen], leader: LogSeen, end_offset: int) -> tuple[int, ...]:
    """Return who of those that stay does not hold the leader's log to `end_offset`, where it ended when the one that leaves
    had stopped: what was acknowledged with its copy may be on the leader alone until they do.
    """
    return tuple(
        sorted(one.replica_id for one in staying if one.log_epoch != leader.log_epoch or one.held_offset < end_offset)
    )


def remove() -> Order[None]:
    """Stop the replicas that the groups are not to have any more, have them forgotten, and free their room, one after the other."""
    yield from _require_masters()
    groups: Answers = yield LookAtGroups()
    answering = {name: _answering(answers) for name, answers in groups.items()}
    leaders = {name: leader_of(name, statuses) for name, statuses in answering.items()}
    going: Going = yield SettleRemoval({name: leader.replica_id for name, leader in leaders.items()})
    for name, answers in groups.items():
        gone, leader = going.get(name, ()), leaders[name]
        staying = [replica_id for replica_id in answers if replica_id not in gone]
        for replica_id in sorted(set(answers).intersection(gone)):
            if leader.replica_id in gone:
                raise StepFailed(
                    say(
                        "Replica %(replica_id)s of %(name)s leads by now, and was to be removed.",
                        replica_id=leader.replica_id,
                        name=name,
                    ),
                    hint=say("Switch over to another replica, and retry."),
                )
            if not leader.accepts_sends:
                raise StepNotReady(
                    say(
                        "Replica %(replica_id)s of %(name)s refuses sends: %(refusal)s.",
                        replica_id=leader.replica_id,
                        name=name,
                        refusal=leader.refusal,
                    )
                )
            _require_near(name, leader, {key: answers[key] for key in staying})
            yield StopForGood(name, replica_id)
            others = [key for key in staying if key in answering[name]]
            yield from forgotten(name, replica_id, leader.replica_id, others)
            yield from _level(name, replica_id, leader.replica_id, staying)
            yield Free(name, replica_id)


def _require_masters() -> Order[None]:
    """Raise StepFailed where a group has lost its master: what was stopped and is not gone yet is started again then, and a
    promotion may need its answer to lose nothing.
    """
    noted: GroupsNoted = yield LookAndNote()
    for view in noted.views:
        if judge(view, noted.at).state == GroupState.NO_MASTER:
            raise StepFailed(
                say("%(group)s has lost its master.", group=view.name),
                hint=say(
                    "The replicas that were stopped are started again. Retry it when every group has a master again."
                ),
            )


def _level(name: str, gone_id: int, leader_id: int, staying: Sequence[int]) -> Order[None]:
    """Wait until all who stay hold the leader's log to where it ended when the one that leaves had stopped: with it the row goes
    by which a promotion would ask for one more replica's word.
    """
    groups: Answers = yield LookAtGroups()
    _require_answers(name, {replica_id: groups[name].get(replica_id) for replica_id in staying})
    seen = [LogSeen.of(status) for key, status in _answering(groups[name]).items() if key in staying]
    leader = next(one for one in seen if one.replica_id == leader_id)
    end_offset: int = yield NoteEnd(name, gone_id, leader.end_offset)
    behind = staying_behind(seen, leader, end_offset)
    if behind:
        raise StepNotReady(
            say(
                "Replica %(behind)s of %(group)s has not caught up with what replica %(broker_id)s held.",
                behind=behind[0],
                group=name,
                broker_id=gone_id,
            ),
            delay_s=0.3,
        )


def _require_near(name: str, leader: ReplicaStatus, staying: Mapping[int, ReplicaStatus | None]) -> None:
    """Raise StepNotReady unless all who stay are about to hold what the leader holds: without the one that leaves its sends may
    have to wait for one of them, until then.
    """
    _require_answers(name, staying)
    for replica_id, status in _answering(staying).items():
        same_log = status.log_epoch == leader.log_epoch
        if not same_log or leader.held_offset - status.held_offset > LAST_MOMENT_BYTES:
            raise StepNotReady(
                say("Replica %(replica_id)s of %(name)s has not caught up yet.", replica_id=replica_id, name=name),
                delay_s=1.0,
            )


def _require_answers(name: str, staying: Mapping[int, ReplicaStatus | None]) -> None:
    silent = [replica_id for replica_id, status in staying.items() if status is None]
    if silent:
        raise StepNotReady(
            say("Replica %(silent)s of %(group)s does not answer, and is to stay.", silent=silent[0], group=name),
            delay_s=1.0,
        )


def _answering(answers: Mapping[int, ReplicaStatus | None]) -> dict[int, ReplicaStatus]:
    return {replica_id: status for replica_id, status in answers.items() if status is not None}
