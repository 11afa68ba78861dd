"""Which modes lead where in place, and what forbids it."""

from __future__ import annotations

import pytest

from controlplane.failover.mode_plan import mode_path, plan_mode
from controlplane.failover.verdict import GroupView
from tests.failover.test_quorum_verdict import NOW, away, follower, group, leader


def three() -> GroupView:
    return group(leader(), follower(1), follower(2))


@pytest.mark.parametrize(
    ("present", "wanted", "path"),
    [
        ("async", "sync", ("sync",)),
        ("async", "dledger", ("sync", "dledger")),
        ("sync", "dledger", ("dledger",)),
        ("dledger", "sync", ("sync",)),
        ("dledger", "async", ("sync", "async")),
        ("sync", "async", ("async",)),
        ("sync", "sync", ()),
        ("single", "sync", ()),
        ("multi", "dledger", ()),
    ],
)
def test_the_way_from_mode_to_mode_passes_through_sync(present: str, wanted: str, path: tuple[str, ...]) -> None:
    assert mode_path(present, wanted) == path


def test_each_step_says_what_it_changes_and_that_nothing_stops() -> None:
    plan = plan_mode("async", "dledger", [three()], NOW)
    assert plan.possible
    assert [step.title for step in plan.steps] == [
        "Look at every replica",
        "Change from async to sync",
        "Change from sync to dledger",
        "Note the new mode",
    ]
    assert {step.stops for step in plan.steps} == {"Nothing."}
    assert "the replicas elect their leader" in plan.steps[2].does
    assert "the groups decide" in plan.steps[3].does


def test_the_way_back_says_that_a_dead_leader_waits_for_an_operator() -> None:
    plan = plan_mode("dledger", "sync", [three()], NOW)
    assert "until an operator promotes a slave" in plan.steps[1].does


@pytest.mark.parametrize(
    ("present", "wanted", "view", "why"),
    [
        ("sync", "sync", three(), "in mode sync already"),
        ("single", "dledger", three(), "no way in place"),
        ("sync", "dledger", group(leader(), follower(1)), "has 2 replicas"),
        ("sync", "dledger", group(leader(), follower(1), away(follower(2))), "Replica 2 of broker-a is not level"),
        ("sync", "dledger", group(away(leader()), follower(1), follower(2)), "No replica of broker-a leads"),
        (
            "dledger",
            "sync",
            group(leader(), follower(1), follower(2), follower(3), follower(4)),
            "shrink it first",
        ),
    ],
)
def test_what_forbids_it_is_told(present: str, wanted: str, view: GroupView, why: str) -> None:
    plan = plan_mode(present, wanted, [view], NOW)
    assert (plan.possible, plan.steps) == (False, ())
    assert any(why in problem for problem in plan.problems)
