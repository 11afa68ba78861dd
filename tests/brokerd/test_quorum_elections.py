"""Elections, as the Raft paper (Ongaro and Ousterhout, extended version) has them: sections 5.1, 5.2 and 5.4.1."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from brokerd.replica.quorum_messages import BeginEpoch, Noted, VoteAnswer, VoteRequest
from brokerd.replica.quorum_state import State
from tests.brokerd.quorum_group import LONG_S, TIMES, Node, QuorumGroup

GROUP = "group-a"


def vote_request(candidate: int, epoch: int, log: tuple[int, int], *, pre: bool = False) -> VoteRequest:
    return VoteRequest(group=GROUP, candidate=candidate, epoch=epoch, last_epoch=log[0], end_offset=log[1], pre=pre)


def answer_of(node: Node, request: VoteRequest) -> VoteAnswer:
    reply = node.step(request).reply
    assert isinstance(reply, VoteAnswer)
    return reply


def test_5_2_a_follower_stays_one_while_a_leader_answers_its_pulls() -> None:
    group = QuorumGroup.led()
    for _ in range(40):
        group.wait(TIMES.pull_timeout[0] * 0.9)
        group[1].pull()
        group[1].tick()
    assert group[1].state is State.FOLLOWER


def test_5_2_a_follower_without_a_leader_campaigns_within_the_longest_wait() -> None:
    group = QuorumGroup.led()
    group[0].up = False
    group[1].now_s += TIMES.pull_timeout[0] * 0.99
    assert not group[1].tick().messages
    group[1].now_s += LONG_S
    assert group[1].tick().messages
    assert group[1].state is State.PRE_CANDIDATE


def test_5_2_a_candidate_raises_its_epoch_votes_for_itself_and_asks_all_others() -> None:
    group = QuorumGroup.led(5)
    group[0].up = False
    group.wait(LONG_S)
    group[1].tick()
    group.deliver(lambda letter: letter.message.pre if isinstance(letter.message, (VoteRequest, VoteAnswer)) else False)
    assert (group[1].state, group[1].replica.epoch, group[1].replica.saved.voted_for) == (State.CANDIDATE, 2, 1)
    assert {letter.to for letter in group.letters if isinstance(letter.message, VoteRequest)} == {0, 2, 3, 4}


@pytest.mark.parametrize(("voters", "votes", "wins"), [(3, 1, False), (3, 2, True), (5, 2, False), (5, 3, True)])
def test_5_2_a_majority_of_votes_makes_a_leader_and_less_does_not(voters: int, votes: int, wins: bool) -> None:
    group = QuorumGroup.led(voters)
    group[0].up = False
    for voter in range(1 + votes, voters):
        group[voter].up = False
    group.wait(LONG_S)
    group[1].tick()
    group.deliver()
    assert group[1].replica.leads is wins


def test_5_2_a_voter_votes_for_the_first_who_asks_and_for_no_one_else_in_that_epoch() -> None:
    group = QuorumGroup.led(5)
    log = group[2].log
    assert answer_of(group[2], vote_request(3, 2, log)).granted
    refused = answer_of(group[2], vote_request(4, 2, log))
    assert not refused.granted
    assert "voted for replica 3" in refused.reason
    assert answer_of(group[2], vote_request(3, 2, log)).granted  # its first answer was lost


def test_5_2_a_vote_outlives_a_restart() -> None:
    group = QuorumGroup.led(5)
    log = group[2].log
    answer_of(group[2], vote_request(3, 2, log))
    group[2].lose_power()
    assert group[2].replica.epoch == 2
    assert not answer_of(group[2], vote_request(4, 2, log)).granted


def test_5_2_a_vote_that_cannot_be_written_is_not_given_and_nothing_more_is_promised() -> None:
    group = QuorumGroup.led(5)
    voter = group[2]
    voter.disk.fail = lambda number, name: errno.EIO if name == "sync" else None
    outcome = voter.step(vote_request(3, 2, voter.log))
    assert outcome.reply is None
    assert outcome.failure is not None
    voter.disk.fail = lambda number, name: None
    assert voter.step(vote_request(3, 2, voter.log)).reply is None
    assert "epoch file" in (voter.elections.why_not_electable() or "")


def test_5_2_a_campaign_whose_vote_cannot_be_written_asks_no_one() -> None:
    group = QuorumGroup.led()
    group[0].up = False
    candidate = group[1]
    group.wait(LONG_S)
    candidate.disk.fail = lambda number, name: errno.EIO if name == "sync" else None
    candidate.tick()
    group.deliver()
    assert not any(isinstance(one.message, VoteRequest) and not one.message.pre for one in group.letters)
    assert not candidate.replica.leads


def test_5_2_a_candidate_that_hears_of_its_epochs_leader_follows_it() -> None:
    group = QuorumGroup.led()
    group.wait(LONG_S)
    group[1].tick()
    group[2].tick()
    group.deliver(lambda letter: getattr(letter.message, "pre", False))
    assert {group[1].state, group[2].state} == {State.CANDIDATE}
    group.lose_letters()
    group[2].step(BeginEpoch(group=GROUP, leader=1, epoch=2, address="r1"))
    assert (group[2].state, group[2].replica.leader_address) == (State.FOLLOWER, "r1")


def test_5_2_a_split_vote_ends_with_a_new_epoch_after_waits_that_differ() -> None:
    group = QuorumGroup.led()
    group[0].up = False
    group.wait(LONG_S)
    for node in (group[1], group[2]):
        node.tick()
    for _ in range(200):
        group.deliver()
        if group.leaders:
            break
        group.wait(0.05)
        for node in (group[1], group[2]):
            node.tick()
    assert len(group.leaders) == 1


def test_5_1_whoever_sees_a_higher_epoch_takes_it_and_leads_no_more() -> None:
    group = QuorumGroup.led()
    outcome = group[0].step(Noted(replica=1, epoch=7))
    assert outcome.role_changed
    assert (group[0].replica.leads, group[0].replica.epoch, group[0].state) == (False, 7, State.UNATTACHED)
    group[0].restart()
    assert group[0].replica.epoch == 7


def test_5_1_requests_of_an_old_epoch_change_nothing() -> None:
    group = QuorumGroup.led()
    group[1].replica.saw_epoch(5)
    refused = answer_of(group[1], vote_request(2, 4, (9, 1 << 30)))
    assert (refused.granted, refused.epoch) == (False, 5)
    reply = group[1].step(BeginEpoch(group=GROUP, leader=0, epoch=4, address="r0")).reply
    assert reply == Noted(replica=1, epoch=5)
    assert group[1].replica.leader_address is None


def test_5_1_one_who_belongs_to_another_group_is_not_believed() -> None:
    group = QuorumGroup.led()
    foreign = VoteRequest(group="other", candidate=2, epoch=9, last_epoch=9, end_offset=1 << 30, pre=False)
    answer = answer_of(group[1], foreign)
    assert (answer.granted, answer.epoch, answer.leader, answer.leader_address) == (False, 0, None, None)
    group[1].step(BeginEpoch(group="other", leader=2, epoch=9, address="r2"))
    assert (group[1].replica.epoch, group[1].replica.leader_address) == (1, "r0")


@pytest.mark.parametrize(
    ("candidate", "voter", "granted"),
    [
        ([1, 1], [1, 1], True),
        ([1, 1, 1], [1, 1], True),
        ([1, 1], [1, 1, 1], False),
        ([1, 2], [1, 1, 1, 1], True),  # a later epoch is more up to date than any length
        ([1, 1, 1, 1], [1, 2], False),
        ([1, 3], [1, 2, 3], False),
    ],
)
@pytest.mark.parametrize("pre", [True, False])
def test_5_4_1_a_voter_refuses_whose_log_is_less_up_to_date(
    candidate: list[int], voter: list[int], granted: bool, pre: bool
) -> None:
    group = QuorumGroup.of(3)
    group[1].write_log(candidate, epoch=5)
    group[2].write_log(voter, epoch=5)
    assert answer_of(group[2], vote_request(1, 6, group[1].log, pre=pre)).granted is granted


def test_a_replica_of_one_leads_by_itself() -> None:
    group = QuorumGroup.of(1)
    group[0].time_out()
    assert (group[0].replica.leads, group[0].replica.epoch) == (True, 1)


def test_a_new_leader_notifies_everyone_until_each_has_pulled() -> None:
    group = QuorumGroup.of(3)
    group.elect(0)
    group[1].pull()
    group.lose_letters()
    group[0].now_s += TIMES.announce
    reported = [to for to, message in group[0].tick().messages if isinstance(message, BeginEpoch)]
    assert reported == [2]


def test_a_replica_that_comes_back_learns_at_once_who_leads() -> None:
    group = QuorumGroup.led()
    group[2].up = False
    group.lose_letters()
    group.wait(1.4)
    group[1].pull()
    group.wait(0.5)
    group[1].pull()
    group[2].restart()
    group[0].tick()
    group.deliver()
    assert group[2].replica.leader_address == "r0"


def test_what_was_long_on_its_way_to_a_leader_is_no_sign_that_it_still_leads() -> None:
    """Its sender had elected another one since: the leader of the past sent a consumer back to where its own log ends."""
    group = QuorumGroup.led()
    leader, pull, sent_s = group[0], group[1].replica.next_pull(max_bytes=1, max_wait_ms=0), group[0].now_s
    group.lose_letters()
    for _ in range(20):  # it is not suspended
        group.wait(0.1)
        leader.tick()
    leader.replica.pulled(pull, "r1", leader.now_s, sent_s)
    assert leader.replica.leads
    assert not leader.elections.has_recent_majority(leader.now_s)
    leader.replica.pulled(pull, "r1", leader.now_s, leader.now_s - 0.5)
    assert leader.elections.has_recent_majority(leader.now_s)


def test_what_a_new_disk_has_had_answered_says_nothing_of_the_one_before() -> None:
    group = QuorumGroup.led()
    leader, pull, sent_s = group[0], group[1].replica.next_pull(max_bytes=1, max_wait_ms=0), group[0].now_s
    group.lose_letters()
    for _ in range(20):
        group.wait(0.1)
        leader.tick()
    leader.replica.pulled(replace(pull, joined=False, incarnation="new"), "r1", leader.now_s, leader.now_s)
    leader.replica.pulled(pull, "r1", leader.now_s, sent_s)
    assert not leader.elections.has_recent_majority(leader.now_s)


def test_what_waited_for_a_suspended_leader_is_no_sign_of_life() -> None:
    """It asked before the suspension; since then another one may lead, and this one's queues may end too early."""
    group = QuorumGroup.led()
    leader, pull = group[0], group[1].replica.next_pull(max_bytes=1, max_wait_ms=0)
    assert leader.elections.has_recent_majority(leader.now_s)
    before_s, after_s = leader.now_s, leader.now_s + 12
    leader.replica.pulled(pull, "r1", after_s, before_s)
    assert not leader.elections.has_recent_majority(after_s)
    leader.replica.pulled(pull, "r1", after_s, after_s)
    assert leader.elections.has_recent_majority(after_s)
