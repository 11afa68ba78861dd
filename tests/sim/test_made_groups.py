"""What must be left of consumer groups that were made, changed and deleted, as the observer judges it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mqwire.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from tests.sim.history import Copy, History, Violation
from tests.sim.made_groups import judge_made_groups
from tests.sim.sim_requests import ChangeGroup

NAME = "made-group0"


@pytest.fixture
def history() -> History:
    """Of a group that was given 7 retries."""
    history = History(mode="async", in_sync_replicas=1)
    history.changed(ChangeGroup(NAME, 7), Copy("r0", 1, 0, 10, -1))
    return history


def broker_with(retries: int | None) -> Any:
    config = None if retries is None else SubscriptionGroupConfig(group_name=NAME, retry_max_times=retries)
    wrapper = SubscriptionGroupWrapper(subscription_group_table={NAME: config} if config else {})
    return SimpleNamespace(subscription_groups=SimpleNamespace(to_wrapper=lambda: wrapper))


def test_an_answered_change_of_a_group_is_there(history: History) -> None:
    judge_made_groups(history, "r0", broker_with(7))
    with pytest.raises(Violation, match="was answered to have 7 retries, and has 5 retries on r0"):
        judge_made_groups(history, "r0", broker_with(5))
    with pytest.raises(Violation, match="was answered to have 7 retries, and has been deleted on r0"):
        judge_made_groups(history, "r0", broker_with(None))


def test_a_deleted_group_stays_deleted(history: History) -> None:
    history.changed(ChangeGroup(NAME, None), Copy("r0", 1, 10, 20, -1))
    judge_made_groups(history, "r0", broker_with(None))
    with pytest.raises(Violation, match="was answered to have been deleted, and has 7 retries on r0"):
        judge_made_groups(history, "r0", broker_with(7))


def test_a_change_that_is_not_answered_may_be_done_or_not(history: History) -> None:
    history.made_groups[NAME].is_known = False
    judge_made_groups(history, "r0", broker_with(7))
    judge_made_groups(history, "r0", broker_with(5))


def test_a_change_that_is_refused_leaves_the_group_as_it_was(history: History) -> None:
    history.made_groups[NAME].is_known = False
    history.refused(ChangeGroup(NAME, 5))
    with pytest.raises(Violation, match="7 retries"):
        judge_made_groups(history, "r0", broker_with(5))


def test_a_change_that_a_loss_took_may_be_undone(history: History) -> None:
    history.may_be_lost = lambda copy: True  # type: ignore[method-assign] # as after a promotion that loses it
    judge_made_groups(history, "r0", broker_with(None))
