"""What is committed, and what a new leader makes of the logs that it finds: the Raft paper, sections 5.3 and 5.4, figures 7
and 8. An entry is a record here; an epoch's first entry is its epoch record.
"""

from __future__ import annotations

import pytest

from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.pull_protocol import Halt, Truncate
from tests.brokerd.quorum_group import LONG_S, QuorumGroup
from tests.sim.store_harness import bodies

# Figure 7: the leader that comes to power in epoch 8, and what its followers may hold by then.
LEADER = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
FOLLOWERS = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


def figure_7() -> QuorumGroup:
    group = QuorumGroup.of(7)
    group[0].write_log(LEADER, epoch=7)
    for number, epochs in enumerate(FOLLOWERS.values(), 1):
        group[number].write_log(epochs, epoch=7)
    return group


def test_figure_7_the_leader_wins_by_the_votes_of_a_b_e_and_f() -> None:
    group = figure_7()
    yes = set()
    group.note = lambda line: yes.add(line[0]) if line.endswith("vote for epoch 8: yes") and "pre" not in line else None
    group[0].time_out()
    group.deliver()
    assert group.leaders == [0]
    assert yes == {"1", "2", "5", "6"}


@pytest.mark.parametrize(("number", "may_win"), [(1, True), (2, False), (3, True), (4, True), (5, False), (6, False)])
def test_figure_7_which_of_the_followers_could_have_won(number: int, may_win: bool) -> None:
    group = figure_7()
    group[number].time_out()
    group.deliver()
    assert (group.leaders == [number]) is may_win


@pytest.mark.parametrize("number", range(1, 7), ids=FOLLOWERS)
def test_figure_7_every_follower_becomes_like_the_leader(number: int) -> None:
    group = figure_7()
    group.elect(0)
    for _ in range(12):
        group[number].pull()
    assert group[number].log == group[0].log
    assert group[number].replica.epochs == group[0].replica.epochs
    end = group[0].store.end_offset
    assert group[number].store.read_raw(0, end) == group[0].store.read_raw(0, end)


def test_5_3_a_leader_never_overwrites_its_own_records() -> None:
    group = figure_7()
    before = group[0].store.end_offset
    log = group[0].store.read_raw(0, before)
    group.elect(0)
    group.level()
    assert group[0].store.read_raw(0, group[0].store.end_offset)[: len(log)] == log


def test_figure_8_a_record_of_an_old_epoch_is_not_committed_by_being_counted() -> None:
    group = QuorumGroup.of(5)
    # (a) S1 leads in epoch 2 and replicates its record to S2 alone; (b) S5 leads in epoch 3 by S3 and S4.
    group[0].write_log([1, 2, 2], epoch=3)
    group[1].write_log([1, 2, 2], epoch=3)
    group[2].write_log([1], epoch=3)
    group[3].write_log([1], epoch=3)
    group[4].write_log([1, 3], epoch=3)
    group[4].up = False
    # (c) S1 leads again, in epoch 4, and the record of epoch 2 gets to a majority; that of epoch 4 does not.
    group[0].time_out()
    group.deliver()
    assert group.leaders == [0]
    old_end = group[0].replica.epochs.entries[-1].start_offset
    for follower in (1, 2):
        report(group, follower, end_offset=old_end)
    assert group[0].replica.confirm_offset < old_end
    assert group[0].replica.verdict(old_end) is SendVerdict.WAIT
    # (e) With its own epoch's record on a majority, everything before it is committed too.
    group[0].flush()
    for follower in (1, 2):
        report(group, follower, end_offset=group[0].store.end_offset)
    assert group[0].replica.confirm_offset == group[0].store.end_offset
    assert group[0].replica.verdict(old_end) is SendVerdict.SEND_OK


def test_figure_8_d_what_was_not_committed_may_be_overwritten() -> None:
    group = QuorumGroup.of(5)
    group[0].write_log([1, 2, 2], epoch=4)
    group[1].write_log([1, 2, 2], epoch=4)
    group[2].write_log([1, 2, 2], epoch=4)
    group[3].write_log([1], epoch=4)
    group[4].write_log([1, 3], epoch=4)
    group[0].up = False
    group[4].time_out()
    group.deliver()
    assert group.leaders == [4]
    group.level()
    assert bodies(group[1].store) == bodies(group[4].store)


def report(group: QuorumGroup, follower: int, *, end_offset: int) -> None:
    """A pull of a follower that holds the leader's log up to there."""
    leader, node = group[0], group[follower]
    pull = node.replica.next_pull(max_bytes=1, max_wait_ms=0)
    reported = {name: getattr(pull, name) for name in pull.__slots__}
    epochs = leader.replica.epochs
    reported |= {"leader_epoch": leader.replica.epoch, "end_offset": end_offset, "durable_offset": end_offset}
    reported["last_epoch"] = epochs.epoch_at(end_offset - 1)
    leader.replica.pulled(type(pull)(**reported), node.settings.address, leader.now_s)
    leader.held_changed()


def test_5_4_2_a_new_leader_acknowledges_nothing_before_its_own_record_is_confirmed() -> None:
    group = QuorumGroup.led()
    group[0].append(b"held by all")
    group.level()
    confirmed = group[0].replica.confirm_offset
    group[0].up = False
    group.elect(1)
    end = group[1].append(b"of the new leader")
    group[1].flush()
    assert group[1].replica.confirm_offset == confirmed
    assert group[1].replica.verdict(end) is SendVerdict.WAIT
    group[2].pull()
    group[2].pull()
    assert group[1].replica.verdict(end) is SendVerdict.SEND_OK


def test_a_record_is_confirmed_by_a_majority_and_not_by_less() -> None:
    group = QuorumGroup.led(5)
    end = group[0].append(b"one")
    group[0].flush()
    group[1].pull()
    group[1].pull()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group[2].pull()
    group[2].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def test_with_sync_flush_only_what_is_durable_counts() -> None:
    group = QuorumGroup.led()
    end = group[0].append(b"one")
    for _ in range(2):
        group[1].pull(flush=False)
        group[2].pull(flush=False)
    assert group[0].replica.verdict(end) is SendVerdict.WAIT  # five copies, none of them safe
    group[1].store.flush()
    group[1].pull()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group[2].store.flush()
    group[2].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK  # the leader itself need not be one of them


def test_with_async_flush_what_is_held_counts() -> None:
    group = QuorumGroup.led(durable_counts=False)
    end = group[0].append(b"one")
    for _ in range(2):
        group[1].pull(flush=False)
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def test_an_observer_holds_the_log_and_counts_for_nothing() -> None:
    group = QuorumGroup.led(3, observers=2)
    end = group[0].append(b"one")
    group[0].flush()
    for observer in (3, 4):
        group[observer].pull()
        group[observer].pull()
    assert group[3].log == group[0].log
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    assert not group[3].time_out().messages


def test_a_follower_shows_no_more_than_its_leader_has_confirmed() -> None:
    group = QuorumGroup.led()
    confirmed = group[0].replica.confirm_offset
    group[0].append(b"not confirmed")
    group[1].pull()
    assert group[1].store.end_offset > confirmed
    assert group[1].replica.confirm_offset == confirmed


def test_a_confirm_offset_does_not_fall_when_the_leader_changes() -> None:
    group = QuorumGroup.led()
    group[0].append(b"one")
    group.level()
    confirmed = group[0].replica.confirm_offset
    group[0].up = False
    group.elect(2)
    assert group[2].replica.confirm_offset == confirmed


@pytest.mark.parametrize(("durable_counts", "decision"), [(True, Halt), (False, Truncate)])
def test_a_follower_truncates_what_was_confirmed_only_where_that_was_in_memory(
    durable_counts: bool, decision: type
) -> None:
    """With ASYNC_FLUSH a majority may have lost it with its power: who held it would be halted for ever."""
    group = QuorumGroup.led(durable_counts=durable_counts)
    group[0].append(b"confirmed")
    group.level()
    wrong = QuorumGroup.of(3)
    wrong[1].write_log([1, 9], epoch=9)
    follower = group[2].replica
    follower.saw_epoch(9, "r1")
    divergence = wrong[1].replica.epochs.divergence(1, group[2].store.end_offset, wrong[1].store.end_offset)
    assert divergence is not None
    assert isinstance(follower.diverged(divergence), decision)


def test_leader_completeness_whoever_wins_has_all_that_was_acknowledged() -> None:
    """Figure 3: over many runs in which the leader stops after it has acknowledged to one of the two others only."""
    for number in range(20):
        group = QuorumGroup.led()
        holder = 1 + number % 2
        end = group[0].append(b"acknowledged")
        group[0].flush()
        group[holder].pull()
        group[holder].pull()
        assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
        group[0].up = False
        group.wait(LONG_S)
        for _ in range(400):
            for node in (group[1], group[2]):
                node.tick()
            group.deliver()
            if group.leaders:
                break
            group.wait(0.05)
        assert group.leaders == [holder]
