"""Which modes lead where in place, and what forbids it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.failover.mode.plan import plan_mode
from controlplane.failover.mode_changes import mode_path, replicas_surely_holding
from controlplane.failover.promotion.verdict import GroupView
from tests.failover.test_quorum_verdict import away, follower, group, leader
from tests.failover.views import NOW


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
        ("single", "async", ("async",)),
        ("single", "dledger", ("async", "sync", "dledger")),
        ("multi", "sync", ("async", "sync")),
        ("sync", "single", ("async", "single")),
        ("dledger", "multi", ("sync", "async", "multi")),
        ("single", "multi", ()),
    ],
)
def test_the_way_from_mode_to_mode_passes_through_those_between(
    present: str, wanted: str, path: tuple[str, ...]
) -> None:
    assert mode_path(present, wanted) == path


@pytest.mark.parametrize(
    ("mode", "hanging", "held_by"),
    [
        ("sync", [], 2),
        ("async", [], 1),
        ("sync", [("sync", "async")], 1),
        ("async", [("async", "sync")], 1),
        ("sync", [("sync", "dledger")], 2),
        ("sync", [("sync", "dledger"), ("sync", "async")], 1),
        ("dledger", [("dledger", "sync")], 2),
        ("dledger", [("dledger", "async")], 1),
    ],
)
def test_while_a_change_hangs_a_promotion_counts_on_the_weakest_mode_on_its_way(
    mode: str, hanging: list[tuple[str, str]], held_by: int
) -> None:
    assert replicas_surely_holding(mode, hanging) == held_by


def test_each_step_says_what_it_changes_and_that_nothing_stops() -> None:
    plan = plan_mode("async", "dledger", [three()], NOW)
    assert plan.possible
    assert [step.title for step in plan.steps] == [
        "Look at every replica",
        "Change from async to sync",
        "Change from sync to dledger",
        "Record the new mode",
    ]
    assert {step.stops for step in plan.steps} == {"Nothing."}
    assert "the replicas elect their leader" in plan.steps[2].does
    assert "the groups elect" in plan.steps[3].does


def test_the_way_back_says_that_a_dead_leader_waits_for_an_operator() -> None:
    plan = plan_mode("dledger", "sync", [three()], NOW)
    assert "until an operator promotes a slave" in plan.steps[1].does


@pytest.mark.parametrize(
    ("present", "wanted", "view", "why"),
    [
        ("sync", "sync", three(), "in mode sync already"),
        ("sync", "multi", three(), "First add a group (POST …/grow/), and change to multi last"),
        ("single", "multi", group(leader()), "First change to async, then add a group"),
        ("single", "single", group(leader()), "in mode single already, with 1 replica in each"),
        ("single", "async", group(away(leader())), "wait until its broker is back"),
        ("dledger", "dledger", three(), "in mode dledger already"),
        ("sync", "dledger", group(leader(), follower(1), away(follower(2))), "Replica 2 of broker-a has not caught up"),
        ("sync", "dledger", group(away(leader()), follower(1), follower(2)), "broker-a has no leader right now"),
        (
            "dledger",
            "sync",
            group(leader(), follower(1), follower(2), follower(3), follower(4)),
            "changed by POST …/groups/broker-a/resize/. First shrink it to 3, then change the mode",
        ),
    ],
)
def test_what_forbids_it_is_reported(present: str, wanted: str, view: GroupView, why: str) -> None:
    plan = plan_mode(present, wanted, [view], NOW)
    assert (plan.possible, plan.steps) == (False, ())
    assert any(why in problem for problem in plan.problems)


def test_a_cluster_of_several_groups_becomes_multi_not_single() -> None:
    views = [three(), replace(three(), name="broker-b")]
    plan = plan_mode("async", "single", views, NOW)
    assert "this one has 2. Change to multi instead" in plan.problems[0]
    alone = [group(leader()), replace(group(leader()), name="broker-b")]
    assert plan_mode("multi", "sync", alone, NOW).adding == {"broker-a": (1,), "broker-b": (1,)}
    plan = plan_mode("async", "multi", views, NOW)
    assert plan.possible
    assert plan.removing == {"broker-a": (1, 2), "broker-b": (1, 2)}


def test_a_group_of_one_gets_its_replicas_before_anything_changes() -> None:
    plan = plan_mode("single", "dledger", [group(leader())], NOW, next_ids={"broker-a": 4})
    assert (plan.replicas_before, plan.replicas_after, plan.adding) == (1, 3, {"broker-a": (4, 5)})
    assert [step.title for step in plan.steps] == [
        "Look at every replica",
        "Start the new replicas",
        "Catch up",
        "Update the running masters",
        "Change from single to async",
        "Change from async to sync",
        "Change from sync to dledger",
        "Record the new mode",
    ]
    assert "replicas 4 and 5 of broker-a" in plan.steps[1].does
    assert {step.stops for step in plan.steps} == {"Nothing."}


def test_replicas_go_when_no_send_waits_for_them_and_the_leader_stays() -> None:
    plan = plan_mode("dledger", "single", [group(follower(0), leader(1), follower(2))], NOW)
    assert (plan.removing, plan.costs_safety) == ({"broker-a": (0, 2)}, True)
    assert [step.title for step in plan.steps] == [
        "Look at every replica",
        "Change from dledger to sync",
        "Change from sync to async",
        "Remove replicas",
        "Change from async to single",
        "Record the new mode",
    ]
    assert plan.steps[3].stops == "Reads from replicas 0 and 2 of broker-a. Consumers move to the master."
    assert "what is on its disk is lost with its disk" in plan.steps[4].does


def test_who_is_away_goes_first_and_need_not_be_level() -> None:
    plan = plan_mode("async", "async", [group(leader(), away(follower(1)), follower(2))], NOW, replicas=2)
    assert (plan.possible, plan.path, plan.removing) == (True, (), {"broker-a": (1,)})


def test_a_pair_that_is_to_elect_gets_a_third_replica() -> None:
    plan = plan_mode("sync", "dledger", [group(leader(), follower(1))], NOW)
    assert (plan.adding, plan.path) == ({"broker-a": (2,)}, ("dledger",))


@pytest.mark.parametrize(
    ("wanted", "replicas", "why"),
    [
        ("single", 2, "A group of mode single has 1 replica, not 2"),
        ("sync", 5, "A group of mode sync has 2 or 3 replicas, not 5"),
        ("dledger", 4, "A group of mode dledger has 3 or 5 replicas, not 4"),
    ],
)
def test_how_many_replicas_a_mode_has_is_reported(wanted: str, replicas: int, why: str) -> None:
    plan = plan_mode("async", wanted, [three()], NOW, replicas=replicas)
    assert why in plan.problems[0]


def test_what_an_unfinished_change_left_behind_is_finished_or_removed() -> None:
    unfinished = group(leader(), away(follower(1)))
    assert plan_mode("single", "async", [unfinished], NOW).possible
    back = plan_mode("single", "single", [unfinished], NOW)
    assert (back.possible, back.path, back.removing) == (True, (), {"broker-a": (1,)})


def test_the_way_back_from_a_change_that_hangs_begins_with_the_mode_that_was_asked_for() -> None:
    plan = plan_mode("sync", "sync", [three()], NOW, hanging="async")
    assert (plan.possible, plan.mode_before, plan.mode_after, plan.path) == (True, "async", "sync", ("sync",))
    assert not plan_mode("sync", "sync", [three()], NOW).possible


def test_a_majority_in_memory_is_pointed_out_where_no_one_asked_for_disks() -> None:
    for flush, reported in (("ASYNC_FLUSH", True), ("SYNC_FLUSH", False)):
        plan = plan_mode("sync", "dledger", [three()], NOW, flush_disk_type=flush)
        assert ("stays ASYNC_FLUSH" in plan.steps[1].does) is reported
