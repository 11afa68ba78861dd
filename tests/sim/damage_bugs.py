"""Bugs planted in what becomes of damage: recovery that finds it, and the ways that put it right. As in planted_bugs.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

from brokerd import broker as brokers
from brokerd.broker import Broker
from brokerd.services import replica_follower
from brokerd.services.replica_follower import FollowerService
from brokerd.store.recovery import Recovery
from brokerd.store.tail_doubts import TailDoubt, TailDoubts
from tests.sim.planted_bugs import PlantedBug

Patched = AbstractContextManager[Any]


def _whole_records_are_taken_for_torn() -> Patched:
    """Where the bad one in front of them is not known to be durable, and with a full vote afterwards."""
    add = TailDoubts.add

    def adds(self: TailDoubts, doubt: TailDoubt) -> None:
        if doubt is not TailDoubt.RECORDS_TRUNCATED:
            add(self, doubt)

    both = ExitStack()
    both.enter_context(patch.object(Recovery, "_is_unproven", lambda self, scanner, end, next_record: True))
    both.enter_context(patch.object(TailDoubts, "add", adds))
    return both


def _durable_mark_is_not_asked() -> Patched:
    """Nor is any vote given up."""
    scan = Recovery._scan

    def scans(self: Recovery, start: int, dispatch_from: int) -> int:
        mark, self.report.durable_mark = self.report.durable_mark, -1
        try:
            return scan(self, start, dispatch_from)
        finally:
            self.report.durable_mark = mark

    both = ExitStack()
    both.enter_context(_whole_records_are_taken_for_torn())
    both.enter_context(patch.object(Recovery, "_scan", scans))
    return both


def _unknown_boots_count_as_one() -> Patched:
    def lost_writes(self: Recovery) -> bool:
        return self._checkpoint.boot_id != self._disk.boot_id() or TailDoubt.SYNC_FAILED in self._doubts.reasons

    return patch.object(Recovery, "_lost_writes", property(lost_writes))


def _peers_answer(repaired: bool) -> Patched:
    async def asks_no_one(broker: Any, offset: int, write: Callable[[bytes], Awaitable[None]]) -> bool:
        return repaired

    both = ExitStack()
    for module in (brokers, replica_follower):
        both.enter_context(patch.object(module, "repair_from_peers", asks_no_one))
    return both


def _called_done() -> Patched:
    return _peers_answer(True)


def _readers_damage_is_not_looked_for() -> Patched:
    return patch.object(Broker, "_look_for_damage", lambda self: None)


def _repaired_by_no_path() -> Patched:
    """Neither by a peer's records nor by the leader's, nor is it fetched again; and no one looks for what a reader meets."""

    async def leaves_it(self: FollowerService, header: Any, data: bytes, damaged_from: int) -> None:
        """Until someone replaces the disk."""

    every = ExitStack()
    every.enter_context(_peers_answer(False))
    every.enter_context(_readers_damage_is_not_looked_for())
    every.enter_context(patch.object(FollowerService, "_repair", leaves_it))
    return every


DAMAGE_BUGS = (
    PlantedBug(
        "whole records after a damaged one are taken for torn", "async", "sync", _whole_records_are_taken_for_torn
    ),
    PlantedBug("durable records from a damaged one on are taken for torn", "sync", "async", _durable_mark_is_not_asked),
    PlantedBug("two boots without a name count as one", "sync", "async", _unknown_boots_count_as_one),
    PlantedBug("a repair is called done without a record", "sync", "sync", _called_done),
    PlantedBug("no one looks for the damage that a reader meets", "sync", "sync", _readers_damage_is_not_looked_for),
    PlantedBug("damage is repaired by no path", "async", "sync", _repaired_by_no_path),
)
