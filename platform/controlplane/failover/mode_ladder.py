"""The modes of a group in their order, and what is certain on the way from one to another. Pure, without Django."""

from collections.abc import Callable, Iterable

# What brokers call the modes, in the order in which a group goes through them.
MODE_LADDER = ("single", "async", "sync", "dledger")


def modes_on_the_way(present: str, wanted: str) -> tuple[str, ...]:
    """Return the modes to go through, the wanted one last; empty when there is nothing to do."""
    begin, end = MODE_LADDER.index(present), MODE_LADDER.index(wanted)
    return MODE_LADDER[begin + 1 : end + 1] if end >= begin else tuple(reversed(MODE_LADDER[end:begin]))


def copies_for_certain(modes: Iterable[str], in_sync_replicas_of: Callable[[str], int]) -> int:
    """Return on how many replicas an acknowledged record is for certain, whichever of these modes the leader acts by.

    A group that elects answers for itself: its majority is 2 or more.
    """
    return min((in_sync_replicas_of(mode) for mode in modes if mode != MODE_LADDER[-1]), default=1)
