"""Disks of the replicas of a group (those of tests/replication/powercut.py): who is on which, and how one is filled."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from tests.daemons import BrokerDaemon
from tests.replication.powercut import Disk, Machine

_FILLER = "filler"


def placed_on(disks: Sequence[Disk], machines: Sequence[Machine] = ()) -> Callable[[BrokerDaemon, int], None]:
    """For quorum_group(): each replica's store is on its disk, and it runs on its machine."""

    def place(replica: BrokerDaemon, number: int) -> None:
        replica.store_dir = disks[number].folder / "store"
        if machines:
            replica.command_prefix = machines[number].prefix

    return place


def fill(disk: Disk, *, leave_bytes: int) -> None:
    """Leave only so much room on it, also for root."""
    stat = os.statvfs(disk.folder)
    wanted = stat.f_bfree * stat.f_frsize - leave_bytes
    with (disk.folder / _FILLER).open("ab", buffering=0) as file:
        chunk = 1024 * 1024
        while wanted > 0 and chunk >= stat.f_frsize:
            try:
                wanted -= file.write(bytes(min(chunk, wanted)))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                chunk //= 2  # the file system needs some of it for itself
        os.fsync(file.fileno())


def make_room(disk: Disk) -> None:
    (disk.folder / _FILLER).unlink()
