"""Bugs planted in what changes a group's mode, as in planted_bugs.py: the simulation must find each."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any
from unittest.mock import patch

from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.mode_change import ModeChange
from brokerd.replica.replica import Replica
from brokerd.replica.voters import Members
from controlplane.failover.mode_ladder import copies_for_certain
from controlplane.failover.promotion.verdict import GroupView
from tests.sim import mode_operator
from tests.sim.planted_bugs import PlantedBug

Patched = AbstractContextManager[Any]


def _old_rule_after_the_record() -> Patched:
    hold_back = InSyncSet.hold_back

    def only_into_dledger(self: InSyncSet, begin: int, end: int, members: Members | None, now_s: float) -> None:
        if members is not None:
            hold_back(self, begin, end, members, now_s)

    return patch.object(InSyncSet, "hold_back", only_into_dledger)


def _in_force_from_the_append() -> Patched:
    def at_once(self: ModeChange, now_s: float) -> bool:
        changed = bool(self._pending)
        while self._pending:
            self._replica.adopt_mode(self._pending.pop(0), now_s)
            self.hold_back(now_s)
        return changed

    return patch.object(ModeChange, "adopt", at_once)


def _mode_forgotten_at_a_restart() -> Patched:
    save = Replica._save

    def without_policy(self: Replica, **changes: object) -> None:
        changes.pop("policy", None)
        save(self, **changes)

    return patch.object(Replica, "_save", without_policy)


def _forgotten_at_a_restart_if_unconfirmed() -> Patched:
    return patch.object(ModeChange, "load", lambda self: None)


def _promotion_counts_on_the_row() -> Patched:
    """An operation that failed in the middle may have left a leader who acknowledges with fewer; those who heard of it say so."""
    both = ExitStack()
    both.enter_context(
        patch.object(mode_operator, "copies_for_certain", lambda modes, of: copies_for_certain(islice(modes, 1), of))
    )
    both.enter_context(patch.object(GroupView, "copies_for_certain", property(lambda self: self.in_sync_replicas)))
    return both


def _bug(name: str, patched: Any, replicas: int | None = None, weather: str = "") -> PlantedBug:
    return PlantedBug(name, "changing", "sync", patched, replicas, weather=weather)


CHANGING_BUGS = (
    _bug("the old mode confirms what follows the change", _old_rule_after_the_record),
    _bug("a change is in force from its append", _in_force_from_the_append),
    _bug("a restarted replica forgets the mode", _mode_forgotten_at_a_restart),
    _bug(
        "a restarted replica forgets an unconfirmed change",
        _forgotten_at_a_restart_if_unconfirmed,
        weather="change and restart",
    ),
    _bug(
        "a promotion counts on the mode in the row while a change hangs",
        _promotion_counts_on_the_row,
        3,
        "change and leave",
    ),
)
