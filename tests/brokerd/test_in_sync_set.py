"""Who is in sync, and up to where a group's records are safe."""

import pytest

from brokerd.replica.in_sync import InSyncSet, SendVerdict
from mqwire.mode import Mode

MAX_GAP_BYTES = 10_000


def in_sync_set(
    mode: Mode = Mode.SYNC, *, durable: bool = True, needed: int = 2, at_least: int = 1, auto: bool = False
) -> InSyncSet:
    return InSyncSet(
        mode=mode,
        own_durable_counts=durable,
        in_sync_replicas=needed,
        min_in_sync_replicas=at_least,
        auto_in_sync_replicas=auto,
        max_time_not_level_s=15,
        follower_timeout_s=15,
        max_gap_bytes=MAX_GAP_BYTES,
        confirm_offset=0,
    )


def test_sync_replication_confirms_what_every_in_sync_replica_holds() -> None:
    group = in_sync_set()
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    group.own_held(100, now_s=1)
    assert group.confirm_offset == 0
    assert group.verdict(100) is SendVerdict.WAIT
    group.report(1, end_offset=100, durable_offset=60, leader_end_offset=100, now_s=2)
    assert group.confirm_offset == 60
    group.report(1, end_offset=100, durable_offset=100, leader_end_offset=100, now_s=3)
    assert group.verdict(100) is SendVerdict.SEND_OK


def test_with_asynchronous_flush_a_received_record_counts() -> None:
    group = in_sync_set(durable=False)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    group.own_held(100, now_s=1)
    group.report(1, end_offset=100, durable_offset=0, leader_end_offset=100, now_s=2)
    assert group.verdict(100) is SendVerdict.SEND_OK


def test_one_replica_reporting_twice_counts_once() -> None:
    group = in_sync_set(needed=3)
    for now_s in (0, 1):
        group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=now_s)
    assert group.size == 2
    assert group.verdict(0) is SendVerdict.SLAVE_NOT_AVAILABLE


def test_without_enough_replicas_nothing_is_called_ok() -> None:
    group = in_sync_set()
    group.own_held(100, now_s=0)
    assert group.verdict(50) is SendVerdict.SLAVE_NOT_AVAILABLE


def test_below_the_minimum_sends_are_refused_before_the_append() -> None:
    group = in_sync_set(at_least=2)
    assert group.refuses_sends
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    assert not group.refuses_sends


def test_a_silent_follower_leaves_and_holds_no_one_up() -> None:
    group = in_sync_set(needed=1)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    group.own_held(100, now_s=1)
    assert not group.tick(now_s=15)
    assert group.tick(now_s=15.1)
    assert group.confirm_offset == 100
    assert group.size == 1


def test_a_follower_that_pulls_but_never_gets_level_leaves() -> None:
    group = in_sync_set(needed=1)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    for now_s in range(1, 20):
        group.own_held(now_s * 100, now_s=now_s)
        group.report(1, end_offset=now_s * 50, durable_offset=now_s * 50, leader_end_offset=now_s * 100, now_s=now_s)
    assert group.size == 1
    assert group.confirm_offset == 1900


def test_a_follower_returns_when_it_is_level() -> None:
    group = in_sync_set(needed=1)
    group.own_held(100, now_s=0)
    group.report(1, end_offset=50, durable_offset=50, leader_end_offset=100, now_s=1)
    assert group.size == 1
    group.report(1, end_offset=100, durable_offset=100, leader_end_offset=100, now_s=2)
    assert group.size == 2


def test_the_confirmed_offset_never_falls_when_a_follower_returns() -> None:
    group = in_sync_set(needed=1)
    group.own_held(100, now_s=0)
    assert group.confirm_offset == 100
    group.report(1, end_offset=40, durable_offset=40, leader_end_offset=40, now_s=1)
    assert group.confirm_offset == 100
    assert group.size == 1


@pytest.mark.parametrize("held", [0, 99])
def test_local_modes_ask_no_one_else(held: int) -> None:
    group = in_sync_set(Mode.ASYNC)
    group.own_held(held, now_s=0)
    assert group.verdict(100) is SendVerdict.WAIT
    group.own_held(100, now_s=1)
    assert group.verdict(100) is SendVerdict.SEND_OK
    assert group.confirm_offset == 100


def test_without_enough_replicas_in_sync_nothing_is_acknowledged_however_long_it_is_held() -> None:
    alone = in_sync_set()
    alone.own_held(100, now_s=1)
    assert (alone.confirm_offset, alone.verdict(100)) == (100, SendVerdict.SLAVE_NOT_AVAILABLE)


@pytest.mark.parametrize(("at_least", "expected"), [(1, SendVerdict.SEND_OK), (2, SendVerdict.SLAVE_NOT_AVAILABLE)])
def test_enable_auto_in_sync_replicas_lets_those_in_sync_be_enough_down_to_the_minimum(
    at_least: int, expected: SendVerdict
) -> None:
    alone = in_sync_set(at_least=at_least, auto=True)
    alone.own_held(100, now_s=1)
    assert alone.verdict(100) is expected


def test_with_enable_auto_in_sync_replicas_a_replica_in_sync_is_still_waited_for() -> None:
    group = in_sync_set(auto=True)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    group.own_held(100, now_s=1)
    assert group.verdict(100) is SendVerdict.WAIT


def test_where_fewer_than_enough_may_not_be_shown_readers_see_nothing_new_while_too_few_are_in_sync() -> None:
    """As in KIP-966: what one replica alone holds may be truncated by a clean promotion."""
    group = in_sync_set(at_least=2)
    group.own_held(100, now_s=0)
    assert group.confirm_offset == 0
    group.report(1, end_offset=100, durable_offset=100, leader_end_offset=100, now_s=1)
    assert group.confirm_offset == 100
    group.own_held(200, now_s=2)
    assert not group.tick(now_s=60)
    assert group.confirm_offset == 100


def test_where_it_may_be_shown_a_dead_slave_is_no_outage_for_readers() -> None:
    group = in_sync_set(at_least=1)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    group.own_held(100, now_s=1)
    assert (group.confirm_offset, group.tick(now_s=16), group.confirm_offset) == (0, True, 100)


def test_a_new_leader_shows_nothing_new_before_those_that_promised_have_reported() -> None:
    group = in_sync_set()
    group.await_in_sync({0, 1, 2}, now_s=0)
    group.own_held(100, now_s=0)
    group.report(1, end_offset=100, durable_offset=100, leader_end_offset=100, now_s=1)
    assert group.confirm_offset == 0
    group.report(2, end_offset=100, durable_offset=100, leader_end_offset=100, now_s=2)
    assert group.confirm_offset == 100


def test_one_that_promised_and_died_is_waited_for_as_long_as_any_slave_may_be_silent() -> None:
    group = in_sync_set()
    group.await_in_sync({1}, now_s=0)
    group.own_held(100, now_s=0)
    assert not group.tick(now_s=14)
    assert group.tick(now_s=16)


def test_a_follower_learns_how_long_nothing_is_shown_that_it_does_not_hold_and_that_is_kept() -> None:
    group = in_sync_set()
    assert group.lease_s(1) == 0
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    assert group.lease_s(1) == 15
    group.own_held(10**9, now_s=1)  # further ahead than haMaxGapNotInSync
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=10**9, now_s=2)
    group.tick(now_s=14.9)
    assert group.confirm_offset == 0
    group.tick(now_s=15.1)
    assert group.confirm_offset == 10**9


def test_asynchronous_replication_promises_no_follower_anything() -> None:
    group = in_sync_set(Mode.ASYNC)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    assert group.lease_s(1) == 0


def test_a_follower_too_far_behind_is_not_waited_for_though_nothing_is_shown_that_it_does_not_hold() -> None:
    group = in_sync_set(at_least=2)
    group.report(1, end_offset=0, durable_offset=0, leader_end_offset=0, now_s=0)
    assert group.lease_s(1) > 0
    group.own_held(MAX_GAP_BYTES, now_s=1)
    assert (group.verdict(MAX_GAP_BYTES), group.refuses_sends) == (SendVerdict.WAIT, False)
    group.own_held(MAX_GAP_BYTES + 1, now_s=1)
    assert (group.verdict(MAX_GAP_BYTES + 1), group.refuses_sends) == (SendVerdict.SLAVE_NOT_AVAILABLE, True)
    assert (group.size, group.confirm_offset) == (2, 0), "what it was promised is kept"
    group.report(1, end_offset=1, durable_offset=1, leader_end_offset=MAX_GAP_BYTES + 1, now_s=2)
    assert (group.verdict(MAX_GAP_BYTES + 1), group.refuses_sends) == (SendVerdict.WAIT, False)
