"""The consumer groups that an administrator makes, changes and deletes; and what must be left of the last answered change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.history import History, Violation

if TYPE_CHECKING:
    from brokerd.broker import Broker


def judge_made_groups(history: History, name: str, broker: Broker) -> None:
    """`name` is the machine's; raises Violation."""
    table = broker.subscription_groups.to_wrapper().subscription_group_table
    for group_name, group in history.made_groups.items():
        if not group.is_known or group.copy is None or history.may_be_lost(group.copy):
            continue
        config = table.get(group_name)
        found = None if config is None else config.retry_max_times
        if found != group.retries:
            raise Violation(
                f"group {group_name} was answered to have {_said(group.retries)}, and has {_said(found)} on {name}"
            )


def _said(retries: int | None) -> str:
    return "been deleted" if retries is None else f"{retries} retries"
