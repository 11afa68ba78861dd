"""The detector and the rule of loss-free promotion, as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.failover.promotion.verdict import (
    GroupState,
    GroupView,
    ReplicaView,
    candidates_ranked,
    cleanness_of,
    judge,
    promotion_group,
)
from tests.failover.views import NOW, slave_view


def replica(replica_id: int, **changes: object) -> ReplicaView:
    """A slave that is in sync, unless `changes` say otherwise."""
    return slave_view(replica_id, **{"promotable": True, **changes})


def master(replica_id: int = 0, **changes: object) -> ReplicaView:
    return replica(replica_id, **{"role": "master", "accepts_sends": True, **changes})


def away(view: ReplicaView, seconds: float = 30, **changes: object) -> ReplicaView:
    """The same replica, which has not answered for so long."""
    since = NOW - timedelta(seconds=seconds)
    values = {name: getattr(view, name) for name in view.__dataclass_fields__}
    return ReplicaView(**{**values, "unreachable_since": since, "last_seen_at": since, "in_sync": None, **changes})


def group(*replicas: ReplicaView, in_sync_replicas: int = 2) -> GroupView:
    return GroupView(name="broker-a", in_sync_replicas=in_sync_replicas, replicas=replicas, leader_id=0)


def test_a_master_with_slaves_in_sync_is_healthy() -> None:
    verdict = judge(group(master(), replica(1)), NOW)
    assert (verdict.state, verdict.master_id) == (GroupState.HEALTHY, 0)
    assert verdict.sentences == ("broker-a: replica 0 leads, and 1 slave is in sync.",)


def test_without_samples_nothing_is_known() -> None:
    assert judge(group(ReplicaView(replica_id=0), replica(1)), NOW).state == GroupState.UNKNOWN


def test_old_samples_are_not_called_healthy() -> None:
    assert judge(group(master(), replica(1)), NOW + timedelta(minutes=1)).state == GroupState.UNKNOWN


def test_a_slave_that_is_away_is_reported_and_so_is_what_that_means_for_sends() -> None:
    verdict = judge(group(master(), away(replica(1))), NOW)
    assert verdict.state == GroupState.DEGRADED
    assert "Replica 1 of broker-a has not answered since 04:59:30 UTC." in verdict.sentences
    assert any("SLAVE_NOT_AVAILABLE" in sentence for sentence in verdict.sentences)


def test_a_slave_behind_is_reported_with_its_gap() -> None:
    verdict = judge(group(master(), replica(1, in_sync=False, gap_bytes=512), in_sync_replicas=1), NOW)
    assert verdict.sentences == ("Replica 1 of broker-a is not in sync: 512 bytes behind.",)


def test_a_master_that_refuses_sends_says_why() -> None:
    verdict = judge(group(master(accepts_sends=False, refusal="the disk is full"), replica(1)), NOW)
    assert verdict.sentences[0] == "The master of broker-a refuses sends: the disk is full."


def damaged_master() -> ReplicaView:
    """It answers and leads, and takes no message until its log is repaired."""
    return master(
        accepts_sends=False,
        promotable=False,
        log_may_be_incomplete=True,
        not_promotable_because="the log is damaged at 400",
    )


def test_a_master_that_cannot_serve_is_treated_as_no_master() -> None:
    verdict = judge(group(damaged_master(), replica(1)), NOW)
    assert (verdict.state, verdict.candidates) == (GroupState.NO_MASTER, (1,))
    assert verdict.sentences == (
        "Replica 0, the master of broker-a, takes no messages: the log is damaged at 400. Sends fail.",
        "Reads continue from replicas 0 and 1.",
        "Replica 1 can be promoted: replica 1 holds everything that was acknowledged.",
    )


@pytest.mark.parametrize(("lease_s", "clean"), [(5.0, True), (-1.0, False)])
def test_what_a_master_that_cannot_serve_may_have_shown_alone_counts_until_the_fence(
    lease_s: float, clean: bool
) -> None:
    slave = replica(1, shows_below=True, in_sync_epoch=3, in_sync_until=NOW + timedelta(seconds=lease_s))
    view = GroupView(
        name="broker-a", in_sync_replicas=2, replicas=(damaged_master(), slave), leader_id=0, led_epoch=3, led_at=NOW
    )
    assert cleanness_of(view, 1).clean is clean


def test_a_single_broker_that_cannot_serve_says_so_and_offers_nothing() -> None:
    verdict = judge(group(damaged_master(), in_sync_replicas=1), NOW)
    assert (verdict.state, verdict.candidates) == (GroupState.NO_MASTER, ())


def test_a_master_that_missed_one_sample_is_not_dead_yet() -> None:
    verdict = judge(group(away(master(), seconds=1), replica(1)), NOW)
    assert (verdict.state, verdict.cleanness) == (GroupState.DEGRADED, None)


def test_a_master_is_dead_since_its_process_ended_if_that_is_known() -> None:
    ended = NOW - timedelta(seconds=9)
    verdict = judge(group(away(master(), seconds=6, process_ended_at=ended), replica(1)), NOW)
    assert (verdict.state, verdict.master_dead_since) == (GroupState.NO_MASTER, ended)


def test_a_master_whose_process_ended_a_moment_ago_is_given_the_time_of_a_restart() -> None:
    ended = NOW - timedelta(seconds=1)
    verdict = judge(group(away(master(), seconds=1, process_ended_at=ended), replica(1)), NOW)
    assert verdict.state == GroupState.DEGRADED


def test_a_dead_master_is_reported_with_reads_and_the_way_out() -> None:
    verdict = judge(group(away(master()), replica(1)), NOW)
    assert verdict.sentences == (
        "broker-a has had no master since 04:59:30 UTC: replica 0 is down. Sends fail.",
        "Reads continue from replica 1.",
        "Replica 1 can be promoted: replica 1 holds everything that was acknowledged.",
    )


def test_when_no_one_answers_nothing_is_offered() -> None:
    verdict = judge(group(away(master()), away(replica(1))), NOW)
    assert (verdict.state, verdict.candidates) == (GroupState.NO_MASTER, ())
    assert "nothing can be read either" in verdict.sentences[1]


def test_a_former_master_that_came_back_and_may_not_lead_alone_can_be_promoted() -> None:
    verdict = judge(group(replica(0), away(replica(1))), NOW)
    assert verdict.sentences[0] == "broker-a has no master. Sends fail."
    assert verdict.candidates == (0,)
    assert verdict.cleanness is not None
    assert verdict.cleanness.clean


@pytest.mark.parametrize(
    ("one", "two", "wanted"),
    [
        ({"held_offset": 900}, {"held_offset": 1000}, [2, 1]),
        ({"log_epoch": 4, "held_offset": 10}, {"held_offset": 1000}, [1, 2]),
        ({}, {}, [1, 2]),
        ({"promotable": False}, {}, [2]),
        ({"held_offset": None}, {}, [2]),
    ],
)
def test_candidates_are_ranked_by_last_epoch_then_held_offset(
    one: dict[str, object], two: dict[str, object], wanted: list[int]
) -> None:
    ranked = candidates_ranked(group(away(master()), replica(1, **one), replica(2, **two)))
    assert [found.replica_id for found in ranked] == wanted


@pytest.mark.parametrize(
    ("name", "view", "candidate", "clean"),
    [
        ("sync, 2 replicas, master away: 1 answer suffices", group(away(master()), replica(1)), 1, True),
        ("sync, 3 replicas, master away: 2 answers suffice", group(away(master()), replica(1), replica(2)), 1, True),
        ("sync, 3 replicas, two away", group(away(master()), replica(1), away(replica(2))), 1, False),
        (
            "sync, 3 replicas, the shorter log",
            group(away(master()), replica(1, held_offset=900), replica(2)),
            1,
            False,
        ),
        ("async, master away", group(away(master()), replica(1), in_sync_replicas=1), 1, False),
        ("async, the master answers and has caught up", group(replica(0), replica(1), in_sync_replicas=1), 1, True),
        (
            "async, the master answers and has more",
            group(replica(0, held_offset=1200, end_offset=1200), replica(1), in_sync_replicas=1),
            1,
            False,
        ),
        ("the candidate is away", group(away(master()), away(replica(1))), 1, False),
        (
            "a longer log of an older epoch counts less",
            group(away(master()), replica(1, log_epoch=4, held_offset=10), replica(2)),
            1,
            True,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_clean_means_that_what_was_acknowledged_is_on_the_candidate(
    name: str, view: GroupView, candidate: int, clean: bool
) -> None:
    assert cleanness_of(view, candidate).clean is clean


def test_what_is_at_risk_is_counted_from_the_masters_last_word() -> None:
    dead = away(master(end_offset=1500, held_offset=1500))
    cleanness = cleanness_of(group(dead, replica(1, gap_messages=5), in_sync_replicas=1), 1)
    assert (cleanness.bytes_at_risk, cleanness.messages_at_risk) == (500, 5)


def test_what_no_one_knows_is_not_zero() -> None:
    dead = away(master(end_offset=None, held_offset=None))
    cleanness = cleanness_of(group(dead, replica(1), in_sync_replicas=1), 1)
    assert (cleanness.bytes_at_risk, cleanness.messages_at_risk) == (None, None)


# --- a restarted master whose claim is blocked


def test_one_that_was_asked_to_lead_and_whose_answer_was_lost_counts_as_who_may_have_led() -> None:
    view = replace(group(master(), away(replica(1))), asked_id=1, asked_epoch=9)
    assert promotion_group(view).may_have_led[1] == 9


@pytest.mark.parametrize(("seen", "noted", "clean"), [(3, None, True), (8, None, False), (3, 8, False)])
def test_one_that_may_have_led_by_hand_unseen_may_have_shown_what_it_alone_held(
    seen: int, noted: int | None, clean: bool
) -> None:
    """A clean promotion by hand made replica 1 the leader; cut off, it showed its readers what it held alone, and died."""
    former = replica(0, epoch=seen, shows_below=True, led_last_epoch=True)
    view = GroupView(
        name="broker-a", in_sync_replicas=2, replicas=(former, away(replica(1))), leader_id=0, led_epoch=3, led_at=NOW,
        epoch=3, foreign_epoch=noted,
    )  # fmt: skip
    assert cleanness_of(view, 0).clean is clean


def claiming(replica_id: int = 0, **changes: object) -> ReplicaView:
    return replica(replica_id, **{"claims": True, "in_sync": None, **changes})


def blocked(*replicas: ReplicaView, in_sync_replicas: int = 2, led_ago_s: float = 10, led_to: int = 1000) -> GroupView:
    return GroupView(
        name="broker-a",
        in_sync_replicas=in_sync_replicas,
        replicas=replicas,
        leader_id=0,
        led_at=NOW - timedelta(seconds=led_ago_s),
        led_epoch=3,
        led_to_offset=led_to,
    )


def ended(view: ReplicaView, seconds: float) -> ReplicaView:
    return away(view, seconds, process_ended_at=NOW - timedelta(seconds=seconds))


def test_a_restarted_synchronous_master_repeats_without_its_slave() -> None:
    verdict = judge(blocked(claiming(), ended(replica(1), 5)), NOW)
    assert (verdict.state, verdict.repeats, verdict.candidates) == (GroupState.NO_MASTER, True, (0,))
    assert verdict.cleanness is not None
    assert verdict.cleanness.clean
    assert "replica 1 since 04:59:55 UTC" in verdict.sentences[0]
    assert verdict.sentences[-1].startswith("Replica 0 is asked to lead again within seconds")


@pytest.mark.parametrize(
    ("silent_for_s", "clean"),
    [(30, True), (10.5, False), (5, False)],
    ids=["down before it last led", "its end is known to the second only", "down since"],
)
def test_a_restarted_asynchronous_master_repeats_only_if_no_one_can_have_led_since(
    silent_for_s: float, clean: bool
) -> None:
    verdict = judge(blocked(claiming(), ended(replica(1), silent_for_s), in_sync_replicas=1), NOW)
    assert verdict.cleanness is not None
    assert (verdict.repeats, verdict.cleanness.clean) == (True, clean)


def test_what_someone_may_have_taken_meanwhile_is_unknown_not_nothing() -> None:
    verdict = judge(blocked(claiming(), ended(replica(1), 5), in_sync_replicas=1), NOW)
    assert verdict.cleanness is not None
    assert (verdict.cleanness.bytes_at_risk, verdict.cleanness.messages_at_risk) == (None, None)
    assert "what replica 1 took as master after 04:59:50 UTC" in verdict.cleanness.because
    assert verdict.sentences[-1].startswith("Replica 0 can be promoted")


def test_a_silent_replica_whose_process_may_run_could_have_led() -> None:
    """Cut off from the control plane, not ended."""
    verdict = judge(blocked(claiming(), away(replica(1), 30), in_sync_replicas=1), NOW)
    assert verdict.cleanness is not None
    assert not verdict.cleanness.clean


def test_a_silent_replica_whose_log_has_a_later_epoch_led_since() -> None:
    verdict = judge(blocked(claiming(), ended(replica(1, log_epoch=4), 30), in_sync_replicas=1), NOW)
    assert verdict.cleanness is not None
    assert not verdict.cleanness.clean


def test_with_one_slave_of_two_alive_a_synchronous_master_repeats() -> None:
    verdict = judge(blocked(claiming(), replica(1, claims=False), ended(replica(2), 5)), NOW)
    assert (verdict.repeats, verdict.candidates[0]) == (True, 0)


def test_a_slave_that_holds_more_than_the_restarted_master_is_not_passed_over() -> None:
    group = blocked(claiming(), replica(1, held_offset=1200, end_offset=1200), ended(replica(2), 5))
    verdict = judge(group, NOW)
    assert (verdict.repeats, verdict.candidates[0]) == (False, 1)


def test_a_restarted_master_that_lost_its_logs_end_is_not_called_clean() -> None:
    """With ASYNC_FLUSH its machine lost power: the dead slave may hold what it acknowledged."""
    verdict = judge(blocked(claiming(), ended(replica(1), 30), led_to=1300), NOW)
    assert verdict.cleanness is not None
    assert (verdict.cleanness.clean, verdict.cleanness.bytes_at_risk) == (False, 300)


def test_a_slave_that_is_away_for_a_moment_is_waited_for() -> None:
    verdict = judge(blocked(claiming(), ended(replica(1), 1)), NOW)
    assert (verdict.state, verdict.repeats) == (GroupState.DEGRADED, False)
    assert "is asking the others whether it may lead again" in verdict.sentences[0]


def test_a_master_that_someone_demoted_is_not_asked_to_lead_again() -> None:
    verdict = judge(blocked(replica(0), ended(replica(1), 30)), NOW)
    assert (verdict.state, verdict.repeats) == (GroupState.NO_MASTER, False)
