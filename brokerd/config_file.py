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
from typing import TypeVar

T = TypeVar("T")


class UnreadableConfigFile(Exception):
    """A metadata file and its backup exist but cannot be read. Repair or restore one of them, then start again.

    To begin without the content on purpose, move both files away.
    """


def load(path: str, decode: Callable[[bytes], T]) -> tuple[T, str | None] | None:
    """What `decode` makes of the file at `path`, or of its backup.

    Returns (value, None) from the file, (value, reason) from the backup with the reason why the file was not used, and
    None when neither exists (a first start). `decode` raises ValueError for content that it cannot read.
    Raises UnreadableConfigFile when something is there but nothing is readable.
    """
    reasons: list[str] = []
    for candidate in (path, path + ".bak"):
        try:
            content = read_file(candidate)
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


def store(path: str, content: bytes) -> None:
    """Replaces the file at `path` by `content`, durably, and keeps the former content as `.bak`.

    After a crash at any step, `path` or its backup holds the old or the new content whole. Raises OSError.
    """
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    temporary = path + ".tmp"
    _write_durably(temporary, content, _mode_of(path))
    with contextlib.suppress(FileNotFoundError):
        _keep_as_backup(path)
    os.replace(temporary, path)
    sync_folder(folder)


def remove(path: str) -> None:
    """Deletes the file and its backup, durably; harmless when they are not there."""
    for name in (path, path + ".bak"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    with contextlib.suppress(FileNotFoundError):
        sync_folder(os.path.dirname(path) or ".")


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _mode_of(path: str) -> int:
    """The mode to write `path` with: as it is, else owner only, for it may hold secret keys and who consumes what."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _keep_as_backup(path: str) -> None:
    """Gives the present content a second name; `path` itself is never absent, not even for a moment."""
    temporary = path + ".bak.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        os.link(path, temporary)
    except FileNotFoundError:
        raise
    except OSError:
        # Some network file systems have no hard links.
        _write_durably(temporary, read_file(path), _mode_of(path))
    os.replace(temporary, path + ".bak")


def _write_durably(path: str, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str) -> None:
    """Makes renames and new names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
