"""The replica pull: one request and its few possible answers, decided without sockets or disks.

A follower asks for bytes from where its log ends; the request itself reports what it holds. Source: replication.md,
"Pull"; the pull form of Raft is KRaft's (KIP-595). The same exchange serves every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from brokerd.replica.epoch_map import Divergence, EpochMap

# Of a lease that a leader gives by its clock, so much is relied upon by another.
CLOCK_MARGIN: Final = 0.9
ANSWERED_LATE_S: Final = 0.5  # a held pull, at most: its leader looks that often
DEATH_KNOWN_TO_S: Final = 1.0  # a supervisor says in which second a process ended
_SHORTEST_LEASED_WAIT_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPull:
    """A follower's request. Offsets are of the CommitLog, in bytes.

    Invariant: durable_offset <= end_offset; `last_epoch` is the epoch of the record in front of end_offset.
    """

    group: str
    replica_id: int
    leader_epoch: int  # the epoch of the leader whom it follows
    end_offset: int
    last_epoch: int
    durable_offset: int
    max_bytes: int
    max_wait_ms: int
    # Whether it held all that was confirmed once, since its disk is the one that it is: else a quorum does not count it.
    joined: bool = True
    incarnation: str = ""  # which disk this is (adoption.py); "" from a version that does not say
    disk_full: bool = False
    mode: str = ""  # by which it acts; "" from a version that does not say
    syncs: bool = False  # its flushDiskType is SYNC_FLUSH; False from a version that does not say


@dataclass(frozen=True, slots=True)
class SendBytes:
    """The follower's log is a prefix of ours: answer with whole records from its end, or hold the pull until some come."""

    from_offset: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """The logs part: the follower truncates to the smaller of this end and its own end of that epoch, and asks again."""

    divergence: Divergence


@dataclass(frozen=True, slots=True)
class TooOld:
    """Retention has deleted what the follower needs: it starts over from here, not promotable until it is level."""

    min_offset: int
    epoch: int  # of the byte in front of it
    divergence: Divergence | None = None  # where the logs part, if they do: what follows there is nowhere else


@dataclass(frozen=True, slots=True)
class Fenced:
    """The request's epoch is not the receiver's, or the receiver does not lead."""

    epoch: int
    leader_address: str | None
    reason: str


PullDecision: TypeAlias = SendBytes | Diverged | TooOld | Fenced


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """What of the leader's log a decision needs."""

    min_offset: int
    end_offset: int
    epochs: EpochMap


def decide_pull(
    request: ReplicaPull,
    *,
    group: str,
    own_epoch: int,
    is_leader: bool,
    leader_address: str | None,
    log: LeaderLog,
) -> PullDecision:
    """What to answer. Only after SendBytes may the request's report be believed (InSyncSet.report).

    A request of a higher epoch is answered with Fenced too; that it makes this leader step down is the caller's part.
    """
    if request.group != group:  # whose epochs are no one's business here, nor ours there
        return Fenced(0, None, f"this replica belongs to group {group}, not {request.group}")
    if not is_leader:
        return Fenced(own_epoch, leader_address, "this replica does not lead the group")
    if request.leader_epoch != own_epoch:
        return Fenced(own_epoch, leader_address, f"the group is in epoch {own_epoch}, not {request.leader_epoch}")
    if request.end_offset < log.min_offset:
        divergence = log.epochs.divergence(request.last_epoch, request.end_offset, log.end_offset)
        return TooOld(log.min_offset, log.epochs.epoch_at(log.min_offset - 1), divergence)
    divergence = log.epochs.divergence(request.last_epoch, request.end_offset, log.end_offset)
    if divergence is not None:
        return Diverged(divergence)
    return SendBytes(request.end_offset)


@dataclass(frozen=True, slots=True)
class Truncate:
    """What a follower does after Diverged: save the bytes from here on, truncate, ask again."""

    to_offset: int


@dataclass(frozen=True, slots=True)
class Empty:
    """What a follower does after Diverged when its retention has deleted the record where the logs part.

    Nothing that it still has is the leader's: save it all, drop it, and ask for the leader's log from its first byte on.
    """


@dataclass(frozen=True, slots=True)
class Halt:
    """A follower that must not go on by itself: the reason says why."""

    reason: str


def decide_truncation(
    divergence: Divergence,
    *,
    own: EpochMap,
    own_min_offset: int,
    own_end_offset: int,
    own_confirm_offset: int,
    may_truncate_confirmed: bool,
) -> Truncate | Empty | Halt:
    """What a follower does about a divergence.

    In quorum mode (`may_truncate_confirmed` False) bytes below the own confirmOffset are committed: a leader that lacks them
    must not exist, and the follower halts rather than destroy the proof (the Raft paper's Leader Completeness).
    """
    to_offset = own.truncation_offset(divergence, own_end_offset)
    if to_offset >= own_end_offset:
        return Halt(
            f"the leader says that the logs diverge at {divergence.end_offset} in epoch {divergence.epoch},"
            f" but this log ends at {own_end_offset}"
        )
    if to_offset < own_confirm_offset and not may_truncate_confirmed:
        return Halt(
            f"the leader's log lacks records below confirmOffset {own_confirm_offset}: it would truncate to {to_offset}"
        )
    return Truncate(to_offset) if to_offset >= own_min_offset else Empty()


def leased_wait_ms(lease_s: float) -> int:
    """How long a pull may be held so that a follower of an idle leader that dies has a lease for the moment of its death.

    A lease counts from when its pull was sent, and the next one comes with the answer to the next pull: two are held meanwhile.
    One of less than some 2.5 s may end before the next comes all the same.
    """
    left_s = lease_s * CLOCK_MARGIN - DEATH_KNOWN_TO_S
    return max(_SHORTEST_LEASED_WAIT_MS, int((left_s / 2 - ANSWERED_LATE_S) * 1000))
