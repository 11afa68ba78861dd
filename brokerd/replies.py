"""What a processor gives back: a reply, one that waits, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mqwire.command import RemotingCommand


@dataclass(slots=True)
class AfterDurable:
    """A reply that waits until the CommitLog is held up to `end_offset_bytes`, as flushDiskType asks."""

    reply: RemotingCommand
    end_offset_bytes: int


@dataclass(slots=True)
class AfterOffsets:
    """A reply that waits until the consumer offsets as they are now are held, as a message must be."""

    reply: RemotingCommand


# None: nothing to answer. A one-way request's reply is dropped by the dispatcher.
Reply: TypeAlias = RemotingCommand | AfterDurable | AfterOffsets | None


class Refusal(Exception):
    """A request that is not granted; carries the code and the remark of the answer, which names the cause and the way out."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
