"""The order of a change of the mode, and of a removal: what to do next, by what the replicas of one group say. Pure, without
Django: the steps (steps.py, membership/removal.py) and the simulation (tests/sim/mode_operator.py) both go by it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mqwire.bodies import ReplicaStatus

ModeName = TypeVar(
    "ModeName", bound=str
)  # a broker's, or a cluster's, where several groups of one replica have one, too


def mode_stations(path: Sequence[ModeName]) -> list[tuple[ModeName, tuple[ModeName, ...]]]:
    """Return each mode on the way with those that are accepted in its place: its own and all that come after it."""
    return [(mode, tuple(path[position:])) for position, mode in enumerate(path)]


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


def mode_move(seen: Iterable[ModeSeen], accepted: Collection[str], *, silent: bool = False) -> ModeMove:
    """Return the next move to a mode; `accepted` are its name and those of the modes that come after it.

    `silent`: a replica that stays does not answer. It must act by the mode before the change goes on, for the next one.
    """
    ordered = sorted(seen, key=lambda one: one.replica_id)
    others = tuple(one.replica_id for one in ordered if one.mode not in accepted)
    if silent:
        return ModeMove(waits_for=others)
    if not others:
        return ModeMove(done=True)
    leader = max((one for one in ordered if one.leads), key=lambda one: one.epoch, default=None)
    if leader is None or leader.pending_mode is not None or leader.mode in accepted:
        return ModeMove(waits_for=others)
    return ModeMove(ask=leader.replica_id, waits_for=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeen:
    """How far one replica's log goes, in bytes of the CommitLog: its end, and what it holds as its flush type promises."""

    replica_id: int
    log_epoch: int
    end_offset: int
    held_offset: int


def staying_behind(staying: Iterable[LogSeen], leader: LogSeen, end_offset: int) -> tuple[int, ...]:
    """Return who of those that stay does not hold the leader's log to `end_offset`, where it ended when the one that leaves
    had stopped: what was acknowledged with its copy may be on the leader alone until they do.
    """
    return tuple(
        sorted(one.replica_id for one in staying if one.log_epoch != leader.log_epoch or one.held_offset < end_offset)
    )
