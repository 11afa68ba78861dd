"""What a processor gives back, and the shape of all processors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from mqwire.command import RemotingCommand

if TYPE_CHECKING:
    # At run time the package of processors imports this module first.
    from collections.abc import Callable

    from brokerd.processors.context import Broker, Peer


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

Handler: TypeAlias = "Callable[[Broker, Peer, RemotingCommand], Reply]"
