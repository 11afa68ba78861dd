"""The modes of a group in their order, and what is certain on the way from one to another. Pure, without Django."""

from collections.abc import Callable, Iterable

from mqwire.mode import Mode

# The order in which a group goes through them.
MODE_LADDER = (Mode.SINGLE, Mode.ASYNC, Mode.SYNC, Mode.DLEDGER)


def modes_on_the_way(present: Mode, wanted: Mode) -> tuple[Mode, ...]:
    """Return the modes to go through, the wanted one last; empty when there is nothing to do."""
    begin, end = MODE_LADDER.index(present), MODE_LADDER.index(wanted)
    return MODE_LADDER[begin + 1 : end + 1] if end >= begin else tuple(reversed(MODE_LADDER[end:begin]))


def copies_for_certain(modes: Iterable[Mode], in_sync_replicas_of: Callable[[Mode], int]) -> int:
    """Return on how many replicas an acknowledged record is for certain, whichever of these modes the leader acts by.

    A group that elects answers for itself: its majority is 2 or more.
    """
    return min((in_sync_replicas_of(mode) for mode in modes if mode != Mode.DLEDGER), default=1)
