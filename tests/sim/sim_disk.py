"""A machine's disk: the faulty one of the store's tests, without its log of calls, and with errors on demand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from brokerd.store import DiskUsage
from brokerd.store.commit_log import NO_DESCRIPTOR
from tests.sim.memory_disk import MemoryDisk
from tests.sim.trio_process import block

COMMIT_LOG = "/commitlog/"
_HEALED_LOOK_S = 0.5  # longer than a sync takes on a disk that is well


class SimDisk(MemoryDisk):
    """`fail_syncs` makes the next syncs of files below `failing` fail with EIO: the CommitLog, unless it says otherwise.

    `fail_call_in` makes one call that changes something fail, whichever comes then, with `error`. `fail_reads_in` makes some fail
    that change nothing; the next process meets those that are left. `short_share` of all writes are done in half.
    """

    def __init__(self, boot: int = 0) -> None:
        self.short_share = 0.0
        self._chance = Random(0)
        super().__init__(boot)
        self.fail_syncs = 0
        self.failing = COMMIT_LOG
        self.error = errno.EIO
        self.sync_s: Callable[[], float] = lambda: 0.0  # how long the next sync takes
        self.read_s = 0.0
        self.boot_is_unknown = False  # to this process: OsDisk has no name of the boot where it can't be read
        self.reads_took_s = 0.0  # so far, of this process
        self.on_death: Callable[[], None] = lambda: None
        self.on_failed_call: Callable[[str, str], None] = lambda name, detail: None
        self._fail_call_at: int | None = None
        self._reads_to_come, self._failing_reads, self._read_error = 0, 0, errno.EIO
        self._is_observed = False
        self._healings = 0
        self._slow_syncs = 0
        self._last_line = _LastLine()
        self.log = self._last_line
        self.fail = self._fail

    # --- what goes wrong

    def fail_call_in(self, calls: int, error: int) -> None:
        """Of those that change something."""
        self._fail_call_at, self.error = self.calls + calls, error

    def fail_reads_in(self, reads: int, count: int, error: int) -> None:
        """After so many reads, opens and looks at names and sizes the next `count` fail; EMFILE those that need a descriptor."""
        self._reads_to_come, self._failing_reads, self._read_error = reads, count, error

    def stop_failing_reads(self) -> None:
        self._failing_reads = 0

    @property
    def reads_fail(self) -> bool:
        """Whether some of those are to come yet."""
        return self._failing_reads > 0

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Who looks at the disk meanwhile is no part of what is simulated: nothing fails, and nothing counts."""
        was_observed, self._is_observed = self._is_observed, True
        try:
            yield
        finally:
            self._is_observed = was_observed

    def write_short(self, share: float, seed: int) -> None:
        self.short_share, self._chance = share, Random(seed)

    @property
    def is_to_fail(self) -> bool:
        """Whether a sync of the log may fail yet, or what recovery does to make it durable."""
        return self.fail_syncs > 0 or self._fail_call_at is not None or self.reads_fail

    @property
    def is_slow(self) -> bool:
        """Whether a sync takes long just now."""
        return self._slow_syncs > 0

    def heal(self) -> None:
        """Nothing more fails, a slow sync that is under way is over soon, and there is room again."""
        self._healings += 1
        self.fail_syncs, self._fail_call_at, self.die_at, self.capacity_bytes = 0, None, None, None
        self.stop_failing_reads()
        self.short_share = self.read_s = 0.0
        self.used_ratio = 0.1

    @property
    def short_writes(self) -> bool:  # of each write from scratch
        return self.short_share > 0 and self._chance.random() < self.short_share

    @short_writes.setter
    def short_writes(self, value: bool) -> None:
        """See `write_short`."""

    def _fail(self, number: int, name: str) -> int | None:
        error = None
        if self._fail_call_at is not None and number >= self._fail_call_at:
            self._fail_call_at, error = None, self.error
        elif self.fail_syncs and name == "sync" and self.failing in self._last_line.text:
            self.fail_syncs, error = self.fail_syncs - 1, errno.EIO
        if error is not None:
            self.on_failed_call(name, self._last_line.text)
        return error

    def stop(self) -> None:
        """The process that uses it is gone: nothing that it still tries has an effect."""
        self._dead = True

    # --- calls

    def _call(self, name: str, detail: str) -> None:
        alive = not self._dead
        try:
            super()._call(name, detail)
        finally:
            if alive and self._dead:
                self.on_death()

    def _reads(self, name: str, path: str, *, takes_descriptor: bool = False) -> None:
        if not self._failing_reads or self._is_observed or (self._read_error in NO_DESCRIPTOR and not takes_descriptor):
            return
        if self._reads_to_come:
            self._reads_to_come -= 1
            return
        self._failing_reads -= 1
        self.on_failed_call(name, path)
        raise OSError(self._read_error, os.strerror(self._read_error), path)

    def open(self, path: str, flags: int) -> int:
        self._reads("open", path, takes_descriptor=True)
        return super().open(path, flags)

    def listdir(self, path: str) -> list[str]:
        self._reads("listdir", path, takes_descriptor=True)
        return super().listdir(path)

    def sync_directory(self, path: str) -> None:
        self._reads("open", path, takes_descriptor=True)
        super().sync_directory(path)

    def exists(self, path: str) -> bool:
        self._reads("stat", path)
        return super().exists(path)

    def permissions(self, path: str) -> int:
        self._reads("stat", path)
        return super().permissions(path)

    def size(self, fd: int) -> int:
        self._reads("stat", self._fds[fd][0])
        return super().size(fd)

    def next_data(self, fd: int, offset: int) -> int | None:
        self._reads("seek", self._fds[fd][0])
        return super().next_data(fd, offset)

    def usage(self, path: str) -> DiskUsage:
        self._reads("statfs", path)
        return super().usage(path)

    def lock(self, fd: int) -> None:
        self._reads("lock", self._fds[fd][0])
        super().lock(fd)

    def boot_id(self) -> str:
        return "" if self.boot_is_unknown else super().boot_id()

    def pread(self, fd: int, count: int, offset: int, /) -> bytes:
        if self.read_s:
            block(self.read_s)
            self.reads_took_s += self.read_s
        self._reads("read", self._fds[fd][0])
        return super().pread(fd, count, offset)

    def fdatasync(self, fd: int, /) -> None:
        seconds = self.sync_s()
        healings = self._healings
        is_slow = seconds > _HEALED_LOOK_S
        self._slow_syncs += is_slow
        self._be_busy(seconds / 2, healings)
        super().fdatasync(fd)
        self._be_busy(seconds / 2, healings)
        self._slow_syncs -= is_slow

    fsync = fdatasync

    def _be_busy(self, seconds: float, healings: int) -> None:
        """A slow disk may take half a minute for a sync: one that is healed meanwhile does not."""
        while seconds > 0 and self._healings == healings:
            block(min(seconds, _HEALED_LOOK_S))
            seconds -= _HEALED_LOOK_S

    def page_cache(self, path: str, begin: int, end: int) -> bytes:
        """What the end of the process would leave there."""
        inode = self.names.get(path)
        return b"" if inode is None else bytes(inode.data[begin:end])

    def drop_clean_pages(self) -> list[str]:
        """Memory is short; returns the files of which something is read otherwise than before, as a sync had failed."""
        return [path for path, inode in sorted(self.names.items()) if inode.drop_clean_pages()]

    @classmethod
    def of(cls, disk: MemoryDisk, before: SimDisk) -> SimDisk:
        """The same content, as the next process finds it; it is as full and as slow as before."""
        new = cls(disk._boot)
        new.names, new.synced_names, new.directories = disk.names, disk.synced_names, disk.directories
        new.used_ratio, new.capacity_bytes, new.read_s, new.short_share, new._chance = (
            before.used_ratio,
            before.capacity_bytes,
            before.read_s,
            before.short_share,
            before._chance,
        )
        new.fail_reads_in(before._reads_to_come, before._failing_reads, before._read_error)
        return new


class _LastLine(list[str]):
    """Keeps nothing else."""

    text = ""

    def append(self, line: str) -> None:
        self.text = line
