"""An empty disk in a voter's place goes by the same id, and is another one: it counts when the group has adopted it."""

from __future__ import annotations

import msgspec
import pytest

from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.quorum_messages import VoteAnswer, VoteRequest
from brokerd.replica.voters import Members
from tests.brokerd.quorum_group import FIRST_MS, LONG_S, TIMES, QuorumGroup


def incarnations(group: QuorumGroup) -> dict[int, str]:
    return {node.id: node.replica.saved.incarnation for node in group.nodes.values()}


def test_the_founding_notes_every_voters_disk() -> None:
    group = QuorumGroup.led()
    assert len(set(incarnations(group).values())) == 3
    assert [dict(node.replica.members.incarnations) for node in group.nodes.values()] == [incarnations(group)] * 3


def test_a_disk_keeps_its_name() -> None:
    group = QuorumGroup.led()
    before = incarnations(group)
    for node in group.nodes.values():
        node.restart()
    assert incarnations(group) == before
    assert [dict(node.replica.members.incarnations) for node in group.nodes.values()] == [before] * 3
    group[2].replace_disk()
    assert incarnations(group)[2] != before[2]


def test_a_leader_of_the_past_confirms_nothing_by_a_new_disk_whose_predecessor_followed_another() -> None:
    """0 leads, cut off. 1 is elected, and confirms a record with 2, whose disk is lost then. The empty one comes to 0 only,
    and catches up with it: to 0 it looks like a majority.
    """
    group = QuorumGroup.led()
    group.isolate(0)
    for number in (1, 2):
        group[number].now_s += LONG_S  # 0 has not missed them long enough to resign
    group[1].tick()
    group.deliver()
    end = group[1].append(b"confirmed by 1 and 2")
    group.live(0.5)
    assert group[1].replica.verdict(end) is SendVerdict.SEND_OK
    assert group.leaders == [0, 1]
    group[2].replace_disk()
    group.rejoin(0)
    group.isolate(1)
    group.lose_letters()
    group[2].replica.saw_epoch(1, "r0")
    end = group[0].append(b"of the past")
    group.level()
    assert group[2].log == group[0].log
    assert group[2].replica.saved.joined
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group.live(LONG_S)
    group.rejoin(1)
    group.live(4 * LONG_S)
    assert len(group.leaders) == 1
    for node in group.nodes.values():
        log = node.store.read_raw(0, node.store.end_offset)
        assert b"confirmed by 1 and 2" in log
        assert b"of the past" not in log


def test_it_is_adopted_by_a_record_without_it_and_then_one_with_it() -> None:
    group = QuorumGroup.led()
    group[0].elections.prefer(2, group[0].now_s, FIRST_MS)
    group.level()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    seen = []
    for _ in range(8):
        group.live(0.1)
        if group[0].replica.members not in seen:
            seen.append(group[0].replica.members)
    assert [members.voters for members in seen] == [(0, 1), (0, 1, 2)]
    assert {members.preferred for members in seen} == {2}
    assert dict(seen[-1].incarnations) == incarnations(group)


def test_one_that_has_not_caught_up_is_not_adopted_and_costs_the_group_no_voter() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group.isolate(2)
    group.live(2.0)
    assert group[0].replica.members.voters == (0, 1, 2)


def test_nothing_is_changed_that_could_not_be_confirmed() -> None:
    """With 1 away too, two of three disks are: a record without 2 would be in force, and no one left to confirm it."""
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[1].up = False
    group.wait(TIMES.recent + 0.1)
    group[2].replica.saw_epoch(1, "r0")
    group.live(LONG_S)
    assert group[0].replica.members.voters == (0, 1, 2)
    assert group.leaders == []
    group[1].up = True
    group.live(3 * LONG_S)
    (leader,) = group.leaders
    assert dict(group[leader].replica.members.incarnations) == incarnations(group)
    assert group[leader].replica.members.voters == (0, 1, 2)


def test_the_next_leader_goes_on_with_an_adoption() -> None:
    group = QuorumGroup.led(5)
    group[4].replace_disk()
    group[4].replica.saw_epoch(1, "r0")
    group.level()
    group[0].tick()  # the record without 4
    group[0].flush()
    assert group[0].replica.members.voters == (0, 1, 2, 3)
    group.isolate(4)
    group.level()
    group[0].up = False
    group.elect(1)
    group.rejoin(4)
    group[4].replica.saw_epoch(2, "r1")
    group.live(1.0)
    assert group[1].replica.members.voters == (0, 1, 2, 3, 4)
    assert dict(group[1].replica.members.incarnations)[4] == incarnations(group)[4]


def test_a_disk_that_is_lost_once_more_meanwhile_is_adopted_as_the_last_one() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    group[0].tick()
    assert group[0].replica.members.replacing
    group[0].flush()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.live(2.0)
    assert group[0].replica.members.voters == (0, 1, 2)
    assert dict(group[0].replica.members.incarnations) == incarnations(group)


def test_it_votes_for_no_one_before_and_its_vote_is_not_counted() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    assert group[2].replica.saved.joined
    request = VoteRequest(group="group-a", candidate=1, epoch=9, last_epoch=9, end_offset=1 << 40, pre=False)
    answer = group[2].step(request).reply
    assert isinstance(answer, VoteAnswer)
    assert not answer.granted
    assert "not adopted" in answer.reason
    group[0].up = False
    group.wait(LONG_S)
    group[1].tick()
    epoch = group[1].replica.epoch + 1
    for pre in (True, False):  # from a version that takes itself for the voter
        group[1].step(
            VoteAnswer(voter=2, asked_epoch=epoch, pre=pre, granted=True, epoch=1, incarnation=incarnations(group)[2])
        )
    assert group.leaders == []


def test_an_operator_does_not_make_it_count_at_once_either() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    with pytest.raises(RoleRefused, match="disk of replica 2 is a new one"):
        group[0].elections.add_voter(2, group[0].now_s, FIRST_MS)


def test_a_removed_voter_that_is_added_again_counts_by_the_disk_that_it_has_then() -> None:
    group = QuorumGroup.led()
    group[0].elections.remove_voter(2, group[0].now_s, FIRST_MS)
    group.live(0.5)
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.live(0.5)
    assert group[0].replica.members.voters == (0, 1)
    group[0].elections.add_voter(2, group[0].now_s, FIRST_MS)
    group.live(0.5)
    assert dict(group[0].replica.members.incarnations) == incarnations(group)


def test_a_group_that_is_older_than_the_names_of_disks_takes_them_as_it_sees_them() -> None:
    group = QuorumGroup.led()
    group.live(0.2)
    group[0].elections._change(Members((0, 1, 2)), group[0].now_s, FIRST_MS)  # as a leader of that version wrote it
    group.live(0.1)
    group.live(1.0)
    assert [dict(node.replica.members.incarnations) for node in group.nodes.values()] == [incarnations(group)] * 3
    assert group[0].replica.members.voters == (0, 1, 2)


def test_an_epoch_file_of_that_age_is_read() -> None:
    group = QuorumGroup.led()
    state = msgspec.to_builtins(group[1].replica.saved)
    for name in ("incarnation", "incarnations", "in_doubt", "may_lack_durable", "held_in_memory"):
        del state[name]
    old = msgspec.convert(state, type=type(group[1].replica.saved))
    assert [members.voters for _, members in old.member_history] == [(0, 1, 2)]
    assert old.member_history[0][1].incarnations == ()


def test_one_that_dies_before_it_is_adopted_can_be_removed() -> None:
    group = QuorumGroup.led()
    group[2].replace_disk()
    group[2].replica.saw_epoch(1, "r0")
    group.level()
    group[0].tick()
    group.level()
    group[2].up = False
    assert group[0].replica.members.replacing
    group[0].elections.remove_voter(2, group[0].now_s, FIRST_MS)
    assert not group[0].replica.members.replacing
