"""What the last words of replicas are noted as, and who leads by them. Pure, without Django: the rows (sampling.py) and the
simulation (tests/sim/control_plane.py) both note what is said here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar

from controlplane.failover.disks import KnownDisk, disk_after, follower_in
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from mqwire.bodies import ReplicaStatus
from mqwire.mode import Mode

K = TypeVar("K")

_ONE_COPY = {Mode.SINGLE, Mode.ASYNC}
_ENDED = (ProcessState.STOPPED, ProcessState.EXITED, ProcessState.FATAL, ProcessState.BACKOFF, ProcessState.MISSING)


def leader_among(statuses: Mapping[K, ReplicaStatus]) -> K | None:
    """Return who leads: of several, which a fence will soon end, the one in the highest epoch."""
    leading = {key: status for key, status in statuses.items() if status.role == "master"}
    return max(leading, key=lambda key: leading[key].epoch, default=None)


class LeaderNews(Enum):
    """What a look at a leader means for the group's row."""

    NEWER_EPOCH = "the row's epoch rises to this leader's, if no one raised it meanwhile"
    OF_THE_EPOCH = "the row's epoch stays, and this is its leader"
    OF_BEFORE = "the row's epoch stays: it was reserved, no one was asked to lead in it, and this leader goes on in an older one"
    KNOWN = "the row says so already, or knows of a newer leader"


def leader_news(
    row_epoch: int, *, led_epoch: int | None, asked_epoch: int | None, leader_epoch: int, is_named: bool
) -> LeaderNews:
    """`is_named`: the row names this leader already. `led_epoch` is the newest in which it knows of a leader, `asked_epoch` the one
    in which a replica was last asked to lead: that one may do so unseen.
    """
    if leader_epoch > row_epoch:
        return LeaderNews.NEWER_EPOCH
    if is_named:
        return LeaderNews.KNOWN
    if leader_epoch == row_epoch:
        return LeaderNews.OF_THE_EPOCH
    return LeaderNews.OF_BEFORE if leader_epoch > max(led_epoch or 0, asked_epoch or 0) else LeaderNews.KNOWN


@dataclass(frozen=True, slots=True)
class GroupLook(Generic[K]):
    """What one look at all replicas of a group says together: who leads, what it says, and what that means for the group's row."""

    leader: K | None
    leading: ReplicaStatus | None
    news: LeaderNews


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderRow(Generic[K]):
    """What a group's row says of its leader; see models.GroupLeadership."""

    epoch: int
    leader: K | None
    led_epoch: int | None
    asked_epoch: int | None


def looked_at(statuses: Mapping[K, ReplicaStatus], row: LeaderRow[K]) -> GroupLook[K]:
    """Return what the answers of a group's replicas say together, beside its row."""
    leader = leader_among(statuses)
    if leader is None:
        return GroupLook(None, None, LeaderNews.KNOWN)
    leading = statuses[leader]
    news = leader_news(
        row.epoch,
        led_epoch=row.led_epoch,
        asked_epoch=row.asked_epoch,
        leader_epoch=leading.epoch,
        is_named=row.leader == leader,
    )
    return GroupLook(leader, leading, news)


def leader_seen(row: LeaderRow[K], read: LeaderRow[K], look: GroupLook[K]) -> LeaderRow[K]:
    """Return the group's row with what a look has found: the news was judged by `read`, and `row` is what it says now. It stays as
    it is where another worker has raised the epoch since, or, for a leader of an epoch that is known, has seen or asked another.
    """
    if look.leading is None or look.news is LeaderNews.KNOWN or row.epoch != read.epoch:
        return row
    if look.news is LeaderNews.NEWER_EPOCH:
        return replace(row, epoch=look.leading.epoch, leader=look.leader)
    if (row.led_epoch, row.asked_epoch) != (read.led_epoch, read.asked_epoch):
        return row
    return replace(row, leader=look.leader)


def leading_noted(status: ReplicaStatus, now: datetime) -> dict[str, object]:
    """Return what the group's row notes of the leader that it names. Written after the samples: who is silent by them was so
    when this one led.

    Of its log that counts which it may have acknowledged: with SYNC_FLUSH a power cut may take the rest, and nothing is lost.
    """
    in_memory = status.flush_disk_type == "ASYNC_FLUSH"
    return {
        "led_at": now,
        "led_epoch": status.epoch,
        "led_to_offset": status.end_offset if in_memory else status.durable_offset,
    }


def answer_noted(
    status: ReplicaStatus,
    leader: ReplicaStatus | None,
    *,
    known: KnownDisk,
    asked_at: datetime,
    now: datetime,
) -> dict[str, object]:
    """Return what the sample of a replica that answered changes to. `leader` is what the group's leader answered at the same time;
    `known` is what is remembered of the replica's disk. Where no one leads the gap stays as the last leader reported it: that
    many messages may be lost.
    """
    gap_is_known = leader is not None or status.quorum is not None
    leads = status.role == "master"
    follower = None if leads else follower_in(leader, status.replica_id)
    disk = disk_after(known, status, leader)
    position = disk.position or (None, None)
    has_lost = not disk.is_new and disk.has_lost((status.log_epoch, status.held_offset))
    gap = (0, 0) if leads else (None, None) if follower is None else (follower.gap_bytes, follower.gap_messages)
    # Of one that was restarted what it said before stays true, if its disk is the one that it was, and whole.
    same_disk = not (known.is_other(status.incarnation) or has_lost)
    lease: dict[str, object] = {} if same_disk else {"in_sync_epoch": None, "in_sync_until": None}
    if status.in_sync_for_ms is not None:
        until = asked_at + timedelta(milliseconds=status.in_sync_for_ms)
        lease = {"in_sync_epoch": status.in_sync_epoch, "in_sync_until": until}
    return {
        "sampled_at": now,
        "last_seen_at": now,
        "unreachable_since": None,
        "process_ended_at": None,
        "ran_unseen": False,
        "error": "",
        "role": status.role,
        "epoch": status.epoch,
        "log_epoch": status.log_epoch,
        "end_offset": status.end_offset,
        "durable_offset": status.durable_offset,
        "held_offset": status.held_offset,
        "confirm_offset": status.confirm_offset,
        **({"gap_bytes": gap[0], "gap_messages": gap[1]} if gap_is_known else {}),
        "in_sync": True if leads else None if follower is None else follower.in_sync,
        "accepts_sends": status.accepts_sends,
        "refusal": (status.refusal or "")[:512],
        "claims": status.claims,
        "promotable": status.promotable,
        "not_promotable_because": (status.not_promotable_because or "")[:512],
        "diverged_files": status.diverged_files,
        **lease,
        "log_may_be_incomplete": status.log_may_be_incomplete or has_lost,
        "shows_below": status.shows_below,
        "led_last_epoch": status.led_last_epoch,
        "surely_held_by": surely_held_by(status),
        # What it acknowledged as leader may be on these: who is no leader any more names none.
        **({"follower_ids": [one.replica_id for one in status.followers]} if leads else {}),
        "disk": disk.incarnation,
        "disk_is_new": disk.is_new,
        "disk_epoch": position[0],
        "disk_offset": position[1],
        "quorum": status.quorum,
        "last_pull_at": None if follower is None else now - timedelta(milliseconds=follower.last_pull_ms_ago),
    }


def surely_held_by(status: ReplicaStatus) -> int | None:
    """Return on how many replicas a record surely is that a leader of this replica's mode has acknowledged, the pending mode
    included. None where it says nothing of that: of elections, or because its disk has not held the group's log yet.
    """
    if status.role != "master" and not status.has_caught_up:
        return None
    if {status.mode, status.pending_mode} & _ONE_COPY:
        return 1
    return status.in_sync_replicas if status.mode == Mode.SYNC else None


def silence_noted(
    process: ProcessStatus | None,
    *,
    unreachable_since: datetime | None,
    last_seen_at: datetime | None,
    process_ended_at: datetime | None,
    ran_unseen: bool,
    now: datetime,
) -> dict[str, object]:
    """Return what the sample of a replica that did not answer changes to; what it held when it last did is kept, for that is
    what may be lost. `process` is its supervisor's word, None without one.
    """
    if process is not None and _has_ended(process, last_seen_at):
        # A supervisor that tries again reports the end of the last try: the first end is when it went away.
        process_ended_at = process_ended_at or process.stopped_at or now
    runs = process is not None and process.state == ProcessState.RUNNING and process_ended_at is not None
    return {
        "sampled_at": now,
        "unreachable_since": unreachable_since or now,
        "process_ended_at": process_ended_at,
        "ran_unseen": ran_unseen or runs,
        "in_sync": None,
        "accepts_sends": None,
        "claims": None,
    }


def _has_ended(process: ProcessStatus, last_seen_at: datetime | None) -> bool:
    """Whether the process that last answered is gone; one that is tried again and again may run at the moment."""
    if process.state in _ENDED:
        return True
    return process.started_at is not None and last_seen_at is not None and process.started_at > last_seen_at
