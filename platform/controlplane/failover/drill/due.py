"""Whether an ordered drill begins now, waits, or is skipped. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from controlplane.common.sentences import say, say_all


@dataclass(frozen=True, slots=True)
class Window:
    """When a drill may begin: from `opens_at` on, and before `closes_at`. `because` is why it did not begin at the last look."""

    opens_at: datetime
    closes_at: datetime
    because: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """It begins now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It does not begin yet; `because` is empty before the window opens."""

    because: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """It does not begin any more."""

    because: str


Decision: TypeAlias = Start | Wait | Skipped


def due(window: Window, now: datetime, problems: Sequence[str], refusal: str = "") -> Decision:
    """Decide. `problems` are what forbids a drill of the group now; before and after the window no one needs to look for them.

    `refusal` is why who ordered it may not any more: that ends the order at once, for no one waits for them to be let in again.
    """
    if now < window.opens_at:
        return Wait()
    if now >= window.closes_at:
        passed = say("The window passed before the drill could begin.")
        return Skipped(say_all(passed, window.because or _NO_ONE_LOOKED))
    if refusal:
        return Skipped(refusal)
    if problems:
        return Wait(say_all(*problems))
    return Start()


_NO_ONE_LOOKED = say("Within it no worker of Highwater looked at the group.")
