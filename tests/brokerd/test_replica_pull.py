"""The leader's answers to replica pulls, and what a follower makes of them."""

from dataclasses import replace

import pytest

from brokerd.replica.epoch_map import Divergence, EpochMap
from brokerd.replica.pull_protocol import (
    ANSWERED_LATE_S,
    CLOCK_MARGIN,
    DEATH_KNOWN_TO_S,
    Diverged,
    Empty,
    Fenced,
    Halt,
    LeaderLog,
    PullDecision,
    ReplicaPull,
    SendBytes,
    TooOld,
    Truncate,
    decide_pull,
    decide_truncation,
    leased_wait_ms,
)

LOG = LeaderLog(min_offset=50, end_offset=1000, epochs=EpochMap([(1, 100), (4, 300), (6, 700)]))
LEVEL = ReplicaPull(
    group="a",
    replica_id=1,
    leader_epoch=6,
    end_offset=1000,
    last_epoch=6,
    durable_offset=900,
    max_bytes=65536,
    max_wait_ms=500,
)


def decide(request: ReplicaPull, *, is_leader: bool = True) -> PullDecision:
    return decide_pull(request, group="a", own_epoch=6, is_leader=is_leader, leader_address="10.0.0.1:1", log=LOG)


def test_a_level_follower_waits_for_more() -> None:
    assert decide(LEVEL) == SendBytes(1000)


def test_a_follower_that_is_a_prefix_gets_bytes_from_its_end() -> None:
    assert decide(replace(LEVEL, end_offset=500, last_epoch=4)) == SendBytes(500)


def test_a_follower_of_another_past_learns_where_the_logs_part() -> None:
    assert decide(replace(LEVEL, end_offset=800, last_epoch=5)) == Diverged(Divergence(4, 700))


def test_a_follower_behind_the_retention_starts_over() -> None:
    assert decide(replace(LEVEL, end_offset=49, last_epoch=0)) == TooOld(50, 0)


@pytest.mark.parametrize("epoch", [5, 7])
def test_another_epoch_is_fenced(epoch: int) -> None:
    answer = decide(replace(LEVEL, leader_epoch=epoch))
    assert isinstance(answer, Fenced)
    assert answer.epoch == 6


def test_another_group_is_told_neither_the_leader_nor_the_epoch() -> None:
    """It would take the epoch for its own, and depose its leader."""
    answer = decide(replace(LEVEL, group="b"))
    assert isinstance(answer, Fenced)
    assert (answer.leader_address, answer.epoch) == (None, 0)


def test_a_leader_of_the_past_that_comes_after_the_retention_learns_where_the_logs_part() -> None:
    epochs = EpochMap([(1, 100), (2, 300), (4, 5_000)])
    log = LeaderLog(min_offset=4_000, end_offset=9_000, epochs=epochs)
    request = replace(LEVEL, end_offset=350, last_epoch=3)
    decision = decide_pull(request, group="a", own_epoch=6, is_leader=True, leader_address=None, log=log)
    assert decision == TooOld(4_000, 2, Divergence(2, 5_000))


def test_a_follower_answers_with_the_leader_that_it_knows() -> None:
    answer = decide(LEVEL, is_leader=False)
    assert isinstance(answer, Fenced)
    assert answer.leader_address == "10.0.0.1:1"


OWN = EpochMap([(1, 100), (4, 300), (5, 500)])


def test_a_follower_cuts_what_the_leader_never_had() -> None:
    assert decide_truncation(
        Divergence(4, 700),
        own=OWN,
        own_min_offset=0,
        own_end_offset=800,
        own_confirm_offset=400,
        may_truncate_confirmed=False,
    ) == Truncate(500)


def test_a_follower_never_cuts_below_its_confirmed_offset_by_itself() -> None:
    answer = decide_truncation(
        Divergence(4, 700),
        own=OWN,
        own_min_offset=0,
        own_end_offset=800,
        own_confirm_offset=600,
        may_truncate_confirmed=False,
    )
    assert isinstance(answer, Halt)


def test_after_an_unclean_promotion_it_may() -> None:
    assert decide_truncation(
        Divergence(4, 700),
        own=OWN,
        own_min_offset=0,
        own_end_offset=800,
        own_confirm_offset=600,
        may_truncate_confirmed=True,
    ) == Truncate(500)


def test_a_follower_whose_retention_has_deleted_where_the_logs_part_drops_all_it_has() -> None:
    assert (
        decide_truncation(
            Divergence(4, 700),
            own=OWN,
            own_min_offset=600,
            own_end_offset=800,
            own_confirm_offset=0,
            may_truncate_confirmed=False,
        )
        == Empty()
    )


def test_an_answer_that_cuts_nothing_is_not_believed() -> None:
    answer = decide_truncation(
        Divergence(5, 900),
        own=OWN,
        own_min_offset=0,
        own_end_offset=800,
        own_confirm_offset=0,
        may_truncate_confirmed=True,
    )
    assert isinstance(answer, Halt)


@pytest.mark.parametrize("lease_s", [3.0, 10.0, 15.0])
def test_a_lease_outlasts_two_held_pulls_and_the_second_in_which_its_leader_died(lease_s: float) -> None:
    two_pulls_s = 2 * (leased_wait_ms(lease_s) / 1000 + ANSWERED_LATE_S)
    assert two_pulls_s + DEATH_KNOWN_TO_S <= lease_s * CLOCK_MARGIN


def test_a_pull_of_the_shortest_lease_is_held_for_a_moment_all_the_same() -> None:
    assert leased_wait_ms(0.1) == 100
