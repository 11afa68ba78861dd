"""One JSON file of the broker's metadata, written so that a crash leaves the old content or the new one.

    topics.json          what counts
    topics.json.bak      what counted before it (ConfigManager writes the same two)
    topics.json.tmp      a write under way; ignored when found

Reading takes the file, else the backup. When a file is there but neither can be read, the broker must not start: an
empty table instead would let a consumer group begin at offset 0 again (reliability.md, C6).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, TypeVar

from brokerd.store import Disk, OsDisk
from brokerd.store.durable_file import write_file

T = TypeVar("T")

_OS_DISK: Final = OsDisk()


class UnreadableConfigFile(Exception):
    """A metadata file and its backup exist but cannot be read. Repair or restore one of them, then start again.

    To begin without the content on purpose, move both files away.
    """


def load(path: str, decode: Callable[[bytes], T], disk: Disk = _OS_DISK) -> tuple[T, str | None] | None:
    """What `decode` makes of the file at `path`, or of its backup.

    Returns (value, None) from the file, (value, reason) from the backup with the reason why the file was not used, and
    None when neither exists (a first start). `decode` raises ValueError for content that it cannot read.
    Raises UnreadableConfigFile when something is there but nothing is readable.
    """
    reasons: list[str] = []
    for candidate in (path, path + ".bak"):
        try:
            content = read_file(candidate, disk)
        except FileNotFoundError:
            if candidate == path:
                reasons.append(f"{path} is missing")
            continue
        except OSError as error:
            reasons.append(f"{candidate} cannot be read: {error.strerror or error}")
            continue
        if not content.strip():
            # A machine that lost power with RocketMQ's own writer leaves such a file: it is damaged, not "no topics".
            reasons.append(f"{candidate} is empty")
            continue
        try:
            return decode(content), "; ".join(reasons) if candidate != path else None
        except ValueError as error:
            reasons.append(f"{candidate} is damaged: {error}")
    if reasons == [f"{path} is missing"]:
        return None
    raise UnreadableConfigFile(
        "; ".join(reasons) + ". Restore one of the two from a backup, or move both away to begin without their content."
    )


def store(path: str, content: bytes, disk: Disk = _OS_DISK) -> None:
    """Replaces the file at `path` by `content`, durably, and keeps the former content as `.bak`.

    After a crash at any step, `path` or its backup holds the old or the new content whole. Raises OSError.
    """
    folder = os.path.dirname(path) or "."
    disk.make_directory(folder)
    temporary = path + ".tmp"
    write_file(disk, temporary, content, _permissions_of(disk, path))
    with contextlib.suppress(FileNotFoundError):
        _keep_as_backup(disk, path)
    disk.rename(temporary, path)
    disk.sync_directory(folder)


def store_backup(path: str, content: bytes, disk: Disk = _OS_DISK) -> None:
    """Replaces the backup alone, durably: for what must not keep its former content, such as secrets that were deleted."""
    temporary = path + ".bak.tmp"
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(temporary)  # it may be a second name of the file itself
    write_file(disk, temporary, content, _permissions_of(disk, path))
    disk.rename(temporary, path + ".bak")
    disk.sync_directory(os.path.dirname(path) or ".")


def remove(path: str, disk: Disk = _OS_DISK) -> None:
    """Deletes the file and its backup, durably; harmless when they are not there."""
    for name in (path, path + ".bak"):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(name)
    with contextlib.suppress(FileNotFoundError):
        disk.sync_directory(os.path.dirname(path) or ".")


def read_file(path: str, disk: Disk = _OS_DISK) -> bytes:
    fd = disk.open(path, os.O_RDONLY)
    try:
        return disk.pread(fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def _permissions_of(disk: Disk, path: str) -> int:
    """Those to write `path` with: as they are, else the owner's only, for it may hold secret keys and who consumes what."""
    try:
        return disk.permissions(path)
    except FileNotFoundError:
        return 0o600


def _keep_as_backup(disk: Disk, path: str) -> None:
    """Gives the present content a second name; `path` itself is never absent, not even for a moment."""
    temporary = path + ".bak.tmp"
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(temporary)
    try:
        disk.link(path, temporary)
    except FileNotFoundError:
        raise
    except OSError:
        # Some network file systems have no hard links.
        write_file(disk, temporary, read_file(path, disk), _permissions_of(disk, path))
    disk.rename(temporary, path + ".bak")
