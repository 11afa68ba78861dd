"""File systems of their own for the replicas of a group, over loop devices: they can be full, die, and lose their power."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.daemons import BrokerDaemon
from tests.replication.powercut import IMAGE_BYTES, Disk, Machine

_FILLER = "filler"


@contextmanager
def disks_of(folder: Path, count: int, *, size_bytes: int = IMAGE_BYTES) -> Iterator[list[Disk]]:
    """So many disks, mounted; unmounted at the end, when no process uses them any more."""
    place = folder / "disks"
    disks = [Disk(folder / f"disk-{number}.img", place / f"{number}", size_bytes) for number in range(count)]
    with ExitStack() as stack:
        # Other mount namespaces (of `ip netns exec`) take copies of our mounts: shared, these end with ours.
        place.mkdir()
        _run("mount", "--bind", str(place), str(place))
        stack.callback(_run, "umount", str(place))
        _run("mount", "--make-shared", str(place))
        for disk in disks:
            disk.make()
            stack.callback(disk.unmount)
        yield disks


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


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
