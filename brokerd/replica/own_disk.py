"""What a replica of a quorum-led group notes of its own disk when it begins to be one: which it is, and what it may lack."""

from __future__ import annotations

from random import Random

from brokerd.replica.epoch_file import EpochState


def noted(state: EpochState, lost_page_cache: bool, durable_counts: bool, random: Random) -> dict[str, object]:
    """The changes to `state`; none when all is noted already.

    Its incarnation is drawn once (adoption.py). After a power cut, what counted and was in memory only is gone: its log is in
    doubt until it holds again what a leader has confirmed (tally.py).
    """
    lost = lost_page_cache and (state.held_in_memory or not durable_counts)
    wanted: dict[str, object] = {
        "incarnation": state.incarnation or f"{random.getrandbits(64):016x}",
        "in_doubt": state.in_doubt or lost,
        "held_in_memory": not durable_counts,
    }
    return {name: value for name, value in wanted.items() if value != getattr(state, name)}
