"""The rule of loss-free promotion, which the control plane, the command line and the simulation share."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import create_autospec

import msgspec
import pytest

from highwater import Admin, ConfigurationError, GroupMember, NoRouteError, QuorumStatus, ReplicaStatus
from highwater._admin_replica import group_by_promises, plan_promotion
from highwater._cli_replicas import _carried_out
from highwater.promotion import (
    Ballot,
    FormerLeader,
    Group,
    Standing,
    ballot_above,
    ballot_drawn,
    cleanness_of,
    decide,
    is_drained,
    judge_recovery,
    lacks_an_epoch,
    promises_in,
)
from highwater.promotion_by_hand import promotion_by_hand

BALLOT = Ballot(4, 5)


def said(replica_id: int, held: int = 1000, **changes: Any) -> Standing:
    values: dict[str, Any] = {"epoch": 4, "log_epoch": 3, "held_offset": held, "end_offset": held, **changes}
    return Standing(replica_id=replica_id, **values)


def by_id(*standings: Standing) -> dict[int, Standing]:
    return {one.replica_id: one for one in standings}


def group(replicas: int = 3, in_sync_replicas: int = 2, former: FormerLeader | None = None) -> Group:
    return Group(replica_ids=range(replicas), in_sync_replicas=in_sync_replicas, former=former)


LED_LAST = FormerLeader(replica_id=0, epoch=3, end_offset=1000, no_one_since=True)


def test_an_answer_is_a_promise_of_this_fence_alone_and_of_no_one_who_leads_or_elects() -> None:
    answers = [said(0, epoch=4), said(1, epoch=3), said(2, epoch=6), said(3, leads=True), said(4, elects=True)]
    assert promises_in(answers, BALLOT).keys() == {0}


def test_the_control_planes_fence_is_never_one_that_the_command_line_draws() -> None:
    for highest in range(20):
        reserved, drawn = ballot_above([highest]), ballot_drawn([highest], Random(highest))
        assert highest < reserved.fence < reserved.epoch
        assert highest < drawn.fence < drawn.epoch
        assert reserved.fence % 4 == 0
        assert drawn.fence % 4 == 2


def test_two_that_draw_at_once_hardly_have_the_same_epoch() -> None:
    """Of 64 ballots the simulation's operators soon drew one twice, and two replicas led in its epoch."""
    drawn = {ballot_drawn([1], Random(chance)).epoch for chance in range(100)}
    assert len(drawn) >= 98


def test_ones_fence_is_never_the_epoch_in_which_anothers_leader_leads() -> None:
    """Who promised it followed that leader, which went on to acknowledge with its help."""
    for chance in range(20):
        drawn = ballot_drawn([1], Random(chance))
        for seen in (drawn.fence, drawn.epoch):
            assert ballot_above([seen]).fence > drawn.epoch
            assert ballot_drawn([seen], Random(chance)).fence > drawn.epoch
    reserved = ballot_above([1])
    for seen in (reserved.fence, reserved.epoch):
        assert ballot_drawn([seen], Random(0)).fence > reserved.epoch


@pytest.mark.parametrize(
    ("promised", "candidate", "clean"),
    [
        ((said(1), said(2)), 1, True),
        ((said(1),), 1, False),
        ((said(1), said(2, 1200)), 1, False),
        ((said(1), said(2, 1200)), 2, True),
        ((said(1, 5000, log_epoch=2), said(2)), 1, False),
        (
            (said(1), said(2, 0, disk_is_new=True)),
            1,
            False,
        ),  # what that replica held is gone, and it knows nothing of it
        ((said(1, disk_is_new=True), said(2), said(0)), 1, False),
        ((said(1), said(2), said(0, 0, disk_is_new=True)), 1, True),
    ],
)
def test_a_promotion_is_clean_by_enough_promises_of_disks_that_count(
    promised: tuple[Standing, ...], candidate: int, clean: bool
) -> None:
    assert cleanness_of(group(), by_id(*promised), candidate).clean is clean


def test_a_replica_that_may_have_lost_its_logs_end_is_no_answer_whether_it_holds_more_or_less() -> None:
    doubtful = said(2, 1200, log_may_be_incomplete=True)
    assert not cleanness_of(group(), by_id(said(1), doubtful), 1).clean
    assert not cleanness_of(group(), by_id(said(1), doubtful), 2).clean
    assert "may have lost the end" in cleanness_of(group(), by_id(said(1), doubtful), 2).because
    assert cleanness_of(group(), by_id(said(1), said(0), doubtful), 1).clean


def test_where_a_log_may_be_incomplete_whoever_holds_most_leads_once_every_replica_has_promised() -> None:
    doubtful, other = said(0, 1200, log_may_be_incomplete=True), said(1, 900)
    decision = decide(group(2, 1), by_id(doubtful, other), 0)
    assert decision.leader_id == 0
    assert not decision.cleanness.clean
    assert decide(group(3, 1), by_id(doubtful, other), 0).leader_id is None
    assert decide(group(2, 1), by_id(doubtful, other), 1, may_choose=False).leader_id is None


def test_where_a_log_may_be_incomplete_beside_a_new_disk_the_loss_is_an_operators_to_agree_to() -> None:
    """The disk before may hold what a power cut took from the other, and can be put back."""
    promised = by_id(said(0, 1200, log_may_be_incomplete=True), said(1, 0, disk_is_new=True))
    decision = decide(group(2), promised, 0)
    assert decision.leader_id is None
    assert "The disk of replica 1 is new" in decision.cleanness.because
    assert decide(group(2), promised, 0, may_lose=True).leader_id == 0


def test_what_lies_past_the_damage_of_one_that_cannot_lead_is_given_up_by_no_one_but_an_operator() -> None:
    damaged = said(0, 500, end_offset=1200, log_may_be_incomplete=True, promotable=False)
    assert decide(group(2, 1), by_id(damaged, said(1, 1000)), 1).leader_id is None
    assert decide(group(2, 1), by_id(damaged, said(1, 1000)), 1, may_lose=True).leader_id == 1
    assert decide(group(2), by_id(damaged, said(1, 1300)), 1).leader_id == 1


def test_who_led_last_and_lost_its_logs_end_counts_no_more_than_one_who_does_not_answer() -> None:
    lost = by_id(said(0, 700), said(1, 600))
    assert not cleanness_of(group(former=LED_LAST), lost, 0).clean
    assert cleanness_of(group(former=LED_LAST), lost, 0).bytes_at_risk == 300
    assert not cleanness_of(group(former=LED_LAST), by_id(said(0, 700), said(1, 900)), 1).clean


def test_where_who_led_last_lost_its_logs_end_whoever_holds_that_leads_once_every_replica_has_promised() -> None:
    """Nothing that anyone waits for brings more back; what it was known to hold and no one holds is an operator's to give up."""
    led_last = FormerLeader(replica_id=0, epoch=3, end_offset=1000)
    decision = decide(group(2, 1, led_last), by_id(said(0, 700), said(1, 1000)), 1)
    assert (decision.leader_id, decision.cleanness.clean) == (1, False)
    assert decide(group(2, 1, led_last), by_id(said(0, 700), said(1, 999)), 1).leader_id is None
    assert decide(group(3, 1, led_last), by_id(said(0, 700), said(1, 1000)), 1).leader_id is None


def test_no_one_led_last_where_another_log_has_a_later_epoch_though_it_is_damaged() -> None:
    led_since = said(1, 500, end_offset=1200, log_epoch=4, log_may_be_incomplete=True, promotable=False)
    assert cleanness_of(group(2, 1, LED_LAST), by_id(said(0), said(1, 500, log_may_be_incomplete=True)), 0).clean
    assert not cleanness_of(group(2, 1, LED_LAST), by_id(said(0), led_since), 0).clean
    assert decide(group(2, 1, LED_LAST), by_id(said(0), led_since), 0).leader_id is None


def test_no_one_led_last_whose_own_log_has_a_later_epoch_than_the_one_that_it_led_in() -> None:
    """It has followed another leader since, who acknowledges alone, and does not answer."""
    former = FormerLeader(replica_id=0, epoch=3, end_offset=1000, no_one_since=True)
    promises = by_id(said(0, 1300, log_epoch=8), said(2, 1300, log_epoch=8))
    decision = decide(group(in_sync_replicas=1, former=former), promises, 2)
    assert (decision.leader_id, decision.cleanness.clean) == (None, False)


def test_a_promotion_that_is_not_clean_gives_the_role_back_to_who_led_last_and_to_no_one_else() -> None:
    promised = by_id(said(0, 1200), said(1, 1000), said(2, 900))
    decision = decide(group(former=LED_LAST), promised, 1)
    assert (decision.leader_id, decision.gives_back) == (0, True)
    unsure = FormerLeader(replica_id=2, epoch=3, no_one_since=True)
    assert (
        decide(group(former=unsure), promised, 1).leader_id == 0
    )  # replica 0 holds more: the last leader would lose it


def test_where_the_wish_is_not_clean_and_the_last_leader_silent_whoever_is_clean_leads() -> None:
    promised = by_id(said(1, 1000), said(2, 1200))
    assert decide(group(former=LED_LAST), promised, 1).leader_id == 2
    assert decide(group(former=LED_LAST), promised, 1, may_choose=False).leader_id is None
    assert decide(group(former=LED_LAST), promised, 1, may_lose=True).leader_id == 1


def test_no_one_leads_who_did_not_promise_whatever_loss_was_agreed_to() -> None:
    assert decide(group(), by_id(said(2)), 1, may_lose=True).leader_id is None


# --- the command line, which has no rows


def status(replica_id: int, **changes: Any) -> ReplicaStatus:
    values: dict[str, Any] = {
        "cluster": "c",
        "group": "broker-a",
        "advertised_broker_id": replica_id,
        "address": f"10.0.0.{replica_id}:10911",
        "role": "slave",
        "mode": "sync",
        "epoch": 3,
        "log_epoch": 3,
        "epoch_map": [(3, 0)],
        "min_offset": 0,
        "end_offset": 1000,
        "durable_offset": 1000,
        "held_offset": 1000,
        "confirm_offset": 1000,
        "flush_disk_type": "SYNC_FLUSH",
        "in_sync_replicas": 2,
        "min_in_sync_replicas": 1,
        "in_sync": [],
        "accepts_sends": False,
        "promotable": True,
        "total_replicas": 3,
        **changes,
    }
    return ReplicaStatus(replica_id=replica_id, **values)


def members(*statuses: ReplicaStatus) -> tuple[GroupMember, ...]:
    return tuple(GroupMember(one.address, one.replica_id, one) for one in statuses)


def test_silent_replicas_that_may_still_elect_are_not_overruled_whoever_agrees_to_a_loss() -> None:
    """Two of three did not hear that the group's leader is assigned again: they may elect a leader of the very same epoch."""
    alone = members(status(2, voters=[0, 1, 2]))
    with pytest.raises(ConfigurationError, match="replicas 0, 1 of broker-a elected its leader once"):
        plan_promotion(alone, "broker-a", 2)
    electing = status(1, quorum=QuorumStatus(state="follower", voters=[0, 1, 2]))
    with pytest.raises(ConfigurationError, match="two leaders of one epoch"):
        plan_promotion(members(status(2, voters=[0, 1, 2]), electing), "broker-a", 2)
    assert plan_promotion(members(status(2, voters=[0, 1, 2]), status(1)), "broker-a", 2).cleanness.clean


OF_TWO: dict[str, Any] = {"mode": "async", "in_sync_replicas": 1, "total_replicas": 2}


@pytest.mark.parametrize(
    ("other", "heard", "lacks"),
    [
        ({"log_epoch": 7, "promotable": False}, 3, True),
        ({"epoch": 8, "end_offset": 1100, "promotable": False}, 3, False),  # it has promised, and led no one since
        ({"log_epoch": 0, "has_caught_up": False, "epoch": 7}, 3, True),  # the disk before this one
        (None, 3, False),
        (None, 7, True),  # as the candidate has heard
    ],
)
def test_by_hand_the_replica_that_is_to_lead_is_told_of_a_leader_of_whom_its_log_may_have_nothing(
    other: dict[str, Any] | None, heard: int, lacks: bool
) -> None:
    """Consumers may have read others in the place of any of its messages: groups that had committed nothing passed over these."""
    said = [status(1, epoch=heard, **OF_TWO), *([] if other is None else [status(0, **{**OF_TWO, **other})])]
    plan = plan_promotion(members(*said), "broker-a", 1)
    admin = create_autospec(Admin, instance=True)
    answers = {one.address: msgspec.structs.replace(one, epoch=plan.ballot.fence) for one in said}
    admin.demote.side_effect = lambda address, *_, **__: answers[address]
    admin.promote.side_effect = lambda address, *_, **__: answers[address]
    _carried_out(admin, plan, promotion_by_hand(plan, may_lose=True))
    assert admin.promote.call_args.kwargs["lacks_an_epoch"] is lacks


@pytest.mark.parametrize(("incomplete", "may_lose"), [(False, False), (False, True), (True, True)])
def test_the_command_line_says_whether_the_loss_of_a_logs_end_was_known_when_it_promised(
    incomplete: bool, may_lose: bool
) -> None:
    """A broker whose log may have lost its end since it promised refuses else; a loss that was agreed to and not needed is none."""
    promised = [status(one, log_may_be_incomplete=incomplete) for one in (1, 2, 0)]
    plan = plan_promotion(members(*promised), "broker-a", 1)
    admin = create_autospec(Admin, instance=True)
    answers = {one.address: msgspec.structs.replace(one, epoch=plan.ballot.fence) for one in promised}
    admin.demote.side_effect = lambda address, *_, **__: answers[address]
    admin.promote.side_effect = lambda address, *_, **__: answers[address]
    _carried_out(admin, plan, promotion_by_hand(plan, may_lose=may_lose))
    assert admin.promote.call_args.kwargs["with_incomplete_log"] is incomplete


def test_the_command_line_counts_replicas_of_which_no_one_knows_the_address() -> None:
    plan = plan_promotion(members(status(1)), "broker-a", 1)
    assert (plan.group.needed, plan.cleanness.clean) == (2, False)
    assert plan_promotion(members(status(1), status(2)), "broker-a", 1).cleanness.clean


def test_the_command_line_compares_what_is_held_and_not_where_the_logs_end() -> None:
    ahead_in_memory = status(1, end_offset=1500, held_offset=900)
    assert not plan_promotion(members(ahead_in_memory, status(2)), "broker-a", 1).cleanness.clean
    assert plan_promotion(members(ahead_in_memory, status(2)), "broker-a", 2).cleanness.clean


def test_by_hand_a_silent_replica_may_have_led_since_where_one_copy_is_enough() -> None:
    heard = members(
        status(0, role="master", mode="async", in_sync_replicas=1), status(2, mode="async", in_sync_replicas=1)
    )
    plan = plan_promotion(heard, "broker-a", 2)
    assert not plan.cleanness.clean
    third = members(status(1, mode="async", in_sync_replicas=1))
    assert plan_promotion((*heard, *third), "broker-a", 2).cleanness.clean


def test_in_the_middle_of_a_change_of_the_mode_a_record_is_surely_on_one_replica_only() -> None:
    changing = members(status(1), status(2, pending_mode="async"))
    assert plan_promotion(changing, "broker-a", 1).group.in_sync_replicas == 1


@pytest.mark.parametrize(
    ("by_now", "clean"),
    [
        ({}, True),
        ({"mode": "async", "in_sync_replicas": 1}, False),
        ({"pending_mode": "async"}, False),
        ({"total_replicas": 4}, False),
    ],
    ids=["as planned", "mode async", "its mode changes", "a replica more"],
)
def test_by_hand_the_mode_and_replicas_count_as_they_are_when_the_fence_is_promised(
    by_now: dict[str, Any], clean: bool
) -> None:
    """Two of three hold what two acknowledged, and not what one did."""
    plan = plan_promotion(members(status(1), status(2)), "broker-a", 1)
    promised = [msgspec.structs.replace(one, **by_now) for one in (status(1), status(2))]
    now = group_by_promises(plan.group, promised)
    assert cleanness_of(now, {one.replica_id: Standing.of(one) for one in promised}, 1).clean is clean


def test_by_hand_nothing_is_promoted_that_a_change_of_the_mode_has_made_a_loss() -> None:
    planned = [status(one) for one in (1, 2)]
    plan = plan_promotion(members(*planned), "broker-a", 1)
    admin = create_autospec(Admin, instance=True)
    answers = {
        one.address: msgspec.structs.replace(one, epoch=plan.ballot.fence, mode="async", in_sync_replicas=1)
        for one in planned
    }
    admin.demote.side_effect = lambda address, *_, **__: answers[address]
    with pytest.raises(NoRouteError, match="Nothing was promoted"):
        _carried_out(admin, plan, promotion_by_hand(plan, may_lose=False))
    admin.promote.assert_not_called()


# --- what a leader shows readers while too few are in sync


def level(replica_id: int, until_s: float | None, epoch: int = 3, log_epoch: int = 3) -> Standing:
    return said(replica_id, log_epoch=log_epoch, shows_below=True, in_sync_epoch=epoch, in_sync_until_s=until_s)


@pytest.mark.parametrize(
    ("ended_at_s", "one", "two", "clean"),
    [
        (50.0, level(1, 60.0), level(2, None), True),  # it was dead while it still showed nothing that replica 1 lacks
        (50.0, level(1, None), level(2, 60.0), True),
        (70.0, level(1, 60.0), level(2, 40.0), False),  # ten seconds in which it may have shown what it alone held
        (None, level(1, 60.0), level(2, 60.0), False),  # no one knows that it ended
        (50.0, level(1, 60.0, epoch=2), level(2, None), False),  # that was the word of another leader
        (50.0, level(1, 60.0, log_epoch=4), level(2, None), False),  # it was restarted, and led again in a later epoch
    ],
)
def test_what_a_dead_leader_may_have_shown_alone_is_not_passed_over_as_clean(
    ended_at_s: float | None, one: Standing, two: Standing, clean: bool
) -> None:
    former = FormerLeader(replica_id=0, epoch=3, ended_at_s=ended_at_s)
    cleanness = cleanness_of(group(former=former), by_id(one, two), 1, at_risk=(900, 7))
    assert cleanness.clean is clean
    assert clean or "may have shown consumers what no other replica holds" in cleanness.because
    assert clean or "there were 7 messages; consumers may have read all of them." in cleanness.because


def test_a_leader_that_shows_only_what_enough_hold_needs_no_proof_of_its_end() -> None:
    former = FormerLeader(replica_id=0, epoch=3)
    assert cleanness_of(group(former=former), by_id(said(1), said(2)), 1).clean


def test_a_leader_that_promises_shows_by_its_log_what_it_has_shown() -> None:
    former = FormerLeader(replica_id=0, epoch=3)
    assert cleanness_of(group(former=former), by_id(level(0, None), level(1, None)), 1).clean


@pytest.mark.parametrize(
    ("may_have_led", "clean"),
    [
        ({0: 3, 1: 3, 2: 3}, True),
        ({2: 5}, False),  # its answer was lost, and it may have shown what it alone held until it was gone, too
        ({1: 5}, True),  # it promises, and its log has nothing of that epoch: it never led
    ],
)
def test_who_was_asked_to_lead_and_is_silent_may_have_shown_what_no_other_holds(
    may_have_led: dict[int, int], clean: bool
) -> None:
    former = FormerLeader(replica_id=0, epoch=3, ended_at_s=50.0)
    asked = replace(group(former=former), may_have_led=may_have_led)
    assert cleanness_of(asked, by_id(level(0, None), level(1, None)), 0).clean is clean


@pytest.mark.parametrize(
    ("said_of_seven", "former", "may_have_led", "clean"),
    [
        ({0: {"led_last_epoch": True}, 1: {}, 2: {"disk_is_new": True}}, (0, 3), {}, True),
        ({0: {}, 1: {}, 2: {"disk_is_new": True}}, (0, 3), {}, False),
        ({0: {"led_last_epoch": True}, 1: {}}, (0, 3), {}, False),  # who is silent may have led in a newer one
        ({0: {"led_last_epoch": True}, 1: {}, 2: {"disk_is_new": True}}, (0, 3), {2: 9}, False),  # with its old disk
        ({0: {"led_last_epoch": True}, 1: {}, 2: {"disk_is_new": True}}, (2, 9), {}, False),  # it was seen to lead so
        ({0: {"led_last_epoch": True}, 1: {"in_sync_epoch": 9}, 2: {"disk_is_new": True}}, (0, 3), {}, False),
        ({0: {"led_last_epoch": True, "log_may_be_incomplete": True}, 1: {}, 2: {}}, (0, 3), {}, False),
    ],
)
def test_who_says_that_it_led_last_has_all_that_it_showed_though_no_one_saw_it_lead(
    said_of_seven: dict[int, dict[str, Any]], former: tuple[int, int], may_have_led: dict[int, int], clean: bool
) -> None:
    """It was restarted, led again between two looks, in epoch seven, and was fenced; the disk of another replica is new."""
    answers = by_id(*(said(key, log_epoch=7, shows_below=True, **changes) for key, changes in said_of_seven.items()))
    seen = FormerLeader(replica_id=former[0], epoch=former[1], ended_at_s=50.0)
    looked_at = replace(group(former=seen), may_have_led=may_have_led)
    assert cleanness_of(looked_at, answers, 1).clean is clean


@pytest.mark.parametrize(
    "old_leader",
    [
        level(0, 60.0, epoch=4, log_epoch=4),  # it follows one that was never seen leading
        level(0, 0.0, epoch=4),  # it has agreed to one, of which it holds nothing yet
    ],
)
def test_an_old_leader_knows_nothing_of_what_one_after_it_has_shown(old_leader: Standing) -> None:
    former = FormerLeader(replica_id=0, epoch=3, ended_at_s=50.0)
    assert not cleanness_of(group(former=former), by_id(old_leader, level(1, None)), 0).clean


@pytest.mark.parametrize(
    ("last_word", "replicas", "clean"),
    [
        (said(0), 3, True),
        (said(0, 1200), 3, False),
        (said(0, disk_is_new=True), 3, False),
        (said(0), 4, False),  # who is silent may have led after it
    ],
)
def test_what_an_old_leader_said_when_it_led_no_more_shows_what_it_has_shown(
    last_word: Standing, replicas: int, clean: bool
) -> None:
    former = FormerLeader(replica_id=0, epoch=3, ended_at_s=50.0, last_word=last_word)
    promised = by_id(level(1, None), level(2, None))
    assert cleanness_of(group(replicas, 3, former), promised, 1).clean is clean


@pytest.mark.parametrize(
    ("answers", "wanted", "problem"),
    [
        ([said(2)], 2, None),
        ([said(1), said(2)], 2, "a majority of 3 voters"),
        ([said(1), said(2, log_may_be_incomplete=True)], 1, None),  # the brokers say whether it has been a minute
        ([said(0), said(1), said(2, log_may_be_incomplete=True)], 1, "a majority of 3 voters"),
        ([said(1, disk_is_new=True), said(2)], 2, None),
        ([said(2)], 1, "Replica 1 does not answer"),
        ([said(1, disk_is_new=True), said(2)], 1, "no voter whose disk counted"),
        ([said(2, promotable=False)], 2, "must not lead"),
        ([said(2), said(7, held=9000)], 7, "is no voter"),
    ],
)
def test_a_group_goes_on_only_without_those_that_it_cannot_elect_without(
    answers: list[Standing], wanted: int, problem: str | None
) -> None:
    recovery = judge_recovery([0, 1, 2], by_id(*answers), wanted)
    assert (recovery.problem is None) if problem is None else (problem in (recovery.problem or ""))


def test_the_one_that_holds_most_of_what_is_left_is_recovered_with_and_the_loss_is_stated() -> None:
    answers = by_id(said(3, held=900), said(4, held=1000))
    assert (
        judge_recovery(range(5), answers, 3).problem
        == "Replica 4 holds more than replica 3 does: recover with that one."
    )
    recovery = judge_recovery(range(5), answers, 4)
    assert (recovery.problem, recovery.lost, recovery.survivors) == (None, (0, 1, 2), (3, 4))
    assert recovery.loss.startswith("Replicas 0 and 1 and 2 of 5 voters are given up for good.")
    assert "not in the log of replica 4, which ends at offset 1000 of epoch 3, is lost" in recovery.loss


@pytest.mark.parametrize(("confirmed", "held", "drained"), [(100, 100, True), (90, 100, False), (100, 90, False)])
def test_a_master_is_drained_when_the_candidate_holds_all_and_every_sender_was_answered(
    confirmed: int, held: int, drained: bool
) -> None:
    assert is_drained(end_offset=100, confirm_offset=confirmed, held_offset=held) is drained


@pytest.mark.parametrize(
    ("former", "may_have_led", "lacks"),
    [
        (None, {}, False),
        (FormerLeader(replica_id=0, epoch=3), {0: 3, 1: 3}, False),
        (FormerLeader(replica_id=2, epoch=7), {}, True),
        (FormerLeader(replica_id=0, epoch=3), {2: 7}, True),
        (FormerLeader(replica_id=0, epoch=3), {1: 9}, False),  # this promotion's own
    ],
)
def test_a_candidate_lacks_an_epoch_that_someone_may_have_led_in_after_its_log(
    former: FormerLeader | None, may_have_led: dict[int, int], lacks: bool
) -> None:
    asked = Group(replica_ids=range(3), in_sync_replicas=1, former=former, may_have_led=may_have_led)
    assert lacks_an_epoch(asked, said(1), fence=8) is lacks
