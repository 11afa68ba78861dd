"""Power cuts of a group that counts what is in memory (ASYNC_FLUSH): who may have lost what it held does not help to elect
past those who have not, as long as these may come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import SendVerdict
from tests.brokerd.quorum_group import FIRST_MS, LONG_S, TIMES, QuorumGroup


def in_memory_group(count: int = 3) -> QuorumGroup:
    """Replica 0 leads; the last replica is down; a message is acknowledged that the others hold in memory only."""
    group = QuorumGroup.led(count, durable_counts=False)
    group[count - 1].up = False
    end = group[0].append(b"acknowledged")
    for _ in range(2):
        for number in range(1, count - 1):
            group[number].pull(flush=False)
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    return group


def campaign(group: QuorumGroup, seconds: float = 2 * LONG_S) -> None:
    """Whoever wants to campaigns, and whoever has a leader follows it; nothing is synced meanwhile."""
    group.live(seconds, flush=False)


def bodies(group: QuorumGroup, number: int) -> bytes:
    store = group[number].store
    return store.read_raw(0, store.end_offset)


def test_who_lost_its_memory_does_not_elect_one_that_never_had_the_record() -> None:
    """The power cut of one while another is away, and then the leader dies: the record is on the leader's disk alone."""
    group = in_memory_group()
    group[1].lose_power()
    assert b"acknowledged" not in bodies(group, 1)
    group[0].up = False
    group[2].up = True
    campaign(group)
    assert group.leaders == []
    group[0].restart()  # its process was killed: what it wrote is there
    campaign(group)
    assert group.leaders == [0]
    group.level()
    assert all(b"acknowledged" in bodies(group, number) for number in range(3))


def test_it_has_its_voice_again_once_it_holds_what_a_leader_has_confirmed() -> None:
    group = in_memory_group()
    group[1].lose_power()
    assert group[1].replica.saved.log_may_be_incomplete
    group[1].replica.saw_epoch(1, "r0")
    group[1].pull(flush=False)
    group[1].pull(flush=False)
    assert not group[1].replica.saved.log_may_be_incomplete
    group[0].up = False
    group[2].up = True
    group[2].restart()
    group.elect(1)
    assert b"acknowledged" in bodies(group, 1)


def test_a_power_cut_of_all_is_followed_by_an_election_of_all() -> None:
    """No one is left who could know better: what was in memory only is gone, as ASYNC_FLUSH says."""
    group = in_memory_group()
    group[2].up = True
    for node in group.nodes.values():
        node.lose_power()
    campaign(group)
    assert len(group.leaders) == 1


def test_without_anyone_who_knows_better_it_is_waited_for_and_then_done_without() -> None:
    group = in_memory_group()
    group[1].lose_power()
    group[0].up = False
    group[2].up = True
    campaign(group, TIMES.doubt - LONG_S)
    assert group.leaders == []
    campaign(group, 4 * LONG_S)
    assert len(group.leaders) == 1
    assert not group[1].replica.saved.log_may_be_incomplete


@pytest.mark.parametrize(("asleep_s", "trusts"), [(0.0, True), (TIMES.doubt + LONG_S, False)])
def test_the_time_of_a_suspension_is_none_in_which_others_could_have_known_better(
    asleep_s: float, trusts: bool
) -> None:
    group = in_memory_group()
    group[1].lose_power()
    group[0].up = False
    group[2].up = True
    if not asleep_s:
        campaign(group, TIMES.doubt + LONG_S)
    for node in group.nodes.values():
        node.now_s += asleep_s
    group[1].tick()
    assert group[1].replica.saved.log_may_be_incomplete is not trusts


@pytest.mark.parametrize("cut", [(1,), (1, 2)])
def test_of_five_those_that_were_not_cut_are_enough(cut: tuple[int, ...]) -> None:
    group = in_memory_group(5)
    for number in cut:
        group[number].lose_power()
    group[4].up = True
    group[4].restart()
    group[0].restart()
    campaign(group)
    (leader,) = group.leaders
    assert b"acknowledged" in bodies(group, leader)


def test_a_killed_process_loses_nothing_and_keeps_its_voice() -> None:
    group = in_memory_group()
    group[1].restart()
    assert not group[1].replica.saved.log_may_be_incomplete


def test_the_doubt_outlives_further_restarts() -> None:
    group = in_memory_group()
    group[1].lose_power()
    group[1].restart()
    assert group[1].replica.saved.log_may_be_incomplete


def test_a_clean_stop_leaves_no_doubt() -> None:
    group = in_memory_group()
    group[1].store.close()
    group[1].lose_power()
    assert not group[1].replica.saved.log_may_be_incomplete


def test_what_was_durable_when_it_counted_is_not_in_doubt() -> None:
    group = QuorumGroup.led()
    group[1].lose_power()
    assert not group[1].replica.saved.log_may_be_incomplete
    group[0].up = False
    group.elect(1)


def test_what_counts_is_how_it_was_held_before_the_cut() -> None:
    """The configuration may say SYNC_FLUSH by the next start."""
    group = in_memory_group()
    group[1].settings = QuorumGroup.of(3)[1].settings
    group[1].lose_power()
    assert group[1].replica.saved.log_may_be_incomplete


def test_what_a_replica_that_syncs_has_not_synced_does_not_count_at_a_leader_that_does_not_sync() -> None:
    """flushDiskType is changed, one replica after the other: after a power cut this one does not doubt its log."""
    group = QuorumGroup.led(3, durable_counts=False)
    group[1].store.close()
    group[1].settings = replace(group[1].settings, durable_counts=True)
    group[1].restart()
    group[1].replica.saw_epoch(1, "r0")
    group.level()
    group[2].up = False
    end = group[0].append(b"sent")
    for _ in range(2):
        group[1].pull(flush=False)  # its sync takes longer than the next pull
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    for _ in range(2):
        group[1].pull()
        group[1].flush()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    group[1].lose_power()
    assert b"sent" in bodies(group, 1)


def adopted_while_one_was_cut_off() -> QuorumGroup:
    """A record made 2 a voter again; 1 has not seen it. Then 0 and 2 acknowledge a message, and 0's power is cut."""
    group = QuorumGroup.led(durable_counts=False)
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    group[0].tick()  # the record without 2
    group.level()
    assert list(group[1].replica.members.voters) == [0, 1]
    group.isolate(1)
    group[0].tick()
    assert list(group[0].replica.members.voters) == [0, 1, 2]
    end = group[0].append(b"acknowledged")
    for _ in range(2):
        group[2].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    group[2].up = False
    group.rejoin(1)
    group[0].lose_power()
    assert list(group[0].replica.members.voters) == [0, 1]
    return group


def test_one_that_a_lost_record_had_made_a_voter_is_waited_for() -> None:
    """What 0 has lost may have named one more voter, so that the two that it knows decide nothing without that one."""
    group = adopted_while_one_was_cut_off()
    campaign(group)
    assert group.leaders == []
    group[2].up = True
    campaign(group)
    group.level()
    assert len(group.leaders) == 1
    assert all(b"acknowledged" in bodies(group, number) for number in range(3))


def test_no_vote_of_one_that_a_lost_record_had_made_a_voter_means_that_it_holds_more() -> None:
    """It is asked, though the logs of the other two call it no voter, and it says no to both."""
    group = adopted_while_one_was_cut_off()
    group[2].up = True
    for number in (0, 1):
        group.wait(LONG_S)
        group[number].time_out()
        group.deliver()
        assert not group[number].replica.leads


def test_an_observer_that_never_held_all_is_none_that_a_lost_record_made_a_voter() -> None:
    group = QuorumGroup.led(2, observers=1, durable_counts=False)
    group[1].replica.add_known_replica(2, "r2")
    group[2].replace_disk()
    group[0].lose_power()
    campaign(group)
    assert len(group.leaders) == 1


def test_an_observer_that_is_away_may_be_one_that_a_lost_record_made_a_voter() -> None:
    group = QuorumGroup.led(2, observers=1, durable_counts=False)
    group[1].replica.add_known_replica(2, "r2")
    group[2].up = False
    group[0].lose_power()
    campaign(group)
    assert group.leaders == []
    campaign(group, TIMES.doubt)
    assert len(group.leaders) == 1


def test_a_removal_that_one_of_four_has_lost_may_have_made_two_a_majority() -> None:
    group = QuorumGroup.led(4, durable_counts=False)
    group.isolate(3)
    group[0].elections.remove_voter(3, group[0].now_s, FIRST_MS)
    group[0].held_changed()
    group.isolate(2)
    end = group[0].append(b"acknowledged")
    for _ in range(3):
        group[1].pull(flush=False)
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    group[1].up = False
    group[0].lose_power()
    group.rejoin(2)
    group.rejoin(3)
    campaign(group)
    assert group.leaders == []
    group[1].up = True
    campaign(group)
    (leader,) = group.leaders
    assert b"acknowledged" in bodies(group, leader)


def test_a_voter_that_the_candidate_does_not_know_is_waited_for_where_one_that_grants_knows_it() -> None:
    """4 was added while 3 was cut off, and 0 has lost the record: what was acknowledged is with 1 and 4, which are down."""
    group = QuorumGroup.led(4, observers=1, durable_counts=False)
    group.isolate(3)
    group.isolate(2)
    group[0].elections.add_voter(4, group[0].now_s, FIRST_MS)
    group[0].held_changed()
    end = group[0].append(b"acknowledged")
    for _ in range(3):
        for number in (1, 4):
            group[number].pull(flush=False)
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    group[1].up = group[4].up = False
    group[0].lose_power()
    group.cuts.clear()
    assert 4 in group[0].replica.known_replicas
    assert 4 not in group[3].replica.known_replicas
    group.wait(LONG_S)
    group[3].time_out()
    group.deliver()
    assert group.leaders == []


def restarted_in_doubt(group: QuorumGroup, *numbers: int) -> None:
    """The first of them has truncated whole records, which may have been durable."""
    for number in numbers:
        group[number].restart()
    group[numbers[0]].replica._save(log_may_be_incomplete=True, may_lack_durable=True)


def test_who_was_known_once_and_is_no_voter_by_any_log_is_not_waited_for_for_ever() -> None:
    group = QuorumGroup.led(2, observers=1)
    group[1].replica.add_known_replica(2, "r2")
    group[2].up = False
    restarted_in_doubt(group, 0, 1)
    group.live(TIMES.doubt - LONG_S)
    assert group.leaders == []
    group.live(4 * LONG_S)
    assert len(group.leaders) == 1


def test_a_voter_is_waited_for_for_ever_where_what_was_durable_may_be_missing() -> None:
    group = QuorumGroup.led(3)
    group[2].up = False
    restarted_in_doubt(group, 0, 1)
    group.live(2 * TIMES.doubt)
    assert group.leaders == []


def acknowledge_with_a_new_voter_and_lose_power(group: QuorumGroup, leader: int) -> None:
    """0 is cut off while 3 becomes a voter and holds an acknowledged message; then power takes the other two's memory, 0 is back,
    and 3 is away.
    """
    other = 3 - leader
    group[3].replica.saw_epoch(group[leader].replica.epoch, f"r{leader}")
    campaign(group)
    group[leader].elections.add_voter(3, group[leader].now_s, FIRST_MS)
    end = group[leader].append(b"acknowledged")
    group[leader].held_changed()
    for _ in range(4):
        group[other].pull(flush=False)
        group[3].pull()
    assert group[leader].replica.verdict(end) is SendVerdict.SEND_OK
    for number in (leader, other):
        group[number].lose_power()
        group[number].replica.add_known_replica(3, "r3")
    group.rejoin(0)
    group.isolate(3)


def test_one_that_led_for_long_and_is_back_waits_as_long_as_any_other() -> None:
    """0 led for longer than the doubt lasts, and was cut off while 3 became a voter, which is away when 0 is back."""
    group = QuorumGroup.led(3, observers=1, durable_counts=False)
    group.live(TIMES.doubt + LONG_S)
    group.isolate(0)
    campaign(group, 3 * LONG_S)
    (leader,) = (number for number in group.leaders if number)
    acknowledge_with_a_new_voter_and_lose_power(group, leader)
    campaign(group, TIMES.doubt - 2 * LONG_S)
    assert group.leaders == []
    group.rejoin(3)
    campaign(group)
    (leader,) = group.leaders
    assert b"acknowledged" in bodies(group, leader)


def test_a_majority_that_elects_no_one_for_a_minute_may_be_recovered() -> None:
    """Of four, one may lack what was durable, and one is lost for good: the other two may have been outvoted by them."""
    group = QuorumGroup.led(4)
    group[3].up = False
    restarted_in_doubt(group, 0, 1, 2)
    group.live(2.0)
    with pytest.raises(RoleRefused, match="they elect a leader by themselves"):
        group[1].elections.promise_recovery({3}, 9, None, group[1].now_s)
    group.live(60.0)
    assert group.leaders == []
    group[1].elections.promise_recovery({3}, 9, None, group[1].now_s)
    group[1].elections.recover({3}, 9, 10, group[1].now_s, FIRST_MS)
    assert group.leaders == [1]
    assert group[1].replica.members.voters == (0, 1, 2)


def test_what_a_candidate_waited_before_it_was_cut_off_counts_no_more() -> None:
    """All granted to 0 once, and then it was away: 3, which it waited for, has become a voter, and is away again."""
    group = QuorumGroup.led(3, observers=1, durable_counts=False)
    for number in range(3):
        group[number].replica.add_known_replica(3, "r3")
        group[number].restart()
    for number in (0, 1):
        group[number].replica._save(log_may_be_incomplete=True)
    group[3].up = False
    group.wait(LONG_S)
    group[0].time_out()
    group.deliver()
    assert group.leaders == []
    group.isolate(0)
    group[3].up = True
    campaign(group, TIMES.doubt + 2 * LONG_S)
    (leader,) = group.leaders
    acknowledge_with_a_new_voter_and_lose_power(group, leader)
    campaign(group, TIMES.doubt - 3 * LONG_S)
    assert group.leaders == []


@pytest.mark.parametrize("cut", [(0,), (0, 1)])
def test_who_was_elected_by_all_that_is_left_sends_consumers_back(cut: tuple[int, ...]) -> None:
    """2 was away; the power cut of both others took what consumers had read, and its own log is whole."""
    group = in_memory_group()
    for number in cut:
        group[number].lose_power()
    group[2].up = True
    campaign(group)
    (leader,) = group.leaders
    took_all = b"acknowledged" not in bodies(group, leader)
    assert took_all is (len(cut) == 2)
    assert (group[leader].replica.saved.lacks_shown_from is not None) is took_all


def test_who_was_elected_by_one_that_trusts_its_own_end_sends_consumers_back() -> None:
    group = in_memory_group()
    group[1].lose_power()
    group[0].up = False
    group[2].up = True
    group[1].replica.trust_own_end()
    group.elect(2) if group[2].log >= group[1].log else group.elect(1)
    (leader,) = group.leaders
    assert group[leader].replica.saved.lacks_shown_from is not None


def test_so_it_does_where_that_one_was_restarted_in_between() -> None:
    group = in_memory_group()
    group[1].lose_power()
    group[0].up = False
    group[1].replica.trust_own_end()
    group[1].restart()
    group[2].up = True
    group.elect(2) if group[2].log >= group[1].log else group.elect(1)
    (leader,) = group.leaders
    assert group[leader].replica.saved.lacks_shown_from is not None


def test_one_that_trusted_its_own_end_no_longer_does_once_it_has_what_a_leader_has_confirmed() -> None:
    group = in_memory_group()
    group[1].replica.trust_own_end()
    group.live(LONG_S)
    assert not group[1].replica.saved.trusts_own_end
