"""A twin of the disk in memory, which can die at any call, fail any call, and forget what was never synced.

What remains of a process that is killed is everything it wrote (the page cache survives it): `after_kill()`. What a power
cut leaves is all that was synced, plus any subset of the blocks and of the names that were not: `after_power_cut()`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from brokerd.store import DiskUsage

BLOCK_BYTES = 64  # smaller than any sector: more ways to tear
Buffer = bytes | bytearray | memoryview


_TOTAL_BYTES = 1 << 40

_directory_of = lru_cache(4096)(os.path.dirname)


class Died(BaseException):
    """The process ended here. A BaseException, as no `except Exception` survives a kill -9."""


class Inode:
    """A file: what it holds, what of it is on the platter, and which blocks differ."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.dirty_blocks: set[int] = set()
        self._clean_may_differ = False  # a sync has failed

    def touch(self, begin: int, end: int) -> None:
        self.dirty_blocks.update(range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def sync(self) -> None:
        if self._clean_may_differ:
            self._resize(len(self.data))
            for block in self.dirty_blocks:
                self._persist(block)
        else:
            self.synced[:] = self.data  # the same, and much faster
        self.dirty_blocks.clear()

    def fail_sync(self) -> None:
        """As Linux does: some of it was written, the rest is called clean all the same, and is readable. No one writes it
        again (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020)."""
        self._clean_may_differ = True
        for block in sorted(self.dirty_blocks)[1::2]:
            self._persist(block)
        self.dirty_blocks.clear()

    def drop_clean_pages(self) -> bool:
        """Memory was short: what is clean is read from the platter the next time, as zeros where that has nothing. Returns
        whether anything is read otherwise now; without a failed sync nothing is.
        """
        if not self._clean_may_differ:
            return False
        size = len(self.data)
        platter = self.synced[:size] + bytes(max(0, size - len(self.synced)))
        differs = False
        for begin in range(0, size, BLOCK_BYTES):
            end = min(begin + BLOCK_BYTES, size)
            if begin // BLOCK_BYTES not in self.dirty_blocks and self.data[begin:end] != platter[begin:end]:
                self.data[begin:end] = platter[begin:end]
                differs = True
        return differs

    def after_power_cut(self, random: Random) -> Inode:
        """What is left of it: each unsynced block has reached the platter or has not."""
        if self.dirty_blocks or len(self.data) != len(self.synced):
            self._resize(random.choice((len(self.data), len(self.synced))))
            share = random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
            for block in sorted(self.dirty_blocks):
                if random.random() < share:
                    self._persist(block)
        left = Inode()
        left.data = bytearray(self.synced)
        left.synced = bytearray(self.synced)
        return left

    def _resize(self, size: int) -> None:
        if size < len(self.synced):
            del self.synced[size:]
        else:
            self.synced.extend(bytes(size - len(self.synced)))

    def _persist(self, block: int) -> None:
        end = min((block + 1) * BLOCK_BYTES, len(self.data), len(self.synced))
        begin = block * BLOCK_BYTES
        if begin < end:
            self.synced[begin:end] = self.data[begin:end]


class MemoryDisk:
    """Implements brokerd.store.Disk. `calls` counts those that change something; hooks see each of them beforehand."""

    def __init__(self, boot: int = 0) -> None:
        self.names: dict[str, Inode] = {}
        self.synced_names: dict[str, Inode] = {}
        self.directories: set[str] = {"/"}
        self.calls = 0
        self.log: list[str] = []
        self.die_at: int | None = None  # before this call; a write there is done in half
        self.fail: Callable[[int, str], int | None] = lambda number, name: None  # the errno that a call shall end with
        self.fail_reads: int | None = None
        self.short_writes = False
        self.used_ratio = 0.1
        self.capacity_bytes: int | None = None  # for all fallocated and written bytes
        self._boot = boot
        self._fds: dict[int, tuple[str, Inode]] = {}
        self._next_fd = 1000
        self._locked: dict[Inode, int] = {}
        self._dead = False

    # -- what happens to it

    def after_kill(self) -> MemoryDisk:
        """The disk as the next process finds it."""
        disk = MemoryDisk(self._boot)
        disk.names, disk.synced_names, disk.directories = self.names, self.synced_names, self.directories
        return disk

    def after_power_cut(self, seed: int) -> MemoryDisk:
        """The disk as it comes up again; which unsynced blocks and names are there follows from the seed."""
        random = Random(seed)
        disk = MemoryDisk(self._boot + 1)
        disk.directories = set(self.directories)
        left: dict[int, Inode] = {}
        for path in sorted(self.names.keys() | self.synced_names.keys()):
            now, before = self.names.get(path), self.synced_names.get(path)
            inode = now if now is before or random.random() < 0.5 else before
            if inode is not None:
                if id(inode) not in left:
                    left[id(inode)] = inode.after_power_cut(random)
                disk.names[path] = disk.synced_names[path] = left[id(inode)]
        disk._keep_directories_of_names()
        return disk

    def after_losing_all_unsynced(self, boot: int | None = None) -> MemoryDisk:
        """The disk as the worst power cut leaves it: with what was synced, and nothing else."""
        disk = MemoryDisk(self._boot + 1 if boot is None else boot)
        disk.directories = set(self.directories)
        for path, inode in self.synced_names.items():
            inode.data = bytearray(inode.synced)
            inode.dirty_blocks.clear()
            disk.names[path] = disk.synced_names[path] = inode
        disk._keep_directories_of_names()
        return disk

    def _keep_directories_of_names(self) -> None:
        """A file that is back, as its removal was never synced, is in its directory: no file system has one without it."""
        for path in self.names:
            directory = _directory_of(path)
            while directory not in self.directories:
                self.directories.add(directory)
                directory = _directory_of(directory)

    def content(self, below: str = "/") -> dict[str, bytes]:
        """Path -> bytes, of all files below a directory."""
        return {path: bytes(inode.data) for path, inode in sorted(self.names.items()) if path.startswith(below)}

    def on_platter(self, path: str, begin: int, end: int) -> bytes:
        """What a power cut is sure to leave of these bytes of a file."""
        inode = self.synced_names.get(path)
        return b"" if inode is None or inode is not self.names.get(path) else bytes(inode.synced[begin:end])

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        inode = self.names[path]
        inode.data[position] ^= 1 << bit
        inode.synced[position : position + 1] = inode.data[position : position + 1]

    def truncate(self, path: str, size: int) -> None:
        """As someone with a shell would: past the store, and durable."""
        inode = self.names[path]
        del inode.data[size:]
        inode.sync()

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            del self.names[name]
            self.synced_names.pop(name, None)
        self.directories = {name for name in self.directories if name != path and not name.startswith(path + "/")}

    def _call(self, name: str, detail: str) -> None:
        if self._dead:
            raise Died
        number = self.calls
        self.calls += 1
        self.log.append(f"{name} {detail}")
        if number == self.die_at:
            self._dead = True
            if name != "pwrite":
                raise Died
            return
        error = self.fail(number, name)
        if error is not None:
            raise OSError(error, os.strerror(error))

    # -- files

    def open(self, path: str, flags: int) -> int:
        if self._dead:
            raise Died
        inode = self.names.get(path)
        if inode is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            self._call("create", path)
            if _directory_of(path) not in self.directories:
                raise FileNotFoundError(errno.ENOENT, "No such directory", path)
            inode = self.names[path] = Inode()
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        elif flags & os.O_TRUNC:
            self._call("truncate", path)
            inode.touch(0, len(inode.data))
            inode.data.clear()
        self._next_fd += 1
        self._fds[self._next_fd] = (path, inode)
        return self._next_fd

    def permissions(self, path: str) -> int:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        return 0o600

    def set_permissions(self, fd: int, bits: int) -> None:
        """There is one user."""

    def close(self, fd: int, /) -> None:
        _, inode = self._fds.pop(fd)
        if self._locked.get(inode) == fd:
            del self._locked[inode]

    def size(self, fd: int) -> int:
        return len(self._fds[fd][1].data)

    def pread(self, fd: int, count: int, offset: int, /) -> bytes:
        if self.fail_reads is not None:
            raise OSError(self.fail_reads, os.strerror(self.fail_reads))
        return bytes(self._fds[fd][1].data[offset : offset + count])

    def pwrite(self, fd: int, data: Buffer, offset: int, /) -> int:
        path, inode = self._fds[fd]
        self._call("pwrite", f"{path} {offset}+{len(data)}")
        view = memoryview(data)
        if self._dead or (self.short_writes and len(view) > 1):
            view = view[: len(view) // 2]
        self._take(max(0, offset + len(view) - len(inode.data)))
        if len(inode.data) < offset + len(view):
            inode.data.extend(bytes(offset + len(view) - len(inode.data)))
        inode.data[offset : offset + len(view)] = view
        inode.touch(offset, offset + len(view))
        if self._dead:
            raise Died
        return len(view)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], offset: int, /) -> int:
        return self.pwrite(fd, b"".join(buffers), offset)

    def fdatasync(self, fd: int, /) -> None:
        path, inode = self._fds[fd]
        try:
            self._call("sync", path)
        except OSError:
            inode.fail_sync()
            raise
        inode.sync()

    fsync = fdatasync

    def ftruncate(self, fd: int, length: int, /) -> None:
        path, inode = self._fds[fd]
        self._call("ftruncate", f"{path} {length}")
        if length < len(inode.data):
            inode.touch(length, len(inode.data))
            del inode.data[length:]
        else:
            inode.data.extend(bytes(length - len(inode.data)))

    def fallocate(self, fd: int, offset: int, length: int, /) -> None:
        path, _ = self._fds[fd]
        self._call("fallocate", f"{path} {offset}+{length}")
        self._take(length)

    def _take(self, size: int) -> None:
        if self.capacity_bytes is not None:
            if size > self.capacity_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.capacity_bytes -= size

    def next_data(self, fd: int, offset: int) -> int | None:
        inode = self._fds[fd][1]
        rest = inode.data[offset:]
        stripped = rest.lstrip(b"\0")
        if not stripped:
            return None
        found = offset + len(rest) - len(stripped)
        return max(offset, found - found % BLOCK_BYTES)  # as coarse as a file system

    def lock(self, fd: int) -> None:
        inode = self._fds[fd][1]
        if inode in self._locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self._locked[inode] = fd

    # -- names

    def listdir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [name[len(prefix) :] for name in [*self.names, *self.directories] if name.startswith(prefix)]
        return sorted({name.split("/")[0] for name in below if name})

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    def make_directory(self, path: str, *, durable: bool = True) -> None:
        if path not in self.directories:
            self._call("mkdir", path)
            while path not in self.directories:
                self.directories.add(path)
                path = _directory_of(path)

    def sync_directory(self, path: str) -> None:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        self._call("sync_directory", path)
        prefix = path.rstrip("/") + "/"
        for name in [name for name in self.synced_names if name.startswith(prefix)]:
            entry = prefix + name[len(prefix) :].partition("/")[0]  # a file, or a directory with all that is in it
            if entry not in self.names and entry not in self.directories:
                del self.synced_names[name]
        for name, inode in self.names.items():
            if _directory_of(name) == path:
                self.synced_names[name] = inode

    def rename(self, source: str, target: str) -> None:
        self._call("rename", f"{source} {target}")
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", source)
        self.names[target] = self.names.pop(source)

    def link(self, source: str, target: str) -> None:
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", source)
        if target in self.names:
            raise FileExistsError(errno.EEXIST, "File exists", target)
        self._call("link", f"{source} {target}")
        self.names[target] = self.names[source]

    def unlink(self, path: str) -> None:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        self._call("unlink", path)
        del self.names[path]

    def remove_directory(self, path: str) -> None:
        self._call("rmdir", path)
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.directories.discard(path)

    # -- the machine

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(_TOTAL_BYTES, int(_TOTAL_BYTES * (1 - self.used_ratio)))

    def boot_id(self) -> str:
        return f"boot-{self._boot}"
