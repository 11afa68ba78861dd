"""What may be done to a group that elects its leader, and what is said of each step beforehand."""

from __future__ import annotations

import pytest

from controlplane.failover.membership.plan import ChangeKind, plan_prefer, plan_replace, plan_resize, plan_transfer
from controlplane.failover.promotion.verdict import GroupView
from tests.failover.test_quorum_verdict import away, follower, group, leader, quorum
from tests.failover.views import NOW

FIVE = [0, 1, 2, 3, 4]


def three() -> GroupView:
    return group(leader(), follower(1), follower(2))


def five(*gone: int, lead: int = 0) -> GroupView:
    reported = quorum("leader", voters=FIVE, leader_id=lead)
    views = [
        leader(one, reported) if one == lead else follower(one, quorum(voters=FIVE, leader_id=lead)) for one in FIVE
    ]  # fmt: skip
    return group(*(away(view) if view.replica_id in gone else view for view in views))


def test_a_transfer_says_that_sends_stop_and_reads_go_on() -> None:
    plan = plan_transfer(three(), 2, NOW)
    assert (plan.possible, plan.leader_id, plan.target) == (True, 0, 2)
    assert plan.steps[1].stops.startswith("Sends, meanwhile")
    assert [step.stops for step in (plan.steps[0], plan.steps[2])] == ["Nothing.", "Nothing."]


def test_without_a_target_the_preferred_leader_is_taken_else_the_lowest_id() -> None:
    assert plan_transfer(three(), None, NOW).target == 1
    preferring = group(leader(reported=quorum("leader", preferred_leader=2)), follower(1), follower(2))
    assert plan_transfer(preferring, None, NOW).target == 2


@pytest.mark.parametrize(
    ("view", "target", "why"),
    [
        (three(), 0, "is already the leader"),
        (three(), 7, "There is no replica 7"),
        (group(leader(), follower(1, in_sync=False, gap_bytes=5_000_000), follower(2)), 1, "has not caught up yet"),
        (group(leader(), away(follower(1)), follower(2)), 1, "does not answer"),
        (group(leader(), follower(1, quorum(not_electable_because="x")), follower(2)), 1, "can't lead: x"),
        (group(leader(), follower(1), follower(2), follower(3)), 3, "an observer"),
        (group(away(leader()), follower(1), follower(2)), 1, "broker-a has no leader right now"),
        (group(leader(accepts_sends=False, refusal="alone"), follower(1), follower(2)), 1, "alone"),
    ],
)
def test_what_cannot_take_over_is_a_problem(view: GroupView, target: int, why: str) -> None:
    plan = plan_transfer(view, target, NOW)
    assert not plan.possible
    assert why in plan.problems[0]
    assert plan.steps == ()


def test_who_lacks_the_last_moment_of_a_busy_group_may_take_over() -> None:
    busy = group(leader(), follower(1, in_sync=False, gap_bytes=4096), follower(2))
    assert plan_transfer(busy, 1, NOW).possible


def test_preferring_a_follower_says_that_the_role_goes_to_it() -> None:
    plan = plan_prefer(three(), 2, NOW)
    assert "when the leadership moves to replica 2" in plan.steps[1].stops
    assert plan_prefer(three(), 0, NOW).steps[1].stops == "Nothing."
    assert plan_prefer(three(), None, NOW).steps[1].stops == "Nothing."
    assert not plan_prefer(three(), 5, NOW).possible


def test_a_lost_replica_is_replaced_while_the_others_are_a_majority_on_the_way() -> None:
    plan = plan_replace(group(leader(), follower(1), away(follower(2))), 2, 3, NOW)
    assert (plan.adding, plan.removing, plan.voters_after) == ((3,), (2,), (0, 1, 3))
    assert all(step.stops == "Nothing." for step in plan.steps)


def test_replacing_a_living_replica_says_that_its_readers_move() -> None:
    plan = plan_replace(three(), 2, 3, NOW)
    assert any(step.stops.startswith("Reads from replica 2") for step in plan.steps)


def test_with_three_of_five_there_is_still_a_majority_of_six_on_the_way() -> None:
    assert plan_replace(five(3, 4), 4, 5, NOW).possible


def test_the_leader_is_not_replaced_before_it_has_handed_its_role_over() -> None:
    plan = plan_replace(three(), 0, 3, NOW)
    assert "Transfer the leadership first" in plan.problems[0]


def test_growing_adds_two_and_shrinking_takes_those_that_are_missed_least() -> None:
    grown = plan_resize(three(), 5, 3, NOW)
    assert (grown.kind, grown.adding, grown.voters_after) == (ChangeKind.GROW, (3, 4), (0, 1, 2, 3, 4))
    shrunk = plan_resize(five(1), 3, 5, NOW)
    assert (shrunk.kind, shrunk.removing, shrunk.voters_after) == (ChangeKind.SHRINK, (1, 4), (0, 2, 3))


def test_a_leader_that_is_to_go_hands_its_role_over_first() -> None:
    plan = plan_resize(five(lead=4), 3, 5, NOW, remove=[3, 4])
    assert (plan.target, plan.removing) == (0, (3, 4))
    assert plan.steps[1].title == "Hand the leadership over"
    assert plan_resize(five(lead=4), 3, 5, NOW).removing == (2, 3)


def test_a_group_that_would_be_without_a_majority_is_not_shrunk() -> None:
    plan = plan_resize(five(1, 2), 3, 5, NOW, remove=[3, 4])
    assert "Bring a replica back first" in plan.problems[0]


@pytest.mark.parametrize(("replicas", "why"), [(4, "3 or 5 replicas"), (3, "already has 3 replicas")])
def test_other_sizes_are_refused_with_the_reason(replicas: int, why: str) -> None:
    assert why in plan_resize(three(), replicas, 3, NOW).problems[0]


def test_growing_again_takes_up_what_an_earlier_try_has_left() -> None:
    half_way = group(leader(), follower(1), follower(2), follower(3))
    assert plan_resize(half_way, 5, 4, NOW).adding == (3, 4)


def test_a_group_with_an_assigned_master_is_sent_to_the_other_door() -> None:
    assigned = GroupView(name="broker-a", in_sync_replicas=1, replicas=(leader(), follower(1)))
    for plan in (plan_transfer(assigned, 1, NOW), plan_prefer(assigned, 1, NOW), plan_replace(assigned, 1, 3, NOW)):
        assert "does not elect its leader" in plan.problems[0]
