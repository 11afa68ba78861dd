"""A metadata table of the broker and its file: read once at the start, written after each change.

The files are RocketMQ's own (fastjson's dialect when an Apache broker wrote them) in `storePathRootDir/config/`.
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from brokerd import config_file
from brokerd.store import Disk
from mqwire import fastjson
from mqwire.bodies import Body
from mqwire.errors import RemoteProtocolError

logger = logging.getLogger("brokerd.metadata")

BodyT = TypeVar("BodyT", bound=Body)

# A file of ours is not bounded by a frame: a broker with many groups has far more offsets than one answer may hold.
_MAX_FILE_BYTES = 2**30


def decode(body_type: type[BodyT], content: bytes) -> BodyT:
    """The table in `content`; raises ValueError that names what cannot be read."""
    try:
        return msgspec.json.decode(content, type=body_type)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass  # fastjson's dialect, or damaged: the tolerant reader says which
    try:
        return msgspec.convert(fastjson.loads(content, max_length_bytes=_MAX_FILE_BYTES), body_type, strict=False)
    except (RemoteProtocolError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Content of a file as of one moment; a later snapshot has a higher number."""

    number: int
    content: bytes


class MetadataFile:
    """One file of `config_folder`.

    Snapshots are taken in the broker's thread and may be stored in others, several at a time: each is written whole, and
    an older one never replaces a newer.
    """

    def __init__(self, disk: Disk, config_folder: str, name: str) -> None:
        self.name = name
        self.path = os.path.join(config_folder, name)
        self._disk = disk
        self._taken = 0
        self._stored = 0
        self._lock = threading.Lock()

    def load(self, body_type: type[BodyT]) -> BodyT | None:
        """The table on disk, None at a first start; raises UnreadableConfigFile."""
        loaded = config_file.load(self.path, lambda content: decode(body_type, content), self._disk)
        if loaded is None:
            return None
        table, reason = loaded
        if reason is not None:
            logger.error("%s: using the backup, which is older by the last change", reason)
        return table

    def snapshot(self, content: bytes) -> Snapshot:
        """Content to store, in the order of the calls."""
        self._taken += 1
        return Snapshot(self._taken, content)

    def store(self, snapshot: Snapshot) -> None:
        """Replaces the file durably, unless a newer snapshot has done so; raises OSError."""
        with self._lock:
            if snapshot.number > self._stored:
                config_file.store(self.path, snapshot.content, self._disk)
                self._stored = snapshot.number
