"""What a replica notes of its own disk when it starts: which disk it is, and whether its log may lack records at the end."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

from brokerd.replica.epoch_file import EpochState
from brokerd.store import TailDoubt


def changes_by_own_disk(
    state: EpochState, doubts: Collection[TailDoubt], durable_counts: bool, random: Random
) -> dict[str, object]:
    """The changes to `state`; none when all is noted already.

    The incarnation is drawn once (adoption.py). `log_may_be_incomplete` stays until the replica holds again what a leader
    has confirmed: until then its vote does not make a majority (tally.py), and it is no answer to whether a promotion
    is clean.
    - A power cut took what was in memory only: that matters where such records counted.
    - A sync failed: what it was to sync is unproven. What had been synced before is there.
    - Recovery truncated whole records after a damaged one. No one can tell whether that was torn by the power cut or was
      durable, and damaged since; then even with SYNC_FLUSH a record is missing that counted.
    """
    memory_lost = TailDoubt.LOST_PAGE_CACHE in doubts and (state.held_in_memory or not durable_counts)
    may_lack_durable = TailDoubt.RECORDS_TRUNCATED in doubts and durable_counts
    incomplete = memory_lost or TailDoubt.SYNC_FAILED in doubts or TailDoubt.RECORDS_TRUNCATED in doubts
    wanted: dict[str, object] = {
        "incarnation": state.incarnation or f"{random.getrandbits(64):016x}",
        "log_may_be_incomplete": state.log_may_be_incomplete or incomplete,
        "may_lack_durable": state.may_lack_durable or may_lack_durable,
        "held_in_memory": not durable_counts,
    }
    return {name: value for name, value in wanted.items() if value != getattr(state, name)}
