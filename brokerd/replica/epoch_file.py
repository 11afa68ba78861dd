"""What a replica must remember of its group's leaderships: one small file, replaced whole and fsynced before it is reported.

    <root>/epoch.json       {"crc": ..., "state": {"epoch": 7, "role": "leader", ...}}
    <root>/epoch.reserve    room that is given up when the disk is full: a replica must be able to vote and to follow then

`epoch` is the highest that this replica has seen or promised; it never falls. A replica that forgot it could follow, or
become, a leader of the past (the Raft paper, section 5.2: currentTerm is persistent).
"""

from __future__ import annotations

import enum
import os
from collections.abc import Collection
from random import Random
from typing import Final, Protocol, TypeAlias

import msgspec

from brokerd.replica.epoch_record import Policy
from brokerd.replica.voters import Members
from brokerd.store import Disk, StoreFormatError, TailDoubt
from brokerd.store.commit_log import NO_ROOM
from brokerd.store.durable_file import replace_file
from mqwire.checksum import crc32


class Role(enum.Enum):
    """What a replica does in the epoch that its file names."""

    LEADER = "leader"
    FOLLOWER = "follower"


# (offset of the record that says so, voters, preferred leader), and which disks they were.
SavedMembers: TypeAlias = tuple[int, tuple[int, ...], int | None]
SavedIncarnations: TypeAlias = tuple[tuple[int, str], ...]


class EpochState(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    epoch: int = 0
    role: Role = Role.FOLLOWER
    leader_address: str | None = None
    # Of the log, oldest first; a cache, checked against the log's own epoch records where they are still there.
    epoch_map: tuple[tuple[int, int], ...] = ()
    # Every other replica that ever followed this one or was followed: id -> address. A restarted leader must ask them all.
    replicas: dict[int, str] = {}
    led_epoch: int = 0  # the last one in which it led; 0 when its log was truncated since
    # Up to where readers could be shown the log when this was saved: what comes after may still be truncated.
    confirm_offset: int = 0
    # Of a quorum-led group: whom this replica voted for in `epoch`, for ever (the Raft paper, section 5.2).
    voted_for: int | None = None
    # Whether it has held all that the group had confirmed, once: an empty disk in a replica's place has no vote.
    joined: bool = False
    # Its log may lack records at its end that it had, and that counted; until it has caught up (changes_by_own_disk).
    log_may_be_incomplete: bool = msgspec.field(default=False, name="in_doubt")
    may_lack_durable: bool = False  # what was durable, too: waiting for others never ends in trusting this log
    held_in_memory: bool = False  # whether such records counted in the last run
    # Its log may lack what readers saw, and it waits for no one any more who could know better.
    trusts_own_end: bool = False
    # Where an epoch of its log begins whose leader's may have lacked what consumers had read: their groups have yet to be sent back
    # to what they have committed (services/metadata_log.py). At the log's end or after it: in which it was to lead.
    lacks_shown_from: int | None = None
    lacks_an_epoch: bool = False  # and consumers may have read others in the place of any message
    # A cache as the epoch map is.
    members: tuple[SavedMembers, ...] = ()
    # Which disk this is, drawn once: of a quorum-led group (adoption.py). And of the entries of `members`, in their order.
    incarnation: str = ""
    incarnations: tuple[SavedIncarnations, ...] = ()
    # Of a group whose mode was changed while it ran: comes before the configuration.
    policy: Policy | None = None
    policy_until: int = 0  # where its record ends; 0 is not known

    @property
    def member_history(self) -> list[tuple[int, Members]]:
        """`members` and `incarnations` as one."""
        # Files of older versions have none.
        incarnations = [*self.incarnations, *[()] * (len(self.members) - len(self.incarnations))]
        return [
            (offset, Members(voters, preferred, disks))
            for (offset, voters, preferred), disks in zip(self.members, incarnations, strict=True)
        ]


class EpochStorage(Protocol):
    """Where the state is kept."""

    def load(self) -> EpochState | None:
        """The state, None when there never was one; raises StoreFormatError when it cannot be read."""

    def save(self, state: EpochState) -> None:
        """Durable on return; raises OSError."""

    def keep_reserve(self) -> None:
        """Keep room for it on a disk that fills up; raises OSError when the disk is broken."""


class _Envelope(msgspec.Struct):
    crc: int
    state: msgspec.Raw


_RESERVE_BYTES: Final = 64 * 1024


class EpochFile:
    """EpochStorage in a directory."""

    def __init__(self, disk: Disk, root_dir: str) -> None:
        self._disk = disk
        self._path = os.path.join(root_dir, "epoch.json")
        self._reserve = os.path.join(root_dir, "epoch.reserve")

    def load(self) -> EpochState | None:
        """See EpochStorage. A broken file is never taken for a new one: the replica would forget what it promised."""
        # Killed between the rename and its sync, it may see a vote here that a power cut would still take back.
        self._disk.sync_directory(os.path.dirname(self._path))
        if not self._disk.exists(self._path):
            return None
        fd = self._disk.open(self._path, os.O_RDONLY)
        try:
            content = self._disk.pread(fd, self._disk.size(fd), 0)
        finally:
            self._disk.close(fd)
        try:
            envelope = msgspec.json.decode(content, type=_Envelope)
            if crc32(envelope.state) != envelope.crc:
                raise StoreFormatError(f"{self._path} is damaged: {_WAY_OUT}")
            return msgspec.json.decode(envelope.state, type=EpochState)
        except msgspec.MsgspecError as error:
            raise StoreFormatError(f"{self._path} cannot be read ({error}): {_WAY_OUT}") from error

    def save(self, state: EpochState) -> None:
        """See EpochStorage."""
        content = msgspec.json.encode(state)
        data = msgspec.json.encode(_Envelope(crc32(content), msgspec.Raw(content)))
        try:
            replace_file(self._disk, self._path, data)
        except OSError as error:
            if error.errno not in NO_ROOM or not self._disk.exists(self._reserve):
                raise
            self._disk.unlink(self._reserve)
            replace_file(self._disk, self._path, data)

    def keep_reserve(self) -> None:
        """Take the reserve, unless it is there, while the disk has room."""
        if self._disk.exists(self._reserve):
            return
        fd = self._disk.open(self._reserve, os.O_RDWR | os.O_CREAT)
        try:
            self._disk.fallocate(fd, 0, _RESERVE_BYTES)
        except OSError as error:
            self._disk.unlink(self._reserve)
            if error.errno not in NO_ROOM:
                raise
        finally:
            self._disk.close(fd)


_WAY_OUT = "start the other replicas and let one of them lead; then empty this replica's directory, and it fetches everything again"


def changes_by_own_disk(
    state: EpochState, doubts: Collection[TailDoubt], durable_counts: bool, random: Random
) -> dict[str, object]:
    """What a replica notes of its own disk when it starts, as changes to `state`; none when all is noted already.

    The incarnation is drawn once (adoption.py). `log_may_be_incomplete` stays until the replica holds again what a leader
    has confirmed: until then its vote does not make a majority (Tally), and it is no answer to whether a promotion
    is clean.
    - A power cut took what was in memory only: that matters where such records counted.
    - A sync failed: what it was to sync is unproven. What had been synced before is there.
    - Recovery truncated whole records after a damaged one. Nothing shows whether that was torn by the power cut or was
      durable, and damaged since; then even with SYNC_FLUSH a record is missing that counted.
    """
    memory_lost = TailDoubt.LOST_PAGE_CACHE in doubts and (state.held_in_memory or not durable_counts)
    may_lack_durable = TailDoubt.RECORDS_TRUNCATED in doubts and durable_counts
    incomplete = memory_lost or TailDoubt.SYNC_FAILED in doubts or TailDoubt.RECORDS_TRUNCATED in doubts
    wanted: dict[str, object] = {
        "incarnation": state.incarnation or f"{random.getrandbits(64):016x}",
        "log_may_be_incomplete": state.log_may_be_incomplete or incomplete,
        "may_lack_durable": state.may_lack_durable or may_lack_durable,
        "held_in_memory": not durable_counts,
    }
    return {name: value for name, value in wanted.items() if value != getattr(state, name)}
