"""Who counts, and how that changes: the Raft paper's section 6, by single changes (Ongaro's dissertation, 4.1 and 4.2).

Also the founding of a group, and a voter whose disk was lost: who has no voice yet.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.quorum_messages import Campaign, VoteAnswer, VoteRequest
from brokerd.replica.quorum_state import State
from brokerd.replica.voters import MemberHistory, Members, majority_offset
from brokerd.store import AppendFailedError
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.headers_replica import ReplicaMembersRequestHeader
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.quorum_group import FIRST_MS, LONG_S, TIMES, QuorumGroup
from tests.brokerd.test_damage_found_late import damage
from tests.sim.store_harness import message, read_queue

PEERS = "n0-10.0.0.1:10911;n1-10.0.0.2:10911;n2-10.0.0.3:10911"


def change(group: QuorumGroup, verb: str, replica_id: int | None) -> None:
    leader = group[0]
    getattr(leader.elections, verb)(replica_id, leader.now_s, FIRST_MS)
    leader.flush()


@pytest.mark.parametrize(
    ("held", "confirmed"),
    [({0: 9, 1: 5, 2: 7}, 7), ({0: 9, 1: 5}, 5), ({0: 9}, 0), ({0: 9, 1: 9, 2: 9, 7: 99}, 9), ({0: 1, 1: 9, 2: 9}, 9)],
)
def test_a_majority_of_three_is_two(held: dict[int, int], confirmed: int) -> None:
    assert majority_offset(Members((0, 1, 2)), held) == confirmed


def test_four_voters_need_three() -> None:
    assert majority_offset(Members((0, 1, 2, 3)), {0: 9, 1: 8, 2: 7}) == 7


def test_an_observer_that_is_level_becomes_a_voter_and_counts_from_the_records_append() -> None:
    group = QuorumGroup.led(3, observers=1)
    change(group, "add_voter", 3)
    assert group[0].replica.members.voters == (0, 1, 2, 3)
    end = group[0].store.end_offset
    for _ in range(2):
        group[1].pull()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT  # two of four are no majority
    for _ in range(2):
        group[3].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK
    assert (group[3].elections.is_voter, group[2].replica.members.voters) == (True, (0, 1, 2))


def test_who_counts_is_known_though_the_record_that_says_so_is_damaged() -> None:
    """It counted by the set before, until the record was repaired."""
    group = QuorumGroup.led(3, observers=1)
    record_begins_at = group[0].store.end_offset
    change(group, "add_voter", 3)
    group.level()
    group[0].append(b"later")
    group.level()
    follower = group[1]
    follower.store.close()
    damage(follower.disk, record_begins_at + 60)
    follower.restart()
    assert follower.store.damaged_from == record_begins_at
    assert follower.replica.members.voters == (0, 1, 2, 3)


def test_an_observer_that_has_not_caught_up_does_not_become_a_voter() -> None:
    group = QuorumGroup.led(3, observers=1)
    group[0].append(*[b"." * 400] * 30)
    group[0].flush()
    group.wait(60)
    group[3].now_s += 60
    group[0].replica.pulled(group[3].replica.next_pull(max_bytes=1, max_wait_ms=0), "r3", group[0].now_s)
    with pytest.raises(RoleRefused, match="caught up"):
        change(group, "add_voter", 3)


def test_a_second_change_waits_for_the_first() -> None:
    group = QuorumGroup.led(3, observers=2)
    change(group, "add_voter", 3)
    with pytest.raises(RoleRefused, match="not confirmed yet"):
        change(group, "add_voter", 4)
    group.level()
    change(group, "add_voter", 4)
    assert group[0].replica.members.voters == (0, 1, 2, 3, 4)


def test_a_new_leader_changes_nothing_before_its_own_record_is_confirmed() -> None:
    """The bug of single changes that Ongaro reported to raft-dev in 2015."""
    group = QuorumGroup.led()
    group[0].up = False
    group.elect(1)
    with pytest.raises(RoleRefused, match="not confirmed yet"):
        group[1].elections.remove_voter(0, group[1].now_s, FIRST_MS)
    group.level()
    group[1].elections.remove_voter(0, group[1].now_s, FIRST_MS)
    assert group[1].replica.members.voters == (1, 2)


def test_only_the_leader_changes_who_counts() -> None:
    group = QuorumGroup.led()
    with pytest.raises(RoleRefused, match="does not lead; the leader is r0"):
        group[1].elections.remove_voter(2, 0.0, FIRST_MS)


def test_a_leader_is_not_removed_before_it_handed_its_role_over() -> None:
    group = QuorumGroup.led()
    with pytest.raises(RoleRefused, match="transfer the leadership first"):
        change(group, "remove_voter", 0)


def test_a_voter_stays_while_too_few_of_the_others_are_in_sync() -> None:
    group = QuorumGroup.led()
    group[2].up = False
    group.live(5.0)
    with pytest.raises(RoleRefused, match="2 voters remain, of which 1 are in sync; there must be 2"):
        change(group, "remove_voter", 1)
    assert group[0].replica.members.voters == (0, 1, 2)


def test_a_voter_that_is_dead_is_removed() -> None:
    group = QuorumGroup.led()
    group[2].up = False
    group.live(5.0)
    change(group, "remove_voter", 2)
    assert group[0].replica.members.voters == (0, 1)


def test_a_removed_voter_does_not_count_and_does_not_campaign() -> None:
    group = QuorumGroup.led(5)
    for gone in (4, 3):
        change(group, "remove_voter", gone)
        group.level()
    assert not group[4].time_out().messages
    assert group[4].state is State.UNATTACHED
    end = group[0].append(b"one")
    group[0].flush()
    group[4].replica.saw_epoch(1, "r0")
    for other in (3, 4):
        group[other].pull()
        group[other].pull()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT


def test_4_2_2_one_whose_removal_is_not_confirmed_may_have_to_lead_once_more() -> None:
    """The others' logs end in front of the removal, so they need its vote; and it has the longest log."""
    group = QuorumGroup.led(4)
    change(group, "remove_voter", 1)
    group[1].pull()
    group[0].up = False
    group.lose_letters()
    group.wait(LONG_S)
    group[2].time_out()
    group.deliver()
    assert group.leaders == []
    group.elect(1)
    assert group[1].replica.members.voters == (0, 2, 3)
    group.level()
    outcome = group[1].tick()
    assert outcome.why == "it is no voter any more"
    group.deliver()
    assert group.leaders in ([2], [3])
    group.level()
    assert {node.replica.members.voters for node in group.nodes.values()} == {(0, 2, 3)}


def test_a_removed_voter_that_does_not_know_it_disturbs_no_one() -> None:
    """Section 6 of the paper, the third problem; solved by pre-votes."""
    group = QuorumGroup.led(4)
    group.isolate(3)
    change(group, "remove_voter", 3)
    group.level()
    group.rejoin(3)
    group.wait(0.5)
    group.level()
    group[3].time_out()
    group.deliver()
    assert group.leaders == [0]
    assert {node.replica.epoch for node in group.nodes.values()} == {1}


def test_cutting_an_uncommitted_change_brings_the_voters_before_it_back() -> None:
    group = QuorumGroup.led(3, observers=1)
    group.isolate(0)
    change(group, "add_voter", 3)
    assert list(group[0].replica.members.voters) == [0, 1, 2, 3]
    group.elect(1)
    group.lose_letters()
    group.rejoin(0)
    group[0].replica.saw_epoch(2, "r1")
    group.level()
    assert list(group[0].replica.members.voters) == [0, 1, 2]
    assert group[0].log == group[1].log


def test_who_counts_outlives_a_restart_and_comes_before_the_configuration() -> None:
    group = QuorumGroup.led(3, observers=1)
    change(group, "add_voter", 3)
    change_known = group[0].replica.members
    group[0].restart()
    assert group[0].replica.members == change_known
    assert change_known.voters == (0, 1, 2, 3)


def test_one_that_starts_over_after_retention_learns_who_counts() -> None:
    group = QuorumGroup.led(3, observers=1)
    newcomer = group[3]
    newcomer.settings = replace(newcomer.settings, members=Members((0, 1, 2, 3)))  # as its own broker.conf has it
    newcomer.replace_disk()
    assert newcomer.elections.is_voter
    newcomer.replica.start_over(4096, 1, lambda: newcomer.store.start_over(4096), group[0].replica.members)
    assert not newcomer.elections.is_voter
    newcomer.restart()
    assert newcomer.replica.members == group[0].replica.members


def test_voters_that_only_an_emptied_log_named_count_no_more() -> None:
    """Nor did those that its leader's log names, whose records stand further to the front."""
    group = QuorumGroup.led(3, observers=1)
    former = group[0]
    former.elections.add_voter(3, former.now_s, FIRST_MS)
    former.replica.stop_leading()
    former.replica.start_over(0, 0, lambda: former.store.start_over(0))
    assert former.replica.members.voters == (0, 1, 2)


def test_the_history_keeps_changes_only() -> None:
    history = MemberHistory(Members((0,)))
    for offset in range(0, 10_000, 100):
        history.note(offset, Members((0, 1, 2)))
    history.note(20_000, Members((0, 1)))
    history.truncate(15_000)
    assert history.current == Members((0, 1, 2))
    history.truncate(0)
    assert history.current == Members((0,))


# --- transfer


def test_3_10_the_role_goes_to_a_level_voter_without_a_pre_vote() -> None:
    group = QuorumGroup.led()
    group[0].elections.transfer(2, group[0].now_s)
    group[0].tick()
    group.deliver()
    assert group.leaders == [2]
    assert group[2].replica.epoch == 2


def test_3_10_a_target_that_lags_is_waited_for_while_no_sends_are_taken() -> None:
    group = QuorumGroup.led()
    group[0].append(b"one")
    group[0].elections.transfer(2, group[0].now_s)
    assert "moving" in (group[0].replica.refuses_sends(group[0].now_s) or "")
    assert not any(isinstance(message, Campaign) for _, message in group[0].tick().messages)
    group[2].pull()
    group[2].pull()
    assert any(isinstance(message, Campaign) for _, message in group[0].tick().messages)


def test_3_10_a_transfer_that_does_not_happen_is_given_up() -> None:
    group = QuorumGroup.led()
    group[0].elections.transfer(2, group[0].now_s)
    group[2].up = False
    for _ in range(20):
        group.wait(0.1)
        group[1].pull()
        group[0].tick()
        group.deliver()
    assert group.leaders == [0]
    assert group[0].replica.refuses_sends(group[0].now_s) is None


@pytest.mark.parametrize(("target", "reason"), [(0, "leads already"), (3, "not a voter"), (9, "not a voter")])
def test_3_10_the_role_goes_to_voters_only(target: int, reason: str) -> None:
    group = QuorumGroup.led(3, observers=1)
    with pytest.raises(RoleRefused, match=reason):
        group[0].elections.transfer(target, group[0].now_s)


def test_3_10_the_role_does_not_go_to_one_that_is_silent() -> None:
    group = QuorumGroup.led()
    group.wait(2.0)
    group[1].pull()
    with pytest.raises(RoleRefused, match="does not pull"):
        group[0].elections.transfer(2, group[0].now_s)


def test_the_preferred_leader_gets_the_role_once_it_is_level() -> None:
    group = QuorumGroup.led()
    change(group, "prefer", 2)
    group.level()
    for _ in range(80):
        group.wait(0.1)
        group[1].pull()
        group[2].pull()
        for node in group.nodes.values():
            node.tick()
        group.deliver()
    assert group.leaders == [2]
    assert group[2].replica.epoch == 2


def test_only_a_voter_is_preferred() -> None:
    group = QuorumGroup.led(3, observers=1)
    with pytest.raises(RoleRefused, match="not a voter"):
        change(group, "prefer", 3)


# --- who has a voice


def test_a_group_is_founded_by_all_its_voters() -> None:
    group = QuorumGroup.of(3)
    group[2].up = False
    group[0].time_out()
    group.deliver()
    assert group.leaders == []
    group[2].restart()
    group[0].time_out()
    group.deliver()
    assert group.leaders == [0]


def test_two_lost_disks_do_not_found_the_group_again() -> None:
    group = QuorumGroup.led()
    group[0].append(b"acknowledged")
    group.level()
    for lost in (1, 2):
        group[lost].replace_disk()
    group.wait(LONG_S)
    group[0].up = False
    for number in (1, 2, 1, 2):
        group[number].time_out()
        group.deliver()
    assert group.leaders == []


def test_a_lost_disk_has_no_vote_until_it_has_caught_up() -> None:
    """Else a record on the dead leader and the lost disk would be gone, though a majority had it."""
    group = QuorumGroup.led()
    group[0].append(b"on 0 and 2")
    group[0].flush()
    group[2].pull()
    group[2].pull()
    group[2].replace_disk()
    group[0].up = False
    group.wait(LONG_S)
    for number in (1, 2, 1, 2):
        group[number].time_out()
        group.deliver()
    assert group.leaders == []
    group[0].restart()
    group[0].time_out()
    group.deliver()
    assert group.leaders == [0]  # 1 votes
    group.level()
    assert group[2].replica.saved.joined
    group.live(1.0)  # the leader adopts the disk
    group[0].up = False
    group.elect(2)


def test_a_lost_disk_is_no_part_of_a_majority_before_it_has_caught_up() -> None:
    """What it had promised to another leader is lost with it: it must not help an old one to confirm anything."""
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[1].up = False
    group[2].replica.saw_epoch(1, "r0")
    group.wait(TIMES.recent + 0.1)
    group[2].pull(flush=False)
    assert "fewer than 2 of 3" in (group[0].replica.refuses_sends(group[0].now_s) or "")
    with pytest.raises(RoleRefused, match="has not caught up"):
        group[0].elections.transfer(2, group[0].now_s)
    group[1].up = True
    group.live(1.0)
    assert group[0].replica.refuses_sends(group[0].now_s) is None


def test_a_lost_disk_that_has_caught_up_counts_again() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.live(1.0)
    group[1].up = False
    end = group[0].append(b"one")
    group.level()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def test_an_imported_log_wins_the_founding() -> None:
    group = QuorumGroup.of(3)
    group[1].store.append([message(b"of a single master")])
    group[1].store.flush()
    group[0].time_out()
    group.deliver()
    assert group.leaders == []
    group.elect(1)
    group.level()
    assert group[0].log == group[1].log


def test_a_replica_that_cannot_write_neither_votes_nor_campaigns_nor_leads() -> None:
    group = QuorumGroup.led()
    group[0].fail_log_writes(once=True)
    with pytest.raises(AppendFailedError):
        group[0].append(b"does not arrive")
    outcome = group[0].tick()
    assert outcome.role_changed
    group[0].now_s += LONG_S
    assert not group[0].tick().messages
    request = VoteRequest(group="group-a", candidate=1, epoch=5, last_epoch=9, end_offset=1 << 30, pre=False)
    reply = group[0].step(request).reply
    assert isinstance(reply, VoteAnswer)
    assert not reply.granted


def test_a_group_that_lost_a_majority_of_its_disks_goes_on_with_who_is_left() -> None:
    group = QuorumGroup.led(5)
    group[0].append(b"acknowledged")
    group[0].flush()
    group.level()
    for lost in (0, 1, 2):
        group[lost].up = False
    group.live(8.0)
    assert group.leaders == []
    left = group[4]
    epoch = max(group[3].replica.epoch, left.replica.epoch) + 1
    for node in (left, group[3]):
        node.elections.promise_recovery({0, 1, 2}, epoch, "r4", node.now_s)
    group.sent(left, left.elections.recover({0, 1, 2}, epoch, epoch + 1, left.now_s, FIRST_MS))
    group.live(3.0)
    assert group.leaders == [4]
    assert (left.replica.members.voters, group[3].replica.members.voters) == ((3, 4), (3, 4))
    end = left.append(b"of those that are left")
    group.live(1.0)
    assert left.replica.verdict(end) is SendVerdict.SEND_OK
    assert [one.body for one in read_queue(group[3].store, "orders", 0)] == [b"acknowledged", b"of those that are left"]
    group[0].replace_disk()
    group[0].up = True
    left.replica.add_known_replica(0, "r0")
    group.live(4.0)
    left.elections.add_voter(0, left.now_s, FIRST_MS)
    group.live(2.0)
    assert left.replica.members.voters == (0, 3, 4)
    assert (group.leaders, group[0].log) == ([4], left.log)


@pytest.mark.parametrize(
    ("lost", "expected", "why"),
    [
        ({0}, 1, "a majority of the voters"),
        ({0, 2}, 1, "or is called lost itself"),
        ({0, 1}, 7, "in epoch 1, not 7"),
        ({0, 1}, 1, "the leader of epoch 1 answers here"),
    ],
)
def test_no_operator_takes_the_lead_from_a_group_that_can_elect(lost: set[int], expected: int, why: str) -> None:
    group = QuorumGroup.led()
    group.live(0.5)
    follower = group[2]
    with pytest.raises(RoleRefused, match=why):
        follower.elections.recover(lost, expected, expected + 1, follower.now_s, FIRST_MS)
    assert group.leaders == [0]


def test_an_empty_disk_is_never_what_a_group_is_recovered_with() -> None:
    group = QuorumGroup.led()
    for replica_id in (0, 1):
        group[replica_id].up = False
    group[2].replace_disk()
    group.live(4.0)
    node = group[2]
    with pytest.raises(RoleRefused, match="it has not held what the group confirmed"):
        node.elections.recover({0, 1}, node.replica.epoch, node.replica.epoch + 1, node.now_s, FIRST_MS)


@pytest.mark.parametrize("address", ["10.0.0.5", "10.0.0.5:0", "10.0.0.5:10911;4=10.0.0.6:10911"])
def test_an_observer_is_added_only_with_an_address_that_can_be_asked(make_broker: MakeBroker, address: str) -> None:
    """Each replica remembered one without its port, and ended as soon as it led."""
    broker = make_broker(enableDLegerCommitLog="true", dLegerPeers=PEERS, dLegerSelfId="n0", brokerIP1="10.0.0.1")
    header = ReplicaMembersRequestHeader(group="broker-a", change="addObserver", replica_id=3, address=address)
    reply = broker.ask(HighwaterRequestCode.REPLICA_MEMBERS, header)
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == "addObserver needs the address where the replica serves, as host:port"
