"""A replica's promises across restarts, promotions and reclaims: the pure core over a store and an epoch file in memory."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from brokerd.replica.pull_protocol import Fenced
from brokerd.replica.replica import RoleRefused
from brokerd.store import AppendFailedError
from mqwire.mode import Mode
from tests.brokerd.replica_members import Member, group
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, message


def test_the_only_replica_of_its_group_leads_at_once_and_again() -> None:
    single = Member(0, total=1, leader=True)
    assert (single.replica.leads, single.replica.epoch) == (True, 1)
    single.restart()
    assert (single.replica.leads, single.replica.epoch) == (True, 2)


def test_a_fresh_master_of_several_replicas_asks_the_others_first() -> None:
    fresh = Member(0, leader=True)  # its directory may stand in the place of one that was lost
    assert (fresh.replica.leads, fresh.replica.must_reclaim, fresh.replica.unknown_replicas) == (False, True, 1)
    with pytest.raises(RoleRefused, match="totalReplicas"):
        fresh.replica.reclaimed(1, 0.0, 0)


def test_a_replica_that_agreed_to_a_reclaim_agrees_again_when_its_answer_was_lost() -> None:
    leader, follower = group()
    leader.restart()
    log = {"last_epoch": 1, "end_offset": leader.store.end_offset}
    for _ in range(2):
        follower.replica.grant_reclaim(replica_id=0, epoch=2, address="r0", **log)
    with pytest.raises(RoleRefused, match="not above"):
        follower.replica.grant_reclaim(replica_id=2, epoch=2, address="r2", **log)


def test_a_restarted_slave_shows_what_was_confirmed_and_not_more() -> None:
    leader, follower = group()
    follower.replica.remember_confirm_offset()
    confirmed = follower.replica.confirm_offset
    leader.store.append([message(b"not durable on the leader yet")])
    follower.pull_from(leader)
    assert follower.store.end_offset > confirmed
    follower.restart()
    assert follower.replica.confirm_offset == confirmed


def test_a_confirm_offset_beyond_what_is_held_confirms_nothing_that_another_leader_sends_there() -> None:
    leader, follower = group()
    held = follower.store.end_offset
    follower.replica.received(b"", held, 1, held + 5000)
    other = Member(2, total=3)
    other.pull_from(leader)
    other.replica.promote(1, 2, 0.0, 0)
    other.store.append([message(b"of the other leader")])
    follower.replica.saw_epoch(2)
    data = other.store.read_raw(held, 1 << 20)
    follower.replica.received(data, held, 2, other.replica.confirm_offset)
    assert follower.replica.confirm_offset <= other.replica.confirm_offset < follower.store.end_offset


def test_a_lease_from_a_leader_that_was_suspended_meanwhile_counts_from_when_it_was_asked_for() -> None:
    """That leader counts from when it found the pull in its socket: what it keeps to is longer, never shorter."""
    leader, follower = group(mode=Mode.SYNC)
    assert leader.replica.in_sync is not None
    asked_at_s, found_at_s = 10.0, 60.0
    leader.replica.pulled(follower.replica.next_pull(max_bytes=1, max_wait_ms=0), "r1", found_at_s)
    lease_s = leader.replica.in_sync.lease_s(1)
    follower.replica.take_lease(1, asked_at_s, lease_s)
    assert follower.replica.lease is not None
    assert asked_at_s < follower.replica.lease[1] <= asked_at_s + lease_s


def test_an_epoch_begins_with_the_blank_in_front_of_its_record() -> None:
    leader, follower = group()
    while leader.store.end_offset % FILE_BYTES < FILE_BYTES - 230:  # less room than an epoch record needs
        leader.send(size_bytes=1)
    for _ in range(3):
        follower.pull_from(leader)
    begin = leader.store.end_offset
    assert follower.store.end_offset == begin
    leader.send(size_bytes=1)  # fits where the follower puts a BLANK
    assert leader.store.end_offset < FILE_BYTES
    follower.replica.promote(1, 2, 0.0, 0)
    assert follower.replica.epochs.entries[-1] == (2, begin)
    decision = leader.pull_from(follower)
    leader.cut_for(decision)
    assert leader.store.end_offset == begin
    leader.pull_from(follower)
    assert leader.store.read_raw(0, 1 << 20) == follower.store.read_raw(0, 1 << 20)
    for member in (leader, follower):
        member.restart()
        assert member.replica.epochs.entries[-1] == (2, begin)


def test_a_promotion_whose_record_cannot_be_stored_makes_no_leader() -> None:
    leader, _ = group()
    leader.disk.fail = lambda number, name: (
        errno.EIO if name == "pwrite" and COMMIT_LOG in leader.disk.log[-1] else None
    )
    with pytest.raises(AppendFailedError):
        leader.replica.promote(1, 2, 0.0, 0)
    assert not leader.replica.leads


def test_a_log_that_may_have_lost_its_end_since_it_promised_leads_only_where_that_was_known() -> None:
    """The promise said what it held before the power cut."""
    leader = Member(0, leader=True, total=2, durable_counts=False)
    follower = Member(1, durable_counts=False)
    leader.replica.promote(0, 1, 0.0, 0)
    follower.pull_from(leader)
    follower.replica.step_down(4, None)
    follower.lose_power()
    with pytest.raises(RoleRefused, match="may have lost its end since it promised"):
        follower.replica.promote(4, 5, 0.0, 0)
    follower.replica.promote(4, 5, 0.0, 0, with_incomplete_log=True)
    assert follower.replica.leads


def test_who_led_last_says_so_until_its_log_has_another_epoch() -> None:
    leader, follower = group()
    leader.send()
    follower.pull_from(leader)
    assert (leader.replica.led_last_epoch, follower.replica.led_last_epoch) == (True, False)
    leader.replica.step_down(4, None)
    leader.restart()
    assert leader.replica.led_last_epoch
    follower.pull_from(leader)
    follower.replica.promote(4, 5, 0.0, 0)
    leader.replica.saw_epoch(5, "r1")
    for _ in range(3):
        leader.pull_from(follower)
    assert (leader.replica.led_last_epoch, follower.replica.led_last_epoch) == (False, True)


def test_who_led_last_no_longer_says_so_when_its_log_was_truncated() -> None:
    """What it had shown may be gone, and nothing of the next leader is there yet."""
    leader, follower = group()
    for _ in range(3):
        follower.pull_from(leader)
    leader.send()
    follower.replica.promote(1, 2, 0.0, 0)
    leader.replica.saw_epoch(2, "r1")
    leader.cut_for(leader.pull_from(follower))
    assert leader.replica.epochs.last_epoch == 1
    assert not leader.replica.led_last_epoch
    leader.restart()
    assert not leader.replica.led_last_epoch


def test_a_slave_that_is_a_round_trip_behind_a_steady_load_stays_in_sync() -> None:
    leader, follower = Member(0, leader=True, mode=Mode.SYNC), Member(1, mode=Mode.SYNC)
    leader.replica.promote(0, 1, 0.0, 0)
    report: Callable[[float], object] = lambda now_s: leader.replica.pulled(  # noqa: E731  # one line, used below
        follower.replica.next_pull(max_bytes=1 << 20, max_wait_ms=0), "r1", now_s
    )
    follower.pull_from(leader)
    for second in range(60):
        end_offset = leader.store.end_offset
        leader.send(5)  # comes between the answer and the next report
        data = leader.store.read_raw(follower.store.end_offset, end_offset - follower.store.end_offset or 1)
        if follower.store.end_offset < end_offset:
            follower.replica.received(data, follower.store.end_offset, 1, leader.replica.confirm_offset)
            follower.store.flush()
        report(float(second))
    in_sync = leader.replica.in_sync
    assert in_sync is not None
    assert in_sync.size == 2


def test_a_lower_epoch_changes_no_role_and_gets_no_bytes() -> None:
    leader, follower = group()
    leader.replica.promote(1, 5, 0.0, 0)
    with pytest.raises(RoleRefused, match="below"):
        leader.replica.step_down(4, "r1")
    with pytest.raises(RoleRefused, match="epoch 5"):
        leader.replica.promote(1, 9, 0.0, 0)
    with pytest.raises(RoleRefused, match="does not lead in epoch"):
        leader.replica.freeze_sends(4, 10.0)
    stale = follower.replica.next_pull(max_bytes=1 << 20, max_wait_ms=0)
    assert stale.leader_epoch == 1
    assert isinstance(leader.replica.pulled(stale, "r1", 0.0), Fenced)
    assert (leader.replica.leads, leader.replica.epoch) == (True, 5)
    assert leader.replica.in_sync is not None
    assert leader.replica.in_sync.size == 1, "its report did not count"
